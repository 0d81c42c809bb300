//! `/` and `/help`: what there is.

use super::Endpoint;
use crate::response::Reply;
use std::fmt::Write;

/// Envoy's `/help`.
pub(super) fn help(table: &[Endpoint]) -> String {
    let mut out = String::from("admin commands are:\n  /: Admin home page\n");
    let mut help_is_listed = false;
    for endpoint in table {
        if endpoint.path > "/help" && !help_is_listed {
            out.push_str("  /help: print out list of admin commands\n");
            help_is_listed = true;
        }
        let method = if endpoint.mutating { " (POST)" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {}{method}: {}", endpoint.path, endpoint.help);
        for (name, meaning) in endpoint.parameters {
            let _ = writeln!(out, "      {name}: {meaning}");
        }
    }
    out
}

/// A table with a link for each path that can be read and a button for each order.
pub(super) fn page(table: &[Endpoint]) -> Reply {
    let mut rows = String::new();
    for endpoint in table {
        let (path, what) = (escape(endpoint.path), escape(endpoint.help));
        let entry = if endpoint.mutating {
            format!("<code>POST {path}</code>")
        } else {
            format!("<a href=\"{}\">{path}</a>", path.trim_start_matches('/'))
        };
        let parameters: Vec<_> =
            endpoint.parameters.iter().map(|(name, _)| format!("<code>{}</code>", escape(name))).collect();
        let _ = writeln!(rows, "<tr><td>{entry}</td><td>{what}</td><td>{}</td></tr>", parameters.join(" "));
    }
    Reply::html(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Postrider admin</title>\n\
         <style>body{{font-family:sans-serif}} td{{padding:.2em 1em .2em 0}}</style></head>\n\
         <body>\n<h1>Postrider admin</h1>\n<table>\n<tr><th>path</th><th>what it does</th><th>parameters</th></tr>\n\
         {rows}</table>\n</body>\n</html>\n"
    ))
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
