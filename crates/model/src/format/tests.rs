use super::names::names;
use super::parse::{Argument, takes_argument};
use super::*;
use crate::Side;

#[test]
fn text_and_commands_alternate() {
    let format = Format::parse("a %REQ(X-Id?:path):9%%PROTOCOL% 100%%\n").unwrap();
    assert_eq!(
        format.pieces,
        [
            Piece::Text("a ".into()),
            Piece::Command {
                command: Command::RequestHeader(RequestField::Named("x-id".into()), Some(RequestField::Path)),
                max_length: Some(9)
            },
            Piece::Command { command: Command::Protocol, max_length: None },
            Piece::Text(" 100%\n".into()),
        ]
    );
}

#[test]
fn a_time_pattern_may_hold_percent_signs() {
    let format = Format::parse("%START_TIME(%Y/%m/%dT%H:%M:%S%z %s.%3f)%").unwrap();
    assert_eq!(format.pieces.len(), 1);
    assert_eq!(Format::parse("%START_TIME(%Q %L 100%)%").unwrap().pieces.len(), 1);
    for bad in ["%n", "a%-5n", "%En"] {
        let error = Format::parse(&format!("%START_TIME({bad})%")).unwrap_err();
        assert!(error.message.contains("line break"), "{bad}: {error}");
    }
}

/// Brings along whatever is asked for.
struct Known;

impl Contents for Known {
    fn find(&mut self, name: &str, argument: &str) -> Result<Option<String>, String> {
        match argument {
            "gone" => Err(format!("no {name}")),
            "none" => Ok(None),
            "empty" => Ok(Some(String::new())),
            _ => Ok(Some(format!("{name} ä {argument}"))),
        }
    }
}

#[test]
fn every_name_is_a_command() {
    for name in names() {
        let text = match takes_argument(name) {
            Argument::Required if name == "COALESCE" => r#"%COALESCE({"operators": ["PROTOCOL"]})%"#.to_owned(),
            Argument::Required if name.ends_with("CEL") => format!("%{name}(request.path)%"),
            Argument::Required if name == "XFCC_VALUE" => "%XFCC_VALUE(uri)%".to_owned(),
            Argument::Required if name == "METADATA" => "%METADATA(ROUTE:x)%".to_owned(),
            Argument::Required if name == "COMMON_DURATION" => "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%".to_owned(),
            Argument::Required => format!("%{name}(x)%"),
            _ => format!("%{name}%"),
        };
        assert!(Format::parse_with(&text, &mut Known).is_ok(), "{text}");
    }
}

