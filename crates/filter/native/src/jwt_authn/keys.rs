//! Keys that signatures are checked with: JSON Web Key Sets (RFC 7517), and certificates by key id.

use std::ops::RangeInclusive;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    self, EcdsaVerificationAlgorithm, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};

use super::json;
use super::status::Status;
use super::token::{BASE64URL, Token};

const ED25519_SIGNATURE: usize = 64;
const ED25519_KEY: usize = 32;

/// How long the modulus of an RSA key may be.
const RSA_BYTES: RangeInclusive<usize> = 128..=1024;

/// Never empty.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    /// Empty where none is written; so the next.
    id: String,
    alg: String,
    kind: Kind,
}

enum Kind {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// The key of a certificate (DER).
    RsaDer(Vec<u8>),
    /// An uncompressed point.
    Ec(Curve, Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

impl std::fmt::Debug for Kind {
    /// Without what it holds: a secret is never shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Rsa(_) | Kind::RsaDer(_) => "RSA",
            Kind::Ec(..) => "EC",
            Kind::Ed25519(_) => "OKP",
            Kind::Secret(_) => "oct",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// The algorithm that goes with it (RFC 7518 section 3.4).
    fn alg(self) -> &'static str {
        match self {
            Curve::P256 => "ES256",
            Curve::P384 => "ES384",
            Curve::P521 => "ES512",
        }
    }

    fn rules(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Curve::P256 => &signature::ECDSA_P256_SHA256_FIXED,
            Curve::P384 => &signature::ECDSA_P384_SHA384_FIXED,
            Curve::P521 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }
}

impl Keys {
    /// Keys that cannot be used are left out, as long as one can.
    ///
    /// # Errors
    /// Why there is none, in Envoy's words.
    pub(super) fn parse(text: &[u8]) -> Result<Keys, &'static str> {
        let set = json::object(text).ok_or("Jwks is an invalid JSON")?;
        let keys: Vec<Result<Key, &'static str>> = match set.get("keys") {
            Some(Json::Array(keys)) => keys.iter().filter_map(Json::as_object).map(key).collect(),
            Some(_) => return Err("[keys] in Jwks is not an array"),
            None if is_certificates(&set) => set.iter().map(|(id, pem)| of_certificate(id, pem)).collect(),
            None => return Err("Jwks does not have [keys] field"),
        };
        let mut why = "Jwks doesn't have any valid public key";
        let mut good = Vec::new();
        for key in keys.into_iter().rev() {
            match key {
                Ok(key) => good.push(key),
                Err(message) => why = message,
            }
        }
        good.reverse();
        if good.is_empty() { Err(why) } else { Ok(Keys(good)) }
    }

    /// Whether one of the keys signed the token.
    pub(super) fn verify(&self, token: &Token) -> Status {
        let fits = |key: &&Key| {
            (token.kid.is_empty() || key.id.is_empty() || key.id == token.kid)
                && (key.alg.is_empty() || key.alg == token.alg)
        };
        let mut outcome = Status::NoKey;
        for key in self.0.iter().filter(fits) {
            if key.kind.signed(token) {
                return Status::Ok;
            }
            // Envoy looks no further here, whatever the algorithm.
            if matches!(key.kind, Kind::Ed25519(_)) && token.signature.len() != ED25519_SIGNATURE {
                return Status::Ed25519Length;
            }
            outcome = Status::Verification;
        }
        outcome
    }
}

impl Kind {
    fn signed(&self, token: &Token) -> bool {
        let (message, given) = (token.signed.as_bytes(), token.signature.as_slice());
        let by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, given).is_ok()
        };
        match self {
            Kind::Rsa(key) => rsa(token.alg).is_some_and(|rules| key.verify(rules, message, given).is_ok()),
            Kind::RsaDer(key) => rsa(token.alg).is_some_and(|rules| by(rules, key)),
            Kind::Ec(curve, point) if token.alg == curve.alg() => by(curve.rules(), point),
            Kind::Ed25519(key) if token.alg == "EdDSA" => by(&signature::ED25519, key),
            Kind::Secret(secret) => {
                let digest = match token.alg {
                    "HS256" => hmac::HMAC_SHA256,
                    "HS384" => hmac::HMAC_SHA384,
                    "HS512" => hmac::HMAC_SHA512,
                    _ => return false,
                };
                hmac::verify(&hmac::Key::new(digest, secret), message, given).is_ok()
            }
            Kind::Ec(..) | Kind::Ed25519(_) => false,
        }
    }
}

