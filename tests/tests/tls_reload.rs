//! Certificates that change while the proxy runs: its own watch of the files takes them up, and what was going on
//! goes on.

use postrider_tests::kit::proxy::{Launch, accepted};
use postrider_tests::kit::{Config, Proxy, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, Identity, downstream};
use postrider_tests::{get, postrider_only};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn hello() -> Config {
    Config::routes(json!([
        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hello"}}},
    ]))
}

fn serving(certificate: Value) -> Config {
    hello().overlay_chain("http", json!({"transport_socket": downstream(&[certificate], json!({}))}))
}

/// The files of a certificate in `folder`.
fn files(folder: &Path) -> Value {
    json!({
        "certificate_chain": {"filename": folder.join("tls.crt").to_str().unwrap()},
        "private_key": {"filename": folder.join("tls.key").to_str().unwrap()},
    })
}

fn write(directory: &TempDir, identity: &Identity) {
    directory.write("tls.crt", identity.chain_pem());
    directory.write("tls.key", identity.key_pem());
}

/// The certificate that a new client is shown.
fn shown(client: &Client, proxy: &Proxy) -> Vec<u8> {
    client.fresh().connect(proxy.address("http"), "site.test").stream().shown().to_vec()
}

#[test]
fn a_renewed_certificate_is_shown_to_new_clients_while_the_old_ones_stay() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let directory = TempDir::new();
    let first = authority.issue(&["site.test"]);
    write(&directory, &first);
    let launch = Launch { concurrency: 2, ..Launch::default() };
    let proxy = Proxy::start_with(&serving(files(directory.path())), launch);
    let client = Client::trusting(&authority);
    let mut old = client.connect(proxy.address("http"), "site.test");
    assert_eq!(old.exchange(get("/")).text(), "hello");
    assert_eq!(shown(&client, &proxy), first.der.to_vec());

    let (stop, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures = std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            let mut failures = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                failures.extend(client.fresh().get(proxy.address("http"), "site.test").err());
                visits.fetch_add(1, Ordering::SeqCst);
            }
            failures
        });
        for _ in 0..3 {
            let renewed = authority.issue(&["site.test"]);
            write(&directory, &renewed);
            wait_until("the new certificate", || shown(&client, &proxy) == renewed.der.to_vec());
            let seen = visits.load(Ordering::SeqCst);
            wait_until("visitors", || visits.load(Ordering::SeqCst) > seen + 5);
        }
        stop.store(true, Ordering::SeqCst);
        visitor.join().unwrap()
    });
    assert!(failures.is_empty(), "{} failures, first {:?}", failures.len(), failures.first());
    assert_eq!(old.exchange(get("/")).text(), "hello");
}

#[test]
fn a_certificate_behind_a_link_is_renewed_by_turning_the_link() {
    if !postrider_only() {
        return;
    }
    // As Kubernetes mounts secrets: names are links into `..data`, which is a link to a folder of its own.
    let authority = Authority::new("authority");
    let mount = TempDir::new();
    let turn = |name: &str, identity: &Identity| {
        let folder = mount.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), identity.chain_pem()).unwrap();
        std::fs::write(folder.join("tls.key"), identity.key_pem()).unwrap();
        symlink(name, mount.path().join("..new")).unwrap();
        std::fs::rename(mount.path().join("..new"), mount.path().join("..data")).unwrap();
    };
    let first = authority.issue(&["site.test"]);
    turn("..1", &first);
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), mount.path().join(name)).unwrap();
    }
    let proxy = Proxy::start(&serving(files(mount.path())));
    let client = Client::trusting(&authority);
    assert_eq!(shown(&client, &proxy), first.der.to_vec());
    for name in ["..2", "..3"] {
        let renewed = authority.issue(&["site.test"]);
        turn(name, &renewed);
        wait_until("the new certificate", || shown(&client, &proxy) == renewed.der.to_vec());
    }
    assert!(proxy.history().iter().all(accepted), "{:?}", proxy.history());
}

