//! Every function of the proxy-wasm ABI is called by a module in each language, and answers alike on Postrider and on Envoy.

use postrider_tests::h2_origin::H2Origin;
use postrider_tests::kit::config::upstream_http_options;
use postrider_tests::kit::{Origin, Response, wait_until};
use postrider_tests::site::{self, Site};
use postrider_tests::wasm::{complete_languages, languages, module, with_code};
use serde_json::json;

/// The functions of versions 0.2.0 and 0.2.1 of the ABI.
const FUNCTIONS: [&str; 39] = [
    "proxy_log",
    "proxy_get_log_level",
    "proxy_get_current_time_nanoseconds",
    "proxy_set_tick_period_milliseconds",
    "proxy_get_property",
    "proxy_set_property",
    "proxy_get_header_map_pairs",
    "proxy_set_header_map_pairs",
    "proxy_get_header_map_size",
    "proxy_get_header_map_value",
    "proxy_add_header_map_value",
    "proxy_replace_header_map_value",
    "proxy_remove_header_map_value",
    "proxy_get_buffer_status",
    "proxy_get_buffer_bytes",
    "proxy_set_buffer_bytes",
    "proxy_send_local_response",
    "proxy_continue_stream",
    "proxy_close_stream",
    "proxy_http_call",
    "proxy_grpc_call",
    "proxy_grpc_stream",
    "proxy_grpc_send",
    "proxy_grpc_cancel",
    "proxy_grpc_close",
    "proxy_get_shared_data",
    "proxy_set_shared_data",
    "proxy_register_shared_queue",
    "proxy_resolve_shared_queue",
    "proxy_enqueue_shared_queue",
    "proxy_dequeue_shared_queue",
    "proxy_define_metric",
    "proxy_increment_metric",
    "proxy_record_metric",
    "proxy_get_metric",
    "proxy_set_effective_context",
    "proxy_done",
    "proxy_call_foreign_function",
    "proxy_get_status",
];

/// What a language's SDK has no words for, or none that can be used.
fn without(language: &str) -> &'static [&'static str] {
    match language {
        // The SDK for Go speaks a version of the ABI that has no such function.
        "go" => &["proxy_get_log_level"],
        "rust" => &["proxy_done", "proxy_get_header_map_size", "proxy_get_buffer_status"],
        _ => &[],
    }
}

/// What a tour finds, in its order.
const FOUND: [&str; 30] = [
    "get_log_level=true",
    "log=ok",
    "get_current_time_nanoseconds=true",
    "get_property=plugin",
    "set_property=ok",
    "done=1",
    "call_foreign_function=ok",
    "get_metric=3",
    "get_header_map_value=1",
    "get_header_map_pairs=x-a:2+x-added:1",
    "get_header_map_size=true",
    "set_shared_data=ok",
    "get_shared_data=kept",
    "resolve_shared_queue=true",
    "enqueue_shared_queue=ok",
    "http_call=ok",
    "get_buffer_bytes=asked",
    "grpc_call=0",
    "on_grpc_receive=hello",
    "grpc_stream=0",
    "grpc_send=0",
    "on_grpc_receive=again",
    "grpc_cancel=0",
    "grpc_close=0",
    "get_status=0 true",
    "set_effective_context=ok",
    "continue_stream=ok",
    "set_tick_period_milliseconds=ticked",
    "dequeue_shared_queue=message",
    "set_header_map_pairs=ok",
];

/// What a tour in AssemblyScript finds: its SDK has words for these, and a version of the ABI without the first one above.
const FOUND_IN_ASSEMBLYSCRIPT: &str = "log=ok get_current_time_nanoseconds=true get_property=plugin set_property=0 done=1 \
    define_metric=0 increment_metric=0 record_metric=0 get_header_map_value=1 get_header_map_size=true http_call=0 \
    get_buffer_bytes=asked set_tick_period_milliseconds=ticked";

/// The functions that the tour in a language calls.
fn called(language: &str) -> Vec<String> {
    imports(&std::fs::read(module(language, "tour")).unwrap())
}

fn site(language: &str, service: &Origin, grpc: &H2Origin) -> Site {
    let config = json!({"service": "service", "grpc": "grpc"});
    let http2 = upstream_http_options(
        json!({"explicit_http_config": {"http_protocol_options": null, "http2_protocol_options": {}}}),
    );
    let code = json!({"local": {"filename": module(language, "tour")}});
    let vm = json!({"vm_config": {"vm_id": "tour"}});
    site::with([with_code(code, &config, vm)])
        .cluster("service", &[service.address], json!({}))
        .cluster("grpc", &[grpc.address], http2)
        .log("%RESPONSE_CODE% %FILTER_STATE(wasm.toured:PLAIN)%")
        .start()
}

