//! HTTP/1.1 as clients and origins meet it every day: connection reuse,
//! framing, versions. Hostile input has a suite of its own.

use postrider_tests::get;
use postrider_tests::kit::config::{self, Config};
use postrider_tests::kit::{Framing, Origin, Proxy, origin};
use postrider_tests::site::{self, Site};
use serde_json::{Value, json};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn one_connection_serves_many_requests_over_one_upstream_connection() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for turn in 0..50 {
        let response = client.exchange(get(&format!("/turn/{turn}")));
        assert_eq!(response.status, 200);
        assert!(response.text().starts_with(&format!("GET /turn/{turn} HTTP/1.1\r\n")));
        assert!(!response.headers.contains("connection"));
    }
    assert_eq!(origin.connection_count(), 1);
    assert_eq!(origin.malformed(), Vec::<String>::new());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let mut batch = String::new();
    for turn in 0..30 {
        if turn % 3 == 0 {
            batch += &format!("POST /{turn} HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nGET /");
        } else {
            batch += &get(&format!("/{turn}"));
        }
    }
    client.send(&batch);
    for turn in 0..30 {
        let response = client.response("GET").unwrap();
        let method = if turn % 3 == 0 { "POST" } else { "GET" };
        let line = format!("{method} /{turn} HTTP/1.1\r\n");
        assert!(response.text().starts_with(&line), "{} is not {line}", response.text());
    }
    assert_eq!(client.leftover(), b"");
    assert_eq!(origin.requests().len(), 30);
}

#[test]
fn a_request_cut_at_every_byte_is_read_the_same() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let request = b"POST /cut HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for cut in 1..request.len() {
        client.send(&request[..cut]);
        client.send(&request[cut..]);
        assert_eq!(client.response("POST").unwrap().status, 200, "cut at {cut}");
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), request.len() - 1);
    for (index, seen) in requests.iter().enumerate() {
        assert_eq!(seen.body, b"abc", "cut at {}", index + 1);
        assert_eq!(seen.headers, requests[0].headers, "cut at {}", index + 1);
    }
}

#[test]
fn an_answer_cut_at_every_byte_is_read_the_same() {
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let cut: usize = request.target[1..].parse().unwrap();
            connection.write(&answer[..cut]);
            connection.write(&answer[cut..]);
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for cut in 0..answer.len() {
        let response = client.exchange(get(&format!("/{cut}")));
        assert_eq!((response.status, response.text()), (200, "abc"), "cut at {cut}");
        assert_eq!(response.header("x-a"), "b", "cut at {cut}");
    }
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn head_204_and_304_answers_have_no_body_and_keep_the_connection() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let answer: &[u8] = match request.target.as_str() {
                "/head" => b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                "/head-chunked" => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\netag: \"x\"\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast",
            };
            connection.write(answer);
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let head = client.exchange("HEAD /head HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, "1000"));
    let head = client.exchange("HEAD /head-chunked HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!((head.status, head.framing), (200, Framing::None));
    let empty = client.exchange(get("/204"));
    assert_eq!((empty.status, empty.header("content-length")), (204, ""));
    let unchanged = client.exchange(get("/304"));
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, "\"x\""));
    assert_eq!(client.exchange(get("/")).text(), "last");
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn bodies_keep_their_framing_and_bytes() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.exchange("POST /l HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello");
    client.exchange("POST /z HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n");
    client.exchange(
        "PUT /c HTTP/1.1\r\nhost: test\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n1;ext=\"v\"\r\n!\r\n00\r\n\r\n",
    );
    client.exchange("POST /n HTTP/1.1\r\nhost: test\r\n\r\n");
    client.exchange(get("/g"));
    let seen: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|r| (r.method, r.target, r.framing, String::from_utf8(r.body).unwrap()))
        .collect();
    let row = |method: &str, target: &str, framing, body: &str| {
        (method.to_string(), target.to_string(), framing, body.to_string())
    };
    assert_eq!(seen[0], row("POST", "/l", Framing::Length(5), "hello"));
    assert_eq!(seen[1], row("POST", "/z", Framing::Length(0), ""));
    assert_eq!(seen[2], row("PUT", "/c", Framing::Chunked, "hello!"));
    // A request without framing fields has no body: whether that is said with
    // `content-length: 0` is the proxy's choice.
    assert_eq!((seen[3].1.as_str(), seen[3].3.as_str()), ("/n", ""));
    assert_eq!((seen[4].1.as_str(), seen[4].2), ("/g", Framing::None));
    assert_eq!(origin.connection_count(), 1);
}