#[test]
fn a_certificate_as_a_secret_is_renewed_too() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let directory = TempDir::new();
    let first = authority.issue(&["site.test"]);
    write(&directory, &first);
    let secret = json!({"name": "site", "tls_certificate": files(directory.path())});
    let socket =
        downstream(&[], json!({"common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "site"}]}}));
    let config = hello()
        .overlay_chain("http", json!({"transport_socket": socket}))
        .overlay(json!({"static_resources": {"secrets": [secret]}}));
    let proxy = Proxy::start(&config);
    let client = Client::trusting(&authority);
    assert_eq!(shown(&client, &proxy), first.der.to_vec());
    let renewed = authority.issue(&["site.test"]);
    write(&directory, &renewed);
    wait_until("the new certificate", || shown(&client, &proxy) == renewed.der.to_vec());
}

#[test]
fn a_broken_certificate_is_refused_and_the_old_one_stays() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let directory = TempDir::new();
    let first = authority.issue(&["site.test"]);
    write(&directory, &first);
    let proxy = Proxy::start(&serving(files(directory.path())));
    let client = Client::trusting(&authority);
    let chain = first.chain_pem();
    let cut = &chain[..chain.len() / 2];
    for (name, text) in [("tls.crt", "no PEM"), ("tls.crt", ""), ("tls.crt", cut), ("tls.key", "no key")] {
        let before = proxy.latest_verdict();
        directory.write(name, text);
        let verdict = proxy.await_verdict(before.as_ref());
        assert!(!accepted(&verdict), "{name} {text:?}: {verdict}");
        let errors = verdict["errors"].to_string();
        assert!(has_place(&errors, "config.yaml"), "{errors}");
        assert!(errors.contains(name), "{errors}");
        assert_eq!(shown(&client, &proxy), first.der.to_vec());
        write(&directory, &first);
        wait_until("all is well", || proxy.latest_verdict().is_some_and(|verdict| accepted(&verdict)));
    }
    // The key of another certificate.
    let before = proxy.latest_verdict();
    directory.write("tls.key", authority.issue(&["site.test"]).key_pem());
    assert!(!accepted(&proxy.await_verdict(before.as_ref())));
    assert_eq!(shown(&client, &proxy), first.der.to_vec());
    assert!(has_place(&proxy.stderr(), "config.yaml"), "{}", proxy.stderr());
    assert!(!proxy.stderr().contains("PRIVATE KEY"));
}

/// Whether `text` names a place in `file`: its line and column.
fn has_place(text: &str, file: &str) -> bool {
    text.split(&format!("{file}:")).skip(1).any(|rest| {
        let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
        let (line, column) = (numbers.next(), numbers.next());
        line.is_some_and(|line| !line.is_empty()) && column.is_some_and(|column| !column.is_empty())
    })
}

#[test]
fn a_certificate_that_is_broken_at_the_start_keeps_the_proxy_from_starting() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let directory = TempDir::new();
    write(&directory, &authority.issue(&["site.test"]));
    directory.write("tls.key", authority.issue(&["site.test"]).key_pem());
    let file = directory.write("config.yaml", serving(files(directory.path())).to_yaml());
    let finished = postrider_tests::kit::proxy::run(&["run", "-c", file.to_str().unwrap()]);
    assert_ne!(finished.code, Some(0), "{finished:?}");
    assert!(has_place(&finished.stderr, "config.yaml"), "{}", finished.stderr);
}

#[test]
fn sessions_outlive_a_change_of_routes() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let identity = authority.issue(&["site.test"]);
    let answering = |body: &str| {
        let routes =
            json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}]);
        let socket = downstream(&[identity.inline()], json!({}));
        Config::routes(routes).overlay_chain("http", json!({"transport_socket": socket}))
    };
    let mut proxy = Proxy::start(&answering("first"));
    let client = Client::trusting(&authority);
    let mut old = client.connect(proxy.address("http"), "site.test");
    assert_eq!(old.exchange(get("/")).text(), "first");
    assert!(accepted(&proxy.reload(answering("second").to_yaml())));
    wait_until("the new routes", || old.exchange(get("/")).text() == "second");
    let mut again = client.connect(proxy.address("http"), "site.test");
    assert_eq!(again.exchange(get("/")).text(), "second");
    assert!(again.stream().resumed());
}

#[test]
fn tls_is_turned_on_and_off_by_a_reload() {
    if !postrider_only() {
        return;
    }
    let authority = Authority::new("authority");
    let secured = serving(authority.issue(&["site.test"]).inline());
    let mut proxy = Proxy::start(&hello());
    let client = Client::trusting(&authority);
    for _ in 0..2 {
        assert_eq!(proxy.get("/").text(), "hello");
        assert!(accepted(&proxy.reload(secured.to_yaml())));
        wait_until("TLS", || client.get(proxy.address("http"), "site.test").is_ok());
        assert!(accepted(&proxy.reload(hello().to_yaml())));
        wait_until("plain text", || {
            let answer = proxy.client().send(get("/")).response("GET");
            answer.is_ok_and(|response| response.text() == "hello")
        });
    }
}

#[test]
fn an_authority_that_changes_on_disk_decides_about_new_clients() {
    if !postrider_only() {
        return;
    }
    let (servers, first, second) = (Authority::new("servers"), Authority::new("one"), Authority::new("two"));
    let directory = TempDir::new();
    let ca = directory.write("ca.pem", first.pem());
    let context = json!({
        "require_client_certificate": true,
        "common_tls_context": {"validation_context": {"trusted_ca": {"filename": ca.to_str().unwrap()}}},
    });
    let socket = downstream(&[servers.issue(&["site.test"]).inline()], context);
    let proxy = Proxy::start(&hello().overlay_chain("http", json!({"transport_socket": socket})));
    let visit = |authority: &Authority| {
        Client::showing(&servers, &authority.issue(&["client.test"])).get(proxy.address("http"), "site.test").is_ok()
    };
    assert!(visit(&first) && !visit(&second));
    directory.write("ca.pem", second.pem());
    wait_until("the second authority", || visit(&second));
    assert!(!visit(&first));
}
