//! Content codings, a bounded step at a time: what compressor and decompressor share.
//!
//! A [`Coder`] takes bytes and appends others. One call does a bounded amount of work, so that a large body is coded in
//! many, and between them its pieces are sent on; nothing is held but what a coding's window holds. [`Passing`] is one
//! message on its way through a coder, for a filter that took the message over.

mod brotli;
mod gzip;
mod library;
mod passing;
mod zstd;

pub(crate) use library::{Compressor, Decompressor, read_compressor, read_decompressor};
pub(crate) use passing::Passing;

use postrider_http::{Fields, list_members, trim_ows};

/// What of a message is to have left a coder when its input is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Whatever does.
    Anything,
    /// All that came in.
    Flushed,
    /// That, and how the coding ends.
    Finished,
}

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// So many bytes of the input are used up.
    pub(crate) consumed: usize,
    /// All of them, and what was asked for has left.
    pub(crate) done: bool,
}

/// Why a body cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is not what it says it is.
    Data,
    /// It wants more memory than a body may.
    Memory,
    /// It was compressed with a dictionary that is not there.
    Dictionary,
    /// Its checksum is wrong.
    Checksum,
    /// It is much larger than what came: a bomb.
    Ratio,
    /// It ended in the middle.
    Cut,
}

/// One body on its way into or out of a content coding.
pub(crate) trait Coder {
    /// Does some of the work, for at most one buffer of output.
    ///
    /// # Errors
    /// The input is broken.
    fn step(&mut self, input: &[u8], until: Until, out: &mut Vec<u8>) -> Result<Step, Broken>;

    /// Whether the input may end here.
    fn may_end(&self) -> bool {
        true
    }
}

/// Makes room for so many bytes behind those of `out`, and keeps as many as `write` says it wrote.
fn append<T>(out: &mut Vec<u8>, room: usize, write: impl FnOnce(&mut [u8]) -> (usize, T)) -> (usize, T) {
    let start = out.len();
    out.resize(start + room, 0);
    let (wrote, made) = write(out.get_mut(start..).unwrap_or_default());
    let wrote = wrote.min(room);
    out.truncate(start + wrote);
    (wrote, made)
}

/// All values of a field as one.
pub(crate) fn joined(fields: &Fields, name: &[u8]) -> Option<Vec<u8>> {
    let mut values = fields.get_all_name(name);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(all)
}

/// Whether a message says that nobody may change its coding.
pub(crate) fn forbids_transforming(fields: &Fields) -> bool {
    fields
        .get_all_name(b"cache-control")
        .flat_map(list_members)
        .any(|member| trim_ows(member).eq_ignore_ascii_case(b"no-transform"))
}

#[cfg(test)]
mod tests;