#[test]
fn trailers_pass_when_enabled_and_are_dropped_when_not() {
    let script = |connection: &mut origin::OriginConnection| {
        while connection.request().is_some() {
            connection.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                  2\r\nok\r\n0\r\nx-sum: 42\r\n\r\n",
            );
        }
    };
    let request = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n\
                   2\r\nhi\r\n0\r\nx-check: 7\r\n\r\n";
    for enabled in [false, true] {
        let origin = Origin::start(script);
        let options = json!({"enable_trailers": enabled});
        let upstream =
            config::upstream_http_options(json!({"explicit_http_config": {"http_protocol_options": options}}));
        let config = Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]))
            .cluster_with("origin", &[origin.address], upstream)
            .overlay_filter("http", json!({"http_protocol_options": options}));
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        for _ in 0..2 {
            let response = client.exchange(request);
            assert_eq!(response.text(), "ok");
            assert_eq!(response.trailers.value("x-sum"), enabled.then_some("42"));
        }
        let seen = origin.requests();
        assert_eq!(seen[1].body, b"hi");
        assert_eq!(seen[1].trailers.value("x-check"), enabled.then_some("7"));
    }
}

#[test]
fn expect_100_continue_is_answered_and_consumed_by_the_proxy() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n");
        assert_eq!(client.any_response("POST").unwrap().status, 100);
        client.send("body");
        assert_eq!(client.any_response("POST").unwrap().status, 200);
    }
    assert_eq!(origin.requests()[0].body, b"body");
    assert!(!origin.requests()[0].headers.contains("expect"));
}

#[test]
fn interim_answers_of_the_origin_do_not_confuse_the_pairing() {
    let origin = Origin::start(|connection| {
        while connection.request().is_some() {
            connection.write(b"HTTP/1.1 100 Continue\r\n\r\n");
            connection.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
            connection.write(OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.exchange(get("/")).text(), "ok");
    }
    assert_eq!(client.leftover(), b"");
}

#[test]
fn interim_answers_that_are_passed_on_lost_their_fields() {
    for (status, passes) in [(100, true), (102, true), (103, true), (150, false)] {
        let origin = Origin::start(move |connection| {
            while connection.request().is_some() {
                for link in ["a", "b"] {
                    let fields = format!("link: <{link}>\r\nx-a: 1\r\nconnection: x-b\r\nx-b: 2\r\n");
                    connection.write(format!("HTTP/1.1 {status} Soon\r\n{fields}\r\n").as_bytes());
                }
                connection.write(OK.as_bytes());
            }
        });
        let config = Config::proxy_to(origin.address).overlay_filter("http", json!({"proxy_100_continue": true}));
        let proxy = Proxy::start(&config);
        let mut client = proxy.client();
        for _ in 0..2 {
            client.send(get("/"));
            if passes {
                // The first, as in Envoy.
                let interim = client.any_response("GET").unwrap();
                assert_eq!((interim.status, interim.header("link"), interim.header("x-a")), (status, "<a>", "1"));
                assert!(!interim.headers.contains("x-b") && !interim.headers.contains("connection"));
            }
            assert_eq!(client.any_response("GET").unwrap().text(), "ok");
        }
        assert_eq!(client.leftover(), b"");
    }
}

#[test]
fn absolute_form_becomes_origin_form_and_its_authority_is_the_host() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    client.exchange("GET http://real.test:81/p?q=1 HTTP/1.1\r\nhost: other.test\r\n\r\n");
    client.exchange("GET http://bare.test HTTP/1.1\r\nhost: bare.test\r\n\r\n");
    client.exchange("OPTIONS * HTTP/1.1\r\nhost: test\r\n\r\n");
    let seen = origin.requests();
    assert_eq!((seen[0].target.as_str(), seen[0].header("host")), ("/p?q=1", "real.test:81"));
    assert_eq!((seen[1].target.as_str(), seen[1].header("host")), ("/", "bare.test"));
    // `*` matches no prefix route: nothing reaches the origin.
    assert_eq!(seen.len(), 2);
}

#[test]
fn http_10_is_refused_unless_accepted() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    let response = client.exchange("GET / HTTP/1.0\r\nhost: test\r\n\r\n");
    assert_eq!(response.status, 426);
    assert!(client.closed());
    assert_eq!(origin.connection_count(), 0);
}

