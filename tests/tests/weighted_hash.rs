//! Weighted clusters that a hash of the request chooses (`use_hash_policy`).

use postrider_tests::kit::config::Config;
use postrider_tests::kit::{Origin, Proxy, RawClient};
use serde_json::{Value, json};

/// The clusters that real Envoy chooses for `key-0`, `key-1` and so on, of which `a` weighs 30, `b` 50 and `c` 20.
const ENVOYS: &str =
    "bbbbaaabbcabbcbacbaaccababacbcbbabbacbbbbbabaabbacbbbabbabcbbbbaabbcbbbacbccbbbbcbbbbbbaaabcbccbcbcc";
/// The same where a second header `z0`, `z1` and so on is hashed, too.
const ENVOYS_OF_TWO: &str = "aabbbabbbbbcbacbbaabbbbbcccbabababbabbabbbcaabbcab";

fn route(path: &str, hash_policy: &Value, more: Value) -> Value {
    let weighted = |name: &str, weight: u32| json!({"name": name, "weight": weight});
    let mut clusters = json!({"clusters": [weighted("a", 30), weighted("b", 50), weighted("c", 20)]});
    postrider_tests::kit::config::overlay(&mut clusters, more);
    json!({"match": {"path": path}, "route": {"weighted_clusters": clusters, "hash_policy": hash_policy}})
}

fn ask(client: &mut RawClient, path: &str, fields: &str) -> String {
    let response = client.exchange(format!("GET {path} HTTP/1.1\r\nhost: x\r\n{fields}\r\n"));
    assert_eq!((response.status, response.header("set-cookie")), (200, ""));
    response.text().to_owned()
}

#[test]
fn keys_find_the_clusters_that_envoy_sends_them_to() {
    let origins = ["a", "b", "c"]
        .map(|letter| (letter, Origin::fixed(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{letter}"))));
    let by_header = json!([{"header": {"header_name": "x-k"}}]);
    let by_two = json!([{"header": {"header_name": "x-k"}}, {"header": {"header_name": "x-l"}}]);
    let by_cookie = json!([{"cookie": {"name": "c", "ttl": "3600s"}}]);
    let by_hash = || json!({"use_hash_policy": true});
    let routes = json!([
        route("/header", &by_header, by_hash()),
        route("/two", &by_two, by_hash()),
        route("/cookie", &by_cookie, by_hash()),
        route("/off", &by_header, json!({"use_hash_policy": false})),
    ]);
    let mut config = Config::routes(routes);
    for (letter, origin) in &origins {
        config = config.cluster(letter, &[origin.address]);
    }
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    for (key, letter) in ENVOYS.chars().enumerate() {
        assert_eq!(ask(&mut client, "/header", &format!("x-k: key-{key}\r\n")), letter.to_string(), "key-{key}");
        assert_eq!(ask(&mut client, "/cookie", &format!("cookie: c=key-{key}\r\n")), letter.to_string(), "key-{key}");
    }
    for (key, letter) in ENVOYS_OF_TWO.chars().enumerate() {
        let fields = format!("x-k: key-{key}\r\nx-l: z{key}\r\n");
        assert_eq!(ask(&mut client, "/two", &fields), letter.to_string(), "key-{key}");
    }
    // Chance decides where there is nothing to hash, or nobody wants it: a cookie is not made for that.
    for (path, fields) in [("/header", ""), ("/cookie", ""), ("/off", "x-k: key-1\r\n")] {
        let met: std::collections::BTreeSet<_> = (0..60).map(|_| ask(&mut client, path, fields)).collect();
        assert_eq!(met.len(), 3, "{path}");
    }
}
