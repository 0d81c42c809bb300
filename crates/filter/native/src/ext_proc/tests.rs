use std::time::Duration;

use postrider_filter_api::testing::FakeStream;
use postrider_filter_api::{GrpcPipe, GrpcStatus};
use postrider_grpc::Message;
use postrider_grpc::core::{HeaderMap, HeaderValue, HeaderValueOption};
use postrider_grpc::process::body_mutation::Mutation;
use postrider_grpc::process::processing_request::Request;
use postrider_grpc::process::processing_response::Response;
use postrider_grpc::process::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, ProcessingRequest, ProcessingResponse,
    StreamedBodyResponse,
};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::testing::{list, object, place, request, text};

fn config(more: Vec<(&str, Value)>) -> Value {
    let service = object([("envoy_grpc", object([("cluster_name", text("processor"))]))]);
    let mut entries = vec![("grpc_service".to_owned(), service)];
    entries.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Value::Map(entries)
}

fn modes<const N: usize>(entries: [(&str, &str); N]) -> Value {
    object(entries.map(|(key, mode)| (key, text(mode))))
}

fn refused(config: &Value) -> Vec<(String, String)> {
    let errors = build("proc", config).err().unwrap_or_default();
    errors.into_iter().map(|error| (error.path, error.message)).collect()
}

fn filter(config: &Value) -> Rc<dyn Filter> {
    build("proc", config).ok().unwrap().filter(&ScopedConfigs::default(), &place())
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for key in ["http_service", "filter_metadata", "processing_request_modifier", "on_processing_response"] {
        let found = refused(&config(vec![(key, object([]))]));
        assert!(found.len() == 1 && found[0].0 == key && found[0].1.contains("not supported"), "{found:?}");
    }
    let found = refused(&config(vec![("allow_content_length_header", Value::Bool(true))]));
    assert_eq!(found[0].0, "allow_content_length_header");
    let found = refused(&config(vec![("request_attributes", list([text("request.path"), text("request.teapot")]))]));
    assert!(found.len() == 1 && found[0].1.contains("request.teapot"), "{found:?}");
    let options = object([("cluster_metadata_forwarding_namespaces", object([]))]);
    let paths: Vec<String> = refused(&config(vec![("metadata_options", options)])).into_iter().map(|e| e.0).collect();
    let at = |key: &str| format!("metadata_options.{key}");
    assert_eq!(paths, [at("cluster_metadata_forwarding_namespaces")]);
}

#[test]
fn modes_that_do_not_go_together_are_refused() {
    let of = |entries| refused(&config(vec![("processing_mode", entries)]));
    let found = of(modes([("request_body_mode", "FULL_DUPLEX_STREAMED"), ("response_body_mode", "GRPC")]));
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["processing_mode.response_body_mode", "processing_mode.request_body_mode"]);
    assert!(of(modes([("request_body_mode", "FULL_DUPLEX_STREAMED"), ("request_trailer_mode", "SEND")])).is_empty());
    let both = vec![("disable_clear_route_cache", Value::Bool(true)), ("route_cache_action", text("CLEAR"))];
    assert_eq!(refused(&config(both))[0].0, "route_cache_action");
    assert_eq!(refused(&config(vec![("message_timeout", text("3601s"))]))[0].0, "message_timeout");
    assert_eq!(refused(&object([]))[0].0, "grpc_service");
}

#[test]
fn an_override_says_one_thing_or_the_other() {
    let factory = build("proc", &config(Vec::new())).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([])).is_err());
    assert!(factory.route_config(ROUTE_KIND, &object([("disabled", Value::Bool(false))])).is_err());
    let off = factory.route_config(ROUTE_KIND, &object([("disabled", Value::Bool(true))])).ok();
    let on = factory.route_config(ROUTE_KIND, &object([("overrides", object([]))])).ok();
    let wants = |virtual_host, route| {
        let configs = ScopedConfigs { virtual_host, route, ..ScopedConfigs::default() };
        factory.filter(&configs, &place()).hooks().request_headers
    };
    assert!(!wants(on.clone(), off.clone()));
    assert!(wants(off, on), "the more specific one has the last word");
}

/// A request on its way through the filter, and the processor's end of its conversation.
struct Talk {
    filter: Rc<dyn Filter>,
    stream: FakeStream,
    state: State,
}

impl Talk {
    fn new(config: &Value) -> Talk {
        Talk { filter: filter(config), stream: request("/", &[("content-length", "9")]), state: State::default() }
    }

    fn head(&mut self, end: bool) -> Action {
        let Talk { filter, stream, state } = self;
        stream.with(|stream| filter.on_request_headers(state, stream, end))
    }

