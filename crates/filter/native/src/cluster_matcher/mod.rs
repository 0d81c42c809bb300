//! A tree of conditions that names the cluster of a request
//! (`envoy.extensions.router.cluster_specifiers.matcher.v3`). No filter: a route asks it.

use std::borrow::Cow;
use std::sync::Arc;

use postrider_filter_api::{Chooser, Clusters, ConfigError};
use postrider_http::RequestHead;
use postrider_model::{Expression, Input, Inputs, MatchContext, MatchTree, MetadataMatch, Reading, Unavailable, Value};

use crate::request_parts::header;

pub(crate) const KIND: &str = "envoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier";
const ACTION: &str = "envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction";

/// Reads `MatcherClusterSpecifier`.
pub(crate) fn build(value: &Value) -> Result<Chooser, ConfigError> {
    const TREE: &str = "cluster_matcher";
    let tree = Reading::all(value, |at| {
        if !at.has(TREE) {
            at.error(TREE, "a tree that names clusters is required");
        }
        at.map(TREE, |at| MatchTree::read(at, MatchContext::Clusters, &mut cluster)).flatten()
    })?;
    // Without errors there is one.
    let tree = tree.map(Arc::new);
    Ok(Arc::new(move |head, known| tree.as_ref()?.find(&OfRequest { head, known }).cloned()))
}

/// `ClusterAction`.
fn cluster(at: &mut Reading<'_>, kind: &str) -> Option<String> {
    if kind != ACTION {
        at.error("@type", format!("{kind}: a cluster is wanted here: {ACTION}"));
        at.skip();
        return None;
    }
    let name = at.text("cluster").unwrap_or_default().to_owned();
    if name.is_empty() {
        at.error("cluster", "the name of a cluster is required");
    }
    Some(name)
}

/// What a tree finds: headers, what filters noted, and what was fixed before.
struct OfRequest<'r> {
    head: &'r RequestHead,
    known: &'r dyn Clusters,
}

impl Inputs for OfRequest<'_> {
    fn value<'v>(&'v self, input: &'v Input) -> Result<Option<Cow<'v, str>>, Unavailable> {
        let name = match input {
            Input::RequestHeader(name) => name,
            Input::FilterState(name) => {
                let Some(Value::String(text)) = self.known.state(name) else { return Ok(None) };
                return Ok(Some(Cow::Borrowed(text)));
            }
            Input::Fixed(value) => return Ok(value.as_deref().map(Cow::Borrowed)),
            _ => return Err(Unavailable),
        };
        let lines = header(self.head, name);
        Ok((!lines.is_empty()).then(|| Cow::Owned(String::from_utf8_lossy(&lines.join(&b',')).into_owned())))
    }

    /// There are none where a cluster is chosen.
    fn holds(&self, _: &Expression) -> bool {
        false
    }

    fn notes(&self, _: &MetadataMatch) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
