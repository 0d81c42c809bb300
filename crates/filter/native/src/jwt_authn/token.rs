//! A token taken apart (RFC 7519): three parts, two of them JSON objects.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_model::Value;
use serde_json::{Map, Value as Json};

use super::json;
use super::status::Status;

/// Base64 for URLs, with padding or without it; bits at the end that make no byte count for nothing, as in Envoy.
pub(super) const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true)
        .with_encode_padding(false),
);

const ALGORITHMS: [&str; 13] = [
    "ES256", "ES384", "ES512", "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) header: Map<String, Json>,
    pub(super) payload: Map<String, Json>,
    /// As it was sent.
    pub(super) payload_text: String,
    /// Header and payload as they were sent, with the dot between them.
    pub(super) signed: String,
    pub(super) signature: Vec<u8>,
    pub(super) alg: &'static str,
    /// Empty where there is none; so the next ones.
    pub(super) kid: String,
    pub(super) iss: String,
    pub(super) sub: String,
    pub(super) audiences: Vec<String>,
    /// Seconds since 1970; 0 where there is none.
    pub(super) nbf: u64,
    pub(super) exp: u64,
}

impl Token {
    /// # Errors
    /// What is wrong with its form; nothing is verified here.
    pub(super) fn parse(text: &str) -> Result<Token, Status> {
        let parts: Vec<&str> = text.split('.').collect();
        let [head, body, signature] = parts[..] else { return Err(Status::BadFormat) };
        if parts.iter().any(|part| part.is_empty()) {
            return Err(Status::BadFormat);
        }
        let header = object(head, Status::HeaderBase64, Status::HeaderJson)?;
        let Some(Json::String(alg)) = header.get("alg") else { return Err(Status::HeaderAlg) };
        let alg = ALGORITHMS.iter().find(|known| *known == alg).ok_or(Status::AlgUnsupported)?;
        let kid = string(&header, "kid", Status::HeaderKid)?;
        let payload = object(body, Status::PayloadBase64, Status::PayloadJson)?;
        let iss = string(&payload, "iss", Status::Iss)?;
        let sub = string(&payload, "sub", Status::Sub)?;
        seconds(&payload, "iat", Status::Iat, Status::IatRange)?;
        let nbf = seconds(&payload, "nbf", Status::Nbf, Status::NbfRange)?;
        let exp = seconds(&payload, "exp", Status::Exp, Status::ExpRange)?;
        string(&payload, "jti", Status::Jti)?;
        let audiences = audiences(&payload)?;
        let signed = format!("{head}.{body}");
        let signature = decoded(signature).ok_or(Status::SignatureBase64)?;
        let payload_text = body.to_owned();
        Ok(Token { header, payload, payload_text, signed, signature, alg, kid, iss, sub, audiences, nbf, exp })
    }

    /// Whether it is good at that time, in seconds since 1970.
    pub(super) fn check_time(&self, now: u64, skew: u64) -> Result<(), Status> {
        if now.saturating_add(skew) < self.nbf {
            return Err(Status::NotYetValid);
        }
        if self.exp != 0 && now > self.exp.saturating_add(skew) {
            return Err(Status::Expired);
        }
        Ok(())
    }

    /// The claim at the end of the path.
    pub(super) fn claim(&self, path: &[String]) -> Option<&Json> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.payload.get(first)?, |value, key| value.as_object()?.get(key))
    }
}

/// A claim as a header tells it: lists and objects as the base64 of their JSON. `None` where there is nothing to tell.
pub(super) fn claim_text(claim: &Json) -> Option<String> {
    let text = match claim {
        Json::String(text) => text.clone(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => {
            // Numbers are floating-point numbers in Envoy, and those are told with six digits.
            let number = number.as_f64()?;
            let whole = number >= 0.0 && number < u64::MAX as f64 && number.fract() == 0.0;
            if whole { (number as u64).to_string() } else { format!("{number:.6}") }
        }
        Json::Array(_) | Json::Object(_) => base64::engine::general_purpose::STANDARD.encode(json::text(claim)),
        Json::Null => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// As metadata hold it.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        // Such a one is a floating-point number in Envoy, whatever the token says.
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(0.0)),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(entries) => object_value(entries),
    }
}

/// The same of an object, sorted by its keys.
pub(super) fn object_value(entries: &Map<String, Json>) -> Value {
    let mut all: Vec<(String, Value)> = entries.iter().map(|(key, entry)| (key.clone(), value(entry))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Map(all)
}

fn object(part: &str, base64: Status, wrong: Status) -> Result<Map<String, Json>, Status> {
    let bytes = decoded(part).ok_or(base64)?;
    json::object(&bytes).ok_or(wrong)
}

/// White space counts for nothing, as in Envoy: what stands behind a token belongs to its signature.
fn decoded(part: &str) -> Option<Vec<u8>> {
    if !part.contains(|c: char| c.is_ascii_whitespace()) {
        return BASE64URL.decode(part).ok();
    }
    BASE64URL.decode(part.split_ascii_whitespace().collect::<String>()).ok()
}

fn string(of: &Map<String, Json>, key: &str, wrong: Status) -> Result<String, Status> {
    match of.get(key) {
        None => Ok(String::new()),
        Some(Json::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong),
    }
}

fn seconds(of: &Map<String, Json>, key: &str, wrong: Status, range: Status) -> Result<u64, Status> {
    match of.get(key) {
        None => Ok(0),
        Some(Json::Number(number)) => match number.as_f64() {
            Some(seconds) if (0.0..u64::MAX as f64).contains(&seconds) => Ok(seconds as u64),
            _ => Err(range),
        },
        Some(_) => Err(wrong),
    }
}

fn audiences(payload: &Map<String, Json>) -> Result<Vec<String>, Status> {
    match payload.get("aud") {
        None => Ok(Vec::new()),
        Some(Json::String(one)) => Ok(vec![one.clone()]),
        Some(Json::Array(all)) => {
            let texts = all.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or(Status::Aud)
        }
        Some(_) => Err(Status::Aud),
    }
}
