//! Chooses a filter chain by a line that clients say first: `for NAME`, which goes no further. A thread looks the name up, as
//! one would that asks somebody else. Who begins otherwise is taken as it comes.

use std::thread;

use postrider_module::{
    Answer, Call, CallId, Counter, Failure, ListenerFilter, ListenerSetup, Newcomer, Passage, Refusal, entry,
};

struct Greeting {
    /// Asked about each name, where there is one.
    cluster: String,
    named: Counter,
    left: Counter,
}

/// What a connection asked for.
#[derive(Default)]
struct State {
    name: Option<String>,
}

/// Longest line that is waited for.
const MOST: usize = 100;

impl ListenerFilter for Greeting {
    type State = State;

    fn new(setup: &mut ListenerSetup<'_>) -> Result<Greeting, Refusal> {
        let cluster = std::str::from_utf8(setup.config())?.to_owned();
        Ok(Greeting { cluster, named: setup.counter("named")?, left: setup.counter("left")? })
    }

    fn begin(&self) -> Option<State> {
        Some(State::default())
    }

    fn most(&self) -> usize {
        MOST
    }

    fn on_accept(&self, _: &mut State, _: &mut Newcomer<'_>) -> Passage {
        Passage::Stop
    }

    fn on_data(&self, state: &mut State, newcomer: &mut Newcomer<'_>) -> Passage {
        if state.name.is_some() {
            return Passage::Stop;
        }
        let data = newcomer.data();
        if !b"for ".starts_with(data.get(..4).unwrap_or(data)) {
            return Passage::Continue;
        }
        let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
            if data.len() >= MOST {
                newcomer.close("line_too_long");
            }
            return Passage::Stop;
        };
        let name = String::from_utf8_lossy(data.get(4..end).unwrap_or_default()).trim().to_owned();
        assert!(name != "panic", "the client wants a panic");
        newcomer.drain(end + 1);
        state.name = Some(name);
        if self.cluster.is_empty() {
            let scheduler = newcomer.scheduler();
            thread::spawn(move || scheduler.commit(1));
        } else if newcomer.call(&Call::new(&*self.cluster, "GET", "names", "/")).is_err() {
            newcomer.close("nobody_to_ask");
        }
        Passage::Stop
    }

    fn on_close(&self, _: &mut State, newcomer: &mut Newcomer<'_>) {
        // The counter is of this configuration.
        let _ = newcomer.count(self.left, 1);
    }

    fn on_scheduled(&self, state: &mut State, newcomer: &mut Newcomer<'_>, _: u64) {
        self.go_on(state, newcomer);
    }

    fn on_call_done(
        &self,
        state: &mut State,
        newcomer: &mut Newcomer<'_>,
        _: CallId,
        answer: Result<Answer<'_>, Failure>,
    ) {
        match answer {
            Ok(answer) if answer.status() == 200 => self.go_on(state, newcomer),
            _ => newcomer.resume(false),
        }
    }
}

impl Greeting {
    fn go_on(&self, state: &State, newcomer: &mut Newcomer<'_>) {
        if let Some(name) = &state.name {
            newcomer.set_server_name(name);
            newcomer.set_metadata_text("module", "told", name);
            // As above.
            let _ = newcomer.count(self.named, 1);
        }
        newcomer.resume(true);
    }
}

entry!(listener = Greeting);
