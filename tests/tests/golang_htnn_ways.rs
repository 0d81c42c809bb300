//! HTNN's plugins, each by all the ways that a request can take through it.

use postrider_tests::envoy;
use postrider_tests::golang::{filter, gateway, per_route};
use postrider_tests::htnn::{HOMES, ask, consumers, plugins, site, with};
use postrider_tests::kit::config::file_access_log;
use postrider_tests::kit::proxy::accepted;
use postrider_tests::kit::{Origin, Proxy, RawClient, Response, TempDir, net, wait_until};
use postrider_tests::plugins::typed;
use serde_json::{Value, json};

/// Plugins of a route, a request, and the status that it is answered with.
type Way<'w> = (Vec<(&'w str, Value)>, &'w str, &'w str, u16);

/// A plugin of a route of its own, and what becomes of a request there.
fn way<'w>(plugin: &'w str, config: Value, target: &'w str, fields: &'w str, wanted: u16) -> Way<'w> {
    (vec![(plugin, config)], target, fields, wanted)
}

/// A route for each; behind a filter, if there is one.
fn go(home: &str, before: Option<Value>, ways: &[Way<'_>]) {
    let route = |(index, (all, ..)): (usize, &Way<'_>)| {
        let matched =
            json!({"prefix": "/", "headers": [{"name": "x-way", "string_match": {"exact": index.to_string()}}]});
        json!({
            "match": matched, "route": {"cluster": "origin"}, "typed_per_filter_config": per_route("fm", &plugins(all)),
        })
    };
    let routes: Vec<Value> = ways.iter().enumerate().map(route).collect();
    let http = json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}});
    let chain: Vec<Value> = before.into_iter().chain([filter("htnn", "fm", &json!({}))]).collect();
    let site = site(home, &chain, Origin::echo("a"), http);
    for (index, (all, target, fields, wanted)) in ways.iter().enumerate() {
        let answer = ask(&site, target, &format!("{fields}x-way: {index}\r\n"));
        assert_eq!(answer.status, *wanted, "{home} {all:?} {target} {fields}: {answer:?}");
    }
}

#[test]
fn expressions_know_all_of_a_request_and_whose_it_is() {
    if envoy() {
        return;
    }
    let target = "/a/b?c=1&d=2&d=3";
    let fields = "x-a: 1\r\nx-b: 2\r\nx-b: 3\r\nx-request-id: r\r\n";
    for home in HOMES {
        let all = [
            ("request.path() == '/a/b?c=1&d=2&d=3'", 200),
            ("request.url_path() == '/a/b'", 200),
            ("request.query_path() == 'c=1&d=2&d=3'", 200),
            ("request.query('c') + request.query('d') + request.query('e') == '12,3'", 200),
            ("request.host() == 'test' && request.method() == 'GET' && request.scheme() == 'http'", 200),
            ("request.header('x-a') + request.header('X-B') + request.header('x-c') == '12,3'", 200),
            ("request.id() != '' && request.id() == request.header('x-request-id')", 200),
            ("source.ip() == '127.0.0.1' && source.address() == source.ip() + ':' + string(source.port())", 200),
            ("request.method() == 'POST'", 403),
            // What cannot be evaluated lets nobody in.
            ("int(request.header('x-a')) / int(request.query('zero') + '0') == 1", 503),
        ];
        let way = |(expression, wanted)| way("celScript", json!({"allowIf": expression}), target, fields, wanted);
        go(home, None, &all.map(way));
    }
}