fn rsa(alg: &str) -> Option<&'static RsaParameters> {
    match alg {
        // Shorter keys than 2048 bits are old, but Envoy takes them.
        "RS256" => Some(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        "RS384" => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        "RS512" => Some(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        "PS256" => Some(&signature::RSA_PSS_2048_8192_SHA256),
        "PS384" => Some(&signature::RSA_PSS_2048_8192_SHA384),
        "PS512" => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn key(of: &Map<String, Json>) -> Result<Key, &'static str> {
    let text = |key: &str| of.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let (id, alg) = (text("kid"), text("alg"));
    let kind = match of.get("kty") {
        None => return Err("[kty] is missing in [keys]"),
        Some(Json::String(kind)) => kind.as_str(),
        Some(_) => return Err("[kty] is bad in [keys]"),
    };
    let kind = match kind {
        "RSA" if !alg.is_empty() && !alg.starts_with("RS") && !alg.starts_with("PS") => {
            return Err("[alg] is not started with [RS] or [PS] for an RSA key");
        }
        "RSA" => rsa_key(of)?,
        "EC" => ec_key(of, &alg)?,
        "oct" if !matches!(alg.as_str(), "" | "HS256" | "HS384" | "HS512") => {
            return Err("[alg] does not start with [HS] for an HMAC key");
        }
        "oct" => match of.get("k").map(Json::as_str) {
            None => return Err("[k] field is missing for an HMAC key"),
            Some(None) => return Err("[k] field is not string for an HMAC key"),
            Some(Some(secret)) => match BASE64URL.decode(secret) {
                Ok(secret) if !secret.is_empty() => Kind::Secret(secret),
                _ => return Err("Jwks Oct key is an invalid Base64"),
            },
        },
        "OKP" => okp_key(of, &alg)?,
        _ => return Err("[kty] is not supported in [keys]"),
    };
    Ok(Key { id, alg, kind })
}

/// A part of a key; the errors are: missing, no string, no base64.
fn part(of: &Map<String, Json>, key: &str, errors: [&'static str; 3]) -> Result<Vec<u8>, &'static str> {
    let [missing, wrong, base64] = errors;
    let text = of.get(key).ok_or(missing)?.as_str().ok_or(wrong)?;
    BASE64URL.decode(text).map_err(|_| base64)
}

fn rsa_key(of: &Map<String, Json>) -> Result<Kind, &'static str> {
    const BROKEN: &str = "Jwks RSA [n] or [e] field is missing or has a parse error";
    let n = part(of, "n", ["[n] field is missing for a RSA key", "[n] field is not string for a RSA key", BROKEN])?;
    let e = part(of, "e", ["[e] field is missing for a RSA key", "[e] field is not string for a RSA key", BROKEN])?;
    let bare = |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<u8>>();
    let (n, e) = (bare(n), bare(e));
    // A modulus is the product of two odd primes; of what is shorter or longer no signature is ever good here.
    let is_odd = n.last().is_some_and(|byte| byte % 2 == 1);
    if !is_odd || !RSA_BYTES.contains(&n.len()) || !matches!(e.as_slice(), [3] | [1, 0, 1]) {
        return Err(BROKEN);
    }
    Ok(Kind::Rsa(RsaPublicKeyComponents { n, e }))
}

fn ec_key(of: &Map<String, Json>, alg: &str) -> Result<Kind, &'static str> {
    const BROKEN: &str = "Jwks EC [x] or [y] field is an invalid Base64.";
    const NOWHERE: &str = "Jwks EC [x] and [y] fields have a parse error.";
    if !alg.is_empty() && !alg.starts_with("ES") {
        return Err("[alg] is not started with [ES] for an EC key");
    }
    let written = match of.get("crv") {
        None => "",
        Some(Json::String(curve)) => curve,
        Some(_) => return Err("[crv] field is not string for an EC key"),
    };
    let (curve, size) = match (alg, written) {
        ("" | "ES256", "P-256") | ("ES256" | "", "") => (Curve::P256, 32),
        ("" | "ES384", "P-384") | ("ES384", "") => (Curve::P384, 48),
        ("" | "ES512", "P-521") | ("ES512", "") => (Curve::P521, 66),
        ("ES256" | "ES384" | "ES512", "P-256" | "P-384" | "P-521") => {
            return Err("[crv] field specified is not compatible with [alg] for an EC key");
        }
        _ => return Err("[crv] or [alg] field is not supported for an EC key"),
    };
    let x = part(of, "x", ["[x] field is missing for an EC key", "[x] field is not string for an EC key", BROKEN])?;
    let y = part(of, "y", ["[y] field is missing for an EC key", "[y] field is not string for an EC key", BROKEN])?;
    let mut point = vec![4];
    for coordinate in [x, y] {
        let bytes: Vec<u8> = coordinate.into_iter().skip_while(|byte| *byte == 0).collect();
        let Some(padding) = usize::checked_sub(size, bytes.len()) else {
            return Err(NOWHERE);
        };
        point.extend(std::iter::repeat_n(0, padding));
        point.extend(bytes);
    }
    // A point beside the curve signs nothing.
    ParsedPublicKey::new(curve.rules(), &point).map_err(|_| NOWHERE)?;
    Ok(Kind::Ec(curve, point))
}

fn okp_key(of: &Map<String, Json>, alg: &str) -> Result<Kind, &'static str> {
    if !matches!(alg, "" | "EdDSA") {
        return Err("[alg] is not [EdDSA] for an OKP key");
    }
    match of.get("crv") {
        None => return Err("[crv] field is missing for an OKP key"),
        Some(Json::String(curve)) if curve == "Ed25519" => {}
        Some(Json::String(_)) => return Err("[crv] field is not supported for an OKP key"),
        Some(_) => return Err("[crv] field is not string for an OKP key"),
    }
    let errors = [
        "[x] field is missing for an OKP key",
        "[x] field is not string for an OKP key",
        "Jwks OKP [x] field is an invalid Base64.",
    ];
    let x = part(of, "x", errors)?;
    if x.len() == ED25519_KEY { Ok(Kind::Ed25519(x)) } else { Err("Jwks OKP [x] field is wrong length.") }
}

/// `{"key id": "-----BEGIN CERTIFICATE-----…"}`, as Google publishes them.
fn is_certificates(set: &Map<String, Json>) -> bool {
    let is_named = |(id, pem): (&String, &Json)| !id.is_empty() && pem.as_str().is_some_and(|pem| !pem.is_empty());
    !set.is_empty() && set.iter().all(is_named)
}

fn of_certificate(id: &str, pem: &Json) -> Result<Key, &'static str> {
    let lines = pem.as_str().unwrap_or_default().lines().map(str::trim);
    let base64: String = lines.filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(base64).map_err(|_| "X509 parse pubkey fails")?;
    let key = public_key(&der).ok_or("X509 parse pubkey fails")?;
    if !is_rsa(&key) {
        return Err("X509 parse pubkey internal fails: get pubkey");
    }
    Ok(Key { id: id.to_owned(), alg: String::new(), kind: Kind::RsaDer(key) })
}

