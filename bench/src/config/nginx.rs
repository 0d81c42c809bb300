//! nginx twice: as a peer, and as the upstream of every load scenario.

use std::fmt::Write;
use std::path::Path;

use crate::shape::{Filter, Http, PASSWORD_SHA, Protocol, Setup, USER, route_prefix};

/// Where Debian's packages put the stream module; elsewhere it is compiled in.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// Requests that a kept connection may carry: more than a run can send.
const REQUESTS: u64 = 1_000_000_000;

/// How nginx holds a response while it passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// As installed: a first buffer of one memory page, so that a 4 KB body needs two reads.
    Stock,
    /// As an operator who reads the manual sets it: the whole small message fits in the first buffer.
    Large,
}

/// Configuration of nginx as a proxy.
pub fn proxy(setup: &Setup, buffers: Buffers) -> String {
    // nginx closes idle connections when fewer than a sixteenth of its slots are free: keep a quarter free.
    let slots = setup.shape.connections * 5 / 2 + 100;
    let mut text = preamble(setup.directory, slots, setup.file_limit, setup.single_process);
    let (listen, upstream) = (setup.listen, setup.upstream);
    if setup.shape.protocol == Protocol::Tcp {
        let _ = write!(
            text,
            "stream {{
  access_log off;
  server {{
    listen 127.0.0.1:{listen};
    proxy_pass 127.0.0.1:{upstream};
    proxy_connect_timeout 1s;
    proxy_timeout 300s;
  }}
}}
"
        );
        return text;
    }
    http_preamble(&mut text, setup.directory);
    let keepalive = setup.shape.connections.max(512);
    let _ = write!(
        text,
        "  upstream origin {{
    server 127.0.0.1:{upstream};
    keepalive {keepalive};
    keepalive_requests {REQUESTS};
    keepalive_timeout 3600s;
  }}
"
    );
    for number in 0..setup.shape.idle_clusters {
        let _ = writeln!(text, "  upstream idle_{number:05} {{ server 127.0.0.1:{upstream}; keepalive 16; }}");
    }
    text.push_str(
        "  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_connect_timeout 1s;
  proxy_read_timeout 15s;
  proxy_max_temp_file_size 0;
",
    );
    if buffers == Buffers::Large {
        text.push_str("  proxy_buffer_size 16k;\n  proxy_buffers 8 64k;\n  proxy_busy_buffers_size 128k;\n");
    }
    let http2 = if setup.shape.downstream == Http::Two { " http2" } else { "" };
    let ssl = if setup.certificate.is_some() { " ssl" } else { "" };
    let _ = writeln!(text, "  server {{\n    listen 127.0.0.1:{listen} backlog=4096{ssl}{http2};");
    if let Some(certificate) = setup.certificate {
        // The versions that the others offer too; nginx as installed may leave out the newest.
        let _ = writeln!(
            text,
            "    ssl_protocols TLSv1.2 TLSv1.3;\n    ssl_certificate {};\n    ssl_certificate_key {};",
            certificate.chain.display(),
            certificate.key.display()
        );
    }
    if setup.shape.plain_beside {
        let _ = writeln!(text, "    listen 127.0.0.1:{} backlog=4096{http2};", setup.plain);
    }
    if setup.shape.filter == Filter::BasicAuth {
        let _ = writeln!(
            text,
            "    auth_basic bench;\n    auth_basic_user_file {};",
            setup.directory.join("users").display()
        );
    }
    if setup.shape.access_log {
        // In pieces, as the others write theirs.
        let path = setup.directory.join("access.log");
        let _ = writeln!(text, "    access_log {} combined buffer=64k flush=1s;", path.display());
    }
    // nginx speaks HTTP/2 with upstreams as a gRPC client only; to it every request is a call.
    let pass = if setup.shape.upstream == Http::Two { "grpc_pass grpc" } else { "proxy_pass http" };
    for number in 0..setup.shape.routes {
        let prefix = if setup.shape.routes == 1 { "/".to_owned() } else { route_prefix(number) };
        let _ = writeln!(text, "    location {prefix} {{ {pass}://origin; }}");
    }
    text.push_str("  }\n}\n");
    text
}

