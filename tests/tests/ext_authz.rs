//! External authorization over gRPC and over HTTP, as Envoy does it.

use postrider_grpc::Message;
use postrider_grpc::auth::attribute_context::HttpRequest;
use postrider_grpc::auth::{
    AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse, check_response::HttpResponse,
};
use postrider_grpc::core::HttpStatus;
use postrider_grpc::core::Status;
use postrider_grpc::core::{HeaderValue, HeaderValueOption, QueryParameter, address, socket_address};
use postrider_grpc::{Struct, value};
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, file_access_log, router};
use postrider_tests::kit::grpc::Step;
use postrider_tests::kit::proxy;
use postrider_tests::kit::{Config, GrpcOrigin, Origin, Proxy, RawClient, Response, TempDir, wait_until};
use postrider_tests::tls::{Authority, Client, secured};
use postrider_tests::{ask, postrider_only};
use serde_json::{Value, json};

const KIND: &str = "filters.http.ext_authz.v3.ExtAuthz";
const PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute";

/// A proxy with the filter, which asks the cluster `authz`.
struct Site {
    proxy: Proxy,
    origin: Origin,
    log: std::path::PathBuf,
    _folder: TempDir,
}

fn site(authz: std::net::SocketAddr, over_grpc: bool, fields: Value, routes: Value) -> Site {
    let folder = TempDir::new();
    let log = folder.path().join("access.log");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-old: old\r\n\r\nok");
    let line = "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.ext_authz:who)%\n";
    let format = json!({"log_format": {"text_format_source": {"inline_string": line}}});
    let filter = extension("envoy.filters.http.ext_authz", KIND, fields);
    let mut all = routes.as_array().unwrap().clone();
    all.push(json!({"match": {"prefix": "/"}, "route": {"cluster": "origin"}}));
    let config = Config::new()
        .http(json!({
            "access_log": [file_access_log(&log, format)],
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["test"], "routes": all}]},
        }))
        .cluster_with("authz", &[authz], if over_grpc { http2() } else { json!({}) })
        .cluster("origin", &[origin.address]);
    Site { proxy: Proxy::start(&config), origin, log, _folder: folder }
}

impl Site {
    /// The last line of the access log, once there are so many.
    fn logged(&self, lines: usize) -> String {
        let read = || std::fs::read_to_string(&self.log).unwrap_or_default();
        wait_until("the access log", || read().lines().count() >= lines);
        read().lines().nth(lines - 1).unwrap().to_owned()
    }

    fn stat(&self, name: &str) -> u64 {
        self.proxy.stats().value(name)
    }
}

