//! Requests of native modules that travel in pieces, as Envoy has them: the same shared object in both.

use postrider_tests::kit::config::{extension, overlay};
use postrider_tests::kit::message::Request;
use postrider_tests::kit::net::refusing_address;
use postrider_tests::kit::{Gate, Origin, OriginConnection, RawClient, wait_until};
use postrider_tests::modules::streams;
use postrider_tests::site::{self, Plan, Site};
use postrider_tests::{envoy, postrider_only};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "envoy.filters.http.dynamic_modules";
const TYPE: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

/// What travels through where much does.
const MUCH: usize = 64 << 20;

/// More than sockets and bounded queues hold on the way.
const BOUND: usize = 24 << 20;

/// A filter of the module in front of a cluster of its own.
fn module(name: &str, there: SocketAddr, cluster: Value) -> Plan {
    let config = json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "there"});
    let fields = json!({
        "dynamic_module_config": {"module": {"local": {"filename": streams()}}}, "filter_name": name, "filter_config": config,
    });
    site::with([extension(NAME, TYPE, fields)])
        .manager(json!({"http_protocol_options": {"enable_trailers": true}}))
        .cluster("there", &[there], cluster)
}

/// A cluster that gets the trailers of requests.
fn with_trailers() -> Value {
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": true}},
    });
    json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}})
}

fn tell(site: &Site, path: &str, fields: &str) -> String {
    site.get(path, fields).text().to_owned()
}

