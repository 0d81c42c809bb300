//! How far timers may be shortened under pressure.

use std::time::Duration;

/// A kind of timer and the shortest that it becomes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimerScale {
    pub timer: ScaledTimer,
    pub least: Least,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaledTimer {
    /// A client's connection without a request.
    ConnectionIdle,
    /// A client's connection since it was accepted.
    ConnectionAge,
    /// A stream on which nothing moves.
    StreamIdle,
    /// A TLS handshake.
    Handshake,
    /// An answer that is there and that its client does not take.
    StreamFlush,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Least {
    Time(Duration),
    /// Of the time that it has without pressure.
    Share(f64),
}

impl TimerScale {
    /// What is left of `full` at a strength between 0 (all) and 1 (the least).
    pub fn shortened(&self, full: Duration, strength: f64) -> Duration {
        let least = match self.least {
            Least::Time(least) => least.min(full),
            Least::Share(share) => full.mul_f64(share.clamp(0.0, 1.0)),
        };
        full.saturating_sub((full - least).mul_f64(strength.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_shrinks_in_proportion_and_never_grows() {
        let seconds = Duration::from_secs;
        let scale = |least| TimerScale { timer: ScaledTimer::ConnectionIdle, least };
        let by = |least, strength| scale(least).shortened(seconds(100), strength);
        assert_eq!(by(Least::Time(seconds(20)), 0.0), seconds(100));
        assert_eq!(by(Least::Time(seconds(20)), 0.5), seconds(60));
        assert_eq!(by(Least::Time(seconds(20)), 1.0), seconds(20));
        assert_eq!(by(Least::Time(seconds(200)), 1.0), seconds(100));
        assert_eq!(by(Least::Share(0.1), 1.0), seconds(10));
    }
}
