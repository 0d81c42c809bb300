//! What OpenSSL's client is refused: old versions, weak suites, renegotiation and compression. It speaks more than the
//! library that the proxy is built on, so it shows what the proxy answers to what it would never say itself.

use postrider_tests::kit::{Config, Proxy};
use postrider_tests::tls::{Authority, secured};
use postrider_tests::{envoy, needed};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};

fn site(rsa: bool) -> Proxy {
    let authority = Authority::new("authority");
    let identity = if rsa { authority.issue_rsa(&["site.test"]) } else { authority.issue(&["site.test"]) };
    let config = Config::routes(json!([
        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
    ]));
    Proxy::start(&secured(config, &identity, json!({})))
}

/// All that `openssl s_client` says on both streams, given these lines. It goes on until the proxy ends the connection or
/// its input ends.
fn client(proxy: &Proxy, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(needed("openssl"));
    command.args(["s_client", "-connect", &proxy.address("http").to_string(), "-servername", "site.test"]);
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    // A client that was refused reads nothing.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("openssl ends");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

/// The line that tells what was agreed on: `New, TLSv1.3, Cipher is …`.
fn agreed(said: &str) -> &str {
    said.lines().find(|line| line.contains(", Cipher is ")).unwrap_or("nothing")
}

const NOTHING: &str = "New, (NONE), Cipher is (NONE)";

#[test]
fn versions_before_1_2_are_refused() {
    let proxy = site(false);
    for version in ["-tls1", "-tls1_1"] {
        let said = client(&proxy, &[version, "-cipher", "ALL:@SECLEVEL=0"], "");
        assert_eq!(agreed(&said), NOTHING, "{version}: {said}");
        assert!(said.contains("SSL alert number"), "{version}: {said}");
    }
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = client(&proxy, &[version], "");
        assert!(agreed(&said).starts_with(&format!("New, {name}, Cipher is ")), "{version}: {said}");
    }
}

#[test]
fn suites_without_forward_secrecy_or_authenticated_encryption_are_refused() {
    for rsa in [true, false] {
        let proxy = site(rsa);
        for suites in [
            "kRSA",
            "aNULL",
            "eNULL",
            "3DES",
            "CAMELLIA",
            "ARIA",
            "SHA1",
            "ECDHE+AES+SHA256",
            "ECDHE+AES+SHA384",
            "DHE",
            "PSK",
            "AESCCM",
        ] {
            if envoy() && ["kRSA", "SHA1"].contains(&suites) {
                // Envoy allows some of these by default.
                continue;
            }
            let list = format!("{suites}:@SECLEVEL=0");
            let suites = match suites {
                // These name groups of suites that hold good ones, too.
                "ECDHE+AES+SHA256" | "ECDHE+AES+SHA384" => format!("{list}:!AESGCM:!AESCCM"),
                "DHE" => format!("{list}:!ECDHE"),
                _ => list,
            };
            let said = client(&proxy, &["-tls1_2", "-cipher", &suites], "");
            assert!(agreed(&said) == NOTHING || agreed(&said) == "nothing", "{suites}: {said}");
            // Or the client itself has none of them.
            let told = ["SSL alert number", "no cipher match", "no ciphers available"];
            assert!(told.iter().any(|told| said.contains(told)), "{suites}: {said}");
        }
        let kind = if rsa { "RSA" } else { "ECDSA" };
        for good in ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"] {
            let suite = format!("ECDHE-{kind}-{good}");
            let said = client(&proxy, &["-tls1_2", "-cipher", &suite], "");
            assert_eq!(agreed(&said), format!("New, TLSv1.2, Cipher is {suite}"));
        }
    }
}

#[test]
fn weak_groups_and_signatures_are_refused() {
    let proxy = site(false);
    for arguments in [["-groups", "ffdhe2048"], ["-groups", "X448"], ["-sigalgs", "ECDSA+SHA1"]] {
        let said = client(&proxy, &[&["-tls1_3"][..], &arguments].concat(), "");
        assert_eq!(agreed(&said), NOTHING, "{arguments:?}: {said}");
    }
    for group in ["X25519", "P-256", "P-384"] {
        let said = client(&proxy, &["-tls1_3", "-groups", group], "");
        // Envoy has the first two by default.
        assert!(agreed(&said).starts_with("New, TLSv1.3") || (envoy() && group == "P-384"), "{group}: {said}");
    }
}

#[test]
fn a_client_cannot_renegotiate() {
    let proxy = site(false);
    let said = client(&proxy, &["-tls1_2", "-legacy_renegotiation"], "R\n");
    assert!(agreed(&said).starts_with("New, TLSv1.2"), "{said}");
    assert!(said.contains("RENEGOTIATING"), "{said}");
    let refused = ["no renegotiation", "unexpected message", "alert", "error:"].iter().any(|why| said.contains(why));
    assert!(refused, "{said}");
    // RFC 5746: the connection is tied to its handshake all the same.
    assert!(said.contains("Secure Renegotiation IS supported"), "{said}");
    let served = proxy.admin_get("/ready");
    assert_eq!(served.status, 200);
}

#[test]
fn nothing_is_compressed() {
    let proxy = site(false);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = client(&proxy, &[version, "-comp"], "");
        assert!(agreed(&said).starts_with("New, TLSv1."), "{said}");
        assert!(said.contains("Compression: NONE"), "{said}");
    }
}

#[test]
fn clients_are_told_whose_certificates_are_good_unless_that_is_suppressed() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients of ours"));
    for suppressed in [false, true] {
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]));
        let context = json!({
            "require_client_certificate": false,
            "common_tls_context": {"validation_context": {
                "trusted_ca": {"inline_string": clients.pem()},
                "suppress_client_ca_list": suppressed,
            }},
        });
        let proxy = Proxy::start(&secured(config, &servers.issue(&["site.test"]), context));
        for version in ["-tls1_2", "-tls1_3"] {
            let said = client(&proxy, &[version], "");
            assert!(said.contains("Client Certificate Types") || said.contains("Requested Signature Algorithms"));
            assert_eq!(said.contains("CN = clients of ours"), !suppressed, "{version}: {said}");
        }
    }
}
