//! What Go code in a process decides about its streams, as its worker is told.

use std::borrow::Cow;

use postrider_filter_api::{LocalReply, UpstreamOverride};
use postrider_grpc::{Message, decode_value, to_value};
use postrider_http::grpc::Code;

use super::wire::{Put, Take};
use crate::abi::Verdict;
use crate::heads::Edit;
use crate::questions::Question;
use crate::request::{Asker, Part, Post, Splice};
use crate::state;

const CONTINUE: u8 = 1;
const REPLY: u8 = 2;
const PANIC: u8 = 3;
const ADD_DATA: u8 = 4;
const INJECT: u8 = 5;
const EDIT: u8 = 6;
const METADATA: u8 = 7;
const FILTER_STATE: u8 = 8;
const CLEAR_ROUTE: u8 = 9;
const HOST: u8 = 10;
const DRAIN_CONNECTION: u8 = 11;
const QUESTION: u8 = 12;
const BODY: u8 = 13;
const QUESTION_OF_LOG: u8 = 14;
const LOGGED: u8 = 15;

/// The number by which a question of a goroutine is answered stands in place of where its answer goes.
pub(super) fn put(put: &mut Put, post: &Post, question: u64) {
    match post {
        Post::Continue(side, verdict) => put.byte(CONTINUE).side(*side).number(verdict.number()),
        Post::Reply(side, reply) => {
            put.byte(REPLY).side(*side).number(reply.status.into());
            put.number(reply.grpc_status.map_or(u64::MAX, |code| code.number().into()));
            put.bytes(&reply.body).bytes(reply.details.as_bytes()).number(reply.headers.len() as u64);
            for (name, value) in &reply.headers {
                put.bytes(name.as_bytes()).bytes(value);
            }
            put
        }
        Post::Panic(side, details) => put.byte(PANIC).side(*side).bytes(details.as_bytes()),
        Post::AddData(side, bytes) => put.byte(ADD_DATA).side(*side).bytes(bytes),
        Post::Inject(side, bytes) => put.byte(INJECT).side(*side).bytes(bytes),
        Post::Edit(side, part, edit) => {
            put.byte(EDIT).side(*side).flag(*part == Part::Trailers);
            match edit {
                Edit::Set(name, value) => put.byte(0).bytes(name).bytes(value),
                Edit::Add(name, value) => put.byte(1).bytes(name).bytes(value),
                Edit::Remove(name) => put.byte(2).bytes(name),
            }
        }
        Post::Metadata { namespace, key, value } => {
            put.byte(METADATA).bytes(namespace.as_bytes()).bytes(key.as_bytes());
            put.bytes(&to_value(value).encode_to_vec())
        }
        Post::FilterState { key, value, rules } => {
            put.byte(FILTER_STATE).bytes(key.as_bytes()).bytes(value.as_bytes()).number(state::number(*rules))
        }
        Post::ClearRoute => put.byte(CLEAR_ROUTE),
        Post::Host(host) => put.byte(HOST).bytes(host.address.to_string().as_bytes()).flag(host.strict),
        Post::DrainConnection => put.byte(DRAIN_CONNECTION),
        Post::Question(asked, asker) => {
            let of_log = matches!(asker, Asker::Log(_));
            put.byte(if of_log { QUESTION_OF_LOG } else { QUESTION }).number(question);
            let (kind, text) = match asked {
                Question::Metadata(namespace) => (0, namespace),
                Question::FilterState(key) => (1, key),
                Question::Property(path) => (2, path),
                Question::Secret(name) => (3, name),
            };
            put.byte(kind).bytes(text.as_bytes())
        }
        Post::Body(side, id, splice) => {
            put.byte(BODY).side(*side).number(*id);
            match splice {
                Splice::Drain(count) => put.byte(0).number(*count as u64),
                Splice::Set(bytes) => put.byte(1).bytes(bytes),
                Splice::Prepend(bytes) => put.byte(2).bytes(bytes),
                Splice::Append(bytes) => put.byte(3).bytes(bytes),
            }
        }
        Post::Logged => put.byte(LOGGED),
        // The proxy's own.
        Post::Lost => put,
    };
}

