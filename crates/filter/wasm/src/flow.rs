//! A message that this filter took over: its pieces go to the module first, and go on when the module lets them.

use std::collections::VecDeque;

use postrider_filter_api::Flow;

/// Where such a message is.
#[derive(Default)]
pub(crate) struct Course {
    /// What the module sees: the piece that came, behind what it asked to be gathered.
    pub(crate) window: Vec<u8>,
    /// What it stopped and does not see again.
    held: Vec<u8>,
    /// What goes on.
    out: VecDeque<Vec<u8>>,
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
    /// A piece came.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        if !self.gathers {
            self.window.clear();
        }
        self.window.extend_from_slice(piece);
    }

    /// The module saw it.
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        self.gathers = verdict == Verdict::Gather;
        match verdict {
            Verdict::Continue => self.release(),
            Verdict::Gather => {}
            Verdict::Hold => self.held.append(&mut self.window),
            Verdict::Drop => self.window.clear(),
        }
    }

    /// The module lets go what it stopped.
    pub(crate) fn release(&mut self) {
        self.gathers = false;
        self.held.append(&mut self.window);
        if !self.held.is_empty() {
            self.out.push_back(std::mem::take(&mut self.held));
        }
    }

    /// The module sees everything at once in the end.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers
    }

    /// Bytes that wait for the module.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len() + if self.gathers { self.window.len() } else { 0 }
    }

    /// What goes on now; a piece is put into `piece`. `None` when nothing does.
    pub(crate) fn next(&mut self, stopped: bool, piece: &mut impl FnMut(&[u8])) -> Option<Flow> {
        if stopped && !self.head_gone {
            return None;
        }
        if !self.head_gone {
            self.head_gone = true;
            // Of a message that is all here, what follows the head goes with it.
            if !self.ended || self.out.len() > 1 {
                return Some(Flow::Head);
            }
        }
        match self.out.pop_front() {
            Some(bytes) => {
                piece(&bytes);
                let is_last = self.ended && !stopped && self.out.is_empty();
                Some(if is_last { Flow::Release } else { Flow::Piece })
            }
            None if self.ended && !stopped => Some(Flow::Release),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(course: &mut Course, stopped: bool) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut text = String::new();
            let next = course.next(stopped, &mut |bytes| text = String::from_utf8_lossy(bytes).into_owned());
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
        course.take(b"a");
        course.judge(Verdict::Continue);
        assert_eq!(flows(&mut course, false), ["Piece a"]);
        course.take(b"b");
        course.ended = true;
        course.judge(Verdict::Continue);
        assert_eq!(flows(&mut course, false), ["release b"]);
    }

    #[test]
    fn gathered_pieces_come_again_and_held_ones_do_not() {
        let mut course = Course::default();
        course.take(b"a");
        course.judge(Verdict::Gather);
        assert_eq!((flows(&mut course, true), course.waiting()), (vec![], 1));
        course.take(b"b");
        assert_eq!(course.window, b"ab");
        course.judge(Verdict::Hold);
        course.take(b"c");
        assert_eq!((&course.window[..], course.waiting()), (&b"c"[..], 2));
        course.judge(Verdict::Drop);
        course.take(b"d");
        course.ended = true;
        course.judge(Verdict::Hold);
        assert!(flows(&mut course, true).is_empty());
        course.release();
        assert_eq!(flows(&mut course, false), ["release abd"]);
    }
}
