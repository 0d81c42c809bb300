//! `proxy-status` of an answer (RFC 9209): clients learn what went wrong with their request, and where.

use postrider_filter_api::{Flags, StreamInfo};
use postrider_model::ProxyStatus;

use super::Connection;
use super::exchange::Exchange;

const NAME: &[u8] = b"proxy-status";

/// What went wrong, by the flags of the response: the first that is set counts. Then the status that belongs to it.
const ERRORS: [(Flags, &str, Option<u16>); 25] = [
    (Flags::FAILED_LOCAL_HEALTH_CHECK, "destination_unavailable", Some(503)),
    (Flags::NO_HEALTHY_UPSTREAM, "destination_unavailable", Some(503)),
    (Flags::UPSTREAM_REQUEST_TIMEOUT, "http_response_timeout", Some(504)),
    (Flags::DURATION_TIMEOUT, "connection_timeout", Some(504)),
    (Flags::LOCAL_RESET, "connection_timeout", Some(504)),
    (Flags::UPSTREAM_REMOTE_RESET, "connection_terminated", Some(502)),
    (Flags::UPSTREAM_CONNECTION_FAILURE, "connection_refused", Some(502)),
    (Flags::UNAUTHORIZED_EXTERNAL_SERVICE, "connection_refused", Some(502)),
    (Flags::UPSTREAM_CONNECTION_TERMINATION, "connection_terminated", Some(502)),
    (Flags::OVERLOAD_MANAGER, "connection_limit_reached", Some(503)),
    (Flags::DROP_OVERLOAD, "connection_limit_reached", Some(503)),
    (Flags::FAULT_INJECTED, "http_request_error", None),
    (Flags::UPSTREAM_OVERFLOW, "connection_limit_reached", Some(503)),
    (Flags::NO_ROUTE_FOUND, "destination_not_found", Some(500)),
    (Flags::RATE_LIMITED, "connection_limit_reached", Some(503)),
    (Flags::RATE_LIMIT_SERVICE_ERROR, "connection_limit_reached", Some(503)),
    (Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED, "destination_unavailable", Some(503)),
    (Flags::STREAM_IDLE_TIMEOUT, "http_response_timeout", Some(504)),
    (Flags::INVALID_ENVOY_REQUEST_HEADERS, "http_request_error", None),
    (Flags::DOWNSTREAM_PROTOCOL_ERROR, "http_request_error", None),
    (Flags::UPSTREAM_MAX_STREAM_DURATION_REACHED, "http_response_timeout", Some(504)),
    (Flags::NO_FILTER_CONFIG_FOUND, "proxy_configuration_error", Some(500)),
    (Flags::UPSTREAM_PROTOCOL_ERROR, "http_protocol_error", Some(502)),
    (Flags::NO_CLUSTER_FOUND, "destination_unavailable", Some(503)),
    (Flags::DNS_RESOLUTION_FAILED, "dns_error", Some(502)),
];

impl Exchange {
    /// Adds the field to an answer that is about to be sent, if something went wrong.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_proxy_status(&mut self, connection: &Connection, config: &ProxyStatus) {
        let error = ERRORS.iter().find(|(flag, ..)| self.info.flags.contains(*flag));
        // What could not be read is answered by the codec, which tells nothing of the kind.
        let (Some((_, error, status)), None) = (error, self.refused) else { return };
        let mut line = match self.response.fields.get_name(NAME) {
            Some(others) => [others, b", "].concat(),
            None => Vec::new(),
        };
        match &config.name {
            Some(name) => line.extend_from_slice(name.as_bytes()),
            None => line.extend_from_slice(connection.worker.node.borrow().id.as_bytes()),
        }
        line.extend_from_slice(b"; error=");
        line.extend_from_slice(error.as_bytes());
        if let Some(details) = details(&self.info, config) {
            line.extend_from_slice(b"; details=\"");
            line.extend_from_slice(details.as_bytes());
            line.push(b'"');
        }
        // Made of what the proxy says itself.
        let _ = self.response.fields.set_name(NAME, &line);
        if let Some(status) = status.filter(|status| config.recommended_status && *status != self.response.status()) {
            if self.host.is_some() {
                // The cluster counts what happened, not what the client hears of it.
                self.upstream_status.get_or_insert(self.response.status());
            }
            self.response.set_status(status);
            self.info.status = status;
        }
    }
}

fn details(info: &StreamInfo, config: &ProxyStatus) -> Option<String> {
    if !config.details || info.details.is_empty() {
        return None;
    }
    let mut all = info.details.to_string();
    if config.termination_details && !info.termination_details.is_empty() {
        all.push_str("; ");
        all.push_str(&info.termination_details);
    }
    if config.flags && !info.flags.is_empty() {
        let names: Vec<&str> = info.flags.names(true).map(|(short, _)| short).collect();
        all.push_str("; ");
        all.push_str(&names.join(","));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use postrider_filter_api::Moment;

    use super::*;

    #[test]
    fn details_tell_as_much_as_is_wanted() {
        let mut info = StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH);
        let all = ProxyStatus {
            name: None,
            details: true,
            termination_details: true,
            flags: true,
            recommended_status: false,
        };
        assert_eq!(details(&info, &all), None);
        info.details = "via_upstream".into();
        info.termination_details = "why".into();
        info.flags.insert(Flags::UPSTREAM_OVERFLOW);
        info.flags.insert(Flags::NO_HEALTHY_UPSTREAM);
        assert_eq!(details(&info, &all).as_deref(), Some("via_upstream; why; UH,UO"));
        let some = ProxyStatus { termination_details: false, flags: false, ..all.clone() };
        assert_eq!(details(&info, &some).as_deref(), Some("via_upstream"));
        assert_eq!(details(&info, &ProxyStatus { details: false, ..all }), None);
    }
}
