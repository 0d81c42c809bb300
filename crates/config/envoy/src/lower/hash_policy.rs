//! What of a request or connection decides on its host (`RouteAction.HashPolicy`, `type.v3.HashPolicy`).

use postrider_model::{HashCookie, HashPolicy, HashSource};

use super::context::Lowering;
use super::matchers;
use crate::reader::Reader;

/// The field `hash_policy` of a route's action, or of a cluster's policy.
pub(super) fn of_requests(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<HashPolicy> {
    let policies = at.list("hash_policy");
    let policy = |policy: &Reader<'_>| {
        let terminal = policy.bool("terminal");
        source(cx, policy).map(|source| HashPolicy { source, terminal })
    };
    policies.iter().filter_map(policy).collect()
}

fn source(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HashSource> {
    match at.oneof("policy_specifier")? {
        "header" => {
            let header = at.message("header")?;
            let rewrite = match header.message("regex_rewrite") {
                Some(rewrite) => Some(matchers::substitution(cx, &rewrite)?),
                None => None,
            };
            Some(HashSource::Header { name: matchers::lookup_name(header.str("header_name")), rewrite })
        }
        "cookie" => {
            let cookie = at.message("cookie")?;
            let attributes = cookie.list("attributes");
            let attributes = attributes.iter().map(|one| (one.str("name").to_owned(), one.str("value").to_owned()));
            Some(HashSource::Cookie(HashCookie {
                name: cookie.str("name").to_owned(),
                ttl: cookie.duration("ttl").map(|ttl| ttl.as_secs()),
                path: cookie.str("path").to_owned(),
                attributes: attributes.collect(),
            }))
        }
        "connection_properties" => {
            let connection = at.message("connection_properties")?;
            // One that names no property says nothing, as in Envoy.
            connection.bool("source_ip").then_some(HashSource::SourceIp)
        }
        "query_parameter" => Some(HashSource::QueryParameter(at.message("query_parameter")?.str("name").to_owned())),
        "filter_state" => Some(HashSource::FilterState(at.message("filter_state")?.str("key").to_owned())),
        other => {
            cx.refuse(at, other, "this way to choose a host");
            None
        }
    }
}

/// The field `hash_policy` of a TCP proxy, which has one at most.
pub(super) fn of_connection(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<HashSource> {
    let policies = at.list("hash_policy");
    let policy = policies.first()?;
    match policy.oneof("policy_specifier")? {
        "source_ip" => {
            policy.message("source_ip");
            Some(HashSource::SourceIp)
        }
        "filter_state" => Some(HashSource::FilterState(policy.message("filter_state")?.str("key").to_owned())),
        other => {
            cx.refuse(policy, other, "this way to choose a connection's host");
            None
        }
    }
}
