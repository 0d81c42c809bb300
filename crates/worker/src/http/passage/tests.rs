//! Messages of every shape through filters that answer at random: nothing is lost, overtaken or said twice.

use std::rc::Rc;

use postrider_filter_api::Filter;
use postrider_upstream::Random;

use super::*;
use crate::chain::Placed;

struct Everything;

const EVERYTHING: Hooks = Hooks {
    request_headers: true,
    request_body: true,
    request_trailers: true,
    response_headers: true,
    response_body: true,
    response_trailers: true,
    complete: false,
    keeps_bodies: false,
    declares_length: false,
};

impl Filter for Everything {
    fn hooks(&self) -> Hooks {
        EVERYTHING
    }
}

fn filters(count: usize) -> Filters {
    let placed = |slot| Placed { slot, filter: Rc::new(Everything), hooks: EVERYTHING, cost: None };
    Filters::new((0..count as u32).map(placed).collect())
}

/// What one filter was shown.
#[derive(Default, Debug)]
struct Seen {
    heads: usize,
    ended: bool,
    trailers: usize,
    done: bool,
    /// Bytes that it let go on.
    passed: Vec<u8>,
}

fn answer(random: &Random) -> Action {
    match random.below(7) {
        0 => Action::Pause,
        1 | 2 => Action::Buffer,
        3 if random.below(4) == 0 => Action::Done,
        4 => Action::Part(random.below(6)),
        _ => Action::Continue,
    }
}

/// Takes one message through; answers what came out.
fn carry(random: &Random, side: Side, filters: &Filters, pieces: &[&[u8]], trailers: bool) -> (Vec<u8>, Vec<Seen>) {
    let count = filters.all.len();
    let mut seen: Vec<Seen> = (0..count).map(|_| Seen::default()).collect();
    let mut pass = Passage::default();
    pass.begin(pieces.is_empty() && !trailers, false);
    let mut unread = pieces.iter().enumerate();
    let (mut out, mut ended) = (Vec::new(), pieces.is_empty() && !trailers);
    for _ in 0..10_000 {
        match pass.next(side, filters, usize::MAX, Some(Waker::noop())) {
            Next::Call { index, hook, resumed, end } => {
                let is_before = |at: usize| match side {
                    Side::Request => at < index,
                    Side::Response => at > index,
                };
                let knows = |(at, seen): (usize, &Seen)| !is_before(at) || seen.heads == 1;
                assert!(hook != Hook::Head || seen.iter().enumerate().all(knows), "heads go in order");
                let filter = &mut seen[index];
                assert!(!filter.done && !filter.ended || resumed, "{index} was told the end");
                match hook {
                    Hook::Head if !resumed => filter.heads += 1,
                    Hook::Trailers if !resumed => filter.trailers += 1,
                    _ => {}
                }
                filter.ended |= end && hook != Hook::Trailers;
                if hook == Hook::Head {
                    pass.hide();
                    assert!(pass.held.bytes().is_empty());
                    pass.unhide();
                } else {
                    assert_eq!(seen[index].heads, 1, "the head comes first");
                }
                let action = answer(random);
                let before = pass.held.bytes().to_vec();
                let going_on = match &action {
                    Action::Pause => 0,
                    Action::Buffer if hook == Hook::Body && pass.piece != Some(true) => 0,
                    Action::Part(_) if hook != Hook::Body => 0,
                    Action::Part(count) => before.len().min(*count),
                    _ => before.len(),
                };
                if hook != Hook::Head {
                    seen[index].passed.extend(&before[..going_on]);
                }
                seen[index].done |= matches!(action, Action::Done);
                if matches!(action, Action::Pause | Action::Part(0))
                    || hook != Hook::Body && matches!(action, Action::Part(_))
                {
                    pass.resumer.resume();
                }
                assert!(pass.settle(index, hook, &action, usize::MAX));
            }
            Next::Flow { .. } => unreachable!("nobody took it over"),
            Next::Stand(Standing::Paused) => unreachable!("it was resumed"),
            Next::Stand(Standing::Wants) => match unread.next() {
                Some((at, piece)) => {
                    pass.held.push(piece);
                    let last = at + 1 == pieces.len() && random.below(2) == 0;
                    ended |= last;
                    pass.feed(last, last && trailers);
                }
                None => {
                    assert!(!ended);
                    ended = true;
                    pass.feed(true, trailers);
                }
            },
            Next::Stand(Standing::Piece) => {
                assert!(pass.head_is_through(filters));
                out.extend_from_slice(pass.held.bytes());
                pass.delivered();
            }
            Next::Stand(Standing::Finished) => {
                assert!(ended && pass.head_is_through(filters) && unread.next().is_none());
                return (out, seen);
            }
            Next::TooLarge => unreachable!("there is no limit"),
        }
    }
    panic!("it does not come to an end");
}

