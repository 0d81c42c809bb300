//! The same rules for connections, as a network filter: `envoy.extensions.filters.network.rbac.v3.RBAC`.
//!
//! A connection is judged once, when its TLS is agreed on: nothing that rules may look at changes afterwards.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use postrider_filter_api::{Admission, ConfigError, Guard, GuardFactory, Place, Visit};
use postrider_model::Value;

use super::config::{self, Connections};
use super::rules::Subject;
use super::{Kind, Side, details, joined, of_policy};

pub(crate) const KIND: &str = "envoy.extensions.filters.network.rbac.v3.RBAC";

/// Where results are noted.
const NAMESPACE: &str = "envoy.filters.network.rbac";

pub(crate) fn build(value: &Value) -> Result<Arc<dyn GuardFactory>, ConfigError> {
    Ok(Arc::new(Rbac(config::read_connections(value)?)))
}

struct Rbac(Connections);

impl GuardFactory for Rbac {
    fn guard(&self, place: &Place<'_>) -> Rc<dyn Guard> {
        let Connections { rules, stat_prefix, delay } = &self.0;
        let prefix = format!("{}.rbac", stat_prefix.trim_end_matches('.'));
        let shadow = joined(&prefix, &rules.shadow_prefix);
        Rc::new(Doorkeeper {
            enforced: Side::new(&ENFORCED, rules.enforced.as_ref(), place, &prefix, "", false),
            shadow: Side::new(&SHADOW, rules.shadow.as_ref(), place, &shadow, &rules.shadow_prefix, false),
            delay: *delay,
        })
    }
}

postrider_telemetry::stat_set! {
    /// Connections by outcome; prefix: what the configuration says, then `rbac`.
    mod enforced = "";
    counters { ALLOWED = "allowed", DENIED = "denied" }
}

postrider_telemetry::stat_set! {
    /// The same for rules that turn nobody away.
    mod shadow = "";
    counters { ALLOWED = "shadow_allowed", DENIED = "shadow_denied" }
}

static ENFORCED: Kind = Kind {
    name: "enforced",
    set: &enforced::SET,
    allowed: [enforced::ALLOWED, of_policy::ALLOWED],
    denied: [enforced::DENIED, of_policy::DENIED],
};

static SHADOW: Kind = Kind {
    name: "shadow",
    set: &shadow::SET,
    allowed: [shadow::ALLOWED, of_policy::SHADOW_ALLOWED],
    denied: [shadow::DENIED, of_policy::SHADOW_DENIED],
};

/// The filter on one worker.
struct Doorkeeper {
    enforced: Option<Side>,
    shadow: Option<Side>,
    /// How long somebody who is turned away is kept waiting.
    delay: Option<Duration>,
}

impl Guard for Doorkeeper {
    fn on_connection(&self, visit: &mut Visit<'_>) -> Admission {
        let Visit { info, server_name, .. } = visit;
        let server_name = *server_name;
        if let Some(shadow) = &self.shadow {
            let ruling = shadow.judge(Subject { request: None, info, route: None, weighted: None, server_name });
            shadow.note(ruling, NAMESPACE, &mut info.metadata);
        }
        let Some(enforced) = &self.enforced else { return Admission::Serve };
        let ruling = enforced.judge(Subject { request: None, info, route: None, weighted: None, server_name });
        enforced.hint(ruling, &mut info.metadata);
        match ruling.allowed {
            true => Admission::Serve,
            false => {
                info.closed.downstream_reason = "rbac_deny_close".into();
                Admission::Close { after: self.delay, details: details(ruling.policy.map(|(_, name)| name)) }
            }
        }
    }
}
