//! How much of a message may be held in front of filters.

/// What a filter said about it; of several the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferLimit {
    /// As much as the connection allows.
    #[default]
    OfConnection,
    /// So many bytes of the request, and no piece of it may be longer.
    Request(u32),
    /// So many bytes of either message, where they are held; 0 is any number.
    Both(u64),
}

impl BufferLimit {
    /// The bytes that may be held of a message; `connection` is what the connection allows, and 0 there is any number.
    #[inline]
    pub fn bytes(self, is_request: bool, connection: usize) -> usize {
        let limit = match self {
            BufferLimit::Request(own) if is_request => return own as usize,
            BufferLimit::Both(own) => usize::try_from(own).unwrap_or(usize::MAX),
            BufferLimit::OfConnection | BufferLimit::Request(_) => connection,
        };
        if limit == 0 { usize::MAX } else { limit }
    }

    /// No piece of the message may be longer, whether it is held or not.
    #[inline]
    pub fn bounds_pieces(self, is_request: bool) -> bool {
        is_request && matches!(self, BufferLimit::Request(_))
    }
}

#[cfg(test)]
mod tests {
    use super::BufferLimit;

    #[test]
    fn a_limit_holds_for_its_messages_and_0_for_none() {
        let bytes = |limit: BufferLimit, connection| [true, false].map(|request| limit.bytes(request, connection));
        assert_eq!(bytes(BufferLimit::OfConnection, 5), [5, 5]);
        assert_eq!(bytes(BufferLimit::OfConnection, 0), [usize::MAX; 2]);
        assert_eq!(bytes(BufferLimit::Request(9), 5), [9, 5]);
        assert_eq!(bytes(BufferLimit::Both(9), 5), [9, 9]);
        assert_eq!(bytes(BufferLimit::Both(0), 5), [usize::MAX; 2]);
        assert_eq!(bytes(BufferLimit::Both(3), 0), [3, 3]);
    }
}
