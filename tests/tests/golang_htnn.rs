//! HTNN's collection of plugins as it comes: its consumers, dynamic configurations, and plugins that routes merge.

use postrider_tests::envoy;
use postrider_tests::golang::{Site, filter, gateway, per_route, site};
use postrider_tests::kit::{Origin, Proxy};
use serde_json::{Value, json};

/// The filter manager with these plugins, as HTNN's control plane writes it.
fn plugins(all: &[(&str, Value)]) -> Value {
    let all: Vec<Value> = all.iter().map(|(name, config)| json!({"name": name, "config": config})).collect();
    json!({"namespace": "ns", "plugins": all})
}

fn route(path: &str, all: &[(&str, Value)]) -> Value {
    json!({
        "match": {"prefix": path}, "route": {"cluster": "origin"},
        "typed_per_filter_config": per_route("fm", &plugins(all)),
    })
}

fn routes(all: &[Value]) -> Value {
    let mut all = all.to_vec();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": all}]}})
}

/// Consumers by name, each with the key that it shows.
fn consumers(version: u32, all: &[(&str, &str)]) -> Value {
    let of = |key: &str| json!({"auth": {"keyAuth": json!({"key": key}).to_string()}}).to_string();
    let all = all.iter().map(|(name, key)| ((*name).to_owned(), json!({"v": version, "d": of(key)})));
    filter("htnn", "cm", &json!({"ns": all.collect::<serde_json::Map<_, _>>()}))
}

fn status(site: &Site, path: &str, fields: &str) -> (u16, String) {
    let answer = postrider_tests::ask(&site.proxy, "GET", "test", path, fields);
    (answer.status, answer.text().to_owned())
}

#[test]
fn expressions_decide() {
    if envoy() {
        return;
    }
    let deny = plugins(&[("celScript", json!({"allowIf": "request.path() == \"/yes\""}))]);
    let site = site(&[filter("htnn", "fm", &deny)], Origin::echo("a"), json!({}));
    assert_eq!(site.proxy.get("/yes").status, 200);
    assert_eq!(site.proxy.get("/no").status, 403);
}

#[test]
fn consumers_are_known_by_their_keys_and_restricted_by_routes() {
    if envoy() {
        return;
    }
    let key = ("keyAuth", json!({"keys": [{"name": "x-key"}, {"name": "key", "source": "QUERY"}]}));
    let only = |name: &str| ("consumerRestriction", json!({"allow": {"rules": [{"name": name}]}}));
    let http = routes(&[
        route("/tom", &[key.clone(), only("tom")]),
        route("/anybody", &[key.clone(), ("consumerRestriction", json!({"denyIfNoConsumer": true}))]),
    ]);
    let of = |version: u32, all: &[(&str, &str)]| [consumers(version, all), filter("htnn", "fm", &json!({}))];
    let origin = Origin::echo("a");
    let first = gateway(&of(1, &[("tom", "t"), ("ann", "a")]), &origin, http.clone());
    let mut site = Site { proxy: Proxy::start(&first), origin };
    for (path, fields, wanted) in [
        ("/tom", "x-key: t\r\n", 200),
        ("/tom", "x-key: a\r\n", 403),
        ("/tom?key=t", "", 200),
        ("/tom", "x-key: other\r\n", 401),
        ("/tom", "", 401),
        ("/anybody", "x-key: a\r\n", 200),
        ("/anybody", "", 401),
        ("/free", "", 200),
    ] {
        let (found, text) = status(&site, path, fields);
        assert_eq!(found, wanted, "{path} {fields}: {text}");
    }
    let seen = site.origin.requests();
    assert!(seen.iter().all(|request| !request.headers.contains("x-key") && !request.target.contains("key=")));

    let verdict = site.proxy.reload(gateway(&of(2, &[("tom", "new")]), &site.origin, http).to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(status(&site, "/tom", "x-key: t\r\n").0, 401);
    assert_eq!(status(&site, "/tom", "x-key: new\r\n").0, 200);
}

#[test]
fn routes_merge_their_plugins_with_the_gateways() {
    if envoy() {
        return;
    }
    let demo = |name: &str| ("demo", json!({"hostName": name}));
    let http = routes(&[
        route("/own", &[demo("x-own")]),
        route("/more", &[("celScript", json!({"allowIf": "request.query_path() != \"no\""}))]),
        route("/few", &[("limitReq", json!({"average": 1, "period": "600s"}))]),
    ]);
    let dynamic = filter("htnn", "dc", &json!({"name": "demo", "config": {"key": "from-dc"}}));
    let site = site(&[dynamic, filter("htnn", "fm", &plugins(&[demo("x-base")]))], Origin::echo("a"), http);
    let seen = |path: &str| {
        site.origin.forget();
        let answer = site.proxy.get(path);
        let requests = site.origin.requests();
        let names = ["x-base", "x-own"].map(|name| requests.iter().any(|request| request.headers.contains(name)));
        (answer.status, names, answer.headers.values("demokey").join("|"))
    };
    assert_eq!(seen("/plain"), (200, [true, false], "from-dc".into()));
    assert_eq!(seen("/own"), (200, [false, true], "from-dc".into()), "the route's in place of the gateway's");
    assert_eq!(seen("/more").1, [true, false], "both run");
    assert_eq!(seen("/few"), (200, [true, false], "from-dc".into()));
    assert_eq!(seen("/few").0, 429, "the limit of a route holds from request to request");
    assert_eq!(seen("/plain").0, 200);
}

#[test]
fn an_external_service_decides() {
    if envoy() {
        return;
    }
    let service = |answer: &str| Origin::fixed(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n"));
    let (yes, no) = (service("200 OK"), service("403 Forbidden"));
    let ask = |origin: &Origin| {
        ("extAuth", json!({"httpService": {"url": format!("http://{}/check", origin.address), "timeout": "5s"}}))
    };
    let http = routes(&[route("/yes", &[ask(&yes)]), route("/no", &[ask(&no)])]);
    let site = site(&[filter("htnn", "fm", &json!({}))], Origin::echo("a"), http);
    assert_eq!(site.proxy.get("/yes").status, 200);
    assert_eq!(site.proxy.get("/no").status, 403);
    assert_eq!((yes.requests().len(), no.requests().len(), site.origin.requests().len()), (1, 1, 1));
}
