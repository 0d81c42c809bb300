//! What the lowering of one bootstrap carries along: findings, recorded differences, names to check at the end.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_config_core::{Diagnostic, Diagnostics, Severity, Sources, Span};
use postrider_model::{DnsResolver, Format, Origin, Regex, Tracer};

use super::FilterKinds;
use super::bind::Binding;
use super::formatters::Formatters;
use super::plugin_rules::PluginRules;
use super::rider::RiderNames;
use super::secrets::Secrets;
use crate::extensions;
use crate::known::VERSION;
use crate::load::below;
use crate::reader::{AnyReader, Element, Reader};
use crate::runtime::Runtime;

/// A place where an absent field means a safer value than in Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Anchor of `docs/envoy-differences.md`.
    pub id: &'static str,
    /// Path of the message that lacks the field.
    pub path: String,
    pub span: Option<Span>,
    /// What happens here, in one line.
    pub here: &'static str,
    /// The line of YAML, in that message, that brings Envoy's default back.
    pub restore: &'static str,
}

/// A cluster name that something refers to.
pub(super) struct ClusterUse {
    pub name: String,
    pub span: Option<Span>,
    pub path: String,
    /// An unknown name is an error; otherwise a warning.
    pub required: bool,
}

pub(super) struct Lowering<'c> {
    pub kinds: &'c dyn FilterKinds,
    pub diagnostics: Diagnostics,
    pub differences: Vec<Difference>,
    pub cluster_uses: Vec<ClusterUse>,
    /// Those of them that are called by gRPC.
    pub grpc_uses: Vec<ClusterUse>,
    /// For keys that no field names.
    pub runtime: &'c Runtime,
    /// Names of the filters that clusters have, which are read before what leads to them.
    pub cluster_filters: Vec<String>,
    /// It is said which cluster lists the proxies of this one's kind.
    pub has_local_cluster: bool,
    /// From where connections are made to clusters that say nothing of it.
    pub bind: Option<Binding>,
    /// Who resolves names for clusters that say nothing of it.
    pub resolver: Arc<DnsResolver>,
    pub secrets: Secrets<'c>,
    /// Rules for scripts of Envoy's own types.
    pub plugin_rules: PluginRules<'c>,
    pub rider_names: RiderNames,
    /// Who is told of the spans of connection managers that say nothing of it.
    pub tracer: Option<Arc<Tracer>>,
    /// The listener being read takes requests that leave for others.
    pub is_outbound: bool,
    /// What commands in formats stand for that are being read.
    pub formatters: Formatters,
    /// Files whose content became part of the configuration.
    pub files: Vec<PathBuf>,
    broken: Vec<String>,
    sources: &'c Sources,
}

