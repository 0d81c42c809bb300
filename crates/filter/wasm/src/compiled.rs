//! The modules of this process, each compiled once: well, or quickly at first where a start is not to wait.
//!
//! ```text
//!  kept, compiled well ──────────────────────────────────────────────> used
//!  the process starts ── compiled quickly, or that is kept ──> used ── told, read again ──> used
//!                         └─ compiled well in the background ─────────────┘ kept
//!  later ── compiled well, while what ran before serves ─────────────> used
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use postrider_telemetry::log::{Component, Level};
use wasmtime::Module;

use crate::analysis::Analysis;
use crate::cache::Cache;
use crate::engine::{background_engine, engine, quick_engine};

/// Smaller modules are compiled well at once: it takes a quarter of a second at most.
const MIN_QUICK_BYTES: usize = 256 << 10;

/// Modules that are kept although nobody uses them: what reads a configuration tries it out before it runs it.
const KEPT_MODULES: usize = 8;

/// A module as it can be used now.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) module: Module,
    pub(crate) analysis: Arc<Analysis>,
    /// Of code that was compiled quickly: whether there is better one by now.
    pub(crate) outdated: Option<Arc<AtomicBool>>,
}

type Digest = [u8; 32];

static KNOWN: Mutex<Vec<(Digest, Compiled)>> = Mutex::new(Vec::new());

/// A panic with the lock held leaves a whole list behind.
fn known() -> MutexGuard<'static, Vec<(Digest, Compiled)>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

static HURRIES: AtomicBool = AtomicBool::new(false);
static TELL: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// The process starts, and nothing serves as yet: until [`settle`], large modules that were never compiled are compiled
/// quickly, and once more, well, by a thread that gives way to others. `tell` is called when all of that is done, on that
/// thread: plugins that are built then have the better code, and those that have not say that they are not current.
pub fn hurry(tell: impl Fn() + Send + Sync + 'static) {
    let _ = TELL.set(Box::new(tell));
    HURRIES.store(true, Ordering::Relaxed);
}

#[cfg(test)]
pub(crate) fn hurry_now() {
    HURRIES.store(true, Ordering::Relaxed);
}

/// Something serves: what is compiled from now on may take its time.
pub fn settle() {
    HURRIES.store(false, Ordering::Relaxed);
}

/// The module, which configurations with the same code share. `digest` is the SHA-256 of the code.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compiled(code: &[u8], digest: Digest) -> Result<Compiled, String> {
    let found = known().iter().find(|(known, _)| *known == digest).map(|(_, compiled)| compiled.clone());
    if let Some(found) = found {
        return Ok(found);
    }
    let analysis = Arc::new(Analysis::of(code)?);
    let hurries = HURRIES.load(Ordering::Relaxed) && code.len() >= MIN_QUICK_BYTES;
    let (module, is_quick) = compile(&Cache::of_user(), code, &digest, hurries)?;
    let outdated = is_quick.then(Arc::default);
    let compiled = Compiled { module, analysis, outdated: outdated.clone() };
    let mut known = known();
    known.push((digest, compiled.clone()));
    let unused = |(_, compiled): &(Digest, Compiled)| Arc::strong_count(&compiled.analysis) == 1;
    let mut surplus = known.iter().filter(|module| unused(module)).count().saturating_sub(KEPT_MODULES);
    known.retain(|module| {
        let goes = surplus > 0 && unused(module);
        surplus -= usize::from(goes);
        !goes
    });
    drop(known);
    if let Some(outdated) = outdated {
        improve(code.to_vec(), digest, outdated);
    }
    Ok(compiled)
}

/// The module, and whether it was compiled quickly.
fn compile(cache: &Cache, code: &[u8], digest: &Digest, hurries: bool) -> Result<(Module, bool), String> {
    let engine = engine()?;
    if let Some(module) = cache.kept(engine, digest) {
        return Ok((module, false));
    }
    // One that the fast compiler does not take may be good all the same.
    if let Some(quick) = quick_engine().filter(|_| hurries)
        && let Some(module) = cache.kept(quick, digest).or_else(|| cache.compile(quick, code, digest).ok())
    {
        return Ok((module, true));
    }
    Ok((cache.compile(engine, code, digest)?, false))
}

