//! The same plugins, written in several languages with their public SDKs, run as they are and answer alike.
//! `POSTRIDER_BIN=envoy` shows that they describe Envoy.

use postrider_tests::envoy;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Origin, RawClient, Response, TempDir, wait_until};
use postrider_tests::site::{self, Site};
use postrider_tests::wasm::{filter, languages, module};
use serde_json::{Value, json};

/// A site whose one filter is that plugin.
fn site(language: &str, plugin: &str, config: &Value) -> Site {
    site::with([filter(&module(language, plugin), config)]).start()
}

fn user() -> Value {
    json!({"username": "fooname", "password": "validpassword"})
}

#[test]
fn passthrough_changes_nothing() {
    for language in languages() {
        let site = site(language, "passthrough", &json!({}));
        let answer = site.ask("POST", "/a?b", "x-a: 1\r\ncontent-length: 5\r\n\r\nhello");
        assert_eq!((answer.status, answer.header("x-origin")), (200, "a"), "{language}");
        let seen = &site.origin.requests()[0];
        assert_eq!((seen.target.as_str(), seen.body.as_slice()), ("/a?b", &b"hello"[..]), "{language}");
        assert_eq!(seen.headers.values("x-a"), ["1"], "{language}");
        assert_eq!(site.logged(1), "200 - via_upstream", "{language}");
    }
}

#[test]
fn basic_auth_lets_in_who_is_known() {
    for language in languages() {
        let site = site(language, "basic_auth", &user());
        let answer = site.get("/", "authorization: Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\nx-auth-user: root\r\n");
        assert_eq!(answer.status, 200, "{language}");
        assert_eq!(site.origin.requests()[0].headers.values("x-auth-user"), ["fooname"], "{language}");
        let strangers = [
            "",
            "authorization: Basic Zm9vbmFtZTppbnZhbGlk\r\n",
            "authorization: Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3J\r\n",
            "authorization: Basic Zm9v!mFtZTp2YWxpZHBhc3N3b3Jk\r\n",
            "authorization: Basic \r\n",
            "authorization: Bearer Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\n",
        ];
        for fields in strangers {
            let answer = site.get("/", fields);
            assert_eq!((answer.status, answer.text()), (401, "unauthorized\n"), "{language} {fields:?}");
            assert_eq!(answer.header("www-authenticate"), r#"Basic realm="postrider""#, "{language}");
        }
        assert_eq!(site.origin.requests().len(), 1, "{language}");
    }
}

#[test]
fn headers_are_renamed_both_ways() {
    for language in languages() {
        let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-old-z: 1\r\nx-other: 2\r\n\r\nok");
        let filter = filter(&module(language, "headers"), &json!({"from": "x-old-", "to": "x-new-"}));
        let site = site::with([filter]).start_before(origin);
        let answer = site.get("/", "x-old-a: 1\r\nx-older: 2\r\nx-old-b: 3\r\n");
        assert_eq!((answer.status, answer.text()), (200, "ok"), "{language}");
        assert_eq!((answer.header("x-new-z"), answer.header("x-other")), ("1", "2"), "{language}");
        assert!(answer.headers.values("x-old-z").is_empty(), "{language}");
        let seen = &site.origin.requests()[0].headers;
        let values = ["x-new-a", "x-new-b", "x-older", "x-old-a", "x-old-b"].map(|name| seen.values(name).join("|"));
        assert_eq!(values, ["1", "3", "2", "", ""], "{language}");
    }
}

#[test]
fn bodies_are_rewritten_both_ways_whole() {
    for language in languages() {
        let origin = Origin::start(|connection| {
            while connection.request().is_some() {
                let chunks = "5\r\na cat\r\n7\r\n and ca\r\n8\r\nt and ca\r\n0\r\n\r\n";
                connection.write(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}").as_bytes());
            }
        });
        let filter = filter(&module(language, "body"), &json!({"find": "cat", "replace": "tiger"}));
        let site = site::with([filter]).start_before(origin);
        let answer = site.ask("POST", "/", "content-length: 10\r\n\r\ncatcat dog");
        assert_eq!((answer.status, answer.text()), (200, "a tiger and tiger and ca"), "{language}");
        let seen = &site.origin.requests()[0];
        assert_eq!(String::from_utf8_lossy(&seen.body), "tigertiger dog", "{language}");
        // Neither way is there always a body.
        assert_eq!(site.get("/", "").text(), "a tiger and tiger and ca", "{language}");
        assert!(site.origin.requests()[1].body.is_empty(), "{language}");
    }
}

#[test]
fn a_callout_decides_by_its_status() {
    for language in languages() {
        let service = Origin::start(|connection| {
            while let Some(request) = connection.request() {
                let answer = match request.headers.values("x-original-path").as_slice() {
                    ["/admin"] => "HTTP/1.1 418 No\r\ncontent-length: 2\r\n\r\nno",
                    ["/none"] => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                    _ => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nalice",
                };
                connection.write(answer.as_bytes());
            }
        });
        let filter = filter(&module(language, "callout"), &json!({"cluster": "service", "path": "/check"}));
        let site = site::with([filter]).cluster("service", &[service.address], json!({})).start();
        let answer = site.ask("POST", "/a", "content-length: 2\r\n\r\nhi");
        assert_eq!((answer.status, answer.header("x-origin")), (200, "a"), "{language}");
        let denied = site.get("/admin", "");
        assert_eq!((denied.status, denied.text()), (403, "denied by 418\n"), "{language}");
        assert_eq!(site.get("/none", "").status, 200, "{language}");
        let seen = site.origin.requests();
        assert_eq!(seen[0].body, b"hi", "{language}");
        let values: Vec<_> = seen.iter().map(|request| request.headers.values("x-callout").join("|")).collect();
        assert_eq!(values, ["alice", ""], "{language}");
        let questions = service.requests();
        let question = &questions[0];
        assert_eq!((question.method.as_str(), question.target.as_str()), ("GET", "/check"), "{language}");
        assert_eq!(question.headers.values("host"), ["service"], "{language}");
        drop(service);
        let unasked = site.get("/a", "");
        // Where there is no answer, modules are told of one that the proxy makes up.
        assert_eq!((unasked.status, unasked.text()), (403, "denied by 503\n"), "{language}");
    }
}

#[test]
fn a_call_to_nowhere_is_denied_at_once() {
    for language in languages() {
        let site = site(language, "callout", &json!({"cluster": "nowhere", "path": "/"}));
        let answer = site.get("/", "");
        assert_eq!((answer.status, answer.text()), (500, "no call\n"), "{language}");
    }
}

/// Two filters of one module, so of one virtual machine: each keeps its own configuration.
#[test]
fn one_machine_runs_two_configurations() {
    for language in languages() {
        let named = |config| {
            let mut filter = filter(&module(language, "headers"), &config);
            filter["name"] = config["to"].clone();
            filter["typed_config"]["config"]["name"] = config["to"].clone();
            filter
        };
        let filters = [named(json!({"from": "x-a-", "to": "x-b-"})), named(json!({"from": "x-b-", "to": "x-c-"}))];
        let site = site::with(filters).start();
        let answer: Response = site.get("/", "x-a-name: 1\r\nx-b-other: 2\r\n");
        assert_eq!(answer.status, 200, "{language}");
        let seen = &site.origin.requests()[0].headers;
        assert_eq!(["x-c-name", "x-c-other"].map(|name| seen.values(name).join("|")), ["1", "2"], "{language}");
    }
}

/// What `/plugins` says of a module that the optimizing compiler is at work on.
const QUICK: &str = "compiled quickly";

/// How long the optimizing compiler has been at work, in ticks of the processor's time; `None` when it is not.
fn compiled_for(site: &Site) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", site.proxy.pid())).unwrap();
    let stats = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    // A thread's name is in parentheses; its time in the user's and the system's behalf is the 12th and 13th field behind.
    let of_compiler = |stat: String| {
        let (name, fields) = stat.rsplit_once(") ")?;
        let times = fields.split(' ').skip(11).take(2).filter_map(|time| time.parse::<u64>().ok());
        name.ends_with("(wasm-compiler").then(|| times.sum())
    };
    stats.filter_map(of_compiler).next()
}

