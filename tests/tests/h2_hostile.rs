//! HTTP/2 from clients that mean harm. Each attack has a connection of its own; a polite client asks on another all
//! the while. The attack is ended or held up, the polite client is served, and the memory stays.

use h2::Reason;
use postrider_tests::attack::meanwhile;
use postrider_tests::h2_client::H2Client;
use postrider_tests::h2_frames::{
    self as raw, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, Next, PING, PRIORITY, RST_STREAM,
};
use postrider_tests::kit::{Config, DEADLINE, Origin, Proxy, net, wait_until};
use postrider_tests::postrider_only;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an attack may go on before it has to be ended or held up.
const SECOND: Duration = Duration::from_secs(1);

/// What an attack may cost, in KiB.
const MEMORY: u64 = 4096;

/// How the proxy took it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// With GOAWAY and this code, or by closing.
    Ended(Option<u32>),
    /// It took no more.
    Held,
    /// It took all of it.
    Tolerated,
}

impl End {
    fn is_ended(&self) -> bool {
        matches!(self, End::Ended(_))
    }
}

/// Answers `/big` with a hundred megabytes, and everything else at once.
fn origin() -> Origin {
    Origin::start(|connection| {
        while let Some(request) = connection.request_head() {
            if request.target == "/big" {
                connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n");
                let block = vec![b'd'; 1 << 20];
                while connection.write(&block) {}
                return;
            }
            if request.target == "/never" {
                connection.read_to_end();
                return;
            }
            connection.body(&request, &mut |_| {});
            connection.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    })
}

fn config(origin: &Origin) -> Config {
    Config::routes(json!([
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 200, "body": {"inline_string": "ok"}}},
        {"match": {"prefix": "/"}, "route": {"cluster": "origin"}},
    ]))
    .cluster("origin", &[origin.address])
}

/// Runs `attack`, which gives back its connections, and sees what that costs.
fn withstand<T: Send>(attack: impl FnOnce(SocketAddr) -> T + Send) -> T {
    withstand_with(json!({}), attack)
}

/// The same, with changes to the connection manager.
fn withstand_with<T: Send>(hcm: Value, attack: impl FnOnce(SocketAddr) -> T + Send) -> T {
    let origin = origin();
    let proxy = Proxy::start(&config(&origin).overlay_filter("http", hcm));
    let address = proxy.address("http");
    let mut polite = H2Client::connect(address);
    for _ in 0..20 {
        assert_eq!(polite.get("/").status, 200);
    }
    let outcome = meanwhile(&proxy, MEMORY, || assert_eq!(polite.get("/").text(), "ok"), || attack(address));
    assert!(origin.malformed().is_empty(), "{:?}", origin.malformed());
    outcome
}

/// Says `pieces`, each once, until the proxy has had enough, for a second at most. Reads nothing meanwhile.
fn flood(frames: &mut Frames, pieces: impl IntoIterator<Item = Vec<u8>>) -> End {
    let deadline = Instant::now() + SECOND;
    for piece in pieces {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        if !frames.push(&piece, left.min(SECOND / 4)) {
            let end = ended(frames);
            return if end.is_ended() { end } else { End::Held };
        }
    }
    ended(frames)
}

/// Whether the proxy ended the connection, or does so within a second.
fn ended(frames: &mut Frames) -> End {
    let deadline = Instant::now() + SECOND;
    while let left = deadline.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        match frames.next_within(left) {
            Next::Frame(frame) if frame.kind == GOAWAY => return End::Ended(Some(frame.code())),
            Next::Frame(_) => {}
            Next::Closed => return End::Ended(None),
            Next::Silence => break,
        }
    }
    End::Tolerated
}

/// One that answers nothing and has little room for what it does not read.
fn connect(address: SocketAddr) -> Frames {
    let mut frames = Frames::joined(net::connect_with_small_buffer(address, 16 << 10)).deaf();
    frames.send([raw::PREFACE, &raw::settings(&[])].concat());
    frames
}

