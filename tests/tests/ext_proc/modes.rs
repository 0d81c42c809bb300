//! What is shown to whom, by modes, routes and rules.

use postrider_grpc::process::processing_mode::{BodySendMode, HeaderSendMode};
use postrider_grpc::process::{CommonResponse, ProcessingMode, ProcessingResponse};
use postrider_grpc::{Any, Struct, value};
use postrider_tests::ask;
use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::{Config, Proxy, wait_until};
use postrider_tests::processor::{Processor, Say, part, plain, set, value, with};
use serde_json::{Value, json};

use crate::{KIND, NAME, PER_ROUTE, echo, fields, large, site};

#[test]
fn the_route_is_chosen_again_when_the_processor_or_the_configuration_says_so() {
    for (more, clear, want) in [
        (json!({}), true, 299),
        (json!({}), false, 200),
        (json!({"route_cache_action": "CLEAR"}), false, 299),
        (json!({"route_cache_action": "RETAIN"}), true, 200),
        (json!({"disable_clear_route_cache": true}), true, 200),
    ] {
        let processor = Processor::answering(move |request| match part(request) {
            'H' => with(request, CommonResponse { clear_route_cache: clear, ..set(&[(":path", "/moved")]) }),
            _ => plain(request),
        });
        let site = site(&processor, more.clone());
        assert_eq!(ask(&site.proxy, "GET", "test", "/", "").status, want, "{more} {clear}");
        let disabled = u64::from(want == 200 && clear);
        assert_eq!(site.stat("clear_route_cache_disabled"), disabled, "{more}");
    }
}

#[test]
fn a_processor_chooses_other_modes_where_that_is_allowed() {
    let wish = ProcessingMode {
        request_body_mode: BodySendMode::Buffered.into(),
        response_header_mode: HeaderSendMode::Skip.into(),
        ..ProcessingMode::default()
    };
    let buffered = json!({"request_body_mode": "BUFFERED", "response_header_mode": "SKIP"});
    for (more, parts) in [
        (json!({}), "Hh"),
        (json!({"allow_mode_override": true}), "HB"),
        (json!({"allow_mode_override": true, "allowed_override_modes": [buffered]}), "HB"),
        (json!({"allow_mode_override": true, "allowed_override_modes": [{"request_body_mode": "STREAMED"}]}), "Hh"),
    ] {
        let processor = Processor::answering(move |request| {
            let mode_override = (part(request) == 'H').then_some(wish);
            ProcessingResponse { mode_override, ..plain(request) }
        });
        let site = site(&processor, more.clone());
        assert_eq!(site.post(b"body").text(), "body");
        assert_eq!(processor.only().parts(), parts, "{more}");
    }
}

