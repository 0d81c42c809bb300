//! What is logged at all, and which local replies are changed: conditions on a stream, compiled.

use postrider_filter_api::{TraceReason, cel};
use postrider_http::HeaderId;
use postrider_http::grpc::{Code, Status};
use postrider_model::{Expression, LogCondition, MetadataMatch};
use postrider_router::HeaderTest;

use crate::format::Context;

/// A [`LogCondition`], ready to be asked.
pub(crate) enum Condition {
    Header(HeaderTest),
    Metadata {
        matches: MetadataMatch,
        if_absent: bool,
    },
    Expression(Box<Expression>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// Everything that needs no compilation.
    Plain(LogCondition),
}

impl Condition {
    pub(crate) fn compile(model: &LogCondition) -> Condition {
        let each = |all: &[LogCondition]| all.iter().map(Condition::compile).collect();
        match model {
            // Plugins are refused here when a document is read.
            LogCondition::Header(matches) => Condition::Header(HeaderTest::compile(matches, &|_, _| None)),
            LogCondition::Metadata { matches, if_absent } => {
                Condition::Metadata { matches: matches.clone(), if_absent: *if_absent }
            }
            LogCondition::Expression(expression) => Condition::Expression(expression.clone()),
            LogCondition::All(all) => Condition::All(each(all)),
            LogCondition::Any(all) => Condition::Any(each(all)),
            other => Condition::Plain(other.clone()),
        }
    }

    /// Whether it holds for the stream as it is now.
    #[cold]
    pub(crate) fn holds(&self, context: &Context<'_>) -> bool {
        match self {
            Condition::Header(test) => test.holds(context.request),
            Condition::Metadata { matches, if_absent } => {
                let metadata = &context.info.metadata;
                if matches.finds(metadata) { matches.matches(metadata) } else { *if_absent }
            }
            Condition::Expression(expression) => cel::is_true(expression, &context.facts()),
            Condition::All(all) => all.iter().all(|each| each.holds(context)),
            Condition::Any(all) => all.iter().any(|each| each.holds(context)),
            Condition::Plain(plain) => holds(plain, context),
        }
    }
}

fn holds(condition: &LogCondition, context: &Context<'_>) -> bool {
    match condition {
        LogCondition::GrpcStatus { codes, exclude } => {
            let listed = match context.answered_grpc() {
                Some(Status::Code(code)) => codes.contains(&code.number()),
                // What is no code is on no list.
                Some(Status::Other(_) | Status::Invalid) => false,
                None => codes.contains(&Code::Unknown.number()),
            };
            listed != *exclude
        }
        LogCondition::Flags(wanted) => {
            let mut raised = context.info.flags.names(context.http).map(|(short, _)| short);
            raised.any(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        }
        LogCondition::Status(comparison) => comparison.holds(u64::from(context.info.status)),
        LogCondition::Duration(comparison) => {
            let whole = context.info.ended.map(|ended| ended.millis_since(context.info.started));
            // While it goes on: until now.
            let so_far = || context.now.duration_since(context.info.start).unwrap_or_default().as_millis() as u64;
            comparison.holds(whole.unwrap_or_else(so_far))
        }
        LogCondition::Share { parts, of, independent } => {
            ticket(context, *independent) % u64::from((*of).max(1)) < u64::from(*parts)
        }
        LogCondition::NotHealthCheck => !context.info.is_health_check,
        // As in Envoy, one that was drawn or whose client wants it does not count.
        LogCondition::Traceable => context.info.trace().is_some_and(|trace| trace.reason == TraceReason::Forced),
        LogCondition::Kinds { kinds, exclude } => kinds.contains(&context.kind().name()) != *exclude,
        LogCondition::Header(_)
        | LogCondition::Metadata { .. }
        | LogCondition::Expression(_)
        | LogCondition::All(_)
        | LogCondition::Any(_) => false,
    }
}

/// A number that is uniform over requests, and the same for one of them wherever its id is known.
fn ticket(context: &Context<'_>, independent: bool) -> u64 {
    let id = context.request.fields.get(HeaderId::XRequestId).filter(|_| !independent);
    let id = id.and_then(|id| std::str::from_utf8(id.get(..8)?).ok());
    if let Some(number) = id.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        return number;
    }
    // Every stream has an id of its own; this spreads it over all bits (splitmix64).
    let start = context.info.start.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let mut mixed = context.info.stream_id.wrapping_add(u64::from(start) << 32).wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
