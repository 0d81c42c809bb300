//! Bodies in the shadow: the filter sees them as it would, and they go on as they came.
//!
//! ```text
//!               piece ──> on, at once
//!                 │ a copy
//!                 v
//! as it comes ── held, as the filter wants to see all so far ── taken over: kept, until the filter lets some go on
//! ```

use std::mem;

use postrider_filter_api::{Body, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

impl Side {
    pub(super) fn body<'s>(self, stream: &'s mut Stream<'_>) -> &'s mut Body {
        match self {
            Side::Request => stream.request_body,
            Side::Response => stream.response_body,
        }
    }
}

/// What is kept of one message's body.
#[derive(Debug, Default)]
pub(super) enum Kept {
    /// Each piece goes by.
    #[default]
    Nothing,
    /// A copy of all so far, which the filter believes is held in front of it.
    Held(Body),
    /// The message itself, which the filter took over and has not let go on.
    Taken(Vec<u8>),
}

impl Kept {
    /// A piece came. Whether the filter would hold more than `limit` bytes by now.
    pub(super) fn push(&mut self, piece: &[u8], limit: usize) -> bool {
        match self {
            Kept::Nothing => {}
            Kept::Held(body) => {
                body.push(piece);
                return body.bytes().len() > limit;
            }
            Kept::Taken(bytes) => bytes.extend_from_slice(piece),
        }
        false
    }

    /// Puts before a hook what it is to see; what was there comes back, for [`hide`].
    pub(super) fn show(&mut self, side: Side, stream: &mut Stream<'_>) -> Body {
        let body = side.body(stream);
        let shown = match self {
            Kept::Held(held) => mem::take(held),
            _ => body.clone(),
        };
        mem::replace(body, shown)
    }

    /// What the filter took over and did not let go on, which goes on now.
    pub(super) fn let_go(&mut self, side: Side, stream: &mut Stream<'_>) {
        let bytes = match self {
            Kept::Taken(bytes) => mem::take(bytes),
            _ => Vec::new(),
        };
        *side.body(stream) = Body::default();
        if !bytes.is_empty() {
            side.body(stream).put(bytes);
        }
    }
}

/// Puts back what was there before [`Kept::show`]; what the hook was shown comes back, as it left it.
pub(super) fn hide(side: Side, stream: &mut Stream<'_>, found: Body) -> Body {
    mem::replace(side.body(stream), found)
}