/// Compiles well what was compiled quickly.
fn improve(code: Vec<u8>, digest: Digest, outdated: Arc<AtomicBool>) {
    /// So many are not done yet.
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static ONE_AFTER_ANOTHER: Mutex<()> = Mutex::new(());
    WAITING.fetch_add(1, Ordering::Relaxed);
    let work = move || {
        let _turn = ONE_AFTER_ANOTHER.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests come first. If this cannot be said, they share.
        let _ = rustix::process::nice(19);
        match compile_well(&Cache::of_user(), &code, &digest) {
            Ok(module) => {
                if let Some((_, compiled)) = known().iter_mut().find(|(known, _)| *known == digest) {
                    (compiled.module, compiled.outdated) = (module, None);
                }
                outdated.store(true, Ordering::Relaxed);
            }
            Err(error) => postrider_telemetry::log::write(
                Component::Filter,
                Level::Warning,
                format_args!("a WebAssembly module stays as it was compiled quickly: {error}"),
            ),
        }
        if WAITING.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(tell) = TELL.get()
        {
            tell();
        }
    };
    if std::thread::Builder::new().name("wasm-compiler".to_owned()).spawn(work).is_err() {
        WAITING.fetch_sub(1, Ordering::AcqRel);
    }
}

fn compile_well(cache: &Cache, code: &[u8], digest: &Digest) -> Result<Module, String> {
    let artifact = background_engine()?.precompile_module(code).map_err(|error| format!("{error:#}"))?;
    let module = cache.adopt(engine()?, artifact, digest)?;
    if let Some(quick) = quick_engine() {
        cache.forget(quick, digest);
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::cache::tests::Folder;

    fn source(name: &str) -> (Vec<u8>, Digest) {
        let code = wat::parse_str(format!(r#"(module (func (export "{name}") (result i32) i32.const 7))"#)).unwrap();
        let digest = Sha256::digest(&code).into();
        (code, digest)
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_start_takes_quick_code_until_there_is_better_one() {
        let folder = Folder::new("tiers");
        let (cache, (code, digest)) = (Cache::at(Some(folder.0.clone())), source("tiers"));
        let engines = || [quick_engine().unwrap(), engine().unwrap()].map(|it| cache.kept(it, &digest).is_some());
        for _ in 0..2 {
            let (module, is_quick) = compile(&cache, &code, &digest, true).unwrap();
            assert!(is_quick && module.get_export("tiers").is_some());
            assert_eq!(engines(), [true, false]);
        }
        let better = compile_well(&cache, &code, &digest).unwrap();
        assert!(better.get_export("tiers").is_some());
        assert!(wasmtime::Engine::same(better.engine(), engine().unwrap()));
        assert_eq!(engines(), [false, true], "the quick code is not kept any longer");
        assert!(!compile(&cache, &code, &digest, true).unwrap().1);
    }

    #[test]
    fn without_hurry_code_is_compiled_well() {
        let folder = Folder::new("well");
        let (cache, (code, digest)) = (Cache::at(Some(folder.0.clone())), source("well"));
        assert!(!compile(&cache, &code, &digest, false).unwrap().1);
        assert!(compile(&cache, b"\0asm\x01\0\0\0\x0a", &[1; 32], true).is_err(), "neither compiler takes it");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn whoever_has_quick_code_learns_of_better_one() {
        let (code, digest) = source("learns");
        let quick = Module::new(quick_engine().unwrap(), &code).unwrap();
        let outdated = Arc::<AtomicBool>::default();
        let analysis = wat::parse_str(r#"(module (func (export "proxy_abi_version_0_2_1")))"#).unwrap();
        let analysis = Arc::new(Analysis::of(&analysis).unwrap());
        known().push((digest, Compiled { module: quick, analysis, outdated: Some(outdated.clone()) }));
        let (done, told) = std::sync::mpsc::sync_channel(1);
        // Another test's module may be done, too.
        hurry(move || done.try_send(()).unwrap_or_default());
        improve(code.clone(), digest, outdated.clone());
        while !outdated.load(Ordering::Relaxed) {
            told.recv().unwrap();
        }
        let now = compiled(&code, digest).unwrap();
        assert!(now.outdated.is_none() && wasmtime::Engine::same(now.module.engine(), engine().unwrap()));
    }
}
