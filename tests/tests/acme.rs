//! `tls: auto`: certificates from an authority that speaks ACME, here Pebble.

use postrider_tests::kit::net::free_port;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Proxy, RawClient, TempDir, wait_until};
use postrider_tests::pebble::Place;
use postrider_tests::tls::Client;
use postrider_tests::{get, postrider_only};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const NAMES: [&str; 2] = ["shop.test", "www.shop.test"];

/// What one certificate takes, and a life in which it is not renewed.
const LONG: Duration = Duration::from_secs(86_400);

fn config(place: &Place, state: &Path) -> String {
    config_with(place, state, "http: \"127.0.0.1:0\"")
}

fn config_with(place: &Place, state: &Path, challenge: &str) -> String {
    format!(
        "listen: \"127.0.0.1:0\"\n\
         admin: \"127.0.0.1:0\"\n\
         tls:\n  auto:\n    directory: {}\n    directory_ca: {}\n    state: {}\n    {challenge}\n    \
         contact: ops@shop.test\n    retry: 100ms\n\
         routes:\n- {{ match: /, hosts: [shop.test, www.shop.test], respond: hello }}\n",
        place.directory(),
        place.roots().display(),
        state.display()
    )
}

fn start(place: &Place, state: &Path) -> Proxy {
    let directory = TempDir::new();
    let file = directory.write("short.yaml", config(place, state));
    Proxy::start_file(directory, file, Launch { concurrency: 2, ..Launch::default() })
}

