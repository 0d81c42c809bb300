use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use postrider_filter_api::testing::{FakeHost, FakeStream};
use postrider_filter_api::{Answer, CallFailure, Host, Moment};
use postrider_http::{Fields, ResponseHead, Scheme};

use super::token::BASE64URL;
use super::*;
use crate::testing::{lines, list, object, request, request_headers, text};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A certificate (base64), of a key that nobody has any more.
const OF_AN_EC_KEY: &str = concat!(
    "MIIBbzCCARWgAwIBAgIUVGxI3m/NIBJRSxe/5s7omfsk1/wwCgYIKoZIzj0EAwIwDDEKMAgGA1UEAwwBdDAgFw0yNjExMjkwNDUy",
    "NDRaGA8yMTI2MTEwNTA0NTI0NFowDDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAXj9oINV26hphPkcb1k",
    "kVoYEXt49QKMXOJcMLVzsVmN/eccI841r/lBghTAGokOyq4WlF1WbzDHiTT1z9Bl+oejUzBRMB0GA1UdDgQWBBRsolE7i1Jg2Vn7",
    "dsayC8VIQPzlsTAfBgNVHSMEGDAWgBRsolE7i1Jg2Vn7dsayC8VIQPzlsTAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gA",
    "MEUCIAnlK1NsM+zVjWyuE+H9S9ulPWLCKvN7rgXUyvPQq4oBAiEAhpxv/Pk0j/PloMGFWf6wyctFt9MkOLFxIImm7mwc6sY=",
);

/// Seconds since 1970, as the clock of every test shows them.
const NOW: u64 = 1_800_000_000;

fn clock() -> (Moment, SystemTime) {
    (Moment::from_nanos(1_000_000_000), UNIX_EPOCH + Duration::from_secs(NOW))
}

