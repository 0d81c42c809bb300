//! What Go code puts into the filter state, by the rules that it gives with it.

use postrider_filter_api::{LifeSpan, StateRules, StreamInfo};
use postrider_telemetry::warning;

/// The SDK's number of what may be changed.
const MUTABLE: i32 = 1;

/// Of the three numbers of the SDK. Shared once, or from connection to connection: behind the first upstream there are no others.
pub(crate) fn rules(kind: i32, span: i32, sharing: i32) -> StateRules {
    let span = LifeSpan::of(span).unwrap_or(LifeSpan::TopConnection);
    StateRules { read_only: kind != MUTABLE, span, shared: sharing != 0 }
}

/// In one number, for another process.
pub(crate) fn number(rules: StateRules) -> u64 {
    u64::from(rules.read_only) | u64::from(rules.shared) << 1 | (rules.span as u64) << 2
}

/// The same read back.
pub(crate) fn of_number(number: u64) -> StateRules {
    let span = i32::try_from(number >> 2).ok().and_then(LifeSpan::of).unwrap_or_default();
    StateRules { read_only: number & 1 != 0, span, shared: number & 2 != 0 }
}

/// Sets a text, or leaves what is there.
pub(crate) fn set(info: &mut StreamInfo, name: &str, value: &str, rules: StateRules) {
    if let Err(why) = info.set_text(name, value, rules) {
        warning!(Filter, "a Go plugin sets the filter state `{name}`, which stays as it is: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_one_number_for_another_process() {
        for (kind, span, sharing) in [(0, 0, 0), (1, 3, 2), (0, 2, 1), (1, 1, 0)] {
            let rules = rules(kind, span, sharing);
            assert_eq!(of_number(number(rules)), rules);
        }
    }
}
