//! What filters note about a stream for others.

use std::ffi::c_int;

use crate::abi::{self, Buffer};
use crate::stream::{MetadataSource, Stream};

/// Metadata and filter state.
impl Stream<'_> {
    /// Notes a text as dynamic metadata.
    pub fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        // SAFETY: the handle is that of a stream in a hook; the texts are there during the call. So below.
        unsafe { abi::set_metadata_string(self.handle(), namespace, key, Buffer::of(value.as_bytes())) };
    }

    /// Notes a number.
    pub fn set_metadata_number(&mut self, namespace: &str, key: &str, value: f64) {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        // SAFETY: as above.
        unsafe { abi::set_metadata_number(self.handle(), namespace, key, value) };
    }

    /// Notes whether something is so.
    pub fn set_metadata_truth(&mut self, namespace: &str, key: &str, value: bool) {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        // SAFETY: as above.
        unsafe { abi::set_metadata_bool(self.handle(), namespace, key, value) };
    }

    /// A text of the metadata; `None` where there is none, or something else.
    pub fn metadata_text(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        let mut value = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_metadata_string(self.handle(), source as c_int, namespace, key, &raw mut value) };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        found.then(|| unsafe { value.bytes() })
    }

    /// A number of the metadata.
    pub fn metadata_number(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<f64> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        let mut value = 0.0;
        // SAFETY: as above.
        unsafe { abi::get_metadata_number(self.handle(), source as c_int, namespace, key, &raw mut value) }
            .then_some(value)
    }

    /// Whether something is so, by the metadata.
    pub fn metadata_truth(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<bool> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        let mut value = false;
        // SAFETY: as above.
        unsafe { abi::get_metadata_bool(self.handle(), source as c_int, namespace, key, &raw mut value) }
            .then_some(value)
    }

    /// Notes several values of a namespace at once, over what is there: a `google.protobuf.Struct` as its bytes. What is none
    /// changes nothing. Envoy has it from 1.40 on.
    pub fn set_metadata_struct(&mut self, namespace: &str, fields: &[u8]) {
        // SAFETY: as above.
        unsafe { abi::set_metadata_struct(self.handle(), Buffer::of(namespace.as_bytes()), Buffer::of(fields)) };
    }

    /// Notes a message under a namespace, beside its plain values: a `google.protobuf.Any` as its bytes. What is none changes
    /// nothing. Envoy has it from 1.40 on.
    pub fn set_metadata_message(&mut self, namespace: &str, any: &[u8]) {
        // SAFETY: as above.
        unsafe { abi::set_metadata_message(self.handle(), Buffer::of(namespace.as_bytes()), Buffer::of(any)) };
    }

    /// The type and the bytes of a namespace's message. Envoy has it from 1.40 on.
    pub fn metadata_message(&self, source: MetadataSource, namespace: &str) -> Option<(&[u8], &[u8])> {
        let namespace = Buffer::of(namespace.as_bytes());
        let (mut kind, mut value) = (Buffer::NOTHING, Buffer::NOTHING);
        // SAFETY: as above.
        let found = unsafe {
            abi::get_metadata_message(self.handle(), source as c_int, namespace, &raw mut kind, &raw mut value)
        };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        found.then(|| unsafe { (kind.bytes(), value.bytes()) })
    }

    /// Flags the stream, for `%CUSTOM_FLAGS%` of access logs: a short word without commas.
    pub fn add_flag(&mut self, flag: &str) {
        // SAFETY: as above.
        unsafe { abi::add_custom_flag(self.handle(), Buffer::of(flag.as_bytes())) };
    }

    /// Sets an entry of the filter state to what Envoy's factory of the key's name makes of the bytes, such as `envoy.bool`.
    /// `false` where there is no such factory, or it makes nothing of them.
    pub fn set_typed_filter_state(&mut self, key: &str, value: impl AsRef<[u8]>) -> bool {
        // SAFETY: as above.
        unsafe { abi::set_typed_filter_state(self.handle(), Buffer::of(key.as_bytes()), Buffer::of(value.as_ref())) }
    }

    /// An entry of the filter state of any type, as a text.
    pub fn typed_filter_state(&self, key: &str) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_typed_filter_state(self.handle(), Buffer::of(key.as_bytes()), &raw mut value) };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        found.then(|| unsafe { value.bytes() })
    }

    /// Sets an entry of the filter state. `false` where it cannot be changed.
    pub fn set_filter_state(&mut self, key: &str, value: impl AsRef<[u8]>) -> bool {
        // SAFETY: as above.
        unsafe { abi::set_filter_state(self.handle(), Buffer::of(key.as_bytes()), Buffer::of(value.as_ref())) }
    }

    /// An entry of the filter state.
    pub fn filter_state(&self, key: &str) -> Option<&[u8]> {
        let mut value = Buffer::NOTHING;
        // SAFETY: as above.
        let found = unsafe { abi::get_filter_state(self.handle(), Buffer::of(key.as_bytes()), &raw mut value) };
        // SAFETY: the proxy's bytes are there until the hook ends or the stream is changed.
        found.then(|| unsafe { value.bytes() })
    }
}
