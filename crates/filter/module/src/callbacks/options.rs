//! Options of sockets that modules set for connections: of a stream, either end's; of a connection, those of its upstream's.
//!
//! Connections to upstreams that were made with some options serve no others. What a module asks for is what it set.

use std::ffi::c_int;

use postrider_filter_api::StreamInfo;
use postrider_model::{NumberedOption, OptionMoment};

use super::{Symbol, give, put};
use crate::abi::Buffer;
use crate::connection::Session;
use crate::instance::Instance;

/// Which of a stream's connections.
const UPSTREAM: c_int = 0;
const DOWNSTREAM: c_int = 1;

/// An option as a module set it.
pub(crate) struct Kept {
    level: i64,
    name: i64,
    state: c_int,
    direction: c_int,
    value: Value,
}

enum Value {
    Number(i64),
    Bytes(Box<[u8]>),
}

/// The same as the interface lists it.
#[repr(C)]
struct Listed {
    level: i64,
    name: i64,
    state: c_int,
    /// 0 for a number, 1 for bytes.
    kind: c_int,
    number: i64,
    bytes: Buffer,
}

about! {
    /// Those of streams.
    OF_OPTIONS: Instance;

    envoy_dynamic_module_callback_http_set_socket_option_int(level: i64, name: i64, state: c_int, direction: c_int, value: i64) -> bool
        = |instance, level, name, state, direction, value|
            set(instance, Kept { level, name, state, direction, value: Value::Number(value) });
    envoy_dynamic_module_callback_http_set_socket_option_bytes(level: i64, name: i64, state: c_int, direction: c_int, value: Buffer) -> bool
        = |instance, level, name, state, direction, value|
            set(instance, Kept { level, name, state, direction, value: Value::Bytes(value.bytes().into()) });
    envoy_dynamic_module_callback_http_get_socket_option_int(level: i64, name: i64, state: c_int, direction: c_int, out: *mut i64) -> bool
        = |instance, level, name, state, direction, out| {
            let rare = instance.rare.borrow();
            let options = rare.as_ref().map_or(&[][..], |rare| &rare.options);
            give(out, find(options, (level, name, state, direction), Kept::number))
        };
    envoy_dynamic_module_callback_http_get_socket_option_bytes(level: i64, name: i64, state: c_int, direction: c_int, out: *mut Buffer) -> bool
        = |instance, level, name, state, direction, out| {
            let rare = instance.rare.borrow();
            let options = rare.as_ref().map_or(&[][..], |rare| &rare.options);
            give(out, find(options, (level, name, state, direction), Kept::bytes))
        };
}

about! {
    /// Those of connections.
    OF_OPTIONS_OF_CONNECTIONS: Session;

    envoy_dynamic_module_callback_network_set_socket_option_int(level: i64, name: i64, state: c_int, value: i64) -> ()
        = |session, level, name, state, value|
            set_of_connection(session, Kept { level, name, state, direction: UPSTREAM, value: Value::Number(value) });
    envoy_dynamic_module_callback_network_set_socket_option_bytes(level: i64, name: i64, state: c_int, value: Buffer) -> ()
        = |session, level, name, state, value|
            set_of_connection(session, Kept { level, name, state, direction: UPSTREAM, value: Value::Bytes(value.bytes().into()) });
    envoy_dynamic_module_callback_network_get_socket_option_int(level: i64, name: i64, state: c_int, out: *mut i64) -> bool
        = |session, level, name, state, out|
            give(out, find(&session.options.borrow(), (level, name, state, UPSTREAM), Kept::number));
    envoy_dynamic_module_callback_network_get_socket_option_bytes(level: i64, name: i64, state: c_int, out: *mut Buffer) -> bool
        = |session, level, name, state, out|
            give(out, find(&session.options.borrow(), (level, name, state, UPSTREAM), Kept::bytes));
    envoy_dynamic_module_callback_network_get_socket_options_size() -> usize = |session| session.options.borrow().len();
    envoy_dynamic_module_callback_network_get_socket_options(out: *mut Listed) -> ()
        = |session, out| if !out.is_null() {
            for (at, kept) in session.options.borrow().iter().enumerate() {
                put(out.add(at), kept.listed());
            }
        };
}

