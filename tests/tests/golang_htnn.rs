//! HTNN's collection of plugins as it comes: its consumers, dynamic configurations, and plugins that routes merge.

use postrider_tests::envoy;
use postrider_tests::golang::{Site, filter, gateway, site};
use postrider_tests::htnn::{self, HOMES, ask, consumers, plugins, route, routes};
use postrider_tests::kit::{Origin, Proxy, wait_until};
use serde_json::json;

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
    let of = |version: u32, all: &[(&str, &str)]| {
        let all: Vec<_> = all.iter().map(|(name, key)| (*name, "keyAuth", json!({"key": key}))).collect();
        [consumers(version, &all), filter("htnn", "fm", &json!({}))]
    };
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
        let answer = ask(&site, path, fields);
        assert_eq!(answer.status, wanted, "{path} {fields}: {answer:?}");
    }
    let seen = site.origin.requests();
    assert!(seen.iter().all(|request| !request.headers.contains("x-key") && !request.target.contains("key=")));

    let verdict = site.proxy.reload(gateway(&of(2, &[("tom", "new")]), &site.origin, http).to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(ask(&site, "/tom", "x-key: t\r\n").status, 401);
    assert_eq!(ask(&site, "/tom", "x-key: new\r\n").status, 200);
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

#[test]
fn slow_requests_are_reported() {
    if envoy() {
        return;
    }
    let all = plugins(&[
        ("debugMode", json!({"slowLog": {"threshold": "0.000001s"}})),
        ("demo", json!({"hostName": "x-base"})),
    ]);
    for home in HOMES {
        let site = htnn::site(home, &[filter("htnn", "fm", &all)], Origin::echo("a"), json!({}));
        assert_eq!(ask(&site, "/slow", "x-own: o\r\n").status, 200);
        let mut report = serde_json::Value::Null;
        wait_until("a report", || {
            let log = site.proxy.stderr();
            let Some((_, found)) = log.split_once("slow log report: ") else { return false };
            // It may be on its way still.
            let whole = serde_json::Deserializer::from_str(found).into_iter().next().and_then(Result::ok);
            whole.map(|found| report = found).is_some()
        });
        let report = report;
        let is = |pointer: &str, wanted: serde_json::Value| {
            assert_eq!(report.pointer(pointer), Some(&wanted), "home `{home}`: {report}");
        };
        assert!(report["total_seconds"].as_f64() > Some(0.0), "home `{home}`: {report}");
        is("/request/headers/x-own", json!(["o"]));
        is("/request/headers/:path", json!(["/slow"]));
        is("/response/headers/:status", json!(["200"]));
        is("/stream_info/upstream_remote_address", json!(site.origin.address.to_string()));
        assert!(report["stream_info"]["downstream_remote_address"].as_str().unwrap().starts_with("127.0.0.1:"));
        let executed = report["executed_plugins"].as_array().unwrap_or_else(|| panic!("home `{home}`: {report}"));
        assert!(executed.iter().any(|plugin| plugin["name"] == "demo"), "home `{home}`: {report}");
    }
}