/// The filter over gRPC, with more fields.
fn over_grpc(more: Value) -> Value {
    let mut fields = json!({
        "grpc_service": {"envoy_grpc": {"cluster_name": "authz"}, "timeout": "10s"},
    });
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

fn attributes(service: &GrpcOrigin, index: usize) -> AttributeContext {
    CheckRequest::decode(service.messages()[index].as_slice()).unwrap().attributes.unwrap()
}

fn told(service: &GrpcOrigin, index: usize) -> HttpRequest {
    attributes(service, index).request.unwrap().http.unwrap()
}

fn allowed(ok: OkHttpResponse) -> CheckResponse {
    CheckResponse {
        status: Some(Status::default()),
        http_response: Some(HttpResponse::OkResponse(ok)),
        ..CheckResponse::default()
    }
}

fn denied(denied: DeniedHttpResponse) -> CheckResponse {
    CheckResponse {
        status: Some(Status { code: 7, ..Status::default() }),
        http_response: Some(HttpResponse::DeniedResponse(denied)),
        ..CheckResponse::default()
    }
}

fn always(answer: CheckResponse) -> GrpcOrigin {
    GrpcOrigin::fixed(answer.encode_to_vec())
}

#[allow(deprecated, reason = "in this service it is the field that counts")]
fn option(key: &str, value: &str, append: Option<bool>, action: i32) -> HeaderValueOption {
    let header = HeaderValue { key: key.into(), value: value.into(), ..HeaderValue::default() };
    HeaderValueOption { header: Some(header), append, append_action: action, ..HeaderValueOption::default() }
}

fn set(key: &str, value: &str) -> HeaderValueOption {
    option(key, value, None, 0)
}

#[test]
fn the_service_is_told_of_the_request_and_lets_it_pass() {
    let service = always(allowed(OkHttpResponse::default()));
    let site = site(service.address, true, over_grpc(json!({})), json!([]));
    let fields = "x-two: 1\r\nx-two: 2\r\ncookie: a\r\ncookie: b\r\nx-envoy-auth-partial-body: spoofed\r\n";
    assert_eq!(ask(&site.proxy, "GET", "test", "/a?b=c", fields).status, 200);
    let call = &service.calls()[0];
    assert_eq!(call.path, "/envoy.service.auth.v3.Authorization/Check");
    assert_eq!(call.authority, "authz");
    assert_eq!(call.headers.value("grpc-timeout"), Some("10000m"));
    let context = attributes(&service, 0);
    let socket = |peer: &Option<postrider_grpc::auth::attribute_context::Peer>| match peer
        .clone()
        .unwrap()
        .address
        .unwrap()
        .address
        .unwrap()
    {
        address::Address::SocketAddress(socket) => (socket.address, socket.port_specifier.unwrap()),
        other => panic!("{other:?}"),
    };
    assert_eq!(socket(&context.source).0, "127.0.0.1");
    let port = site.proxy.address("http").port();
    let here = ("127.0.0.1".to_owned(), socket_address::PortSpecifier::PortValue(u32::from(port)));
    assert_eq!(socket(&context.destination), here);
    assert!(context.metadata_context.is_some() && context.route_metadata_context.is_some());
    assert!(context.request.as_ref().unwrap().time.unwrap().seconds > 1_700_000_000);
    let http = told(&service, 0);
    assert_eq!((&*http.method, &*http.path, &*http.host, &*http.scheme), ("GET", "/a?b=c", "test", "http"));
    assert_eq!((&*http.protocol, http.size, &*http.body), ("HTTP/1.1", 0, ""));
    assert!(http.id.parse::<u64>().is_ok(), "{}", http.id);
    let headers: Vec<(&str, &str)> = http.headers.iter().map(|(key, value)| (&**key, &**value)).collect();
    let want = [
        (":authority", "test"),
        (":method", "GET"),
        (":path", "/a?b=c"),
        (":scheme", "http"),
        ("cookie", "a,b"),
        ("x-forwarded-proto", "http"),
        ("x-two", "1,2"),
    ];
    assert_eq!(headers, want);
    assert_eq!(site.stat("http.ingress_http.ext_authz.ok"), 1);
    assert_eq!(site.stat("cluster.origin.ext_authz.ok"), 1);
    assert_eq!(site.stat("cluster.authz.upstream_rq_200"), 1);
    assert_eq!(site.stat("cluster.authz.internal.upstream_rq_completed"), 1);
}

#[test]
fn an_answer_changes_request_and_response_by_envoys_rules() {
    let mut request = Vec::new();
    let mut fields = String::new();
    for append in [None, Some(false), Some(true)] {
        for action in 0..4 {
            let name = format!("{}-{action}", append.map_or("x", |append| if append { "true" } else { "false" }));
            fields += &format!("q-old-{name}: old\r\n");
            request.push(option(&format!("q-old-{name}"), "new", append, action));
            request.push(option(&format!("q-none-{name}"), "new", append, action));
        }
    }
    let removed = ["x-gone", "host", ":path", "Content-Length"].map(str::to_owned);
    let pair = |key: &str, value: &str| QueryParameter { key: key.into(), value: value.into() };
    let service = always(allowed(OkHttpResponse {
        headers: request,
        headers_to_remove: removed.into(),
        query_parameters_to_set: vec![pair("a", "9"), pair("new", "1")],
        query_parameters_to_remove: vec!["b".into()],
        ..OkHttpResponse::default()
    }));
    let site = site(service.address, true, over_grpc(json!({})), json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/p?a=1&b=2&c=3", &(fields + "x-gone: 1\r\n")).status, 200);
    let seen = &site.origin.requests()[0];
    for name in ["x", "false"] {
        for action in 0..4 {
            assert_eq!(seen.headers.values(&format!("q-old-{name}-{action}")), ["new"]);
            assert_eq!(seen.headers.values(&format!("q-none-{name}-{action}")), ["new"]);
        }
    }
    for action in 0..4 {
        assert_eq!(seen.headers.values(&format!("q-old-true-{action}")), ["old,new"]);
        assert!(!seen.headers.contains(&format!("q-none-true-{action}")));
    }
    assert!(!seen.headers.contains("x-gone"));
    assert_eq!(seen.headers.values("host"), ["test"]);
    assert_eq!(seen.target, "/p?a=9&c=3&new=1");
    // The answer's headers have their own rules.
    for (append, action, old, none) in [
        (None, 0, vec!["old", "new"], true),
        (None, 1, vec!["old"], true),
        (None, 2, vec!["new"], true),
        (None, 3, vec!["new"], false),
        (Some(false), 1, vec!["new"], true),
        (Some(true), 3, vec!["old", "new"], true),
    ] {
        let to_add = vec![option("x-old", "new", append, action), option("x-none", "new", append, action)];
        let service = always(allowed(OkHttpResponse { response_headers_to_add: to_add, ..OkHttpResponse::default() }));
        let site = self::site(service.address, true, over_grpc(json!({})), json!([]));
        let answer = ask(&site.proxy, "GET", "test", "/", "");
        assert_eq!(answer.headers.values("x-old"), old, "{append:?} {action}");
        assert_eq!(answer.headers.contains("x-none"), none, "{append:?} {action}");
    }
}

#[test]
fn a_denial_is_answered_as_the_service_says() {
    let service = GrpcOrigin::start(|call| {
        let request = CheckRequest::decode(call.messages[0].as_slice()).unwrap();
        let path = request.attributes.unwrap().request.unwrap().http.unwrap().path;
        let answer = match &*path {
            "/bare" => CheckResponse { status: Some(Status { code: 16, ..Status::default() }), ..Default::default() },
            "/whole" => denied(DeniedHttpResponse {
                status: Some(HttpStatus { code: 429 }),
                headers: vec![
                    set("set-cookie", "a"),
                    set("set-cookie", "b"),
                    set("content-type", "text/html"),
                    option("x-append", "gone", Some(true), 0),
                ],
                body: "<b>no</b>".into(),
            }),
            _ => {
                let metadata = Struct {
                    fields: [("who".to_owned(), postrider_grpc::value_of(value::Kind::StringValue("eve".into())))]
                        .into(),
                };
                let mut answer = denied(DeniedHttpResponse { body: "no".into(), ..Default::default() });
                answer.dynamic_metadata = Some(metadata);
                answer
            }
        };
        vec![Step::Send(answer.encode_to_vec()), Step::End(0, "")]
    });
    let site = site(service.address, true, over_grpc(json!({"stat_prefix": "waf"})), json!([]));
    let bare = ask(&site.proxy, "GET", "test", "/bare", "");
    assert_eq!((bare.status, bare.text()), (403, ""));
    assert_eq!(site.logged(1), "403 UAEX ext_authz_denied -");
    let whole = ask(&site.proxy, "GET", "test", "/whole", "");
    assert_eq!((whole.status, whole.text(), whole.header("content-type")), (429, "<b>no</b>", "text/html"));
    assert_eq!(whole.headers.values("set-cookie"), ["a", "b"]);
    assert!(!whole.headers.contains("x-append"));
    let plain = ask(&site.proxy, "GET", "test", "/", "");
    assert_eq!((plain.status, plain.text(), plain.header("content-type")), (403, "no", "text/plain"));
    assert_eq!(site.logged(3), "403 UAEX ext_authz_denied eve");
    assert!(site.origin.requests().is_empty());
    assert_eq!(site.stat("http.ingress_http.ext_authz.waf.denied"), 3);
    assert_eq!(site.stat("cluster.origin.ext_authz.waf.denied"), 3);
    // They count as answers of the cluster that they were meant for.
    assert_eq!(site.stat("cluster.origin.upstream_rq_403"), 2);
    assert_eq!(site.stat("cluster.origin.internal.upstream_rq_429"), 1);
}

#[test]
fn calls_that_the_service_reset_were_not_counted_at_its_cluster() {
    let service = GrpcOrigin::start(|_| vec![Step::Reset]);
    let site = site(service.address, true, over_grpc(json!({})), json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 403);
    assert_eq!(
        ["upstream_rq_rx_reset", "upstream_rq_503"].map(|name| site.stat(&format!("cluster.authz.{name}"))),
        [1, 1]
    );
}

#[test]
fn without_an_answer_the_request_is_refused_or_passes_as_configured() {
    let service = GrpcOrigin::start(|_| vec![Step::End(13, "broken")]);
    let refusing =
        site(service.address, true, over_grpc(json!({"status_on_error": {"code": "ServiceUnavailable"}})), json!([]));
    let answer = ask(&refusing.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text()), (503, ""));
    assert_eq!(refusing.logged(1), "503 UAEX ext_authz_error -");
    assert_eq!(refusing.stat("http.ingress_http.ext_authz.error"), 1);
    assert_eq!(refusing.stat("cluster.origin.ext_authz.error"), 1);
    let fields = json!({"failure_mode_allow": true, "failure_mode_allow_header_add": true});
    let lenient = site(service.address, true, over_grpc(fields), json!([]));
    assert_eq!(ask(&lenient.proxy, "GET", "test", "/", "").status, 200);
    assert_eq!(lenient.origin.requests()[0].headers.values("x-envoy-auth-failure-mode-allowed"), ["true"]);
    assert_eq!(lenient.stat("http.ingress_http.ext_authz.failure_mode_allowed"), 1);
    assert_eq!(lenient.stat("http.ingress_http.ext_authz.error"), 1);
    assert_eq!(lenient.stat("cluster.origin.ext_authz.failure_mode_allowed"), 1);
}

/// As of requests that are forwarded.
#[test]
fn the_service_is_told_of_the_connections_peer_and_not_of_a_headers() {
    let service = always(allowed(OkHttpResponse::default()));
    let filter = extension("envoy.filters.http.ext_authz", KIND, over_grpc(json!({})));
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for (at, manager) in [json!({}), json!({"xff_num_trusted_hops": 1})].into_iter().enumerate() {
        let config = Config::proxy_to(origin.address)
            .overlay_filter("http", json!({"http_filters": [filter, router()]}))
            .overlay_filter("http", manager)
            .cluster_with("authz", &[service.address], http2());
        let proxy = Proxy::start(&config);
        assert_eq!(ask(&proxy, "GET", "test", "/", "x-forwarded-for: 1.2.3.4, 5.6.7.8\r\n").status, 200);
        let source = attributes(&service, at).source.unwrap().address.unwrap();
        let Some(address::Address::SocketAddress(socket)) = source.address else { panic!("{source:?}") };
        assert_eq!(socket.address, "127.0.0.1");
    }
}

#[test]
fn the_services_time_is_told_by_its_cluster() {
    let service = always(allowed(OkHttpResponse::default()));
    let http = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    for (address, is_grpc, fields) in
        [(service.address, true, over_grpc(json!({}))), (http.address, false, over_http(json!({}), json!({})))]
    {
        let site = site(address, is_grpc, fields, json!([]));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 200);
        let told = |name: &str| site.proxy.admin_get("/stats").text().contains(&format!("cluster.authz.{name}:"));
        wait_until("the time", || told("upstream_rq_time") && told("internal.upstream_rq_time"));
        assert!(!told("external.upstream_rq_time"));
    }
}

