//! `/stats?format=html` and `/stats?format=active-html`: statistics for people.

use super::index::escape;
use crate::request::Request;
use crate::response::{Content, Reply};
use postrider_telemetry::render::Kinds;

/// Asks for statistics again and again, and shows those first that change.
pub(super) fn active() -> Reply {
    Reply::html(include_str!("active.html").to_owned())
}

/// The text below a form that asks for it otherwise.
pub(super) fn page(request: &Request, text: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Reply {
    let head = std::iter::once(head(request).into_bytes());
    // A character of several bytes is never escaped, so that it does not matter where a chunk ends.
    let text = text.map(|chunk| {
        let mut out = Vec::with_capacity(chunk.len());
        for byte in chunk {
            match byte {
                b'&' => out.extend_from_slice(b"&amp;"),
                b'<' => out.extend_from_slice(b"&lt;"),
                b'>' => out.extend_from_slice(b"&gt;"),
                byte => out.push(byte),
            }
        }
        out
    });
    let tail = std::iter::once(b"</pre>\n</body>\n</html>\n".to_vec());
    Reply::chunks(Content::Html, head.chain(text).chain(tail))
}

fn head(request: &Request) -> String {
    let checked = if request.has("usedonly") { " checked" } else { "" };
    let filter = escape(request.parameter("filter").unwrap_or_default());
    let choices = |name: &str, values: &[&str]| {
        let chosen = request.parameter(name).unwrap_or_default();
        let option = |value: &&str| {
            let selected = if *value == chosen { " selected" } else { "" };
            format!("<option{selected}>{value}</option>")
        };
        format!("<select name=\"{name}\">{}</select>", values.iter().map(option).collect::<String>())
    };
    let types = choices("type", &Kinds::NAMES);
    let buckets = choices("histogram_buckets", &["summary", "cumulative", "disjoint", "detailed"]);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Postrider statistics</title>\n\
         <style>body{{font-family:sans-serif}} label{{padding-right:1em}}</style></head>\n<body>\n\
         <form><input type=\"hidden\" name=\"format\" value=\"html\">\n\
         <label>filter <input name=\"filter\" value=\"{filter}\"></label>\n\
         <label><input type=\"checkbox\" name=\"usedonly\"{checked}> used only</label>\n\
         <label>type {types}</label>\n<label>histograms {buckets}</label>\n<button>show</button>\n</form>\n<pre>\n"
    )
}
