//! What every load generator counts.

/// A load that went well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// Completed within the time.
    pub requests: u64,
    pub seconds: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Tally {
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}