/// By the conditions of routes, until the answer begins.
#[test]
fn a_service_is_asked_again_as_its_policy_says() {
    let after = |failures: usize, step: Step| {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        GrpcOrigin::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < failures {
            true => vec![step.clone()],
            false => vec![Step::Send(allowed(OkHttpResponse::default()).encode_to_vec()), Step::End(0, "")],
        })
    };
    let refused = || Step::End(14, "");
    for (on, failures, step, want, asked) in [
        ("unavailable", 2, refused(), 200, 3),
        ("unavailable", 3, refused(), 403, 3),
        ("5xx", 1, refused(), 403, 1),
        ("", 1, refused(), 403, 1),
        ("5xx", 1, Step::Http(503), 200, 2),
        ("reset", 1, Step::Reset, 200, 2),
        ("connect-failure", 1, Step::Reset, 403, 1),
    ] {
        let service = after(failures, step);
        let policy = json!({"retry_on": on, "num_retries": 2, "retry_back_off": {"base_interval": "0.005s", "max_interval": "5s"}});
        let mut fields = over_grpc(json!({}));
        fields["grpc_service"]["retry_policy"] = policy;
        let site = site(service.address, true, fields, json!([]));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, want, "{on} {failures}");
        assert_eq!(service.calls().len(), asked, "{on} {failures}");
        assert!(service.messages().windows(2).all(|two| two[0] == two[1]), "each try says the same");
        assert_eq!(site.stat("cluster.authz.upstream_rq_retry"), asked as u64 - 1);
        assert_eq!(site.stat("cluster.authz.upstream_rq_total"), asked as u64);
        assert_eq!(site.stat("cluster.authz.upstream_rq_retry_limit_exceeded"), u64::from(failures == 3));
    }
}

/// The time for one try is the longest wait of the policy.
#[test]
fn a_try_that_brings_nothing_is_given_up_for_another() {
    let service = GrpcOrigin::silent();
    let mut fields = over_grpc(json!({}));
    fields["grpc_service"]["retry_policy"] = json!({
        "retry_on": "reset", "num_retries": 1, "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.05s"},
    });
    let site = site(service.address, true, fields, json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 403);
    service.wait_abandoned(2);
    assert_eq!(site.stat("cluster.authz.upstream_rq_per_try_timeout"), 2);
    assert_eq!(site.stat("cluster.authz.upstream_rq_timeout"), 0);
}

#[test]
fn a_service_that_says_nothing_is_given_up_at_its_timeout() {
    let service = GrpcOrigin::silent();
    let mut fields = over_grpc(json!({}));
    fields["grpc_service"]["timeout"] = json!("0.05s");
    let site = site(service.address, true, fields, json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 403);
    assert_eq!(site.logged(1), "403 UAEX ext_authz_error -");
    service.wait_abandoned(1);
    assert_eq!(site.stat("cluster.authz.upstream_rq_timeout"), 1);
    assert_eq!(site.stat("cluster.authz.upstream_rq_504"), 1);
}

