//! Any bytes as a chunked body: data, trailers and errors do not depend on cuts, and what the relay emits
//! is its own canonical form. Run by the fuzz target `chunked` and, over its corpus, by the codec's tests.

use postrider_h1::{BodyDecoder, BodyError, ChunkedRelay};
use postrider_http::{BodyFraming, Fields, HeadLimits};

type Decoded = Result<(Vec<u8>, Vec<u8>, usize, bool), BodyError>;

pub fn chunked(data: &[u8]) {
    let whole = decode(&[data]);
    let middle = data.len() / 2;
    assert_eq!(decode(&[&data[..middle], &data[middle..]]), whole);
    if data.len() <= 4096 {
        assert_eq!(decode(&data.chunks(1).collect::<Vec<_>>()), whole);
    }
    let relayed = relay(&[data]);
    assert_eq!(relay(&[&data[..middle], &data[middle..]]), relayed);
    match (&whole, &relayed) {
        (Err(a), Err(b)) => assert_eq!(a, b),
        (Ok((body, trailers, _, true)), Ok((out, true))) => {
            let Ok((body_again, trailers_again, consumed, true)) = decode(&[out]) else {
                panic!("emitted and refused: {:?}", String::from_utf8_lossy(out));
            };
            assert_eq!((&body_again, &trailers_again, consumed), (body, trailers, out.len()));
            assert_eq!(relay(&[out]).as_ref(), Ok(&(out.clone(), true)));
        }
        (Ok((.., false)), Ok((_, false))) => {}
        other => panic!("decoder and relay disagree: {other:?}"),
    }
}

fn decode(pieces: &[&[u8]]) -> Decoded {
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked, HeadLimits::default());
    let (mut body, mut trailers, mut consumed) = (Vec::new(), Fields::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let decoded = decoder.decode(rest, &mut trailers)?;
            assert!(decoded.consumed > 0);
            body.extend_from_slice(&rest[decoded.data]);
            consumed += decoded.consumed;
            rest = &rest[decoded.consumed..];
        }
    }
    let done = decoder.is_done();
    let lines =
        if done { trailers.iter().flat_map(|f| [f.name, b": ", f.value, b"\n"].concat()).collect() } else { vec![] };
    Ok((body, lines, consumed, done))
}

fn relay(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), BodyError> {
    let mut relay = ChunkedRelay::new(HeadLimits::default());
    let (mut trailers, mut out) = (Fields::new(), Vec::new());
    for piece in pieces {
        relay.relay(piece, &mut trailers, true, &mut out)?;
    }
    Ok((out, relay.is_done()))
}