/// Odd numbers: the streams of a client.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// Ten copies of a piece in one write, `count` times.
fn repeated(piece: Vec<u8>, count: usize) -> impl Iterator<Item = Vec<u8>> {
    let ten = piece.repeat(10);
    std::iter::repeat_n(ten, count)
}

fn open_post(stream: u32, path: &str) -> Vec<u8> {
    raw::frame(HEADERS, END_HEADERS, stream, &raw::request("POST", path, &[]))
}

#[test]
fn rapid_reset_is_ended() {
    let cancel = u32::from(Reason::CANCEL);
    let end = withstand(|address| {
        let mut frames = connect(address);
        flood(&mut frames, streams(20_000).map(|id| [raw::get(id, "/never"), raw::reset(id, cancel)].concat()))
    });
    assert!(end.is_ended(), "{end:?}");
}

#[test]
fn rapid_reset_of_streams_that_were_begun_is_ended() {
    let cancel = u32::from(Reason::CANCEL);
    let end = withstand(|address| {
        let mut frames = connect(address);
        let started = Instant::now();
        // Each is on its way to the origin before it is given up: the answer to a PING behind it says so.
        for id in streams(5000) {
            frames.send([raw::get(id, "/never"), raw::frame(PING, 0, 0, &[0; 8])].concat());
            loop {
                match frames.next_frame() {
                    Next::Frame(frame) if frame.kind == PING => break,
                    Next::Frame(frame) if frame.kind == GOAWAY => return End::Ended(Some(frame.code())),
                    Next::Frame(_) => {}
                    Next::Closed => return End::Ended(None),
                    Next::Silence => return End::Held,
                }
            }
            frames.send(raw::reset(id, cancel));
            if started.elapsed() > DEADLINE {
                break;
            }
        }
        ended(&mut frames)
    });
    assert!(end.is_ended(), "{end:?}");
}

/// What is said of a stream.
type Trick = fn(u32) -> Vec<u8>;

#[test]
fn what_makes_the_proxy_reset_streams_is_ended() {
    // CVE-2025-8671: the client never resets anything itself.
    let tricks: [(&str, Trick); 3] = [
        ("a window of nothing", |id| raw::window_update(id, 0)),
        ("a window too large", |id| raw::window_update(id, 0x7fff_ffff)),
        ("data behind the end", |id| raw::frame(DATA, 0, id, b"more")),
    ];
    for (name, trick) in tricks {
        let end = withstand(|address| {
            let mut frames = connect(address);
            flood(&mut frames, streams(5000).map(|id| [raw::get(id, "/never"), trick(id)].concat()))
        });
        assert!(end.is_ended(), "{name}: {end:?}");
    }
}

#[test]
fn a_head_that_does_not_end_is_ended() {
    for (name, piece) in [
        ("empty", Vec::new()),
        ("small", raw::block(&[("x-more", "and more")])),
        ("large", raw::block(&[("x-more", &"m".repeat(15_000))])),
    ] {
        let end = withstand(|address| {
            let mut frames = connect(address);
            let head = raw::frame(HEADERS, END_STREAM, 1, &raw::request("GET", "/", &[]));
            let more = repeated(raw::frame(CONTINUATION, 0, 1, &piece), 10_000);
            flood(&mut frames, std::iter::once(head).chain(more))
        });
        assert!(end.is_ended(), "{name}: {end:?}");
    }
}

#[test]
fn a_head_that_stalls_is_ended_in_time() {
    if !postrider_only() {
        return;
    }
    let origin = origin();
    for timeouts in
        [json!({"request_headers_timeout": "0.3s"}), json!({"common_http_protocol_options": {"idle_timeout": "0.3s"}})]
    {
        let proxy = Proxy::start(&config(&origin).overlay_filter("http", timeouts));
        let mut frames = connect(proxy.address("http"));
        frames.send(raw::frame(HEADERS, END_STREAM, 1, &raw::request("GET", "/", &[])));
        frames.until_closed();
    }
}

