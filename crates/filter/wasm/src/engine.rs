//! The one engine of the process: how modules are compiled, and the clock by which calls are stopped.

use std::sync::OnceLock;

use wasmtime::{Config, Engine};

use crate::ticker;

/// Stack of a guest: what proxies that host these modules give them.
const MAX_GUEST_STACK: usize = 512 << 10;

/// The engine, made when the first module is loaded.
///
/// # Errors
/// What is missing on this machine.
pub(crate) fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let made = ENGINE.get_or_init(|| {
        let engine = Engine::new(&settings()).map_err(|error| format!("no WebAssembly here: {error:#}"))?;
        ticker::start(engine.clone());
        Ok(engine)
    });
    made.as_ref().map_err(Clone::clone)
}

fn settings() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.max_wasm_stack(MAX_GUEST_STACK);
    // What is compiled is kept, so that it is worth the time.
    config.cranelift_opt_level(wasmtime::OptLevel::Speed);
    config
}
