//! How long things stay in the filter state, and who may change them.
//!
//! As in Envoy, a name keeps the rules that it was set with first: what is only to be read stays, and nothing takes the place of
//! what lives longer or shorter. What nobody gave rules lives as long as its request and may be changed.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use crate::{ObjectKind, StreamInfo};

/// The rules of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateRules {
    pub read_only: bool,
    pub span: LifeSpan,
    /// Connections to upstreams are to know of it.
    pub shared: bool,
}

/// How long it lives, as Envoy numbers that: with the filters of a request, with the request, with its connection, or with the
/// connection that this one came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LifeSpan {
    #[default]
    FilterChain,
    Request,
    Connection,
    TopConnection,
}

impl LifeSpan {
    /// `None` for a number that stands for none.
    pub fn of(number: i32) -> Option<LifeSpan> {
        use LifeSpan::{Connection, FilterChain, Request, TopConnection};
        [FilterChain, Request, Connection, TopConnection].get(usize::try_from(number).ok()?).copied()
    }

    /// Longer than its request.
    pub fn lasts(self) -> bool {
        self >= LifeSpan::Connection
    }
}

/// What stays with a connection when the request that set it is over.
#[derive(Debug, Clone, Default)]
pub struct Lasting {
    names: RefCell<Vec<Lasts>>,
    shared: RefCell<Vec<Rc<dyn Any>>>,
}

#[derive(Debug, Clone)]
struct Lasts {
    name: String,
    rules: StateRules,
    /// What it is made of, and by what; `None` for what only those find who set it.
    object: Option<(ObjectKind, Vec<u8>)>,
}

impl Lasting {
    /// What a request of the connection begins with.
    pub(crate) fn begin(&self, info: &mut StreamInfo) {
        for Lasts { name, rules, object } in &*self.names.borrow() {
            if let Some((kind, bytes)) = object {
                info.make_state(name, *kind, bytes, rules.shared);
            }
        }
    }

    /// Keeps an object in the place of what has its name, whatever the rules of that are.
    pub fn keep(&self, name: &str, kind: ObjectKind, bytes: &[u8], rules: StateRules) {
        let mut names = self.names.borrow_mut();
        names.retain(|known| known.name != name);
        names.push(Lasts { name: name.to_owned(), rules, object: Some((kind, bytes.to_vec())) });
    }

    /// What `act` makes of the rules and bytes of what is kept by that name.
    pub fn kept<T>(&self, name: &str, act: impl FnOnce(StateRules, &[u8]) -> T) -> Option<T> {
        let names = self.names.borrow();
        let Lasts { rules, object, .. } = names.iter().find(|known| known.name == name)?;
        Some(act(*rules, &object.as_ref()?.1))
    }

    /// What filters of one kind leave for later requests, each kind by a type of its own, which is made where there is none.
    pub fn left<T: Default + 'static>(&self) -> Rc<T> {
        left(&mut self.shared.borrow_mut())
    }

    /// What they left; `None` where they left nothing.
    pub fn found<T: 'static>(&self) -> Option<Rc<T>> {
        found(&self.shared.borrow())
    }

    fn rules(&self, name: &str) -> Option<StateRules> {
        self.names.borrow().iter().find(|known| known.name == name).map(|known| known.rules)
    }

    fn set(&self, name: &str, rules: StateRules, text: Option<&str>) {
        let object = text.map(|text| (ObjectKind::Text, text.as_bytes().to_vec()));
        let mut names = self.names.borrow_mut();
        match names.iter_mut().find(|known| known.name == name) {
            Some(known) => (known.rules.shared, known.object) = (rules.shared, object),
            None => names.push(Lasts { name: name.to_owned(), rules, object }),
        }
    }
}

impl StreamInfo {
    /// The same as [`Lasting::left`] for as long as the stream.
    pub fn left<T: Default + 'static>(&mut self) -> Rc<T> {
        left(&mut self.shared)
    }

    /// The same as [`Lasting::found`].
    pub fn found<T: 'static>(&self) -> Option<Rc<T>> {
        found(&self.shared)
    }

    /// Puts a text into the filter state by these rules.
    ///
    /// # Errors
    /// Why what is there stays.
    pub fn set_text(&mut self, name: &str, text: &str, rules: StateRules) -> Result<(), &'static str> {
        self.claim_state(name, rules, Some(text))?;
        // A text always stands for itself.
        self.make_state(name, ObjectKind::Text, text.as_bytes(), rules.shared);
        Ok(())
    }

    /// Takes a name for something that only those find who set it: no text has it any more.
    ///
    /// # Errors
    /// Why what is there stays.
    pub fn claim_name(&mut self, name: &str, rules: StateRules) -> Result<(), &'static str> {
        self.claim_state(name, rules, None)?;
        if self.upstream_objects.is_some() {
            self.forget_object(name);
        }
        self.filter_state.retain(|(known, _)| known != name);
        Ok(())
    }

    fn claim_state(&mut self, name: &str, rules: StateRules, text: Option<&str>) -> Result<(), &'static str> {
        let before = self.state_rules(name);
        if let Some(why) = before.and_then(|before| against(before, rules)) {
            return Err(why);
        }
        match &self.connection {
            Some(noted) if rules.span.lasts() => noted.lasting.set(name, rules, text),
            _ if before.is_none() => self.left::<Known>().0.borrow_mut().push((name.to_owned(), rules)),
            _ => {}
        }
        Ok(())
    }

    /// Those of the stream's own, of what its connection has of earlier requests and of its own filters, or of what has none.
    fn state_rules(&self, name: &str) -> Option<StateRules> {
        let known = self.shared.iter().find_map(|shared| shared.downcast_ref::<Known>());
        let own = known.and_then(|known| Some(known.0.borrow().iter().find(|(set, _)| set == name)?.1));
        let of_connection = || {
            let noted = self.connection.as_ref()?;
            let is_its_own = || noted.state.iter().any(|(known, _)| known == name);
            let rules = StateRules { span: LifeSpan::Connection, ..StateRules::default() };
            noted.lasting.rules(name).or_else(|| is_its_own().then_some(rules))
        };
        let is_there = || self.filter_state.iter().any(|(known, _)| known == name);
        own.or_else(of_connection).or_else(|| is_there().then(StateRules::default))
    }
}

