//! Functions of the proxy that the ABI has no words for, called by name: Envoy's.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::cel::Facts;
use postrider_filter_api::{ObjectKind, StreamInfo};
use postrider_model::cel::{Allowed, Expression};
use prost::Message;
use wasmtime::Linker;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

use super::signature::{Hash, Key};
use super::stream::forget_route;
use super::{Answer, Guest, bytes, give, put_number, split};
use crate::data::Data;
use crate::edits::Edit;
use crate::held::may_last;
use crate::properties::{Rules, declare, put_state};
use crate::status::{BAD_ARGUMENT, INTERNAL_FAILURE, NOT_FOUND, OK, SERIALIZATION_FAILURE};

/// Most bytes that `uncompress` makes.
const MAX_UNCOMPRESSED: usize = 64 << 20;

/// Most expressions that one plugin keeps.
const MAX_EXPRESSIONS: usize = 1000;

pub(super) fn define(linker: &mut Linker<Data>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_call_foreign_function", call)?;
    Ok(())
}

fn call(
    mut guest: Guest<'_>,
    name: u32,
    name_length: u32,
    argument: u32,
    argument_length: u32,
    out: u32,
    out_length: u32,
) -> Answer {
    let (memory, data) = split(&mut guest);
    let (name, argument) = match (bytes(memory, name, name_length), bytes(memory, argument, argument_length)) {
        (Ok(name), Ok(argument)) => (name, argument),
        (Err(status), _) | (_, Err(status)) => return Ok(status),
    };
    data.scratch.clear();
    let done = match name {
        b"compress" => compress(argument, &mut data.scratch),
        b"uncompress" => uncompress(argument, &mut data.scratch),
        b"verify_signature" => verify(argument, &mut data.scratch),
        b"sign" => sign(argument, &mut data.scratch),
        b"set_envoy_filter_state" => set_filter_state(data, argument),
        b"clear_route_cache" => {
            forget_route(data);
            Ok(())
        }
        b"declare_property" => declare_property(data, argument),
        b"expr_create" => create_expression(data, argument),
        b"expr_evaluate" => evaluate_expression(data, argument),
        b"expr_delete" => delete_expression(data, argument),
        _ => Err(NOT_FOUND),
    };
    if let Err(status) = done {
        return Ok(status);
    }
    match (out, out_length) {
        (0, 0) => Ok(OK),
        // Only how long it would be.
        (0, out_length) => {
            let length = data.scratch.len() as u32;
            Ok(put_number(&mut guest, out_length, length))
        }
        (out, 0) => {
            data.scratch.truncate(0);
            Ok(put_number(&mut guest, out, 0))
        }
        (out, out_length) => give(&mut guest, out, out_length),
    }
}

/// As zlib's `compress` does.
fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
    const LEVEL: i32 = 6;
    const WINDOW: u8 = 15;
    let mut deflate = Deflate::new(LEVEL, true, WINDOW);
    // Incompressible input grows by a little.
    out.resize(input.len() + input.len() / 100 + 64, 0);
    match deflate.compress(input, out, DeflateFlush::Finish) {
        Ok(Status::StreamEnd) => {
            out.truncate(deflate.total_out() as usize);
            Ok(())
        }
        _ => Err(SERIALIZATION_FAILURE),
    }
}

fn uncompress(input: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
    const WINDOW: u8 = 15;
    let mut inflate = Inflate::new(true, WINDOW);
    loop {
        let (read, written) = (inflate.total_in() as usize, inflate.total_out() as usize);
        if written >= MAX_UNCOMPRESSED {
            return Err(SERIALIZATION_FAILURE);
        }
        out.resize(written.max(input.len()) * 2 + 64, 0);
        let rest = input.get(read..).unwrap_or_default();
        let room = out.get_mut(written..).unwrap_or_default();
        match inflate.decompress(rest, room, InflateFlush::NoFlush) {
            Ok(Status::StreamEnd) => {
                out.truncate(inflate.total_out() as usize);
                return Ok(());
            }
            Ok(_) if inflate.total_in() as usize > read || inflate.total_out() as usize > written => {}
            _ => return Err(SERIALIZATION_FAILURE),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct VerifyArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    public_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    signature: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
    #[prost(string, tag = "5")]
    public_key_pem: String,
}

#[derive(Clone, PartialEq, Message)]
struct VerifyResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(string, tag = "2")]
    error: String,
}

