//! Which parts of a request and its answer a processor gets, and how.

use postrider_grpc::process::ProcessingMode;
use postrider_grpc::process::processing_mode::{BodySendMode, HeaderSendMode};
use postrider_model::Reading;

/// Of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Request => Side::Response,
            Side::Response => Side::Request,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BodyMode {
    #[default]
    None,
    Streamed,
    Buffered,
    /// As much as may be held.
    Partial,
    /// The processor says what goes on, and when.
    Duplex,
}

/// Headers and trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum HeadMode {
    #[default]
    Default,
    Send,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Modes {
    pub(super) request: MessageModes,
    pub(super) response: MessageModes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MessageModes {
    pub(super) headers: HeadMode,
    pub(super) body: BodyMode,
    pub(super) trailers: HeadMode,
}

impl MessageModes {
    /// Headers go to the processor unless it is said that they do not.
    pub(super) fn sends_headers(self) -> bool {
        self.headers != HeadMode::Skip
    }

    /// Trailers do not unless it is said that they do.
    pub(super) fn sends_trailers(self) -> bool {
        self.trailers == HeadMode::Send
    }

    /// Nothing of the message goes to the processor.
    pub(super) fn is_nothing(self) -> bool {
        !self.sends_headers() && !self.sends_trailers() && self.body == BodyMode::None
    }
}

impl Modes {
    pub(super) const NOTHING: Modes = Modes { request: SKIPPED, response: SKIPPED };

    pub(super) fn of(&self, side: Side) -> MessageModes {
        match side {
            Side::Request => self.request,
            Side::Response => self.response,
        }
    }

    pub(super) fn read(at: &mut Reading<'_>) -> Modes {
        let modes = Modes {
            request: MessageModes {
                headers: head(at, "request_header_mode"),
                body: body(at, "request_body_mode"),
                trailers: head(at, "request_trailer_mode"),
            },
            response: MessageModes {
                headers: head(at, "response_header_mode"),
                body: body(at, "response_body_mode"),
                trailers: head(at, "response_trailer_mode"),
            },
        };
        for (side, name) in [(Side::Request, "request"), (Side::Response, "response")] {
            let of = modes.of(side);
            if of.body == BodyMode::Duplex && of.trailers != HeadMode::Send {
                let message = format!("FULL_DUPLEX_STREAMED bodies want `{name}_trailer_mode: SEND`");
                at.error(&format!("{name}_body_mode"), message);
            }
        }
        modes
    }

    /// What a processor wants from here on; `None` when that cannot be done.
    pub(super) fn overridden(&self, by: &ProcessingMode) -> Option<Modes> {
        let one = |was: MessageModes, headers: HeadMode, trailers: HeadMode, body: BodySendMode| {
            let chosen = |own, new| if new == HeadMode::Default { own } else { new };
            Some(MessageModes {
                headers: chosen(was.headers, headers),
                body: body_mode(body)?,
                trailers: chosen(was.trailers, trailers),
            })
        };
        let header = head_mode;
        Some(Modes {
            request: one(
                self.request,
                header(by.request_header_mode()),
                header(by.request_trailer_mode()),
                by.request_body_mode(),
            )?,
            response: one(
                self.response,
                header(by.response_header_mode()),
                header(by.response_trailer_mode()),
                by.response_body_mode(),
            )?,
        })
    }

    /// The same but for the headers of the request, about which nothing can be changed any more.
    pub(super) fn matches(&self, other: &Modes) -> bool {
        let headers = self.request.headers;
        *self == Modes { request: MessageModes { headers, ..other.request }, ..*other }
    }
}

const SKIPPED: MessageModes =
    MessageModes { headers: HeadMode::Skip, body: BodyMode::None, trailers: HeadMode::Default };

impl BodyMode {
    pub(super) fn to_proto(self) -> BodySendMode {
        match self {
            BodyMode::None => BodySendMode::None,
            BodyMode::Streamed => BodySendMode::Streamed,
            BodyMode::Buffered => BodySendMode::Buffered,
            BodyMode::Partial => BodySendMode::BufferedPartial,
            BodyMode::Duplex => BodySendMode::FullDuplexStreamed,
        }
    }
}

fn head(at: &mut Reading<'_>, key: &str) -> HeadMode {
    match at.text(key).and_then(HeaderSendMode::from_str_name) {
        Some(mode) => head_mode(mode),
        None => HeadMode::Default,
    }
}

fn head_mode(mode: HeaderSendMode) -> HeadMode {
    match mode {
        HeaderSendMode::Default => HeadMode::Default,
        HeaderSendMode::Send => HeadMode::Send,
        HeaderSendMode::Skip => HeadMode::Skip,
    }
}

fn body(at: &mut Reading<'_>, key: &str) -> BodyMode {
    let mode = at.text(key).and_then(BodySendMode::from_str_name).unwrap_or(BodySendMode::None);
    body_mode(mode).unwrap_or_else(|| {
        at.error(key, "bodies as single gRPC messages (GRPC): not supported by Postrider");
        BodyMode::None
    })
}

fn body_mode(mode: BodySendMode) -> Option<BodyMode> {
    match mode {
        BodySendMode::None => Some(BodyMode::None),
        BodySendMode::Streamed => Some(BodyMode::Streamed),
        BodySendMode::Buffered => Some(BodyMode::Buffered),
        BodySendMode::BufferedPartial => Some(BodyMode::Partial),
        BodySendMode::FullDuplexStreamed => Some(BodyMode::Duplex),
        BodySendMode::Grpc => None,
    }
}
