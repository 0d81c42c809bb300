//! What an attack costs others: a polite client goes on asking meanwhile.

use crate::kit::Proxy;
use std::time::{Duration, Instant};

/// The longest that a polite client may wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `attack` while a polite client does `ask` over and over. No answer may take longer than a polite client's patience,
/// and the proxy may grow by less than `memory` KiB.
pub fn meanwhile<T: Send>(proxy: &Proxy, memory: u64, mut ask: impl FnMut(), attack: impl FnOnce() -> T + Send) -> T {
    let before = proxy.resident_kib();
    let (mut peak, mut worst) = (before, Duration::ZERO);
    let mut ask = || {
        let started = Instant::now();
        ask();
        worst = worst.max(started.elapsed());
        peak = peak.max(proxy.resident_kib());
    };
    let outcome = std::thread::scope(|scope| {
        let attack = scope.spawn(attack);
        while !attack.is_finished() {
            ask();
        }
        attack.join().unwrap()
    });
    ask();
    assert!(worst < PATIENCE, "the polite client waited for {worst:?}");
    let growth = peak.saturating_sub(before);
    assert!(growth < memory, "grew by {growth} KiB over {before}");
    outcome
}