#[test]
fn whatever_filters_answer_a_message_arrives_whole_and_each_is_told_once() {
    let random = Random::new(7);
    for round in 0..20_000 {
        let side = if round % 2 == 0 { Side::Request } else { Side::Response };
        let filters = filters(random.below(5));
        let pieces = &[&b"ab"[..], b"", b"c", b"def"][..random.below(5)];
        let trailers = random.below(3) == 0;
        let (out, seen) = carry(&random, side, &filters, pieces, trailers);
        let whole = pieces.concat();
        assert_eq!(out, whole);
        for filter in seen.iter().filter(|filter| !filter.done) {
            assert_eq!(filter.heads, 1);
            assert_eq!(filter.passed, whole, "{filter:?}");
            assert_eq!((filter.ended, filter.trailers), (!trailers, usize::from(trailers)));
        }
    }
}

#[test]
fn a_body_that_a_filter_gave_is_there_when_it_goes_on_and_for_those_behind() {
    let filters = filters(2);
    let mut pass = Passage::default();
    pass.begin(true, false);
    let mut calls = Vec::new();
    loop {
        let (index, hook) = match pass.next(Side::Request, &filters, usize::MAX, Some(Waker::noop())) {
            Next::Call { index, hook, .. } => (index, hook),
            Next::Stand(Standing::Piece) => break,
            other => panic!("{other:?}"),
        };
        if hook == Hook::Head {
            pass.hide();
        }
        let seen = String::from_utf8(pass.held.bytes().to_vec()).unwrap();
        // The first filter's head hook: it puts a body in, waits, adds to it, waits, and goes on.
        let action = match (index, hook, calls.len()) {
            (0, Hook::Head, 0 | 1) => {
                pass.held.push(b"ab");
                pass.resumer.resume();
                Action::Pause
            }
            _ => Action::Continue,
        };
        calls.push((index, hook, seen));
        if hook == Hook::Head {
            pass.unhide();
        }
        assert!(pass.settle(index, hook, &action, usize::MAX));
    }
    let call = |index, hook, seen: &str| (index, hook, seen.to_owned());
    let (head, body) = (Hook::Head, Hook::Body);
    let want =
        [call(0, head, ""), call(0, head, "ab"), call(0, head, "abab"), call(1, head, ""), call(1, body, "abab")];
    assert_eq!(calls, want);
    assert_eq!(pass.whole(Side::Request, &filters, true), Some(4));
    assert!(pass.is_changed());
}

#[test]
fn more_than_the_limit_is_not_held() {
    let filters = filters(2);
    let mut pass = Passage::default();
    pass.begin(false, false);
    let mut fed = 0;
    loop {
        match pass.next(Side::Request, &filters, 5, None) {
            Next::Call { index, hook, .. } => assert!(pass.settle(index, hook, &Action::Buffer, 5)),
            Next::Stand(Standing::Wants) => {
                pass.held.push(b"abc");
                pass.feed(false, false);
                fed += 3;
            }
            Next::TooLarge => break,
            Next::Stand(standing) => panic!("{standing:?}"),
            Next::Flow { .. } => panic!("nobody took it over"),
        }
    }
    assert_eq!(fed, 6);
}

/// Asks for the next hook and answers with `action`; tells which filter was asked, and for what.
fn step(pass: &mut Passage, filters: &Filters, action: &Action) -> Option<(usize, Hook, bool)> {
    match pass.next(Side::Response, filters, usize::MAX, None) {
        Next::Call { index, hook, end, .. } => {
            assert!(pass.settle(index, hook, action, usize::MAX));
            Some((index, hook, end))
        }
        _ => None,
    }
}

