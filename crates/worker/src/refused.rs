//! Requests that their cluster does not take, those of clients and those of filters: what is said to whoever sent them.

use postrider_filter_api::Flags;
use postrider_telemetry::Block;
use postrider_telemetry::stats::sets::cluster as stat;
use postrider_upstream::Refusal;

/// Of the answer, which is a 503.
pub(crate) struct Refused {
    pub(crate) flag: Flags,
    pub(crate) body: &'static str,
    pub(crate) details: &'static str,
    /// Its value is `true`.
    pub(crate) header: &'static str,
}

impl Refused {
    /// One more is turned away.
    #[cold]
    pub(crate) fn count(refusal: Refusal, stats: &Block) -> Refused {
        match refusal {
            Refusal::Dropped => Refused {
                flag: Flags::DROP_OVERLOAD,
                body: "drop overload",
                details: "drop_overload",
                header: "x-envoy-drop-overload",
            },
            Refusal::AllDropped => Refused {
                flag: Flags::UNCONDITIONAL_DROP_OVERLOAD,
                body: "unconditional drop overload",
                details: "unconditional_drop_overload",
                header: "x-envoy-unconditional-drop-overload",
            },
            Refusal::Maintained => {
                stats.inc(stat::UPSTREAM_RQ_MAINTENANCE_MODE);
                Refused {
                    flag: Flags::UPSTREAM_OVERFLOW,
                    body: "maintenance mode",
                    details: "maintenance_mode",
                    header: "x-envoy-overloaded",
                }
            }
        }
    }
}
