//! `rate_limits` of virtual hosts and routes (`envoy.config.route.v3.RateLimit`).

use postrider_config_core::{Diagnostic, Severity};
use postrider_model::{RateLimit, Reading, RuleOf};

use super::context::Lowering;
use super::locate::locate;
use super::value;
use crate::reader::Reader;

const FIELD: &str = "rate_limits";

pub(super) fn rate_limits(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Vec<RateLimit> {
    let mut all = Vec::new();
    for (index, rule) in at.list(FIELD).iter().enumerate() {
        // One reading serves these and the rules that filters have of their own.
        rule.read_whole();
        if rule.has("hits_addend") {
            let text = "it has no effect here: rules of a filter weigh requests, those of routes do not";
            cx.warn(rule, "hits_addend", "no-effect", text);
        }
        match Reading::all(&value::value(rule.as_message()), |rule| RateLimit::read(rule, RuleOf::Route)) {
            Ok(rule) => all.push(rule),
            Err(errors) => {
                for error in errors {
                    let span = locate(rule.as_message(), &error.path).or(rule.span());
                    let path = format!("{}[{index}].{}", at.path_of(FIELD), error.path);
                    let diagnostic = Diagnostic::new(Severity::Error, "invalid-rate-limit", error.message);
                    cx.push(diagnostic.at(span).path(path.trim_end_matches('.')));
                }
            }
        }
    }
    all
}
