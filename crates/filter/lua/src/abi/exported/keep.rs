//! Texts that lie nowhere else, for as long as scripts may look at them.

use std::cell::RefCell;

use super::Str;

/// How many of the texts made last stay: SDK files copy each before they make the next few.
pub(super) const KEPT: usize = 64;

thread_local! {
    static RING: RefCell<(Vec<Vec<u8>>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// A copy that stays, with a zero byte behind it.
pub(super) fn keep(bytes: &[u8]) -> Str {
    RING.with_borrow_mut(|(texts, next)| {
        if texts.len() < KEPT {
            texts.push(Vec::new());
        }
        *next = (*next + 1) % KEPT;
        let at = (*next).min(texts.len().saturating_sub(1));
        let Some(text) = texts.get_mut(at) else { return Str::of(&[]) };
        text.clear();
        text.extend_from_slice(bytes);
        text.push(0);
        Str::of(text.get(..bytes.len()).unwrap_or_default())
    })
}
