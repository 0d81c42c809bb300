//! Tokens of other people: JSON Web Tokens, as Envoy checks them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use postrider_tests::ask;
use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use serde_json::{Value, json};

/// Of the key that signed all of these (RSA, 2048 bits), which nobody has any more.
const MODULUS: &str = concat!(
    "q4glMCNDRBDqfXyUZw3bfwo3s6YNzTBsh2KfYd9B6u7M75XcD88MeitR7q5jPhj9sIMqvcl0uUM-8HzijiEuduGVam1WeUVKEdqP",
    "aILyYYdri3dlJ1JbcnqUEmoullf--YawYhikTvqyQwVVRb_YCFNDAtc5TJsVE5H6paNC6l-Sbwmnm5mC8YElAo2uWiJ1aD0aFfiW",
    "77cw5aGX6XAeRwEPD7z-cQvY0dO3-orfWyQi6FMXDBExEte2xLTY40wspnm59Y7-q_7NsYa5EFNXADZGb8Xumv-aRGUDRxFz9Vyy",
    "dWwVaSsjeHhPgC23C7zMSak0Dq25TRZFz4ruaIoXFw",
);

/// `{iss: https://issuer.test, sub: ann, aud: web, groups: [dev, ops], n: {m: deep}}`, good until 2100.
const ANN: &str = concat!(
    "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIudGVzdCIsICJzdWIiOiAiYW5uIiwg",
    "ImF1ZCI6ICJ3ZWIiLCAiZXhwIjogNDEwMjQ0NDgwMCwgImdyb3VwcyI6IFsiZGV2IiwgIm9wcyJdLCAibiI6IHsibSI6ICJkZWVw",
    "In19.X0L11kfItRVlAK9a8KorIzfQN7tSGL9jAcRf16gopLBASP7SWgKH-8Uq0Jik0qj1uZBavZ2vvkkyN3pzf9AnLGY3Dn13wQX",
    "arLIah9xRmBj_9bJU8hQYCGUNTMjYmrMckEgFX8QLXd0E88GgN9PxKsGavDxgFMZmCDa20kPFkGzaB-7Sf67nArmwpy8zmMfOxPp",
    "pkZJQTgQSbkhhKMocJJQoXMiJaZZxUXa5RrE6We874KilIpKXSZ-lU9ntGq7LlV2DLSPffM2bDKQJdKpuPa0AGS0XguBs1Ok3git",
    "epXoOsuNIXw6qzSqkrHSn8NPvjzysBkKvIizCOXMW9Ot4aQ",
);

/// The same until 2001.
const EXPIRED: &str = concat!(
    "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIudGVzdCIsICJzdWIiOiAiYW5uIiwg",
    "ImF1ZCI6ICJ3ZWIiLCAiZXhwIjogMTAwMDAwMDAwMH0.CA1DN1dO9I9LK4VKERZBpIJpZ38NcU5lsVMvvDmj3Lu1Ejqdy-vkVMsg",
    "mgcnJ6n1dtEpweJvuG2CmTRphfckXsDoQma30hGeWN8ab8F9Jl7JNl61dS37nOPnu7isiImXLoZcoswda0Zxko8LNS0iXAEfpK-1",
    "ws8nhKUFVd1Hkml-aJC6-BZ5zNpNj5_N6OsbDEYL5dourjDKw0Esbi8MMJRdhgvQbo3cQ5yHpE0jbhhC3KQ6zCPOJNFp4-xG8FFF",
    "CB4t27uAICgdJ6jrpsX2NJRhACgfbRpNFuGsIB8VwZ0z2T8LkQKpsSpsD1K1VBpCP68FCoaDjJqtVWLX1gCTEg",
);

/// The same for the audience `other`.
const ELSEWHERE: &str = concat!(
    "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaHR0cHM6Ly9pc3N1ZXIudGVzdCIsICJzdWIiOiAiYW5uIiwg",
    "ImF1ZCI6ICJvdGhlciIsICJleHAiOiA0MTAyNDQ0ODAwfQ.F_s7eXnFOYccPQb2bikjkwNNZNgEjD5lW0T79NLlTaLSimY8r36cH",
    "x5N2smY6LmwSBfmRyX2F-gsUpqmiyPU0MPUz_tlDVaD1GlNRm-7_Y9Pg8yODg_VfccrTsF4Wmtdyl6jjCpsij449Io91-I-AyKsk",
    "q50d14PKxLfyR5ZFYVvXpG7eAD5I0BWpbNiICb1cs54bc7os7UZtqvln57ppzX4WYe3buVfZQogZbFZRhOji8W0OBRLYMzQEr42U",
    "iynJpwKmql0QuZ5VPQuV8mhyUuIqwaXZYEie0QPdacaBF96lurdgDCJhHVmXmTYvJGRZ7uesM0KuF9piYtM_6kq7Q",
);