#[test]
fn routes_say_otherwise() {
    let processor = Processor::answering(plain);
    let other = Processor::answering(|request| match part(request) {
        'H' => with(request, set(&[("x-other", "1")])),
        _ => plain(request),
    });
    let per_route = |path: &str, says: Value| {
        let mut config = json!({"@type": PER_ROUTE});
        for (key, value) in says.as_object().unwrap() {
            config[key] = value.clone();
        }
        json!({
            "match": {"path": path},
            "route": {"cluster": "origin"},
            "typed_per_filter_config": {NAME: config},
        })
    };
    let metadata = json!([{"key": "x-meta", "value": "route"}]);
    let routes = [
        per_route("/off", json!({"disabled": true})),
        per_route("/modes", json!({"overrides": {"processing_mode": {"response_header_mode": "SKIP"}}})),
        per_route("/meta", json!({"overrides": {"grpc_initial_metadata": metadata}})),
        per_route(
            "/other",
            json!({"overrides": {
                "grpc_service": {"envoy_grpc": {"cluster_name": "other"}}, "failure_mode_allow": true,
            }}),
        ),
    ];
    let origin = echo();
    let config = Config::new()
        .http(json!({
            "http_filters": [extension(NAME, KIND, fields(json!({}))), router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster_with("processor", &[processor.address], http2())
        .cluster_with("other", &[other.address], http2())
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    assert_eq!(ask(&proxy, "GET", "test", "/off", "").status, 200);
    assert!(processor.calls().is_empty());
    assert_eq!(ask(&proxy, "GET", "test", "/modes", "").status, 200);
    assert_eq!(processor.only().parts(), "H");
    assert_eq!(ask(&proxy, "GET", "test", "/meta", "").status, 200);
    assert_eq!(processor.calls()[1].metadata.value("x-meta"), Some("route"));
    assert_eq!(ask(&proxy, "GET", "test", "/other", "").status, 200);
    assert_eq!(origin.requests()[3].headers.value("x-other"), Some("1"));
}

#[test]
fn a_processor_that_only_watches_holds_nothing_up() {
    let processor = Processor::start(|_| Vec::new());
    let modes = json!({
        "request_body_mode": "STREAMED", "response_body_mode": "STREAMED",
        "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
    });
    let more = json!({"observability_mode": true, "processing_mode": modes, "message_timeout": "0.01s"});
    let site = site(&processor, more);
    let sent = large(1_000_000);
    let answer = site.post(&sent);
    assert_eq!(answer.status, 200);
    assert!(answer.body == sent);
    wait_until("all of the answer's body", || {
        let calls = processor.calls();
        calls.first().is_some_and(|heard| heard.body('b').len() == sent.len())
    });
    let heard = processor.calls().remove(0);
    assert!(heard.requests.iter().all(|request| request.observability_mode && request.protocol_config.is_none()));
    assert!(heard.body('B') == sent && heard.body('b') == sent);
    assert_eq!(site.stat("stream_msgs_received"), 0);
}

#[test]
fn attributes_and_metadata_are_told_and_left() {
    let processor = Processor::answering(|request| {
        let text = value::Kind::StringValue("processor".into());
        let inner = Struct { fields: [("by".to_owned(), postrider_grpc::value_of(text))].into() };
        let noted = |name: &str| (name.to_owned(), postrider_grpc::value_of(value::Kind::StructValue(inner.clone())));
        let said = Struct { fields: [noted("seen"), noted("other")].into() };
        let message = Any { type_url: "x.test/own.Type".into(), value: vec![8, 1] };
        let typed = ["typed", "other"].map(|name| (name.to_owned(), message.clone()));
        ProcessingResponse { dynamic_metadata: Some(said), typed_dynamic_metadata: typed.into(), ..plain(request) }
    });
    let site = site(
        &processor,
        json!({
            "request_attributes": ["request.path", "request.method", "request.size", "source.address", "xds.route_name"],
            "response_attributes": ["response.code"],
            "metadata_options": {
                "receiving_namespaces": {"untyped": ["seen"], "typed": ["typed"]},
                "forwarding_namespaces": {"untyped": ["seen"], "typed": ["typed", "other"]},
            },
        }),
    );
    assert_eq!(ask(&site.proxy, "GET", "test", "/a", "").status, 200);
    assert_eq!(site.logged(), "200 - via_upstream processor");
    let heard = processor.only();
    let told = |index: usize| {
        let fields = &heard.requests[index].attributes[NAME].fields;
        fields.iter().map(|(name, value)| (name.clone(), value.kind.clone().unwrap())).collect::<Vec<_>>()
    };
    let text = |text: &str| value::Kind::StringValue(text.into());
    let request = told(0);
    assert_eq!(request[0], ("request.method".to_owned(), text("GET")));
    assert_eq!(request[1], ("request.path".to_owned(), text("/a")));
    assert_eq!(request[2], ("request.size".to_owned(), value::Kind::NumberValue(0.0)));
    assert_eq!(told(1), [("response.code".to_owned(), value::Kind::NumberValue(200.0))]);
    let known =
        |index: usize| heard.requests[index].metadata_context.as_ref().unwrap().filter_metadata.contains_key("seen");
    assert!(!known(0) && known(1));
    let messages = |index: usize| heard.requests[index].metadata_context.clone().unwrap().typed_filter_metadata;
    assert!(messages(0).is_empty());
    let told: Vec<_> = messages(1).into_iter().map(|(name, it)| (name, it.type_url, it.value)).collect();
    assert_eq!(told, [("typed".to_owned(), "x.test/own.Type".to_owned(), vec![8, 1])]);
}

#[test]
fn rules_say_which_headers_are_shown() {
    let processor = Processor::answering(plain);
    let rules = json!({
        "allowed_headers": {"patterns": [{"prefix": ":"}, {"prefix": "x-"}]},
        "disallowed_headers": {"patterns": [{"exact": "x-secret"}]},
    });
    let site = site(&processor, json!({"forward_rules": rules}));
    let fields = "x-public: 1\r\nx-secret: 1\r\nother: 1\r\n";
    assert_eq!(ask(&site.proxy, "GET", "test", "/", fields).status, 200);
    let heard = processor.only();
    let got = [":path", "x-public", "x-secret", "other"].map(|name| value(&heard.requests[0], name));
    assert_eq!(got, ["/", "1", "", ""]);
    assert_eq!(site.arrived().headers.value("x-secret"), Some("1"));
}

#[test]
fn a_body_need_not_wait_for_the_answer_to_the_headers() {
    let processor = Processor::talking(|| {
        let mut first = None;
        Box::new(move |request| match part(request) {
            'H' => {
                first = Some(request.clone());
                Vec::new()
            }
            'B' => {
                let mut said: Vec<Say> =
                    first.take().map(|head| Say::Answer(with(&head, set(&[("x-a", "1")])))).into_iter().collect();
                said.push(Say::Answer(plain(request)));
                said
            }
            _ => vec![Say::Answer(plain(request))],
        })
    });
    let more = json!({
        "processing_mode": {"request_body_mode": "STREAMED"}, "send_body_without_waiting_for_header_response": true,
    });
    let site = site(&processor, more);
    let sent = large(500_000);
    assert!(site.post(&sent).body == sent);
    assert_eq!(site.arrived().headers.value("x-a"), Some("1"));
    assert!(
        processor.only().requests[0].protocol_config.as_ref().unwrap().send_body_without_waiting_for_header_response
    );
}
