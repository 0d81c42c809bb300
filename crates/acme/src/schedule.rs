//! When a certificate is asked for, and when again after a failure.

use std::time::{Duration, SystemTime};

use postrider_tls::CertificateFacts;

/// The longest wait after a failure: some tries a day, whatever is broken.
const MAX_RETRY: Duration = Duration::from_secs(6 * 3600);

/// When the stored certificate is to be replaced: at two thirds of its life, or now when it is none of these names.
pub(crate) fn renewal(stored: Option<&CertificateFacts>, names: &[String]) -> SystemTime {
    let fits = |facts: &&CertificateFacts| names.iter().all(|name| facts.names.dns.contains(name));
    let Some(facts) = stored.filter(fits) else { return SystemTime::UNIX_EPOCH };
    let life = facts.not_after.duration_since(facts.not_before).unwrap_or_default();
    facts.not_before.checked_add(life * 2 / 3).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Waits that double from failure to failure.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after one more failure.
    pub(crate) fn next(&mut self, first: Duration) -> Duration {
        let factor = 2u32.checked_pow(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        first.saturating_mul(factor).min(MAX_RETRY)
    }

    pub(crate) fn failures(self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_begins_at_two_thirds_of_a_life() {
        let names = ["a.test".to_owned()];
        let pem = crate::stand_in::self_signed(&names).unwrap();
        let mut facts = postrider_tls::first_certificate(&pem).unwrap();
        facts.not_before = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        facts.not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(1900);
        assert_eq!(renewal(Some(&facts), &names), SystemTime::UNIX_EPOCH + Duration::from_secs(1600));
        assert_eq!(renewal(Some(&facts), &["b.test".to_owned()]), SystemTime::UNIX_EPOCH);
        assert_eq!(renewal(None, &names), SystemTime::UNIX_EPOCH);
        facts.not_after = facts.not_before - Duration::from_secs(1);
        assert_eq!(renewal(Some(&facts), &names), facts.not_before);
    }

    #[test]
    fn waits_double_up_to_some_hours() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..40).map(|_| backoff.next(Duration::from_secs(60)).as_secs()).collect();
        assert_eq!(waits[..4], [60, 120, 240, 480]);
        assert!(waits.iter().all(|wait| *wait <= 6 * 3600) && waits[39] == 6 * 3600);
        assert_eq!(backoff.failures(), 40);
    }
}
