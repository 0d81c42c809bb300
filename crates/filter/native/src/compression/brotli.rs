//! `br` (RFC 7932).

use brotli::enc::encode::{BrotliEncoderOperation as Operation, BrotliEncoderStateStruct};
use brotli::enc::{BrotliEncoderParams, StandardAlloc};
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};

use super::{Broken, Coder, Step, Until, append};

pub(super) struct Compress {
    state: BrotliEncoderStateStruct<StandardAlloc>,
    chunk: usize,
}

impl Compress {
    pub(super) fn new(params: &BrotliEncoderParams, chunk: usize) -> Compress {
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.params = params.clone();
        Compress { state, chunk }
    }
}

impl Coder for Compress {
    fn step(&mut self, input: &[u8], until: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        let operation = match until {
            Until::Anything => Operation::BROTLI_OPERATION_PROCESS,
            Until::Flushed => Operation::BROTLI_OPERATION_FLUSH,
            Until::Finished => Operation::BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut at) = (input.len(), 0);
        let (_, fine) = append(out, self.chunk, |room| {
            let (mut space, mut wrote) = (room.len(), 0);
            let fine = self.state.compress_stream(
                operation,
                &mut left,
                input,
                &mut at,
                &mut space,
                room,
                &mut wrote,
                &mut None,
                &mut |_, _, _, _| {},
            );
            (wrote, fine)
        });
        if !fine {
            return Err(Broken::Data);
        }
        let done = match until {
            Until::Finished => self.state.is_finished(),
            _ => left == 0 && !self.state.has_more_output(),
        };
        Ok(Step { consumed: at, done })
    }
}

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

pub(super) struct Decompress {
    state: Box<State>,
    chunk: usize,
    begun: bool,
    ended: bool,
}

impl Decompress {
    /// Windows are those of RFC 7932, of 16 MiB at most.
    pub(super) fn new(chunk: usize) -> Decompress {
        let state = State::new_strict(StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default());
        Decompress { state: Box::new(state), chunk, begun: false, ended: false }
    }
}

impl Coder for Decompress {
    fn step(&mut self, input: &[u8], _: Until, out: &mut Vec<u8>) -> Result<Step, Broken> {
        if self.ended {
            // As with gzip, what follows the end goes nowhere.
            return Ok(Step { consumed: input.len(), done: true });
        }
        self.begun |= !input.is_empty();
        if !self.begun {
            return Ok(Step { consumed: 0, done: true });
        }
        let (mut left, mut at) = (input.len(), 0);
        let (_, result) = append(out, self.chunk, |room| {
            let (mut space, mut wrote, mut total) = (room.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut at,
                input,
                &mut space,
                &mut wrote,
                room,
                &mut total,
                &mut self.state,
            );
            (wrote, result)
        });
        match result {
            BrotliResult::ResultSuccess => self.ended = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => return Err(Broken::Data),
        }
        let done = left == 0 && !matches!(result, BrotliResult::NeedsMoreOutput);
        Ok(Step { consumed: at, done })
    }

    fn may_end(&self) -> bool {
        !self.begun || self.ended
    }
}