fn verify(argument: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
    let arguments = VerifyArguments::decode(argument).map_err(|_| BAD_ARGUMENT)?;
    let key = key(&arguments.public_key, &arguments.public_key_pem).ok_or(BAD_ARGUMENT)?;
    let Some(hash) = Hash::named(&arguments.hash_function) else {
        let error = format!("{} is not supported.", arguments.hash_function);
        return VerifyResult { result: false, error }.encode(out).map_err(|_| INTERNAL_FAILURE);
    };
    // In Envoy's words: modules may look at them.
    let error = match Key::public(&key) {
        None => "Failed to initialize digest verify.",
        Some(key) if key.verifies(hash, &arguments.signature, &arguments.text) => "",
        Some(_) => "Failed to verify digest. Error code: 0",
    };
    let (fits, error) = (error.is_empty(), error.to_owned());
    VerifyResult { result: fits, error }.encode(out).map_err(|_| INTERNAL_FAILURE)
}

#[derive(Clone, PartialEq, Message)]
struct SignArguments {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    private_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    text: Vec<u8>,
    #[prost(string, tag = "4")]
    private_key_pem: String,
}

#[derive(Clone, PartialEq, Message)]
struct SignResult {
    #[prost(bool, tag = "1")]
    result: bool,
    #[prost(bytes = "vec", tag = "2")]
    signature: Vec<u8>,
    #[prost(string, tag = "3")]
    error: String,
}

fn sign(argument: &[u8], out: &mut Vec<u8>) -> Result<(), u32> {
    let arguments = SignArguments::decode(argument).map_err(|_| BAD_ARGUMENT)?;
    let key = key(&arguments.private_key, &arguments.private_key_pem).ok_or(BAD_ARGUMENT)?;
    let failed = |error: &str| SignResult { result: false, signature: Vec::new(), error: error.to_owned() };
    let made = match Hash::named(&arguments.hash_function) {
        None => failed(&format!("{} is not supported.", arguments.hash_function)),
        Some(hash) => match Key::private(&key, arguments.private_key.is_empty()) {
            None => failed("Invalid key type: private key required for signing operation."),
            Some(key) => match key.sign(hash, &arguments.text) {
                Some(signature) => SignResult { result: true, signature, error: String::new() },
                None => failed("Failed to create signature."),
            },
        },
    };
    made.encode(out).map_err(|_| INTERNAL_FAILURE)
}

/// A key in DER, from one of its two forms; nothing for a text that is no key.
fn key(der: &[u8], pem: &str) -> Option<Vec<u8>> {
    match (der.is_empty(), pem.is_empty()) {
        (false, true) => Some(der.to_vec()),
        (true, false) => {
            let body: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
            Some(STANDARD.decode(body).unwrap_or_default())
        }
        _ => None,
    }
}

/// Life spans by Envoy's numbers: of a chain of filters, a request, a connection.
const OF_CONNECTION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct FilterState {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(int32, tag = "3")]
    span: i32,
}

/// Makes an object of the filter state of a text, by the factory of its name: of a stream's, or of a connection's.
fn set_filter_state(data: &mut Data, argument: &[u8]) -> Result<(), u32> {
    let FilterState { path, value, span } = FilterState::decode(argument).map_err(|_| BAD_ARGUMENT)?;
    let kind = ObjectKind::of(&path).ok_or(NOT_FOUND)?;
    let rules = Rules { read_only: false, lasts: span == OF_CONNECTION };
    if !data.may_hold(path.len() + value.len()) {
        return Err(INTERNAL_FAILURE);
    }
    let target = data.target();
    // Whatever span is named: nothing of a connection ends before it does.
    let of_connection =
        data.present.link(target, |link| link.connection.info.make_state(&path, kind, value.as_bytes(), false));
    if let Some(is_made) = of_connection {
        return if is_made { Ok(()) } else { Err(BAD_ARGUMENT) };
    }
    let Data { present, contexts, limiter, .. } = data;
    let check = |info: &StreamInfo| match kind.make(value.as_bytes()) {
        None => Err(BAD_ARGUMENT),
        Some(_) if rules.lasts && !may_last(info, &path, value.len(), limiter) => Err(INTERNAL_FAILURE),
        Some(_) => Ok(()),
    };
    let at_hand = present.stream(target, |stream| {
        check(stream.info)?;
        put_state(stream.info, &path, &value, rules);
        Ok(())
    });
    if let Some(put) = at_hand {
        return put;
    }
    let stream = contexts.stream(target).ok_or(NOT_FOUND)?;
    check(&stream.kept.as_ref().ok_or(NOT_FOUND)?.info)?;
    stream.later(Edit::State(path, value, rules))
}

#[derive(Clone, PartialEq, Message)]
struct Declaration {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    readonly: bool,
    #[prost(int32, tag = "5")]
    span: i32,
}

/// Of what kind a property is declared to be does not matter here: all are bytes.
fn declare_property(data: &mut Data, argument: &[u8]) -> Result<(), u32> {
    let Declaration { name, readonly, span } = Declaration::decode(argument).map_err(|_| BAD_ARGUMENT)?;
    declare(data, name, Rules { read_only: readonly, lasts: span == OF_CONNECTION })
}

