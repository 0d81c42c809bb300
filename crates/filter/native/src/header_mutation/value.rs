//! Values with `%COMMANDS%`, as far as a filter can know them.
//!
//! A filter sees the heads and what is known about the stream so far. Commands about the time, about the end of the
//! stream or about the process are for logs; a value that holds one is refused when the configuration is read.

use std::io::Write;
use std::net::SocketAddr;

use postrider_filter_api::{Flags, Stream};
use postrider_http::{HeaderId, RequestHead, Scheme, is_field_value};
use postrider_model::{AddressPart, Command, Format, Piece};

/// A value as configured.
#[derive(Debug)]
pub(super) struct Template(Format);

impl Template {
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let format = Format::parse(text).map_err(|error| error.to_string())?;
        for piece in &format.pieces {
            match piece {
                Piece::Text(text) if !is_field_value(text.as_bytes()) => {
                    return Err("a header value cannot hold control characters".to_owned());
                }
                Piece::Command { command, .. } if !is_known(command) => {
                    return Err(format!("\"{text}\" has a command that is not supported in header mutations"));
                }
                _ => {}
            }
        }
        Ok(Template(format))
    }

    /// Appends the value. A command without a value stands for nothing.
    pub(super) fn write(&self, stream: &Stream<'_>, out: &mut Vec<u8>) {
        for piece in &self.0.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Command { command, max_length } => {
                    let start = out.len();
                    if command_value(command, stream, out).is_none() {
                        out.truncate(start);
                    }
                    if let Some(max_length) = max_length {
                        out.truncate(out.len().min(start + max_length));
                    }
                }
            }
        }
    }
}

/// Whether [`command_value`] has an answer.
fn is_known(command: &Command) -> bool {
    use Command::*;
    matches!(
        command,
        RequestHeader(..)
            | ResponseHeader(..)
            | Path { .. }
            | Protocol
            | Scheme
            | ResponseCode
            | ResponseCodeDetails
            | ResponseFlags
            | ResponseFlagsLong
            | UpstreamHost
            | UpstreamCluster
            | UpstreamLocalAddress(_)
            | DownstreamLocalAddress(_)
            | DownstreamRemoteAddress(_)
            | DownstreamDirectRemoteAddress(_)
            | RouteName
            | VirtualHostName
            | FilterChainName
            | ConnectionId
            | UpstreamConnectionId
            | UpstreamRequestAttemptCount
            | StreamId
            | Environment(_)
    )
}

/// Appends the value of `command`; `None` when there is none, and then what was appended does not count.
fn command_value(command: &Command, stream: &Stream<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (request, info) = (&*stream.request, &*stream.info);
    match command {
        Command::RequestHeader(name, other) => {
            let value = request_value(request, name).or_else(|| request_value(request, other.as_deref()?));
            out.extend_from_slice(value?);
        }
        Command::ResponseHeader(name, other) => {
            let value = |name: &str| stream.response.fields.get_name(name.as_bytes());
            out.extend_from_slice(value(name).or_else(|| value(other.as_deref()?))?);
        }
        Command::Path { query } => {
            let path = request.fields.get(HeaderId::XEnvoyOriginalPath).unwrap_or(request.path());
            let end = if *query { path.len() } else { path.iter().position(|b| *b == b'?').unwrap_or(path.len()) };
            out.extend_from_slice(path.get(..end).filter(|path| !path.is_empty())?);
        }
        Command::Protocol => out.extend_from_slice(request.version().as_str().as_bytes()),
        Command::Scheme => out.extend_from_slice(scheme(request)),
        Command::ResponseCode => number(u64::from(info.status), out),
        Command::ResponseCodeDetails => {
            out.extend_from_slice(Some(info.details.as_bytes()).filter(|details| !details.is_empty())?);
        }
        Command::ResponseFlags => flags(info.flags, |(short, _)| short, out)?,
        Command::ResponseFlagsLong => flags(info.flags, |(_, long)| long, out)?,
        Command::UpstreamHost => out.extend_from_slice(info.upstream_remote.as_ref()?.as_bytes()),
        Command::UpstreamCluster => out.extend_from_slice(info.upstream_cluster.as_ref()?.as_bytes()),
        Command::UpstreamLocalAddress(part) => address(info.upstream_local?, *part, out),
        Command::DownstreamLocalAddress(part) => address(info.downstream_local?, *part, out),
        Command::DownstreamRemoteAddress(part) => address(info.downstream_remote?, *part, out),
        Command::DownstreamDirectRemoteAddress(part) => address(info.downstream_direct_remote?, *part, out),
        Command::RouteName => out.extend_from_slice(info.route_name.as_ref()?.as_bytes()),
        Command::VirtualHostName => out.extend_from_slice(info.virtual_host.as_ref()?.as_bytes()),
        Command::FilterChainName => out.extend_from_slice(info.filter_chain.as_ref()?.as_bytes()),
        Command::ConnectionId => number(info.connection_id, out),
        Command::UpstreamConnectionId => number(info.upstream_connection_id, out),
        Command::UpstreamRequestAttemptCount => number(u64::from(info.upstream_attempts), out),
        Command::StreamId => number(info.stream_id, out),
        Command::Environment(value) => out.extend_from_slice(value.as_bytes()),
        _ => return None,
    }
    Some(())
}

/// A header by name, or one of the parts that `:names` stand for.
fn request_value<'r>(request: &'r RequestHead, name: &str) -> Option<&'r [u8]> {
    let value = match name {
        ":method" => request.method_bytes(),
        ":path" => request.path(),
        ":authority" | "host" => request.authority(),
        ":scheme" => scheme(request),
        _ => return request.fields.get_name(name.as_bytes()),
    };
    Some(value).filter(|value| !value.is_empty())
}

fn scheme(request: &RequestHead) -> &[u8] {
    match request.scheme() {
        Some(scheme) => scheme.as_str().as_bytes(),
        None => request.fields.get(HeaderId::XForwardedProto).unwrap_or(Scheme::Http.as_str().as_bytes()),
    }
}

fn flags(flags: Flags, name: impl Fn((&'static str, &'static str)) -> &'static str, out: &mut Vec<u8>) -> Option<()> {
    for (at, names) in flags.names().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name(names).as_bytes());
    }
    (!flags.is_empty()).then_some(())
}

// Writing to memory cannot fail.
fn number(number: u64, out: &mut Vec<u8>) {
    let _ = write!(out, "{number}");
}

fn address(address: SocketAddr, part: AddressPart, out: &mut Vec<u8>) {
    let _ = match part {
        AddressPart::Whole => write!(out, "{address}"),
        AddressPart::WithoutPort => write!(out, "{}", address.ip()),
        AddressPart::Port => write!(out, "{}", address.port()),
    };
}
