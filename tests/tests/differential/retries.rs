//! Which requests are tried again, and how often.

use crate::scene::{Scene, to_a};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    let mut scenes: Vec<Scene> = POLICIES.iter().map(|on| policy(on)).collect();
    scenes.extend([with_retriable_headers(), none(), asked_for(), asked_for_outside()]);
    scenes
}

const POLICIES: &[&str] = &[
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "envoy-ratelimited",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "unavailable",
    "5xx,retriable-4xx",
    "cancelled",
];

const ANSWERS: &[&str] = &[
    "503x1",
    "503x2",
    "503x9",
    "500x1",
    "502x1",
    "resetx1",
    "resetx9",
    "hangupx1",
    "409x1",
    "404x1",
    "limitedx1",
    "retriablex1",
    "unavailablex1",
    "garbagex1",
    "silentx1",
];

fn settings(on: &str) -> Value {
    json!({
        "retry_on": on,
        "num_retries": 2,
        "per_try_timeout": "0.15s",
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
        "retriable_status_codes": [404],
        "retriable_headers": [{"name": "x-again", "present_match": true}],
    })
}

fn policy(on: &str) -> Scene {
    let mut scene = Scene::new(
        &format!("retry-{}", on.replace(',', "-")),
        json!({"route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"], "include_request_attempt_count": true, "include_attempt_count_in_response": true,
            "routes": [
                {"match": {"prefix": "/down"}, "route": {"cluster": "down", "retry_policy": settings(on)}},
                to_a("/", json!({"route": {"retry_policy": settings(on)}})),
            ],
        }]}}),
    );
    scene = scene.answers("/", ANSWERS).get("/down");
    scene.post("/", "x-answer: 503x1\r\n", "again").post("/down", "", "again")
}

fn with_retriable_headers() -> Scene {
    Scene::routes("retry-headers", json!([to_a("/", json!({"route": {"retry_policy": {
        "retry_on": "5xx", "num_retries": 1, "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.002s"},
        "retriable_request_headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
    }}}))]))
    .answers("/", &["503x1", "503x3"])
    .post("/", "x-answer: 503x1\r\n", "not again")
}

/// What a request inside may ask for itself.
const ASKED: &[&str] = &[
    "x-envoy-retry-on: 5xx\r\nx-answer: 503x1\r\n",
    "x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 3\r\nx-answer: 503x3\r\n",
    "x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 0\r\nx-answer: 503x1\r\n",
    "x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: odd\r\nx-answer: 503x1\r\n",
    "x-envoy-retry-on: retriable-status-codes\r\nx-envoy-retriable-status-codes: 404, 409\r\nx-answer: 409x1\r\n",
    "x-envoy-retry-on: retriable-headers\r\nx-envoy-retriable-header-names: x-again\r\nx-answer: retriablex1\r\n",
    "x-envoy-retry-grpc-on: unavailable\r\nx-answer: unavailablex1\r\n",
    "x-envoy-retry-on: reset\r\nx-answer: resetx1\r\n",
    "x-envoy-retry-on: nonsense\r\nx-answer: 503x1\r\n",
    "x-envoy-upstream-rq-timeout-ms: 100\r\nx-answer: silent\r\n",
    "x-envoy-upstream-rq-timeout-ms: 2500\r\nx-envoy-upstream-rq-per-try-timeout-ms: 100\r\nx-answer: silent\r\n",
    "x-envoy-upstream-rq-per-try-timeout-ms: 100\r\nx-envoy-retry-on: 5xx\r\nx-answer: silentx1\r\n",
    "x-envoy-expected-rq-timeout-ms: 7\r\n",
];

fn asked_for() -> Scene {
    let inside = json!({"use_remote_address": true, "internal_address_config": {}});
    Scene::forward("asked-for").with(inside).each("/", ASKED)
}

fn asked_for_outside() -> Scene {
    let asked: Vec<&str> = ASKED.iter().copied().filter(|lines| !lines.contains("silent")).collect();
    Scene::forward("asked-for-outside").with(json!({"use_remote_address": true})).each("/", &asked)
}

fn none() -> Scene {
    Scene::new(
        "no-retries",
        json!({"route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"], "retry_policy": settings("5xx"),
            "routes": [
                to_a("/zero", json!({"route": {"retry_policy": {"num_retries": 0, "retry_on": "5xx"}}})),
                to_a("/other", json!({"route": {"retry_policy": {"retry_on": "connect-failure"}}})),
                to_a("/", json!({})),
            ],
        }]}}),
    )
    .answers("/zero", &["503x1"])
    .answers("/other", &["503x1"])
    .answers("/", &["503x1"])
}