/// The content of the password file beside the configuration.
pub fn users() -> String {
    format!("{USER}:{PASSWORD_SHA}\n")
}

/// A body that the upstream serves at `/NAME` and below each numbered route.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    pub name: &'static str,
    pub bytes: usize,
}

/// Bodies up to this size stand in the configuration and are answered from memory; larger ones are files.
const MEMORY_BODY: usize = 4000;

/// Configuration of nginx as the upstream, which speaks one version of HTTP in clear text. `directory` gets the larger
/// bodies as files from `body_files`.
pub fn upstream(directory: &Path, listen: u16, http: Http, file_limit: u64, bodies: &[Body]) -> String {
    let mut text = preamble(directory, 2048, file_limit, false);
    http_preamble(&mut text, directory);
    let http2 = if http == Http::Two { " http2" } else { "" };
    let _ = writeln!(
        text,
        "  sendfile on;\n  tcp_nopush on;\n  open_file_cache max=16;\n  open_file_cache_valid 3600s;\n  server {{
    listen 127.0.0.1:{listen} backlog=4096{http2};\n    root {};",
        directory.display()
    );
    for body in bodies.iter().filter(|body| body.bytes <= MEMORY_BODY) {
        let content = content(body.bytes);
        let _ = writeln!(text, "    location = /{} {{ return 200 \"{content}\"; }}", body.name);
        let _ = writeln!(text, "    location ~ \"^/r[0-9]+/{}$\" {{ return 200 \"{content}\"; }}", body.name);
    }
    text.push_str("  }\n}\n");
    text
}

/// Name and content of each body that is served from a file.
pub fn body_files(bodies: &[Body]) -> impl Iterator<Item = (&'static str, String)> {
    bodies.iter().filter(|body| body.bytes > MEMORY_BODY).map(|body| (body.name, content(body.bytes)))
}

fn content(bytes: usize) -> String {
    "Hello, world\n".chars().cycle().take(bytes).map(|c| if c == '\n' { '.' } else { c }).collect()
}

fn preamble(directory: &Path, connections: usize, file_limit: u64, single_process: bool) -> String {
    let mut text = String::new();
    if Path::new(STREAM_MODULE).exists() {
        let _ = writeln!(text, "load_module {STREAM_MODULE};");
    }
    if rustix::process::geteuid().is_root() {
        // Otherwise the worker may not read the directory of the run.
        text.push_str("user root;\n");
    }
    let _ = writeln!(
        text,
        "daemon off;\nmaster_process {};\nworker_processes 1;\nworker_rlimit_nofile {file_limit};
pid {pid};\nerror_log stderr warn;\nevents {{ worker_connections {connections}; }}",
        if single_process { "off" } else { "on" },
        pid = directory.join("nginx.pid").display(),
    );
    text
}

fn http_preamble(text: &mut String, directory: &Path) {
    text.push_str("http {\n  access_log off;\n");
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "  {kind}_temp_path {};", directory.join(kind).display());
    }
    let _ = writeln!(text, "  keepalive_timeout 3600s;\n  keepalive_requests {REQUESTS};");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_length_that_its_name_promises_and_nothing_that_nginx_would_expand() {
        for bytes in [13, 1024, 4000] {
            let content = content(bytes);
            assert_eq!(content.len(), bytes);
            assert!(!content.contains(['$', '"', '\\', '\n']));
        }
    }

    #[test]
    fn only_bodies_beyond_the_memory_limit_become_files() {
        let bodies = [Body { name: "4k", bytes: 4000 }, Body { name: "500k", bytes: 512_000 }];
        let files: Vec<_> = body_files(&bodies).collect();
        assert_eq!(files.len(), 1);
        assert_eq!((files[0].0, files[0].1.len()), ("500k", 512_000));
    }
}
