//! Does nothing, and asks for nothing: what a module costs by itself.

use postrider_module::{Hooks, HttpFilter, Refusal, Setup};

struct Passthrough;

impl HttpFilter for Passthrough {
    type State = ();

    fn new(_: &mut Setup<'_>) -> Result<Passthrough, Refusal> {
        Ok(Passthrough)
    }

    fn begin(&self) -> Option<()> {
        Some(())
    }

    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::NONE }
    }
}

postrider_module::entry!(Passthrough);