#[test]
fn trailers_that_a_filter_adds_are_shown_to_those_behind_it_only() {
    let filters = filters(2);
    let mut pass = Passage::default();
    pass.begin(false, false);
    pass.held.push(b"body");
    pass.feed(true, false);
    for index in [1, 0] {
        assert_eq!(step(&mut pass, &filters, &Action::Continue), Some((index, Hook::Head, false)));
    }
    let Next::Call { index: 1, hook: Hook::Body, end: true, .. } =
        pass.next(Side::Response, &filters, usize::MAX, None)
    else {
        panic!("the inner filter sees the body first")
    };
    pass.add_trailers(Hook::Body);
    assert!(pass.settle(1, Hook::Body, &Action::Continue, usize::MAX));
    assert_eq!(step(&mut pass, &filters, &Action::Continue), Some((0, Hook::Body, false)), "something follows now");
    assert_eq!(pass.whole(Side::Response, &filters, false), None, "trailers need an open end");
    assert_eq!(pass.next(Side::Response, &filters, usize::MAX, None), Next::Stand(Standing::Piece));
    pass.delivered();
    assert_eq!(step(&mut pass, &filters, &Action::Continue), Some((0, Hook::Trailers, true)));
    assert_eq!(pass.next(Side::Response, &filters, usize::MAX, None), Next::Stand(Standing::Finished));
}

#[test]
fn the_length_is_known_when_nobody_looks_for_trailers_that_are_gone() {
    let filters = filters(1);
    let mut pass = Passage::default();
    pass.begin(false, false);
    assert_eq!(step(&mut pass, &filters, &Action::Buffer), Some((0, Hook::Head, false)));
    pass.held.push(b"body");
    pass.feed(true, true);
    assert_eq!(step(&mut pass, &filters, &Action::Buffer), Some((0, Hook::Body, false)));
    assert_eq!(pass.whole(Side::Response, &filters, true), None, "the filter has yet to see them");
    assert_eq!(step(&mut pass, &filters, &Action::Continue), Some((0, Hook::Trailers, true)));
    assert_eq!(pass.whole(Side::Response, &filters, true), Some(4));
    assert_eq!(pass.whole(Side::Response, &filters, false), None, "they are still there");
}

/// What a filter that took a message over does with it: keeps some, and lets it go in pieces of its own.
struct Keeper {
    kept: Vec<u8>,
    head_gone: bool,
    ended: bool,
    trailers: bool,
}

impl Keeper {
    fn flow(&mut self, random: &Random, pass: &mut Passage) -> Flow {
        match random.below(4) {
            0 if !self.head_gone => {
                self.head_gone = true;
                Flow::Head
            }
            1 if !self.kept.is_empty() => {
                self.head_gone = true;
                let rest = self.kept.split_off(self.kept.len().min(2));
                pass.held.replace(&std::mem::replace(&mut self.kept, rest));
                Flow::Piece
            }
            2 if self.ended && self.kept.len() < 2 => {
                pass.held.replace(&std::mem::take(&mut self.kept));
                Flow::Release
            }
            _ if self.ended => {
                pass.taken.iter().for_each(|taken| taken.resumer.resume());
                Flow::Wait
            }
            _ => Flow::Want,
        }
    }
}

#[test]
fn what_filters_take_over_arrives_whole_behind_its_head_and_in_front_of_its_trailers() {
    let random = Random::new(11);
    for round in 0..10_000 {
        let side = if round % 2 == 0 { Side::Request } else { Side::Response };
        let count = 1 + random.below(4);
        let filters = filters(count);
        let mut keepers: Vec<Option<Keeper>> = (0..count).map(|_| None).collect();
        let (mut heads, mut trailers_seen) = (vec![0; count], vec![0; count]);
        let pieces = &[&b"ab"[..], b"c", b"def", b"g"][..random.below(5)];
        let trailers = random.below(2) == 0;
        let mut unread = pieces.iter();
        let (mut pass, mut out, mut ended) = (Passage::default(), Vec::new(), false);
        pass.begin(false, false);
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 5_000, "it does not come to an end");
            match pass.next(side, &filters, usize::MAX, Some(Waker::noop())) {
                Next::Flow { index } => {
                    assert!(pass.held.bytes().is_empty());
                    let flow = keepers[index].as_mut().expect("it took the message").flow(&random, &mut pass);
                    if matches!(flow, Flow::Release) {
                        keepers[index] = None;
                    }
                    pass.settle_flow(side, index, count, &flow, false);
                }
                Next::Call { index, hook: Hook::Head, end, .. } => {
                    heads[index] += 1;
                    let takes = !end && random.below(2) == 0;
                    let action = if takes { Action::Take } else { Action::Continue };
                    if takes {
                        let keeper = Keeper { kept: Vec::new(), head_gone: false, ended: false, trailers: false };
                        keepers[index] = Some(keeper);
                    }
                    assert!(pass.settle(index, Hook::Head, &action, usize::MAX));
                }
                Next::Call { index, hook, end, .. } => {
                    assert_eq!(heads[index], 1, "the head comes first");
                    match (&mut keepers[index], hook) {
                        (Some(keeper), Hook::Body) => {
                            keeper.kept.extend_from_slice(pass.held.bytes());
                            keeper.ended |= end;
                        }
                        (Some(keeper), _) => {
                            keeper.ended = true;
                            keeper.trailers = true;
                        }
                        (None, _) => {}
                    }
                    trailers_seen[index] += usize::from(hook == Hook::Trailers);
                    assert!(pass.settle(index, hook, &Action::Continue, usize::MAX));
                }
                Next::Stand(Standing::Piece) => {
                    assert!(pass.head_is_through(&filters));
                    out.extend_from_slice(pass.held.bytes());
                    pass.delivered();
                }
                Next::Stand(Standing::Wants) => match unread.next() {
                    Some(piece) => {
                        pass.held.push(piece);
                        pass.feed(false, false);
                    }
                    None => {
                        assert!(!ended);
                        ended = true;
                        pass.feed(true, trailers);
                    }
                },
                Next::Stand(Standing::Finished) => break,
                Next::Stand(Standing::Paused) => assert!(pass.is_waiting()),
                Next::TooLarge => unreachable!("there is no limit"),
            }
        }
        assert!(ended && pass.head_is_through(&filters) && out == pieces.concat(), "{out:?}");
        assert!(keepers.iter().all(Option::is_none));
        assert!(trailers_seen.iter().all(|seen| *seen == usize::from(trailers)));
    }
}

