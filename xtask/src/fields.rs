//! Report: which fields of Envoy's main messages nobody in `crates/config/envoy` reads, so that they are refused by name.
//!
//! It compares texts: a field counts as read when its name stands in quotes in the sources of the dialect. A field that
//! shares its name with another message's can so pass for read; one that is listed is certainly not.

use std::collections::HashSet;

use crate::workspace::Workspace;

/// Where the messages are, below the vendored protocol buffers, and which.
const MESSAGES: &[(&str, &[&str])] = &[
    (
        "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
        &["HttpConnectionManager", "HttpFilter"],
    ),
    ("envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto", &["TcpProxy"]),
    ("envoy/extensions/filters/http/router/v3/router.proto", &["Router"]),
    (
        "envoy/config/core/v3/protocol.proto",
        &["HttpProtocolOptions", "Http1ProtocolOptions", "Http2ProtocolOptions", "UpstreamHttpProtocolOptions"],
    ),
    ("envoy/config/core/v3/address.proto", &["SocketAddress", "BindConfig", "TcpKeepalive"]),
    ("envoy/config/route/v3/route.proto", &["RouteConfiguration"]),
    (
        "envoy/config/route/v3/route_components.proto",
        &["VirtualHost", "Route", "RouteMatch", "RouteAction", "WeightedCluster", "RetryPolicy", "RedirectAction"],
    ),
    ("envoy/config/listener/v3/listener.proto", &["Listener"]),
    ("envoy/config/listener/v3/listener_components.proto", &["FilterChain", "FilterChainMatch", "ListenerFilter"]),
    ("envoy/config/cluster/v3/cluster.proto", &["Cluster", "UpstreamConnectionOptions"]),
    ("envoy/config/cluster/v3/circuit_breaker.proto", &["CircuitBreakers"]),
    ("envoy/config/cluster/v3/outlier_detection.proto", &["OutlierDetection"]),
    ("envoy/config/core/v3/health_check.proto", &["HealthCheck"]),
    ("envoy/config/accesslog/v3/accesslog.proto", &["AccessLogFilter"]),
    ("envoy/config/bootstrap/v3/bootstrap.proto", &["Bootstrap"]),
    ("envoy/config/overload/v3/overload.proto", &["OverloadManager"]),
    ("envoy/extensions/upstreams/http/v3/http_protocol_options.proto", &["HttpProtocolOptions"]),
];

/// One line per message.
pub fn report(workspace: &Workspace) -> Result<String, String> {
    let names = names_in_sources(workspace)?;
    let mut out = String::new();
    for (file, messages) in MESSAGES {
        let place = workspace.root.join("crates/config/envoy-proto/proto").join(file);
        let text = std::fs::read_to_string(&place).map_err(|error| format!("{file}: {error}"))?;
        let text = without_comments(&text);
        for message in *messages {
            let fields = fields(&text, message).ok_or_else(|| format!("{file}: no message {message}"))?;
            let unread: Vec<&str> = fields.iter().map(String::as_str).filter(|name| !names.contains(*name)).collect();
            let read = fields.len() - unread.len();
            out.push_str(&format!("{message}: {read} of {} read", fields.len()));
            if !unread.is_empty() {
                out.push_str(&format!("; not {}", unread.join(", ")));
            }
            out.push('\n');
        }
    }
    Ok(out)
}

/// Everything that stands in quotes.
fn names_in_sources(workspace: &Workspace) -> Result<HashSet<String>, String> {
    let dialect = workspace.crates.iter().find(|one| one.name == "config-envoy").ok_or("no crate config-envoy")?;
    let mut names = HashSet::new();
    for path in workspace.rust_files(dialect)? {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        names.extend(text.split('"').map(str::to_owned));
    }
    Ok(names)
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The names of a message's fields, those in oneofs included and those of messages inside it not.
fn fields(text: &str, message: &str) -> Option<Vec<String>> {
    let start = text.find(&format!("message {message} {{"))?;
    let mut found = Vec::new();
    // For each open bracket, whether fields below it are the message's own.
    let mut own: Vec<bool> = Vec::new();
    let mut statement = String::new();
    // Options of a field, which may hold brackets of the other kind.
    let mut options = 0;
    for letter in text[start..].chars() {
        match letter {
            '[' => options += 1,
            ']' => options -= 1,
            _ if options > 0 => {}
            '{' => {
                let below = match own.last() {
                    None => true,
                    Some(own) => *own && statement.trim_start().starts_with("oneof "),
                };
                own.push(below);
                statement.clear();
            }
            '}' => {
                own.pop();
                statement.clear();
                if own.is_empty() {
                    break;
                }
            }
            ';' => {
                if own.last() == Some(&true) {
                    found.extend(field(&statement));
                }
                statement.clear();
            }
            letter => statement.push(letter),
        }
    }
    Some(found)
}

/// The name in `TYPE name = 5`.
fn field(statement: &str) -> Option<String> {
    let (declaration, number) = statement.split_once('=')?;
    number.trim_start().chars().next().filter(char::is_ascii_digit)?;
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let is_field = words.len() >= 2 && !matches!(words.first(), Some(&("option" | "reserved")));
    is_field.then(|| words.last().map(|name| (*name).to_owned())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_message_itself() {
        let text = "message A {\n  option (x).y = 5;\n  message B { string inner = 1; }\n  repeated string a = 1 [(v) = {a: 1}];\n\
                    map<string, B> b = 2;\n  oneof c {\n    option (r) = true;\n    B d = 3;\n  }\n  reserved 4, 5;\n}\n\
                    message C { string other = 1; }";
        assert_eq!(fields(&without_comments(text), "A"), Some(vec!["a".to_owned(), "b".to_owned(), "d".to_owned()]));
        assert_eq!(fields("message A { string a = 1 [deprecated = true]; }", "A"), Some(vec!["a".to_owned()]));
        assert_eq!(fields(text, "Z"), None);
    }
}
