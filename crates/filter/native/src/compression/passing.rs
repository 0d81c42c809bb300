//! One message on its way through a coder.

use postrider_filter_api::Flow;

use super::{Broken, Coder, Until};

/// Bytes that one call of a hook lets in at most.
const INPUT_BYTES: usize = 16 * 1024;

/// Bytes that one call of a hook lets out, and then one buffer.
const OUTPUT_BYTES: usize = 32 * 1024;

/// The body of a message that a filter took over.
pub(crate) struct Passing {
    coder: Box<dyn Coder>,
    /// What came and is not used up.
    input: Vec<u8>,
    at: usize,
    /// What is to be reached with all of that.
    until: Until,
    reached: bool,
    head_went: bool,
    received: u64,
    sent: u64,
    /// Largest ratio of what goes to what came.
    max_ratio: Option<u64>,
}

/// What one call did.
pub(crate) struct Progress {
    pub(crate) flow: Flow,
    pub(crate) consumed: u64,
    pub(crate) produced: u64,
}

impl Passing {
    pub(crate) fn new(coder: Box<dyn Coder>, max_ratio: Option<u64>) -> Passing {
        Passing {
            coder,
            input: Vec::new(),
            at: 0,
            until: Until::Anything,
            reached: true,
            head_went: false,
            received: 0,
            sent: 0,
            max_ratio,
        }
    }

    /// A piece came; `end`: nothing of the body follows.
    pub(crate) fn push(&mut self, piece: &[u8], end: bool) {
        self.input.drain(..self.at.min(self.input.len()));
        self.at = 0;
        self.input.extend_from_slice(piece);
        self.received += piece.len() as u64;
        self.until = if end { Until::Finished } else { Until::Flushed };
        self.reached = false;
    }

    /// Bytes that came and bytes that went.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// Does some of the work; what is to go on is appended to `out`.
    ///
    /// # Errors
    /// The body is broken.
    pub(crate) fn go(&mut self, out: &mut Vec<u8>) -> Result<Progress, Broken> {
        let (mut consumed, start) = (0, out.len());
        while !self.reached && consumed < INPUT_BYTES && out.len() - start < OUTPUT_BYTES {
            let rest = self.input.get(self.at..).unwrap_or_default();
            let now = rest.get(..INPUT_BYTES).unwrap_or(rest);
            let until = if now.len() == rest.len() { self.until } else { Until::Anything };
            let is_last = now.len() == rest.len();
            let before = out.len();
            let step = self.coder.step(now, until, out)?;
            if step.consumed == 0 && out.len() == before && !step.done {
                // It would never end.
                return Err(Broken::Data);
            }
            consumed += step.consumed;
            self.at += step.consumed;
            self.reached = is_last && step.done;
            let sent = self.sent + (out.len() - start) as u64;
            if self.max_ratio.is_some_and(|ratio| sent > self.received.saturating_mul(ratio)) {
                return Err(Broken::Ratio);
            }
        }
        let produced = (out.len() - start) as u64;
        self.sent += produced;
        if self.reached && self.until == Until::Finished && !self.coder.may_end() {
            return Err(Broken::Cut);
        }
        let flow = match (self.reached, self.until) {
            (true, Until::Finished) => Flow::Release,
            // A body that may prove broken keeps its head back until something of it is good.
            (true, _) if produced == 0 && !self.head_went && self.max_ratio.is_none() => Flow::Head,
            (true, _) if produced == 0 => Flow::Want,
            _ => Flow::Piece,
        };
        self.head_went = true;
        Ok(Progress { flow, consumed: consumed as u64, produced })
    }
}
