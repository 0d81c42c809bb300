//! What a worker tells a process about its streams: `length, stream, kind, what the kind has`.

use super::wire::{Put, Take};
use crate::bells::Side;
use crate::mirror::Each;
use crate::questions::Answer;

/// Largest frame that is believed in.
const MAX_FRAME: u64 = 1 << 30;

const HEAD: usize = 16;

/// Takes whole frames off the front of what was read; what is left of `bytes` is the beginning of another.
///
/// `None`: what is there cannot be one.
pub(super) fn split(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut whole = 0;
    while let Some(head) = bytes.get(whole..whole + 8) {
        let len = u64::from_le_bytes(head.try_into().ok()?);
        if len > MAX_FRAME {
            return None;
        }
        let end = whole + HEAD + usize::try_from(len).ok()?;
        if end > bytes.len() {
            break;
        }
        whole = end;
    }
    let rest = bytes.split_off(whole);
    Some(std::mem::replace(bytes, rest))
}

/// Begins a frame.
pub(super) fn begin(stream: u64) -> Put {
    let mut put = Put::default();
    put.number(0).number(stream);
    put
}

/// Ends it.
pub(super) fn end(put: Put) -> Vec<u8> {
    let mut bytes = put.0;
    let len = bytes.len().saturating_sub(HEAD) as u64;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = len.to_le_bytes();
    }
    bytes
}

/// The next of whole frames: its stream, and what it says.
pub(super) fn next<'b>(frames: &mut Take<'b>) -> Option<(u64, Take<'b>)> {
    let len = usize::try_from(frames.number()?).ok()?;
    let stream = frames.number()?;
    let (frame, rest) = frames.0.split_at_checked(len)?;
    frames.0 = rest;
    Some((stream, Take(frame)))
}

/// Fields of a head or of trailers.
pub(super) type Fields<'b> = Vec<(&'b [u8], &'b [u8])>;

#[derive(Debug, PartialEq)]
pub(super) enum Order<'b> {
    /// A stream begins, with the configuration of that number.
    Begin {
        config: u64,
    },
    Head {
        side: Side,
        end: bool,
        facts: &'b [u8],
        fields: Fields<'b>,
    },
    /// Of the parts that were shown before, only those in `held` have not gone on.
    Data {
        side: Side,
        end: bool,
        buffer: u64,
        held: Vec<u64>,
        bytes: &'b [u8],
    },
    Trailers {
        side: Side,
        held: Vec<u64>,
        fields: Fields<'b>,
    },
    Answer {
        question: u64,
        answer: Answer,
    },
    /// The stream is logged, with heads and trailers of request and response as they are then.
    Log {
        moment: u64,
        facts: &'b [u8],
        request: Fields<'b>,
        response: Option<Fields<'b>>,
        trailers: [Fields<'b>; 2],
    },
    /// Nothing of it is needed any more. `early`: Go code had it in hand.
    Destroy {
        early: bool,
    },
}

const BEGIN: u8 = 1;
const HEAD_CAME: u8 = 2;
const DATA: u8 = 3;
const TRAILERS: u8 = 4;
const ANSWER: u8 = 5;
const LOG: u8 = 6;
const DESTROY: u8 = 7;

pub(super) fn put_begin(put: &mut Put, config: u64) {
    put.byte(BEGIN).number(config);
}

pub(super) fn put_head(put: &mut Put, side: Side, end: bool, facts: &[u8], fields: Each<'_>) {
    put.byte(HEAD_CAME).side(side).flag(end).bytes(facts);
    put_fields(put, fields);
}

pub(super) fn put_data(put: &mut Put, side: Side, end: bool, buffer: u64, held: &[u64], bytes: &[u8]) {
    put.byte(DATA).side(side).flag(end).number(buffer);
    put_numbers(put, held);
    put.bytes(bytes);
}

pub(super) fn put_trailers(put: &mut Put, side: Side, held: &[u64], fields: Each<'_>) {
    put.byte(TRAILERS).side(side);
    put_numbers(put, held);
    put_fields(put, fields);
}

pub(super) fn put_answer(put: &mut Put, question: u64, answer: &Answer) {
    put.byte(ANSWER).number(question);
    match answer {
        Answer::Missing => put.byte(0),
        Answer::NoText => put.byte(1),
        Answer::Found(found) => put.byte(2).bytes(found),
    };
}

