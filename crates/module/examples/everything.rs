//! What the smaller examples leave out, one thing for each `filter_name`: a module with several filters.
//!
//! - `notes`: facts, metadata, filter state, statistics, the route's configuration
//! - `thread`: another thread lets a request go on
//! - `pieces`: an answer in pieces, from another thread
//! - `fetch`: the answer of a cluster's `/` is handed on in pieces
//! - `background`: the configuration asks a cluster by itself, and requests see what it said
//! - `stream`: the same with a request in pieces
//! - `spans`: the request's span and a child of it
//! - `anew`: the request begins anew under another path, until it has been everywhere that its `x-way` names
//! - `panic`: panics in the hook that the configuration names

use std::sync::Mutex;
use std::thread;

use postrider_module::{
    Answer, Attribute, Background, Call, CallId, CallRefused, Counter, Failure, Gauge, Head, Histogram, HttpFilter,
    Level, MetadataSource, MetricError, Moment, Piece, Refusal, Reply, RouteConfig, Secret, Setup, Stream, Trailers,
    log, runtime_number, runtime_truth, runtime_whole,
};

struct Everything {
    kind: Kind,
    text: String,
    seen: Counter,
    level: Gauge,
    sizes: Histogram,
    secret: Option<Secret>,
    /// What the runtime's layers said when the configuration was made.
    runtime: String,
    /// What the configuration's own call brought.
    learned: Mutex<Option<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Notes,
    Thread,
    Pieces,
    Fetch,
    Background,
    Stream,
    Spans,
    Anew,
    Panic,
}

/// Says of the request's span what can be said, and begins and ends a part of it.
fn trace(stream: &mut Stream<'_>) {
    let told = stream.span().map(|mut span| {
        span.set_name("named by a module");
        span.set_tag("module", "1");
        span.set_tag("module", "2");
        span.add_event("seen");
        if let Some(mut child) = span.child("child") {
            child.set_tag("part", "one");
            child.end();
        }
        format!("{} {}", span.trace_id().unwrap_or_default(), span.id().unwrap_or_default())
    });
    stream.request_headers_mut().set("x-span", told.as_deref().unwrap_or("none"));
}

/// What a route says.
struct OfRoute(String);

#[derive(Default)]
struct State {
    call: Option<CallId>,
    pieces: u64,
    began: bool,
}

impl HttpFilter for Everything {
    type State = State;

    fn new(setup: &mut Setup<'_>) -> Result<Everything, Refusal> {
        let kind = match setup.name() {
            "notes" => Kind::Notes,
            "thread" => Kind::Thread,
            "pieces" => Kind::Pieces,
            "fetch" => Kind::Fetch,
            "background" => Kind::Background,
            "stream" => Kind::Stream,
            "spans" => Kind::Spans,
            "anew" => Kind::Anew,
            "panic" => Kind::Panic,
            other => return Err(format!("there is no filter `{other}`").into()),
        };
        let text = std::str::from_utf8(setup.config())?.to_owned();
        assert!(text != "new", "the configuration wants a panic");
        if matches!(kind, Kind::Background | Kind::Stream) {
            setup.background_scheduler().commit(1);
        }
        let secret = if kind == Kind::Notes { setup.secret("token") } else { None };
        let runtime = format!(
            "{} {} {} {}",
            runtime_truth("module.on", false),
            runtime_whole("module.count", 7),
            runtime_number("module.share", 7.5),
            secret.and_then(|secret| setup.read(secret)).is_some_and(|secret| !secret.is_empty()),
        );
        Ok(Everything {
            secret,
            runtime,
            kind,
            text,
            seen: setup.counter("seen", &["kind"])?,
            level: setup.gauge("level", &[])?,
            sizes: setup.histogram("sizes", &[])?,
            learned: Mutex::new(None),
        })
    }

    fn begin(&self) -> Option<State> {
        self.panics("begin");
        Some(State::default())
    }

