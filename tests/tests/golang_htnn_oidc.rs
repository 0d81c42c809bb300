//! HTNN's plugin for OpenID Connect, with a provider that a browser is sent to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_tests::envoy;
use postrider_tests::golang::Site;
use postrider_tests::htnn::{HOMES, ask, with};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::{Origin, Response};
use serde_json::{Value, json};

const REDIRECT: &str = "http://test/callback";

/// A provider that knows one client, and the questions that browsers bring to it.
struct Provider {
    origin: Origin,
    /// By the code that a browser takes back: the nonce and the challenge that it came with.
    asked: Arc<Mutex<HashMap<String, (String, String)>>>,
}

impl Provider {
    /// Its access tokens are good for so many seconds.
    fn start(lifetime: u64) -> Self {
        let asked: Arc<Mutex<HashMap<String, (String, String)>>> = Arc::default();
        let known = asked.clone();
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let origin = Origin::start(move |connection| {
            let issuer = format!("http://{}", connection.stream().local_addr().unwrap());
            while let Some(request) = connection.request() {
                let answer = match request.target.as_str() {
                    "/.well-known/openid-configuration" => json!({
                        "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                        "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
                        "id_token_signing_alg_values_supported": ["ES256"],
                    }),
                    "/keys" => keys(&key),
                    "/token" => tokens(&request, &known.lock().unwrap(), &issuer, lifetime, &key),
                    other => panic!("the provider is asked for {other}"),
                };
                let (kind, body) = ("content-type: application/json", answer.to_string());
                let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {}\r\n\r\n", body.len());
                connection.write(format!("{head}{body}").as_bytes());
            }
        });
        Self { origin, asked }
    }

    fn plugin(&self) -> Value {
        let issuer = format!("http://{}", self.origin.address);
        json!({"clientId": "web", "clientSecret": "secret", "issuer": issuer, "redirectUrl": REDIRECT, "scopes": ["mail"]})
    }

    /// What a person does who is sent there: a code and the state, for the way back.
    fn log_in(&self, location: &str) -> String {
        let (page, query) = location.split_once('?').expect("a query");
        assert_eq!(page, format!("http://{}/authorize", self.origin.address));
        let query = form(query);
        assert_eq!(
            ["client_id", "redirect_uri", "response_type", "scope", "code_challenge_method"]
                .map(|name| query[name].as_str()),
            ["web", REDIRECT, "code", "openid mail offline_access", "S256"]
        );
        self.asked.lock().unwrap().insert("c0de".into(), (query["nonce"].clone(), query["code_challenge"].clone()));
        format!("/callback?code=c0de&state={}", query["state"])
    }
}

fn keys(key: &EcdsaKeyPair) -> Value {
    // A point that is not compressed: 4, then both coordinates.
    let point = key.public_key().as_ref();
    let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
    json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": x, "y": y}]})
}

/// The answer of the token endpoint, for a code or for a token that refreshes.
fn tokens(
    request: &Request,
    asked: &HashMap<String, (String, String)>,
    issuer: &str,
    lifetime: u64,
    key: &EcdsaKeyPair,
) -> Value {
    let form = form(std::str::from_utf8(&request.body).unwrap());
    let (nonce, access) = match form["grant_type"].as_str() {
        "authorization_code" => {
            let (nonce, challenge) = &asked[&form["code"]];
            let verifier = digest::digest(&digest::SHA256, form["code_verifier"].as_bytes());
            assert_eq!(&URL_SAFE_NO_PAD.encode(verifier), challenge);
            (nonce.clone(), "first")
        }
        "refresh_token" => {
            assert_eq!(form["refresh_token"], "again");
            (String::new(), "second")
        }
        other => panic!("the provider is asked for a {other}"),
    };
    let claims = json!({"iss": issuer, "aud": "web", "sub": "ann", "exp": 4_102_444_800_u64, "iat": 0, "nonce": nonce});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k"})), part(&claims));
    let signature = key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
    json!({"access_token": access, "token_type": "Bearer", "refresh_token": "again", "expires_in": lifetime, "id_token": token})
}

/// The fields of a form or a query.
fn form(text: &str) -> HashMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    text.split('&')
        .filter_map(|field| field.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// The cookie that an answer sets, as a field of a request.
fn cookie(answer: &Response) -> String {
    let cookie = answer.header("set-cookie").split(';').next().unwrap();
    assert!(cookie.starts_with("htnn_oidc_"), "{answer:?}");
    format!("cookie: {cookie}\r\n")
}

/// Goes there and back: the cookie that a browser shows from then on.
fn log_in(provider: &Provider, site: &Site) -> String {
    let sent_away = ask(site, "/shop?item=1", "");
    assert_eq!(sent_away.status, 302, "{sent_away:?}");
    let back = provider.log_in(sent_away.header("location"));
    let sent_back = ask(site, &back, &cookie(&sent_away));
    assert_eq!((sent_back.status, sent_back.header("location")), (302, "http://test/shop?item=1"), "{sent_back:?}");
    cookie(&sent_back)
}

#[test]
fn a_browser_is_sent_to_the_provider_and_comes_back_with_a_token() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let provider = Provider::start(3600);
        let site = with(home, "oidc", provider.plugin());
        let shown = log_in(&provider, &site);
        assert!(site.origin.requests().is_empty(), "nobody came in yet");
        assert_eq!(ask(&site, "/shop?item=1", &shown).status, 200, "{home}");
        let arrived = site.origin.requests().remove(0);
        assert_eq!(arrived.header("authorization"), "Bearer first");
        assert_eq!(arrived.header("x-id-token").split('.').count(), 3);
        assert_eq!(ask(&site, "/", &shown.replace("=", "=x")).status, 403, "{home}: a cookie of somebody's own");
    }
}

#[test]
fn whoever_comes_back_otherwise_than_he_was_sent_is_turned_away() {
    if envoy() {
        return;
    }
    let provider = Provider::start(3600);
    let site = with("", "oidc", provider.plugin());
    let sent_away = ask(&site, "/", "");
    let back = provider.log_in(sent_away.header("location"));
    let refused = |target: &str, fields: &str| {
        let answer = ask(&site, target, fields);
        (answer.status, answer.text().to_owned())
    };
    assert_eq!(refused(&format!("{back}x"), &cookie(&sent_away)), (403, r#"{"msg":"bad state"}"#.to_owned()));
    assert_eq!(refused(&back, ""), (403, r#"{"msg":"bad nonce"}"#.to_owned()));
}

#[test]
fn a_token_that_ends_is_made_anew() {
    if envoy() {
        return;
    }
    for home in HOMES {
        // Less than what the plugin leaves for the way: it is renewed with every request.
        let provider = Provider::start(1);
        let site = with(home, "oidc", provider.plugin());
        let shown = log_in(&provider, &site);
        let answer = ask(&site, "/shop", &shown);
        assert_eq!(answer.status, 200, "{home} {answer:?}");
        assert_eq!(site.origin.requests()[0].header("authorization"), "Bearer second", "{home}");
        assert_ne!(cookie(&answer), shown, "{home}: the browser is told of the new one");
    }
}
