//! What the wire tables share.
#![allow(dead_code)]

use postrider_h1::{HeadScan, RequestParse, parse_request};
use postrider_http::{Fields, HeaderId, RequestHead, RequestRules};

/// A GET with a Host and these field lines.
pub fn get(fields: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").into_bytes()
}

/// A POST with a Host and these field lines.
pub fn post(fields: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").into_bytes()
}

pub fn parse_whole(input: &[u8], rules: &RequestRules) -> (RequestParse, RequestHead) {
    let mut head = RequestHead::new();
    let outcome = parse_request(input, rules, &mut HeadScan::new(), &mut head);
    (outcome, head)
}

/// Feeds `input` in two pieces for every cut, then byte by byte: outcome and head must be those of the
/// whole, or the same refusal earlier.
pub fn parse_at_every_cut(input: &[u8], rules: &RequestRules, whole: &(RequestParse, RequestHead)) {
    // Long inputs are cut where lines meet and at a few places in between.
    let cuts: Vec<usize> = if input.len() < 2_000 {
        (1..input.len()).collect()
    } else {
        (1..input.len()).filter(|&at| at % 997 == 0 || at < 40 || at + 40 > input.len()).collect()
    };
    let mut scan = HeadScan::new();
    let mut head = RequestHead::new();
    let mut check = |pieces: &[usize]| {
        let mut outcome = RequestParse::Partial;
        for &end in pieces {
            outcome = parse_request(&input[..end], rules, &mut scan, &mut head);
            if outcome != RequestParse::Partial {
                break;
            }
        }
        assert_eq!(outcome, whole.0, "{:?} cut at {pieces:?}", String::from_utf8_lossy(input));
        if let RequestParse::Complete { .. } = outcome {
            assert_eq!(request_text(&head), request_text(&whole.1));
        }
        scan.reset();
    };
    for &cut in &cuts {
        check(&[cut, input.len()]);
    }
    let mut every = cuts;
    every.push(input.len());
    check(&every);
}

pub fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| b as char).collect()
}

pub fn fields_text(fields: &Fields) -> String {
    fields.iter().map(|f| format!("|{}: {}", text(f.name), text(f.value))).collect()
}

/// `METHOD path|name: value|…`
pub fn request_text(head: &RequestHead) -> String {
    format!("{} {}{}", text(head.method_bytes()), text(head.path()), fields_text(&head.fields))
}

pub fn field(head: &RequestHead, id: HeaderId) -> Option<&[u8]> {
    head.fields.get(id)
}
