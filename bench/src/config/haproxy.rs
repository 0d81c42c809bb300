//! HAProxy as a peer: one thread, connections to the upstream shared and kept.

use std::fmt::Write;

use crate::shape::{Filter, Http, PASSWORD, Protocol, Setup, Shape, USER, route_prefix};

/// Files that HAProxy needs besides those of connections.
const OWN_FILES: u64 = 150;

/// Configuration for the setup; with many routes the map is in `routes.map` beside it.
pub fn proxy(setup: &Setup) -> String {
    let mode = match setup.shape.protocol {
        Protocol::Http => "http",
        Protocol::Tcp => "tcp",
    };
    let connections = (setup.shape.connections as u64 + 100).min(setup.file_limit.saturating_sub(OWN_FILES) / 2);
    let lua = match setup.shape.filter {
        Filter::Lua(..) => format!("  lua-load {}\n", setup.directory.join("bench.lua").display()),
        Filter::None | Filter::BasicAuth | Filter::Plugin(_) => String::new(),
    };
    let mut text = format!(
        "global
  nbthread 1
  maxconn {connections}
  tune.pool-low-fd-ratio 99
  tune.pool-high-fd-ratio 100
{lua}defaults
  mode {mode}
  maxconn {connections}
  timeout connect 1s
  timeout client 3600s
  timeout server 15s
"
    );
    let http = setup.shape.protocol == Protocol::Http;
    if http {
        text.push_str("  timeout http-request 10s\n  timeout http-keep-alive 3600s\n");
        text.push_str("  option http-keep-alive\n  http-reuse always\n");
        if matches!(setup.shape.filter, Filter::Lua(script, _) if script.reads_body()) {
            text.push_str("  option http-buffer-request\n");
        }
    } else {
        text.push_str("  timeout tunnel 300s\n");
    }
    if setup.shape.filter == Filter::BasicAuth {
        let _ = write!(text, "userlist bench\n  user {USER} insecure-password {PASSWORD}\n");
    }
    let _ = write!(text, "frontend bench\n  bind 127.0.0.1:{} backlog 4096", setup.listen);
    if let Some(certificate) = setup.certificate {
        let _ = write!(text, " ssl crt {} alpn {}", certificate.both.display(), setup.shape.downstream.alpn());
    } else if setup.shape.downstream == Http::Two {
        text.push_str(" proto h2");
    }
    text.push('\n');
    if setup.shape.plain_beside {
        let _ = writeln!(text, "  bind 127.0.0.1:{} backlog 4096", setup.plain);
    }
    match setup.shape.filter {
        Filter::None | Filter::Plugin(_) => {}
        Filter::BasicAuth => text.push_str("  http-request auth unless { http_auth(bench) }\n"),
        Filter::Lua(script, _) => {
            text.push_str("  http-request lua.bench_request\n");
            if script.sees_answers() {
                text.push_str("  http-response lua.bench_response\n");
            }
        }
    }
    if setup.shape.routes == 1 {
        text.push_str("  default_backend origin\n");
    } else {
        let map = setup.directory.join("routes.map");
        let _ = writeln!(text, "  use_backend %[path,map_beg({})]", map.display());
    }
    backend(&mut text, "origin", setup.upstream, &setup.shape);
    for number in 0..setup.shape.idle_clusters {
        backend(&mut text, &format!("idle_{number:05}"), setup.upstream, &setup.shape);
    }
    text
}

/// The prefixes and their backend, one a line.
pub fn route_map(routes: usize) -> String {
    (0..routes).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{} origin", route_prefix(number));
        text
    })
}

fn backend(text: &mut String, name: &str, port: u16, shape: &Shape) {
    let pool = if shape.protocol == Protocol::Http { " pool-max-conn -1 pool-purge-delay 3600s" } else { "" };
    let protocol = if shape.upstream == Http::Two { " proto h2" } else { "" };
    let _ = write!(text, "backend {name}\n  server origin 127.0.0.1:{port}{pool}{protocol}\n");
}