/// The rules of what was set for a stream, by names.
#[derive(Default)]
struct Known(RefCell<Vec<(String, StateRules)>>);

fn left<T: Default + 'static>(all: &mut Vec<Rc<dyn Any>>) -> Rc<T> {
    found(all).unwrap_or_else(|| {
        let made = Rc::new(T::default());
        all.push(made.clone());
        made
    })
}

fn found<T: 'static>(all: &[Rc<dyn Any>]) -> Option<Rc<T>> {
    all.iter().find_map(|shared| shared.clone().downcast().ok())
}

/// Why something that was set by some rules stays; `None` where it does not.
fn against(before: StateRules, now: StateRules) -> Option<&'static str> {
    match () {
        () if before.span.min(LifeSpan::Connection) != now.span.min(LifeSpan::Connection) => {
            Some("it has another life span")
        }
        () if before.read_only => Some("it is only to be read"),
        () if now.read_only => Some("it is there to be changed"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_model::Value;

    use super::*;
    use crate::{Moment, Noted};

    fn info(noted: Option<&Rc<Noted>>) -> StreamInfo {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        if let Some(noted) = noted {
            noted.begin(&mut info);
        }
        info
    }

    fn value<'i>(info: &'i StreamInfo, name: &str) -> &'i str {
        match info.filter_state.iter().find(|(known, _)| known == name) {
            Some((_, Value::String(text))) => text,
            _ => "",
        }
    }

    const fn rules(read_only: bool, span: LifeSpan) -> StateRules {
        StateRules { read_only, span, shared: false }
    }

    const REQUEST: StateRules = rules(false, LifeSpan::Request);
    const CONNECTION: StateRules = rules(false, LifeSpan::Connection);

    #[test]
    fn what_is_only_to_be_read_and_what_lives_otherwise_stays() {
        let mut info = info(None);
        for (name, first, second, is_replaced) in [
            ("read", rules(true, LifeSpan::Request), rules(true, LifeSpan::Request), false),
            ("changed", REQUEST, REQUEST, true),
            ("kind", REQUEST, rules(true, LifeSpan::Request), false),
            ("span", StateRules::default(), REQUEST, false),
        ] {
            assert_eq!(info.set_text(name, "one", first), Ok(()));
            assert_eq!(info.set_text(name, "two", second).is_ok(), is_replaced, "{name}");
            assert_eq!(value(&info, name), if is_replaced { "two" } else { "one" }, "{name}");
        }
        // What was set without rules goes with the filters.
        info.set_state("plain", Value::String("one".to_owned()));
        assert!(info.set_text("plain", "two", REQUEST).is_err());
        assert!(info.set_text("plain", "three", StateRules::default()).is_ok());
        assert_eq!(value(&info, "plain"), "three");
    }

    #[test]
    fn what_lasts_is_there_for_later_requests_of_the_connection() {
        let guard = vec![("guard".to_owned(), Value::String("g".to_owned()))];
        let noted = Rc::new(Noted { state: guard, ..Noted::default() });
        let mut first = info(Some(&noted));
        let shared = StateRules { shared: true, ..rules(true, LifeSpan::Connection) };
        assert!(first.set_text("kept", "one", shared).is_ok());
        assert!(first.set_text("top", "t", rules(false, LifeSpan::TopConnection)).is_ok());
        assert!(first.set_text("gone", "x", REQUEST).is_ok());
        assert!(first.set_text("guard", "x", REQUEST).is_err());
        let mut second = info(Some(&noted));
        assert_eq!(["kept", "guard", "gone"].map(|name| value(&second, name)), ["one", "g", ""]);
        assert!(second.upstream_objects.as_ref().is_some_and(|objects| objects.shared == ["kept"]));
        assert!(second.set_text("kept", "two", rules(true, LifeSpan::Connection)).is_err());
        assert!(second.set_text("top", "u", CONNECTION).is_ok());
        let third = info(Some(&noted));
        assert_eq!(["kept", "top"].map(|name| value(&third, name)), ["one", "u"]);
        // Without a connection it is the request's alone.
        let mut alone = info(None);
        assert!(alone.set_text("kept", "one", CONNECTION).is_ok());
        assert_eq!(value(&alone, "kept"), "one");
    }

    #[test]
    fn a_name_that_was_taken_has_no_text_any_more() {
        let noted = Rc::new(Noted::default());
        let mut first = info(Some(&noted));
        assert!(first.set_text("mine", "text", CONNECTION).is_ok());
        assert!(first.claim_name("mine", REQUEST).is_err());
        assert!(first.claim_name("mine", CONNECTION).is_ok());
        let mut second = info(Some(&noted));
        assert_eq!([value(&first, "mine"), value(&second, "mine")], ["", ""]);
        assert!(second.set_text("mine", "text", REQUEST).is_err());
        *noted.lasting.left::<RefCell<u8>>().borrow_mut() += 1;
        assert_eq!(*noted.lasting.left::<RefCell<u8>>().borrow(), 1);
    }
}
