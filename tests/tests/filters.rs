//! The filters of the first cut: basic_auth and header_mutation on the router.

use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::{envoy, get, postrider_only};
use serde_json::{Value, json};

/// `htpasswd -s` lines: fooname:validpassword and bar:secret.
const USERS: &str = "fooname:{SHA}uyEhawnTvi2eQL6rOK5XrysR0IE=\nbar:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http";

fn basic_auth(fields: Value) -> Value {
    extension("envoy.filters.http.basic_auth", "filters.http.basic_auth.v3.BasicAuth", fields)
}

fn users(text: &str) -> Value {
    json!({"users": {"inline_string": text}})
}

fn header_mutation(mutations: Value) -> Value {
    extension(
        "envoy.filters.http.header_mutation",
        "filters.http.header_mutation.v3.HeaderMutation",
        json!({"mutations": mutations}),
    )
}

fn site(filters: Value, routes: Value, origin: &Origin) -> Proxy {
    let mut filters = filters;
    filters.as_array_mut().unwrap().push(router());
    let config = Config::new()
        .http(json!({
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster("origin", &[origin.address]);
    Proxy::start(&config)
}

fn to_origin() -> Value {
    json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}])
}

fn ask(proxy: &Proxy, path: &str, fields: &str) -> Response {
    proxy.exchange(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"))
}

const FOONAME: &str = "authorization: Basic Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\n";

#[test]
fn counters_of_filters_were_not_there_before_the_first_request() {
    let rbac = extension("envoy.filters.http.rbac", "filters.http.rbac.v3.RBAC", json!({"rules": {}}));
    let config = Config::routes(json!([{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]))
        .overlay_filter("http", json!({"http_filters": [rbac, router()]}));
    let proxy = Proxy::start(&config);
    let stats = || proxy.admin_get("/stats").text().to_owned();
    wait_until("they are there", || stats().contains("http.ingress_http.rbac.denied: 0\n"));
}

/// What a filter was told by one choice has to hold for the request.
#[test]
fn a_request_went_to_another_share_than_its_filters_were_configured_for() {
    let lua = |name: &str, script: &str| {
        let source = json!({"default_source_code": {"inline_string": script}});
        let mut lua = extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", source);
        lua["name"] = name.into();
        lua
    };
    let tells =
        lua("tells", "function envoy_on_request(h) h:headers():add('x-share', h:filterContext():get('share')) end");
    let clears = lua("clears", "function envoy_on_request(h) h:headers():add('x-other', '1') end");
    let of = |share: &str| {
        let kind = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute";
        json!({"tells": {"@type": kind, "filter_context": {"share": share}}})
    };
    let shares = ["a", "b"].map(|share| json!({"name": share, "weight": 50, "typed_per_filter_config": of(share)}));
    let half = json!({"default_value": {"numerator": 50}, "runtime_key": "none"});
    let route = |path: &str, more: Value, share: &str| {
        let mut taken = json!({"prefix": path});
        taken.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"match": taken, "route": {"cluster": share}, "typed_per_filter_config": of(share)})
    };
    let origins = ["a", "b"].map(Origin::echo);
    let config = Config::routes(json!([
        {"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": shares}}},
        route("/", json!({"runtime_fraction": half}), "a"),
        route("/", json!({}), "b"),
    ]))
    .overlay_filter("http", json!({"http_filters": [tells, clears, router()]}))
    .cluster("a", &[origins[0].address])
    .cluster("b", &[origins[1].address]);
    let proxy = Proxy::start(&config);
    for path in ["/weighted", "/fraction"] {
        (0..40).for_each(|_| assert_eq!(ask(&proxy, path, "").status, 200));
    }
    for (origin, share) in origins.iter().zip(["a", "b"]) {
        let seen = origin.requests();
        assert!(seen.len() > 10, "{share} got {}", seen.len());
        seen.iter().for_each(|request| assert_eq!(request.header("x-share"), share, "{}", request.target));
    }
}

