//! What a filter remembers about one stream.

use std::any::Any;

/// One filter's memory of one stream. Small things fit without an allocation.
#[derive(Debug, Default)]
pub enum State {
    #[default]
    Empty,
    Number(u64),
    /// Anything else; costs an allocation per stream.
    Any(Box<dyn Any>),
}

impl State {
    /// The boxed value, made by `init` on first use.
    pub fn get_or_insert_with<T: 'static>(&mut self, init: impl FnOnce() -> T) -> Option<&mut T> {
        if !matches!(self, State::Any(value) if value.is::<T>()) {
            *self = State::Any(Box::new(init()));
        }
        match self {
            State::Any(value) => value.downcast_mut(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_value_is_made_once_and_kept() {
        let mut state = State::default();
        *state.get_or_insert_with(|| 1u8).unwrap() += 1;
        assert_eq!(state.get_or_insert_with(|| 9u8), Some(&mut 2));
        assert_eq!(state.get_or_insert_with(|| "other").copied(), Some("other"));
    }
}
