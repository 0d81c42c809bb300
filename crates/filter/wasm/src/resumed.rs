//! Streams that waited: what came for them meanwhile, and what goes on of messages that were taken over.

use postrider_filter_api::{Action, Flow, State, Stream};

use crate::data::At;
use crate::hooks::Hosted;
use crate::replies::{closed, of_module, too_large};
use crate::seat::Machine;
use crate::side::{Side, held};
use crate::vm::Fault;

impl Hosted {
    /// A pause is over, or something came for whoever waits.
    pub(crate) fn on_resumed(
        &self,
        side: Side,
        machine: &Machine,
        id: u32,
        stream: &mut Stream<'_>,
    ) -> Result<Action, Fault> {
        self.hear(machine, id, stream)?;
        let vm = &machine.vm;
        let turns = vm.program.analysis.turns;
        let settled = vm.with(|data| {
            let passing = data.contexts.stream(id)?;
            passing.catch_up(stream);
            if let Some(reply) = passing.reply.take() {
                return Some(Action::Respond(of_module(reply, stream.info)));
            }
            if passing.closed {
                return Some(Action::Respond(closed()));
            }
            let half = side.half(passing);
            let action = if std::mem::take(&mut half.continued) {
                half.stopped = false;
                half.bell = None;
                half.hidden = 0;
                half.kept = 0;
                half.editable = false;
                match half.head_waits.take() {
                    Some(end) => self.after_head(half, side, machine, end),
                    None => Action::Continue,
                }
            } else {
                self.pause(half, stream)
            };
            passing.keep(stream, false, turns);
            Some(action)
        });
        Ok(settled.flatten().unwrap_or(Action::Done))
    }

    /// Tells the module what came for this stream.
    fn hear(&self, machine: &Machine, id: u32, stream: &mut Stream<'_>) -> Result<(), Fault> {
        loop {
            let next = machine.vm.with(|data| data.contexts.stream(id)?.inbox.pop_front());
            match next.flatten() {
                Some(delivery) => machine.vm.tell(delivery, At::Stream(stream))?,
                None => return Ok(()),
            }
        }
    }

    /// What goes on of a message that was taken over.
    pub(crate) fn flow(&self, side: Side, state: &mut State, stream: &mut Stream<'_>) -> Flow {
        let number = match state {
            State::Number(number) if *number != u64::MAX => *number,
            _ => return Flow::Release,
        };
        let Some((machine, id)) = self.known(State::Number(number)) else {
            return as_flow(self.fail(state, stream, &Fault::Dead));
        };
        if let Err(fault) = self.hear(&machine, id, stream) {
            return as_flow(self.fail(state, stream, &fault));
        }
        let flow = machine.vm.with(|data| {
            let passing = data.contexts.stream(id)?;
            passing.catch_up(stream);
            if let Some(reply) = passing.reply.take() {
                return Some(Flow::Respond(of_module(reply, stream.info)));
            }
            if passing.closed {
                return Some(Flow::Respond(closed()));
            }
            let half = side.half(passing);
            let course = half.course.as_mut()?;
            if std::mem::take(&mut half.continued) {
                half.stopped = false;
                half.editable = false;
                course.release();
            }
            let flow = match course.next(half.stopped, held(side, stream)) {
                Some(Flow::Release) => {
                    half.course = None;
                    half.bell = None;
                    Flow::Release
                }
                Some(flow) => flow,
                None => {
                    half.bell = Some(stream.resumer.clone());
                    let is_full = course.waiting() >= self.limit;
                    match is_full || course.ended {
                        true if is_full && course.gathers() => Flow::Respond(too_large(side)),
                        true => Flow::Wait,
                        false => Flow::Want,
                    }
                }
            };
            passing.keep(stream, false, machine.vm.program.analysis.turns);
            Some(flow)
        });
        flow.flatten().unwrap_or(Flow::Release)
    }
}

fn as_flow(action: Action) -> Flow {
    match action {
        Action::Respond(reply) => Flow::Respond(reply),
        _ => Flow::Release,
    }
}
