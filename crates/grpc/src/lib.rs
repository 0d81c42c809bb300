//! The messages of the gRPC services that filters, access logs and statistics go to, as generated from Envoy's protocol
//! definitions; those of OpenTelemetry are written here.
//!
//! What it is for: filters build requests from these types and read answers into them, access logs build their entries, sinks
//! of statistics their samples; sending is the worker's part.
//!
//! What it must never do: hold anything but messages. The configuration's schema is another crate's, and the two have
//! nothing in common but the files that they are made from.
//!
//! Who calls it: native filters, the worker's access logs and sinks, and tests that play a service.

#![forbid(unsafe_code)]

pub use prost::Message;
pub use prost_types::{Any, Duration, Struct, Timestamp, value};

#[allow(clippy::all, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub mod log;
pub mod otlp;
mod values;

pub use values::{decode_value, from_any, from_struct, to_any, to_struct, to_value, value_of};

/// What the services have in common: addresses, headers, metadata.
pub mod core {
    pub use crate::generated::envoy::config::core::v3::*;
    pub use crate::generated::envoy::r#type::v3::{HttpStatus, RateLimitUnit, StatusCode};
    pub use crate::generated::google::rpc::Status;
}

/// Whether a request may go on.
pub mod auth {
    pub use crate::generated::envoy::service::auth::v3::*;

    pub const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

    /// Under which name what a service says about a request is noted, for other filters and logs.
    pub const NAMESPACE: &str = "envoy.filters.http.ext_authz";
}

/// What becomes of a request and its answer.
pub mod process {
    pub use crate::generated::envoy::extensions::filters::http::ext_proc::v3::*;
    pub use crate::generated::envoy::service::ext_proc::v3::*;

    pub const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

    /// Under which name the attributes of a request are told.
    pub const NAMESPACE: &str = "envoy.filters.http.ext_proc";
}

/// What was seen of requests and their answers, for people and tools that look into traffic.
pub mod tap {
    pub use crate::generated::envoy::data::tap::v3::*;
    pub use crate::generated::envoy::r#type::v3::{FractionalPercent, fractional_percent};
}

/// Whether there were too many requests.
pub mod rate {
    pub use crate::generated::envoy::extensions::common::ratelimit::v3::*;
    pub use crate::generated::envoy::service::ratelimit::v3::*;

    pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

    /// Under which name what a service says about a request is noted, for other filters and logs.
    pub const NAMESPACE: &str = "envoy.filters.http.ratelimit";
}

/// What is told to a service that takes statistics, in Prometheus' words.
pub mod metrics {
    pub use crate::generated::envoy::service::metrics::v3::stream_metrics_message::Identifier;
    pub use crate::generated::envoy::service::metrics::v3::{StreamMetricsMessage, StreamMetricsResponse};
    pub use crate::generated::io::prometheus::client::*;

    pub const STREAM_METRICS: &str = "/envoy.service.metrics.v3.MetricsService/StreamMetrics";
}