fn encoded(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

/// A token signed with the secret.
fn token(payload: &str) -> String {
    let signed = format!("{}.{}", encoded(br#"{"alg":"HS256"}"#), encoded(payload.as_bytes()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("{signed}.{}", encoded(tag.as_ref()))
}

fn jwks() -> String {
    format!(r#"{{"keys":[{{"kty":"oct","kid":"s","k":"{}"}}]}}"#, encoded(SECRET))
}

fn here() -> (&'static str, Value) {
    ("local_jwks", object([("inline_string", text(&jwks()))]))
}

fn provider(more: Vec<(&str, Value)>) -> Value {
    let mut entries = vec![("issuer".to_owned(), text("me"))];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

/// The provider `p`, required everywhere.
fn gateway(provider: Value, more: Vec<(&str, Value)>) -> Value {
    let rule =
        object([("match", object([("prefix", text("/"))])), ("requires", object([("provider_name", text("p"))]))]);
    let mut entries = vec![("providers".to_owned(), object([("p", provider)])), ("rules".to_owned(), list([rule]))];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    build("jwt", config).ok().unwrap().filter(&ScopedConfigs::default(), &crate::testing::place())
}

fn bearer(token: &str) -> FakeStream {
    with_field("authorization", &format!("Bearer {token}"))
}

fn with_field(name: &str, value: &str) -> FakeStream {
    let mut stream = request("/", &[(name, value)]);
    stream.host.clock = clock;
    stream
}

/// Status and body of the refusal; `None` when the request may go on.
fn refusal(action: Action) -> Option<(u16, String)> {
    match action {
        Action::Respond(reply) => Some((reply.status, String::from_utf8(reply.body.to_vec()).unwrap())),
        Action::Done => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_must_be_well_formed_signed_and_meant_for_us() {
    let audiences = list([text("https://a1/")]);
    let filter = filter(&gateway(provider(vec![here(), ("audiences", audiences)]), Vec::new()));
    let answer = |stream: &mut FakeStream| refusal(request_headers(stream, &*filter));
    let good = format!(r#"{{"iss":"me","aud":["a1"],"exp":{}}}"#, NOW + 10);
    assert_eq!(answer(&mut bearer(&token(&good))), None);
    let mut missing = request("/p?q", &[]);
    let Action::Respond(reply) = request_headers(&mut missing, &*filter) else { panic!("admitted") };
    assert_eq!((reply.status, &*reply.body), (401, &b"Jwt is missing"[..]));
    assert_eq!(reply.details, "jwt_authn_access_denied{Jwt_is_missing}");
    assert_eq!(reply.headers[0].1, &br#"Bearer realm="http://x/p?q""#[..]);
    let Action::Respond(reply) = request_headers(&mut bearer("x"), &*filter) else { panic!("admitted") };
    assert_eq!(reply.headers[0].1, &br#"Bearer realm="http://x/", error="invalid_token""#[..]);
    for (payload, status, body) in [
        (r#"{"iss":"you","aud":"a1"}"#.to_owned(), 401, "Jwt issuer is not configured"),
        (r#"{"iss":"me","aud":"a2"}"#.to_owned(), 403, "Audiences in Jwt are not allowed"),
        (r#"{"iss":"me"}"#.to_owned(), 403, "Audiences in Jwt are not allowed"),
        (r#"{"iss":1}"#.to_owned(), 401, "Jwt payload [iss] field is not a string"),
        (r#"{"aud":[1]}"#.to_owned(), 401, "Jwt payload [aud] field is not a string or string list"),
        (r#"{"exp":"1"}"#.to_owned(), 401, "Jwt payload [exp] field is not an integer"),
        (r#"{"exp":-1}"#.to_owned(), 401, "Jwt payload [exp] field is not a positive 64 bit integer"),
        (format!(r#"{{"iss":"me","aud":"a1","exp":{}}}"#, NOW - 61), 401, "Jwt is expired"),
        (format!(r#"{{"iss":"me","aud":"a1","nbf":{}}}"#, NOW + 61), 401, "Jwt not yet valid"),
        ("no json".to_owned(), 401, "Jwt payload is an invalid JSON"),
    ] {
        let got = answer(&mut bearer(&token(&payload)));
        assert_eq!(got, Some((status, body.to_owned())), "{payload}");
    }
    for skew in [format!(r#"{{"iss":"me","aud":"a1","exp":{}}}"#, NOW - 60), good.clone()] {
        assert_eq!(answer(&mut bearer(&token(&skew))), None, "{skew}");
    }
    let (signed, _) = token(&good).rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    for (token, body) in [
        (format!("{signed}.AAAA"), "Jwt verification fails"),
        (format!("{signed}.!"), "Jwt signature is an invalid Base64url encoded"),
        (signed, "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"),
        ("a.b.c".to_owned(), "Jwt header is an invalid Base64url encoded"),
        (format!("{}.e30.AAAA", encoded(br#"{"alg":"none"}"#)), "Jwt header [alg] is not supported"),
        (format!("{}.e30.AAAA", encoded(b"{}")), "Jwt header [alg] field is required and must be a string"),
    ] {
        assert_eq!(answer(&mut bearer(&token)), Some((401, body.to_owned())), "{token}");
    }
}

#[test]
fn signatures_are_checked_by_the_key_that_fits() {
    let random = SystemRandom::new();
    let ec = |algorithm: &'static signature::EcdsaSigningAlgorithm| {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).unwrap()
    };
    let p256 = ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING);
    let p384 = ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING);
    let edwards = Ed25519KeyPair::generate().unwrap();
    let jwk = |kid: &str, crv: &str, point: &[u8], size: usize| {
        let (x, y) = point[1..].split_at(size);
        format!(r#"{{"kty":"EC","kid":"{kid}","crv":"{crv}","x":"{}","y":"{}"}}"#, encoded(x), encoded(y))
    };
    let okp = format!(r#"{{"kty":"OKP","kid":"ed","crv":"Ed25519","x":"{}"}}"#, encoded(edwards.public_key().as_ref()));
    let broken = r#"{"kty":"zz"}"#;
    let keys = [
        broken.to_owned(),
        jwk("p256", "P-256", p256.public_key().as_ref(), 32),
        jwk("p384", "P-384", p384.public_key().as_ref(), 48),
        okp,
    ];
    let keys = keys::Keys::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).unwrap();
    let check = |alg: &str, kid: &str, sign: &dyn Fn(&[u8]) -> Vec<u8>| {
        let header = format!(r#"{{"alg":"{alg}","kid":"{kid}"}}"#);
        let signed = format!("{}.{}", encoded(header.as_bytes()), encoded(b"{}"));
        let text = format!("{signed}.{}", encoded(&sign(signed.as_bytes())));
        keys.verify(&token::Token::parse(&text).unwrap())
    };
    let by = |pair: &EcdsaKeyPair, data: &[u8]| pair.sign(&random, data).unwrap().as_ref().to_vec();
    assert_eq!(check("ES256", "p256", &|data| by(&p256, data)), Status::Ok);
    assert_eq!(check("ES384", "p384", &|data| by(&p384, data)), Status::Ok);
    assert_eq!(check("EdDSA", "ed", &|data| edwards.sign(data).as_ref().to_vec()), Status::Ok);
    // The right signature under another name, and for another algorithm.
    assert_eq!(check("ES256", "p384", &|data| by(&p256, data)), Status::Verification);
    assert_eq!(check("ES384", "p256", &|data| by(&p256, data)), Status::Verification);
    assert_eq!(check("EdDSA", "ed", &|_| vec![0; 64]), Status::Verification);
    assert_eq!(check("EdDSA", "ed", &|_| vec![0; 63]), Status::Ed25519Length);
    assert_eq!(check("ES256", "nobody", &|data| by(&p256, data)), Status::NoKey);
}

#[test]
fn a_set_without_a_good_key_is_refused_in_words() {
    let even = format!(r#"{{"keys":[{{"kty":"RSA","n":"{}","e":"AQAB"}}]}}"#, encoded(&[0xfe; 256]));
    let no_rsa = format!(r#"{{"a":"-----BEGIN CERTIFICATE-----\n{OF_AN_EC_KEY}\n-----END CERTIFICATE-----\n"}}"#);
    for (set, message) in [
        ("x", "Jwks is an invalid JSON"),
        ("{}", "Jwks does not have [keys] field"),
        (r#"{"keys":1}"#, "[keys] in Jwks is not an array"),
        (r#"{"keys":[]}"#, "Jwks doesn't have any valid public key"),
        (r#"{"keys":[{}]}"#, "[kty] is missing in [keys]"),
        (r#"{"keys":[{"kty":"zz"}]}"#, "[kty] is not supported in [keys]"),
        (r#"{"keys":[{"kty":"RSA"}]}"#, "[n] field is missing for a RSA key"),
        (r#"{"keys":[{"kty":"RSA","n":"AQ","e":"AQ"}]}"#, "Jwks RSA [n] or [e] field is missing or has a parse error"),
        (r#"{"keys":[{"kty":"EC","alg":"RS256"}]}"#, "[alg] is not started with [ES] for an EC key"),
        (&even, "Jwks RSA [n] or [e] field is missing or has a parse error"),
        (
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AQ","y":"AQ"}]}"#,
            "Jwks EC [x] and [y] fields have a parse error.",
        ),
        (r#"{"keys":[{"kty":"EC","crv":"P-1"}]}"#, "[crv] or [alg] field is not supported for an EC key"),
        (r#"{"keys":[{"kty":"oct","k":""}]}"#, "Jwks Oct key is an invalid Base64"),
        (r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#, "Jwks OKP [x] field is wrong length."),
        (r#"{"a":"no certificate"}"#, "X509 parse pubkey fails"),
        (&no_rsa, "X509 parse pubkey internal fails: get pubkey"),
    ] {
        assert_eq!(keys::Keys::parse(set.as_bytes()).unwrap_err(), message, "{set}");
    }
}

#[test]
fn the_upstream_learns_what_a_token_says_and_nothing_forged() {
    let claim = |header: &str, claim: &str| object([("header_name", text(header)), ("claim_name", text(claim))]);
    let path = object([("header_name", text("x-dotted")), ("claim_path", list([object([("key", text("a.b"))])]))]);
    let normalize = object([("space_delimited_claims", list([text("scope")]))]);
    let provider = provider(vec![
        here(),
        ("forward_payload_header", text("x-payload")),
        ("pad_forward_payload_header", Value::Bool(true)),
        ("payload_in_metadata", text("payload")),
        ("header_in_metadata", text("header")),
        ("normalize_payload_in_metadata", normalize),
        ("clear_route_cache", Value::Bool(true)),
        (
            "claim_to_headers",
            list([claim("x-sub", "sub"), claim("x-deep", "n.m"), claim("x-list", "l"), claim("x-none", "z"), path]),
        ),
    ]);
    let filter = filter(&gateway(provider, Vec::new()));
    let payload = r#"{"iss":"me","sub":"ann","n":{"m":1.5},"l":["x"],"a.b":7,"scope":"r  w"}"#;
    let token = token(payload);
    let fields = [("authorization", &*format!("Bearer {token}")), ("x-sub", "root"), ("x-none", "evil")];
    let mut stream = request("/", &fields);
    assert_eq!(refusal(request_headers(&mut stream, &*filter)), None);
    let mut padded = token.split('.').nth(1).unwrap().to_owned();
    while !padded.len().is_multiple_of(4) {
        padded.push('=');
    }
    let want = [
        format!("x-payload: {padded}"),
        "x-sub: ann".to_owned(),
        "x-deep: 1.500000".to_owned(),
        "x-list: WyJ4Il0=".to_owned(),
        "x-dotted: 7".to_owned(),
    ];
    assert_eq!(lines(&stream.request.fields), want);
    assert!(stream.info.route_is_stale);
    let Some(Value::Map(noted)) = stream.info.metadata.get(NAMESPACE, "payload") else { panic!("nothing noted") };
    assert!(noted.contains(&("scope".to_owned(), list([text("r"), text("w")]))));
    assert_eq!(stream.info.metadata.get(NAMESPACE, "header"), Some(&object([("alg", text("HS256"))])));
}

#[test]
fn tokens_stand_in_headers_parameters_and_cookies() {
    let places = |extra: Vec<(&str, Value)>| filter(&gateway(provider([vec![here()], extra].concat()), Vec::new()));
    let good = token(r#"{"iss":"me"}"#);
    let usual = places(Vec::new());
    let mut stream = request(&format!("/p?a=1&access_token={good}&b=%20"), &[]);
    assert_eq!(refusal(request_headers(&mut stream, &*usual)), None);
    assert_eq!(stream.request.path(), b"/p?a=1&b=%20");
    let own = places(vec![
        ("from_headers", list([object([("name", text("X-Tok")), ("value_prefix", text("T="))])])),
        ("from_cookies", list([text("jar")])),
        ("forward", Value::Bool(true)),
    ]);
    for (name, value, passes) in [
        ("x-tok", format!("T={good}"), true),
        ("x-tok", good.clone(), false),
        ("cookie", format!("a=b; jar={good}"), true),
        ("authorization", format!("Bearer {good}"), false),
    ] {
        let mut stream = request("/", &[(name, &value)]);
        let outcome = refusal(request_headers(&mut stream, &*own));
        assert_eq!(outcome.is_none(), passes, "{name}");
        assert_eq!(lines(&stream.request.fields).len(), 1);
    }
    // All must be good.
    let mut two = request("/?access_token=x", &[("authorization", &format!("Bearer {good}"))]);
    assert!(refusal(request_headers(&mut two, &*usual)).is_some());
}

#[test]
fn what_follows_a_token_in_a_header_belongs_to_its_signature() {
    let places = list([object([("name", text("X-Tok")), ("value_prefix", text("T="))])]);
    let own = provider(vec![here(), ("from_headers", places), ("failed_status_in_metadata", text("why"))]);
    let filter = filter(&gateway(own, Vec::new()));
    let good = token(r#"{"iss":"me"}"#);
    for (value, code) in [(format!("zz T={good} more"), Some(26.0)), (format!("zz T={good} "), None)] {
        let mut stream = request("/", &[("x-tok", &value)]);
        let refused = refusal(request_headers(&mut stream, &*filter)).is_some();
        assert_eq!(refused, code.is_some(), "{value}");
        let noted = stream.info.metadata.get(NAMESPACE, "why");
        let told =
            code.map(|code| object([("code", Value::Number(code)), ("message", text("Jwt verification fails"))]));
        assert_eq!(noted, told.as_ref());
    }
}

#[test]
fn a_later_requirement_takes_away_what_an_earlier_one_told() {
    let payload = |requirement: Value, forward: bool| {
        let own = vec![here(), ("forward_payload_header", text("x-payload")), ("forward", Value::Bool(forward))];
        let rule = object([("match", object([("prefix", text("/"))])), ("requires", requirement)]);
        let config = object([("providers", object([("p", provider(own))])), ("rules", list([rule]))]);
        let bearer = format!("Bearer {}", token(r#"{"iss":"me"}"#));
        let mut stream = request("/", &[("authorization", &bearer)]);
        assert!(refusal(request_headers(&mut stream, &*filter(&config))).is_none());
        stream.request.fields.get_all_name(b"x-payload").count()
    };
    let name = || object([("provider_name", text("p"))]);
    let all = |other: &str| {
        let both = list([name(), object([(other, object([]))])]);
        object([("requires_all", object([("requirements", both)]))])
    };
    assert_eq!(payload(name(), false), 1);
    for other in ["allow_missing", "allow_missing_or_failed", "extract_only_without_validation"] {
        assert_eq!(payload(all(other), false), 0, "{other}");
        // A token that is still there is looked at again.
        assert_eq!(payload(all(other), true), 1, "{other}");
    }
}

#[test]
fn requirements_are_made_of_requirements() {
    let name = |name: &str| object([("provider_name", text(name))]);
    let any = |items: Vec<Value>| object([("requires_any", object([("requirements", Value::List(items))]))]);
    let all = |items: Vec<Value>| object([("requires_all", object([("requirements", Value::List(items))]))]);
    let missing = || object([("allow_missing", object([]))]);
    let failed = || object([("allow_missing_or_failed", object([]))]);
    let from = |issuer: &str, header: &str| {
        let places = list([object([("name", text(header))])]);
        let (key, keys) = here();
        object([("issuer", text(issuer)), (key, keys), ("from_headers", places)])
    };
    let passes = |requirement: Value, fields: &[(&str, &str)]| {
        let rule = object([("match", object([("prefix", text("/"))])), ("requires", requirement)]);
        let providers = object([("p", from("me", "x-p")), ("q", from("you", "x-q"))]);
        let filter = filter(&object([("providers", providers), ("rules", list([rule]))]));
        refusal(request_headers(&mut request("/", fields), &*filter)).is_none()
    };
    let (me, you) = (token(r#"{"iss":"me"}"#), token(r#"{"iss":"you"}"#));
    let (p, q, bad) = (("x-p", me.as_str()), ("x-q", you.as_str()), ("x-p", "a.b.c"));
    let both = || vec![name("p"), name("q")];
    assert!(passes(any(both()), &[p]) && passes(any(both()), &[bad, q]) && !passes(any(both()), &[]));
    assert!(passes(all(both()), &[p, q]) && !passes(all(both()), &[p]) && !passes(all(both()), &[bad, q]));
    let optional = || any(vec![name("p"), missing()]);
    assert!(passes(optional(), &[]) && passes(optional(), &[p]) && !passes(optional(), &[bad]));
    let lax = || any(vec![name("p"), failed()]);
    assert!(passes(lax(), &[]) && passes(lax(), &[bad]));
    assert!(passes(missing(), &[]) && passes(missing(), &[q]) && !passes(missing(), &[bad]));
    assert!(passes(failed(), &[bad]) && passes(object([]), &[bad]));
    let nested = || any(vec![any(both()), missing()]);
    assert!(passes(nested(), &[]) && passes(nested(), &[q]) && !passes(nested(), &[bad]));
}

#[test]
fn a_bad_token_may_be_told_of_in_place_of_a_refusal() {
    let config = |requirement: Value| {
        let rule = object([("match", object([("prefix", text("/"))])), ("requires", requirement)]);
        object([("providers", object([("p", provider(vec![here()]))])), ("rules", list([rule]))])
    };
    let marked = || object([("extract_only_without_validation", object([]))]);
    let name = |requirement: Value, token: Option<&str>| {
        let filter = filter(&config(requirement));
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut fields = vec![("x-jwt-signature-verified", "false")];
        fields.extend(bearer.as_ref().map(|bearer| ("authorization", bearer.as_str())));
        let mut stream = request("/", &fields);
        stream.host.clock = clock;
        assert!(refusal(request_headers(&mut stream, &*filter)).is_none());
        lines(&stream.request.fields).into_iter().filter(|line| line.ends_with(": false")).collect::<Vec<_>>()
    };
    let (good, old) = (token(r#"{"iss":"me"}"#), token(r#"{"iss":"me","exp":5}"#));
    let usual = ["x-jwt-signature-verified: false"];
    assert_eq!(name(marked(), Some(&old)), usual);
    assert_eq!(name(marked(), Some("a.b.c")), usual);
    // What a client says of its token means nothing.
    assert!(name(marked(), Some(&good)).is_empty() && name(marked(), None).is_empty());
    let own = object([("verification_status_header", text("X-Good"))]);
    let own = object([("extract_only_without_validation", own)]);
    assert!(name(own, Some(&old)).contains(&"x-good: false".to_owned()));
    let both = list([object([("provider_name", text("p"))]), marked()]);
    assert_eq!(name(object([("requires_any", object([("requirements", both)]))]), Some(&old)), usual);
}

#[test]
fn claims_can_be_restricted_further() {
    let longest = ("max_lifetime", text("100s"));
    let answer = |extra: Vec<(&str, Value)>, claims: String| {
        let filter = filter(&gateway(provider([vec![here()], extra].concat()), Vec::new()));
        refusal(request_headers(&mut bearer(&token(&format!(r#"{{"iss":"me"{claims}}}"#))), &*filter)).is_none()
    };
    let subjects = || vec![("subjects", object([("prefix", text("a"))]))];
    assert!(answer(subjects(), r#","sub":"ann""#.into()) && !answer(subjects(), r#","sub":"bob""#.into()));
    let expiring = || vec![("require_expiration", Value::Bool(true))];
    assert!(answer(expiring(), format!(r#","exp":{NOW}"#)) && !answer(expiring(), String::new()));
    let limited = || vec![longest.clone()];
    assert!(answer(limited(), format!(r#","exp":{}"#, NOW + 99)));
    assert!(!answer(limited(), format!(r#","exp":{}"#, NOW + 100)) && !answer(limited(), String::new()));
}

#[test]
fn rules_routes_and_the_filter_state_choose_the_requirement() {
    let state =
        object([("name", text("who")), ("requires", object([("strict", object([("provider_name", text("p"))]))]))]);
    let rule = object([("match", object([("prefix", text("/open"))]))]);
    let config = object([
        ("providers", object([("p", provider(vec![here()]))])),
        ("rules", list([rule])),
        ("filter_state_rules", state),
        (
            "requirement_map",
            object([
                ("named", object([("provider_name", text("p"))])),
                ("also", object([("provider_name", text("p"))])),
            ]),
        ),
        ("bypass_cors_preflight", Value::Bool(true)),
    ]);
    let factory = build("jwt", &config).ok().unwrap();
    let answer = |route: Option<Value>, path: &str, state: &str| {
        let route = route.map(|route| factory.route_config(ROUTE_KIND, &route).ok().unwrap());
        let configs = ScopedConfigs { route, ..ScopedConfigs::default() };
        let filter = factory.filter(&configs, &crate::testing::place());
        let mut stream = request(path, &[]);
        stream.info.filter_state.push(("who".into(), text(state)));
        refusal(request_headers(&mut stream, &*filter))
    };
    assert_eq!(answer(None, "/open", "strict"), None);
    assert_eq!(answer(None, "/", "strict").unwrap().0, 401);
    assert_eq!(answer(None, "/", "lax"), None);
    let named = |name: &str| Some(object([("requirement_name", text(name))]));
    assert_eq!(answer(named("named"), "/open", "").unwrap().0, 401);
    let wrong = "Failed JWT authentication: Wrong requirement_name: zz. It should be one of [also,named]";
    assert_eq!(answer(named("zz"), "/", ""), Some((403, wrong.to_owned())));
    assert_eq!(answer(Some(object([("disabled", Value::Bool(true))])), "/", "strict"), None);
    let preflight = [("origin", "a"), ("access-control-request-method", "GET")];
    let mut stream = FakeStream::new("OPTIONS", "/", &preflight);
    stream.info.filter_state.push(("who".into(), text("strict")));
    let filter = factory.filter(&ScopedConfigs::default(), &crate::testing::place());
    assert_eq!(refusal(request_headers(&mut stream, &*filter)), None);
}

fn elsewhere(more: Vec<(&str, Value)>) -> Value {
    let uri = object([("uri", text("https://keys.test/k?v=1")), ("cluster", text("keys")), ("timeout", text("1s"))]);
    let mut entries = vec![("http_uri".to_owned(), uri), ("cache_duration".to_owned(), text("10s"))];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    gateway(provider(vec![("remote_jwks", Value::Map(entries))]), Vec::new())
}

fn answered(body: &str) -> Result<Answer, CallFailure> {
    let mut head = ResponseHead::new();
    head.set_status(200);
    Ok(Answer { head, body: body.as_bytes().to_vec(), trailers: Fields::new() })
}

/// What becomes of a request whose call for keys, if it makes one, is answered so.
fn with_keys(filter: &dyn Filter, stream: &mut FakeStream, outcome: Result<Answer, CallFailure>) -> Action {
    let mut state = State::default();
    let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
    if !matches!(action, Action::Pause) {
        return action;
    }
    assert!(stream.host.answer(outcome));
    stream.with(|stream| filter.on_request_resumed(&mut state, stream))
}

#[test]
fn keys_are_fetched_once_and_kept_for_their_time() {
    let filter = filter(&elsewhere(Vec::new()));
    let good = token(r#"{"iss":"me"}"#);
    let mut first = bearer(&good);
    let mut state = State::default();
    let action = first.with(|stream| filter.on_request_headers(&mut state, stream, true));
    assert!(matches!(action, Action::Pause));
    {
        let calls = first.host.calls.borrow();
        let call = &calls[0];
        assert_eq!((&*call.cluster, call.head.authority()), ("keys", &b"keys.test"[..]));
        assert_eq!((call.head.path(), call.timeout), (&b"/k?v=1"[..], Some(Duration::from_secs(1))));
    }
    // Another request waits for the same answer.
    let mut second = bearer(&good);
    let mut other = State::default();
    assert!(matches!(second.with(|stream| filter.on_request_headers(&mut other, stream, true)), Action::Pause));
    assert!(second.host.calls.borrow().is_empty());
    assert!(first.host.answer(answered(&jwks())));
    assert_eq!(refusal(first.with(|stream| filter.on_request_resumed(&mut state, stream))), None);
    assert_eq!(lines(&first.request.fields), [""; 0]);
    assert_eq!(refusal(second.with(|stream| filter.on_request_resumed(&mut other, stream))), None);
    let mut third = bearer(&good);
    assert_eq!(refusal(request_headers(&mut third, &*filter)), None);
    let mut late = bearer(&good);
    late.host.clock = || (Moment::from_nanos(12_000_000_000), UNIX_EPOCH);
    let failed = Some((401, "Jwks remote fetch is failed".to_owned()));
    assert_eq!(refusal(with_keys(&*filter, &mut late, Err(CallFailure::Timeout))), failed);
    let mut junk = bearer(&good);
    junk.host.clock = late.host.clock;
    assert_eq!(refusal(with_keys(&*filter, &mut junk, answered("junk"))), failed);
}

#[test]
fn keys_refreshed_in_the_background_stay_good_until_there_are_new_ones() {
    let factory = build("jwt", &elsewhere(vec![("async_fetch", object([]))])).ok().unwrap();
    let host = Rc::new(FakeHost::default());
    let known: Rc<dyn Host> = host.clone();
    let place = Place { host: &known, ..crate::testing::place() };
    let alive = factory.arrive(&place).expect("something runs in the background");
    assert!(host.answer(answered(&jwks())), "keys are asked for before any request");
    let due = || host.timers.borrow_mut().pop().expect("it is asked again");
    let (pause, wake) = due();
    assert_eq!(pause, Duration::from_secs(5));
    let filter = factory.filter(&ScopedConfigs::default(), &place);
    let good = token(r#"{"iss":"me"}"#);
    let late = || {
        let mut late = bearer(&good);
        late.host.clock = || (Moment::from_nanos(30_000_000_000), UNIX_EPOCH + Duration::from_secs(NOW));
        late
    };
    wake();
    assert!(host.answer(Err(CallFailure::Upstream)), "they are asked for again without a request");
    let (pause, wake) = due();
    assert_eq!(pause, Duration::from_secs(1));
    let mut during = late();
    assert_eq!(refusal(request_headers(&mut during, &*filter)), None);
    assert!(during.host.calls.borrow().is_empty(), "a request asked for keys that are good");
    wake();
    assert!(host.answer(answered(&jwks())));
    drop(alive);
    let (_, wake) = due();
    wake();
    assert!(host.calls.borrow().is_empty(), "the configuration is gone");
}

#[test]
fn other_workers_have_the_keys_that_the_first_one_got() {
    let factory = build("jwt", &elsewhere(vec![("async_fetch", object([]))])).ok().unwrap();
    let host = Rc::new(FakeHost::default());
    let known: Rc<dyn Host> = host.clone();
    let _alive = factory.arrive(&Place { host: &known, ..crate::testing::place() });
    assert!(host.answer(answered(&jwks())));
    let elsewhere = std::thread::spawn(move || {
        assert!(factory.arrive(&Place { worker: 1, ..crate::testing::place() }).is_none());
        let filter = factory.filter(&ScopedConfigs::default(), &crate::testing::place());
        refusal(request_headers(&mut bearer(&token(r#"{"iss":"me"}"#)), &*filter))
    });
    assert_eq!(elsewhere.join().unwrap(), None);
}

/// Else the upstream that gets the token or its payload may take the other one.
#[test]
fn a_token_in_which_a_name_stands_twice_is_refused() {
    let filter = filter(&gateway(provider(vec![here()]), Vec::new()));
    let answer = |token: &str| refusal(request_headers(&mut bearer(token), &*filter));
    let later = NOW + 10;
    for payload in [
        r#"{"iss":"you","iss":"me"}"#.to_owned(),
        format!(r#"{{"iss":"me","exp":1,"exp":{later}}}"#),
        r#"{"iss":"me","a":[{"b":1,"b":2}]}"#.to_owned(),
    ] {
        assert_eq!(answer(&token(&payload)), Some((401, "Jwt payload is an invalid JSON".to_owned())), "{payload}");
    }
    let header = encoded(br#"{"alg":"none","alg":"HS256"}"#);
    let (_, rest) = token(r#"{"iss":"me"}"#).split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(answer(&format!("{header}.{rest}")), Some((401, "Jwt header is an invalid JSON".to_owned())));
    let twice = format!(r#"{{"keys":[],"keys":[{{"kty":"oct","k":"{}"}}]}}"#, encoded(SECRET));
    assert_eq!(keys::Keys::parse(twice.as_bytes()).unwrap_err(), "Jwks is an invalid JSON");
}

/// One whose keys are elsewhere, in the cluster that has its name; its tokens stand in the header of its name.
fn remote(name: &str, more: Vec<(&str, Value)>) -> (String, Value) {
    let uri = object([("uri", text("https://keys.test/k")), ("cluster", text(name)), ("timeout", text("1s"))]);
    let place = list([object([("name", text(name))])]);
    let keys = ("remote_jwks", object([("http_uri", uri)]));
    (name.to_owned(), provider([vec![("from_headers", place), keys], more].concat()))
}

/// Providers, required in this way.
fn together(kind: &str, providers: Vec<(String, Value)>) -> Rc<dyn Filter> {
    let names = providers.iter().map(|(name, _)| object([("provider_name", text(name))])).collect();
    let requires = object([(kind, object([("requirements", Value::List(names))]))]);
    let rule = object([("match", object([("prefix", text("/"))])), ("requires", requires)]);
    filter(&object([("providers", Value::Map(providers)), ("rules", list([rule]))]))
}

#[test]
fn whoever_needs_no_keys_decides_while_another_would_wait() {
    let near = |more: Vec<(&str, Value)>| {
        let place = list([object([("name", text("near"))])]);
        ("near".to_owned(), provider([vec![here(), ("from_headers", place)], more].concat()))
    };
    let (good, bad) = (token(r#"{"iss":"me"}"#), "a.b.c".to_owned());
    let begin = |filter: &dyn Filter, token: &str| {
        let mut stream = request("/", &[("far", &good), ("near", token)]);
        stream.host.clock = clock;
        let action = request_headers(&mut stream, filter);
        let asked = stream.host.calls.borrow().len();
        (action, asked)
    };
    let any = together("requires_any", vec![remote("far", Vec::new()), near(Vec::new())]);
    let (action, asked) = begin(&*any, &good);
    assert!(matches!(action, Action::Done) && asked == 0, "{action:?}");
    let (action, asked) = begin(&*any, &bad);
    assert!(matches!(action, Action::Pause) && asked == 1, "{action:?}");
    let strict = || near(vec![("audiences", list([text("others")]))]);
    let all = together("requires_all", vec![remote("far", Vec::new()), strict()]);
    let (action, asked) = begin(&*all, &good);
    assert_eq!((refusal(action), asked), (Some((403, "Audiences in Jwt are not allowed".to_owned())), 0));
}

#[test]
fn keys_of_several_providers_are_asked_for_side_by_side() {
    let good = token(r#"{"iss":"me"}"#);
    let providers = || vec![remote("a", vec![("forward_payload_header", text("x-told"))]), remote("b", Vec::new())];
    let begin = |filter: &dyn Filter| {
        let mut stream = request("/", &[("a", &good), ("b", &good)]);
        stream.host.clock = clock;
        let mut state = State::default();
        let action = stream.with(|stream| filter.on_request_headers(&mut state, stream, true));
        assert!(matches!(action, Action::Pause));
        assert_eq!(
            stream.host.calls.borrow().iter().map(|call| call.cluster.to_string()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        (stream, state)
    };
    let resume = |filter: &dyn Filter, stream: &mut FakeStream, state: &mut State| {
        stream.with(|stream| filter.on_request_resumed(state, stream))
    };
    let all = together("requires_all", providers());
    let (mut stream, mut state) = begin(&*all);
    assert!(stream.host.answer(answered(&jwks())));
    assert!(matches!(resume(&*all, &mut stream, &mut state), Action::Pause));
    assert_eq!(stream.host.calls.borrow().len(), 1, "nobody is asked twice");
    assert!(matches!(resume(&*all, &mut stream, &mut state), Action::Pause), "there is no other answer yet");
    assert!(stream.host.answer(answered(&jwks())));
    assert!(matches!(resume(&*all, &mut stream, &mut state), Action::Done));
    assert_eq!(stream.request.fields.get_all_name(b"x-told").count(), 1);
    // The first answer is enough, and the second wakes nobody.
    let any = together("requires_any", providers());
    let (mut stream, mut state) = begin(&*any);
    assert!(stream.host.answer(answered(&jwks())));
    let woken = |stream: &FakeStream| stream.resumer.poll(std::task::Waker::noop()).is_ready();
    assert!(woken(&stream));
    assert!(matches!(resume(&*any, &mut stream, &mut state), Action::Done));
    assert!(stream.host.answer(answered(&jwks())));
    assert!(!woken(&stream));
    // One fails, the other may still let it pass.
    let any = together("requires_any", providers());
    let (mut stream, mut state) = begin(&*any);
    assert!(stream.host.answer(Err(CallFailure::Timeout)));
    assert!(matches!(resume(&*any, &mut stream, &mut state), Action::Pause));
    assert!(stream.host.answer(Err(CallFailure::Timeout)));
    let failed = Some((401, "Jwks remote fetch is failed".to_owned()));
    assert_eq!(refusal(resume(&*any, &mut stream, &mut state)), failed);
}

#[test]
fn a_token_of_just_the_longest_lifetime_is_good_when_it_is_issued() {
    let filter = filter(&gateway(provider(vec![here(), ("max_lifetime", text("100s"))]), Vec::new()));
    let passes = |exp: u64, clock: fn() -> (Moment, SystemTime)| {
        let mut stream = bearer(&token(&format!(r#"{{"iss":"me","exp":{exp}}}"#)));
        stream.host.clock = clock;
        refusal(request_headers(&mut stream, &*filter)).is_none()
    };
    let soon = || (clock().0, clock().1 + Duration::from_millis(1));
    assert!(passes(NOW + 100, soon) && !passes(NOW + 100, clock) && !passes(NOW + 101, soon));
    // One that is good for the difference of clocks alone lives no longer.
    assert!(passes(NOW - 30, soon));
}

#[test]
fn tokens_are_remembered_while_clocks_may_differ() {
    let provider = provider(vec![here(), ("jwt_cache_config", object([]))]);
    let place = crate::testing::place();
    let stats = place.stats.block(&stat::SET, "test.jwt_authn");
    let filter = build("jwt", &gateway(provider, Vec::new())).ok().unwrap().filter(&ScopedConfigs::default(), &place);
    for claims in [format!(r#""exp":{}"#, NOW - 20), format!(r#""nbf":{}"#, NOW + 30)] {
        let token = token(&format!(r#"{{"iss":"me",{claims}}}"#));
        for _ in 0..2 {
            assert_eq!(refusal(request_headers(&mut bearer(&token), &*filter)), None);
        }
    }
    assert_eq!((stats.value(stat::JWT_CACHE_MISS), stats.value(stat::JWT_CACHE_HIT)), (2, 2));
}

#[test]
fn a_claim_without_words_stays_a_text() {
    let normalize = object([("space_delimited_claims", list([text("a"), text("b"), text("c")]))]);
    let more = vec![here(), ("payload_in_metadata", text("p")), ("normalize_payload_in_metadata", normalize)];
    let filter = filter(&gateway(provider(more), Vec::new()));
    let mut stream = bearer(&token(r#"{"iss":"me","a":"","b":"  ","c":" x","n":9007199254740993}"#));
    assert_eq!(refusal(request_headers(&mut stream, &*filter)), None);
    let noted = stream.info.metadata.get(NAMESPACE, "p");
    let wanted = object([
        ("a", text("")),
        ("b", text("  ")),
        ("c", list([text("x")])),
        ("iss", text("me")),
        // Numbers are floating-point numbers.
        ("n", Value::Number(9_007_199_254_740_992.0)),
    ]);
    assert_eq!(noted, Some(&wanted));
}

#[test]
fn a_bad_token_beside_a_good_one_is_noted() {
    let from = |more: Vec<(&str, Value)>| {
        let places = ["x-a", "x-b", "x-c"].map(|name| object([("name", text(name))]));
        let all = [vec![here(), ("from_headers", list(places))], more].concat();
        Value::Map(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let a = from(vec![("issuer", text("me")), ("failed_status_in_metadata", text("why"))]);
    let providers = object([("a", a), ("b", from(vec![("issuer", text("you"))]))]);
    let requires = object([("allow_missing_or_failed", object([]))]);
    let rule = object([("match", object([("prefix", text("/"))])), ("requires", requires)]);
    let filter = filter(&object([("providers", providers), ("rules", list([rule]))]));
    let code = |fields: &[(&str, &str)]| {
        let mut stream = request("/", fields);
        stream.host.clock = clock;
        assert_eq!(refusal(request_headers(&mut stream, &*filter)), None);
        let Some(Value::Map(noted)) = stream.info.metadata.get(NAMESPACE, "why").cloned() else { return None };
        noted.into_iter().find(|(key, _)| key == "code").map(|(_, code)| code)
    };
    let (good, old) = (token(r#"{"iss":"me"}"#), token(r#"{"iss":"me","exp":5}"#));
    let other = token(r#"{"iss":"you"}"#);
    assert_eq!(code(&[("x-a", "bad"), ("x-b", &good)]), Some(Value::Number(4.0)));
    assert_eq!(code(&[("x-a", "bad"), ("x-b", &old)]), Some(Value::Number(4.0)));
    // Nobody's before, or another's.
    assert_eq!(code(&[("x-a", &good), ("x-b", "bad")]), None);
    assert_eq!(code(&[("x-a", "bad"), ("x-b", &other)]), None);
}

#[test]
fn where_keys_are_is_said_with_a_scheme_and_a_host() {
    for (uri, is_good) in [
        ("https://keys.test", true),
        ("http://keys.test:8080/k", true),
        ("http://[::1]:8/k", true),
        ("keys.test/k", false),
        ("https://keys.test:99999/", false),
        ("https://keys.test:http/", false),
        ("https://keys test/", false),
        ("https://keys.test/a b", false),
        ("https://keys.test/é", false),
        ("https://robot:secret@keys.test/k", false),
    ] {
        let server = object([("uri", text(uri)), ("cluster", text("keys")), ("timeout", text("1s"))]);
        let config = gateway(provider(vec![("remote_jwks", object([("http_uri", server)]))]), Vec::new());
        let errors = build("jwt", &config).err().unwrap_or_default();
        assert_eq!(errors.is_empty(), is_good, "{uri}: {errors:?}");
        assert!(errors.iter().all(|error| error.path.ends_with("remote_jwks.http_uri.uri")), "{errors:?}");
    }
}

#[test]
fn keys_are_asked_for_where_the_uri_says() {
    for (uri, scheme, path) in [
        ("https://keys.test/k?v=1#f", Some(Scheme::Https), "/k?v=1"),
        ("http://keys.test?v=1", Some(Scheme::Http), "/?v=1"),
        ("https://keys.test", Some(Scheme::Https), "/"),
    ] {
        let server = object([("uri", text(uri)), ("cluster", text("keys")), ("timeout", text("1s"))]);
        let filter = filter(&gateway(provider(vec![("remote_jwks", object([("http_uri", server)]))]), Vec::new()));
        let mut stream = bearer(&token(r#"{"iss":"me"}"#));
        assert!(matches!(request_headers(&mut stream, &*filter), Action::Pause));
        let calls = stream.host.calls.borrow();
        let head = &calls[0].head;
        let asked = (head.scheme(), std::str::from_utf8(head.path()).unwrap(), head.authority());
        assert_eq!(asked, (scheme, path, &b"keys.test"[..]), "{uri}");
    }
}

#[test]
fn a_configuration_is_refused_with_all_its_errors() {
    let (key, keys) = here();
    let bad = object([
        (
            "providers",
            object([
                ("none", object([])),
                ("keys", object([("local_jwks", object([("inline_string", text("{}"))]))])),
                ("claims", object([(key, keys), ("claim_to_headers", list([object([("header_name", text("a"))])]))])),
            ]),
        ),
        (
            "rules",
            list([
                object([("requires", object([("provider_name", text("who"))]))]),
                object([("match", object([("prefix", text("/"))])), ("requirement_name", text("zz"))]),
            ]),
        ),
    ]);
    let errors = build("jwt", &bad).err().unwrap();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    let wanted = [
        "providers.none",
        "providers.keys.local_jwks",
        "providers.claims.claim_to_headers[0]",
        "rules[0].match",
        "rules[0].requires.provider_name",
        "rules[1].requirement_name",
    ];
    assert_eq!(paths, wanted);
}
