//! What the pipeline holds of a message's body in front of a filter.

/// The held bytes: one piece as it came, or, behind [`crate::Action::Buffer`], everything so far.
#[derive(Debug, Clone, Default)]
pub struct Body {
    bytes: Vec<u8>,
    changed: bool,
}

impl Body {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// From here on the held part of the body is `bytes`. A message whose length was declared is sent with its new
    /// length when all of it is held, and chunked otherwise.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.changed = true;
    }

    /// As [`Body::replace`], without a copy.
    pub fn put(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
        self.changed = true;
    }

    /// The held bytes, which are no longer held: for a filter that took the message over, or one that puts them back.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The held part of the body stays as it is and counts as replaced: with all of it held, the message goes on with its
    /// length, whatever it came with.
    pub fn measure(&mut self) {
        self.changed = true;
    }

    /// Whether a filter replaced some of the message's body.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// For the pipeline: nothing is held, and nobody put anything in.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.bytes.is_empty() && !self.changed
    }

    /// For the pipeline: more of the body arrived.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// For the pipeline: keeps the first `count` bytes; what follows them becomes a body of its own.
    pub fn split_off(&mut self, count: usize) -> Body {
        let rest = self.bytes.split_off(count.min(self.bytes.len()));
        Body { bytes: rest, changed: self.changed }
    }

    /// For the pipeline: what was held went on.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// For the pipeline: ready for the next message, with the capacity kept up to `capacity`.
    pub fn reset(&mut self, capacity: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(capacity);
        self.changed = false;
    }
}