#[test]
fn a_start_does_not_wait_for_the_optimizing_compiler() {
    // Elsewhere there is no fast compiler that knows every instruction.
    if envoy() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = TempDir::new();
    let kept = folder.path().join("kept");
    let start = |first: &str| {
        let environment = [("POSTRIDER_WASM_CACHE", kept.to_str().unwrap()), ("POSTRIDER_OPTIMIZE_WASM_FIRST", first)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let plan = site::with([filter(&module("go", "basic_auth"), &user())]);
        plan.start_with(Origin::echo("a"), Launch { environment, ..Launch::default() })
    };
    let is_quick = |site: &Site| site.proxy.admin_get("/plugins").text().contains(QUICK);
    let files = || std::fs::read_dir(&kept).unwrap().count();
    let known = "authorization: Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\n";

    let site = start("false");
    assert!(is_quick(&site));
    assert_eq!((site.get("/", known).status, site.get("/", "").status), (200, 401));
    let mut under_way = RawClient::connect(site.proxy.address("http"));
    under_way.send(format!("POST /slow HTTP/1.1\r\nhost: test\r\n{known}transfer-encoding: chunked\r\n\r\n"));
    // Who makes the better code makes way for everybody, so that nobody knows how long it takes on a busy machine. It gets on, though.
    while is_quick(&site) {
        assert_eq!((site.get("/", known).status, site.get("/", "").status), (200, 401));
        // The origin does not wait for ever.
        under_way.send("1\r\na\r\n");
        let before = compiled_for(&site);
        wait_until("the compiler to get on", || compiled_for(&site) != before || !is_quick(&site));
    }
    assert_eq!((site.get("/", known).status, site.get("/", "").status), (200, 401));
    under_way.send("0\r\n\r\n");
    assert_eq!(under_way.response("POST").unwrap().status, 200, "it ends where it began");
    assert_eq!(files(), 1, "only the better code is kept");
    drop(site);

    let site = start("false");
    assert!(!is_quick(&site), "it was kept");
    assert_eq!((site.get("/", known).status, site.get("/", "").status), (200, 401));
    drop(site);

    std::fs::remove_dir_all(&kept).unwrap();
    assert!(!is_quick(&start("true")), "somebody wanted to wait");
}