/// Security headers count where something is wrong, too.
#[test]
fn answers_to_requests_that_were_refused_pass_the_filters() {
    let edit =
        json!([{"append": {"header": {"key": "x-sec", "value": "1"}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}}]);
    let mutation = header_mutation(json!({"response_mutations": edit}));
    let script = "function envoy_on_response(h) h:headers():add('x-lua', h:headers():get(':status')) end";
    let lua = json!({"default_source_code": {"inline_string": script}});
    let lua = extension("envoy.filters.http.lua", "filters.http.lua.v3.Lua", lua);
    let site = postrider_tests::site::with([mutation, lua]).manager(json!({"request_headers_timeout": "0.2s"})).start();
    let large = format!("GET / HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    for (request, status) in [
        ("BAD\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nhost: test\r\n\r\n", 426),
        (&large, 431),
        ("GET / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        ("GET / HTTP/1.1\r\nhost: test\r\nx: 1\r\n", 408),
    ] {
        let mut client = RawClient::connect(site.proxy.address("http"));
        client.send(request);
        let answer = client.response("GET").unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!((answer.header("x-sec"), answer.header("x-lua")), ("1", status.to_string().as_str()), "{answer:?}");
        assert!(client.closed(), "{status}");
    }
    assert_eq!(site.origin.connection_count(), 0);
}

#[test]
fn basic_auth_lets_known_users_pass() {
    let origin = Origin::echo("a");
    let proxy = site(json!([basic_auth(users(USERS))]), to_origin(), &origin);
    for (fields, status) in [
        (FOONAME, 200),
        ("Authorization: Basic YmFyOnNlY3JldA==\r\n", 200),
        ("authorization: Basic YmFyOndyb25n\r\n", 401),
        ("authorization: Basic bm9ib2R5OnNlY3JldA==\r\n", 401),
        ("", 401),
        ("authorization: Bearer Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\n", 401),
        ("authorization: Basic\r\n", 401),
        ("authorization: Basic !!!!\r\n", 401),
        ("authorization: Basic Zm9vbmFtZQ==\r\n", 401),
        ("authorization: Basic \r\n", 401),
        ("authorization: Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk\r\n", 401),
    ] {
        let response = ask(&proxy, "/", fields);
        assert_eq!(response.status, status, "{fields}: {response:?}");
        if status == 401 {
            assert!(response.header("www-authenticate").starts_with("Basic realm="), "{response:?}");
            assert!(!response.text().contains("GET"));
        }
    }
    assert_eq!(origin.requests().len(), 2);
}

/// In the filter, and in a route of its own.
#[test]
fn basic_auth_watches_its_file_of_users() {
    if !postrider_only() {
        return;
    }
    let [fooname, bar]: [&str; 2] = USERS.lines().collect::<Vec<_>>().try_into().unwrap();
    let folder = TempDir::new();
    let file = |name: &str| {
        let path = folder.write(name, format!("{bar}\n"));
        json!({"users": {"filename": path, "watched_directory": {"path": folder.path()}}})
    };
    let mut of_route = file("route");
    of_route["@type"] = json!(format!("{PER_ROUTE}.basic_auth.v3.BasicAuthPerRoute"));
    let origin = Origin::echo("a");
    let mut routes = to_origin();
    let own = json!({
        "match": {"prefix": "/own"},
        "route": {"cluster": "origin"},
        "typed_per_filter_config": {"envoy.filters.http.basic_auth": of_route},
    });
    routes.as_array_mut().unwrap().insert(0, own);
    let proxy = site(json!([basic_auth(file("all"))]), routes, &origin);
    for (path, name) in [("/", "all"), ("/own", "route")] {
        assert_eq!(ask(&proxy, path, FOONAME).status, 401);
        folder.write(name, format!("{fooname}\n"));
        wait_until("the new user to be known", || ask(&proxy, path, FOONAME).status == 200);
    }
}

#[test]
fn basic_auth_says_why_as_envoy_does() {
    let origin = Origin::echo("a");
    let proxy = site(json!([basic_auth(users(USERS))]), to_origin(), &origin);
    let missing = ask(&proxy, "/", "");
    assert_eq!(missing.text(), "User authentication failed. Missing username and password.");
    let wrong = ask(&proxy, "/", "authorization: Basic YmFyOndyb25n\r\n");
    assert_eq!(wrong.text(), "User authentication failed. Invalid username/password combination.");
    assert_eq!(wrong.header("www-authenticate"), "Basic realm=\"http://test/\"");
    let bearer = ask(&proxy, "/", "authorization: Bearer YmFyOndyb25n\r\n");
    assert_eq!(bearer.text(), "User authentication failed. Expected 'Basic' authentication scheme.");
    assert_eq!(proxy.stats().value("http.ingress_http.basic_auth.denied"), 3);
    assert_eq!(ask(&proxy, "/", FOONAME).status, 200);
    assert_eq!(proxy.stats().value("http.ingress_http.basic_auth.allowed"), 1);
}

#[test]
fn basic_auth_hands_the_user_name_on_and_cannot_be_spoofed() {
    let origin = Origin::echo("a");
    let mut config = users(USERS);
    config["forward_username_header"] = json!("x-user");
    let proxy = site(json!([basic_auth(config)]), to_origin(), &origin);
    let response = ask(&proxy, "/", &format!("{FOONAME}x-user: root\r\n"));
    assert_eq!(response.status, 200);
    assert_eq!(origin.requests()[0].headers.values("x-user"), ["fooname"]);
}

#[test]
fn basic_auth_reads_users_from_a_file_and_another_header() {
    let directory = TempDir::new();
    let file = directory.write("htpasswd", USERS);
    let origin = Origin::echo("a");
    let config = json!({"users": {"filename": file.to_str().unwrap()}, "authentication_header": "x-auth"});
    let proxy = site(json!([basic_auth(config)]), to_origin(), &origin);
    assert_eq!(ask(&proxy, "/", FOONAME).status, 401);
    assert_eq!(ask(&proxy, "/", "x-auth: Basic YmFyOnNlY3JldA==\r\n").status, 200);
}

#[test]
fn a_route_can_replace_or_disable_basic_auth() {
    let origin = Origin::echo("a");
    let per_route = |fields: Value| json!({"envoy.filters.http.basic_auth": fields});
    let other = json!({
        "@type": format!("{PER_ROUTE}.basic_auth.v3.BasicAuthPerRoute"),
        "users": {"inline_string": "bar:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"},
    });
    let off = json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}, "disabled": true,
    });
    let proxy = site(
        json!([basic_auth(users("fooname:{SHA}uyEhawnTvi2eQL6rOK5XrysR0IE=\n"))]),
        json!([
            {"match": {"prefix": "/bar"}, "route": {"cluster": "origin"}, "typed_per_filter_config": per_route(other)},
            {"match": {"prefix": "/open"}, "route": {"cluster": "origin"}, "typed_per_filter_config": per_route(off)},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]),
        &origin,
    );
    let bar = "authorization: Basic YmFyOnNlY3JldA==\r\n";
    for (path, fields, status) in [
        ("/", FOONAME, 200),
        ("/", bar, 401),
        ("/bar", bar, 200),
        ("/bar", FOONAME, 401),
        ("/open", "", 200),
        ("/openly", "", 200),
        ("/x", "", 401),
        // The route is chosen on the path that is forwarded.
        ("/x/../open", "", if envoy() { 401 } else { 200 }),
    ] {
        assert_eq!(ask(&proxy, path, fields).status, status, "{path} {fields}");
    }
}