#[test]
fn keys_are_looked_for_in_order_and_once_each() {
    if envoy() {
        return;
    }
    let keys = json!({"keys": [{"name": "x-key"}, {"name": "k", "source": "QUERY"}]});
    for home in HOMES {
        let all = [
            consumers(1, &[("ann", "keyAuth", json!({"key": "a b"}))]),
            filter("htnn", "fm", &plugins(&[("keyAuth", keys.clone())])),
        ];
        let site = site(home, &all, Origin::echo("a"), json!({}));
        let json = "application/json";
        for (target, fields, status, body, kind) in [
            ("/?k=a+b&c=1", "", 200, "", ""),
            ("/?c=1", "x-key: a b\r\n", 200, "", ""),
            // The first that is there counts.
            ("/?k=a+b", "x-key: other\r\n", 401, r#"{"msg":"invalid key"}"#, json),
            ("/", "x-key: a b\r\nx-key: a b\r\n", 401, r#"{"msg":"duplicate key found"}"#, json),
            ("/?k=1&k=1", "content-type: application/json\r\n", 401, r#"{"msg":"duplicate key found"}"#, json),
            ("/?k=1", "content-type: text/html\r\n", 401, "invalid key", "text/plain"),
        ] {
            site.origin.forget();
            let answer = ask(&site, target, fields);
            assert_eq!(answer.status, status, "{home} {target} {fields}: {answer:?}");
            if status != 200 {
                assert_eq!((answer.text(), answer.headers.values("content-type")), (body, vec![kind]), "{target}");
                continue;
            }
            let arrived = site.origin.requests().remove(0);
            assert_eq!((arrived.target.as_str(), arrived.headers.value("x-key")), ("/?c=1", None), "{home}");
        }
    }
}

#[test]
fn consumers_are_let_in_or_not_by_name_and_method() {
    if envoy() {
        return;
    }
    let key = ("keyAuth", json!({"keys": [{"name": "x-key"}]}));
    let known = |key: &str| json!({"key": key});
    let of = |rules: &Value, name: &'static str, wanted: u16| -> Way<'static> {
        (vec![key.clone(), ("consumerRestriction", rules.clone())], "/", name, wanted)
    };
    let gets = |methods: &Value| json!({"rules": [{"name": "ann", "methods": methods}]});
    for home in HOMES {
        let mut ways = Vec::new();
        // For ann, for bob, and for nobody.
        for (rules, wanted) in [
            (json!({"allow": gets(&json!(["GET", "HEAD"]))}), [200, 403, 401]),
            (json!({"allow": gets(&json!(["POST"]))}), [403, 403, 401]),
            (json!({"allow": gets(&json!([]))}), [200, 403, 401]),
            (json!({"deny": gets(&json!(["GET"]))}), [403, 200, 401]),
            (json!({"deny": gets(&json!(["POST"]))}), [200, 200, 401]),
            (json!({"deny": gets(&json!([]))}), [403, 200, 401]),
            (json!({"denyIfNoConsumer": true}), [200, 200, 401]),
        ] {
            let names = ["x-key: a\r\n", "x-key: b\r\n", ""];
            ways.extend(names.into_iter().zip(wanted).map(|(name, wanted)| of(&rules, name, wanted)));
        }
        let all = consumers(1, &[("ann", "keyAuth", known("a")), ("bob", "keyAuth", known("b"))]);
        go(home, Some(all), &ways);
    }
}

#[test]
fn a_consumer_brings_plugins_of_its_own() {
    if envoy() {
        return;
    }
    let consumer = |host: &str| {
        let auth = json!({"keyAuth": json!({"key": host}).to_string()});
        let filters = json!({
            "demo": {"config": {"hostName": format!("x-{host}")}},
            "limitReq": {"config": {"average": 1, "period": "600s"}},
        });
        json!({"v": 1, "d": json!({"auth": auth, "filters": filters}).to_string()})
    };
    for home in HOMES {
        let all = [
            filter("htnn", "cm", &json!({"ns": {"ann": consumer("ann"), "bob": consumer("bob")}})),
            filter(
                "htnn",
                "fm",
                &plugins(&[("keyAuth", json!({"keys": [{"name": "x-key"}]})), ("demo", json!({"hostName": "x-base"}))]),
            ),
        ];
        let site = site(home, &all, Origin::echo("a"), json!({}));
        let as_whom = |name: &str| {
            site.origin.forget();
            let status = ask(&site, "/", &format!("x-key: {name}\r\n")).status;
            let arrived = site.origin.requests();
            let marks = ["x-base", "x-ann", "x-bob"].map(|mark| arrived.iter().any(|one| one.headers.contains(mark)));
            (status, marks)
        };
        assert_eq!(as_whom("ann"), (200, [false, true, false]), "{home}: in place of the gateway's");
        assert_eq!(as_whom("ann").0, 429, "{home}: the limit is ann's");
        assert_eq!(as_whom("bob"), (200, [false, false, true]), "{home}");
        assert_eq!(ask(&site, "/", "").status, 200, "{home}");
        assert!(site.origin.requests().last().is_some_and(|arrived| arrived.headers.contains("x-base")), "{home}");
    }
}

#[test]
fn a_plugin_reads_the_filter_state_that_others_set() {
    if envoy() {
        return;
    }
    let guest = json!({"on_request_headers": [{
        "object_key": "guest_name", "factory_key": "envoy.string",
        "format_string": {"text_format_source": {"inline_string": "%REQ(x-guest)%"}},
    }]});
    let guest = typed("guest", "envoy.extensions.filters.http.set_filter_state.v3.Config", guest);
    for home in HOMES {
        let demo = filter("htnn", "fm", &plugins(&[("demo", json!({"hostName": "x-demo"}))]));
        let site = site(home, &[guest.clone(), demo], Origin::echo("a"), json!({}));
        assert_eq!(ask(&site, "/", "x-guest: ann\r\n").status, 200);
        assert_eq!(site.origin.requests()[0].header("x-demo"), "hello, ann", "{home}");
    }
}

#[test]
fn a_bucket_holds_what_it_may_and_is_found_by_an_expression() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let config = json!({"average": 1, "period": "600s", "burst": 2, "key": "request.header('x-user')"});
        let site = with(home, "limitReq", config);
        let status = |user: &str| ask(&site, "/", &format!("x-user: {user}\r\n")).status;
        assert_eq!([status("ann"), status("ann"), status("ann"), status("bob")], [200, 200, 429, 200], "{home}");
        // Those without a name are known by their addresses.
        assert_eq!([ask(&site, "/", "").status, status(""), status("")], [200, 200, 429], "{home}");
    }
}

/// What a service that decides answers with: by the path that it is asked for, which is the request's behind its own.
fn decider() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let (status, body) = match request.target.as_str() {
                "/check/in" => ("200 OK", "welcome"),
                "/check/busy" => ("503 Service Unavailable", ""),
                _ => ("401 Unauthorized", "denied!"),
            };
            let fields =
                "x-user: one\r\nx-user: two\r\nx-other: 3\r\nwww-authenticate: Basic\r\ncontent-type: text/html\r\n";
            let length = body.len();
            connection.write(format!("HTTP/1.1 {status}\r\n{fields}content-length: {length}\r\n\r\n{body}").as_bytes());
        }
    })
}

