//! Shares of requests: whether this one is among them.

use postrider_filter_api::Stream;

/// Whether the draw falls into the share, in parts per million; it is everything where none is written.
pub(crate) fn drawn(share: Option<u32>, stream: &Stream<'_>) -> bool {
    share.is_none_or(|parts| stream.host.random() % 1_000_000 < u64::from(parts))
}
