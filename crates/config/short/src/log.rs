//! The access log: `stdout`, `stderr`, a path, or `{to, format}` and `{to, json}`.

use postrider_config_core::Diagnostics;
use postrider_config_envoy::tree::{Node, NodeKind};

use crate::build::{extension, map, pair, text};
use crate::fields::{self, Fields, join};

const EXPECTED: &str = "`stdout`, `stderr`, a path, or `{to, format}`";

/// One Envoy `AccessLog`.
pub fn logger(node: &Node, path: &str, diagnostics: &mut Diagnostics) -> Node {
    let NodeKind::Map(_) = &node.kind else {
        let to = fields::text(node, path, EXPECTED, diagnostics).unwrap_or_default();
        return sink(node, to, None);
    };
    let fields = Fields::of(node, path, diagnostics);
    let (to, format, json) = (fields.take("to"), fields.take("format"), fields.take("json"));
    fields.finish(&["to", "format", "json"]);
    let Some(to) = to else {
        fields::missing(node, path, "to", "`stdout`, `stderr` or a path", diagnostics);
        return sink(node, "stdout", None);
    };
    let place = join(path, "to");
    let target = fields::text(to, &place, "`stdout`, `stderr` or a path", diagnostics).unwrap_or_default();
    let format = match (format, json) {
        (Some(_), Some(json)) => {
            let message = "`format` and `json` exclude each other";
            fields::invalid(json, &join(path, "json"), message, "one of them", diagnostics);
            None
        }
        (Some(format), None) => {
            fields::text(format, &join(path, "format"), "a text with %COMMANDS%", diagnostics).map(|line| {
                let source = map(format.span, vec![pair("inline_string", text(format.span, format!("{line}\n")))]);
                map(format.span, vec![pair("text_format_source", source)])
            })
        }
        (None, Some(json)) => Some(map(json.span, vec![pair("json_format", json.clone())])),
        (None, None) => None,
    };
    sink(to, target, format)
}

fn sink(node: &Node, to: &str, format: Option<Node>) -> Node {
    let span = node.span;
    let format = format.map(|format| pair("log_format", format));
    match to {
        "stdout" => {
            let kind = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
            extension(span, "envoy.access_loggers.stdout", kind, format.into_iter().collect())
        }
        "stderr" => {
            let kind = "envoy.extensions.access_loggers.stream.v3.StderrAccessLog";
            extension(span, "envoy.access_loggers.stderr", kind, format.into_iter().collect())
        }
        path => {
            let kind = "envoy.extensions.access_loggers.file.v3.FileAccessLog";
            let path = pair("path", text(span, path));
            extension(span, "envoy.access_loggers.file", kind, std::iter::once(path).chain(format).collect())
        }
    }
}