#[test]
fn a_service_decides_with_all_that_it_may_say() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let service = decider();
        let url = format!("http://{}/check", service.address);
        let of = |more: Value| {
            let mut config = json!({"httpService": {"url": url, "timeout": "10s"}});
            for (key, value) in more["httpService"].as_object().into_iter().flatten() {
                config["httpService"][key] = value.clone();
            }
            for key in ["failureModeAllow", "failureModeAllowHeaderAdd"] {
                config[key] = json!(more[key] == true);
            }
            config
        };
        let config = of(json!({"httpService": {
            "authorizationRequest": {"headersToAdd": [{"key": "x-from", "value": "proxy"}]},
            "authorizationResponse": {"allowedUpstreamHeaders": [{"exact": "x-USER"}]},
        }}));
        let looks = filter(
            "sdk38",
            "script",
            &json!({
                "encode_headers": [{"op": "get", "key": "content-length", "to": "x-length"}], "encode_data": [],
            }),
        );
        let chain = [looks, filter("htnn", "fm", &plugins(&[("extAuth", config)]))];
        let site = site(home, &chain, Origin::echo("a"), json!({}));
        assert_eq!(ask(&site, "/in", "authorization: me\r\nx-mine: 1\r\n").status, 200, "{home}");
        let asked = service.requests().remove(0);
        assert_eq!(
            (asked.method.as_str(), asked.header("host"), asked.header("authorization"), asked.header("x-from")),
            ("GET", "test", "me", "proxy"),
            "{home}"
        );
        assert!(!asked.headers.contains("x-mine"));
        let arrived = site.origin.requests().remove(0);
        assert_eq!((arrived.headers.values("x-user"), arrived.headers.value("x-other")), (vec!["two"], None), "{home}");

        // All that the service said reaches the client, but for its body and what described that.
        let mut client = RawClient::connect(site.proxy.address("http"));
        for _ in 0..2 {
            let denied = client.exchange("GET /out HTTP/1.1\r\nhost: test\r\n\r\n");
            assert_eq!((denied.status, denied.text()), (401, ""), "{home}: {denied:?}");
            assert_eq!(denied.headers.values("content-length"), ["0"], "{home}: {denied:?}");
            assert_eq!(
                denied.header("x-length"),
                ",false",
                "{home}: what described it is not for other filters either"
            );
            assert_eq!(denied.headers.value("content-type"), None, "{home}: {denied:?}");
            assert_eq!(denied.headers.values("x-user"), ["one", "two"], "{home}");
            assert_eq!((denied.header("www-authenticate"), denied.header("x-other")), ("Basic", "3"), "{home}");
        }

        let few = of(json!({"httpService": {"authorizationResponse": {"allowedClientHeaders": [{"prefix": "www-"}]}}}));
        let denied = ask(&with(home, "extAuth", few), "/out", "");
        assert_eq!((denied.status, denied.header("www-authenticate")), (401, "Basic"), "{home}");
        assert!(!denied.headers.contains("x-user") && !denied.headers.contains("x-other"), "{home}: {denied:?}");

        let gone = format!("http://{}", net::refusing_address());
        let busy = |more: Value, wanted| way("extAuth", of(more), "/busy", "", wanted);
        let gone = |mut more: Value, wanted| {
            more["httpService"]["url"] = json!(gone);
            way("extAuth", of(more), "/in", "", wanted)
        };
        go(
            home,
            None,
            &[
                busy(json!({}), 403),
                busy(json!({"httpService": {"statusOnError": "BadGateway"}}), 502),
                gone(json!({}), 403),
                gone(json!({"httpService": {"statusOnError": "ServiceUnavailable"}}), 503),
                gone(json!({"failureModeAllow": true}), 200),
            ],
        );
        let open = of(json!({"failureModeAllow": true, "failureModeAllowHeaderAdd": true}));
        let open = with(home, "extAuth", open);
        assert_eq!(ask(&open, "/busy", "").status, 200, "{home}");
        assert_eq!(open.origin.requests()[0].header("x-envoy-auth-failure-mode-allowed"), "true", "{home}");
    }
}