/// `subjectPublicKeyInfo` of a certificate (RFC 5280 section 4.1).
fn public_key(der: &[u8]) -> Option<Vec<u8>> {
    const VERSION: u8 = 0xa0;
    const SEQUENCE: u8 = 0x30;
    let certificate = Element::first(der)?.content;
    let mut rest = Element::first(certificate)?.content;
    if rest.first() == Some(&VERSION) {
        rest = Element::first(rest)?.behind;
    }
    // Serial number, algorithm, issuer, validity, subject.
    for _ in 0..5 {
        rest = Element::first(rest)?.behind;
    }
    let key = Element::first(rest)?;
    (key.tag == SEQUENCE).then(|| key.whole.to_vec())
}

/// Whether a `subjectPublicKeyInfo` says of its key that it is an RSA one (RFC 3279 section 2.3.1).
fn is_rsa(key: &[u8]) -> bool {
    const RSA_ENCRYPTION: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    let algorithm = Element::first(key).and_then(|key| Element::first(key.content));
    let id = algorithm.and_then(|algorithm| Element::first(algorithm.content));
    id.is_some_and(|id| id.content == RSA_ENCRYPTION)
}

/// An element of DER.
struct Element<'d> {
    tag: u8,
    content: &'d [u8],
    /// With tag and length.
    whole: &'d [u8],
    behind: &'d [u8],
}

impl Element<'_> {
    fn first(der: &[u8]) -> Option<Element<'_>> {
        let (tag, length) = (*der.first()?, *der.get(1)?);
        let (head, length) = match length {
            short @ 0..=0x7f => (2, usize::from(short)),
            long => {
                let count = usize::from(long & 0x7f);
                let bytes = der.get(2..2 + count).filter(|_| (1..=4).contains(&count))?;
                (2 + count, bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
            }
        };
        let end = head.checked_add(length)?;
        Some(Element { tag, content: der.get(head..end)?, whole: der.get(..end)?, behind: der.get(end..)? })
    }
}
