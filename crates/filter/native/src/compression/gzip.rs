//! `gzip` (RFC 1952).

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateError, InflateFlush, Status};

use super::{Broken, Coder, Step, Until, append};

/// What tells zlib that a window size is that of a gzip stream.
const GZIP: u8 = 16;

/// The first byte of each member of a gzip stream.
const MEMBER: u8 = 0x1f;

pub(super) struct Compress {
    deflate: Deflate,
    chunk: usize,
}

impl Compress {
    /// `config` has the plain window size.
    pub(super) fn new(config: DeflateConfig, chunk: usize) -> Compress {
        let config = DeflateConfig { window_bits: config.window_bits + i32::from(GZIP), ..config };
        Compress { deflate: Deflate::new_with_config(config), chunk }
    }
}

impl Coder for Compress {
    fn step(&mut self, input: &[u8], until: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        let flush = match until {
            Until::Anything => DeflateFlush::NoFlush,
            Until::Flushed => DeflateFlush::SyncFlush,
            Until::Finished => DeflateFlush::Finish,
        };
        let (began_in, began_out) = (self.deflate.total_in(), self.deflate.total_out());
        let (wrote, status) = append(out, self.chunk, |room| {
            let status = self.deflate.compress(input, room, flush);
            (length(self.deflate.total_out() - began_out), status)
        });
        let status = status.map_err(|_| Broken::Data)?;
        let consumed = length(self.deflate.total_in() - began_in);
        let done = match until {
            Until::Finished => status == Status::StreamEnd,
            // Room that was left says that nothing waits.
            _ => consumed == input.len() && wrote < self.chunk,
        };
        Ok(Step { consumed, done })
    }
}

pub(super) struct Decompress {
    inflate: Inflate,
    window_bits: u8,
    chunk: usize,
    begun: bool,
    /// More may come out without more coming in.
    full: bool,
    /// A member of the stream is over.
    ended: bool,
    /// What follows the last member is no other.
    over: bool,
}

impl Decompress {
    pub(super) fn new(window_bits: u8, chunk: usize) -> Decompress {
        let inflate = Inflate::new(true, GZIP + window_bits);
        Decompress { inflate, window_bits, chunk, begun: false, full: false, ended: false, over: false }
    }
}

impl Coder for Decompress {
    fn step(&mut self, input: &[u8], _: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        if input.is_empty() && !self.full {
            return Ok(Step { consumed: 0, done: true });
        }
        if self.ended && input.first() == Some(&MEMBER) && !self.over {
            self.inflate = Inflate::new(true, GZIP + self.window_bits);
            self.ended = false;
        }
        if self.ended {
            self.over = true;
            return Ok(Step { consumed: input.len(), done: true });
        }
        self.begun = true;
        let (began_in, began_out) = (self.inflate.total_in(), self.inflate.total_out());
        let (wrote, status) = append(out, self.chunk, |room| {
            let status = self.inflate.decompress(input, room, InflateFlush::NoFlush);
            (length(self.inflate.total_out() - began_out), status)
        });
        let consumed = length(self.inflate.total_in() - began_in);
        match status {
            Ok(Status::StreamEnd) => self.ended = true,
            Ok(Status::BufError) if wrote == 0 && consumed == 0 && !input.is_empty() => return Err(Broken::Data),
            Ok(_) => {}
            Err(InflateError::MemError) => return Err(Broken::Memory),
            Err(_) => return Err(Broken::Data),
        }
        self.full = wrote == self.chunk && !self.ended;
        Ok(Step { consumed, done: consumed == input.len() && !self.full })
    }

    fn may_end(&self) -> bool {
        !self.begun || self.ended
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
