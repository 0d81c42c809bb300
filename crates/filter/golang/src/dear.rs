//! What a stream needs while it lasts: taken when it begins, and the next stream's at its end.
//!
//! Go's collector gives a stream's object back thousands of streams later. If all of it waited for that, each stream
//! would find cold memory, and texts of thousands of streams that are over would lie about.

use free::FREE;

use crate::facts::Facts;
use crate::request::Course;

/// Most that are kept for later streams of a thread.
const MAX_FREE: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Dear {
    pub(crate) courses: [Course; 2],
    pub(crate) facts: Facts,
}

/// Texts of a stream that is over: Go code may have pointers into them until it gives the stream's object back.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) texts: Vec<Vec<u8>>,
    pub(crate) added: Vec<Box<[u8]>>,
}

#[expect(clippy::vec_box, reason = "streams hold the boxes, which are not copied on the way")]
mod free {
    use std::cell::RefCell;

    use super::Dear;

    thread_local! {
        pub(super) static FREE: RefCell<Vec<Box<Dear>>> = const { RefCell::new(Vec::new()) };
    }
}

/// For a stream that begins on this thread: the one that was given back last.
pub(crate) fn take() -> Box<Dear> {
    FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// The stream is over.
pub(crate) fn give_back(mut dear: Box<Dear>, left: &mut Left) {
    dear.courses.iter_mut().for_each(|course| course.reset(left));
    FREE.with_borrow_mut(|free| {
        if free.len() < MAX_FREE {
            free.push(dear);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_stream_gets_what_the_last_one_had_but_for_its_texts() {
        let mut dear = take();
        let [request, _] = &mut dear.courses;
        request.headers.announce((1, 2));
        request.headers.build(&|call| call(b"a", b"1"));
        request.push(b"body".to_vec());
        let at: *const Dear = &raw const *dear;
        let mut left = Left::default();
        give_back(dear, &mut left);
        assert_eq!(left.texts, [b"a1"]);
        let mut again = take();
        assert!(std::ptr::eq(&raw const *again, at));
        let [request, _] = &mut again.courses;
        assert!(!request.headers.is_built() && request.buffers.is_empty());
    }

    #[test]
    fn no_more_than_a_few_are_kept() {
        let all: Vec<_> = (0..MAX_FREE + 9).map(|_| take()).collect();
        all.into_iter().for_each(|dear| give_back(dear, &mut Left::default()));
        assert_eq!(FREE.with_borrow(Vec::len), MAX_FREE);
    }
}
