//! The Lua side of the host: the border, the sandbox, the dialects and the modules that scripts may require.

use crate::program::{Dialect, Program, Sandbox, Sdk};
use crate::vm::{Argument, Fault, Ref, Vm};

/// Whether a place in a script (`name:line`), or what a traceback says of one, is in a chunk of the host's own: a part of the SDK,
/// or a pattern that [`PATTERNS`] compiled.
pub(crate) fn is_own_place(place: &str) -> bool {
    place.starts_with("postrider.") || place.starts_with("pattern:")
}

pub(crate) const ABI: &str = include_str!("sdk/abi.lua");
const FILES: &str = include_str!("sdk/files.lua");
const FINALISERS: &str = include_str!("sdk/finalisers.lua");
const SANDBOX: &str = include_str!("sdk/sandbox.lua");
const JSON: &str = include_str!("sdk/json.lua");
const LOAD: &str = include_str!("sdk/load.lua");
const PATTERNS: &str = include_str!("sdk/patterns.lua");
const SORT: &str = include_str!("sdk/sort.lua");
const COROUTINES: &str = include_str!("sdk/coroutines.lua");
const NUMBERS: &str = include_str!("sdk/numbers.lua");
const IDLE: &str = include_str!("sdk/idle.lua");
/// For machines of a command, whose results stand on standard output.
pub(crate) const PRINT: &str = include_str!("sdk/print.lua");
const WATCH: &str = include_str!("sdk/watch.lua");
const ENVOY: &str = include_str!("sdk/envoy.lua");
/// What Envoy's dialect is made of, in the order in which the parts need each other.
const ENVOY_PARTS: [(&str, &str); 5] = [
    ("=postrider.envoy.headers", include_str!("sdk/envoy/headers.lua")),
    ("=postrider.envoy.body", include_str!("sdk/envoy/body.lua")),
    ("=postrider.envoy.values", include_str!("sdk/envoy/values.lua")),
    ("=postrider.envoy.facts", include_str!("sdk/envoy/facts.lua")),
    ("=postrider.envoy.call", include_str!("sdk/envoy/call.lua")),
];
const CHOICE: &str = include_str!("sdk/choice.lua");
const ENVOY_KIT: &str = include_str!("sdk/envoy/kit.lua");
const RIDER: &str = include_str!("sdk/rider.lua");

/// The parts of Rider's SDK in the order in which they are loaded; the first makes what the others add to.
const RIDER_PARTS: [(&str, &str); 12] = [
    ("=rider.base", include_str!("sdk/rider/base.lua")),
    ("=rider.logging", include_str!("sdk/rider/logging.lua")),
    ("=rider.headers", include_str!("sdk/rider/headers.lua")),
    ("=rider.body", include_str!("sdk/rider/body.lua")),
    ("=rider.stream", include_str!("sdk/rider/stream.lua")),
    ("=rider.call", include_str!("sdk/rider/call.lua")),
    ("=rider.config", include_str!("sdk/rider/config.lua")),
    ("=rider.schema", include_str!("sdk/rider/schema.lua")),
    ("=rider.metrics", include_str!("sdk/rider/metrics.lua")),
    ("=rider.digests", include_str!("sdk/rider/digests.lua")),
    ("=rider.blake", include_str!("sdk/rider/blake.lua")),
    ("=rider.inspect", include_str!("sdk/rider/inspect.lua")),
];

/// For plugins that bring their own SDK.
const RIDER_FILESYSTEM: &str = include_str!("sdk/rider/filesystem.lua");

