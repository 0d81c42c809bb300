//! Statsd as text on a connection: one line for each value.

use postrider_telemetry::samples::Sample;
use postrider_telemetry::sink::{Sink, StatsdTags, statsd_lines};

use super::Courier;

pub(super) struct StatsdTcp {
    prefix: String,
    line: String,
    /// Of the flush under way.
    text: Vec<u8>,
    courier: Courier,
}

impl StatsdTcp {
    pub(super) fn new(prefix: String, courier: Courier) -> StatsdTcp {
        StatsdTcp { prefix, line: String::new(), text: Vec::new(), courier }
    }
}

impl Sink for StatsdTcp {
    fn take(&mut self, sample: &Sample<'_>) {
        statsd_lines(sample, &self.prefix, StatsdTags::InName, &mut self.line, |line| {
            self.text.extend_from_slice(line.as_bytes());
            self.text.push(b'\n');
        });
    }

    fn finish(&mut self) -> u64 {
        let text = std::mem::take(&mut self.text);
        self.courier.send(if text.is_empty() { Vec::new() } else { vec![text] })
    }
}