/// A client that sent everything was told that it was too slow.
#[test]
fn a_request_that_a_filter_keeps_waiting_is_the_proxys_to_answer_for() {
    let service = GrpcOrigin::silent();
    let filter = extension("envoy.filters.http.ext_authz", KIND, over_grpc(json!({})));
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let requests =
        ["GET / HTTP/1.1\r\nhost: test\r\n\r\n", "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi"];
    for (limit, text) in [("request_timeout", "request timeout"), ("stream_idle_timeout", "stream timeout")] {
        let config = Config::proxy_to(origin.address)
            .overlay_filter("http", json!({"http_filters": [filter, router()], limit: "0.2s"}))
            .cluster_with("authz", &[service.address], http2());
        let proxy = Proxy::start(&config);
        for request in requests {
            let answer = proxy.exchange(request);
            assert_eq!((answer.status, answer.text()), (504, text), "{request}");
        }
    }
}

#[test]
fn the_body_is_shown_as_far_as_it_is_wanted() {
    let service = always(allowed(OkHttpResponse::default()));
    let send = |site: &Site, body: &str| -> Response {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        site.proxy.exchange(head)
    };
    let whole = json!({"with_request_body": {"max_request_bytes": 5}});
    let strict = site(
        service.address,
        true,
        over_grpc(whole),
        json!([
            {"match": {"prefix": "/nobody"}, "route": {"cluster": "origin"}, "typed_per_filter_config": {
                "envoy.filters.http.ext_authz": {"@type": PER_ROUTE, "check_settings": {"disable_request_body_buffering": true}},
            }},
        ]),
    );
    assert_eq!(send(&strict, "12345").status, 200);
    let http = told(&service, 0);
    assert_eq!(
        (&*http.body, http.headers.get("x-envoy-auth-partial-body").map(String::as_str)),
        ("12345", Some("false"))
    );
    assert_eq!(strict.origin.requests()[0].body, b"12345");
    let chunked = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\n12\r\n2\r\n34\r\n0\r\n\r\n";
    assert_eq!(strict.proxy.exchange(chunked).status, 200);
    assert_eq!(told(&service, 1).body, "1234");
    assert_eq!(strict.origin.requests()[1].body, b"1234");
    let large = send(&strict, "123456");
    assert_eq!((large.status, large.text()), (413, "Payload Too Large"));
    assert_eq!(strict.logged(3), "413 - request_payload_too_large -");
    assert_eq!(strict.stat("http.ingress_http.downstream_rq_too_large"), 1);
    let unseen = "POST /nobody HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\n123456";
    assert_eq!(strict.proxy.exchange(unseen).status, 200);
    assert_eq!(told(&service, 2).body, "");
    let some =
        json!({"with_request_body": {"max_request_bytes": 5, "allow_partial_message": true, "pack_as_bytes": true}});
    let partial = site(service.address, true, over_grpc(some), json!([]));
    assert_eq!(send(&partial, "12345678").status, 200);
    let http = told(&service, 3);
    assert_eq!((&*http.raw_body, &*http.body), (&b"12345"[..], ""));
    assert_eq!(http.headers.get("x-envoy-auth-partial-body").map(String::as_str), Some("true"));
    assert_eq!(partial.origin.requests()[0].body, b"12345678");
    // More than a connection may hold otherwise.
    for (partial, length, status) in [(false, 300_000, 200), (false, 300_001, 413), (true, 400_000, 200)] {
        let more = json!({"with_request_body": {"max_request_bytes": 300_000, "allow_partial_message": partial}});
        let large = site(service.address, true, over_grpc(more), json!([]));
        let asked = service.messages().len();
        assert_eq!(send(&large, &"x".repeat(length)).status, status, "{length}");
        if status == 200 {
            assert_eq!(told(&service, asked).body.len(), 300_000);
            assert_eq!(large.origin.requests()[0].body.len(), length);
        }
    }
    let asked = service.messages().len();
    // A body that comes later is waited for, up to what is wanted of it.
    let mut client: RawClient = partial.proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n123");
    client.send("45");
    service.wait_messages(asked + 1);
    client.send("678");
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(partial.origin.requests()[1].body, b"12345678");
}

#[test]
fn a_route_adds_context_turns_the_filter_off_or_asks_another_service() {
    let service = always(allowed(OkHttpResponse::default()));
    let over = |fields: Value| {
        let mut fields = fields;
        fields["@type"] = json!(PER_ROUTE);
        json!({"envoy.filters.http.ext_authz": fields})
    };
    let message = json!({"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"});
    let to = |prefix: &str, fields: Value| {
        json!({"match": {"prefix": prefix}, "route": {"cluster": "origin"}, "typed_per_filter_config": over(fields),
        "metadata": {
            "filter_metadata": {"of.route": {"a": "b"}, "other": {"c": 1}},
            "typed_filter_metadata": {"typed": message, "untold": message},
        }})
    };
    let routes = json!([
        to("/off", json!({"disabled": true})),
        to("/context", json!({"check_settings": {"context_extensions": {"k": "v"}}})),
    ]);
    let fields = over_grpc(json!({
        "route_metadata_context_namespaces": ["of.route", "absent"], "route_typed_metadata_context_namespaces": ["typed", "absent"],
        "deny_at_disable": {"default_value": true, "runtime_key": "x"},
    }));
    let site = site(service.address, true, fields, routes);
    assert_eq!(ask(&site.proxy, "GET", "test", "/off", "").status, 200);
    assert!(service.calls().is_empty());
    assert_eq!(ask(&site.proxy, "GET", "test", "/context", "").status, 200);
    let context = attributes(&service, 0);
    assert_eq!(context.context_extensions.into_iter().collect::<Vec<_>>(), [("k".to_owned(), "v".to_owned())]);
    let metadata = context.route_metadata_context.unwrap();
    let typed: Vec<_> =
        metadata.typed_filter_metadata.into_iter().map(|(name, it)| (name, it.type_url, it.value)).collect();
    let kind = "type.googleapis.com/google.protobuf.Duration".to_owned();
    assert_eq!(typed, [("typed".to_owned(), kind, vec![8, 1])]);
    let metadata = metadata.filter_metadata;
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["of.route"]);
    assert_eq!(metadata["of.route"].fields.len(), 1);
    // Where no route is, nobody is asked.
    assert_eq!(ask(&site.proxy, "GET", "elsewhere", "/", "").status, 404);
    assert_eq!(service.calls().len(), 1);
}

