//! The span of a stream, and its children: a module holds a pointer to one. The stream's own is there until the stream is over,
//! and a child until the module ends it.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt::Write;
use std::rc::Rc;

use postrider_filter_api::{Host, OpenSpan};

use super::{Symbol, put};
use crate::abi::{Buffer, Header, items};
use crate::instance::Instance;

/// A span as a module holds it.
pub(crate) struct Lent {
    span: Held,
    /// What it was told last.
    text: RefCell<String>,
}

enum Held {
    OfStream(Rc<OpenSpan>),
    /// With the clock that tells when it is over.
    Child(OpenSpan, Rc<dyn Host>),
}

impl Lent {
    fn new(span: Held) -> Box<Lent> {
        Box::new(Lent { span, text: RefCell::default() })
    }

    fn span(&self) -> &OpenSpan {
        match &self.span {
            Held::OfStream(span) => span,
            Held::Child(span, _) => span,
        }
    }

    fn tag(&self, name: &[u8], value: &[u8]) {
        self.span().tags.borrow_mut().push((text(name), text(value)));
    }

    /// An identifier as digits, which lie here until another one is asked for.
    fn digits(&self, bytes: &[u8]) -> Buffer {
        let mut text = self.text.borrow_mut();
        text.clear();
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Buffer::of(text.as_bytes())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

about! {
    /// Those about spans.
    OF_SPANS: Lent;

    envoy_dynamic_module_callback_http_span_set_tag(name: Buffer, value: Buffer) -> ()
        = |lent, name, value| lent.tag(name.bytes(), value.bytes());
    envoy_dynamic_module_callback_http_span_set_tag_batch(tags: *const Header, count: usize) -> ()
        = |lent, tags, count| for tag in items(tags, count) {
            let (name, value) = tag.parts();
            lent.tag(name, value);
        };
    envoy_dynamic_module_callback_http_span_set_operation(name: Buffer) -> ()
        = |lent, name| {
            lent.span().name.replace(text(name.bytes()));
        };
    envoy_dynamic_module_callback_http_span_set_sampled(told: bool) -> ()
        = |lent, told| lent.span().is_told.set(told);
    envoy_dynamic_module_callback_http_span_disable_local_decision() -> ()
        = |lent| lent.span().is_settled.set(true);
    envoy_dynamic_module_callback_http_span_get_trace_id(out: *mut Buffer) -> bool
        = |lent, out| {
            put(out, lent.digits(&lent.span().ids.trace));
            true
        };
    envoy_dynamic_module_callback_http_span_get_span_id(out: *mut Buffer) -> bool
        = |lent, out| {
            put(out, lent.digits(&lent.span().ids.span));
            true
        };
    // OpenTelemetry's spans carry none in Envoy either, and nobody else is told of spans here.
    envoy_dynamic_module_callback_http_span_get_baggage(_name: Buffer, out: *mut Buffer) -> bool
        = |_, _, out| {
            put(out, Buffer::NOTHING);
            false
        };
    envoy_dynamic_module_callback_http_span_set_baggage(_name: Buffer, _value: Buffer) -> () = |_, _, _| ();
}

about! {
    /// Those of streams that are about their spans.
    OF_SPANNED: Instance;

    envoy_dynamic_module_callback_http_get_active_span() -> Handle
        = |instance| Handle(of_stream(instance).unwrap_or(std::ptr::null_mut()));
    envoy_dynamic_module_callback_http_span_log(span: *mut c_void, event: Buffer) -> ()
        = |instance, span, event| if let Some(lent) = span.cast::<Lent>().as_ref() {
            let now = instance.place.host.wall();
            lent.span().events.borrow_mut().push((now, text(event.bytes())));
        };
    envoy_dynamic_module_callback_http_span_spawn_child(span: *mut c_void, name: Buffer) -> Handle
        = |instance, span, name| {
            let Some(lent) = span.cast::<Lent>().as_ref() else { return Handle::default() };
            let host = &instance.place.host;
            // Not zero, which would be no identifier.
            let id = host.random().max(1).to_be_bytes();
            let child = lent.span().child(id, text(name.bytes()), host.wall());
            Handle(Box::into_raw(Lent::new(Held::Child(child, host.clone()))).cast())
        };
}

/// A pointer that a function answers; null by default.
#[repr(transparent)]
struct Handle(*mut c_void);

impl Default for Handle {
    fn default() -> Handle {
        Handle(std::ptr::null_mut())
    }
}

/// The stream's own, which the instance keeps for the module.
fn of_stream(instance: &Instance) -> Option<*mut c_void> {
    let span = instance.info()?.span()?;
    let mut rare = instance.rare.borrow_mut();
    let lent = rare.get_or_insert_default().span.get_or_insert_with(|| Lent::new(Held::OfStream(span)));
    Some(std::ptr::from_ref(&**lent).cast_mut().cast())
}

/// Ends a child, once.
pub(super) unsafe fn finish(child: *mut c_void) {
    if child.is_null() {
        return;
    }
    // SAFETY: the caller is a module that follows the interface: it was made for the module, and not ended before.
    let lent = unsafe { Box::from_raw(child.cast::<Lent>()) };
    if let Held::Child(span, host) = lent.span {
        span.end(host.wall());
    }
}
