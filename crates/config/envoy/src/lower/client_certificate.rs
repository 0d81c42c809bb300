//! What upstreams are told of a client's certificate: `forward_client_cert_details` and what belongs to it.

use postrider_model::{ClientCertificate, ForwardedParts, MatchContext, MatchTree};

use super::context::Lowering;
use super::match_tree::{self, Leaves};
use crate::reader::Reader;

/// The message at the leaves of a tree. It has the fields of the connection manager's.
const CONFIG: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.ForwardClientCertConfig";

/// `forward_client_cert_details` and `set_current_client_cert_details`.
pub(super) fn rule(at: &Reader<'_>) -> ClientCertificate {
    let rule = at.enum_name("forward_client_cert_details");
    let parts =
        at.message("set_current_client_cert_details").map_or_else(ForwardedParts::default, |parts| ForwardedParts {
            certificate: parts.bool("cert"),
            chain: parts.bool("chain"),
            subject: parts.bool_wrapper("subject").unwrap_or(false),
            uri: parts.bool("uri"),
            dns: parts.bool("dns"),
            issuer: parts.bool("issuer"),
            json: parts.enum_name("format") == "JSON",
        });
    let rule = match rule.as_str() {
        "FORWARD_ONLY" => ClientCertificate::Forward,
        "APPEND_FORWARD" => return ClientCertificate::Append(parts),
        "SANITIZE_SET" => return ClientCertificate::Replace(parts),
        "ALWAYS_FORWARD_ONLY" => ClientCertificate::AlwaysForward,
        _ => ClientCertificate::Remove,
    };
    let why = "only `APPEND_FORWARD` and `SANITIZE_SET` say something of the client's certificate";
    at.ignore("set_current_client_cert_details", why);
    rule
}

/// `forward_client_cert_matcher`: the rule for requests that it finds one for.
pub(super) fn by_request(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Box<MatchTree<ClientCertificate>>> {
    let matcher = at.message("forward_client_cert_matcher")?;
    let leaves =
        Leaves { context: MatchContext::Requests, types: &[CONFIG], what: "what is said of a client's certificate" };
    match_tree::tree(cx, &matcher, &leaves, &mut |_, _, leaf| Some(rule(&leaf))).map(Box::new)
}