#[test]
fn a_share_of_requests_is_asked_about_and_the_rest_passes_or_not() {
    let service = always(allowed(OkHttpResponse::default()));
    let never = json!({"default_value": {"numerator": 0, "denominator": "HUNDRED"}, "runtime_key": "x"});
    let open = site(service.address, true, over_grpc(json!({"filter_enabled": never})), json!([]));
    assert_eq!(ask(&open.proxy, "GET", "test", "/", "").status, 200);
    assert_eq!(open.stat("http.ingress_http.ext_authz.disabled"), 1);
    let closed = json!({"filter_enabled": never, "deny_at_disable": {"default_value": true, "runtime_key": "y"}});
    let closed = site(service.address, true, over_grpc(closed), json!([]));
    assert_eq!(ask(&closed.proxy, "GET", "test", "/", "").status, 403);
    assert_eq!(closed.logged(1), "403 UAEX ext_authz_error -");
    assert!(service.calls().is_empty());
}

#[test]
fn which_headers_the_service_sees_is_chosen() {
    let service = always(allowed(OkHttpResponse::default()));
    let fields = over_grpc(json!({
        "allowed_headers": {"patterns": [{"prefix": "x-"}, {"exact": ":path"}]},
        "disallowed_headers": {"patterns": [{"exact": "x-secret"}]},
        "encode_raw_headers": true,
    }));
    let site = site(service.address, true, fields, json!([]));
    ask(&site.proxy, "GET", "test", "/", "x-a: 1\r\nx-a: 2\r\nx-secret: 3\r\nother: 4\r\n");
    let http = told(&service, 0);
    assert!(http.headers.is_empty());
    let mut raw: Vec<(String, Vec<u8>)> =
        http.header_map.unwrap().headers.into_iter().map(|header| (header.key, header.raw_value)).collect();
    raw.sort();
    let line = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
    assert_eq!(raw, [line(":path", "/"), line("x-a", "1"), line("x-a", "2"), line("x-forwarded-proto", "http")]);
}

#[test]
fn a_verdict_that_makes_no_valid_message_is_refused_where_that_is_asked_for() {
    let service = always(allowed(OkHttpResponse { headers: vec![set("x", "a\r\nb: c")], ..OkHttpResponse::default() }));
    let site = site(service.address, true, over_grpc(json!({"validate_mutations": true})), json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 500);
    assert_eq!(site.logged(1).split(' ').nth(2), Some("ext_authz_invalid"));
    assert_eq!(site.stat("http.ingress_http.ext_authz.invalid"), 1);
    // Without the header that the service wants, the client's own one would go on.
    let careless = self::site(service.address, true, over_grpc(json!({})), json!([]));
    let answer = ask(&careless.proxy, "GET", "test", "/", "x: the client's\r\n");
    assert_eq!((answer.status, answer.text()), (503, "invalid header value for: x"));
    assert_eq!(careless.logged(1), "503 DPE filter_removed_required_request_headers{invalid_header_value_for:_x} -");
    assert_eq!((careless.stat("http.ingress_http.ext_authz.ok"), careless.origin.requests().len()), (1, 0));
    let headers = vec![set("x", "a\0")];
    let service = always(denied(DeniedHttpResponse { headers, ..DeniedHttpResponse::default() }));
    let site = self::site(service.address, true, over_grpc(json!({"validate_mutations": true})), json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 500);
    let counted = ["denied", "invalid"].map(|name| site.stat(&format!("http.ingress_http.ext_authz.{name}")));
    assert_eq!(counted, [1, 1]);
}

#[test]
fn a_service_made_requests_larger_than_the_manager_takes() {
    let many = (0..100).map(|number| set(&format!("x-{number}"), "1")).collect();
    let service = always(allowed(OkHttpResponse { headers: many, ..OkHttpResponse::default() }));
    let own = json!({"@type": PER_ROUTE, "check_settings": {"context_extensions": {"a": "b"}}});
    let own = json!({"envoy.filters.http.ext_authz": own});
    let routes = json!([
        {"match": {"prefix": "/own"}, "route": {"cluster": "origin"}, "typed_per_filter_config": own},
    ]);
    let site = site(service.address, true, over_grpc(json!({})), routes);
    for (lines, path) in [(1, "/"), (2, "/own")] {
        assert_eq!(ask(&site.proxy, "GET", "test", path, "").status, 500, "{path}");
        assert_eq!(site.logged(lines), "500 UAEX ext_authz_invalid -");
    }
    let counted = ["request_header_limits_reached", "invalid", "ok"];
    assert_eq!(counted.map(|name| site.stat(&format!("http.ingress_http.ext_authz.{name}"))), [2, 2, 0]);
    assert!(site.origin.requests().is_empty());
}

#[test]
fn a_service_was_not_shown_the_connection_header_of_an_upgrade() {
    let service = always(denied(DeniedHttpResponse::default()));
    let upgrades = json!([{"match": {"prefix": "/ws"}, "route": {
        "cluster": "origin", "upgrade_configs": [{"upgrade_type": "websocket"}],
    }}]);
    let site = site(service.address, true, over_grpc(json!({})), upgrades);
    let fields = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";
    assert_eq!(ask(&site.proxy, "GET", "test", "/ws", fields).status, 403);
    let headers = told(&service, 0).headers;
    assert_eq!((&*headers["connection"], &*headers["upgrade"]), ("Upgrade", "websocket"));
}

#[test]
fn a_request_of_trailers_alone_is_not_kept_waiting_behind_a_held_body() {
    let service = always(allowed(OkHttpResponse::default()));
    let filter = extension(
        "envoy.filters.http.ext_authz",
        KIND,
        over_grpc(json!({"with_request_body": {"max_request_bytes": 10}})),
    );
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let trailers = json!({"enable_trailers": true});
    let config = Config::proxy_to(origin.address)
        .overlay_filter("http", json!({"http_filters": [filter, router()], "http_protocol_options": trailers}))
        .cluster_with("authz", &[service.address], http2());
    let proxy = Proxy::start(&config);
    let request = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-t: 1\r\n\r\n";
    assert_eq!(proxy.exchange(request).status, 200);
    let seen = &origin.requests()[0];
    assert_eq!((seen.headers.value("transfer-encoding"), &*seen.body), (Some("chunked"), &b""[..]));
    assert_eq!(told(&service, 0).body, "");
}