impl<'c> Lowering<'c> {
    pub fn new(
        kinds: &'c dyn FilterKinds,
        earlier: &Diagnostics,
        sources: &'c Sources,
        runtime: &'c Runtime,
        secrets: Secrets<'c>,
    ) -> Lowering<'c> {
        let broken = earlier.iter().filter(|d| d.severity == Severity::Error).map(|d| d.path.clone()).collect();
        Lowering {
            kinds,
            diagnostics: Diagnostics::new(),
            differences: Vec::new(),
            cluster_uses: Vec::new(),
            grpc_uses: Vec::new(),
            runtime,
            cluster_filters: Vec::new(),
            has_local_cluster: false,
            bind: None,
            resolver: Arc::default(),
            secrets,
            plugin_rules: PluginRules::default(),
            rider_names: RiderNames::default(),
            tracer: None,
            is_outbound: false,
            formatters: Formatters::default(),
            files: Vec::new(),
            broken,
            sources,
        }
    }

    /// Whether the loader refused something at or below `path`: then what seems to be missing there may only be
    /// unreadable.
    pub fn is_broken(&self, path: &str) -> bool {
        self.broken
            .iter()
            .any(|broken| broken.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
    }

    /// Whether the loader refused the value at `path` itself.
    pub fn is_refused(&self, path: &str) -> bool {
        self.broken.iter().any(|broken| broken == path)
    }

    /// Whether the loader refused the list at `path`, an element of it as a whole, or an element's name.
    pub fn is_broken_list(&self, path: &str) -> bool {
        self.broken.iter().filter_map(|broken| broken.strip_prefix(path)).any(|rest| {
            let index = rest.strip_prefix('[').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
            rest.is_empty() || matches!(index, Some("]" | "].name"))
        })
    }

    /// Whether the loader refused anything in a file of secrets.
    pub fn is_broken_file(&self, file: &str) -> bool {
        self.broken.iter().any(|broken| broken.starts_with(&below(file)))
    }

    /// An error at a field's value.
    pub fn error(&mut self, at: &Reader<'_>, field: &str, code: &'static str, message: impl Into<String>) {
        self.diagnostics.push(at.diagnostic_at(field, Severity::Error, code, message));
    }

    /// A warning at a field's value.
    pub fn warn(&mut self, at: &Reader<'_>, field: &str, code: &'static str, message: impl Into<String>) {
        self.diagnostics.push(at.diagnostic_at(field, Severity::Warning, code, message));
    }

    /// An error at an element of a repeated field.
    pub fn element_error<T>(
        &mut self,
        at: &Reader<'_>,
        field: &str,
        element: &Element<T>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        self.push(element_diagnostic(at, field, element, code, message));
    }

    /// An error about something that a message lacks; silent when the loader refused a part of that message.
    pub fn missing(&mut self, at: &Reader<'_>, message: impl Into<String>, expected: &str) {
        if !self.is_broken(at.path()) {
            self.diagnostics.push(at.diagnostic(Severity::Error, "missing-field", message).expected(expected));
        }
    }

    /// An error with a ready diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Refuses a set field by name.
    pub fn refuse(&mut self, at: &Reader<'_>, field: &str, what: &str) {
        let text = format!("{what}: known to Envoy, not supported by Postrider {VERSION}");
        // Marks the field as refused without a second finding about it.
        at.refuse(field, &text, &mut Diagnostics::new());
        self.push(Diagnostic::error("unsupported-field", text).at(at.key_span_of(field)).path(at.path_of(field)));
    }

    /// Refuses an enum's or another field's particular value, which was read already.
    pub fn refuse_value(&mut self, at: &Reader<'_>, field: &str, what: &str) {
        self.error(
            at,
            field,
            "unsupported-value",
            format!("{what}: known to Envoy, not supported by Postrider {VERSION}"),
        );
    }

    /// Refuses an extension that Envoy knows; `parent` holds it in `field`.
    pub fn refuse_extension(&mut self, parent: &Reader<'_>, field: &str, any: &AnyReader<'_>) {
        if any.reader.is_none() {
            return; // The loader has refused a type that nobody knows.
        }
        let diagnostic = crate::known::unsupported_extension(parent, field, any);
        // Marks the field as refused without a second finding about it.
        parent.refuse(field, &diagnostic.message, &mut Diagnostics::new());
        self.push(diagnostic);
    }

    /// A field without effect here that an operator should know about.
    pub fn no_effect(&mut self, at: &Reader<'_>, field: &str, why: &str) {
        if at.has(field) {
            at.ignore(field, why);
            let text = format!("`{field}` has no effect: {why}");
            self.push(Diagnostic::warning("no-effect", text).at(at.key_span_of(field)).path(at.path_of(field)));
        }
    }

    /// Records that an absent field means something safer than in Envoy.
    pub fn differs(&mut self, at: &Reader<'_>, id: &'static str, here: &'static str, restore: &'static str) {
        self.differences.push(Difference { id, path: at.path().to_owned(), span: at.span(), here, restore });
    }

    /// A text with `%COMMANDS%`; the error points at the command.
    pub fn format(&mut self, at: &Reader<'_>, field: &str, text: &str) -> Format {
        self.format_at(text, at.span_of(field), &at.path_of(field))
    }

    /// The same for a text whose place is known otherwise.
    pub fn format_at(&mut self, text: &str, span: Option<Span>, path: &str) -> Format {
        match Format::parse_with(text, &mut self.formatters) {
            Ok(format) => format,
            Err(error) => {
                let at = span.map(|span| self.inside(span, text, error.offset));
                let suggestion = error.suggestion.map(|name| format!("%{name}%"));
                let diagnostic = match text.get(error.offset..).and_then(extensions::known_command) {
                    Some(name) => {
                        let text = format!("%{name}%: known to Envoy, not supported by Postrider {VERSION}");
                        Diagnostic::error("unsupported-value", text)
                    }
                    None => Diagnostic::error("invalid-format", error.message).suggest(suggestion),
                };
                self.push(diagnostic.at(at).path(path));
                Format::default()
            }
        }
    }

    /// A regular expression (`type.matcher.v3.RegexMatcher`).
    pub fn regex(&mut self, matcher: &Reader<'_>) -> Option<Regex> {
        matcher.ignore("google_re2", "there is one engine, and it runs in linear time");
        let pattern = matcher.str("regex");
        match Regex::new(pattern) {
            Ok(regex) => Some(regex),
            Err(error) => {
                let reason = error.lines().last().unwrap_or("").trim().trim_start_matches("error: ").to_owned();
                self.error(
                    matcher,
                    "regex",
                    "invalid-regex",
                    format!("`{pattern}` is no regular expression: {reason}"),
                );
                None
            }
        }
    }

    /// The place in a field's text, `offset` bytes into it.
    pub fn place_inside(&self, at: &Reader<'_>, field: &str, text: &str, offset: usize) -> Option<Span> {
        at.span_of(field).map(|span| self.inside(span, text, offset))
    }

    /// The part of a scalar's span that starts `offset` bytes into its value, when the text stands there unescaped.
    fn inside(&self, span: Span, value: &str, offset: usize) -> Span {
        let Some(file) = self.sources.file(span.file) else { return span };
        // A form other than Envoy's may have added the line break.
        match file.slice(span).find(value.trim_end_matches('\n')) {
            Some(start) => Span::new(span.file, span.start as usize + start + offset, span.end as usize),
            None => span,
        }
    }
}

/// An error at an element of a repeated field, not reported yet.
pub(super) fn element_diagnostic<T>(
    at: &Reader<'_>,
    field: &str,
    element: &Element<T>,
    code: &'static str,
    message: impl Into<String>,
) -> Diagnostic {
    let path = format!("{}[{}]", at.path_of(field), element.index);
    Diagnostic::error(code, message).at(element.span.or_else(|| at.span_of(field))).path(path)
}

/// Where a message stands, for the model.
pub(super) fn origin(at: &Reader<'_>) -> Origin {
    Origin(at.path().to_owned())
}

/// A written `0s` turns a timeout off; absence means `default`.
pub(super) fn timeout(
    at: &Reader<'_>,
    field: &str,
    default: Option<std::time::Duration>,
) -> Option<std::time::Duration> {
    match at.duration(field) {
        None => default,
        Some(value) if value.is_zero() => None,
        Some(value) => Some(value),
    }
}

/// Whether the input writes a field, be it with its default value.
pub(super) fn written(at: &Reader<'_>, field: &str) -> bool {
    at.has(field) || at.as_message().field(field).is_some()
}
