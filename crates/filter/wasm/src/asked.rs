//! What the pipeline is asked for: the hooks whose functions are there and do something.

use postrider_filter_api::Hooks;

use crate::seat::{Machine, Seat};
use crate::side::Side;

/// What the pipeline is asked for.
pub(crate) fn hooks_of(seat: &Seat, machine: Option<&Machine>) -> Hooks {
    let Some(machine) = machine else {
        // Whether it comes back is for each request to see.
        return Hooks {
            request_headers: true,
            request_body: true,
            request_trailers: true,
            response_headers: true,
            response_body: true,
            response_trailers: true,
            complete: true,
            declares_length: true,
            ..Hooks::default()
        };
    };
    let functions = &machine.vm.functions;
    if !functions.sees_streams() {
        // It counts all the same whether its machine works.
        let fails = !matches!(seat.plugin.failure, crate::program::Failure::Open { .. });
        return Hooks { request_headers: fails, ..Hooks::default() };
    }
    let stops = seat.plugin.stops_heads_alone;
    Hooks {
        request_headers: true,
        request_body: functions.on_request_body.is_some() && seat.wants(Side::Request, Phase::Body)
            || stops && functions.on_request_headers.is_some(),
        request_trailers: functions.on_request_trailers.is_some() && seat.wants(Side::Request, Phase::Trailers)
            || functions.on_request_body.is_some()
            || stops,
        response_headers: functions.on_response_headers.is_some() || functions.on_response_body.is_some(),
        response_body: functions.on_response_body.is_some() && seat.wants(Side::Response, Phase::Body)
            || stops && functions.on_response_headers.is_some(),
        response_trailers: functions.on_response_trailers.is_some() && seat.wants(Side::Response, Phase::Trailers)
            || functions.on_response_body.is_some()
            || stops,
        complete: true,
        declares_length: true,
        ..Hooks::default()
    }
}

/// The hooks that a manifest may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Head,
    Body,
    Trailers,
}

impl Seat {
    /// Whether a hook is to be called: a manifest may name those that are.
    #[inline]
    pub(crate) fn wants(&self, side: Side, phase: Phase) -> bool {
        let phases = &self.plugin.phases;
        phases.is_empty() || {
            let name = match (side, phase) {
                (Side::Request, Phase::Head) => "request_headers",
                (Side::Request, Phase::Body) => "request_body",
                (Side::Request, Phase::Trailers) => "request_trailers",
                (Side::Response, Phase::Head) => "response_headers",
                (Side::Response, Phase::Body) => "response_body",
                (Side::Response, Phase::Trailers) => "response_trailers",
            };
            phases.iter().any(|known| known == name)
        }
    }
}