fn shown(client: &Client, address: SocketAddr, name: &str) -> Option<Vec<u8>> {
    client.fresh().try_connect(address, name).ok().map(|mut client| {
        assert_eq!(client.exchange(format!("GET / HTTP/1.1\r\nhost: {name}\r\n\r\n")).text(), "hello");
        client.stream().shown().to_vec()
    })
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

#[test]
fn certificates_are_got_and_renewed_while_serving() {
    if !postrider_only() {
        return;
    }
    let (place, state) = (Place::new(), TempDir::new());
    let state = state.path().join("acme");
    let proxy = start(&place, &state);
    let (https, http) = (proxy.address("http"), proxy.address("acme-http"));
    // Nobody is there to sign: clients meet a certificate that nobody signed.
    let refused = Client::trusting_pem(&std::fs::read_to_string(place.roots()).unwrap()).get(https, "shop.test");
    assert!(refused.unwrap_err().contains("invalid peer certificate"));
    wait_until("a first try", || proxy.stderr().contains("certificate of shop.test: try 1 failed"));
    assert!(proxy.stderr().contains("certificate of www.shop.test: none yet; a self-signed one stands in"));

    let pebble = place.start(http.port(), Duration::from_secs(12));
    let client = pebble.trusted();
    for name in NAMES {
        wait_until("the first certificate", || shown(&client, https, name).is_some());
    }
    let first = shown(&client, https, "shop.test").expect("a good certificate");
    assert_ne!(Some(&first), shown(&client, https, "www.shop.test").as_ref(), "each name has its own");
    let account: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).collect();
    let account = account.iter().find(|path| path.extension().is_some_and(|it| it == "json")).expect("an account");
    let credentials = std::fs::read(account).unwrap();
    for path in [&state.join("certificates/shop.test.pem"), &state.join("challenge.sock"), account] {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    assert_eq!((mode(&state), mode(&state.join("certificates"))), (0o700, 0o700));

    let mut kept = client.connect(https, "shop.test");
    let request = "GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n";
    assert_eq!(kept.exchange(request).text(), "hello");
    wait_until("a renewed certificate", || shown(&client, https, "shop.test").is_some_and(|now| now != first));
    assert_eq!(kept.exchange(request).text(), "hello", "the connection from before is still there");
    assert_eq!(std::fs::read(account).unwrap(), credentials, "the account is the same");
    assert!(proxy.stderr().contains("certificate of shop.test: issued by CN=Pebble"), "{}", proxy.stderr());
}

#[test]
fn port_80_answers_challenges_and_sends_everybody_else_to_https() {
    if !postrider_only() {
        return;
    }
    let (place, state) = (Place::new(), TempDir::new());
    let proxy = start(&place, &state.path().join("acme"));
    let http = proxy.address("acme-http");
    let ask = |path: &str| RawClient::connect(http).exchange(get(path).replace("host: test", "host: shop.test"));
    wait_until("the socket to be served", || ask("/.well-known/acme-challenge/none").status == 404);
    let elsewhere = ask("/a?b");
    assert_eq!((elsewhere.status, elsewhere.header("location")), (301, "https://shop.test/a?b"));
}

#[test]
fn what_is_stored_is_served_from_the_next_start_on() {
    if !postrider_only() {
        return;
    }
    let (place, state) = (Place::new(), TempDir::new());
    let state = state.path().join("acme");
    let (client, first) = {
        let proxy = start(&place, &state);
        let pebble = place.start(proxy.address("acme-http").port(), LONG);
        let client = pebble.trusted();
        wait_until("the certificate", || shown(&client, proxy.address("http"), "shop.test").is_some());
        wait_until("the other", || shown(&client, proxy.address("http"), "www.shop.test").is_some());
        let first = shown(&client, proxy.address("http"), "shop.test");
        (client, first)
    };
    assert!(first.is_some());
    let proxy = start(&place, &state);
    assert_eq!(shown(&client, proxy.address("http"), "shop.test"), first);
    assert!(!proxy.stderr().contains("stands in"), "{}", proxy.stderr());
}

#[test]
fn an_authority_that_does_not_believe_is_asked_again_with_growing_waits() {
    if !postrider_only() {
        return;
    }
    let (place, state) = (Place::new(), TempDir::new());
    let proxy = start(&place, &state.path().join("acme"));
    let pebble = place.start(free_port(), LONG);
    wait_until("a refusal that says why", || {
        let log = proxy.stderr();
        let said =
            |line: &str| line.contains("certificate of shop.test: try") && line.contains("acme:error:connection");
        log.lines().any(said)
    });
    wait_until("a longer wait", || {
        let log = proxy.stderr();
        let waits = log.lines().filter(|line| line.contains("certificate of shop.test: try"));
        let waits: Vec<String> = waits.filter_map(|line| Some(line.split_once("next in ")?.1.to_owned())).collect();
        waits.contains(&"0 s".to_owned()) && waits.contains(&"1 s".to_owned())
    });
    assert!(pebble.trusted().get(proxy.address("http"), "shop.test").is_err(), "the self-signed one stays");
}

#[test]
fn a_state_directory_belongs_to_one_process() {
    if !postrider_only() {
        return;
    }
    let (place, state) = (Place::new(), TempDir::new());
    let state = state.path().join("acme");
    let first = start(&place, &state);
    wait_until("the first has it", || state.join("challenge.sock").exists());
    let second = start(&place, &state);
    wait_until("the second is told", || second.stderr().contains("is used by another process"));
    drop(first);
    let took = || second.stderr().contains("certificate of shop.test: none yet");
    wait_until("the second takes over", took);
}

#[test]
fn certificates_are_got_over_port_443_alone() {
    if !postrider_only() {
        return;
    }
    let (place, state, folder) = (Place::new(), TempDir::new(), TempDir::new());
    let text = config_with(&place, &state.path().join("acme"), "challenge: tls-alpn-01");
    let file = folder.write("short.yaml", text);
    let proxy = Proxy::start_file(folder, file, Launch { concurrency: 2, ..Launch::default() });
    let https = proxy.address("http");
    let pebble = place.start_asking(free_port(), https.port(), Duration::from_secs(12));
    let client = pebble.trusted();
    for name in NAMES {
        wait_until("the first certificate", || shown(&client, https, name).is_some());
    }
    let first = shown(&client, https, "shop.test").expect("a good certificate");
    let mut kept = client.connect(https, "shop.test");
    let request = "GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n";
    assert_eq!(kept.exchange(request).text(), "hello");
    wait_until("a renewed certificate", || shown(&client, https, "shop.test").is_some_and(|now| now != first));
    assert_eq!(kept.exchange(request).text(), "hello", "the connection from before is still there");
    assert_eq!(mode(&state.path().join("acme/challenges/shop.test.pem")), 0o600);
}
