//! Bodies in every framing, cut at every byte; strict chunk syntax; relay and encoder.

mod common;

use common::fields_text;
use postrider_h1::{BodyDecoder, BodyError, ChunkedRelay, MAX_CHUNK_EXTENSION_BYTES, write_chunk, write_last_chunk};
use postrider_http::{BodyFraming, Fields, HeadLimits, HeaderId};

/// Data, trailers, bytes of the input that belong to the body; or the error.
type Outcome = Result<(Vec<u8>, String, usize), BodyError>;

/// Decodes `pieces` one after the other.
fn decode(framing: BodyFraming, pieces: &[&[u8]]) -> Outcome {
    let mut decoder = BodyDecoder::new(framing, HeadLimits::default());
    let mut trailers = Fields::new();
    let (mut data, mut total) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let decoded = decoder.decode(rest, &mut trailers)?;
            assert!(decoded.data.end <= decoded.consumed && decoded.consumed <= rest.len());
            assert!(decoded.consumed > 0, "no progress on {rest:?}");
            assert_eq!(decoded.done, decoder.is_done());
            data.extend_from_slice(&rest[decoded.data]);
            total += decoded.consumed;
            rest = &rest[decoded.consumed..];
        }
    }
    decoder.end_of_input()?;
    assert!(decoder.is_done());
    Ok((data, fields_text(&trailers), total))
}

fn relay(pieces: &[&[u8]]) -> Result<(Vec<u8>, u64), BodyError> {
    let mut relay = ChunkedRelay::new(HeadLimits::default());
    let (mut trailers, mut out, mut data) = (Fields::new(), Vec::new(), 0);
    for piece in pieces {
        let relayed = relay.relay(piece, &mut trailers, true, &mut out)?;
        assert!(relayed.done || relayed.consumed == piece.len());
        assert_eq!(relayed.done, relay.is_done());
        data += relayed.data;
    }
    if relay.is_done() { Ok((out, data)) } else { Err(BodyError::Truncated) }
}

fn every_cut(input: &[u8], mut check: impl FnMut(&[&[u8]])) {
    for cut in 0..=input.len() {
        let (a, b) = input.split_at(cut);
        check(&[a, b]);
        let mid = cut / 2;
        check(&[&a[..mid], &a[mid..], b]);
    }
    check(&input.chunks(1).collect::<Vec<_>>());
}

