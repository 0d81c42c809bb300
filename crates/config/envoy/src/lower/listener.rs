//! Listeners and their filter chains.

use std::sync::Arc;

use postrider_config_core::{Diagnostic, Diagnostics};
use postrider_model::{
    Address, ChainMatch, Codec, ConnectionBalance, ConnectionHandler, Direction, FilterChain, Listener, MatchContext,
    MatchTree, SocketOptions,
};

use super::context::{Lowering, origin, timeout};
use super::match_tree::{self, Leaves};
use super::{access_log, address, chain_match, inspection, metadata, network, runtime, statistics, transport};
use crate::known::VERSION;
use crate::reader::Reader;

/// Bytes buffered per connection and direction where the field is absent. Envoy's default is 1 MiB, which lets a client
/// that does not read cost as much memory.
pub(super) const BUFFER_LIMIT: u32 = 200 << 10;

/// Length of the queue of connections that are not accepted yet: Envoy's, which is Linux's `SOMAXCONN` since 5.4.
const BACKLOG: u32 = 4096;

pub(super) fn listener(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Listener> {
    other_kind(cx, at);
    cx.is_outbound = direction(at) == Direction::Outbound;
    let (addresses, sockets) = addresses(cx, at);
    let (filter_chains, default_filter_chain) = chains(cx, at);
    let chain_tree = chain_tree(cx, at);
    let inspection = inspection::inspection(cx, at, filter_chains.iter().map(|chain| &chain.matches));
    let buffer_limit = buffer_limit(cx, at);
    // A bound of the runtime is none of the overload manager's.
    let bypasses_overload = at.bool("bypass_overload_manager");
    let name = match at.str("name") {
        "" => addresses.first().map(Address::to_string).unwrap_or_default(),
        name => name.to_owned(),
    };
    let stat_prefix = at.str("stat_prefix");
    let listener = Listener {
        connection_limit: runtime::connection_limit(cx, &name),
        bypasses_overload,
        binds: at.bool_wrapper("bind_to_port").unwrap_or(true),
        hands_over: at.bool_wrapper("use_original_dst").unwrap_or(false),
        drains_unhealthy: at.enum_name("drain_type") != "MODIFY_ONLY",
        bypasses_bound: at.bool("ignore_global_conn_limit")
            || (bypasses_overload && runtime::connections(cx).is_none()),
        name,
        stat_prefix: (!stat_prefix.is_empty()).then(|| stat_prefix.to_owned()),
        told: statistics::own(cx, at),
        filter_chains,
        default_filter_chain,
        chain_tree,
        buffer_limit,
        full_buffer_timeout: timeout(at, FULL_BUFFER_TIMEOUT, None),
        backlog: at.u32_wrapper("tcp_backlog_size").unwrap_or(BACKLOG),
        one_queue: at.bool_wrapper("enable_reuse_port") == Some(false),
        accepts_at_once: at.u32_wrapper("max_connections_to_accept_per_socket_event"),
        balance: balance(cx, at),
        inspection,
        sockets,
        direction: direction(at),
        metadata: at.has("metadata").then(|| Arc::new(metadata::metadata(cx, at))),
        access_log: access_log::loggers(cx, at, "access_log"),
        origin: origin(at),
        addresses,
    };
    // A listener without an address is the result of an error.
    (!listener.addresses.is_empty()).then_some(listener)
}

/// Of a listener or cluster: how long a connection may have a full buffer.
pub(super) const FULL_BUFFER_TIMEOUT: &str = "per_connection_buffer_high_watermark_timeout";

/// The limit of a listener or cluster.
pub(super) fn buffer_limit(cx: &mut Lowering<'_>, at: &Reader<'_>) -> u32 {
    at.u32_wrapper("per_connection_buffer_limit_bytes").unwrap_or_else(|| {
        cx.differs(
            at,
            "buffer-limit",
            "at most 200 KiB are buffered per connection and direction",
            "per_connection_buffer_limit_bytes: 1048576",
        );
        BUFFER_LIMIT
    })
}

/// Where it listens, and what is set on the sockets of each address.
fn addresses(cx: &mut Lowering<'_>, at: &Reader<'_>) -> (Vec<Address>, Vec<SocketOptions>) {
    let fields = socket_fields(at);
    let options = with_numbered(cx, at, fields.clone());
    let mut all = Vec::new();
    match at.message("address") {
        Some(main) => all.extend(bound(cx, &main, options.clone())),
        None if OTHER_KINDS.iter().any(|(field, _)| at.has(field)) => {}
        None => cx.missing(at, "the listener has no `address`", "`address: {socket_address: …}`"),
    }
    for additional in at.list("additional_addresses") {
        // Options of its own come in place of the listener's; none are some, too.
        let mut options = match additional.message("socket_options") {
            Some(own) => with_numbered(cx, &own, fields.clone()),
            None => options.clone(),
        };
        if let Some(keepalive) = additional.message("tcp_keepalive") {
            options.keepalive = address::keepalive(&keepalive);
        }
        match additional.message("address") {
            Some(address) => all.extend(bound(cx, &address, options)),
            None => cx.missing(&additional, "the additional address is empty", "`address: {socket_address: …}`"),
        }
    }
    all.into_iter().unzip()
}

/// Listeners that accept nothing from a network, by the fields that make them so.
const OTHER_KINDS: [(&str, &str); 2] = [
    ("internal_listener", "a listener for connections from within the process"),
    ("api_listener", "a listener for requests of the program that the proxy is part of"),
];

/// A listener of these is refused whole: whoever sends something there, by its name, would find nobody.
fn other_kind(cx: &mut Lowering<'_>, at: &Reader<'_>) {
    for (field, what) in OTHER_KINDS.into_iter().filter(|(field, _)| at.has(field)) {
        let text = format!("{what} (`{field}`): known to Envoy, not supported by Postrider {VERSION}");
        at.refuse(field, &text, &mut Diagnostics::new());
        let refusal = Diagnostic::error("unsupported-field", text).at(at.key_span_of(field)).path(at.path_of(field));
        cx.push(refusal.expected("`address: {socket_address: …}`, where clusters reach it"));
    }
}

fn bound(cx: &mut Lowering<'_>, at: &Reader<'_>, mut options: SocketOptions) -> Option<(Address, SocketOptions)> {
    let address = address::bound(cx, at);
    options.ipv4_compat = at.message("socket_address").is_some_and(|socket| socket.bool("ipv4_compat"));
    Some((address?, options))
}

/// Options of sockets that have fields of their own.
fn socket_fields(at: &Reader<'_>) -> SocketOptions {
    SocketOptions {
        multipath: at.bool("enable_mptcp"),
        freebind: at.bool_wrapper("freebind").unwrap_or(false),
        transparent: at.bool_wrapper("transparent").unwrap_or(false),
        tcp_fast_open: at.u32_wrapper("tcp_fast_open_queue_length"),
        keepalive: at.message("tcp_keepalive").and_then(|keepalive| address::keepalive(&keepalive)),
        ..SocketOptions::default()
    }
}

/// The same with those that have numbers.
fn with_numbered(cx: &mut Lowering<'_>, at: &Reader<'_>, mut options: SocketOptions) -> SocketOptions {
    options.numbered = address::socket_options(cx, at, Some(&mut options.keepalive));
    options
}

fn direction(at: &Reader<'_>) -> Direction {
    match at.enum_name("traffic_direction").as_str() {
        "INBOUND" => Direction::Inbound,
        "OUTBOUND" => Direction::Outbound,
        _ => Direction::Unspecified,
    }
}

fn balance(cx: &mut Lowering<'_>, at: &Reader<'_>) -> ConnectionBalance {
    let Some(config) = at.message("connection_balance_config") else { return ConnectionBalance::Kernel };
    match config.oneof("balance_type") {
        Some("exact_balance") => {
            config.message("exact_balance");
            ConnectionBalance::Exact
        }
        Some(other) => {
            cx.refuse(&config, other, &format!("balancing connections by `{other}`"));
            ConnectionBalance::Kernel
        }
        None => ConnectionBalance::Kernel,
    }
}

type Chains = (Vec<Arc<FilterChain>>, Option<Arc<FilterChain>>);

fn chains(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Chains {
    let places = at.list("filter_chains");
    let mut all = Vec::new();
    let mut matches = Vec::new();
    let by_tree = at.has(TREE);
    for place in &places {
        let mut is_whole = true;
        let criteria = match place.message("filter_chain_match") {
            Some(_) if by_tree => {
                place.whole("filter_chain_match");
                cx.no_effect(place, "filter_chain_match", "the listener's `filter_chain_matcher` chooses");
                ChainMatch::default()
            }
            Some(criteria) => {
                let errors = cx.diagnostics.errors();
                let read = chain_match::chain_match(cx, &criteria);
                // Looked at without reading it: it stays refused.
                let mut unread = ["address_suffix", "suffix_len"].iter();
                is_whole = cx.diagnostics.errors() == errors
                    && !unread.any(|field| criteria.as_message().field(field).is_some());
                read
            }
            None => ChainMatch::default(),
        };
        all.extend(chain(cx, place, criteria.clone()).map(Arc::new));
        // Without a criterion that was refused, chains look alike which are not.
        if is_whole {
            matches.push((criteria, place));
        }
    }
    if !by_tree && places.iter().all(|place| !cx.is_broken(&place.path_of("filter_chain_match"))) {
        chain_match::unique(cx, &matches.iter().map(|(criteria, place)| (criteria, *place)).collect::<Vec<_>>());
    }
    let default = at.message("default_filter_chain").and_then(|place| {
        place.ignore("filter_chain_match", "the default chain takes what no other chain takes");
        chain(cx, &place, ChainMatch::default()).map(Arc::new)
    });
    if places.is_empty() && !at.has("default_filter_chain") && !by_tree && !at.has("api_listener") {
        cx.missing(at, "the listener has no filter chain", "`filter_chains` with at least one chain");
    }
    (all, default)
}

const TREE: &str = "filter_chain_matcher";

/// The tree that chooses among the chains by their names.
fn chain_tree(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<Arc<MatchTree<Option<usize>>>> {
    let tree = at.message(TREE)?;
    let mut names: Vec<&str> = Vec::new();
    for place in at.list("filter_chains") {
        match place.str("name") {
            "" => cx.missing(&place, format!("`{TREE}` chooses chains by their names"), "`name`"),
            name if names.contains(&name) => {
                cx.error(&place, "name", "duplicate-name", format!("another chain is called `{name}`, too"));
            }
            _ => {}
        }
        names.push(place.str("name"));
    }
    let leaves = Leaves {
        context: MatchContext::Newcomers,
        types: &["google.protobuf.StringValue"],
        what: "the name of a filter chain",
    };
    let read = match_tree::tree(cx, &tree, &leaves, &mut |cx, _, leaf| {
        let name = leaf.str("value");
        let found = names.iter().position(|known| *known == name);
        if found.is_none() {
            let text =
                format!("no filter chain is called `{name}`: as in Envoy, connections that come here are closed");
            cx.warn(&leaf, "value", "unknown-name", text);
        }
        Some(found)
    });
    read.map(Arc::new)
}

fn chain(cx: &mut Lowering<'_>, at: &Reader<'_>, matches: ChainMatch) -> Option<FilterChain> {
    let metadata = at.has("metadata").then(|| Arc::new(metadata::metadata(cx, at)));
    if at.bool_wrapper("use_proxy_proto") == Some(true) {
        let what =
            "the PROXY protocol as a field (`listener_filters` with `envoy.filters.listener.proxy_protocol` says it)";
        cx.refuse_value(at, "use_proxy_proto", what);
    }
    let name = at.str("name").to_owned();
    let (limits, guards, handler) = network::filters(cx, at);
    let http1_only = matches!(&handler, Some(ConnectionHandler::Http(http)) if http.codec == Codec::Http1);
    let tls = transport::of_chain(cx, at, http1_only);
    // A chain whose transport was refused must not serve in the clear.
    let tls = tls?.map(Arc::new);
    Some(FilterChain {
        name,
        matches,
        // Without a filter, nobody is greeted before the connection is closed.
        tls: tls.filter(|_| !at.list("filters").is_empty()),
        limits,
        guards,
        handler: handler?,
        metadata,
        origin: origin(at),
    })
}
