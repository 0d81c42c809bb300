//! What `testssl` finds: it speaks every version, suite and known attack by itself, and rates what the proxy answers.

use postrider_tests::kit::{Config, Proxy, TempDir};
use postrider_tests::needed;
use postrider_tests::tls::{Authority, secured};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Ratings that ask for nothing to be done.
const GOOD: [&str; 2] = ["OK", "INFO"];

/// What `testssl` finds of protocols, suites, forward secrecy and vulnerabilities.
fn findings(proxy: &Proxy, directory: &TempDir) -> Vec<Value> {
    let report = directory.path().join("findings.json");
    let mut command = Command::new(needed("testssl"));
    command.args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--jsonfile"]).arg(&report);
    command.args(["--protocols", "--std", "--fs", "--vulnerable", &proxy.address("http").to_string()]);
    // It asks the terminal how wide it is. Its exit status counts what it could not try.
    let output = command.env("TERM", "dumb").stdin(Stdio::null()).output().expect("testssl runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("no report: {error}\n{said}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn testssl_finds_nothing_to_be_done() {
    let authority = Authority::new("authority");
    let config = Config::routes(json!([
        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
    ]));
    let proxy = Proxy::start(&secured(config, &authority.issue_rsa(&["site.test"]), json!({})));
    let findings = findings(&proxy, &TempDir::new());
    let finding = |id: &str| {
        let found = findings.iter().find(|finding| finding["id"] == id);
        found.and_then(|finding| finding["finding"].as_str()).unwrap_or("not tried").to_owned()
    };
    for version in ["SSLv2", "SSLv3", "TLS1", "TLS1_1"] {
        assert_eq!(finding(version), "not offered", "{version}");
    }
    for version in ["TLS1_2", "TLS1_3"] {
        assert!(finding(version).starts_with("offered"), "{version}: {}", finding(version));
    }
    for attack in ["heartbleed", "ROBOT", "secure_client_renego", "CRIME_TLS", "POODLE_SSL", "SWEET32", "DROWN"] {
        assert!(finding(attack).contains("not vulnerable"), "{attack}: {}", finding(attack));
    }
    // What it says before it knows an address is about the OpenSSL that it found to ask with.
    let of_the_proxy = findings.iter().filter(|finding| finding["ip"] != "/");
    let bad: Vec<&Value> =
        of_the_proxy.filter(|finding| !GOOD.iter().any(|good| finding["severity"] == *good)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
