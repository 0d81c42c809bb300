//! Where calls of the proxy itself go.

use std::sync::Arc;

use crate::RetryPolicy;

/// A gRPC service that the proxy calls of itself, through a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcTarget {
    pub cluster: Arc<str>,
    /// `None` for one made from the cluster's name.
    pub authority: Option<String>,
    /// Names, lower case, and values that every call carries.
    pub metadata: Vec<(String, String)>,
    /// `None` for the limit that all calls have.
    pub max_answer: Option<usize>,
    /// `None`: a call is tried once.
    pub retries: Option<Arc<RetryPolicy>>,
}
