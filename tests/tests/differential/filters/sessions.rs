//! Clients that stay with their host: stateful_session. Requests name hosts by what stands for them: see `pair::names`.

use super::{filter, scope};
use crate::scene::{Scene, to_a};
use postrider_tests::kit::config::{extension, overlay};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![cookies(), headers(), strict(), envelopes()]
}

fn session(kind: &str, message: &str, state: Value, fields: Value) -> Value {
    let name = format!("envoy.http.stateful_session.{kind}");
    let mut all =
        json!({"session_state": extension(&name, &format!("http.stateful_session.{kind}.v3.{message}"), state)});
    overlay(&mut all, fields);
    filter("stateful_session", "StatefulSession", all)
}

fn cookies() -> Scene {
    let cookie = json!({"cookie": {"name": "sess", "path": "/p", "attributes": [{"name": "SameSite", "value": "Lax"}, {"name": "Secure"}]}});
    let routes = json!([
        to_a("/p/off", scope("stateful_session", "StatefulSessionPerRoute", json!({"disabled": true}))),
        to_a("/p/b", json!({"route": {"cluster": "b"}})),
        {"match": {"prefix": "/p/own"}, "direct_response": {"status": 200}},
        {"match": {"prefix": "/p/down"}, "route": {"cluster": "down"}},
    ]);
    let mut scene = Scene::filtered(
        "session-cookies",
        vec![session("cookie", "CookieBasedSessionState", cookie, json!({}))],
        routes,
    );
    for path in ["/p", "/p/x?q", "/px", "/q", "/p/off", "/p/b", "/p/own", "/p/down"] {
        scene = scene.get(path);
        for cookie in [
            "sess=$<a in a message>",
            "sess=\"$<a in a message>\"",
            "sess=$<b in a message>",
            "sess=$<a in base64>",
            "sess=!!",
            "sess=",
            "other=1; sess=$<b in a message>",
            "sess=MTI3LjAuMC4xOjE=",
        ] {
            scene = scene.get_with(path, &format!("cookie: {cookie}\r\n"));
        }
    }
    scene.get("/p?answer=fields")
}

const SHOWN: &[&str] = &["$<a in base64>", "$<b in base64>", "$<a>", "MTI3LjAuMC4xOjE=", "anVuaw==", "!!", ""];

fn named(name: &str, fields: Value) -> Scene {
    let filters = vec![session("header", "HeaderBasedSessionState", json!({"name": "x-sess"}), fields)];
    let routes = json!([
        to_a("/b", json!({"route": {"cluster": "b"}})),
        to_a("/off", scope("stateful_session", "StatefulSessionPerRoute", json!({"disabled": true})))
    ]);
    let mut scene = Scene::filtered(name, filters, routes).gets(&["/", "/b", "/off"]);
    for path in ["/", "/b", "/off"] {
        for shown in SHOWN {
            scene = scene.get_with(path, &format!("x-sess: {shown}\r\n"));
        }
    }
    scene.makes("/", "", &["200|x-sess=mine", "404"])
}

fn headers() -> Scene {
    named("session-headers", json!({}))
}

fn strict() -> Scene {
    named("session-strict", json!({"strict": true}))
}

fn envelopes() -> Scene {
    let filters = vec![session("envelope", "EnvelopeSessionState", json!({"header": {"name": "x-sess"}}), json!({}))];
    Scene::filtered("session-envelopes", filters, json!([]))
        .makes("/", "", &["200|x-sess=mine", "200", "200|x-sess=", "404|x-sess=one"])
        .each(
            "/",
            &[
                "x-sess: $<a in base64>\r\n",
                "x-sess: $<a in base64>;UV:bWluZQ==\r\n",
                "x-sess: rubbish;UV:bWluZQ==\r\n",
                "x-sess: ;\r\n",
            ],
        )
}