#[test]
fn a_route_that_the_service_made_the_filter_choose_has_its_own_rules() {
    let headers = vec![set("x-new", "r")];
    let service = always(allowed(OkHttpResponse { headers, ..OkHttpResponse::default() }));
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let any = json!([{"any": true}]);
    let rules = json!({"action": "DENY", "policies": {"d": {"permissions": any, "principals": any}}});
    let denying = json!({"rbac": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute", "rbac": {"rules": rules},
    }});
    let authz = extension("envoy.filters.http.ext_authz", KIND, over_grpc(json!({"clear_route_cache": true})));
    let lua = "function envoy_on_request(h) h:headers():add('x-new', 'r') h:clearRouteCache() end";
    let lua = extension("lua", "filters.http.lua.v3.Lua", json!({"default_source_code": {"inline_string": lua}}));
    for first in [authz, lua] {
        let rbac = extension("rbac", "filters.http.rbac.v3.RBAC", json!({}));
        let routes = json!([
            {"match": {"prefix": "/", "headers": [{"name": "x-new", "string_match": {"exact": "r"}}]},
             "route": {"cluster": "origin"}, "typed_per_filter_config": denying},
            {"match": {"prefix": "/x"}, "route": {"cluster": "origin"}},
        ]);
        let config = Config::routes(routes)
            .cluster("origin", &[origin.address])
            .cluster_with("authz", &[service.address], http2())
            .overlay_filter("http", json!({"http_filters": [first, rbac, router()]}));
        let proxy = Proxy::start(&config);
        assert_eq!(ask(&proxy, "GET", "test", "/x", "").status, 403);
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn what_the_route_adds_gives_way_to_what_the_service_says() {
    let headers = vec![set("x-d", "service"), set("x-gone", "service")];
    let service = always(denied(DeniedHttpResponse { headers, ..DeniedHttpResponse::default() }));
    let add =
        |key: &str| json!({"header": {"key": key, "value": "route"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
    let routes = json!([{
        "match": {"prefix": "/"}, "route": {"cluster": "origin"},
        "response_headers_to_add": [add("x-d"), add("x-route")], "response_headers_to_remove": ["x-gone"],
    }]);
    let site = site(service.address, true, over_grpc(json!({})), routes);
    let answer = ask(&site.proxy, "GET", "test", "/", "");
    assert_eq!(answer.status, 403);
    let of = |name: &str| answer.headers.values(name).join(" ");
    assert_eq!(["x-d", "x-gone", "x-route"].map(of), ["service", "service", "route"]);
}

#[test]
fn a_failure_of_the_service_says_what_it_wants() {
    let failed = |code, headers| CheckResponse {
        status: Some(Status { code, ..Status::default() }),
        http_response: Some(HttpResponse::ErrorResponse(DeniedHttpResponse {
            status: Some(HttpStatus { code: 501 }),
            headers,
            body: "mine".into(),
        })),
        ..CheckResponse::default()
    };
    let headers = || vec![option("x-b", "2", Some(true), 0), option("x-a", "1", None, 0)];
    let service = always(failed(13, headers()));
    let site = site(service.address, true, over_grpc(json!({})), json!([]));
    let answer = ask(&site.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text(), answer.header("x-a"), answer.header("x-b")), (501, "mine", "1", "2"));
    let fine = always(failed(0, headers()));
    let site = self::site(fine.address, true, over_grpc(json!({})), json!([]));
    assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 200, "the code has the word");
    let broken = always(failed(13, vec![set("x", "a\nb")]));
    let site = self::site(broken.address, true, over_grpc(json!({"validate_mutations": true})), json!([]));
    let answer = ask(&site.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text()), (403, ""));
    let counted = ["error", "invalid"].map(|name| site.stat(&format!("http.ingress_http.ext_authz.{name}")));
    assert_eq!(counted, [1, 0]);
}

#[test]
fn additions_to_the_answer_come_before_what_replaces_them() {
    let action = |key: &str, value: &str, action| option(key, value, None, action);
    let headers = vec![
        action("x-k", "1", 2),
        action("x-k", "2", 0),
        action("x-m", "3", 3),
        action("x-m", "4", 0),
        action("x-odd", "5", 9),
    ];
    let answer = || OkHttpResponse { response_headers_to_add: headers.clone(), ..OkHttpResponse::default() };
    let service = always(allowed(answer()));
    let site = site(service.address, true, over_grpc(json!({})), json!([]));
    let response = ask(&site.proxy, "GET", "test", "/", "");
    let of = |name: &str| response.headers.values(name).join(" ");
    assert_eq!(["x-k", "x-m", "x-odd"].map(of), ["1", "3", ""]);
    let strict = self::site(service.address, true, over_grpc(json!({"validate_mutations": true})), json!([]));
    assert_eq!(ask(&strict.proxy, "GET", "test", "/", "").status, 500);
}

#[test]
fn a_route_is_chosen_again_when_the_service_changed_what_it_depends_on() {
    let service = always(allowed(OkHttpResponse { headers: vec![set("x-kind", "new")], ..OkHttpResponse::default() }));
    let routes = json!([{
        "match": {"prefix": "/", "headers": [{"name": "x-kind", "string_match": {"exact": "new"}}]},
        "direct_response": {"status": 202},
    }]);
    let stays = site(service.address, true, over_grpc(json!({})), routes.clone());
    assert_eq!(ask(&stays.proxy, "GET", "test", "/", "").status, 200);
    let moves = site(service.address, true, over_grpc(json!({"clear_route_cache": true})), routes);
    assert_eq!(ask(&moves.proxy, "GET", "test", "/", "").status, 202);
}

#[test]
fn what_the_service_may_change_is_ruled() {
    let headers = ["x-a", "x-envoy-b", "x-c", ":path", ":authority"].map(|name| set(name, "/new"));
    let answer =
        OkHttpResponse { headers: headers.into(), headers_to_remove: vec!["x-d".into()], ..Default::default() };
    let service = always(allowed(answer));
    let rules = json!({"disallow_expression": {"regex": "x-[cd]"}});
    let lenient = site(service.address, true, over_grpc(json!({"decoder_header_mutation_rules": rules})), json!([]));
    assert_eq!(ask(&lenient.proxy, "GET", "test", "/old", "x-d: 1\r\n").status, 200);
    let seen = &lenient.origin.requests()[0];
    assert_eq!((seen.headers.value("x-a"), seen.headers.value("x-d")), (Some("/new"), Some("1")));
    assert!(!seen.headers.contains("x-envoy-b") && !seen.headers.contains("x-c"));
    assert_eq!((&*seen.target, seen.headers.value("host")), ("/new", Some("test")));
    let rules = json!({"disallow_expression": {"regex": "x-c"}, "disallow_is_error": true});
    let strict = site(service.address, true, over_grpc(json!({"decoder_header_mutation_rules": rules})), json!([]));
    assert_eq!(ask(&strict.proxy, "GET", "test", "/", "").status, 500);
    assert_eq!(strict.stat("http.ingress_http.ext_authz.invalid"), 1);
}

#[test]
fn the_service_is_told_who_is_at_both_ends() {
    let service = always(allowed(OkHttpResponse::default()));
    let fields = over_grpc(json!({
        "include_peer_certificate": true, "include_tls_session": true, "bootstrap_metadata_labels_key": "labels",
    }));
    let authority = Authority::new("authority");
    let (server, client) = (authority.issue(&["server.test"]), authority.issue(&["client.test"]));
    let filter = extension("envoy.filters.http.ext_authz", KIND, fields);
    let route = json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}});
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        }))
        .cluster_with("authz", &[service.address], http2())
        .overlay(json!({"node": {"id": "me", "cluster": "edge", "metadata": {"labels": {"app": "shop"}}}}));
    let validation = json!({"trusted_ca": {"inline_string": authority.pem()}});
    let trust = json!({"common_tls_context": {"validation_context": validation}});
    let proxy = Proxy::start(&secured(config, &server, trust));
    let answer = Client::showing(&authority, &client).get(proxy.address("http"), "server.test").unwrap();
    assert_eq!(answer.status, 200);
    let context = attributes(&service, 0);
    let (source, destination) = (context.source.unwrap(), context.destination.unwrap());
    assert_eq!((&*source.principal, &*destination.principal), ("client.test", "server.test"));
    assert!(source.certificate.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{}", source.certificate);
    assert_eq!(destination.certificate, "");
    assert_eq!(destination.labels.into_iter().collect::<Vec<_>>(), [("app".to_owned(), "shop".to_owned())]);
    assert_eq!(context.tls_session.unwrap().sni, "server.test");
    assert_eq!(context.request.unwrap().http.unwrap().scheme, "https");
}