#[test]
fn each_function_is_called_in_three_languages() {
    let called: Vec<_> = languages().into_iter().map(|language| (language, called(language))).collect();
    let calls = |(language, all): &&(&str, Vec<String>), name: &str| {
        // What an SDK imports and has no safe words for is there and not called.
        all.iter().any(|known| known == name) && !without(language).contains(&name)
    };
    for name in FUNCTIONS {
        // Two of the SDKs speak a version of the ABI that has no such function.
        let enough = if name == "proxy_get_log_level" { 2 } else { 3 };
        // A language that cannot be built here is missed once.
        let missed = 3 - complete_languages().len();
        assert!(called.iter().filter(|tour| calls(tour, name)).count() + missed >= enough, "{name}");
        for tour in called.iter().filter(|(language, _)| *language != "assemblyscript") {
            let expected = !without(tour.0).contains(&name);
            assert_eq!(calls(&tour, name), expected, "{name} in {}", tour.0);
        }
    }
}

/// A tour of the module in that language; the timer may not have gone off in the first ones.
fn tour(site: &Site) -> Response {
    let ask = || site.get("/tour", "x-a: 1\r\nx-b: 2\r\n");
    let mut answer = ask();
    wait_until("a tick", || {
        answer = ask();
        answer.header("x-tour").contains("=ticked")
    });
    let seen = site.origin.requests().pop().unwrap().headers;
    assert_eq!(["x-a", "x-b", "x-added"].map(|name| seen.values(name).join("|")), ["2", "", "1"]);
    assert!(site.stat("wasmcustom.tour_counter") >= 6);
    assert!(site.stat("wasmcustom.tour_gauge") >= 10);
    answer
}

#[test]
fn functions_do_what_they_do_elsewhere() {
    let service = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nasked");
    for language in complete_languages() {
        let grpc = H2Origin::start(10);
        let site = site(language, &service, &grpc);
        let answer = tour(&site);
        let left_out = |step: &&str| {
            let (name, _) = step.split_once('=').unwrap();
            !without(language).iter().any(|function| function.strip_prefix("proxy_") == Some(name))
        };
        let expected: Vec<&str> = FOUND.into_iter().filter(left_out).collect();
        assert_eq!(answer.header("x-tour"), expected.join(" "), "{language}");
        let body = if language == "rust" { "toured" } else { "get_buffer_status=0 true" };
        assert_eq!((answer.status, answer.text()), (200, body), "{language}");
        assert_eq!(answer.header("x-set"), "3", "{language}");
        assert_eq!(site.logged(1), "200 yes", "{language}");
        assert_eq!(service.requests().pop().unwrap().body, b"body", "{language}");
        let answer = site.get("/answer", "");
        assert_eq!((answer.status, answer.header("x-answered")), (418, "yes"), "{language}");
        let mut client = site.proxy.client();
        client.send(postrider_tests::get("/close"));
        assert!(client.closed(), "{language}");
    }
}

#[test]
fn functions_do_the_same_for_assemblyscript() {
    let service = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nasked");
    let grpc = H2Origin::start(10);
    let site = site("assemblyscript", &service, &grpc);
    let answer = tour(&site);
    assert_eq!((answer.status, answer.header("x-tour")), (200, FOUND_IN_ASSEMBLYSCRIPT));
    assert_eq!(site.logged(1), "200 yes");
    let answer = site.get("/answer", "");
    assert_eq!((answer.status, answer.text()), (418, "teapot"));
}

/// The functions that a module imports from `env`: what it does not call, compilers leave out.
fn imports(module: &[u8]) -> Vec<String> {
    const IMPORTS: u8 = 2;
    let mut rest = &module[8..];
    let mut names = Vec::new();
    while !rest.is_empty() {
        let kind = byte(&mut rest);
        let length = number(&mut rest);
        let mut section = take(&mut rest, length);
        if kind != IMPORTS {
            continue;
        }
        for _ in 0..number(&mut section) {
            let length = number(&mut section);
            let from = take(&mut section, length);
            let length = number(&mut section);
            let name = take(&mut section, length);
            // No module here imports anything but functions: behind each stands its type.
            assert_eq!(byte(&mut section), 0);
            number(&mut section);
            if from == b"env" {
                names.push(String::from_utf8(name.to_vec()).unwrap());
            }
        }
    }
    names
}

fn byte(bytes: &mut &[u8]) -> u8 {
    take(bytes, 1)[0]
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

/// In LEB128.
fn number(bytes: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let next = byte(bytes);
        value |= usize::from(next & 0x7f) << shift;
        if next < 0x80 {
            return value;
        }
        shift += 7;
    }
}