fn create_expression(data: &mut Data, argument: &[u8]) -> Result<(), u32> {
    let text = std::str::from_utf8(argument).map_err(|_| BAD_ARGUMENT)?;
    let allowed = Allowed { conversion: true, concatenation: true, functions: true };
    let expression = Expression::parse(text, allowed).map_err(|_| BAD_ARGUMENT)?;
    let expressions = expressions(data).ok_or(INTERNAL_FAILURE)?;
    if expressions.len() >= MAX_EXPRESSIONS {
        return Err(INTERNAL_FAILURE);
    }
    let token = expressions.last().map_or(0, |(last, _)| last + 1);
    expressions.push((token, Rc::new(expression)));
    data.scratch.extend_from_slice(&token.to_le_bytes());
    Ok(())
}

/// Those of the plugin that runs: they go with it, and no other one in its machine finds them, as in Envoy.
fn expressions(data: &mut Data) -> Option<&mut Vec<(u32, Rc<Expression>)>> {
    let root = data.contexts.root_id(data.current);
    Some(&mut data.contexts.root(root)?.expressions)
}

fn evaluate_expression(data: &mut Data, argument: &[u8]) -> Result<(), u32> {
    let token = token(argument)?;
    let known = expressions(data).and_then(|all| all.iter().find(|(known, _)| *known == token));
    let expression = known.map(|(_, expression)| expression.clone()).ok_or(NOT_FOUND)?;
    let Data { present, contexts, scratch, current, .. } = data;
    let written = present.parts(contexts, *current, |parts| {
        let facts: Facts<'_> = crate::properties::facts(&parts);
        postrider_filter_api::cel::write_result(&expression, &facts, scratch)
    });
    if written == Some(true) { Ok(()) } else { Err(INTERNAL_FAILURE) }
}

fn delete_expression(data: &mut Data, argument: &[u8]) -> Result<(), u32> {
    let token = token(argument)?;
    if let Some(all) = expressions(data) {
        all.retain(|(known, _)| *known != token);
    }
    Ok(())
}

fn token(argument: &[u8]) -> Result<u32, u32> {
    argument.try_into().map(u32::from_le_bytes).map_err(|_| BAD_ARGUMENT)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
    use aws_lc_rs::signature::KeyPair;

    use super::*;

    #[test]
    fn what_was_compressed_comes_back() {
        for text in [Vec::new(), b"hello".to_vec(), b"ab".repeat(100_000), (0..=255).collect()] {
            let (mut small, mut back) = (Vec::new(), Vec::new());
            compress(&text, &mut small).unwrap();
            uncompress(&small, &mut back).unwrap();
            assert_eq!(back, text);
        }
        assert_eq!(uncompress(b"no zlib", &mut Vec::new()), Err(SERIALIZATION_FAILURE));
        assert_eq!(uncompress(b"", &mut Vec::new()), Err(SERIALIZATION_FAILURE));
    }

    #[test]
    fn a_signature_is_made_and_verified() {
        let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).unwrap();
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).unwrap().as_ref().to_vec();
        let arguments = SignArguments {
            hash_function: "sha256".into(),
            private_key: private.as_ref().to_vec(),
            text: b"text".to_vec(),
            private_key_pem: String::new(),
        };
        let mut out = Vec::new();
        sign(&arguments.encode_to_vec(), &mut out).unwrap();
        let made = SignResult::decode(&*out).unwrap();
        assert!(made.result, "{made:?}");
        let check = |text: &[u8], hash: &str| {
            let arguments = VerifyArguments {
                hash_function: hash.into(),
                public_key: public.clone(),
                signature: made.signature.clone(),
                text: text.to_vec(),
                public_key_pem: String::new(),
            };
            let mut out = Vec::new();
            verify(&arguments.encode_to_vec(), &mut out).unwrap();
            VerifyResult::decode(&*out).unwrap()
        };
        assert!(check(b"text", "sha256").result);
        assert!(!check(b"other", "sha256").result && !check(b"text", "sha512").result);
        assert_eq!(check(b"text", "md5").error, "md5 is not supported.");
        assert_eq!(verify(b"", &mut out), Err(BAD_ARGUMENT), "there is no key");
        for key in ["", "no key"] {
            let arguments = SignArguments { private_key_pem: key.into(), private_key: Vec::new(), ..arguments.clone() };
            let mut out = Vec::new();
            let made = sign(&arguments.encode_to_vec(), &mut out).map(|()| SignResult::decode(&*out).unwrap().error);
            match key {
                "" => assert_eq!(made, Err(BAD_ARGUMENT)),
                _ => assert!(made.unwrap().starts_with("Invalid key type"), "{key}"),
            }
        }
    }
}
