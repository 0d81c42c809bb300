//! How the names of fields are written over HTTP/1, where that is not in lower case.
//!
//! Names that were received go on with their message, whoever gets it; otherwise the connection that it leaves by says how
//! they look. As in Envoy.

use postrider_http::{ReceivedNames, ResponseHead, capitalize_names, restore_names};
use postrider_model::NameForm;

use super::exchange::Exchange;
use crate::chain::Http;

/// The names that both messages came with, where they are to leave with them.
#[derive(Default)]
pub(super) struct Names {
    request: ReceivedNames,
    /// What is added to the request is in proper case.
    others_proper: bool,
    response: ReceivedNames,
}

/// An answer goes on with the names of its received `head`, and its reason phrase may, too.
#[cold]
#[inline(never)]
pub(super) fn keep_response(names: &mut Option<Box<Names>>, response: &mut ResponseHead, head: &[u8], form: NameForm) {
    names.get_or_insert_default().response.take(head);
    let reason = response.received_reason().to_vec();
    if matches!(form, NameForm::AsReceived { reason: true, .. }) && !reason.is_empty() {
        // It was received, so it can be sent.
        let _ = response.set_reason(&reason);
    }
}

/// What is added on the way is in proper case.
fn others_proper(form: NameForm) -> bool {
    matches!(form, NameForm::AsReceived { others_proper: true, .. })
}

impl Exchange {
    /// The request goes on with the names of its received `head`.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_request_names(&mut self, head: &[u8], form: NameForm) {
        if !matches!(form, NameForm::AsReceived { .. }) {
            return;
        }
        let names = self.names.get_or_insert_default();
        names.request.take(head);
        names.others_proper = others_proper(form);
    }

    /// Gives the request's head, which begins at `start` of what is sent to the upstream, the form that its names have.
    #[cold]
    #[inline(never)]
    pub(super) fn form_request_names(&mut self, start: usize, form: NameForm) {
        let Some(head) = self.up.bytes.get_mut(start..) else { return };
        match &self.names {
            Some(names) if !names.request.is_empty() => restore_names(head, &names.request, names.others_proper),
            _ if form == NameForm::ProperCase => capitalize_names(head),
            _ => {}
        }
    }

    /// The same for an upstream's answer.
    #[cold]
    #[inline(never)]
    pub(super) fn form_response_names(&mut self, start: usize, http: &Http) {
        let of_upstream = self.cluster.as_ref().map_or(NameForm::LowerCase, |cluster| cluster.names);
        let Some(head) = self.down.bytes.get_mut(start..) else { return };
        match &self.names {
            Some(names) if !names.response.is_empty() => {
                restore_names(head, &names.response, others_proper(of_upstream));
            }
            _ if http.model.http1.names == NameForm::ProperCase => capitalize_names(head),
            _ => {}
        }
    }
}