/// Of the issuer `https://stranger.test`.
const STRANGER: &str = concat!(
    "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogImsxIn0.eyJpc3MiOiAiaHR0cHM6Ly9zdHJhbmdlci50ZXN0IiwgInN1YiI6ICJldmUi",
    "LCAiYXVkIjogIndlYiIsICJleHAiOiA0MTAyNDQ0ODAwfQ.JeIqDzZR1AtDh7hBgFsjEt2dbdPQb14f29cqjY2Dgb-13W5tp7fFM",
    "dbwbZwB4udGWM59p-jVd6djTOL6cun1JzYsD6HSwH6sWuCqKkaGRQ8X0jxKez75nZucZXabxS56WjdAx3khmHolyJYC9K8sw-HD8",
    "qxuU_U33r29C5wP8I1TrVYRM3l0X1c-lycOweWcZwYNU9bF8LncASmkke7k-p6fNLz0f7BsCrzgLbopNn3tnjzDnqPb3dRCzMEO0",
    "Um2tSz1iGHAwA_9KuHsHS1phsJ312y8kprpoqm8TwMja_qC0HsFdTD3I4Esdk1-HApYitqLSdUC7yRIIrruBut4oQ",
);

/// Of the same key.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIDDzCCAfegAwIBAgIULoOgQqeb6rcYXYftvzpZcgr/x1UwDQYJKoZIhvcNAQEL\n\
BQAwFjEUMBIGA1UEAwwLaXNzdWVyLnRlc3QwIBcNMjYxMTIyMDg0ODA1WhgPMjEy\n\
NjEwMjkwODQ4MDVaMBYxFDASBgNVBAMMC2lzc3Vlci50ZXN0MIIBIjANBgkqhkiG\n\
9w0BAQEFAAOCAQ8AMIIBCgKCAQEAq4glMCNDRBDqfXyUZw3bfwo3s6YNzTBsh2Kf\n\
Yd9B6u7M75XcD88MeitR7q5jPhj9sIMqvcl0uUM+8HzijiEuduGVam1WeUVKEdqP\n\
aILyYYdri3dlJ1JbcnqUEmoullf++YawYhikTvqyQwVVRb/YCFNDAtc5TJsVE5H6\n\
paNC6l+Sbwmnm5mC8YElAo2uWiJ1aD0aFfiW77cw5aGX6XAeRwEPD7z+cQvY0dO3\n\
+orfWyQi6FMXDBExEte2xLTY40wspnm59Y7+q/7NsYa5EFNXADZGb8Xumv+aRGUD\n\
RxFz9VyydWwVaSsjeHhPgC23C7zMSak0Dq25TRZFz4ruaIoXFwIDAQABo1MwUTAd\n\
BgNVHQ4EFgQUhb5/A/j/iwKXFFO0TVSQJ1y8CKIwHwYDVR0jBBgwFoAUhb5/A/j/\n\
iwKXFFO0TVSQJ1y8CKIwDwYDVR0TAQH/BAUwAwEB/zANBgkqhkiG9w0BAQsFAAOC\n\
AQEAqyVRq7Gt4T9iUuhCqIwkeK5cJcmrvVfArpBTmrmxBLGVa6AAfpsHONmOHOeg\n\
CSXK2HedmG9UHiTxyklEhzR+yqJsDH8cIGP4UD6Sxc0e6ql2qhbU0MzBPkRIifZE\n\
EhkFUNtP4JSCcfJUmIt/P9pkq2ny8LJ3EbZnPF+uwGJ0RlwCT7s/ZuT/wuM62Z1e\n\
9dNU8chP1UBOhw4N2s1UONLFWHP1j74US3rdfi8tv70arRGIbDYiIAEljIwkwO+E\n\
Jjvq8RCLVP7NXUMvpm2E3wWg7dUxN4fGctq9SEs6XdjtkGk0qaVl8zJxw84bycxy\n\
cASZLDw3w1q7SMkDQPvpK8Oj3g==\n\
-----END CERTIFICATE-----\n";