/// Loads what the program's dialect needs, closes the sandbox and runs the script; a table of entry points.
///
/// # Errors
/// Whatever the script raises.
pub(crate) fn install(vm: &Vm, table: Ref, program: &Program) -> Result<Option<Ref>, Fault> {
    let border = || Argument::Kept(table);
    vm.set_compiler(false);
    improve_libraries(vm, table)?;
    let json = vm.run("=postrider.json", JSON.as_bytes(), &[border()])?;
    let json = || json.map_or(Argument::Bool(false), Argument::Kept);
    let dialect = match program.dialect {
        Dialect::Envoy => {
            let kit = vm.run("=postrider.envoy.kit", ENVOY_KIT.as_bytes(), &[border()])?;
            let kit = || kit.map_or(Argument::Bool(false), Argument::Kept);
            for (name, part) in ENVOY_PARTS {
                vm.run(name, part.as_bytes(), &[border(), kit(), json()])?;
            }
            vm.run("=postrider.envoy", ENVOY.as_bytes(), &[border(), kit()])?
        }
        Dialect::Rider => {
            let copies = program.sdk == Sdk::BuiltInCopying;
            for (name, part) in RIDER_PARTS {
                vm.run(name, part.as_bytes(), &[border(), json(), Argument::Bool(copies)])?;
            }
            let from_files = program.sdk == Sdk::Filesystem;
            if from_files {
                vm.run("=rider.filesystem", RIDER_FILESYSTEM.as_bytes(), &[border()])?;
            }
            vm.run("=postrider.rider", RIDER.as_bytes(), &[border(), Argument::Bool(from_files)])?
        }
    };
    let Some(dialect) = dialect else { return Err(Fault::Error("the SDK did not load".to_owned())) };
    vm.run("=postrider.idle", IDLE.as_bytes(), &[border()])?;
    close(vm, table, program.sandbox, &program.package_path, &program.package_cpath)?;
    vm.run("=postrider.watch", WATCH.as_bytes(), &[border()])?;
    let script = vm.load(&program.name, &program.source)?;
    vm.set_compiler(true);
    // Every dialect is a function of the script: it runs it and answers with the entry points.
    vm.call(dialect, &[Argument::Kept(script)])
}

/// The same for a script beside the filter chain; a table with its functions and, after a call, its answers.
///
/// # Errors
/// Whatever the script raises.
pub(crate) fn install_choice(
    vm: &Vm,
    border: Ref,
    sandbox: Sandbox,
    name: &str,
    source: &[u8],
) -> Result<Option<Ref>, Fault> {
    improve_libraries(vm, border)?;
    let kit = vm.run("=postrider.envoy.kit", ENVOY_KIT.as_bytes(), &[Argument::Kept(border)])?;
    let kit = kit.map_or(Argument::Bool(false), Argument::Kept);
    let dialect = vm.run("=postrider.choice", CHOICE.as_bytes(), &[Argument::Kept(border), kit])?;
    let Some(dialect) = dialect else { return Err(Fault::Error("the SDK did not load".to_owned())) };
    close(vm, border, sandbox, "", "")?;
    let script = vm.load(name, source)?;
    vm.call(dialect, &[Argument::Kept(script)])
}

/// Puts functions that the watchdog can stop in the place of those of Lua's libraries that it cannot. `load` goes first: the
/// others use it.
fn improve_libraries(vm: &Vm, border: Ref) -> Result<(), Fault> {
    for (name, part) in [
        ("=postrider.load", LOAD),
        ("=postrider.patterns", PATTERNS),
        ("=postrider.sort", SORT),
        ("=postrider.coroutines", COROUTINES),
        ("=postrider.numbers", NUMBERS),
    ] {
        vm.run(name, part.as_bytes(), &[Argument::Kept(border)])?;
    }
    Ok(())
}

/// Takes away what scripts at this level may not have.
fn close(vm: &Vm, border: Ref, sandbox: Sandbox, package_path: &str, package_cpath: &str) -> Result<(), Fault> {
    if sandbox == Sandbox::Standard {
        vm.run("=postrider.files", FILES.as_bytes(), &[Argument::Kept(border)])?;
    }
    if sandbox != Sandbox::Strict {
        vm.run_after_collecting(vm.run("=postrider.finalisers", FINALISERS.as_bytes(), &[])?);
    }
    let [level, path, cpath] =
        [sandbox.name(), package_path, package_cpath].map(|text| Argument::Text(text.as_bytes()));
    vm.run("=postrider.sandbox", SANDBOX.as_bytes(), &[level, path, cpath, Argument::Kept(border)])?;
    Ok(())
}
