//! What comes for a module from outside: answers to its calls. It is told about them in its root context, with the stream
//! that made the call at hand when that waits.

use postrider_filter_api::{Answer, CallFailure, GrpcStatus};
use postrider_http::{Fields, HeaderId, ResponseHead};

use crate::data::At;
use crate::vm::{Fault, Vm};

/// Something to tell a root context.
pub(crate) struct Delivery {
    pub(crate) root: u32,
    pub(crate) token: u32,
    /// The context that made the call.
    pub(crate) stream: u32,
    pub(crate) what: What,
}

pub(crate) enum What {
    Http(Box<Result<Answer, CallFailure>>),
    /// The outcome of a call with one message each way.
    Grpc(Result<Vec<u8>, GrpcStatus>),
    /// Something happened to a conversation.
    Conversation,
}

impl Delivery {
    /// Of a conversation, one look takes in all that came.
    fn says_as_much_as(&self, other: &Delivery) -> bool {
        self.token == other.token && matches!((&self.what, &other.what), (What::Conversation, What::Conversation))
    }
}

/// What modules are told in the place of an answer that did not come: the proxy's own.
fn in_its_place(failure: CallFailure) -> Answer {
    let body = failure.text();
    let mut head = ResponseHead::new();
    head.set_status(failure.status());
    let _ = head.fields.append(HeaderId::ContentLength, body.len().to_string().as_bytes());
    let _ = head.fields.append(HeaderId::ContentType, b"text/plain");
    Answer { head, body: body.as_bytes().to_vec(), trailers: Fields::new() }
}

impl Vm {
    /// Takes what came: hands it to the stream that waits for it, or to the module at once.
    pub(crate) fn deliver(&self, delivery: Delivery) {
        let waits = self.with(|data| {
            if let Some(root) = data.contexts.root(delivery.root)
                && let Some(at) = root.calls.iter().position(|call| call.token == delivery.token)
            {
                // It came: there is nothing to abandon.
                root.calls.swap_remove(at).handle.detach();
            }
            let stream = data.contexts.stream(delivery.stream)?;
            [&stream.request, &stream.response].into_iter().find_map(|half| half.bell.clone())
        });
        match waits {
            Some(Some(bell)) => {
                let put = self.with(|data| {
                    if let Some(stream) = data.contexts.stream(delivery.stream)
                        && !stream.inbox.iter().any(|waiting| waiting.says_as_much_as(&delivery))
                    {
                        stream.inbox.push_back(delivery);
                    }
                });
                if put.is_some() {
                    bell.resume();
                }
            }
            Some(None) => {
                self.aside(delivery.root, || self.tell(delivery, At::Nowhere));
            }
            None => {}
        }
    }

    /// Calls the module's function for it.
    pub(crate) fn tell(&self, delivery: Delivery, at: At<'_, '_>) -> Result<(), Fault> {
        let Delivery { root, token, stream, what } = delivery;
        match what {
            What::Http(outcome) => {
                let Some(function) = &self.functions.on_http_call_response else { return Ok(()) };
                let answer = (*outcome).unwrap_or_else(in_its_place);
                let (headers, body) = (1 + answer.head.fields.len() as u32, answer.body.len() as u32);
                let trailers = answer.trailers.len() as u32;
                self.with(|data| {
                    data.received.head = Some(answer.head);
                    data.received.body = answer.body;
                    data.received.trailers = answer.trailers;
                });
                let told = self.enter_for(root, stream, at, function, (root, token, headers, body, trailers));
                self.with(|data| data.received = Default::default());
                told
            }
            What::Grpc(Ok(message)) => self.tell_message(root, token, stream, message, at),
            What::Grpc(Err(status)) => self.tell_close(root, token, stream, &status, at),
            What::Conversation => self.converse(root, token, stream, at),
        }
    }

    /// What a service says in front of its messages.
    pub(crate) fn tell_initial(
        &self,
        root: u32,
        token: u32,
        stream: u32,
        head: Option<ResponseHead>,
        at: At<'_, '_>,
    ) -> Result<(), Fault> {
        let Some(function) = &self.functions.on_grpc_initial else { return Ok(()) };
        let count = head.as_ref().map_or(0, |head| 1 + head.fields.len() as u32);
        self.with(|data| data.received.initial = head);
        let told = self.enter_for(root, stream, at, function, (root, token, count));
        self.with(|data| data.received = Default::default());
        told
    }

    /// And behind them.
    pub(crate) fn tell_trailing(
        &self,
        root: u32,
        token: u32,
        stream: u32,
        trailing: Fields,
        at: At<'_, '_>,
    ) -> Result<(), Fault> {
        let Some(function) = &self.functions.on_grpc_trailing else { return Ok(()) };
        let count = trailing.len() as u32;
        self.with(|data| data.received.trailing = trailing);
        let told = self.enter_for(root, stream, at, function, (root, token, count));
        self.with(|data| data.received = Default::default());
        told
    }

    pub(crate) fn tell_message(
        &self,
        root: u32,
        token: u32,
        stream: u32,
        message: Vec<u8>,
        at: At<'_, '_>,
    ) -> Result<(), Fault> {
        let Some(function) = &self.functions.on_grpc_receive else { return Ok(()) };
        let length = message.len() as u32;
        self.with(|data| data.received.message = message);
        let told = self.enter_for(root, stream, at, function, (root, token, length));
        self.with(|data| data.received = Default::default());
        told
    }

    /// What changed of the proxy's statistics.
    pub(crate) fn tell_statistics(&self, root: u32, update: Vec<u8>) -> Result<(), Fault> {
        let Some(function) = &self.functions.on_stats_update else { return Ok(()) };
        let length = update.len() as u32;
        self.with(|data| data.received.statistics = Some(update));
        let told = self.enter(root, At::Nowhere, function, (root, length));
        self.with(|data| data.received = Default::default());
        told
    }

    pub(crate) fn tell_close(
        &self,
        root: u32,
        token: u32,
        stream: u32,
        status: &GrpcStatus,
        at: At<'_, '_>,
    ) -> Result<(), Fault> {
        let Some(function) = &self.functions.on_grpc_close else { return Ok(()) };
        self.with(|data| data.status = (status.code, status.message.clone().into_bytes()));
        let told = self.enter_for(root, stream, at, function, (root, token, status.code));
        self.with(|data| data.status.1.clear());
        told
    }
}
