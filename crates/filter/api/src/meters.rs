//! Bytes of a stream on its connections.

/// Both connections of a stream. TLS is not counted: what it protects is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meters {
    pub downstream: Meter,
    /// Of all tries.
    pub upstream: Meter,
}

/// Both directions of a connection, as far as one stream used it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    pub received: Metered,
    pub sent: Metered,
}

/// One direction, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metered {
    /// Everything: heads, bodies and their framing.
    pub wire: u64,
    /// Of that, fields: their lines in HTTP/1, their frames in HTTP/2.
    pub head: u64,
    /// The same before HPACK made it smaller.
    pub plain_head: u64,
}

impl Meter {
    pub fn add(&mut self, other: Meter) {
        self.received.add(other.received);
        self.sent.add(other.sent);
    }

    /// What came after `before`, which is an earlier reading.
    pub fn since(self, before: Meter) -> Meter {
        Meter { received: self.received.since(before.received), sent: self.sent.since(before.sent) }
    }
}

impl Metered {
    pub fn add(&mut self, other: Metered) {
        self.wire += other.wire;
        self.head += other.head;
        self.plain_head += other.plain_head;
    }

    fn since(self, before: Metered) -> Metered {
        Metered {
            wire: self.wire.saturating_sub(before.wire),
            head: self.head.saturating_sub(before.head),
            plain_head: self.plain_head.saturating_sub(before.plain_head),
        }
    }
}