fn post(site: &postrider_tests::golang::Site, path: &str, framing: &str, body: &str) -> Response {
    site.proxy.exchange(format!("POST {path} HTTP/1.1\r\nhost: test\r\n{framing}\r\n{body}"))
}

#[test]
fn a_service_decides_by_the_whole_body_which_then_goes_on() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let service = decider();
        let url = format!("http://{}/check", service.address);
        let whole = json!({"httpService": {"url": url, "timeout": "10s", "withRequestBody": true}});
        let site = with(home, "extAuth", whole);
        for (framing, body) in [
            ("content-length: 6\r\n", "abcdef"),
            ("transfer-encoding: chunked\r\n", "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"),
            ("transfer-encoding: chunked\r\ntrailer: x-t\r\n", "3\r\nabc\r\n3\r\ndef\r\n0\r\nx-t: 1\r\n\r\n"),
        ] {
            service.forget();
            site.origin.forget();
            let answer = post(&site, "/in", framing, body);
            assert_eq!(answer.status, 200, "{home} {framing}: {answer:?}");
            let arrived = site.origin.requests().remove(0);
            assert_eq!(arrived.body, b"abcdef", "{home} {framing}");
            assert_eq!(arrived.trailers.contains("x-t"), framing.contains("x-t"), "{home} {framing}");
            assert_eq!(service.requests().remove(0).body, b"abcdef", "{home} {framing}");
            assert_eq!(post(&site, "/out", framing, body).status, 401, "{home} {framing}");
        }
        assert_eq!(ask(&site, "/in", "").status, 200, "{home}: there is no body");
        assert_eq!(ask(&site, "/out", "").status, 401, "{home}");
    }
}

