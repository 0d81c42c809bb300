//! Messages in metadata, as pieces that a script's side puts together to tables again.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use postrider_model::{Part, Unpack};

use super::text::{put, take};
use super::turn::{Turn, with};
use super::values::{BOOL, CONNECTION, DYNAMIC, LIST, MAP, NUMBER, Plain, STRING};
use super::{NONE, OK};

/// How messages are read: their types are known outside of this crate.
static UNPACK: OnceLock<Unpack> = OnceLock::new();

/// Scripts see messages through `unpack` from now on. Without it they see none; the first one counts.
pub fn read_messages_with(unpack: Unpack) {
    // A second one is the same: the binary has one.
    let _ = UNPACK.set(unpack);
}

/// Takes the message of a namespace apart, for [`next`].
pub(super) unsafe extern "C" fn load(which: c_int, namespace: *const c_char, length: usize) -> c_int {
    with(|turn| {
        // SAFETY: the SDK passes a Lua string with its length.
        let Ok(namespace) = std::str::from_utf8(unsafe { take(namespace, length) }) else { return NONE };
        let Some(parts) = parts_of(turn, which, namespace) else { return NONE };
        turn.scratch.parts = parts.into_iter();
        OK
    })
}

fn parts_of(turn: &Turn<'_, '_>, which: c_int, namespace: &str) -> Option<Vec<Part>> {
    let info = &turn.stream.as_ref()?.info;
    let unpack = |metadata: &postrider_model::Metadata| UNPACK.get()?(metadata.typed(namespace)?);
    match which {
        DYNAMIC => unpack(&info.metadata),
        CONNECTION => {
            let noted = info.connection.as_ref()?;
            unpack(&noted.metadata).or_else(|| tlvs(&noted.bytes, namespace))
        }
        _ => None,
    }
}

/// What the PROXY protocol brought: `TlvsMetadata`, which nobody packed.
fn tlvs(noted: &[(String, String, Vec<u8>)], namespace: &str) -> Option<Vec<Part>> {
    let of_namespace = || noted.iter().filter(|(of, ..)| of == namespace);
    let count = of_namespace().count();
    let mut parts = vec![Part::Map(1), Part::Bytes(b"typed_metadata".to_vec()), Part::Map(count)];
    for (_, key, bytes) in of_namespace() {
        parts.extend([Part::Bytes(key.clone().into_bytes()), Part::Bytes(bytes.clone())]);
    }
    (count > 0).then_some(parts)
}

/// The next piece: a value, or how many values or pairs follow as the number of a list or map.
pub(super) unsafe extern "C" fn next(out: *mut Plain) -> c_int {
    with(|turn| {
        let scratch = &mut *turn.scratch;
        // SAFETY: the SDK passes a place of its own for the answer.
        let (Some(part), Some(out)) = (scratch.parts.next(), unsafe { out.as_mut() }) else { return NONE };
        (out.kind, out.number) = match part {
            Part::Bool(set) => (BOOL, f64::from(u8::from(set))),
            Part::Number(number) => (NUMBER, number),
            Part::List(count) => (LIST, count as f64),
            Part::Map(count) => (MAP, count as f64),
            Part::Bytes(bytes) => {
                scratch.bytes = bytes;
                // SAFETY: a field of the SDK's own place.
                unsafe { put(&mut out.text, &scratch.bytes) };
                (STRING, 0.0)
            }
        };
        OK
    })
}
