//! Lets a connection pass whose client says a password first, in a line of its own, which goes no further. A thread looks at
//! the password, as one would that asks somebody else.

use std::sync::{Arc, Mutex};
use std::thread;

use postrider_module::{
    Connection, ConnectionEvent, Counter, Ending, NetworkFilter, NetworkSetup, Passage, Refusal, entry,
};

struct Knock {
    password: Vec<u8>,
    passed: Counter,
    refused: Counter,
    ended: Counter,
    sent: Counter,
}

enum State {
    /// The line is not complete.
    Listening,
    /// The thread writes here whether it is right.
    Asking(Arc<Mutex<Option<bool>>>),
    Passed,
}

/// Longest line that is waited for.
const MAX_LINE: usize = 100;

impl NetworkFilter for Knock {
    type State = State;

    fn new(setup: &mut NetworkSetup<'_>) -> Result<Knock, Refusal> {
        if setup.config().is_empty() {
            return Err(format!("{} has no password", setup.name()).into());
        }
        Ok(Knock {
            password: setup.config().to_vec(),
            passed: setup.counter("passed")?,
            refused: setup.counter("refused")?,
            ended: setup.counter("ended")?,
            sent: setup.counter("sent")?,
        })
    }

    fn begin(&self) -> Option<State> {
        Some(State::Listening)
    }

    fn on_received(&self, state: &mut State, connection: &mut Connection<'_>, _: bool) -> Passage {
        match state {
            State::Passed => return Passage::Continue,
            State::Asking(_) => return Passage::Stop,
            State::Listening => {}
        }
        let held = connection.received().to_vec();
        let Some(end) = held.iter().position(|byte| *byte == b'\n') else {
            if held.len() > MAX_LINE {
                connection.close(Ending::Reset, "line_too_long");
            }
            return Passage::Stop;
        };
        let said = held[..end].to_vec();
        connection.received().drain(end + 1);
        assert!(said != b"panic", "as the client wants it");
        let (answer, scheduler) = (Arc::new(Mutex::new(None)), connection.scheduler());
        *state = State::Asking(answer.clone());
        let password = self.password.clone();
        thread::spawn(move || {
            *answer.lock().unwrap() = Some(said == password);
            scheduler.commit(1);
        });
        Passage::Stop
    }

    fn on_sent(&self, _: &mut State, connection: &mut Connection<'_>, _: bool) -> Passage {
        let length = connection.sent().len() as u64;
        // It is of this configuration.
        let _ = connection.count(self.sent, length);
        Passage::Continue
    }

    fn on_scheduled(&self, state: &mut State, connection: &mut Connection<'_>, _: u64) {
        let State::Asking(answer) = state else { return };
        let is_right = answer.lock().unwrap().unwrap_or(false);
        let counter = if is_right { self.passed } else { self.refused };
        let _ = connection.count(counter, 1);
        if is_right {
            *state = State::Passed;
            connection.set_metadata_text("knock", "who", "known");
            connection.send("welcome\n", false);
            connection.resume();
        } else {
            connection.send("no\n", false);
            connection.close(Ending::Flushed, "wrong password");
        }
    }

    fn on_event(&self, _: &mut State, connection: &mut Connection<'_>, event: ConnectionEvent) {
        if event != ConnectionEvent::Connected {
            let _ = connection.count(self.ended, 1);
        }
    }
}

entry!(connections = Knock);