const KIND: &str = "filters.http.jwt_authn.v3.JwtAuthentication";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig";

struct Site {
    proxy: Proxy,
    origin: Origin,
    log: PathBuf,
    _folder: TempDir,
}

/// A proxy with the filter and then `more`, which finds the keys in the cluster `keys`.
fn site_with(fields: Value, more: &[Value], routes: Value, keys: &Origin) -> Site {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let origin = Origin::echo("a");
    let line =
        "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.jwt_authn)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let mut filters = vec![extension("envoy.filters.http.jwt_authn", KIND, fields)];
    filters.extend(more.iter().cloned());
    filters.push(router());
    let mut all = routes.as_array().unwrap().clone();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    let config = Config::new()
        .http(json!({
            "access_log": [file_access_log(&log, format)],
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": all}]},
        }))
        .cluster("keys", &[keys.address])
        .cluster("origin", &[origin.address]);
    Site { proxy: Proxy::start(&config), origin, log, _folder: folder }
}

fn site(fields: Value) -> Site {
    site_with(fields, &[], json!([]), &Origin::echo("keys"))
}

impl Site {
    /// Status and body.
    fn answer(&self, path: &str, fields: &str) -> (u16, String) {
        let response = ask(&self.proxy, "GET", "test", path, fields);
        (response.status, response.text().to_owned())
    }

    fn status(&self, path: &str, fields: &str) -> u16 {
        self.answer(path, fields).0
    }

    /// The last line of the access log, once there are so many.
    fn logged(&self, lines: usize) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= lines);
        read().lines().nth(lines - 1).unwrap().to_owned()
    }

    fn stat(&self, name: &str) -> u64 {
        self.proxy.stats().value(&format!("http.ingress_http.jwt_authn.{name}"))
    }
}

fn jwks() -> String {
    json!({"keys": [{"kty": "RSA", "kid": "k1", "n": MODULUS, "e": "AQAB"}]}).to_string()
}

