//! Any bytes as a request head and as a response head: the outcome does not depend on cuts, and what is
//! emitted reads back the same. Run by the fuzz target `head` and, over its corpus, by the codec's tests.

use postrider_h1::{HeadScan, RequestParse, ResponseParse, parse_request, parse_response};
use postrider_http::{
    Asked, BodyFraming, Connection, Fields, Method, RequestHead, RequestRules, RequestWrite, ResponseHead,
    ResponseRules, ResponseWrite, Underscores, check_authority, write_request, write_response,
};

/// The first byte chooses settings, the rest is the wire.
pub fn head(data: &[u8]) {
    let Some((&choice, wire)) = data.split_first() else { return };
    let mut rules = RequestRules {
        accept_http_10: choice & 1 != 0,
        allow_custom_methods: choice & 2 != 0,
        allow_chunked_length: choice & 4 != 0,
        keep_proxy_header: choice & 8 != 0,
        ..RequestRules::default()
    };
    rules.path.strict = choice & 16 == 0;
    if choice & 32 != 0 {
        rules.underscores = Underscores::Drop;
    }
    check_request(wire, &rules);
    let method = if choice & 64 != 0 { Method::Head } else { Method::Get };
    check_response(wire, Asked { method, upgrade: choice & 128 != 0 });
}

fn check_request(wire: &[u8], rules: &RequestRules) {
    let (mut scan, mut head) = (HeadScan::new(), RequestHead::new());
    let whole = parse_request(wire, rules, &mut scan, &mut head);
    for cut in cuts(wire.len()) {
        let (mut scan, mut again) = (HeadScan::new(), RequestHead::new());
        let mut outcome = parse_request(&wire[..cut], rules, &mut scan, &mut again);
        if outcome == RequestParse::Partial {
            outcome = parse_request(wire, rules, &mut scan, &mut again);
        }
        assert_eq!(outcome, whole, "cut at {cut}");
    }
    let RequestParse::Complete { consumed, facts } = whole else { return };
    assert!(consumed <= wire.len());
    assert_ne!(facts.framing, BodyFraming::UntilClose);
    assert_eq!(check_authority(head.authority()), Ok(()));
    let connection = if facts.upgrade { Connection::Upgrade } else { Connection::Implicit };
    let mut out = Vec::new();
    write_request(&head, &RequestWrite { framing: facts.framing, connection, ..Default::default() }, &mut out);
    // Whatever went in, the strictest reader of custom methods understands what comes out, and to the end.
    let strict = RequestRules {
        allow_custom_methods: true,
        keep_proxy_header: rules.keep_proxy_header,
        path: rules.path,
        ..RequestRules::default()
    };
    let mut reread = RequestHead::new();
    let RequestParse::Complete { consumed, facts: reread_facts } =
        parse_request(&out, &strict, &mut HeadScan::new(), &mut reread)
    else {
        panic!("emitted and refused: {:?}", String::from_utf8_lossy(&out));
    };
    assert_eq!(consumed, out.len());
    // A request without a body may say so by its length, where its method expects one.
    let said = if facts.framing == BodyFraming::None { BodyFraming::Length(0) } else { facts.framing };
    assert!([facts.framing, said].contains(&reread_facts.framing), "{:?}", reread_facts.framing);
    assert_eq!(reread_facts.upgrade, facts.upgrade);
    assert_eq!(reread.method_bytes(), head.method_bytes());
    assert_eq!(reread.path(), head.path());
    assert_eq!(reread.authority(), head.authority());
    assert_eq!(without_length(&reread.fields), without_length(&head.fields));
}

fn check_response(wire: &[u8], asked: Asked) {
    let rules = ResponseRules::default();
    let (mut scan, mut head) = (HeadScan::new(), ResponseHead::new());
    let whole = parse_response(wire, asked, &rules, &mut scan, &mut head);
    for cut in cuts(wire.len()) {
        let (mut scan, mut again) = (HeadScan::new(), ResponseHead::new());
        let mut outcome = parse_response(&wire[..cut], asked, &rules, &mut scan, &mut again);
        if outcome == ResponseParse::Partial {
            outcome = parse_response(wire, asked, &rules, &mut scan, &mut again);
        }
        assert_eq!(outcome, whole, "cut at {cut}");
    }
    let ResponseParse::Complete { facts, .. } = whole else {
        if let ResponseParse::Reject(reject) = whole {
            assert_eq!(reject.status, 502);
        }
        return;
    };
    let connection = if facts.tunnel { Connection::Upgrade } else { Connection::Implicit };
    let mut out = Vec::new();
    write_response(&head, &ResponseWrite { framing: facts.framing, connection, ..Default::default() }, &mut out);
    let mut reread = ResponseHead::new();
    let ResponseParse::Complete { consumed, facts: reread_facts } =
        parse_response(&out, asked, &rules, &mut HeadScan::new(), &mut reread)
    else {
        panic!("emitted and refused: {:?}", String::from_utf8_lossy(&out));
    };
    assert_eq!(consumed, out.len());
    assert_eq!(reread_facts.framing, facts.framing);
    assert_eq!(reread.status(), head.status());
    assert_eq!(without_length(&reread.fields), without_length(&head.fields));
}

/// All cuts of short inputs, a few of long ones.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (1..length).step_by(length / 64 + 1)
}

/// Fields but Content-Length, which follows the framing and may move to the end.
fn without_length(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields
        .iter()
        .filter(|field| field.name != b"content-length")
        .map(|field| (field.name.to_vec(), field.value.to_vec()))
        .collect()
}