    fn piece(&mut self, bytes: &[u8], end: bool) -> Action {
        let Talk { filter, stream, state } = self;
        stream.request_body.replace(bytes);
        let action = stream.with(|stream| filter.on_request_body(state, stream, end));
        stream.request_body.clear();
        action
    }

    fn resumed(&mut self) -> Action {
        let Talk { filter, stream, state } = self;
        stream.with(|stream| filter.on_request_resumed(state, stream))
    }

    /// Everything that goes on now.
    fn flow(&mut self) -> (Vec<Vec<u8>>, Flow) {
        let mut pieces = Vec::new();
        loop {
            let Talk { filter, stream, state } = self;
            stream.request_body.clear();
            match stream.with(|stream| filter.on_request_flow(state, stream)) {
                Flow::Head => pieces.push(b"head".to_vec()),
                Flow::Piece => pieces.push(stream.request_body.bytes().to_vec()),
                flow => return (pieces, flow),
            }
        }
    }

    fn pipe(&self) -> Rc<GrpcPipe> {
        self.stream.host.conversations.borrow()[0].1.clone()
    }

    /// What the processor hears next.
    fn hears(&self) -> Option<Request> {
        match self.pipe().poll_outgoing(&Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(message)) => ProcessingRequest::decode(message.as_slice()).unwrap().request,
            _ => None,
        }
    }

    fn says(&self, response: Response) {
        let response = ProcessingResponse { response: Some(response), ..ProcessingResponse::default() };
        self.pipe().deliver(response.encode_to_vec());
    }
}

fn headers(common: CommonResponse) -> Response {
    Response::RequestHeaders(HeadersResponse { response: Some(common) })
}

fn body(mutation: Option<Mutation>) -> Response {
    let body_mutation = mutation.map(|mutation| BodyMutation { mutation: Some(mutation) });
    let response = Some(CommonResponse { body_mutation, ..CommonResponse::default() });
    Response::RequestBody(BodyResponse { response })
}

fn piece(bytes: &[u8], end_of_stream: bool) -> Response {
    let streamed = StreamedBodyResponse { body: bytes.to_vec(), end_of_stream, ..StreamedBodyResponse::default() };
    body(Some(Mutation::StreamedResponse(streamed)))
}

#[test]
fn a_head_waits_for_its_answer_and_is_changed() {
    let mut talk = Talk::new(&config(Vec::new()));
    assert!(matches!(talk.head(true), Action::Pause));
    let Some(Request::RequestHeaders(told)) = talk.hears() else { panic!("no headers") };
    assert!(told.end_of_stream);
    let lines: HeaderMap = told.headers.unwrap();
    assert!(lines.headers.iter().any(|line| line.key == ":path" && line.raw_value == b"/"));
    assert!(matches!(talk.resumed(), Action::Pause), "nothing was said");
    let header = HeaderValue { key: "x-new".into(), raw_value: b"1".into(), ..HeaderValue::default() };
    let option = HeaderValueOption { header: Some(header), ..HeaderValueOption::default() };
    let mutation = HeaderMutation { set_headers: vec![option], remove_headers: Vec::new() };
    talk.says(headers(CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() }));
    assert!(matches!(talk.resumed(), Action::Done));
    assert_eq!(talk.stream.request.fields.get_name(b"x-new"), Some(&b"1"[..]));
}

#[test]
fn pieces_are_under_way_at_once_and_are_answered_in_order() {
    let mut talk = Talk::new(&config(vec![("processing_mode", modes([("request_body_mode", "STREAMED")]))]));
    assert!(matches!(talk.head(false), Action::Pause));
    assert!(talk.stream.request.fields.get_name(b"content-length").is_none());
    talk.hears();
    talk.says(headers(CommonResponse::default()));
    assert!(matches!(talk.resumed(), Action::Take));
    assert!(matches!(talk.flow(), (pieces, Flow::Want) if pieces == [b"head"]));
    talk.piece(b"one", false);
    talk.piece(b"two", false);
    talk.piece(b"three", true);
    assert!(matches!(talk.flow(), (pieces, Flow::Wait) if pieces.is_empty()));
    for _ in 0..3 {
        assert!(matches!(talk.hears(), Some(Request::RequestBody(_))));
    }
    talk.says(body(Some(Mutation::Body(b"uno".to_vec()))));
    talk.says(body(Some(Mutation::ClearBody(true))));
    assert!(matches!(talk.flow(), (pieces, Flow::Wait) if pieces == [b"uno"]));
    talk.says(body(None));
    assert!(matches!(talk.flow(), (pieces, Flow::Release) if pieces == [b"three"]));
}