/// The value that was set first by that name and as that kind, as Envoy finds it.
fn find<T>(all: &[Kept], named: (i64, i64, c_int, c_int), value: fn(&Kept) -> Option<T>) -> Option<T> {
    let is_it = |kept: &&Kept| (kept.level, kept.name, kept.state, kept.direction) == named;
    all.iter().filter(is_it).find_map(value)
}

impl Kept {
    fn number(&self) -> Option<i64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Bytes(_) => None,
        }
    }

    /// They lie here until the stream or the connection is over.
    fn bytes(&self) -> Option<Buffer> {
        match &self.value {
            Value::Bytes(bytes) => Some(Buffer::of(bytes)),
            Value::Number(_) => None,
        }
    }

    fn listed(&self) -> Listed {
        Listed {
            level: self.level,
            name: self.name,
            state: self.state,
            kind: c_int::from(self.number().is_none()),
            number: self.number().unwrap_or_default(),
            bytes: self.bytes().unwrap_or(Buffer::NOTHING),
        }
    }

    /// As the system takes it; `None` for numbers that it cannot take.
    fn system(&self) -> Option<NumberedOption> {
        let value = match &self.value {
            Value::Number(number) => c_int::try_from(*number).ok()?.to_ne_bytes().to_vec(),
            Value::Bytes(bytes) => bytes.to_vec(),
        };
        let when = match self.state {
            1 => OptionMoment::AfterBind,
            2 => OptionMoment::WhenListening,
            _ => OptionMoment::BeforeBind,
        };
        Some(NumberedOption {
            level: self.level.try_into().ok()?,
            name: self.name.try_into().ok()?,
            value,
            when,
            ip_version: None,
        })
    }
}

fn set(instance: &Instance, kept: Kept) -> bool {
    // SAFETY: no other function of this module's runs.
    let (Some(stream), Some(option)) = (unsafe { instance.stream() }, kept.system()) else { return false };
    let is_set = match kept.direction {
        DOWNSTREAM => stream.host.set_client_option(&option),
        _ => want(stream.info, option),
    };
    if is_set {
        instance.rare.borrow_mut().get_or_insert_default().options.push(kept);
    }
    is_set
}

fn set_of_connection(session: &Session, kept: Kept) {
    // SAFETY: no other function of this module's runs.
    if let (Some(connection), Some(option)) = (unsafe { session.connection() }, kept.system()) {
        want(connection.info, option);
        session.options.borrow_mut().push(kept);
    }
}

fn want(info: &mut StreamInfo, option: NumberedOption) -> bool {
    info.want_option(option);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_found_as_what_it_was_set_as() {
        let kept = |name, state, value| Kept { level: 1, name, state, direction: UPSTREAM, value };
        let all = [
            kept(2, 0, Value::Number(7)),
            kept(2, 0, Value::Number(8)),
            kept(3, 1, Value::Bytes(b"ab".as_slice().into())),
        ];
        let number = |name, state| find(&all, (1, name, state, UPSTREAM), Kept::number);
        assert_eq!([number(2, 0), number(2, 1), number(3, 1)], [Some(7), None, None]);
        assert_eq!(find(&all, (1, 2, 0, DOWNSTREAM), Kept::number), None);
        let both = [kept(2, 0, Value::Bytes([].into())), kept(2, 0, Value::Number(7))];
        assert_eq!(find(&both, (1, 2, 0, UPSTREAM), Kept::number), Some(7));
        let listed = all[2].listed();
        assert_eq!((listed.kind, listed.number, listed.bytes.length, size_of::<Listed>()), (1, 0, 2, 48));
        let system = all[0].system().unwrap();
        assert_eq!((system.value, system.when), (7_i32.to_ne_bytes().to_vec(), OptionMoment::BeforeBind));
        assert_eq!(all[2].system().unwrap().when, OptionMoment::AfterBind);
        assert_eq!(kept(1 << 40, 0, Value::Number(1)).system(), None);
        assert_eq!(kept(1, 0, Value::Number(1 << 40)).system(), None);
    }
}