#[test]
fn a_broken_format_says_where_and_what_was_meant() {
    let error = Format::parse("ok %PROTOCL%").unwrap_err();
    assert_eq!((error.offset, error.suggestion), (3, Some("PROTOCOL")));
    for bad in ["%REQ(a?b?c)%", "%REQ(a:5:6)%", "%RESP(x y)%", "%TRAILER(:)%", "%REQ(a?b\"c)%"] {
        assert!(Format::parse(bad).is_err(), "{bad}");
    }
    for good in ["%REQ(a?)%", "%REQ(?a)%", "%REQ(:zz?x-y)%"] {
        assert!(Format::parse(good).is_ok(), "{good}");
    }
    for bad in ["%", "100% sure", "%REQ%", "%REQ()%", "%PROTOCOL(x)%", "%REQ(a):x%", "%REQ(a", "%a%"] {
        assert!(Format::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn moments_paths_and_networks_are_read_or_refused_by_name() {
    let command = |text: &str| match Format::parse(text).unwrap().pieces.remove(0) {
        Piece::Command { command, .. } => command,
        Piece::Text(text) => panic!("{text}"),
    };
    let between = |start, end, unit| Command::Between { start, end, unit };
    for (text, wanted) in [
        ("%PATH%", Command::Path { query: true, which: PathOf::OriginalOrCurrent }),
        ("%PATH(NQ)%", Command::Path { query: false, which: PathOf::OriginalOrCurrent }),
        ("%PATH(NQ:ORIG)%", Command::Path { query: false, which: PathOf::Original }),
        ("%PATH(WQ:PATH)%", Command::Path { query: true, which: PathOf::Current }),
        (
            "%COMMON_DURATION(DS_RX_END:US_RX_BEG:ns)%",
            between(StreamMoment::RequestReceived, StreamMoment::ResponseBegan, TimeUnit::Nanoseconds),
        ),
        (
            "%COMMON_DURATION(US_CX_BEG:DS_TX_BEG:us)%",
            between(StreamMoment::ConnectBegan, StreamMoment::ResponseSendBegan, TimeUnit::Microseconds),
        ),
        (
            "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG)%",
            between(StreamMoment::Began, StreamMoment::ResponseBodyBegan, TimeUnit::Milliseconds),
        ),
        ("%COMMON_DURATION(DS_RX_BEG:foo:us)%", Command::Nothing),
        ("%UPSTREAM_CONNECTION_POOL_READY_DURATION%", Command::UpstreamWait),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(300)%", Command::DownstreamRemoteAddress(AddressPart::Network(255))),
        ("%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(x=4)%", Command::DownstreamLocalAddress(AddressPart::WithoutPort)),
        ("%PROTOCOL()%", Command::Protocol),
        ("%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%", Command::ResponseCodeDetails { spaces: true }),
        ("%RESPONSE_CODE_DETAILS(x)%", Command::ResponseCodeDetails { spaces: false }),
        ("%STREAM_INFO_REQ(:path)%", Command::RequestHeader(RequestField::Path, None)),
        ("%REQUESTED_SERVER_NAME(SNI_ONLY:HOST)%", Command::Tls(Side::Downstream, TlsPart::ServerName)),
        (
            "%REQUESTED_SERVER_NAME(HOST_FIRST:ORIG:x)%",
            Command::RequestedName { source: NameSource::HostOrGreeting, which: PathOf::Original },
        ),
        ("%XFCC_VALUE(Subject)%", Command::ForwardedCertificate("subject".into())),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(16)%", Command::DownstreamRemoteAddress(AddressPart::Network(16))),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT()%", Command::DownstreamRemoteAddress(AddressPart::WithoutPort)),
        ("%QUERY_PARAMS(DECODED)%", Command::QueryParameters { decoded: true }),
        ("%QUERY_PARAMS(ORIG)%", Command::QueryParameters { decoded: false }),
        ("%START_TIME_LOCAL(%z)%", Command::StartTime(TimeFormat::Local("%z".into()))),
        (
            "%UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT%",
            Command::Wire(WireBytes { side: Side::Upstream, way: Way::Sent, part: WirePart::PlainHead }),
        ),
    ] {
        assert_eq!(command(text), wanted, "{text}");
    }
    for (text, said) in [
        ("%PATH(XQ)%", "`XQ`"),
        ("%PATH(WQ:x)%", "`x`"),
        ("%COMMON_DURATION(DS_RX_BEG)%", "START:END:UNIT"),
        ("%UPSTREAM_CONNECTION_POOL_READY_DURATION(us)%", "takes no"),
        ("%REQUESTED_SERVER_NAME(SNI)%", "`SNI`"),
        ("%REQUESTED_SERVER_NAME(SNI_FIRST:x)%", "`x`"),
        ("%XFCC_VALUE(email)%", "`email`"),
        ("%COMMON_DURATION(DS_RX_BEG:DS_TX_END:s)%", "`s`"),
        ("%QUERY_PARAMS(X)%", "ORIG or DECODED"),
        ("%SECRET(a)%", "generic_secret.v3.GenericSecret"),
        ("%FILE_CONTENT(/a)%", "file_content.v3.FileContent"),
        ("%FILE_CONTENT()%", "needs an argument"),
        ("%PER_REQUEST_STATE(a)%", "headers alone"),
        ("%DOWNSTREAM_WIRE_BYTES_LOST%", "no command known"),
    ] {
        let error = Format::parse(text).unwrap_err();
        assert!(error.message.contains(said), "{text}: {error}");
    }
}

#[test]
fn what_was_noted_is_named_from_the_outside_in() {
    let command = |text: &str| match Format::parse(text).unwrap().pieces.remove(0) {
        Piece::Command { command, max_length } => (command, max_length),
        Piece::Text(text) => panic!("{text}"),
    };
    let metadata = |of, namespace: &str, path: &[&str]| Command::Metadata {
        of,
        namespace: namespace.into(),
        path: path.iter().map(|key| (*key).to_owned()).collect(),
    };
    for (text, wanted) in [
        ("%DYNAMIC_METADATA(a.b)%", metadata(MetadataOf::Stream, "a.b", &[])),
        ("%DYNAMIC_METADATA(a.b:k:sub)%", metadata(MetadataOf::Stream, "a.b", &["k", "sub"])),
        ("%METADATA(DYNAMIC:a:k)%", metadata(MetadataOf::Stream, "a", &["k"])),
        ("%METADATA(ROUTE:a:k)%", metadata(MetadataOf::Route, "a", &["k"])),
        ("%METADATA(LISTENER:a:k)%", metadata(MetadataOf::Listener, "a", &["k"])),
        ("%METADATA(LISTENER_FILTER_CHAIN:a)%", metadata(MetadataOf::FilterChain, "a", &[])),
        ("%METADATA(VIRTUAL_HOST:a)%", metadata(MetadataOf::VirtualHost, "a", &[])),
        ("%METADATA(ROUTE)%", metadata(MetadataOf::Route, "", &[])),
        ("%DYNAMIC_METADATA(a::b)%", metadata(MetadataOf::Stream, "a", &["", "b"])),
    ] {
        assert_eq!(command(text), (wanted, None), "{text}");
    }
    assert_eq!(command("%DYNAMIC_METADATA(a:k):7%").1, Some(7));
    let state = |form| Command::FilterState { name: "x.y".into(), form };
    for (text, wanted) in [
        ("%FILTER_STATE(x.y)%", state(StateForm::Typed)),
        ("%FILTER_STATE(x.y:TYPED)%", state(StateForm::Typed)),
        ("%UPSTREAM_FILTER_STATE(x:PLAIN)%", Command::SharedState { name: "x".into(), form: StateForm::Plain }),
        ("%FILTER_STATE(x.y:PLAIN):7%", state(StateForm::Plain)),
        ("%FILTER_STATE(x.y:FIELD:f)%", state(StateForm::Field("f".into()))),
        ("%FILTER_STATE(x.y:FIELD:f:g)%", state(StateForm::Field("f".into()))),
    ] {
        assert_eq!(command(text).0, wanted, "{text}");
    }
    for bad in [
        "%DYNAMIC_METADATA%",
        "%DYNAMIC_METADATA()%",
        "%METADATA(a:b)%",
        "%FILTER_STATE(:PLAIN)%",
        "%FILTER_STATE(x:OTHER)%",
        "%FILTER_STATE(x:FIELD)%",
        "%FILTER_STATE(x:PLAIN:y)%",
    ] {
        assert!(Format::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_expression_may_hold_brackets() {
    let format = Format::parse("%CEL(size(request.path) > 3):2% %REQ(a)%").unwrap();
    let [Piece::Command { command: Command::Expression { typed: false, .. }, max_length: Some(2) }, Piece::Text(_), _] =
        format.pieces.as_slice()
    else {
        panic!("{format:?}");
    };
    let typed = Format::parse("%TYPED_CEL(request.path)%").unwrap();
    assert!(matches!(
        typed.pieces.as_slice(),
        [Piece::Command { command: Command::Expression { typed: true, .. }, .. }]
    ));
    assert!(Format::parse("%CEL(request.)%").is_err());
    assert!(Format::parse("%REQ(a)x%").is_err());
}

#[test]
fn what_a_configuration_brings_along_is_text_from_then_on() {
    let parse = |text: &str| Format::parse_with(text, &mut Known);
    assert_eq!(
        parse("<%SECRET(a)%|%FILE_CONTENT(/b%)%>").unwrap().as_literal(),
        Some("<SECRET ä a|FILE_CONTENT ä /b%>")
    );
    assert_eq!(parse("%SECRET(a):6%").unwrap().as_literal(), Some("SECRET"));
    assert_eq!(parse("%SECRET(a):8%").unwrap().as_literal(), Some("SECRET "), "no half characters");
    assert_eq!(parse("%FILE_CONTENT(empty)%").unwrap().as_literal(), Some(""));
    let none = parse("%SECRET(none)%").unwrap().pieces;
    assert_eq!(none, [Piece::Command { command: Command::Nothing, max_length: None }]);
    let error = parse("x %SECRET(gone)%").unwrap_err();
    assert_eq!((error.offset, error.message.as_str()), (2, "no SECRET"));
}

#[test]
fn a_file_may_have_a_folder_that_is_watched() {
    assert_eq!(file_of_content("/a/b"), Ok(("/a/b", None)));
    assert_eq!(file_of_content("/a/b:/c"), Ok(("/a/b", Some("/c"))));
    for bad in ["", ":/c", "/a:", "/a:/b:/c"] {
        assert!(file_of_content(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_literal_round_trips() {
    assert_eq!(Format::parse("plain").unwrap().as_literal(), Some("plain"));
    assert_eq!(Format::literal("").as_literal(), Some(""));
    assert_eq!(Format::parse("%PROTOCOL%").unwrap().as_literal(), None);
}

#[test]
fn logs_that_tell_what_is_known_when_a_head_is_written_are_found() {
    let of = |format: &str| crate::AccessLog {
        output: crate::LogOutput::Lines {
            sink: crate::AccessLogSink::Stdout,
            format: crate::LogFormat::Text(Format::parse(format).unwrap()),
        },
        condition: None,
    };
    for told in ["%RESP(Content-Length)%", "%RESP(x-a?server)%", "a%RESP(connection):3%"] {
        assert!(of(told).tells_written_fields(), "{told}");
    }
    assert!(!of("%RESP(date)% %RESP(x-envoy-upstream-service-time)% %REQ(connection)%").tells_written_fields());
}