#[test]
fn no_more_is_taken_than_may_be_unanswered() {
    let mut talk = Talk::new(&config(vec![(
        "processing_mode",
        modes([("request_header_mode", "SKIP"), ("request_body_mode", "STREAMED")]),
    )]));
    assert!(matches!(talk.head(false), Action::Take));
    let mut taken = 0;
    while matches!(talk.flow().1, Flow::Want) {
        talk.piece(&[7; 100_000], false);
        while talk.hears().is_some() {}
        taken += 1;
        assert!(taken < 100, "it is bounded");
    }
    assert_eq!(taken, 11, "a mebibyte of them");
    talk.says(body(None));
    assert!(matches!(talk.flow(), (pieces, Flow::Want) if pieces.len() == 1));
}

#[test]
fn what_a_processor_never_hears_is_not_taken() {
    let duplex = modes([("request_body_mode", "FULL_DUPLEX_STREAMED"), ("request_trailer_mode", "SEND")]);
    let mut talk = Talk::new(&config(vec![("processing_mode", duplex)]));
    assert!(matches!(talk.head(false), Action::Take));
    let mut taken = 0;
    while matches!(talk.flow().1, Flow::Want) {
        talk.piece(&[7; 100_000], false);
        taken += 1;
        assert!(taken < 100, "it is bounded");
    }
    assert_eq!(taken, 3, "a full queue of them");
}

#[test]
fn a_processor_says_itself_what_goes_on() {
    let duplex = modes([("request_body_mode", "FULL_DUPLEX_STREAMED"), ("request_trailer_mode", "SEND")]);
    let mut talk = Talk::new(&config(vec![("processing_mode", duplex)]));
    assert!(matches!(talk.head(false), Action::Take));
    talk.piece(b"abc", true);
    assert!(talk.flow().0.is_empty(), "not even the head");
    talk.says(headers(CommonResponse::default()));
    talk.says(piece(b"A", false));
    talk.says(piece(b"", false));
    talk.says(piece(b"B", true));
    assert!(matches!(talk.flow(), (pieces, Flow::Release) if pieces == [&b"head"[..], b"A", b"B"]));
}

#[test]
fn a_processor_that_ends_early_leaves_the_rest_out() {
    let duplex = modes([("request_body_mode", "FULL_DUPLEX_STREAMED"), ("request_trailer_mode", "SEND")]);
    let mut talk = Talk::new(&config(vec![("processing_mode", duplex)]));
    talk.head(false);
    talk.piece(b"abc", false);
    talk.says(headers(CommonResponse::default()));
    talk.says(piece(b"A", true));
    assert!(matches!(talk.flow(), (pieces, Flow::Finish) if pieces == [&b"head"[..], b"A"]));
    assert!(matches!(talk.piece(b"def", true), Action::Continue));
}

#[test]
fn what_was_not_answered_goes_on_when_the_processor_leaves() {
    let mut talk = Talk::new(&config(vec![(
        "processing_mode",
        modes([("request_header_mode", "SKIP"), ("request_body_mode", "STREAMED")]),
    )]));
    talk.head(false);
    talk.flow();
    talk.piece(b"one", false);
    talk.piece(b"two", false);
    talk.says(body(Some(Mutation::Body(b"uno".to_vec()))));
    talk.pipe().end(GrpcStatus::default());
    assert!(matches!(talk.flow(), (pieces, Flow::Release) if pieces == [b"uno", b"two"]));
}

#[test]
fn an_answer_that_does_not_come_is_late() {
    let mut talk = Talk::new(&config(vec![("message_timeout", text("0.1s"))]));
    talk.head(true);
    let (time, ring) = talk.stream.host.timers.borrow_mut().pop().unwrap();
    assert_eq!(time, Duration::from_millis(100));
    ring();
    assert!(matches!(talk.resumed(), Action::Pause), "the clock stands still");
    talk.stream.host.clock =
        || (postrider_filter_api::Moment::from_nanos(100_000_000), std::time::SystemTime::UNIX_EPOCH);
    let Action::Respond(reply) = talk.resumed() else { panic!("let through") };
    assert_eq!((reply.status, &*reply.details), (504, "ext_proc_error_per-message_timeout_exceeded"));
}

#[test]
fn answers_to_what_was_not_asked_are_not_kept_for_later() {
    let mut talk = Talk::new(&config(Vec::new()));
    talk.head(true);
    talk.says(Response::ResponseHeaders(HeadersResponse::default()));
    let Action::Respond(reply) = talk.resumed() else { panic!("let through") };
    assert_eq!((reply.status, &*reply.details), (500, "spurious_message"));
}

#[test]
fn an_answer_that_is_no_message_is_a_failure() {
    let mut talk = Talk::new(&config(Vec::new()));
    talk.head(true);
    talk.pipe().deliver(vec![0xff; 3]);
    assert!(matches!(talk.resumed(), Action::Respond(reply) if reply.status == 500));
}