    fn on_request_headers(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Head {
        self.panics("request_headers");
        match self.kind {
            Kind::Notes => self.note(stream).unwrap_or_else(|error| log(Level::Error, format_args!("{error}"))),
            Kind::Thread | Kind::Pieces => {
                let scheduler = stream.scheduler();
                let events = if self.kind == Kind::Thread { 1 } else { 3 };
                thread::spawn(move || (1..=events).for_each(|event| scheduler.commit(event)));
                return Head::StopAllAndBuffer;
            }
            Kind::Fetch => {
                match stream.open_call(&Call::new(&*self.text, "POST", "there", "/"), end) {
                    Ok(call) => state.call = Some(call),
                    Err(refused) => stream.reply(Reply::new(500).body(refused.to_string())),
                }
                return Head::Stop;
            }
            Kind::Background | Kind::Stream => {
                let learned = self.learned.lock().map(|learned| learned.clone()).unwrap_or_default();
                stream.request_headers_mut().set("x-learned", learned.as_deref().unwrap_or("nothing yet"));
            }
            Kind::Spans => trace(stream),
            Kind::Anew => {
                let way = stream.request_headers().text("x-way").unwrap_or_default().to_owned();
                if let Some((next, rest)) = way.split_once(' ') {
                    stream.request_headers_mut().set(":path", next);
                    stream.request_headers_mut().set("x-way", rest);
                    stream.recreate();
                    return Head::StopAllAndBuffer;
                }
            }
            Kind::Panic => {}
        }
        Head::Continue
    }

    fn on_request_body(&self, state: &mut State, stream: &mut Stream<'_>, end: bool) -> Piece {
        self.panics("request_body");
        let Some(call) = state.call else { return Piece::Continue };
        // The request's body becomes the call's.
        state.pieces += 1;
        let data = stream.received_request_body().to_vec();
        stream.send_call_body(call, &data, end);
        Piece::StopNoBuffer
    }

    fn on_request_trailers(&self, state: &mut State, stream: &mut Stream<'_>) -> Trailers {
        let Some(call) = state.call else { return Trailers::Continue };
        stream.send_call_trailers(call, &[("x-behind", b"it")]);
        Trailers::Stop
    }

    fn on_response_headers(&self, _: &mut State, stream: &mut Stream<'_>, _: bool) -> Head {
        self.panics("response_headers");
        if self.kind == Kind::Notes {
            let code = stream.number(Attribute::ResponseCode).unwrap_or(0);
            stream.response_headers_mut().set("x-code", code.to_string());
            let moments = stream.moments();
            let sent = moments.nanoseconds(Moment::RequestSent).unwrap_or(-1);
            let answered = moments.nanoseconds(Moment::ResponseBegan).unwrap_or(-1);
            stream.response_headers_mut().set("x-in-order", (0 <= sent && sent <= answered).to_string());
        }
        Head::Continue
    }

    fn on_response_body(&self, _: &mut State, _: &mut Stream<'_>, _: bool) -> Piece {
        self.panics("response_body");
        Piece::Continue
    }

    fn on_complete(&self, _: &mut State, _: &mut Stream<'_>) {
        self.panics("complete");
    }

    fn on_scheduled(&self, _: &mut State, stream: &mut Stream<'_>, event: u64) {
        if self.kind == Kind::Thread {
            stream.request_headers_mut().set("x-scheduled", "yes");
            stream.continue_request();
            return;
        }
        match event {
            1 => stream.begin_reply(Reply::new(202).header("x-from", "pieces").body("one "), false),
            2 => stream.reply_piece("two ", false),
            _ => stream.reply_piece("three", true),
        }
    }

    fn on_call_headers(&self, state: &mut State, stream: &mut Stream<'_>, _: CallId, head: Answer<'_>, end: bool) {
        state.began = true;
        stream.begin_reply(Reply::new(head.status()).header("x-pieces", state.pieces.to_string()), end);
    }

    fn on_call_body(&self, _: &mut State, stream: &mut Stream<'_>, _: CallId, piece: &[&[u8]], end: bool) {
        stream.reply_piece(piece.concat(), end);
    }

    fn on_call_trailers(&self, _: &mut State, stream: &mut Stream<'_>, _: CallId, trailers: Answer<'_>) {
        stream.reply_piece(format!(" and {}", trailers.text("x-after").unwrap_or("nothing")), true);
    }

    fn on_call_end(&self, state: &mut State, stream: &mut Stream<'_>, _: CallId, end: Result<(), Failure>) {
        if let (Err(failure), false) = (end, state.began) {
            stream.reply(Reply::new(503).body(failure.to_string()));
        }
    }

    fn on_background_event(&self, background: &Background<'_>, _: u64) {
        let call = Call::new(&*self.text, "POST", "there", "/fact");
        let asked =
            if self.kind == Kind::Stream { self.ask_in_pieces(background, call) } else { background.call(&call) };
        if let Err(refused) = asked {
            log(Level::Error, format_args!("{refused}"));
        }
    }

    fn on_background_call_done(&self, _: &Background<'_>, _: CallId, answer: Result<Answer<'_>, Failure>) {
        let Ok(answer) = answer else { return };
        if let Ok(mut learned) = self.learned.lock() {
            *learned = Some(String::from_utf8_lossy(&answer.body()).into_owned());
        }
    }

    fn on_background_call_headers(&self, _: &Background<'_>, _: CallId, head: Answer<'_>, _: bool) {
        self.learn(format_args!("{}", head.status()));
    }

    fn on_background_call_body(&self, _: &Background<'_>, _: CallId, piece: &[&[u8]], _: bool) {
        self.learn(format_args!(" {}", String::from_utf8_lossy(&piece.concat())));
    }

    fn on_background_call_trailers(&self, _: &Background<'_>, _: CallId, trailers: Answer<'_>) {
        self.learn(format_args!(" and {}", trailers.text("x-after").unwrap_or("nothing")));
    }

    fn on_background_call_end(&self, _: &Background<'_>, _: CallId, end: Result<(), Failure>) {
        self.learn(format_args!(" {end:?}"));
    }
}

impl RouteConfig for OfRoute {
    fn new(_: &str, config: &[u8]) -> Result<OfRoute, Refusal> {
        Ok(OfRoute(std::str::from_utf8(config)?.to_owned()))
    }
}

impl Everything {
    /// Two pieces and a trailer; and one that is given up at once.
    fn ask_in_pieces(&self, background: &Background<'_>, call: Call) -> Result<CallId, CallRefused> {
        let other = background.open_call(&call, false)?;
        background.reset_call(other);
        let asked = background.open_call(&call.body("one "), false)?;
        background.send_call_body(asked, b"two", false);
        background.send_call_trailers(asked, &[("x-behind", b"it")]);
        Ok(asked)
    }