#[test]
fn a_filter_disabled_on_the_listener_is_enabled_by_a_route() {
    let origin = Origin::echo("a");
    let mut filter = basic_auth(users(USERS));
    filter["disabled"] = json!(true);
    let on = json!({"envoy.filters.http.basic_auth": {
        "@type": format!("{PER_ROUTE}.basic_auth.v3.BasicAuthPerRoute"), "users": {"inline_string": USERS},
    }});
    let proxy = site(
        json!([filter]),
        json!([
            {"match": {"prefix": "/closed"}, "route": {"cluster": "origin"}, "typed_per_filter_config": on},
            {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
        ]),
        &origin,
    );
    assert_eq!(ask(&proxy, "/", "").status, 200);
    assert_eq!(ask(&proxy, "/closed", "").status, 401);
    assert_eq!(ask(&proxy, "/closed", FOONAME).status, 200);
}

fn append(key: &str, value: &str, action: &str) -> Value {
    json!({"append": {"header": {"key": key, "value": value}, "append_action": action}})
}

#[test]
fn header_mutation_edits_both_directions_in_order() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\nx-gone: 1\r\nx-kept: 1\r\ncontent-length: 0\r\n\r\n");
    let proxy = site(
        json!([header_mutation(json!({
            "request_mutations": [
                append("x-a", "1", "APPEND_IF_EXISTS_OR_ADD"),
                append("x-a", "2", "APPEND_IF_EXISTS_OR_ADD"),
                append("x-b", "new", "OVERWRITE_IF_EXISTS_OR_ADD"),
                append("x-c", "new", "ADD_IF_ABSENT"),
                append("x-client", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "OVERWRITE_IF_EXISTS_OR_ADD"),
                {"remove": "x-secret"},
            ],
            "response_mutations": [
                {"remove": "x-gone"},
                append("x-done", "%RESPONSE_CODE%", "APPEND_IF_EXISTS_OR_ADD"),
            ],
        }))]),
        to_origin(),
        &origin,
    );
    let response = ask(&proxy, "/", "x-b: old\r\nx-c: old\r\nx-secret: s\r\n");
    let seen = &origin.requests()[0].headers;
    assert_eq!(seen.values("x-a"), ["1", "2"]);
    assert_eq!(seen.values("x-b"), ["new"]);
    assert_eq!(seen.values("x-c"), ["old"]);
    assert_eq!(seen.values("x-client"), ["127.0.0.1"]);
    assert!(!seen.contains("x-secret"));
    assert!(!response.headers.contains("x-gone"));
    assert_eq!(response.header("x-kept"), "1");
    assert_eq!(response.header("x-done"), "200");
}

