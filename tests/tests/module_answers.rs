//! Answers that native modules give in pieces, and what must not become of them. The same shared object in both proxies.

use std::fmt::Write;

use postrider_tests::kit::config::extension;
use postrider_tests::modules::script;
use postrider_tests::site::{self, Site};
use postrider_tests::{envoy, postrider_only};
use serde_json::json;

fn site() -> Site {
    let config = json!({
        "dynamic_module_config": {"module": {"local": {"filename": script()}}},
        "filter_name": "script",
    });
    let filter =
        extension("envoy.filters.http.dynamic_modules", "filters.http.dynamic_modules.v3.DynamicModuleFilter", config);
    site::with([filter]).start()
}

fn ask(method: &str, script: &str) -> String {
    let mut request = format!("{method} / HTTP/1.1\r\nhost: test\r\n");
    if !script.is_empty() {
        let _ = write!(request, "x-do: {script}\r\n");
    }
    request + "\r\n"
}

#[test]
fn the_body_of_an_answer_without_one_does_not_pass_for_the_next_answer() {
    // Envoy sends the bytes, and its client takes them for the answer to the next request.
    if !postrider_only() {
        return;
    }
    let site = site();
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        let mut client = site.proxy.client();
        client.send(ask(method, &format!("qh head 0 :status={status}; qh data 0 hel; qh data 1 lo; qh answer 3")));
        let first = client.response(method).unwrap();
        assert_eq!((first.status, first.text()), (status, ""), "{method}");
        client.send(ask("GET", "qh respond 418 teapot second; qh answer 1"));
        let second = client.response("GET").unwrap();
        assert_eq!((second.status, second.text()), (418, "second"), "behind {method} with {status}");
    }
}

#[test]
fn an_answer_in_pieces_that_another_one_follows_is_cut_off() {
    let site = site();
    for (number, events) in [
        "qh events 3; qh answer 3; event1 head 0 :status=200; event2 data 0 first; event3 respond 500 failed sorry",
        "qh events 1; qh answer 3; event1 head 0 :status=200; event1 data 0 first; event1 respond 500 failed sorry",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = site.proxy.client();
        client.send(ask("GET", events));
        let head = client.response_head("GET").unwrap();
        assert_eq!(head.status, 200, "{events}");
        let mut came = Vec::new();
        assert!(client.body(&head, &mut |piece| came.extend_from_slice(piece)).is_err(), "{events}");
        assert_eq!(came, b"first", "{events}");
        let flags = if envoy() { "-" } else { "LR" };
        assert_eq!(site.logged(number + 1), format!("200 {flags} failed"), "{events}");
    }
    // One that is complete stays.
    let answer =
        site.get("/", "x-do: qh head 0 :status=200; qh data 1 whole; qh respond 500 failed sorry; qh answer 3\r\n");
    assert_eq!((answer.status, answer.text()), (200, "whole"));
}

#[test]
fn an_answer_that_is_all_head_has_no_chunks() {
    let site = site();
    let answer = site.get("/", "x-do: qh head 1 :status=202; qh answer 3\r\n");
    let fields = (answer.header("content-length"), answer.header("transfer-encoding"));
    assert_eq!((answer.status, fields), (202, ("0", "")));
}

#[test]
fn a_status_that_is_none_is_no_success() {
    if !postrider_only() {
        return;
    }
    for status in ["700", "101", "x"] {
        let answer = site().get("/", &format!("x-do: qh head 0 :status={status}; qh data 1 text; qh answer 3\r\n"));
        assert_eq!((answer.status, answer.text()), (500, "text"), "{status}");
    }
}

#[test]
fn an_answer_in_pieces_in_the_place_of_one_that_came_keeps_its_body() {
    let site = site();
    let answer = site.get("/", "x-do: ah head 0 :status=403 x-a=1; ah data 0 hel; ah data 1 lo; ah answer 3\r\n");
    assert_eq!((answer.status, answer.text(), answer.header("x-a")), (403, "hello", "1"));
    // Envoy takes what threads bring there for no answer.
    if postrider_only() {
        for events in [
            "ah events 2; ah answer 3; event1 head 0 :status=403; event2 data 1 abc",
            "ah head 0 :status=403; ah events 1; ah answer 1; event1 data 1 abc",
        ] {
            let answer = site.get("/", &format!("x-do: {events}\r\n"));
            assert_eq!((answer.status, answer.text()), (403, "abc"), "{events}");
        }
    }
}

#[test]
fn an_answer_in_pieces_behind_the_head_of_one_that_came_cuts_it_off() {
    // Envoy writes the second head into the first one's body.
    if !postrider_only() {
        return;
    }
    let site = site();
    for script in ["ab head 0 :status=403", "ab head 0 :status=403; ab data 1 abc"] {
        let mut client = site.proxy.client();
        client.send(ask("GET", script));
        let came = client.response_head("GET").map(|head| (head.status, client.body(&head, &mut |_| ()).is_err()));
        assert!(!matches!(came, Ok((_, false))), "{script}: it must not pass for whole");
    }
}

#[test]
fn an_answer_in_pieces_without_a_status_is_no_success() {
    let site = site();
    assert_eq!(site.get("/", "x-do: qh head 0 x-a=1; qh data 1 abc; qh answer 3\r\n").status, 502);
}
