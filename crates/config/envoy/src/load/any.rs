//! `google.protobuf.Any` in its JSON form, resolved by `@type`; TypedStruct looked through.

use postrider_config_core::{Diagnostic, Span, nearest};
use postrider_envoy_proto as schema;
use prost_reflect::MessageDescriptor;

use super::decode::Decoder;
use super::format::Format;
use super::{names, v2};
use crate::known::{self, VERSION};
use crate::message::{Any, Field, Message, TYPE_URL_PREFIX, Value, type_name};
use crate::tree::{Node, NodeKind, Pair};
use crate::wire;
use crate::write::has_own_json_form;

/// The two messages that carry another message as a Struct beside its type URL.
pub(crate) const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

/// The one field in which an `Any` without a type means something: `config: {}` switches a filter on as it stands in the
/// chain.
pub const OPTIONAL: &str = "envoy.config.route.v3.FilterConfig.config";

/// Fields whose message stays what it is on the wire, of whatever type: metadata that is handed on.
pub(crate) const PACKED: [&str; 2] = [
    "envoy.config.core.v3.Metadata.typed_filter_metadata",
    "envoy.extensions.filters.http.set_metadata.v3.Metadata.typed_value",
];

/// Fields whose message is for code that is not ours. A TypedStruct in them is what that code reads, not a detour to a
/// message that is known here.
pub(crate) const OPAQUE: [&str; 9] = [
    "envoy.extensions.filters.http.golang.v3alpha.Config.plugin_config",
    "envoy.extensions.filters.http.golang.v3alpha.RouterPlugin.config",
    "envoy.extensions.filters.network.golang.v3alpha.Config.plugin_config",
    "envoy.extensions.router.cluster_specifier.golang.v3alpha.Config.config",
    "envoy.extensions.upstreams.http.tcp.golang.v3alpha.Config.plugin_config",
    PACKED[0],
    PACKED[1],
    "envoy.extensions.wasm.v3.PluginConfig.configuration",
    "envoy.extensions.wasm.v3.VmConfig.configuration",
];

/// An `Any` without a type.
pub fn untyped() -> Value {
    unresolved(String::new(), None)
}

/// Reads an `Any`. Without a usable type the result has no message, and the reason is reported.
pub fn decode(decoder: &mut Decoder<'_>, node: &Node, field: &str) -> Value {
    let NodeKind::Map(pairs) = &node.kind else {
        decoder.wrong_type(node, "a mapping with an `@type`");
        return unresolved(String::new(), None);
    };
    let Some(pair) = pairs.iter().find(|pair| pair.key == "@type") else {
        missing_type(decoder, node, pairs);
        return unresolved(String::new(), None);
    };
    let Some(url) = pair.value.text() else {
        let found = pair.value.describe();
        let message = format!("expected a type URL behind `@type`, found {found}");
        decoder.report(Diagnostic::error("wrong-type", message).at(pair.value.span));
        return unresolved(String::new(), Some(pair.value.span));
    };
    if !OPAQUE.contains(&field) {
        return resolve(decoder, node, pairs, url, pair.value.span, None);
    }
    let around = std::mem::replace(&mut decoder.is_opaque, true);
    let value = match TYPED_STRUCTS.contains(&type_name(url)) {
        true => typed(decoder, node, pairs, url, pair.value.span),
        false => resolve(decoder, node, pairs, url, pair.value.span, None),
    };
    decoder.is_opaque = around;
    value
}

/// A resolved `Any` of a message that the loader made up (a v2 `config` of a known extension).
pub fn of_message(message: Message) -> Value {
    let type_url = format!("{TYPE_URL_PREFIX}{}", message.type_name());
    Value::Any(Box::new(Any { type_url, type_url_span: None, message: Some(message), wrapper: None }))
}

/// Reads the `Any` that another one carries: what is in it, on the wire.
pub fn packed(decoder: &mut Decoder<'_>, node: &Node, descriptor: &MessageDescriptor) -> Message {
    let field = if decoder.is_opaque { PACKED[0] } else { "" };
    let mut message = Message::new(descriptor.clone(), Some(node.span));
    if let (Value::Any(any), Some(url), Some(bytes)) =
        (decode(decoder, node, field), descriptor.get_field(1), descriptor.get_field(2))
    {
        let inner = any.message.as_ref().map(wire::encode).unwrap_or_default();
        for (descriptor, value) in [(url, Value::String(any.type_url)), (bytes, Value::Bytes(inner))] {
            message.fields.push(Field { descriptor, value, key_span: None, value_span: Some(node.span) });
        }
    }
    message
}

