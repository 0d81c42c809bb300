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
};

impl Filter for Everything {
    fn hooks(&self) -> Hooks {
        EVERYTHING
    }
}

fn filters(count: usize) -> Filters {
    let placed = |slot| Placed { slot, filter: Rc::new(Everything), hooks: EVERYTHING };
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
    match random.below(6) {
        0 => Action::Pause,
        1 | 2 => Action::Buffer,
        3 if random.below(4) == 0 => Action::Done,
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
                let goes_on = match &action {
                    Action::Pause => false,
                    Action::Buffer => hook != Hook::Body || pass.piece == Some(true),
                    _ => true,
                };
                if goes_on && hook != Hook::Head {
                    seen[index].passed.extend(before);
                }
                seen[index].done |= matches!(action, Action::Done);
                if let Action::Pause = action {
                    pass.resumer.resume();
                }
                assert!(pass.settle(index, hook, &action, usize::MAX));
            }
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