#[test]
fn a_service_that_nobody_can_call_is_found_before_anything_runs() {
    if !postrider_only() {
        return;
    }
    let validated = |cluster: &str| {
        let mut fields = over_grpc(json!({}));
        fields["grpc_service"]["envoy_grpc"]["cluster_name"] = json!(cluster);
        let filter = extension("envoy.filters.http.ext_authz", KIND, fields);
        let config = Config::new()
            .http(json!({"http_filters": [filter, router()], "route_config": {}}))
            .cluster("plain", &["127.0.0.1:1".parse().unwrap()]);
        let folder = TempDir::new();
        let file = folder.write("config.yaml", config.to_yaml());
        let finished = proxy::run(&["validate", file.to_str().unwrap()]);
        (finished.code == Some(0), format!("{}{}", finished.stdout, finished.stderr))
    };
    let (good, text) = validated("nowhere");
    assert!(!good && text.contains("there is no cluster `nowhere`"), "{text}");
    assert!(text.contains("grpc_service.envoy_grpc.cluster_name"), "{text}");
    let (good, text) = validated("plain");
    assert!(good && text.contains("grpc-over-http1"), "{text}");
}

/// The filter over HTTP.
fn over_http(service: Value, more: Value) -> Value {
    let mut http = json!({"server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "10s"}});
    for (key, value) in service.as_object().unwrap() {
        http[key] = value.clone();
    }
    let mut fields = json!({"http_service": http});
    for (key, value) in more.as_object().unwrap() {
        fields[key] = value.clone();
    }
    fields
}

#[test]
fn a_service_over_http_is_asked_with_the_request_itself() {
    let authz = Origin::fixed(
        "HTTP/1.1 200 OK\r\nx-user: eve\r\nx-more: 2\r\nx-fresh: 3\r\nx-shown: yes\r\nwho: eve\r\n\
         x-envoy-auth-headers-to-remove: x-gone , cookie\r\ncontent-length: 0\r\n\r\n",
    );
    let service = json!({
        "path_prefix": "/check",
        "authorization_request": {"headers_to_add": [{"key": "x-added", "value": "1"}]},
        "authorization_response": {
            "allowed_upstream_headers": {"patterns": [{"exact": "x-user"}]},
            "allowed_upstream_headers_to_append": {"patterns": [{"exact": "x-more"}, {"exact": "x-fresh"}]},
            "allowed_client_headers_on_success": {"patterns": [{"exact": "x-shown"}]},
            "dynamic_metadata_from_headers": {"patterns": [{"exact": "who"}]},
        },
    });
    let more = json!({"allowed_headers": {"patterns": [{"exact": "x-in"}]}});
    let site = site(authz.address, false, over_http(service, more), json!([]));
    let fields = "authorization: me\r\nx-in: 1\r\nx-in: 2\r\nx-out: 1\r\nx-user: root\r\nx-more: 1\r\nx-gone: 1\r\ncookie: a\r\n";
    let answer = ask(&site.proxy, "GET", "test", "/a?b", fields);
    assert_eq!((answer.status, answer.header("x-shown")), (200, "yes"));
    let asked = &authz.requests()[0];
    assert_eq!((&*asked.method, &*asked.target), ("GET", "/check/a?b"));
    assert_eq!(asked.headers.values("host"), ["test"]);
    assert_eq!(asked.headers.values("authorization"), ["me"]);
    assert_eq!(asked.headers.values("x-in"), ["1,2"]);
    assert_eq!(asked.headers.values("x-added"), ["1"]);
    assert_eq!(asked.headers.values("content-length"), ["0"]);
    assert!(!asked.headers.contains("x-out") && !asked.headers.contains("cookie"));
    let seen = &site.origin.requests()[0].headers;
    assert_eq!(seen.values("x-user"), ["eve"]);
    assert_eq!(seen.values("x-more"), ["1", "2"]);
    assert_eq!(seen.values("x-fresh"), ["3"]);
    assert!(!seen.contains("x-gone") && !seen.contains("cookie") && !seen.contains("x-shown"));
    assert_eq!(site.logged(1), "200 - via_upstream eve");
}

#[test]
fn a_service_over_http_denies_with_its_answer() {
    let authz = Origin::fixed(
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic\r\nx-in: 1\r\nx-out: 2\r\ncontent-length: 4\r\n\r\nnope",
    );
    let open = site(authz.address, false, over_http(json!({}), json!({})), json!([]));
    let answer = ask(&open.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.text(), answer.header("x-out")), (401, "nope", "2"));
    assert_eq!(open.logged(1), "401 UAEX ext_authz_denied -");
    let some = json!({"authorization_response": {"allowed_client_headers": {"patterns": [{"exact": "x-in"}]}}});
    let narrow = site(authz.address, false, over_http(some, json!({})), json!([]));
    let answer = ask(&narrow.proxy, "GET", "test", "/", "");
    assert_eq!((answer.status, answer.header("www-authenticate"), answer.header("x-in")), (401, "Basic", "1"));
    assert!(!answer.headers.contains("x-out"));
    let broken = Origin::fixed("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let failing = site(broken.address, false, over_http(json!({}), json!({})), json!([]));
    assert_eq!(ask(&failing.proxy, "GET", "test", "/", "").status, 403);
    assert_eq!(failing.logged(1), "403 UAEX ext_authz_error -");
}

#[test]
fn headers_of_a_failure_of_the_service_are_not_noted() {
    let noted = json!({"authorization_response": {"dynamic_metadata_from_headers": {"patterns": [{"exact": "who"}]}}});
    for (status, line) in
        [("403 Forbidden", "403 UAEX ext_authz_denied eve"), ("503 Bad", "403 UAEX ext_authz_error -")]
    {
        let authz = Origin::fixed(format!("HTTP/1.1 {status}\r\nwho: eve\r\ncontent-length: 0\r\n\r\n"));
        let site = site(authz.address, false, over_http(noted.clone(), json!({})), json!([]));
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, 403);
        assert_eq!(site.logged(1), line);
    }
}

#[test]
fn a_service_over_http_sees_the_body_under_the_requests_method() {
    let authz = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let more = json!({"with_request_body": {"max_request_bytes": 4, "allow_partial_message": true}});
    let service = json!({"path_override": "/always"});
    let site = site(authz.address, false, over_http(service, more), json!([]));
    let response = site.proxy.exchange("POST /x HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\n123456");
    assert_eq!(response.status, 200);
    let asked = &authz.requests()[0];
    assert_eq!((&*asked.method, &*asked.target, &*asked.body), ("POST", "/always", &b"1234"[..]));
    assert_eq!(asked.headers.values("x-envoy-auth-partial-body"), ["true"]);
    assert_eq!(site.origin.requests()[0].body, b"123456");
}

#[test]
fn a_service_over_http_names_what_to_remove_to_the_proxy_alone() {
    let listed = json!({
        "allowed_upstream_headers": {"patterns": [{"prefix": "x-"}]},
        "allowed_client_headers_on_success": {"patterns": [{"prefix": "x-"}]},
    });
    for status in [200, 403] {
        let service = Origin::fixed(format!(
            "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nx-a: 1\r\nx-envoy-auth-headers-to-remove: x-foo\r\n\r\n"
        ));
        let site =
            site(service.address, false, over_http(json!({"authorization_response": listed}), json!({})), json!([]));
        let answer = ask(&site.proxy, "GET", "test", "/", "x-foo: 1\r\n");
        assert_eq!((answer.status, answer.header("x-a")), (status, "1"));
        assert!(!answer.headers.contains("x-envoy-auth-headers-to-remove"), "{answer:?}");
        for request in site.origin.requests() {
            assert!(!request.headers.contains("x-envoy-auth-headers-to-remove") && !request.headers.contains("x-foo"));
        }
    }
}

#[test]
fn a_routes_own_service_is_shown_what_the_filters_would_be() {
    let grpc = always(allowed(OkHttpResponse::default()));
    let plain = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let over_http = |cluster: &str| {
        let uri = json!({"uri": "http://authz", "cluster": cluster, "timeout": "10s"});
        json!({"http_service": {"server_uri": uri}})
    };
    let start = |filter: Value, settings: Value| {
        let filter = extension("envoy.filters.http.ext_authz", KIND, filter);
        let own = json!({"envoy.filters.http.ext_authz": {"@type": PER_ROUTE, "check_settings": settings}});
        let routes =
            json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}, "typed_per_filter_config": own}]);
        let config = Config::routes(routes)
            .cluster("origin", &[origin.address])
            .cluster_with("authz", &[grpc.address], http2())
            .cluster("plain", &[plain.address])
            .overlay_filter("http", json!({"http_filters": [filter, router()]}));
        Proxy::start(&config)
    };
    let of_grpc = start(over_grpc(json!({})), over_http("plain"));
    assert_eq!(ask(&of_grpc, "GET", "test", "/", "cookie: a=b\r\n").status, 200);
    assert_eq!(plain.requests()[0].headers.value("cookie"), Some("a=b"), "the filter's own service would see all");
    let mut filter = over_http("plain");
    filter["with_request_body"] = json!({"max_request_bytes": 10});
    let of_http = start(filter, over_grpc(json!({})));
    let request = "POST / HTTP/1.1\r\nhost: test\r\nauthorization: c\r\ncookie: a=b\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(of_http.exchange(request).status, 200);
    let seen = told(&grpc, 0);
    let names: Vec<&str> = seen.headers.keys().map(String::as_str).filter(|name| !name.starts_with(':')).collect();
    assert_eq!(names, ["authorization", "x-envoy-auth-partial-body"]);
    assert_eq!((&*seen.raw_body, &*seen.body), (&b"hi"[..], ""));
}
