//! The engines of the process: how modules are compiled, and the clock by which calls are stopped.

use std::sync::OnceLock;

use wasmtime::{Config, Engine, Strategy};

use crate::ticker;

/// Stack of a guest: no recursion that ends in Envoy is too deep here. It is a part of the worker's.
const MAX_GUEST_STACK: usize = 1280 << 10;

/// The engine whose code runs fast, made when the first module is loaded.
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

/// The engine whose compiler is fast: a sixth of the time, for code that takes two or three times as long. `None` where
/// there is none.
pub(crate) fn quick_engine() -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    let made = ENGINE.get_or_init(|| {
        // On other processors it does not know every instruction of modules.
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let engine = Engine::new(settings().strategy(Strategy::Winch)).ok()?;
        ticker::start(engine.clone());
        Some(engine)
    });
    made.as_ref()
}

/// An engine that makes what [`engine`] runs on one processor, beside workers that need the others.
///
/// # Errors
/// As [`engine`].
pub(crate) fn background_engine() -> Result<Engine, String> {
    Engine::new(settings().parallel_compilation(false)).map_err(|error| format!("{error:#}"))
}

fn settings() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.max_wasm_stack(MAX_GUEST_STACK);
    // What is compiled is kept, so that it is worth the time.
    config.cranelift_opt_level(wasmtime::OptLevel::Speed);
    config
}