#[test]
fn pieces_travel_as_they_come() {
    let (sent, heard) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (seen, rest) = (sent.clone(), heard.clone());
    let there = Origin::start(move |connection| {
        let Some(request) = connection.request_head() else { return };
        connection.body(&request, &mut |_| seen.open());
        connection.write(b"HTTP/1.1 200 OK\r\nx-from: there\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
        rest.wait();
        connection.write(b"6\r\n world\r\n0\r\nx-after: yes\r\n\r\n");
    });
    let site = module("relay", there.address, with_trailers()).start();
    let mut client = site.proxy.client();
    client.send("POST /a HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    sent.wait();
    client.send("0\r\n\r\n");
    let head = client.response_head("POST").unwrap();
    assert_eq!((head.status, head.header("x-from")), (200, "there"));
    let first = client.read_exact(10).unwrap();
    assert_eq!(String::from_utf8_lossy(&first), "5\r\nhello\r\n", "before the answer ends");
    heard.open();
    let rest = client.read_exact(30).unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "6\r\n world\r\n0\r\nx-after: yes\r\n\r\n");
    assert_eq!(site.origin.connection_count(), 0, "the module answered");
}

#[test]
fn trailers_of_requests_leave_where_the_cluster_has_them() {
    let sent =
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-behind: it\r\n\r\n";
    for (cluster, want) in [(with_trailers(), Some("it")), (json!({}), None)] {
        let there = Origin::echo("there");
        let site = module("relay", there.address, cluster).start();
        assert_eq!(site.proxy.exchange(sent).status, 200);
        let request = there.requests().remove(0);
        assert_eq!((request.body.as_slice(), request.trailers.value("x-behind")), (&b"hi"[..], want));
    }
}

#[test]
fn a_request_that_is_all_head_is_sent_so() {
    let there = Origin::echo("there");
    let site = module("relay", there.address, json!({})).start();
    assert_eq!(site.get("/path", "").status, 200);
    let request = there.requests().remove(0);
    assert_eq!((request.target.as_str(), request.body.len()), ("/path", 0));
    assert!(!request.headers.contains("transfer-encoding"), "{request:?}");
}

#[test]
fn a_module_writes_and_is_told() {
    let there = Origin::start(|connection| {
        let request: Request = connection.request().unwrap();
        let body = format!("{} {}", request.target, String::from_utf8_lossy(&request.body));
        connection.write(format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    });
    let site = module("tell", there.address, with_trailers()).start();
    assert_eq!(tell(&site, "/x", ""), "head 201; body 12 /x begin end; complete");
    let request = there.requests().remove(0);
    assert_eq!((request.headers.value("x-mine"), request.trailers.value("x-behind")), (Some("yes"), Some("yes")));
}

#[test]
fn an_answer_without_a_body_is_complete_at_once() {
    let there = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let site = module("tell", there.address, json!({})).start();
    for _ in 0..2 {
        assert_eq!(tell(&site, "/", ""), "head 204; body 0 ; complete");
    }
    assert_eq!(site.stat("cluster.there.upstream_rq_total"), 2);
}

#[test]
fn an_answer_that_comes_before_the_request_ends_is_complete() {
    let there = Origin::start(|connection| {
        connection.request_head().unwrap();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly");
        connection.read_to_end();
    });
    let site = module("tell", there.address, json!({})).start();
    assert_eq!(tell(&site, "/", "x-open: 1\r\n"), "head 200; body 5 early; complete");
    // Nothing else may follow on a connection whose request has no end.
    there.wait_open_at_most(0);
}

#[test]
fn what_fails_before_an_answer_is_told_as_one() {
    let silent = Origin::silent();
    let site = module("tell", silent.address, json!({})).start();
    let told = tell(&site, "/", "x-timeout: 50\r\n");
    assert_eq!(told, "head 504; body 24 upstream request timeout; complete");
    assert_eq!(site.stat("cluster.there.upstream_rq_timeout"), 1);
    let site = module("tell", refusing_address(), json!({})).start();
    let told = tell(&site, "/", "");
    assert!(told.starts_with("head 503; body ") && told.ends_with("; complete"), "{told}");
}

#[test]
fn what_fails_within_an_answer_is_a_reset() {
    let there = Origin::start(|connection| {
        connection.request().unwrap();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    });
    let site = module("tell", there.address, json!({})).start();
    assert_eq!(tell(&site, "/", ""), "head 200; body 4 half; reset 2");
    // A relay that began to answer cuts its client off.
    let site = module("relay", there.address, json!({})).start();
    let mut client = site.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi");
    let head = client.response_head("POST").unwrap();
    assert_eq!(head.status, 200);
    assert!(client.body(&head, &mut |_| {}).is_err());
}

#[test]
fn a_module_gives_a_request_up() {
    let there = Origin::start(|connection| {
        connection.request().unwrap();
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
        connection.read_to_end();
    });
    let site = module("tell", there.address, json!({})).start();
    assert_eq!(tell(&site, "/", "x-give-up: 1\r\n"), "head 200; body 4 half; reset 2");
    there.wait_open_at_most(0);
    site.proxy.wait_stat("cluster.there.upstream_rq_active", 0);
}

#[test]
fn requests_end_with_their_stream() {
    let there = Origin::silent();
    let site = module("tell", there.address, json!({})).start();
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\nx-open: 1\r\n\r\n");
    there.wait_connections(1);
    client.reset();
    there.wait_open_at_most(0);
    site.proxy.wait_stat("cluster.there.upstream_rq_active", 0);
}

/// Takes the bodies of requests, counted, and answers with `MUCH`, as far as that is taken.
fn generous(connection: &mut OriginConnection, taken: &AtomicUsize, given: &AtomicUsize) {
    while let Some(request) = connection.request_head() {
        let all = connection.body(&request, &mut |piece| {
            taken.fetch_add(piece.len(), Ordering::Relaxed);
        });
        if !all {
            return;
        }
        connection.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n").as_bytes());
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..MUCH / piece.len() {
            if !connection.write(&piece) {
                return;
            }
            given.fetch_add(piece.len(), Ordering::Relaxed);
        }
    }
}

fn upload() -> String {
    format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {MUCH}\r\n\r\n")
}

#[test]
fn much_goes_through_little_memory() {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let seen = counts.clone();
    let there = Origin::start(move |connection| generous(connection, &seen.0, &seen.1));
    let site = module("relay", there.address, json!({})).start();
    let before = site.proxy.resident_kib();
    let mut client = site.proxy.client();
    client.set_timeout(Duration::from_secs(60));
    client.send(upload());
    let piece = vec![b'y'; 1 << 16];
    for _ in 0..MUCH / piece.len() {
        client.send(&piece);
    }
    let head = client.response_head("POST").unwrap();
    let (mut got, mut peak) = (0, 0);
    client
        .body(&head, &mut |piece| {
            if got % (8 << 20) > (got + piece.len()) % (8 << 20) {
                peak = peak.max(site.proxy.resident_kib());
            }
            got += piece.len();
        })
        .unwrap();
    assert_eq!((got, counts.0.load(Ordering::Relaxed)), (MUCH, MUCH));
    let grown = peak.saturating_sub(before);
    assert!(envoy() || grown < BOUND as u64 / 1024, "grew by {grown} KiB");
}

/// Waits until `count` has stood still for a while; where it stands.
fn standing(count: impl Fn() -> usize) -> usize {
    let (mut last, mut since) = (0, Instant::now());
    wait_until("a standstill", || {
        let now = count();
        if std::mem::replace(&mut last, now) != now {
            since = Instant::now();
        }
        now > 0 && since.elapsed() > Duration::from_millis(300)
    });
    last
}

#[test]
fn a_cluster_that_does_not_read_holds_its_client_back() {
    if !postrider_only() {
        return;
    }
    let (gate, taken) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let (closed, count) = (gate.clone(), taken.clone());
    let there = Origin::start(move |connection| {
        let request = connection.request_head().unwrap();
        closed.wait();
        connection.body(&request, &mut |piece| {
            count.fetch_add(piece.len(), Ordering::Relaxed);
        });
        connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let site = module("relay", there.address, json!({})).start();
    let client = site.proxy.client();
    let (sent, mut sender) = (Arc::new(AtomicUsize::new(0)), client.stream().try_clone().unwrap());
    let progress = sent.clone();
    let writer = std::thread::spawn(move || {
        sender.write_all(upload().as_bytes()).unwrap();
        let piece = vec![b'y'; 1 << 16];
        for _ in 0..MUCH / piece.len() {
            sender.write_all(&piece).unwrap();
            progress.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    let held = standing(|| sent.load(Ordering::Relaxed));
    assert!(held < BOUND, "{held} bytes were taken although nobody reads them");
    gate.open();
    writer.join().unwrap();
    let mut client = RawClient::from_stream(client.into_transport());
    client.set_timeout(Duration::from_secs(30));
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(taken.load(Ordering::Relaxed), MUCH);
}

#[test]
fn a_client_that_does_not_read_holds_the_cluster_back() {
    if !postrider_only() {
        return;
    }
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let seen = counts.clone();
    let there = Origin::start(move |connection| generous(connection, &seen.0, &seen.1));
    let site = module("relay", there.address, json!({})).start();
    let mut client = site.proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let held = standing(|| counts.1.load(Ordering::Relaxed));
    assert!(held < BOUND, "{held} bytes were taken although nobody reads them");
    client.set_timeout(Duration::from_secs(30));
    let head = client.response_head("GET").unwrap();
    let mut got = 0;
    client.body(&head, &mut |piece| got += piece.len()).unwrap();
    assert_eq!(got, MUCH);
}

#[test]
fn a_configuration_asks_in_pieces_by_itself() {
    let there = Origin::start(|connection| {
        if let Some(request) = connection.request() {
            let body = format!("{} bytes", request.body.len());
            connection.write(
                format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len())
                    .as_bytes(),
            );
            connection.write(b"0\r\nx-after: yes\r\n\r\n");
        }
    });
    let site = module("alone", there.address, with_trailers()).start();
    let ask = || site.get("/", "").text().to_owned();
    wait_until("the configuration's request", || ask() != "not yet");
    assert_eq!(ask(), "head 200; trailer x-after=yes; body 7; complete");
    let mut whole = there.requests();
    whole.retain(|request| !request.body.is_empty());
    let [request] = whole.as_slice() else { panic!("{whole:?}") };
    assert_eq!((request.target.as_str(), request.body.as_slice()), ("/alone", &b"onetwo"[..]));
    assert_eq!(request.trailers.value("x-behind"), Some("yes"));
}

#[test]
fn requests_travel_over_http2() {
    let there = Origin::echo("there");
    // Through a listener of its own that speaks HTTP/2 and hands on to the origin.
    let far = site::with([]).manager(json!({"codec_type": "HTTP2"})).start_before(there);
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    });
    let mut cluster = json!({});
    overlay(
        &mut cluster,
        json!({"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}}),
    );
    let site = module("tell", far.proxy.address("http"), cluster).start();
    let told = tell(&site, "/h2", "");
    assert!(told.starts_with("head 200; ") && told.ends_with("; complete"), "{told}");
    let request = far.origin.requests().remove(0);
    assert_eq!((request.target.as_str(), request.body.as_slice()), ("/h2", &b"begin end"[..]));
}