#[test]
fn http_10_clients_are_served_when_accepted() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            match request.target.as_str() {
                "/chunked" => connection
                    .write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
                _ => connection.write(OK.as_bytes()),
            };
        }
    });
    let config = Config::proxy_to(origin.address).overlay_filter(
        "http",
        json!({"http_protocol_options": {"accept_http_10": true, "default_host_for_http_10": "old.test"}}),
    );
    let proxy = Proxy::start(&config);

    let mut client = proxy.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let plain = client.response("GET").unwrap();
    assert_eq!((plain.status, plain.text(), plain.header("connection")), (200, "ok", "close"));
    assert!(client.closed());
    assert_eq!(origin.requests()[0].header("host"), "old.test");
    assert_eq!(origin.requests()[0].version, "HTTP/1.1");

    // A 1.0 client cannot read chunks: the body ends with the connection.
    let mut client = proxy.client();
    client.send("GET /chunked HTTP/1.0\r\nhost: test\r\n\r\n");
    let response = client.response("GET").unwrap();
    assert_eq!((response.framing, response.text()), (Framing::UntilClose, "abcde"));

    let mut client = proxy.client();
    for _ in 0..3 {
        let kept = client.exchange("GET / HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n");
        assert_eq!(kept.header("connection"), "keep-alive");
        assert_eq!(kept.text(), "ok");
    }
}

#[test]
fn answers_of_http_10_origins_end_with_their_connection() {
    let origin = Origin::fixed("HTTP/1.0 200 OK\r\nx-old: yes\r\n\r\nuntil the end");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.exchange(get("/"));
        assert_eq!((response.version.as_str(), response.framing), ("HTTP/1.1", Framing::Chunked));
        assert_eq!(response.text(), "until the end");
    }
    assert_eq!(origin.connection_count(), 3);
}

/// Trailers on both sides, with these limits for requests and for answers.
fn limited(origin: Origin, manager: Value, upstream: Value) -> Site {
    let trailers = json!({"http_protocol_options": {"enable_trailers": true}});
    let mut options = json!({"explicit_http_config": trailers});
    config::overlay(&mut options, upstream);
    site::with([])
        .manager(trailers)
        .manager(manager)
        .upstream(config::upstream_http_options(options))
        .log("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%")
        .start_before(origin)
}

#[test]
fn limits_of_request_heads_did_not_hold_for_trailers() {
    let many = |count: usize| "t: v\r\n".repeat(count);
    let large = |bytes: usize| format!("t: {}\r\n", "x".repeat(bytes));
    let count = json!({"common_http_protocol_options": {"max_headers_count": 5}});
    let size = json!({"max_request_headers_kb": 4});
    for (limit, fits, exceeds, details) in [
        (count, many(5), many(6), "http1.too_many_headers"),
        (size, large(3000), large(4500), "http1.headers_too_large"),
        (json!({}), many(100), large(70_000), "http1.headers_too_large"),
    ] {
        let site = limited(Origin::echo("a"), limit, json!({}));
        let send = |trailers: &str| {
            let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
            site.proxy.exchange(format!("{head}2\r\nhi\r\n0\r\n{trailers}\r\n"))
        };
        assert_eq!(send(&fits).status, 200);
        assert_eq!(site.logged(1), "200 - via_upstream");
        let refused = send(&exceeds);
        assert_eq!((refused.status, refused.text()), (431, "Request Header Fields Too Large"));
        assert_eq!(site.logged(2), format!("431 DPE {details}"));
    }
}

#[test]
fn the_head_of_an_answer_may_have_80_kib_over_http_1() {
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let length: usize = request.target[1..].parse().unwrap();
            connection
                .write(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: {}\r\n\r\n", "a".repeat(length)).as_bytes());
        }
    });
    let site = limited(origin, json!({}), json!({}));
    assert_eq!(site.get("/79000", "").status, 200);
    assert_eq!(site.get("/82000", "").status, 502);
}

#[test]
fn limits_of_answers_heads_did_not_hold_for_trailers() {
    for (limit, trailers) in [
        (json!({"max_headers_count": 5}), "t: v\r\n".repeat(6)),
        (json!({"max_response_headers_kb": 4}), format!("t: {}\r\n", "x".repeat(4500))),
    ] {
        let origin = Origin::start(move |connection| {
            while let Some(request) = connection.request() {
                let trailers = if request.target == "/few" { "t: v\r\n" } else { &trailers };
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n";
                connection.write(format!("{head}{trailers}\r\n").as_bytes());
            }
        });
        let site = limited(origin, json!({}), json!({"common_http_protocol_options": limit}));
        assert_eq!(site.get("/few", "").trailers.value("t"), Some("v"));
        assert_eq!(site.logged(1), "200 - via_upstream");
        let mut client = site.proxy.client();
        client.send(get("/many"));
        assert!(client.any_response("GET").is_err(), "it breaks off");
        assert_eq!(site.logged(2), "200 UPE upstream_reset_after_response_started{protocol_error}");
    }
}