#[test]
fn chunked_bodies_that_are_right() {
    for (input, data, trailers, canonical) in [
        ("0\r\n\r\n", "", "", "0\r\n\r\n"),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", "", "5\r\nhello\r\n0\r\n\r\n"),
        ("5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", "hello world", "", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"),
        ("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", "", "5\r\nhello\r\n0\r\n\r\n"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", "", "a\r\n0123456789\r\n0\r\n\r\n"),
        ("5;a=b\r\nhello\r\n0;x\r\n\r\n", "hello", "", "5\r\nhello\r\n0\r\n\r\n"),
        ("5 \t; a = \"b;\\\"\\\\\t c\" ;d\r\nhello\r\n0\r\n\r\n", "hello", "", "5\r\nhello\r\n0\r\n\r\n"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", "", "2\r\n\r\n\r\n0\r\n\r\n"),
        ("1\r\na\r\n0\r\nX-T: 1\r\nY:  2 \r\n\r\n", "a", "|x-t: 1|y: 2", "1\r\na\r\n0\r\nx-t: 1\r\ny: 2\r\n\r\n"),
        (
            "0\r\nX: 1\r\nContent-Length: 9\r\nHost: b\r\nTransfer-Encoding: x\r\nConnection: x\r\ncontent_length: 1\r\n\
             Set-Cookie: a\r\nAuthorization: b\r\nGrpc-Status: 0\r\nX-Forwarded-For: 1\r\nProxy: p\r\n\r\n",
            "",
            "|x: 1|grpc-status: 0",
            "0\r\nx: 1\r\ngrpc-status: 0\r\n\r\n",
        ),
    ] {
        let want: Outcome = Ok((data.into(), trailers.into(), input.len()));
        let mut with_more = input.as_bytes().to_vec();
        with_more.extend_from_slice(b"GET /next");
        assert_eq!(decode(BodyFraming::Chunked, &[&with_more]), want, "{input:?}");
        every_cut(input.as_bytes(), |pieces| {
            assert_eq!(decode(BodyFraming::Chunked, pieces), want, "{pieces:?}");
            assert_eq!(relay(pieces), Ok((canonical.into(), data.len() as u64)), "{pieces:?}");
        });
    }
}

#[test]
fn chunked_bodies_that_are_wrong() {
    let long_size = "0".repeat(17) + "\r\n\r\n";
    let many = format!("0\r\n{}\r\n", "x: 1\r\n".repeat(101));
    let large = format!("0\r\nx: {}\r\n\r\n", "a".repeat(61_440));
    for input in [
        "5\r\nhello!\r\n0\r\n\r\n",
        "5\r\nhell\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\t\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5h\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\nx",
        "g\r\n",
        "5,\r\nhello",
        "5;\r\nhello\r\n0\r\n\r\n",
        "5;;a\r\nhello\r\n0\r\n\r\n",
        "5;a=\r\nhello\r\n0\r\n\r\n",
        "5;a \r\nhello\r\n0\r\n\r\n",
        "5;=b\r\nhello\r\n0\r\n\r\n",
        "5;a=b c\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
        "5;a=\"b\r\nhello\r\n0\r\n\r\n",
        "5;a=\"b\\\r\nhello\r\n0\r\n\r\n",
        "5;a\n\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a\0\r\nhello\r\n0\r\n\r\n",
        "5\0\r\nhello\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\n\rx",
        "0\r\nX T: 1\r\n\r\n",
        "0\r\nX : 1\r\n\r\n",
        "0\r\n: 1\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\nX: 1\n\r\n",
        "0\r\nX: 1\r\n y\r\n\r\n",
        "0\r\nX: a\rb\r\n\r\n",
        "0\r\nX: a\0b\r\n\r\n",
        "0\r\nX: 1\r\n\r",
        "5\r\nhel",
        "5\r\nhello\r\n",
        "5\r\nhello\r\n0\r\n",
        "0",
        "8000000000000000\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        long_size.as_str(),
        many.as_str(),
        large.as_str(),
    ] {
        let whole = decode(BodyFraming::Chunked, &[input.as_bytes()]);
        let error = whole.clone().expect_err(input);
        assert!([400, 431].contains(&error.reject().status));
        if input.len() < 2_000 {
            every_cut(input.as_bytes(), |pieces| {
                assert_eq!(decode(BodyFraming::Chunked, pieces), whole, "{pieces:?}");
                assert_eq!(relay(pieces).err(), Some(error), "{pieces:?}");
            });
        }
    }
}

#[test]
fn errors_name_their_cause() {
    let error = |input: &str| decode(BodyFraming::Chunked, &[input.as_bytes()]).unwrap_err();
    assert_eq!(error("g\r\n"), BodyError::InvalidChunk);
    assert_eq!(error("8000000000000000\r\n"), BodyError::ChunkSizeOverflow);
    assert_eq!(error("5\r\nhel"), BodyError::Truncated);
    assert!(matches!(error("0\r\nX T: 1\r\n\r\n"), BodyError::Trailers(_)));
    let many = format!("0\r\n{}\r\n", "x: 1\r\n".repeat(101));
    assert_eq!(error(&many).reject().details, "http1.too_many_headers");
}

#[test]
fn extensions_are_limited_over_the_whole_body() {
    let limit = MAX_CHUNK_EXTENSION_BYTES as usize;
    let one = |bytes: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(bytes - 1));
    assert!(decode(BodyFraming::Chunked, &[one(limit).as_bytes()]).is_ok());
    assert_eq!(decode(BodyFraming::Chunked, &[one(limit + 1).as_bytes()]), Err(BodyError::ExtensionsTooLarge));
    let spread = "1;aaaaaaa\r\nx\r\n".repeat(limit / 8);
    assert!(decode(BodyFraming::Chunked, &[format!("{spread}0\r\n\r\n").as_bytes()]).is_ok());
    assert_eq!(
        decode(BodyFraming::Chunked, &[format!("{spread}0;a\r\n\r\n").as_bytes()]),
        Err(BodyError::ExtensionsTooLarge)
    );
}

#[test]
fn lengths_end_where_they_say() {
    let input = b"hello worldGET /";
    every_cut(input, |pieces| {
        assert_eq!(decode(BodyFraming::Length(11), pieces), Ok((b"hello world".to_vec(), String::new(), 11)));
    });
    assert_eq!(decode(BodyFraming::Length(11), &[b"hello"]), Err(BodyError::Truncated));
    assert_eq!(decode(BodyFraming::Length(0), &[b"GET /"]), Ok((vec![], String::new(), 0)));
    assert_eq!(decode(BodyFraming::None, &[b"GET /"]), Ok((vec![], String::new(), 0)));
    assert_eq!(decode(BodyFraming::UntilClose, &[b"ab", b"c"]), Ok((b"abc".to_vec(), String::new(), 3)));
}

#[test]
fn a_counted_body_has_the_end_of_a_chunked_one() {
    let framing = BodyFraming::Length(11).over_http2();
    every_cut(b"hello world0\r\nx-sum: 7\r\n\r\nGET /", |pieces| {
        assert_eq!(decode(framing, pieces), Ok((b"hello world".to_vec(), "|x-sum: 7".to_owned(), 26)));
    });
    assert_eq!(decode(framing, &[b"hello world"]), Err(BodyError::Truncated));
    assert_eq!(decode(framing, &[b"hello world!\r\n"]), Err(BodyError::InvalidChunk));
    assert_eq!(BodyFraming::Length(0).over_http2(), BodyFraming::Length(0), "it has an end already");
}

#[test]
fn a_length_body_takes_one_call_per_buffer() {
    let mut decoder = BodyDecoder::new(BodyFraming::Length(1 << 40), HeadLimits::default());
    let buffer = vec![0; 1 << 16];
    for n in 1..=16u64 {
        let decoded = decoder.decode(&buffer, &mut Fields::new()).unwrap();
        assert_eq!((decoded.consumed, decoded.data, decoded.done), (1 << 16, 0..1 << 16, false));
        assert_eq!(decoder.remaining(), Some((1 << 40) - (n << 16)));
    }
}

#[test]
fn what_the_encoder_writes_the_decoder_reads() {
    let mut trailers = Fields::new();
    trailers.append(HeaderId::GrpcStatus, b"0").unwrap();
    trailers.append_name(b"X-Sum", b"abc").unwrap();
    let pieces: Vec<Vec<u8>> = [0usize, 1, 15, 16, 255, 256, 4096, 70_000].iter().map(|&n| vec![b'x'; n]).collect();
    let mut wire = Vec::new();
    for piece in &pieces {
        write_chunk(piece, &mut wire);
    }
    write_last_chunk(&trailers, &mut wire);
    let want = (pieces.concat(), "|grpc-status: 0|x-sum: abc".to_owned(), wire.len());
    assert_eq!(decode(BodyFraming::Chunked, &[&wire]), Ok(want));
    assert_eq!(relay(&[&wire]).map(|(out, _)| out), Ok(wire));
}

#[test]
fn trailers_can_be_left_out() {
    let mut relay = ChunkedRelay::new(HeadLimits::default());
    let (mut trailers, mut out) = (Fields::new(), Vec::new());
    let input = b"1\r\na\r\n0\r\nX: 1\r\n\r\n";
    let relayed = relay.relay(input, &mut trailers, false, &mut out).unwrap();
    assert!(relayed.done && relayed.consumed == input.len());
    assert_eq!(out, b"1\r\na\r\n0\r\n\r\n");
}
