use postrider_worker::HandlerPlan;
use serde_json::Value;

use super::*;
use crate::config::{self, Checked};

/// The repository's gateway: virtual hosts, every kind of action, filters with overrides.
const GATEWAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.yaml");

fn gateway() -> Checked {
    config::check(&Input::argument(GATEWAY.as_ref()), None, 1).unwrap()
}

fn explain(checked: &Checked, url: &str, headers: &[&str]) -> (Value, String) {
    let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
    let request = WireRequest::new("GET", url, &headers).unwrap();
    let plan = checked.plan.as_ref().unwrap();
    let listener = choose_listener(plan, None, &request).unwrap();
    let journey = Journey::follow(plan, listener, &request, "127.0.0.1:0".parse().unwrap());
    let places = Places(&checked.outcome);
    (json::render(&journey, &places), text::render(&journey, &places, false))
}

#[test]
fn the_winner_comes_with_its_place_and_the_others_with_a_reason() {
    let checked = gateway();
    let (json, text) = explain(&checked, "http://shop.example/api//v2/x", &["x-tester: no"]);
    assert_eq!((&json["route"]["name"], &json["request"]["path"]), (&"api".into(), &"/api/v2/x".into()));
    assert_eq!(json["routes_tried"][1]["name"], "testers");
    assert!(json["routes_tried"][1]["why"].as_str().unwrap().contains("x-tester"), "{json:#}");
    let line =
        std::fs::read_to_string(GATEWAY).unwrap().lines().position(|line| line.contains("name: api")).unwrap() + 1;
    assert_eq!(json["route"]["place"]["line"], line);
    assert!(text.contains("- testers (prefix /): header x-tester") && text.contains("+ api (regex "), "{text}");
    assert_eq!(json["route"]["forward"]["clusters"][0]["weight"], 95);
    assert_eq!(json["route"]["forward"]["clusters"][1]["host"], "127.0.0.1:9001");
}

#[test]
fn a_redirect_says_where_to() {
    let (json, text) = explain(&gateway(), "http://other.example/a?b", &[]);
    assert_eq!(json["route"]["redirect"]["location"], "https://shop.example/a?b");
    assert!(text.contains("301 to https://shop.example/a?b"), "{text}");
}

#[test]
fn filters_are_on_or_off_as_the_compiled_plan_has_them() {
    let checked = gateway();
    let plan = checked.plan.as_ref().unwrap();
    let HandlerPlan::Http(http) = &plan.listeners[0].chains[0].handler else { panic!("the gateway speaks HTTP") };
    for (url, route, on) in [
        ("http://shop.example/admin/x", "operators", 2),
        ("http://shop.example/healthz", "health", 1),
        ("http://elsewhere/", "", 1),
    ] {
        let (json, _) = explain(&checked, url, &[]);
        assert_eq!(json["route"]["name"], route);
        let shown = json["filters"].as_array().unwrap().iter().filter(|filter| filter["on"] == true).count();
        let compiled =
            http.routes.routes.iter().find(|compiled| compiled.facts.name.as_deref().unwrap_or("") == route).unwrap();
        assert_eq!(shown, http.routes.filter_chains[compiled.filters as usize].0.len(), "{json:#}");
        assert_eq!(shown, on, "{url}");
    }
}

#[test]
fn a_request_that_the_listener_refuses_says_with_what() {
    let (json, text) = explain(&gateway(), "http://shop.example/", &["host: a b"]);
    assert_eq!(json["refused"]["status"], 400);
    assert!(json.get("route").is_none() && text.contains("refused"), "{text}");
}

#[test]
fn a_client_address_may_lack_the_port() {
    assert_eq!(client_address("::1"), Ok("[::1]:0".parse().unwrap()));
    assert_eq!(client_address("10.0.0.1:7"), Ok("10.0.0.1:7".parse().unwrap()));
    assert!(client_address("localhost").is_err());
}