/// A provider with its keys in the configuration, and more fields.
fn provider(more: Value) -> Value {
    let mut fields = json!({
        "issuer": "https://issuer.test",
        "audiences": ["web"],
        "local_jwks": {"inline_string": jwks()},
    });
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

/// Every request needs a token of the provider.
fn required(provider: Value) -> Value {
    json!({
        "providers": {"p": provider},
        "rules": [{"match": {"path": "/open"}}, {"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}],
    })
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

#[test]
fn a_request_needs_a_good_token() {
    let site = site(required(provider(json!({"failed_status_in_metadata": "failure"}))));
    assert_eq!(site.status("/open", ""), 200);
    let missing = ask(&site.proxy, "GET", "test", "/p?q=1", "");
    assert_eq!((missing.status, missing.text()), (401, "Jwt is missing"));
    assert_eq!(missing.header("www-authenticate"), r#"Bearer realm="http://test/p?q=1""#);
    let noted = r#"{"failure":{"code":1,"message":"Jwt is missing"}}"#;
    assert_eq!(site.logged(2), format!("401 - jwt_authn_access_denied{{Jwt_is_missing}} {noted}"));
    let broken = ask(&site.proxy, "GET", "test", "/", &bearer("x"));
    assert_eq!(broken.header("www-authenticate"), r#"Bearer realm="http://test/", error="invalid_token""#);
    let forged = format!("{}AAAA", &ANN[..ANN.len() - 4]);
    for (token, status, body) in [
        (ANN, 200, None),
        (EXPIRED, 401, Some("Jwt is expired")),
        (ELSEWHERE, 403, Some("Audiences in Jwt are not allowed")),
        (STRANGER, 401, Some("Jwt issuer is not configured")),
        (&forged, 401, Some("Jwt verification fails")),
        ("a.b.c", 401, Some("Jwt header is an invalid Base64url encoded")),
    ] {
        let (got, text) = site.answer("/", &bearer(token));
        assert_eq!(got, status, "{token}");
        assert!(body.is_none_or(|body| text == body), "{text}");
    }
    assert_eq!((site.stat("allowed"), site.stat("denied")), (2, 7));
}

#[test]
fn the_upstream_learns_what_a_token_says_and_nothing_forged() {
    let claims = json!([
        {"header_name": "x-sub", "claim_name": "sub"},
        {"header_name": "x-deep", "claim_path": [{"key": "n"}, {"key": "m"}]},
        {"header_name": "x-groups", "claim_name": "groups"},
    ]);
    let effects = json!({
        "claim_to_headers": claims,
        "forward_payload_header": "x-payload",
        "payload_in_metadata": "payload",
    });
    let site = site(required(provider(effects)));
    assert_eq!(site.status("/", &format!("{}x-sub: root\r\n", bearer(ANN))), 200);
    let seen = site.origin.requests().pop().unwrap();
    assert_eq!(seen.headers.value("authorization"), None);
    assert_eq!(seen.headers.value("x-sub"), Some("ann"));
    assert_eq!(seen.headers.value("x-deep"), Some("deep"));
    assert_eq!(seen.headers.value("x-groups"), Some("WyJkZXYiLCJvcHMiXQ=="));
    assert_eq!(seen.headers.value("x-payload"), ANN.split('.').nth(1));
    assert!(site.logged(1).contains(r#""sub":"ann""#), "{}", site.logged(1));
    // Also where no token is needed.
    assert_eq!(site.status("/open", "x-sub: root\r\n"), 200);
    assert_eq!(site.origin.requests().pop().unwrap().headers.value("x-sub"), None);
    // The token may stand in the query, and leaves it.
    assert_eq!(site.status(&format!("/q?access_token={ANN}"), ""), 200);
    assert_eq!(site.origin.requests().pop().unwrap().target, "/q");
}

#[test]
fn keys_may_be_certificates() {
    let certificates = json!({"k1": CERTIFICATE}).to_string();
    let site = site(required(provider(json!({"local_jwks": {"inline_string": certificates}}))));
    let forged = format!("{}AAAA", &ANN[..ANN.len() - 4]);
    assert_eq!([site.status("/", &bearer(ANN)), site.status("/", &bearer(&forged))], [200, 401]);
}

#[test]
fn keys_from_elsewhere_are_asked_for_once() {
    let body = jwks();
    let keys = Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let uri = json!({"uri": "http://issuer.test/keys?v=1", "cluster": "keys", "timeout": "5s"});
    let provider = json!({"issuer": "https://issuer.test", "remote_jwks": {"http_uri": uri}});
    let site = site_with(required(provider), &[], json!([]), &keys);
    for _ in 0..3 {
        assert_eq!(site.status("/", &bearer(ANN)), 200);
    }
    let asked = keys.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!((&*asked[0].target, asked[0].headers.value("host")), ("/keys?v=1", Some("issuer.test")));
    assert_eq!((site.stat("jwks_fetch_success"), site.stat("jwks_fetch_failed")), (1, 0));
}

#[test]
fn keys_are_refreshed_in_the_background_without_any_request() {
    let body = jwks();
    let keys = Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    let uri = json!({"uri": "http://issuer.test/keys", "cluster": "keys", "timeout": "5s"});
    let remote = json!({"http_uri": uri, "cache_duration": "1s", "async_fetch": {"failed_refetch_duration": "0.2s"}});
    let provider = json!({"issuer": "https://issuer.test", "remote_jwks": remote});
    let site = site_with(required(provider), &[], json!([]), &keys);
    wait_until("keys are asked for again", || keys.requests().len() >= 3);
    let asked = keys.requests().len();
    assert_eq!(site.status("/", &bearer(ANN)), 200);
    // The request did not have to ask for any: at most the next round came meanwhile.
    assert!(keys.requests().len() <= asked + 1);
    wait_until("the third is counted", || site.stat("jwks_fetch_success") >= 3);
}

#[test]
fn keys_that_cannot_be_had_are_asked_for_again_in_the_background() {
    let keys = Origin::fixed("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
    let uri = json!({"uri": "http://issuer.test/keys", "cluster": "keys", "timeout": "5s"});
    let remote = json!({"http_uri": uri, "async_fetch": {"failed_refetch_duration": "0.2s"}});
    let site = site_with(required(json!({"remote_jwks": remote})), &[], json!([]), &keys);
    wait_until("keys are asked for again", || keys.requests().len() >= 3);
    assert!(site.stat("jwks_fetch_failed") >= 2);
}

#[test]
fn keys_are_asked_for_again_where_a_policy_says_so() {
    let body = jwks();
    let asked = AtomicU64::new(0);
    let keys = Origin::start(move |connection| {
        while connection.request().is_some() {
            let answer = match asked.fetch_add(1, Relaxed) {
                0 => {
                    connection.write(b"HTTP/1.1 503 Unwell\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                    return;
                }
                1 => return,
                _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            };
            if !connection.write(answer.as_bytes()) {
                return;
            }
        }
    });
    let uri = json!({"uri": "http://issuer.test/keys", "cluster": "keys", "timeout": "20s"});
    // Whatever it says of reasons.
    let policy = json!({
        "retry_on": "retriable-4xx", "num_retries": 2, "retry_back_off": {"base_interval": "0.01s", "max_interval": "10s"},
    });
    let provider = json!({"issuer": "https://issuer.test", "remote_jwks": {"http_uri": uri, "retry_policy": policy}});
    let site = site_with(required(provider), &[], json!([]), &keys);
    assert_eq!(site.status("/", &bearer(ANN)), 200);
    assert_eq!(keys.requests().len(), 3);
    assert_eq!((site.stat("jwks_fetch_success"), site.stat("jwks_fetch_failed")), (1, 0));
    let counted = |name: &str| site.proxy.stats().value(&format!("cluster.keys.{name}"));
    assert_eq!((counted("upstream_rq_retry"), counted("upstream_rq_retry_success")), (2, 1));
}

#[test]
fn without_its_keys_no_token_is_good() {
    let keys = Origin::fixed("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
    let remote = |cluster: &str| {
        let uri = json!({"uri": "http://issuer.test/keys", "cluster": cluster, "timeout": "5s"});
        json!({"remote_jwks": {"http_uri": uri}})
    };
    let fields = json!({
        "providers": {"broken": remote("keys"), "nowhere": remote("nowhere")},
        "rules": [
            {"match": {"prefix": "/broken"}, "requires": {"provider_name": "broken"}},
            {"match": {"prefix": "/nowhere"}, "requires": {"provider_name": "nowhere"}},
        ],
    });
    let site = site_with(fields, &[], json!([]), &keys);
    let failed = (401, "Jwks remote fetch is failed".to_owned());
    assert_eq!(site.answer("/broken", &bearer(ANN)), failed);
    assert_eq!(site.answer("/nowhere", &bearer(ANN)), failed);
    assert_eq!(site.stat("jwks_fetch_failed"), 2);
}

/// A server of keys that does not answer holds nobody up whom another provider lets in or turns away.
#[test]
fn a_provider_with_its_keys_decides_while_another_would_wait() {
    let uri = json!({"uri": "http://issuer.test/keys", "cluster": "keys", "timeout": "600s"});
    let far = json!({"issuer": "https://issuer.test", "remote_jwks": {"http_uri": uri}});
    let together = |kind: &str| {
        let both = json!([{"provider_name": "far"}, {"provider_name": "near"}]);
        json!({kind: {"requirements": both}})
    };
    let fields = json!({
        "providers": {"far": far, "near": provider(json!({"forward": true}))},
        "rules": [
            {"match": {"prefix": "/any"}, "requires": together("requires_any")},
            {"match": {"prefix": "/all"}, "requires": together("requires_all")},
        ],
    });
    let site = site_with(fields, &[], json!([]), &Origin::silent());
    assert_eq!(site.status("/any", &bearer(ANN)), 200);
    let refused = (403, "Audiences in Jwt are not allowed".to_owned());
    assert_eq!(site.answer("/all", &bearer(ELSEWHERE)), refused);
    assert_eq!((site.stat("jwks_fetch_success"), site.stat("jwks_fetch_failed")), (0, 0));
}

#[test]
fn a_parameter_in_percent_encoding_leads_past_no_rule() {
    let absent = json!({"name": "q", "present_match": false});
    let fields = json!({
        "providers": {"p": provider(json!({}))},
        "rules": [{
            "match": {"prefix": "/", "query_parameters": [absent]},
            "requires": {"provider_name": "p"},
        }],
    });
    let site = site(fields);
    let statuses = ["/?q=1", "/", "/?%71=1"].map(|path| site.status(path, ""));
    assert_eq!(statuses, [200, 401, 401]);
}

#[test]
fn a_route_names_its_requirement_or_none() {
    let of_route = |prefix: &str, config: Value| {
        let mut config = config;
        config["@type"] = PER_ROUTE.into();
        json!({
            "match": {"prefix": prefix},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {"envoy.filters.http.jwt_authn": config},
        })
    };
    let mut fields = required(provider(json!({})));
    fields["requirement_map"] = json!({"lax": {"allow_missing": {}}});
    let routes = json!([
        of_route("/off", json!({"disabled": true})),
        of_route("/lax", json!({"requirement_name": "lax"})),
        of_route("/odd", json!({"requirement_name": "odd"})),
    ]);
    let site = site_with(fields, &[], routes, &Origin::echo("keys"));
    assert_eq!([site.status("/off", ""), site.status("/lax", ""), site.status("/", "")], [200, 200, 401]);
    assert_eq!(site.status("/lax", &bearer(EXPIRED)), 401);
    let odd = "Failed JWT authentication: Wrong requirement_name: odd. It should be one of [lax]";
    assert_eq!(site.answer("/odd", ""), (403, odd.to_owned()));
}

#[test]
fn what_istio_generates_loads_and_decides() {
    let provider = json!({
        "issuer": "https://issuer.test",
        "local_jwks": {"inline_string": jwks()},
        "forward": true,
        "payload_in_metadata": "payload",
        "normalize_payload_in_metadata": {"space_delimited_claims": ["scope", "permission"]},
        "from_headers": [{"name": "authorization", "value_prefix": "Bearer "}],
        "claim_to_headers": [{"header_name": "x-jwt-sub", "claim_name": "sub"}],
    });
    let fields = json!({
        "providers": {"origins-0": provider},
        "rules": [{
            "match": {"prefix": "/"},
            "requires": {"requires_any": {"requirements": [{"provider_name": "origins-0"}, {"allow_missing": {}}]}},
        }],
        "bypass_cors_preflight": true,
    });
    let claim = |name: &str, value: Value| {
        json!({"metadata": {
            "filter": "envoy.filters.http.jwt_authn",
            "path": [{"key": "payload"}, {"key": name}],
            "value": value,
        }})
    };
    let developers = json!({"list_match": {"one_of": {"string_match": {"exact": "dev"}}}});
    let issuer = json!({"or_match": {"value_matchers": [
        {"string_match": {"exact": "https://issuer.test"}},
        {"list_match": {"one_of": {"string_match": {"exact": "https://issuer.test"}}}},
    ]}});
    let policy = json!({
        "permissions": [{"any": true}],
        "principals": [{"and_ids": {"ids": [claim("iss", issuer), claim("groups", developers)]}}],
    });
    let rules = json!({"rules": {"policies": {"ns[foo]-policy[jwt]-rule[0]": policy}}});
    let rbac = extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", rules);
    let site = site_with(fields, &[rbac], json!([]), &Origin::echo("keys"));
    assert_eq!(site.status("/", &bearer(ANN)), 200);
    let seen = site.origin.requests().pop().unwrap();
    assert_eq!(seen.headers.value("x-jwt-sub"), Some("ann"));
    assert_eq!(seen.headers.value("authorization"), Some(&*format!("Bearer {ANN}")));
    assert_eq!(site.answer("/", ""), (403, "RBAC: access denied".to_owned()));
    assert_eq!(site.status("/", &bearer(ELSEWHERE)), 403);
    assert_eq!(site.answer("/", &bearer(EXPIRED)), (401, "Jwt is expired".to_owned()));
}

#[test]
fn good_tokens_are_remembered_as_many_and_as_large_as_configured() {
    let (large, small) = if ANN.len() > ELSEWHERE.len() { (ANN, ELSEWHERE) } else { (ELSEWHERE, ANN) };
    for (cache, expected) in [
        (json!({}), [3, 2]),
        (json!({"jwt_cache_size": 1}), [1, 4]),
        (json!({"jwt_max_token_size": large.len()}), [3, 2]),
        (json!({"jwt_max_token_size": large.len() - 1}), [1, 4]),
    ] {
        let site = site(required(provider(json!({"audiences": [], "jwt_cache_config": cache}))));
        for token in [large, large, small, large, small] {
            assert_eq!(site.status("/", &bearer(token)), 200);
        }
        assert_eq!(["jwt_cache_hit", "jwt_cache_miss"].map(|name| site.stat(name)), expected, "{cache}");
    }
}
