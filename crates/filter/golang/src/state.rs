//! What Go code puts into the filter state, by the rules that it gives with it.
//!
//! As in Envoy, a text keeps the rules that it was set with first: one that is only to be read stays, and nothing takes the
//! place of a text that lives longer or shorter.

use std::cell::RefCell;
use std::rc::Rc;

use postrider_filter_api::{Lasting, ObjectKind, StreamInfo};
use postrider_telemetry::warning;

/// The numbers of the SDK.
const MUTABLE: i32 = 1;
const CONNECTION: i32 = 2;

/// How long a text lives, who may change it, and who knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    read_only: bool,
    /// As the SDK numbers life spans.
    span: i32,
    /// Connections to upstreams are to know of it.
    shared: bool,
}

impl Rules {
    /// Of the three numbers of the SDK. Shared once, or from connection to connection: behind the first upstream there are no
    /// others.
    pub(crate) fn new(kind: i32, span: i32, sharing: i32) -> Rules {
        Rules { read_only: kind != MUTABLE, span, shared: sharing != 0 }
    }

    /// In one number, for another process.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.read_only) | u64::from(self.shared) << 1 | u64::from(self.span.cast_unsigned()) << 2
    }

    pub(crate) fn of(number: u64) -> Rules {
        let span = u32::try_from(number >> 2).unwrap_or_default().cast_signed();
        Rules { read_only: number & 1 != 0, shared: number & 2 != 0, span }
    }

    /// Longer than its request.
    fn lasts(self) -> bool {
        self.span >= CONNECTION
    }
}

/// The rules of the texts that Go code set for a stream, by their names.
#[derive(Default)]
struct Known(RefCell<Vec<(String, Rules)>>);

/// Sets a text, or leaves what is there.
pub(crate) fn set(info: &mut StreamInfo, name: &str, value: &str, rules: Rules) {
    let known = match info.shared.iter().find_map(|shared| shared.clone().downcast::<Known>().ok()) {
        Some(known) => known,
        None => {
            let known = Rc::new(Known::default());
            info.shared.push(known.clone());
            known
        }
    };
    let before = known.0.borrow().iter().find(|(set, _)| set == name).map(|(_, rules)| *rules);
    if let Some(why) = before.map_or_else(|| of_connection(info, name, rules), |before| against(before, rules)) {
        warning!(Filter, "a Go plugin sets the filter state `{name}`, which stays as it is: {why}");
        return;
    }
    if before.is_none() {
        known.0.borrow_mut().push((name.to_owned(), rules));
    }
    // A text always stands for itself.
    info.make_state(name, ObjectKind::Text, value.as_bytes(), rules.shared);
    if rules.lasts() {
        let (name, value) = (name.to_owned(), value.to_owned());
        info.keep_state(Lasting { name, value, shared: rules.shared, read_only: rules.read_only });
    }
}

/// Why a text that was set by some rules stays; `None` where it does not.
fn against(before: Rules, now: Rules) -> Option<&'static str> {
    match () {
        () if before.span != now.span => Some("it has another life span"),
        () if before.read_only => Some("it is only to be read"),
        () if now.read_only => Some("it is there to be changed"),
        () => None,
    }
}

/// The same of what the connection has of earlier requests and of its own filters.
fn of_connection(info: &StreamInfo, name: &str, now: Rules) -> Option<&'static str> {
    let noted = info.connection.as_ref()?;
    if let Some(kept) = noted.lasting.borrow().iter().find(|kept| kept.name == name) {
        let before = Rules { read_only: kept.read_only, span: CONNECTION, shared: kept.shared };
        return against(before, Rules { span: now.span.min(CONNECTION), ..now });
    }
    let is_of_connection = noted.state.iter().any(|(known, _)| known == name);
    (is_of_connection && !now.lasts()).then_some("it has another life span")
}

#[cfg(test)]
mod tests {
    use postrider_filter_api::Noted;
    use postrider_filter_api::testing::FakeStream;
    use postrider_model::Value;

    use super::*;

    const READ_ONLY: i32 = 0;
    const REQUEST: i32 = 1;

    fn info(noted: Option<&Rc<Noted>>) -> StreamInfo {
        let mut info = FakeStream::new("GET", "/", &[]).info;
        if let Some(noted) = noted {
            noted.begin(&mut info);
        }
        info
    }

    fn value(info: &StreamInfo, name: &str) -> String {
        info.filter_state
            .iter()
            .find(|(known, _)| known == name)
            .map_or(String::new(), |(_, value)| format!("{value:?}"))
    }

    #[test]
    fn what_is_only_to_be_read_and_what_lives_otherwise_stays() {
        let mut info = info(None);
        for (name, [first, second], is_replaced) in [
            ("read", [(READ_ONLY, REQUEST), (READ_ONLY, REQUEST)], false),
            ("changed", [(MUTABLE, REQUEST), (MUTABLE, REQUEST)], true),
            ("kind", [(MUTABLE, REQUEST), (READ_ONLY, REQUEST)], false),
            ("span", [(MUTABLE, 0), (MUTABLE, REQUEST)], false),
        ] {
            set(&mut info, name, "one", Rules::new(first.0, first.1, 0));
            set(&mut info, name, "two", Rules::new(second.0, second.1, 0));
            let expected = if is_replaced { "two" } else { "one" };
            assert!(value(&info, name).contains(expected), "{name}: {}", value(&info, name));
        }
    }

    #[test]
    fn what_lasts_is_there_for_later_requests_of_the_connection() {
        let noted =
            Rc::new(Noted { state: vec![("guard".to_owned(), Value::String("g".to_owned()))], ..Noted::default() });
        let mut first = info(Some(&noted));
        set(&mut first, "kept", "one", Rules::new(READ_ONLY, CONNECTION, 1));
        set(&mut first, "top", "t", Rules::new(MUTABLE, 3, 0));
        set(&mut first, "gone", "x", Rules::new(MUTABLE, REQUEST, 0));
        set(&mut first, "guard", "x", Rules::new(MUTABLE, REQUEST, 0));
        let mut second = info(Some(&noted));
        assert!(value(&second, "kept").contains("one") && value(&second, "guard").contains('g'));
        assert_eq!(value(&second, "gone"), "");
        assert!(second.upstream_objects.as_ref().is_some_and(|objects| objects.shared == ["kept"]));
        set(&mut second, "kept", "two", Rules::new(READ_ONLY, CONNECTION, 1));
        set(&mut second, "top", "u", Rules::new(MUTABLE, CONNECTION, 0));
        let third = info(Some(&noted));
        assert!(value(&third, "kept").contains("one") && value(&third, "top").contains('u'));
        // Without a connection it is the request's alone.
        let mut alone = info(None);
        set(&mut alone, "kept", "one", Rules::new(MUTABLE, CONNECTION, 0));
        assert!(value(&alone, "kept").contains("one"));
    }

    #[test]
    fn rules_are_one_number_for_another_process() {
        for (kind, span, sharing) in [(0, 0, 0), (1, 3, 2), (0, 2, 1), (1, 1, 0)] {
            let rules = Rules::new(kind, span, sharing);
            assert_eq!(Rules::of(rules.number()), rules);
        }
    }
}