#[test]
fn header_mutation_changes_parameters_of_the_query() {
    let origin = Origin::echo("a");
    let set = |key: &str, value: &str, action: &str| json!({"append": {"record": {"key": key, "value": value}, "action": action}});
    let proxy = site(
        json!([header_mutation(json!({"query_parameter_mutations": [
            set("a", "n", "OVERWRITE_IF_EXISTS_OR_ADD"),
            {"remove": "z"},
            set("b", "n", "ADD_IF_ABSENT"),
            set("c", "m", "OVERWRITE_IF_EXISTS"),
            set("d", "%REQ(x-v)%", "APPEND_IF_EXISTS_OR_ADD"),
        ]}))]),
        to_origin(),
        &origin,
    );
    for (path, want) in [
        ("/p?b=2&a=1&z=9&b=3&c&a=4", "/p?a=n&b=2&b=3&c=m&d=a%20b%26c"),
        ("/p", "/p?a=n&b=n&d=a%20b%26c"),
        ("/p?z=1&d=0", "/p?a=n&b=n&d=0&d=a%20b%26c"),
    ] {
        assert_eq!(ask(&proxy, path, "x-v: a b&c\r\n").status, 200);
        assert_eq!(origin.requests().last().unwrap().target, want, "{path}");
    }
}

