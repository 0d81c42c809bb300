//! Filter state with bytes that are no text.
//!
//! Logs and matches know texts alone: to them such bytes are the text that comes closest. Whoever asks for the bytes gets them
//! as they were given, for as long as that text stands in their place.

use std::cell::RefCell;
use std::rc::Rc;

use postrider_model::Value;

use crate::{LifeSpan, StateRules, StreamInfo};

/// Bytes by the names that they have in the filter state.
#[derive(Debug, Default)]
pub struct StateBytes(RefCell<Vec<(String, Rc<[u8]>)>>);

impl StateBytes {
    fn set(&self, name: &str, bytes: Rc<[u8]>) {
        let mut all = self.0.borrow_mut();
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), bytes));
    }

    fn get(&self, name: &str) -> Option<Rc<[u8]>> {
        self.0.borrow().iter().find(|(known, _)| known == name).map(|(_, bytes)| bytes.clone())
    }

    /// Takes over what another has.
    pub fn extend(&self, others: &StateBytes) {
        others.0.borrow().iter().for_each(|(name, bytes)| self.set(name, bytes.clone()));
    }
}

impl StreamInfo {
    /// Puts bytes into the filter state by these rules, whether or not they are a text.
    ///
    /// # Errors
    /// Why what is there stays.
    pub fn set_bytes(&mut self, name: &str, bytes: &[u8], rules: StateRules) -> Result<(), &'static str> {
        self.set_text(name, &String::from_utf8_lossy(bytes), rules)?;
        self.keep_bytes(name, bytes, rules.span);
        Ok(())
    }

    /// The same of a connection's own, which nothing has rules for.
    pub fn set_bytes_of_connection(&mut self, name: &str, bytes: &[u8]) {
        self.set_state(name, Value::String(String::from_utf8_lossy(bytes).into_owned()));
        self.keep_bytes(name, bytes, LifeSpan::FilterChain);
    }

    fn keep_bytes(&mut self, name: &str, bytes: &[u8], span: LifeSpan) {
        if std::str::from_utf8(bytes).is_ok() {
            return;
        }
        let all: Rc<StateBytes> = match &self.connection {
            Some(noted) if span.lasts() => noted.lasting.left(),
            _ => self.left(),
        };
        all.set(name, bytes.into());
    }

    /// The bytes of that name; `None` where there are none, or where they are a text.
    pub fn state_bytes(&self, name: &str) -> Option<Rc<[u8]>> {
        let own = || self.found::<StateBytes>()?.get(name);
        let of_connection = || self.connection.as_ref()?.lasting.found::<StateBytes>()?.get(name);
        let bytes = own().or_else(of_connection)?;
        // Another text may have taken their place.
        let text = self.filter_state.iter().find(|(known, _)| known == name);
        matches!(text, Some((_, Value::String(text))) if *text == String::from_utf8_lossy(&bytes)).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Moment, Noted};

    fn info(noted: &Rc<Noted>) -> StreamInfo {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        noted.begin(&mut info);
        info
    }

    fn text<'i>(info: &'i StreamInfo, name: &str) -> Option<&'i Value> {
        info.filter_state.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    #[test]
    fn bytes_are_found_as_they_are_and_logged_as_the_text_that_comes_closest() {
        let mut info = info(&Rc::default());
        info.set_bytes("a", b"a\xffb", StateRules::default()).unwrap();
        assert_eq!(info.state_bytes("a").as_deref(), Some(&b"a\xffb"[..]));
        assert_eq!(text(&info, "a"), Some(&Value::String("a\u{fffd}b".into())));
        info.set_bytes("a", b"text", StateRules::default()).unwrap();
        assert_eq!(info.state_bytes("a"), None, "a text is found as every text is");
        info.set_bytes("a", b"\xfe", StateRules::default()).unwrap();
        info.set_state("a", Value::String("other".into()));
        assert_eq!(info.state_bytes("a"), None, "another text took their place");
        info.set_bytes_of_connection("b", b"\x80");
        assert_eq!(info.state_bytes("b").as_deref(), Some(&b"\x80"[..]));
    }

    #[test]
    fn bytes_stay_as_long_as_their_life_span_says() {
        let noted: Rc<Noted> = Rc::default();
        let mut first = info(&noted);
        let lasts = StateRules { span: LifeSpan::Connection, ..StateRules::default() };
        first.set_bytes("long", b"\xff", lasts).unwrap();
        first.set_bytes("short", b"\xff", StateRules::default()).unwrap();
        let second = info(&noted);
        assert_eq!(second.state_bytes("long").as_deref(), Some(&b"\xff"[..]));
        assert_eq!(second.state_bytes("short"), None);
    }
}
