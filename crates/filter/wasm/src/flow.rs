//! A message that this filter took over: its pieces go to the module first, and go on when the module lets them.

use postrider_filter_api::{Body, Flow};

/// Where such a message is.
#[derive(Default)]
pub(crate) struct Course {
    /// What the module sees: the piece that came, behind what it asked to be gathered.
    pub(crate) window: Vec<u8>,
    /// What it stopped and does not see again.
    held: Vec<u8>,
    /// What goes on.
    out: Vec<u8>,
    /// The window is shown again with the next piece.
    gathers: bool,
    head_gone: bool,
    /// All of the message came.
    pub(crate) ended: bool,
}

/// What a module says about a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Continue,
    /// It stays, and comes again with the next one.
    Gather,
    /// It stays, and the next one comes alone.
    Hold,
    /// It goes nowhere.
    Drop,
}

impl Verdict {
    pub(crate) fn of(status: u32) -> Verdict {
        match status {
            0 => Verdict::Continue,
            1 => Verdict::Gather,
            2 => Verdict::Hold,
            _ => Verdict::Drop,
        }
    }
}

impl Course {
    /// A piece came. It is moved where that goes: most pieces are not copied on their way through a module.
    pub(crate) fn take(&mut self, piece: &mut Body) {
        match self.gathers && !self.window.is_empty() {
            true => self.window.extend_from_slice(piece.bytes()),
            false => self.window = piece.take(),
        }
    }

    /// The module saw it.
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        self.gathers = verdict == Verdict::Gather;
        match verdict {
            Verdict::Continue => self.release(),
            Verdict::Gather => {}
            Verdict::Hold => add(&mut self.held, &mut self.window),
            Verdict::Drop => self.window.clear(),
        }
    }

    /// The module lets go what it stopped.
    pub(crate) fn release(&mut self) {
        self.gathers = false;
        add(&mut self.held, &mut self.window);
        add(&mut self.out, &mut self.held);
    }

    /// The module sees everything at once in the end.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers
    }

    /// Bytes that wait for the module.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + if self.gathers { self.window.len() } else { 0 }
    }

    /// What goes on now; a piece is put into `body`. `None` when nothing does.
    pub(crate) fn next(&mut self, stopped: bool, body: &mut Body) -> Option<Flow> {
        if stopped && !self.head_gone {
            return None;
        }
        if !self.head_gone {
            self.head_gone = true;
            // Of a message that is all here, what follows the head goes with it.
            if !self.ended {
                return Some(Flow::Head);
            }
        }
        let is_last = self.ended && !stopped;
        if self.out.is_empty() {
            return is_last.then_some(Flow::Release);
        }
        body.put(std::mem::take(&mut self.out));
        Some(if is_last { Flow::Release } else { Flow::Piece })
    }
}

/// Moves `more` behind `bytes`.
fn add(bytes: &mut Vec<u8>, more: &mut Vec<u8>) {
    match bytes.is_empty() {
        true => std::mem::swap(bytes, more),
        false => bytes.append(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(course: &mut Course, piece: &[u8]) {
        let mut body = Body::default();
        body.push(piece);
        course.take(&mut body);
    }

    fn flows(course: &mut Course, stopped: bool) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut body = Body::default();
            let next = course.next(stopped, &mut body);
            let text = String::from_utf8_lossy(body.bytes()).into_owned();
            match next {
                Some(Flow::Release) => {
                    all.push(format!("release {text}"));
                    return all;
                }
                Some(flow) => all.push(format!("{flow:?} {text}")),
                None => return all,
            }
        }
    }

    #[test]
    fn pieces_go_on_one_by_one() {
        let mut course = Course::default();
        assert_eq!(flows(&mut course, false), ["Head "]);
        take(&mut course, b"a");
        course.judge(Verdict::Continue);
        assert_eq!(flows(&mut course, false), ["Piece a"]);
        take(&mut course, b"b");
        course.ended = true;
        course.judge(Verdict::Continue);
        assert_eq!(flows(&mut course, false), ["release b"]);
    }

    #[test]
    fn gathered_pieces_come_again_and_held_ones_do_not() {
        let mut course = Course::default();
        take(&mut course, b"a");
        course.judge(Verdict::Gather);
        assert_eq!((flows(&mut course, true), course.waiting()), (vec![], 1));
        take(&mut course, b"b");
        assert_eq!(course.window, b"ab");
        course.judge(Verdict::Hold);
        take(&mut course, b"c");
        assert_eq!((&course.window[..], course.waiting()), (&b"c"[..], 2));
        course.judge(Verdict::Drop);
        take(&mut course, b"d");
        course.ended = true;
        course.judge(Verdict::Hold);
        assert!(flows(&mut course, true).is_empty());
        course.release();
        assert_eq!(flows(&mut course, false), ["release abd"]);
    }

    #[test]
    fn a_piece_that_passes_is_moved_and_not_copied() {
        let (mut course, mut body) = (Course::default(), Body::default());
        assert!(matches!(course.next(false, &mut body), Some(Flow::Head)));
        body.push(b"piece");
        let place = body.bytes().as_ptr();
        course.take(&mut body);
        course.judge(Verdict::Continue);
        assert!(matches!(course.next(false, &mut body), Some(Flow::Piece)));
        assert_eq!((body.bytes(), body.bytes().as_ptr()), (&b"piece"[..], place));
    }

    #[test]
    fn pieces_that_are_let_go_at_once_go_on_in_their_order() {
        let mut course = Course::default();
        assert_eq!(flows(&mut course, false), ["Head "]);
        for piece in [b"a", b"b", b"c"] {
            take(&mut course, piece);
            course.judge(if piece == b"b" { Verdict::Hold } else { Verdict::Continue });
        }
        assert_eq!(flows(&mut course, false), ["Piece abc"]);
    }
}