#[test]
fn empty_data_frames_are_ended_or_held_up() {
    let end = withstand(|address| {
        let mut frames = connect(address);
        let empty = repeated(raw::frame(DATA, 0, 1, b""), 20_000);
        flood(&mut frames, std::iter::once(open_post(1, "/")).chain(empty))
    });
    assert_ne!(end, End::Tolerated);
}

#[test]
fn data_of_one_byte_in_much_padding_is_bounded() {
    withstand(|address| {
        let mut frames = connect(address);
        let padded = raw::frame(DATA, 8, 1, &[&[255, b'x'][..], &[0; 255]].concat());
        flood(&mut frames, std::iter::once(open_post(1, "/never")).chain(repeated(padded, 5000)))
    });
}

#[test]
fn empty_heads_are_ended() {
    let end = withstand(|address| {
        let mut frames = connect(address);
        flood(&mut frames, streams(20_000).map(|id| raw::frame(HEADERS, END_HEADERS | END_STREAM, id, b"")))
    });
    assert!(end.is_ended(), "{end:?}");
}

/// One kind of frame over and over, on a connection that has a stream.
fn flood_with(piece: Vec<u8>) -> End {
    withstand(|address| {
        let mut frames = connect(address);
        frames.send(raw::get(1, "/never"));
        flood(&mut frames, repeated(piece, 1 << 20))
    })
}

#[test]
fn control_frames_that_want_an_answer_are_ended_or_held_up() {
    let floods = [
        ("SETTINGS", raw::settings(&[(3, 100)])),
        ("empty SETTINGS", raw::settings(&[])),
        ("PING", raw::frame(PING, 0, 0, b"12345678")),
    ];
    for (name, piece) in floods {
        assert_ne!(flood_with(piece), End::Tolerated, "{name}");
    }
}

#[test]
fn control_frames_that_nobody_needs_are_ended_or_held_up() {
    if !postrider_only() {
        return;
    }
    let floods = [
        ("PRIORITY", raw::frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 16])),
        ("WINDOW_UPDATE", raw::window_update(0, 1)),
        ("RST_STREAM", raw::reset(1, 8)),
        ("frames of no known kind", raw::frame(0xbe, 0, 0, b"what")),
    ];
    let tolerated: Vec<_> =
        floods.into_iter().filter(|(_, piece)| flood_with(piece.clone()) == End::Tolerated).collect();
    let names: Vec<_> = tolerated.iter().map(|(name, _)| name).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn settings_without_end_cost_little() {
    flood_with(raw::settings(&[(9999, 1); 2000]));
}

#[test]
fn a_window_that_opens_byte_by_byte_costs_little() {
    withstand(|address| {
        let mut frames = Frames::connect(address, &[(4, 0)]).deaf();
        frames.send(raw::get(1, "/big"));
        flood(&mut frames, repeated(raw::window_update(1, 1), 1 << 20))
    });
}

#[test]
fn a_bomb_of_indexed_fields_is_refused() {
    // One field of 4,000 bytes that the proxy remembers, then a byte for each time that it is meant.
    let block = |times: usize| {
        let mut bytes = raw::request("GET", "/", &[]);
        bytes.push(0x40);
        raw::string("x-bomb", &mut bytes);
        raw::string(&"b".repeat(4000), &mut bytes);
        bytes.extend(std::iter::repeat_n(0xbe, times));
        bytes
    };
    withstand(|address| {
        for _ in 0..20 {
            let mut frames = connect(address);
            for id in streams(20) {
                frames.send(raw::frame(HEADERS, END_HEADERS | END_STREAM, id, &block(10_000)));
            }
            while let Next::Frame(frame) = frames.next_frame() {
                assert!(frame.kind != HEADERS || frame.status() == Some(431), "{frame:?}");
                if frame.kind == GOAWAY || frame.stream == 39 {
                    break;
                }
            }
        }
    });
}

