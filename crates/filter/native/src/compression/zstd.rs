//! `zstd` (RFC 8878), in windows of 8 MiB at most, as RFC 9659 wants it of a content coding.

use std::io;

use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};

use super::{Broken, Coder, Step, Until, append};

/// Of a window's bytes, the logarithm.
const MAX_WINDOW_LOG: u32 = 23;

pub(super) struct Compress {
    encoder: Encoder<'static>,
    chunk: usize,
}

impl Compress {
    pub(super) fn new(level: i32, dictionary: &[u8], settings: &[CParameter], chunk: usize) -> io::Result<Compress> {
        let mut encoder = Encoder::with_dictionary(level, dictionary)?;
        for setting in settings {
            encoder.set_parameter(*setting)?;
        }
        Ok(Compress { encoder, chunk })
    }
}

impl Coder for Compress {
    fn step(&mut self, input: &[u8], until: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        let mut from = InBuffer::around(input);
        let (_, left) = append(out, self.chunk, |room| {
            let mut to = OutBuffer::around(room);
            let left = match until {
                _ if !input.is_empty() => self.encoder.run(&mut from, &mut to).map(|_| 0),
                Until::Anything => Ok(0),
                Until::Flushed => self.encoder.flush(&mut to),
                Until::Finished => self.encoder.finish(&mut to, false),
            };
            (to.pos(), left)
        });
        let left = left.map_err(|_| Broken::Data)?;
        let consumed = from.pos();
        // What was taken in leaves with the next call.
        let done = consumed == input.len() && left == 0 && (input.is_empty() || until == Until::Anything);
        Ok(Step { consumed, done })
    }
}

pub(super) struct Decompress {
    decoder: Decoder<'static>,
    chunk: usize,
    begun: bool,
    /// A frame is over, and none began behind it.
    ended: bool,
}

impl Decompress {
    pub(super) fn new(chunk: usize) -> io::Result<Decompress> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        Ok(Decompress { decoder, chunk, begun: false, ended: false })
    }
}

impl Coder for Decompress {
    fn step(&mut self, input: &[u8], _: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        self.begun |= !input.is_empty();
        if !self.begun || self.ended && input.is_empty() {
            return Ok(Step { consumed: 0, done: true });
        }
        let mut from = InBuffer::around(input);
        let (wrote, hint) = append(out, self.chunk, |room| {
            let mut to = OutBuffer::around(room);
            let hint = self.decoder.run(&mut from, &mut to);
            (to.pos(), hint)
        });
        let hint = hint.map_err(|error| broken(&error.to_string()))?;
        self.ended = hint == 0;
        let consumed = from.pos();
        Ok(Step { consumed, done: consumed == input.len() && (wrote < self.chunk || self.ended) })
    }

    fn may_end(&self) -> bool {
        !self.begun || self.ended
    }
}

/// The library says what is wrong in words.
fn broken(message: &str) -> Broken {
    if message.contains("ictionary") {
        Broken::Dictionary
    } else if message.contains("checksum") {
        Broken::Checksum
    } else if message.contains("memory") {
        Broken::Memory
    } else {
        Broken::Data
    }
}