fn resolve(
    decoder: &mut Decoder<'_>,
    node: &Node,
    pairs: &[Pair],
    url: &str,
    span: Span,
    wrapper: Option<&'static str>,
) -> Value {
    let name = type_name(url);
    let host = url.strip_suffix(name).unwrap_or("");
    if host.len() < 2 {
        let fixed = format!("{TYPE_URL_PREFIX}{name}");
        decoder.report(
            Diagnostic::error(
                "unknown-type",
                format!("`{url}` is not a type URL: nothing stands in front of the type"),
            )
            .at(span)
            .expected(format!("`{TYPE_URL_PREFIX}` and the full name of a message"))
            .fix(span, fixed.clone(), format!("write `{fixed}`")),
        );
        return unresolved(url.to_owned(), Some(span));
    }
    let Some(descriptor) = decoder.pool.get_message_by_name(name) else {
        let diagnostic = unknown_type(name, span);
        decoder.report(diagnostic);
        return unresolved(url.to_owned(), Some(span));
    };
    let typed_struct_name = TYPED_STRUCTS.into_iter().find(|typed| *typed == name);
    // In text protobuf the Struct is spelt out field by field; it stays what it is.
    if let (None, Some(wrapper), true) = (wrapper, typed_struct_name, decoder.format != Format::Text) {
        return typed_struct(decoder, node, pairs, wrapper);
    }
    let message = if wrapper.is_none() && decoder.format != Format::Text && has_own_json_form(name) {
        match pairs.iter().find(|pair| pair.key == "value") {
            Some(pair) => decoder.within("value", |decoder| decoder.message(&pair.value, &descriptor)),
            None => Some(Message::new(descriptor, Some(node.span))),
        }
    } else {
        Some(decoder.fields(node.span, pairs, &descriptor))
    };
    Value::Any(Box::new(Any { type_url: url.to_owned(), type_url_span: Some(span), message, wrapper }))
}

/// Reads a TypedStruct as what it is.
fn typed(decoder: &mut Decoder<'_>, node: &Node, pairs: &[Pair], url: &str, span: Span) -> Value {
    let Some(descriptor) = decoder.pool.get_message_by_name(type_name(url)) else {
        return unresolved(url.to_owned(), Some(span));
    };
    let message = Some(decoder.fields(node.span, pairs, &descriptor));
    Value::Any(Box::new(Any { type_url: url.to_owned(), type_url_span: Some(span), message, wrapper: None }))
}

/// Reads `value` as the message that `type_url` names: the Struct between is a detour for those who lack the type.
fn typed_struct(decoder: &mut Decoder<'_>, node: &Node, pairs: &[Pair], wrapper: &'static str) -> Value {
    let find = |names: &[&str]| pairs.iter().find(|pair| names.contains(&pair.key.as_str()));
    for pair in pairs.iter().filter(|pair| !matches!(pair.key.as_str(), "@type" | "type_url" | "typeUrl" | "value")) {
        let message = format!("no field `{}` in {wrapper}", pair.key);
        decoder
            .report(Diagnostic::error("unknown-field", message).at(pair.key_span).expected("one of: type_url, value"));
    }
    let Some((url, span)) = find(&["type_url", "typeUrl"]).and_then(|pair| Some((pair.value.text()?, pair.value.span)))
    else {
        let message = format!("{wrapper} needs a `type_url` that names the message in `value`");
        decoder.report(Diagnostic::error("missing-type", message).at(node.span));
        return unresolved(String::new(), None);
    };
    match find(&["value"]).map(|pair| &pair.value) {
        Some(value) => match &value.kind {
            NodeKind::Map(inner) => resolve(decoder, value, inner, url, span, Some(wrapper)),
            NodeKind::Null => resolve(decoder, value, &[], url, span, Some(wrapper)),
            _ => {
                decoder.wrong_type(value, "a mapping");
                unresolved(url.to_owned(), Some(span))
            }
        },
        None => resolve(decoder, node, &[], url, span, Some(wrapper)),
    }
}

fn missing_type(decoder: &mut Decoder<'_>, node: &Node, pairs: &[Pair]) {
    let near = nearest("@type", pairs.iter().map(|pair| pair.key.as_str()));
    let slip = pairs.iter().find(|pair| Some(pair.key.as_str()) == near);
    let diagnostic = Diagnostic::error("missing-type", "no `@type`: the type of this configuration is not known")
        .expected(format!("`\"@type\": {TYPE_URL_PREFIX}…` beside the fields"));
    let diagnostic = match slip {
        Some(pair) => diagnostic.at(pair.key_span).fix(pair.key_span, "\"@type\"", "write `\"@type\"`"),
        None => diagnostic.at(node.span),
    };
    decoder.report(diagnostic);
}

fn unknown_type(name: &str, span: Span) -> Diagnostic {
    if let Some(new) = v2::type_in_v3(name) {
        return Diagnostic::error("v2-type", format!("`{name}` is a type of the v2 API, which Envoy removed"))
            .at(span)
            .expected(format!("`{TYPE_URL_PREFIX}{new}`"))
            .help("run `postrider migrate` to rewrite the file as v3");
    }
    if known::is_contrib(name) {
        let text = format!("`{name}` is a known Envoy extension, not supported by Postrider {VERSION}");
        return Diagnostic::error("unsupported-extension", text).at(span);
    }
    let suggestion = names::extension(name).map(|e| e.type_name).or_else(|| nearest(name, schema::type_names()));
    let diagnostic = Diagnostic::error("unknown-type", format!("no message type `{name}` in Envoy's API")).at(span);
    diagnostic.suggest(suggestion)
}

fn unresolved(type_url: String, type_url_span: Option<Span>) -> Value {
    Value::Any(Box::new(Any { type_url, type_url_span, message: None, wrapper: None }))
}