#[test]
fn a_bomb_of_tiny_fields_is_refused() {
    // 16,000 fields or cookies of a byte each, on a hundred streams that stay open.
    for name in ["x", "cookie"] {
        let mut block = raw::request("POST", "/never", &[]);
        block.push(0x40);
        raw::string(name, &mut block);
        raw::string("", &mut block);
        block.resize(16_000, 0xbe);
        withstand(|address| {
            let mut frames = connect(address);
            let end = flood(&mut frames, streams(100).map(|id| raw::frame(HEADERS, END_HEADERS, id, &block)));
            (frames, end)
        });
    }
}

#[test]
fn windows_that_never_open_hold_little_and_not_for_ever() {
    if !postrider_only() {
        return;
    }
    let origin = origin();
    let timeouts = json!({"stream_idle_timeout": "1s"});
    let proxy = Proxy::start(&config(&origin).overlay_filter("http", timeouts));
    let mut polite = H2Client::connect(proxy.address("http"));
    assert_eq!(polite.get("/").status, 200);
    let before = proxy.resident_kib();
    let mut frames = Frames::connect(proxy.address("http"), &[(4, 0)]).deaf();
    frames.send(streams(50).flat_map(|id| raw::get(id, "/big")).collect::<Vec<u8>>());
    let mut peak = before;
    wait_until("the origin serves them", || {
        peak = peak.max(proxy.resident_kib());
        assert_eq!(polite.get("/").status, 200);
        origin.requests().iter().filter(|request| request.target == "/big").count() >= 50
    });
    wait_until("the origin is rid of them", || {
        peak = peak.max(proxy.resident_kib());
        proxy.stats().value("http.ingress_http.downstream_rq_active") == 0
    });
    let growth = peak - before;
    assert!(growth < 50 * 256, "{growth} KiB for 50 streams that never move");
    let resets = streams(50).map(|_| frames.await_frame("a reset", |frame| frame.kind == RST_STREAM)).count();
    assert_eq!(resets, 50);
}

#[test]
fn a_client_that_reads_nothing_is_held_up() {
    if !postrider_only() {
        return;
    }
    // Every answer is small and complete: no window stops them.
    let (_, end) = withstand(|address| {
        let mut frames = connect(address);
        let end = flood(&mut frames, streams(200_000).map(|id| raw::get(id, "/direct")));
        (frames, end)
    });
    assert_ne!(end, End::Tolerated);
}

#[test]
fn a_client_that_ignores_the_goodbye_is_closed_all_the_same() {
    let origin = origin();
    let idle = json!({"common_http_protocol_options": {"idle_timeout": "0.2s"}, "drain_timeout": "0.2s"});
    let proxy = Proxy::start(&config(&origin).overlay_filter("http", idle));
    let mut frames = connect(proxy.address("http"));
    let rest = frames.until_closed();
    assert!(rest.iter().any(|frame| frame.kind == GOAWAY), "{rest:?}");
}

#[test]
fn a_hundred_connections_of_a_hundred_streams_leave_nothing_behind() {
    let origin = origin();
    let proxy = Proxy::start(&config(&origin));
    let address = proxy.address("http");
    let round = || {
        for _ in 0..10 {
            let mut frames = connect(address);
            frames.send(streams(50).flat_map(|id| raw::get(id, "/never")).collect::<Vec<u8>>());
            frames.send(raw::frame(PING, 0, 0, b"12345678"));
            frames.await_frame("a PONG", |frame| frame.kind == PING);
        }
        proxy.wait_stat("http.ingress_http.downstream_rq_active", 0);
        origin.wait_open_at_most(0);
    };
    // The allocator takes a few rounds to have enough for the most that there is at once.
    (0..4).for_each(|_| round());
    // What is left behind is left behind by each 4,000 streams; a new peak of what is there at once is seen once.
    let growth = (0..4).map(|_| {
        let before = proxy.resident_kib();
        (0..8).for_each(|_| round());
        proxy.resident_kib().saturating_sub(before)
    });
    let growth: Vec<u64> = growth.collect();
    assert!(growth.iter().any(|growth| *growth < 1024), "grew by {growth:?} KiB");
}