#[test]
fn the_log_tells_which_plugin_answered() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let (folder, origin) = (TempDir::new(), Origin::echo("a"));
        let log = folder.path().join("log");
        let line = "%RESPONSE_CODE% %DYNAMIC_METADATA(htnn:local_reply_plugin_name)%\n";
        let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
        let http = json!({"access_log": [file_access_log(&log, format)]});
        let deny = plugins(&[("celScript", json!({"allowIf": "request.path() != '/no'"}))]);
        let site = site(home, &[filter("htnn", "fm", &deny)], origin, http);
        assert_eq!([ask(&site, "/no", "").status, ask(&site, "/yes", "").status], [403, 200]);
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("both lines", || read().lines().count() == 2);
        let mut lines: Vec<_> = read().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["200 -", "403 celScript"], "{home}");
    }
}

#[test]
fn a_plugin_whose_configuration_is_wrong_answers_with_500_and_others_are_passed_by() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let wrong = |plugin, config| way(plugin, config, "/", "", 500);
        go(
            home,
            None,
            &[
                wrong("celScript", json!({"allowIf": "no such thing"})),
                wrong("limitReq", json!({})),
                wrong("extAuth", json!({})),
                wrong("casbin", json!({"rule": {"model": "/no/such", "policy": "/no/such"}, "token": {"name": "x"}})),
                wrong("opa", json!({"local": {"text": "package x\nallow = "}})),
                way("nobodyKnowsIt", json!({}), "/", "", 200),
                (Vec::new(), "/", "", 200),
            ],
        );
    }
}

#[test]
fn a_client_that_leaves_is_logged_without_an_answer() {
    if envoy() {
        return;
    }
    let rule = json!({"resource": "shop", "threshold": 5, "statIntervalInMs": 600_000});
    let all = plugins(&[
        ("debugMode", json!({"slowLog": {"threshold": "0.000001s"}})),
        ("sentinel", json!({"resource": {"key": "x-resource"}, "flow": {"rules": [rule]}})),
    ]);
    for home in HOMES {
        let site = site(home, &[filter("htnn", "fm", &all)], Origin::silent(), json!({}));
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send("GET /left HTTP/1.1\r\nhost: test\r\nx-resource: shop\r\n\r\n");
        site.origin.wait_connections(1);
        client.reset();
        let mut report = String::new();
        wait_until("the report", || {
            let log = site.proxy.stderr();
            let found = log.split_once("slow log report: ").and_then(|(_, found)| found.split_once('\n'));
            found.map(|(line, _)| report = line.to_owned()).is_some()
        });
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["request"]["headers"][":path"], json!(["/left"]), "{home}: {report}");
        assert_eq!(report["response"], json!({}), "{home}: {report}");
        let mut next = RawClient::connect(site.proxy.address("http"));
        next.send("GET /next HTTP/1.1\r\nhost: test\r\nx-resource: shop\r\n\r\n");
        site.origin.wait_connections(2);
    }
}

#[test]
fn a_dynamic_configuration_that_is_wrong_is_refused_and_the_last_one_stays() {
    if envoy() {
        return;
    }
    let origin = Origin::echo("a");
    let of = |dynamic: Value| {
        let demo = plugins(&[("demo", json!({"hostName": "x-demo"}))]);
        gateway(&[filter("htnn", "dc", &dynamic), filter("htnn", "fm", &demo)], &origin, json!({}))
    };
    let key = |key: Value| json!({"name": "demo", "config": {"key": key}});
    let mut proxy = Proxy::start(&of(key(json!("one"))));
    for wrong in [key(json!("")), key(json!(1)), json!({"name": "demo"}), json!({"config": {"key": "two"}})] {
        let verdict = proxy.reload(of(wrong.clone()).to_yaml());
        assert!(!accepted(&verdict), "{wrong}: {verdict}");
        assert!(verdict.to_string().contains("the Go plugin `dc` refuses this configuration"), "{wrong}: {verdict}");
        assert_eq!(proxy.get("/").headers.values("demokey"), ["one"], "{wrong}");
    }
    // One that nobody knows is passed by, as one of a plugin is.
    assert!(accepted(&proxy.reload(of(json!({"name": "nobodyKnowsIt", "config": {}})).to_yaml())));
    assert!(accepted(&proxy.reload(of(key(json!("two"))).to_yaml())));
    wait_until("the next one", || proxy.get("/").headers.values("demokey") == ["two"]);
}