#[test]
fn header_mutations_of_listener_host_and_route_add_up() {
    let origin = Origin::echo("a");
    let per_route = |value: &str| {
        json!({"envoy.filters.http.header_mutation": {
            "@type": format!("{PER_ROUTE}.header_mutation.v3.HeaderMutationPerRoute"),
            "mutations": {"request_mutations": [append("x-who", value, "APPEND_IF_EXISTS_OR_ADD")]},
        }})
    };
    let config = Config::new()
        .http(json!({
            "http_filters": [
                header_mutation(json!({"request_mutations": [append("x-who", "listener", "APPEND_IF_EXISTS_OR_ADD")]})),
                router(),
            ],
            "route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"], "typed_per_filter_config": per_route("host"),
                "routes": [
                    {"match": {"prefix": "/both"}, "route": {"cluster": "origin"}, "typed_per_filter_config": per_route("route")},
                    {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
                ],
            }]},
        }))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    ask(&proxy, "/both", "");
    ask(&proxy, "/", "");
    let seen = origin.requests();
    assert_eq!(seen[0].headers.values("x-who"), ["listener", "route", "host"]);
    assert_eq!(seen[1].headers.values("x-who"), ["listener", "host"]);
}

#[test]
fn filters_run_in_order_down_and_in_reverse_up() {
    let origin = Origin::echo("a");
    let step = |name: &str| {
        header_mutation(json!({
            "request_mutations": [append("x-down", name, "APPEND_IF_EXISTS_OR_ADD")],
            "response_mutations": [append("x-up", name, "APPEND_IF_EXISTS_OR_ADD")],
        }))
    };
    let mut second = step("second");
    second["name"] = json!("another");
    let proxy = site(json!([step("first"), second]), to_origin(), &origin);
    let mut client = proxy.client();
    for _ in 0..2 {
        let response = client.exchange(get("/"));
        assert_eq!(response.headers.values("x-up"), ["second", "first"]);
    }
    assert_eq!(origin.requests()[1].headers.values("x-down"), ["first", "second"]);
}

#[test]
fn a_refusal_of_one_filter_passes_the_response_side_of_those_before_it() {
    let origin = Origin::echo("a");
    let mark = |name: &str| {
        let mut filter =
            header_mutation(json!({"response_mutations": [append("x-mark", name, "APPEND_IF_EXISTS_OR_ADD")]}));
        filter["name"] = json!(name);
        filter
    };
    let proxy = site(json!([mark("before"), basic_auth(users(USERS)), mark("after")]), to_origin(), &origin);
    let refused = ask(&proxy, "/", "");
    assert_eq!(refused.status, 401);
    let marks = refused.headers.values("x-mark");
    assert!(marks.contains(&"before"), "{marks:?}");
    let passed = ask(&proxy, "/", FOONAME);
    assert_eq!(passed.headers.values("x-mark"), ["after", "before"]);
}

/// What a route table says of a filter is for its routes.
#[test]
fn a_request_without_a_route_has_the_filters_own_settings() {
    let edit = |value: &str| json!({"response_mutations": [append("x-o", value, "OVERWRITE_IF_EXISTS_OR_ADD")]});
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let of_table = json!({"envoy.filters.http.header_mutation": {
        "@type": format!("{PER_ROUTE}.header_mutation.v3.HeaderMutationPerRoute"), "mutations": edit("table"),
    }});
    let routes = json!([{"match": {"path": "/known"}, "route": {"cluster": "origin"}}]);
    let config = Config::new()
        .http(json!({
            "http_filters": [header_mutation(edit("filter")), router()],
            "route_config": {
                "typed_per_filter_config": of_table,
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
            },
        }))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let seen = |path: &str| {
        let answer = ask(&proxy, path, "");
        (answer.status, answer.header("x-o").to_owned())
    };
    assert_eq!(seen("/known"), (200, "table".to_owned()));
    assert_eq!(seen("/none"), (404, "filter".to_owned()));
}