    fn learn(&self, what: std::fmt::Arguments<'_>) {
        if let Ok(mut learned) = self.learned.lock() {
            learned.get_or_insert_default().push_str(&what.to_string());
        }
    }

    fn panics(&self, hook: &str) {
        assert!(self.kind != Kind::Panic || self.text != hook, "the configuration wants a panic in {hook}");
    }

    fn note(&self, stream: &mut Stream<'_>) -> Result<(), MetricError> {
        stream.set_metadata_text("module", "text", "noted");
        stream.set_metadata_number("module", "number", 2.5);
        stream.set_metadata_truth("module", "truth", true);
        stream.set_filter_state("module.state", "kept");
        let metadata = format!(
            "{:?} {:?} {:?}",
            stream.metadata_number(MetadataSource::Dynamic, "module", "number"),
            stream.metadata_truth(MetadataSource::Dynamic, "module", "truth"),
            stream.metadata_number(MetadataSource::Dynamic, "module", "text"),
        );
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // {"a": 1.5}, and a message of a type that nobody knows.
        stream.set_metadata_struct("module", b"\x0a\x0e\x0a\x01a\x12\x09\x11\0\0\0\0\0\0\xf8\x3f");
        stream.set_metadata_message("module", b"\x0a\x08some.Any\x12\x03xyz");
        let message = stream.metadata_message(MetadataSource::Dynamic, "module");
        let message = message.map(|(kind, value)| format!("{} {}", lossy(kind), lossy(value)));
        let made = [stream.set_typed_filter_state("envoy.bool", "yes"), stream.set_typed_filter_state("mine", "yes")];
        stream.add_flag("NOTED");
        let moments = stream.moments();
        let is_new = moments.start().elapsed().is_ok_and(|since| since.as_secs() < 60);
        let facts = [
            ("x-struct", format!("{:?}", stream.metadata_number(MetadataSource::Dynamic, "module", "a"))),
            ("x-message", message.unwrap_or_default()),
            ("x-made", format!("{made:?} {}", stream.typed_filter_state("envoy.bool").map_or_else(String::new, lossy))),
            ("x-moments", format!("{is_new} {:?}", moments.nanoseconds(Moment::RequestSent))),
            ("x-secret", self.secret.and_then(|secret| stream.secret(secret)).map_or("none".to_owned(), lossy)),
            ("x-runtime", self.runtime.clone()),
            ("x-metadata", metadata),
            ("x-text", stream.metadata_text(MetadataSource::Dynamic, "module", "text").map_or_else(String::new, lossy)),
            ("x-of-route", stream.metadata_text(MetadataSource::Route, "module", "of").map_or_else(String::new, lossy)),
            ("x-state", stream.filter_state("module.state").map_or_else(String::new, lossy)),
            ("x-route-config", stream.route_config::<OfRoute>().map_or("none", |route| &route.0).to_owned()),
            ("x-path", stream.text(Attribute::RequestUrlPath).unwrap_or_default().to_owned()),
            ("x-values", stream.request_headers().values("x-many").len().to_string()),
            ("x-mtls", format!("{:?}", stream.truth(Attribute::ConnectionMtls))),
        ];
        for (name, value) in facts {
            stream.request_headers_mut().set(name, value);
        }
        stream.count(self.seen, &["request"], 3)?;
        stream.increase(self.level, &[], 5)?;
        stream.decrease(self.level, &[], 2)?;
        stream.record(self.sizes, &[], 7)?;
        let refused = format!("{:?}", stream.count(self.seen, &[], 1));
        stream.request_headers_mut().set("x-refused", refused);
        Ok(())
    }
}

postrider_module::entry!(Everything, route = OfRoute);
