//! HTNN's plugins that say how much may come in: by Sentinel's rules, and by counts that a Redis server keeps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use postrider_tests::envoy;
use postrider_tests::golang::filter;
use postrider_tests::htnn::{HOMES, ask, plugins, site, with};
use postrider_tests::kit::{Origin, net, wait_until};
use postrider_tests::redis;
use serde_json::{Value, json};

#[test]
fn a_resource_has_so_many_requests() {
    if envoy() {
        return;
    }
    let rule = json!({
        "resource": "shop", "threshold": 2, "statIntervalInMs": 600_000,
        "blockResponse": {"statusCode": 503, "message": "later", "headers": {"x-why": "flow"}},
    });
    for home in HOMES {
        let site = with(home, "sentinel", json!({"resource": {"key": "x-resource"}, "flow": {"rules": [rule]}}));
        let shop = || ask(&site, "/", "x-resource: shop\r\n");
        assert_eq!([shop().status, shop().status], [200, 200], "{home}");
        let blocked = shop();
        assert_eq!((blocked.status, blocked.header("x-why")), (503, "flow"), "{home}");
        assert_eq!(blocked.text(), r#"{"msg":"later"}"#);
        assert_eq!(ask(&site, "/", "x-resource: other\r\n").status, 200, "{home}");
        assert_eq!(site.proxy.get("/").status, 200, "{home}");
    }
}

#[test]
fn a_value_that_many_ask_for_has_so_many_requests() {
    if envoy() {
        return;
    }
    let config = json!({
        "resource": {"from": "QUERY", "key": "res"},
        "hotSpot": {
            "attachments": [{"key": "x-user"}],
            "rules": [{"resource": "shop", "metricType": "QPS", "threshold": 1, "durationInSec": 600, "paramKey": "x-user"}],
        },
    });
    let site = with("", "sentinel", config);
    let status = |user: &str| ask(&site, "/?res=shop", &format!("x-user: {user}\r\n")).status;
    assert_eq!([status("ann"), status("ann"), status("bob"), status("bob")], [200, 429, 200, 429]);
}

#[test]
fn answers_that_fail_break_a_circuit() {
    if envoy() {
        return;
    }
    let rule = json!({
        "resource": "shop", "strategy": "ERROR_COUNT", "threshold": 2, "minRequestAmount": 1, "probeNum": 1,
        "statIntervalMs": 600_000, "retryTimeoutMs": 600_000, "triggeredByStatusCodes": [502],
        "blockResponse": {"statusCode": 418, "message": "broken"},
    });
    let config = json!({"resource": {"key": "x-resource"}, "circuitBreaker": {"rules": [rule]}});
    for home in HOMES {
        let failing = Origin::fixed("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
        let chain = [filter("htnn", "fm", &plugins(&[("sentinel", config.clone())]))];
        let site = site(home, &chain, failing, json!({}));
        // What an answer was is noted when its stream ends, which its client does not wait for.
        let mut seen = Vec::new();
        wait_until("the circuit to break", || {
            seen.push(ask(&site, "/", "x-resource: shop\r\n").status);
            seen.last() == Some(&418)
        });
        assert!(seen.len() >= 3 && seen[..seen.len() - 1].iter().all(|status| *status == 502), "{home} {seen:?}");
        assert_eq!(ask(&site, "/", "x-resource: other\r\n").status, 502, "{home}");
    }
}

/// Keeps counts as the plugin's script does, with this time to live.
fn counts(ttl: i64) -> Origin {
    let left: Mutex<HashMap<String, i64>> = Mutex::default();
    redis::server(move |words| {
        match words[0].to_lowercase().as_str() {
            "eval" => {
                assert!(words[1].contains("redis.call('incrby',KEYS[i],-1)"), "another script: {}", words[1]);
                let keys = words[2].parse().expect("a number of keys");
                let (keys, limits) = words[3..].split_at(keys);
                let mut left = left.lock().unwrap();
                let mut answer = format!("*{}\r\n", keys.len() * 2);
                for (key, limit) in keys.iter().zip(limits.chunks(2)) {
                    let left = left.entry(key.clone()).or_insert_with(|| limit[0].parse().expect("a limit"));
                    *left -= 1;
                    answer.push_str(&format!(":{left}\r\n:{ttl}\r\n"));
                }
                answer
            }
            // The protocol's third version, which an old server does not know.
            "hello" => "-ERR unknown command 'hello'\r\n".to_owned(),
            "auth" if words[1..] == ["someone", "secret"] => "+OK\r\n".to_owned(),
            "client" => "+OK\r\n".to_owned(),
            _ => "-ERR unknown\r\n".to_owned(),
        }
    })
}

fn limits(address: impl ToString, more: Value) -> Value {
    let mut config = json!({
        "address": address.to_string(), "prefix": "p", "username": "someone", "password": "secret",
        "rules": [
            {"timeWindow": "60s", "count": 2, "key": "request.header(\"x-user\")"},
            {"timeWindow": "600s", "count": 3},
        ],
        "enableLimitQuotaHeaders": true,
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn counts_are_kept_by_a_redis_server() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let server = counts(42);
        let site = with(home, "limitCountRedis", limits(server.address, json!({})));
        let answer = |user: &str| {
            let answer = ask(&site, "/", &format!("x-user: {user}\r\n"));
            let quota =
                ["limit", "remaining", "reset"].map(|name| answer.header(&format!("x-ratelimit-{name}")).to_owned());
            (answer.status, quota.join(" / "), answer.header("x-envoy-ratelimited").to_owned())
        };
        let passed = |quota: &str| (200, quota.to_owned(), String::new());
        assert_eq!(answer("ann"), passed("2, 2;w=60, 3;w=600 / 1 / 42"), "{home}");
        assert_eq!(answer("ann"), passed("2, 2;w=60, 3;w=600 / 0 / 42"), "{home}");
        let denied = (429, "2, 2;w=60, 3;w=600 / 0 / 42".to_owned(), "true".to_owned());
        assert_eq!(answer("ann"), denied, "{home}");
        let denied = (429, "3, 2;w=60, 3;w=600 / 0 / 42".to_owned(), "true".to_owned());
        assert_eq!(answer("bob"), denied, "{home}: four requests of one address");
    }
}

/// A cluster of one server, which keeps a count for each key.
fn cluster() -> Origin {
    let port: Arc<OnceLock<u16>> = Arc::default();
    let own = port.clone();
    let left: Mutex<HashMap<String, i64>> = Mutex::default();
    let server = redis::server(move |words| match words[0].to_lowercase().as_str() {
        "cluster" if words[1].eq_ignore_ascii_case("slots") => {
            let port = own.get().expect("it was asked when it listened");
            format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
        }
        "eval" => {
            assert!(words[1].contains("redis.call('incrby',KEYS[1],-1)"), "another script: {}", words[1]);
            let [_, _, count, key, limit, window] = words else { panic!("{words:?}") };
            assert_eq!((count.as_str(), window.as_str()), ("1", "600"));
            let mut left = left.lock().unwrap();
            let left = left.entry(key.clone()).or_insert_with(|| limit.parse().expect("a limit"));
            *left -= 1;
            format!("*2\r\n:{left}\r\n:7\r\n")
        }
        _ => "-ERR unknown\r\n".to_owned(),
    });
    port.set(server.address.port()).unwrap();
    server
}

#[test]
fn counts_are_kept_by_a_cluster_of_redis_servers() {
    if envoy() {
        return;
    }
    for home in HOMES {
        let server = cluster();
        let config = |prefix: &str, more: Value| {
            let rule = json!({"timeWindow": "600s", "count": 1, "key": "request.header(\"x-user\")"});
            let mut config = json!({
                "cluster": {"addresses": [server.address.to_string()]}, "prefix": prefix,
                "rules": [rule, {"timeWindow": "600s", "count": 3}],
            });
            for (key, value) in more.as_object().unwrap() {
                config[key] = value.clone();
            }
            config
        };
        let site = with(home, "limitCountRedis", config("a", json!({})));
        let answer = |user: &str| {
            let answer = ask(&site, "/", &format!("x-user: {user}\r\n"));
            assert!(!answer.headers.contains("x-ratelimit-limit"), "{answer:?}");
            (answer.status, answer.header("x-envoy-ratelimited").to_owned())
        };
        let said = ["ann", "ann", "bob", "eve"].map(answer);
        let denied = (429, "true".to_owned());
        assert_eq!(said, [(200, String::new()), denied.clone(), (200, String::new()), denied], "{home}");
        let more = json!({"rateLimitedStatus": "ServiceUnavailable", "disableXEnvoyRatelimitedHeader": true});
        let site = with(home, "limitCountRedis", config("b", more));
        let answer = || ask(&site, "/", "x-user: ann\r\n");
        let said = [answer(), answer()].map(|answer| (answer.status, answer.headers.contains("x-envoy-ratelimited")));
        assert_eq!(said, [(200, false), (503, false)], "{home}");
    }
}

#[test]
fn a_redis_server_that_is_not_there_lets_requests_pass_or_not() {
    if envoy() {
        return;
    }
    let nobody = net::refusing_address();
    let open = with("", "limitCountRedis", limits(nobody, json!({})));
    let answer = open.proxy.get("/");
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, ""));
    let closed = with(
        "",
        "limitCountRedis",
        limits(nobody, json!({"failureModeDeny": true, "statusOnError": "ServiceUnavailable"})),
    );
    assert_eq!(closed.proxy.get("/").status, 503);
    let closed = with("", "limitCountRedis", limits(nobody, json!({"failureModeDeny": true})));
    assert_eq!(closed.proxy.get("/").status, 500);
}