/// `response` is `None` where there was none.
pub(super) fn put_log(
    put: &mut Put,
    moment: u64,
    facts: &[u8],
    request: Each<'_>,
    response: Option<Each<'_>>,
    trailers: [Each<'_>; 2],
) {
    put.byte(LOG).number(moment).bytes(facts);
    put_fields(put, request);
    put.flag(response.is_some());
    if let Some(response) = response {
        put_fields(put, response);
    }
    trailers.into_iter().for_each(|fields| put_fields(put, fields));
}

pub(super) fn put_destroy(put: &mut Put, early: bool) {
    put.byte(DESTROY).flag(early);
}

fn put_fields(put: &mut Put, fields: Each<'_>) {
    fields(&mut |name, value| {
        put.flag(true).bytes(name).bytes(value);
    });
    put.flag(false);
}

fn put_numbers(put: &mut Put, numbers: &[u64]) {
    put.number(numbers.len() as u64);
    for number in numbers {
        put.number(*number);
    }
}

impl<'b> Order<'b> {
    pub(super) fn read(mut take: Take<'b>) -> Option<Order<'b>> {
        Some(match take.byte()? {
            BEGIN => Order::Begin { config: take.number()? },
            HEAD_CAME => {
                Order::Head { side: take.side()?, end: take.flag()?, facts: take.bytes()?, fields: fields(&mut take)? }
            }
            DATA => Order::Data {
                side: take.side()?,
                end: take.flag()?,
                buffer: take.number()?,
                held: numbers(&mut take)?,
                bytes: take.bytes()?,
            },
            TRAILERS => Order::Trailers { side: take.side()?, held: numbers(&mut take)?, fields: fields(&mut take)? },
            ANSWER => Order::Answer {
                question: take.number()?,
                answer: match take.byte()? {
                    0 => Answer::Missing,
                    1 => Answer::NoText,
                    2 => Answer::Found(take.bytes()?.to_vec()),
                    _ => return None,
                },
            },
            LOG => Order::Log {
                moment: take.number()?,
                facts: take.bytes()?,
                request: fields(&mut take)?,
                response: if take.flag()? { Some(fields(&mut take)?) } else { None },
                trailers: [fields(&mut take)?, fields(&mut take)?],
            },
            DESTROY => Order::Destroy { early: take.flag()? },
            _ => return None,
        })
    }
}

fn fields<'b>(take: &mut Take<'b>) -> Option<Fields<'b>> {
    let mut fields = Vec::new();
    while take.flag()? {
        fields.push((take.bytes()?, take.bytes()?));
    }
    Some(fields)
}

fn numbers(take: &mut Take<'_>) -> Option<Vec<u64>> {
    (0..take.number()?).map(|_| take.number()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole_however_they_come() {
        let frame = |stream, config| {
            let mut put = begin(stream);
            put_begin(&mut put, config);
            end(put)
        };
        let sent = [frame(1, 10), frame(2, 20), frame(3, 30)].concat();
        let mut told = Vec::new();
        let mut bytes = Vec::new();
        for byte in &sent {
            bytes.push(*byte);
            let whole = split(&mut bytes).unwrap();
            let mut frames = Take(&whole);
            while let Some((stream, take)) = next(&mut frames) {
                told.push((stream, Order::read(take).map(|order| format!("{order:?}"))));
            }
            assert!(frames.0.is_empty());
        }
        let begun = |config| Some(format!("{:?}", Order::Begin { config }));
        assert_eq!(told, [(1, begun(10)), (2, begun(20)), (3, begun(30))]);
        assert_eq!(split(&mut vec![255; 16]), None);
    }

    #[test]
    fn every_order_is_read_as_it_was_written() {
        let each = |call: &mut dyn FnMut(&[u8], &[u8])| {
            call(b"a", b"1");
            call(b"b", b"");
        };
        let fields = || vec![(&b"a"[..], &b"1"[..]), (b"b", b"")];
        let none = |_: &mut dyn FnMut(&[u8], &[u8])| {};
        let check = |write: &dyn Fn(&mut Put), expected: Order<'_>| {
            let mut put = Put::default();
            write(&mut put);
            assert_eq!(Order::read(Take(&put.0)).as_ref(), Some(&expected));
            for cut in 0..put.0.len() {
                assert!(Order::read(Take(&put.0[..cut])).is_none(), "{expected:?} {cut}");
            }
        };
        let side = Side::Response;
        check(
            &|put| put_head(put, side, true, b"f", &each),
            Order::Head { side, end: true, facts: b"f", fields: fields() },
        );
        check(
            &|put| put_data(put, side, false, 3, &[1, 2], b"x"),
            Order::Data { side, end: false, buffer: 3, held: vec![1, 2], bytes: b"x" },
        );
        check(&|put| put_trailers(put, side, &[], &each), Order::Trailers { side, held: vec![], fields: fields() });
        for answer in [Answer::Missing, Answer::NoText] {
            check(&|put| put_answer(put, 9, &answer), Order::Answer { question: 9, answer: answer.clone() });
        }
        let found = Answer::Found(b"x".to_vec());
        check(&|put| put_answer(put, 9, &found), Order::Answer { question: 9, answer: found.clone() });
        check(
            &|put| put_log(put, 6, b"f", &each, Some(&each), [&each, &none]),
            Order::Log {
                moment: 6,
                facts: b"f",
                request: fields(),
                response: Some(fields()),
                trailers: [fields(), vec![]],
            },
        );
        check(&|put| put_destroy(put, true), Order::Destroy { early: true });
    }
}