#[test]
fn a_message_that_a_filter_finishes_ends_although_more_comes() {
    let filters = filters(2);
    let mut pass = Passage::default();
    pass.begin(false, false);
    let next = |pass: &mut Passage| pass.next(Side::Request, &filters, usize::MAX, Some(Waker::noop()));
    let call = |index, hook, end| Next::Call { index, hook, resumed: false, end };
    assert_eq!(next(&mut pass), call(0, Hook::Head, false));
    assert!(pass.settle(0, Hook::Head, &Action::Take, usize::MAX));
    assert_eq!(next(&mut pass), Next::Flow { index: 0 });
    pass.held.replace(b"own");
    pass.settle_flow(Side::Request, 0, 2, &Flow::Finish, false);
    assert_eq!(next(&mut pass), call(1, Hook::Head, false));
    assert!(pass.settle(1, Hook::Head, &Action::Continue, usize::MAX));
    assert_eq!(next(&mut pass), call(1, Hook::Body, true));
    assert!(pass.settle(1, Hook::Body, &Action::Continue, usize::MAX));
    assert_eq!(next(&mut pass), Next::Stand(Standing::Piece));
    assert_eq!(pass.held.bytes(), b"own");
    assert_eq!(pass.whole(Side::Request, &filters, false), None, "the client has not ended");
    pass.delivered();
    for last in [false, true] {
        assert_eq!(next(&mut pass), Next::Stand(Standing::Wants));
        pass.held.push(b"more");
        pass.feed(last, false);
        assert_eq!(next(&mut pass), call(0, Hook::Body, last));
        assert!(pass.settle(0, Hook::Body, &Action::Continue, usize::MAX));
    }
    assert_eq!(next(&mut pass), Next::Stand(Standing::Finished));
}

#[test]
fn the_length_is_known_when_all_is_released_before_the_head_went() {
    let filters = filters(1);
    let mut pass = Passage::default();
    pass.begin(false, false);
    let next = |pass: &mut Passage| pass.next(Side::Request, &filters, usize::MAX, Some(Waker::noop()));
    assert!(matches!(next(&mut pass), Next::Call { hook: Hook::Head, .. }));
    assert!(pass.settle(0, Hook::Head, &Action::Take, usize::MAX));
    assert_eq!(next(&mut pass), Next::Flow { index: 0 });
    pass.settle_flow(Side::Request, 0, 1, &Flow::Want, false);
    assert_eq!(next(&mut pass), Next::Stand(Standing::Wants));
    pass.held.push(b"body");
    pass.feed(true, false);
    assert!(matches!(next(&mut pass), Next::Call { hook: Hook::Body, end: true, .. }));
    assert!(pass.settle(0, Hook::Body, &Action::Continue, usize::MAX));
    assert_eq!(next(&mut pass), Next::Flow { index: 0 });
    assert_eq!(pass.whole(Side::Request, &filters, false), None);
    pass.held.replace(b"another");
    pass.settle_flow(Side::Request, 0, 1, &Flow::Release, false);
    assert_eq!(pass.whole(Side::Request, &filters, false), Some(7));
    assert_eq!(next(&mut pass), Next::Stand(Standing::Piece));
}