pub(super) fn read(mut take: Take<'_>) -> Option<Post> {
    let take = &mut take;
    Some(match take.byte()? {
        CONTINUE => Post::Continue(take.side()?, Verdict::of(take.number()?)),
        REPLY => Post::Reply(take.side()?, Box::new(reply(take)?)),
        PANIC => Post::Panic(take.side()?, take.text()?),
        ADD_DATA => Post::AddData(take.side()?, take.bytes()?.to_vec()),
        INJECT => Post::Inject(take.side()?, take.bytes()?.to_vec()),
        EDIT => {
            let (side, part) = (take.side()?, if take.flag()? { Part::Trailers } else { Part::Headers });
            let kind = take.byte()?;
            let name = take.bytes()?.to_vec();
            Post::Edit(
                side,
                part,
                match kind {
                    0 => Edit::Set(name, take.bytes()?.to_vec()),
                    1 => Edit::Add(name, take.bytes()?.to_vec()),
                    2 => Edit::Remove(name),
                    _ => return None,
                },
            )
        }
        METADATA => Post::Metadata {
            namespace: take.text()?,
            key: take.text()?,
            value: decode_value(take.bytes()?).unwrap_or_default(),
        },
        FILTER_STATE => {
            let (key, value) = (take.text()?, take.text()?);
            Post::FilterState { key, value, rules: state::of_number(take.number()?) }
        }
        CLEAR_ROUTE => Post::ClearRoute,
        HOST => Post::Host(UpstreamOverride::new(take.text()?.parse().ok()?, take.flag()?)),
        DRAIN_CONNECTION => Post::DrainConnection,
        asked @ (QUESTION | QUESTION_OF_LOG) => {
            let number = take.number()?;
            let asker = if asked == QUESTION { Asker::Process(number) } else { Asker::Log(number) };
            let kind = take.byte()?;
            let text = take.text()?;
            let question = match kind {
                0 => Question::Metadata(text),
                1 => Question::FilterState(text),
                2 => Question::Property(text),
                3 => Question::Secret(text),
                _ => return None,
            };
            Post::Question(question, asker)
        }
        LOGGED => Post::Logged,
        BODY => {
            let (side, id, kind) = (take.side()?, take.number()?, take.byte()?);
            let splice = match kind {
                0 => Splice::Drain(usize::try_from(take.number()?).ok()?),
                1 => Splice::Set(take.bytes()?.to_vec()),
                2 => Splice::Prepend(take.bytes()?.to_vec()),
                3 => Splice::Append(take.bytes()?.to_vec()),
                _ => return None,
            };
            Post::Body(side, id, splice)
        }
        _ => return None,
    })
}

fn reply(take: &mut Take<'_>) -> Option<LocalReply> {
    let status = u16::try_from(take.number()?).ok().filter(|status| (200..=599).contains(status))?;
    let grpc_status = u32::try_from(take.number()?).ok().and_then(Code::from_number);
    let body = Cow::Owned(take.bytes()?.to_vec());
    let details = Cow::Owned(take.text()?);
    let count = take.number()?;
    let pair = |take: &mut Take<'_>| Some((Cow::Owned(take.text()?), Cow::Owned(take.bytes()?.to_vec())));
    let headers = (0..count).map(|_| pair(take)).collect::<Option<_>>()?;
    Some(LocalReply { status, grpc_status, body, headers, details, ..LocalReply::default() })
}

#[cfg(test)]
mod tests {
    use postrider_model::Value;

    use super::*;
    use crate::bells::Side;

    #[test]
    fn every_post_is_read_as_it_was_written() {
        let side = Side::Response;
        let reply = LocalReply {
            status: 401,
            grpc_status: Some(Code::from_number(16).unwrap()),
            body: Cow::Borrowed(b"who"),
            headers: vec![(Cow::Borrowed("a"), Cow::Borrowed(b"b"))],
            details: Cow::Borrowed("d"),
            ..LocalReply::default()
        };
        let posts = [
            Post::Continue(side, Verdict::StopAndBuffer),
            Post::Reply(side, Box::new(reply)),
            Post::Panic(side, "p".into()),
            Post::AddData(side, b"x".to_vec()),
            Post::Inject(side, b"x".to_vec()),
            Post::Edit(side, Part::Trailers, Edit::Set(b"a".to_vec(), b"b".to_vec())),
            Post::Edit(side, Part::Headers, Edit::Add(b"a".to_vec(), b"b".to_vec())),
            Post::Edit(side, Part::Headers, Edit::Remove(b"a".to_vec())),
            Post::Metadata { namespace: "n".into(), key: "k".into(), value: Value::List(vec![Value::Bool(true)]) },
            Post::FilterState { key: "k".into(), value: "v".into(), rules: state::rules(1, 2, 1) },
            Post::ClearRoute,
            Post::Host(UpstreamOverride::new("[::1]:80".parse().unwrap(), true)),
            Post::DrainConnection,
            Post::Question(Question::Property("a.b".into()), Asker::Process(7)),
            Post::Question(Question::Metadata("a".into()), Asker::Log(7)),
            Post::Logged,
            Post::Body(side, 3, Splice::Drain(4)),
            Post::Body(side, 3, Splice::Append(b"x".to_vec())),
        ];
        for post in posts {
            let mut written = Put::default();
            put(&mut written, &post, 7);
            let again = read(Take(&written.0));
            assert_eq!(again.map(|again| format!("{again:?}")), Some(format!("{post:?}")));
            for cut in 0..written.0.len() {
                assert!(read(Take(&written.0[..cut])).is_none(), "{post:?} {cut}");
            }
        }
    }
}
