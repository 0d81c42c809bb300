//! Extensions that an operator does not want (`--disable-extensions`): a configuration that uses one is refused.
//!
//! What it must never do: judge by the name that a configuration gives an extension, which is free. Its type counts, as in
//! Envoy. Who calls it: [`crate::load`], about the whole document, before any of it is in force.

use postrider_config_core::{Diagnostic, Diagnostics};

use crate::coverage::join;
use crate::extensions::{Listed, listed};
use crate::message::{Any, Field, Message, Value};

/// Names that say no extension: each with the reason.
pub fn unknown(names: &[String]) -> Vec<(&str, &'static str)> {
    let why = |name: &str| match name.split_once('/') {
        None => Some("a name has the form `category/name`"),
        Some(_) if named(name).next().is_none() => Some("there is no such extension"),
        Some(_) => None,
    };
    names.iter().filter_map(|name| Some((name.as_str(), why(name)?))).collect()
}

/// Refuses what `message` uses of the extensions with these names (`category/name`).
pub(crate) fn refuse(message: &Message, names: &[String], diagnostics: &mut Diagnostics) {
    let disabled: Vec<Listed> = names.iter().flat_map(|name| named(name)).collect();
    if !disabled.is_empty() {
        Search { disabled, diagnostics }.message(message, "");
    }
}

fn named(name: &str) -> impl Iterator<Item = Listed> {
    let parts = name.split_once('/');
    listed().filter(move |listed| parts == Some((listed.category, listed.name)))
}

struct Search<'a> {
    disabled: Vec<Listed>,
    diagnostics: &'a mut Diagnostics,
}

impl Search<'_> {
    fn message(&mut self, message: &Message, path: &str) {
        for field in &message.fields {
            let path = join(path, field.descriptor.name());
            self.value(&field.value, field, message, &path);
        }
    }

    /// `parent` holds the value, in `field`.
    fn value(&mut self, value: &Value, field: &Field, parent: &Message, path: &str) {
        match value {
            Value::Message(message) => self.message(message, path),
            Value::Any(any) => {
                self.any(any, field, parent, path);
                if let Some(message) = &any.message {
                    self.message(message, path);
                }
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&item.value, field, parent, &format!("{path}[{index}]"));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.value(&entry.value, field, parent, &format!("{path}[{:?}]", entry.key));
                }
            }
            _ => {}
        }
    }

    fn any(&mut self, any: &Any, field: &Field, parent: &Message, path: &str) {
        let is_it = |listed: &&Listed| listed.type_name == any.type_name() && may_be(listed.category, path);
        let Some(found) = self.disabled.iter().find(is_it) else { return };
        let text = format!("`{}/{}` is disabled by `--disable-extensions`", found.category, found.name);
        let span = any.type_url_span.or_else(|| field.span()).or(parent.span);
        self.diagnostics.push(Diagnostic::error("disabled-extension", text).at(span).path(path));
    }
}

/// Whether an extension of that category stands at a path. A few types are those of two extensions, one for clients and
/// one for upstreams.
fn may_be(category: &str, path: &str) -> bool {
    let of_cluster = path.starts_with("static_resources.clusters[");
    match category.rsplit('.').next() {
        Some("downstream") => !of_cluster,
        Some("upstream") => of_cluster,
        _ if category.starts_with("envoy.tls.") => of_cluster == category.contains(".upstream_"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use postrider_config_core::SourceFile;

    use super::unknown;
    use crate::{LoadOptions, load};

    const FILE: &str = r#"
static_resources:
  listeners:
  - name: one
    address: { socket_address: { address: 127.0.0.1, port_value: 1 } }
    filter_chains:
    - transport_socket:
        name: plain
        typed_config: { "@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer }
      filters:
      - name: free
        typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo }
"#;

    /// What is refused with these disabled: where, and in which words.
    fn refused(names: &[&str]) -> Vec<(String, String)> {
        let disabled = names.iter().map(|name| (*name).to_owned()).collect();
        let options = LoadOptions { disabled, ..LoadOptions::default() };
        let outcome = load(&SourceFile::new("envoy.yaml", FILE), &options, &|_: &str| false);
        assert_eq!(outcome.snapshot.is_none(), outcome.diagnostics.errors() > 0);
        outcome.diagnostics.iter().map(|found| (found.path.clone(), found.message.clone())).collect()
    }

    #[test]
    fn what_is_disabled_is_refused_where_it_stands() {
        assert_eq!(refused(&[]), []);
        let echo = "envoy.filters.network/envoy.filters.network.echo";
        let chain = "static_resources.listeners[0].filter_chains[0]";
        let words = |name: &str| format!("`{name}` is disabled by `--disable-extensions`");
        assert_eq!(refused(&[echo]), [(format!("{chain}.filters[0].typed_config"), words(echo))]);
        let plain = "envoy.transport_sockets.downstream/envoy.transport_sockets.raw_buffer";
        assert_eq!(refused(&[plain]), [(format!("{chain}.transport_socket.typed_config"), words(plain))]);
        assert_eq!(refused(&["envoy.transport_sockets.upstream/envoy.transport_sockets.raw_buffer"]), []);
        assert_eq!(refused(&["envoy.filters.http/envoy.filters.http.lua"]), []);
    }

    #[test]
    fn names_of_no_extension_are_told() {
        let names =
            ["envoy.filters.http/envoy.filters.http.lua", "envoy.filters.http.lua", "envoy.filters.http/none", ""];
        let names: Vec<String> = names.map(str::to_owned).into();
        let form = "a name has the form `category/name`";
        let none = "there is no such extension";
        assert_eq!(unknown(&names), [("envoy.filters.http.lua", form), ("envoy.filters.http/none", none), ("", form)]);
    }
}
