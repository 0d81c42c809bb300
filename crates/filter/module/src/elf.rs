//! What a module wants of the proxy, read from its file before it is loaded: a function that is not there would end the
//! process when it is called first, or keep the module from being loaded with a message of the system's.

use std::ffi::CString;

use object::{Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SectionKind};
use postrider_filter_api::fingerprint;

use crate::callbacks::FUNCTIONS;
use crate::library;
use crate::others::OTHERS;

/// What the names of the proxy's functions begin with.
const PREFIX: &str = "envoy_dynamic_module_callback_";

/// What the names of a module's functions for HTTP filters begin with.
const HOOKS: &str = "envoy_dynamic_module_on_http_filter_";

/// Functions with which a module does something about a message that it is not asked about.
const ON_MESSAGES: [&str; 4] = [
    "envoy_dynamic_module_callback_http_send_response_headers",
    "envoy_dynamic_module_callback_http_send_response_data",
    "envoy_dynamic_module_callback_http_append_body",
    "envoy_dynamic_module_callback_http_drain_body",
];

/// Functions by which others do so for it.
const BY_OTHERS: [&str; 8] = [
    "dlsym",
    "dlvsym",
    "dlopen",
    "dlmopen",
    "envoy_dynamic_module_callback_register_function",
    "envoy_dynamic_module_callback_get_function",
    "envoy_dynamic_module_callback_register_shared_data",
    "envoy_dynamic_module_callback_get_shared_data",
];

/// Functions that want something of the client's connection beside what a stream has of it anyway.
const OF_CONNECTIONS: [&str; 3] = [
    "envoy_dynamic_module_callback_http_get_timing_info",
    "envoy_dynamic_module_callback_http_set_filter_state_value",
    "envoy_dynamic_module_callback_http_set_filter_state_object",
];

/// What the names of libraries begin with that know nothing of the interface: those of languages.
const PLAIN: [&str; 6] = ["libc.so.", "libm.so.", "libpthread.so.", "libgcc_s.so.", "libstdc++.so.", "ld-linux"];

/// What a module's file says of its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// What tells it from others, as the admin shows it.
    pub(crate) digest: String,
    /// Functions for HTTP filters that do nothing and answer nothing or 0, in order.
    idle: Vec<String>,
    /// The module has no way to do something about a message that it is not asked about, but to let it go on.
    pub(crate) stays_in_hooks: bool,
    /// It may leave something for later requests of a connection, or ask when that began.
    pub(crate) uses_connection: bool,
    /// What it wants of whoever is not the proxy: its libraries, and the system's.
    pub(crate) wanted: Vec<CString>,
    /// Code of its own runs while it is loaded: constructors.
    pub(crate) runs_at_once: bool,
}

impl Contents {
    /// Whether the function of this name does nothing, and answers 0 if it answers.
    pub(crate) fn is_idle(&self, name: &str) -> bool {
        self.idle.binary_search_by(|idle| idle.as_str().cmp(name)).is_ok()
    }
}

/// # Errors
/// It is no shared object, or it wants functions that the proxy does not have, by their names.
pub(crate) fn check(content: &[u8]) -> Result<Contents, String> {
    let file = object::File::parse(content).map_err(|error| format!("no shared object: {error}"))?;
    // What a module only has a look whether it is there, it does without.
    let wanted = file.dynamic_symbols().filter(|symbol| symbol.is_undefined() && !symbol.is_weak());
    let unknown: Vec<&str> = wanted
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| name.starts_with(PREFIX) && OTHERS.binary_search(name).is_err())
        .filter(|name| FUNCTIONS.iter().all(|known| !known.contains(name)))
        .collect();
    if unknown.is_empty() {
        return Ok(Contents {
            digest: format!("{:016x}", fingerprint(0, content)),
            idle: idle(&file),
            stays_in_hooks: stays_in_hooks(&file),
            uses_connection: wants(&file, |name| OF_CONNECTIONS.contains(&name) || BY_OTHERS.contains(&name)),
            wanted: of_others(&file),
            runs_at_once: runs_at_once(&file),
        });
    }
    let mut error = format!("the module needs functions that this proxy does not have: {}", unknown.join(", "));
    let nowhere = needs(&file).map(|libraries| library::nowhere(of_others(&file), &libraries)).unwrap_or_default();
    if !nowhere.is_empty() {
        let nowhere: Vec<_> = nowhere.iter().map(|name| name.to_string_lossy()).collect();
        error.push_str(&format!("; and others that none of its libraries has: {}", nowhere.join(", ")));
    }
    Err(error)
}

/// What is looked for when the module is loaded, or when it is called first. Nothing is known of a module that loads
/// libraries by itself: what it needs may come with them.
fn of_others(file: &object::File<'_>) -> Vec<CString> {
    if wants(file, |name| matches!(name, "dlopen" | "dlmopen")) {
        return Vec::new();
    }
    let targets = file.dynamic_relocations().into_iter().flatten().filter_map(|(_, place)| match place.target() {
        RelocationTarget::Symbol(index) => file.dynamic_symbol_table()?.symbol_by_index(index).ok(),
        _ => None,
    });
    let undefined = targets.filter(|symbol| symbol.is_undefined() && !symbol.is_weak());
    let names = undefined.filter_map(|symbol| symbol.name().ok().filter(|name| !name.starts_with(PREFIX)));
    let mut wanted: Vec<CString> = names.filter_map(|name| CString::new(name).ok()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// One function is a compiler's own, which calls nothing that could be missing.
fn runs_at_once(file: &object::File<'_>) -> bool {
    const POINTER_BYTES: u64 = 8;
    file.section_by_name(".init_array").is_some_and(|section| section.size() > POINTER_BYTES)
}

/// The functions for HTTP filters that do nothing.
fn idle(file: &object::File<'_>) -> Vec<String> {
    let is_idle = |address: u64| {
        let section = file.sections().find(|section| {
            let start = section.address();
            section.kind() == SectionKind::Text && (start..start + section.size()).contains(&address)
        });
        let code =
            section.and_then(|section| section.data().ok()?.get(usize::try_from(address - section.address()).ok()?..));
        code.is_some_and(|code| does_nothing(file.architecture(), code))
    };
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let hooks = defined
        .filter_map(|symbol| Some((symbol.name().ok().filter(|name| name.starts_with(HOOKS))?, symbol.address())));
    let mut names: Vec<String> = hooks.filter(|(_, at)| is_idle(*at)).map(|(name, _)| name.to_owned()).collect();
    names.sort_unstable();
    names
}

/// Whether a function that begins so returns 0 at once, as compilers say that.
fn does_nothing(architecture: Architecture, code: &[u8]) -> bool {
    match architecture {
        Architecture::X86_64 => {
            // endbr64; xor eax, eax or mov eax, 0
            let code = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
            let zero: [&[u8]; 2] = [b"\x31\xc0", b"\xb8\x00\x00\x00\x00"];
            let code = zero.iter().find_map(|zero| code.strip_prefix(*zero)).unwrap_or(code);
            code.starts_with(b"\xc3")
        }
        Architecture::Aarch64 => {
            // bti c; mov w0, #0 or mov w0, wzr
            let code = code.strip_prefix(b"\x5f\x24\x03\xd5").unwrap_or(code);
            let zero = [b"\x00\x00\x80\x52", b"\xe0\x03\x1f\x2a"];
            let code = zero.iter().find_map(|zero| code.strip_prefix(&zero[..])).unwrap_or(code);
            code.starts_with(b"\xc0\x03\x5f\xd6")
        }
        _ => false,
    }
}

fn stays_in_hooks(file: &object::File<'_>) -> bool {
    let reaches = wants(file, |name| ON_MESSAGES.contains(&name) || BY_OTHERS.contains(&name));
    !reaches && needs(file).is_some_and(|all| all.iter().all(|name| PLAIN.iter().any(|plain| name.starts_with(plain))))
}

/// Whether it refers to a function of such a name.
fn wants(file: &object::File<'_>, such: impl Fn(&str) -> bool) -> bool {
    file.dynamic_symbols().any(|symbol| symbol.is_undefined() && symbol.name().is_ok_and(&such))
}

/// The libraries that a module is loaded with.
fn needs<'f>(file: &object::File<'f>) -> Option<Vec<&'f str>> {
    const NEEDED: u64 = 1;
    let data = |name| file.section_by_name_bytes(name)?.data().ok();
    let (entries, names) = (data(b".dynamic")?, data(b".dynstr")?);
    if !file.is_64() || !file.is_little_endian() {
        return None;
    }
    let mut needs = Vec::new();
    let (entries, _) = entries.as_chunks::<16>();
    for entry in entries {
        let [tag, value] = [0, 8].map(|at| Some(u64::from_le_bytes(*entry.get(at..)?.first_chunk()?)));
        if tag? == NEEDED {
            let name = names.get(usize::try_from(value?).ok()?..)?;
            needs.push(std::ffi::CStr::from_bytes_until_nul(name).ok()?.to_str().ok()?);
        }
    }
    Some(needs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry::{Entries, INIT, ListenerEntries, LoggerEntries, NetworkEntries};

    #[test]
    fn what_is_no_shared_object_is_told() {
        assert!(check(b"#!/bin/sh").unwrap_err().starts_with("no shared object"));
    }

    #[test]
    fn a_function_is_idle_that_returns_0_at_once() {
        let x86: [(&[u8], bool); 9] = [
            (b"\xc3", true),
            (b"\x31\xc0\xc3", true),
            (b"\xf3\x0f\x1e\xfa\x31\xc0\xc3", true),
            (b"\xb8\x00\x00\x00\x00\xc3", true),
            (b"\xf3\x0f\x1e\xfa", false),
            // It answers 1, or what it was given; it calls something else.
            (b"\xb8\x01\x00\x00\x00\xc3", false),
            (b"\x48\x89\xf8\xc3", false),
            (b"\x31\xc0\xe9\x00\x00\x00\x00", false),
            (b"", false),
        ];
        for (code, idle) in x86 {
            assert_eq!(does_nothing(Architecture::X86_64, code), idle, "{code:x?}");
        }
        let arm: [(&[u8], bool); 4] = [
            (b"\xc0\x03\x5f\xd6", true),
            (b"\x5f\x24\x03\xd5\x00\x00\x80\x52\xc0\x03\x5f\xd6", true),
            (b"\xe0\x03\x1f\x2a\xc0\x03\x5f\xd6", true),
            (b"\x20\x00\x80\x52\xc0\x03\x5f\xd6", false),
        ];
        for (code, idle) in arm {
            assert_eq!(does_nothing(Architecture::Aarch64, code), idle, "{code:x?}");
        }
        assert!(!does_nothing(Architecture::Riscv64, b"\xc3"));
    }

    /// What a shared object says that is built of this.
    fn built(source: &str) -> Contents {
        use std::io::Write;
        use std::process::{Command, Stdio};
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("postrider-elf-{}-{number}.so", std::process::id()));
        let mut compiler = Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-x", "c", "-", "-o"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success());
        let contents = check(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        contents
    }

    #[test]
    fn what_does_nothing_is_found_in_a_file() {
        let found = built(
            "#define ON(name) envoy_dynamic_module_on_http_filter_##name
             static int counted;
             void ON(a)(void) {}
             int ON(b)(int x) { return 0; }
             int ON(c)(int x) { return x; }
             int ON(d)(void) { return counted++, 0; }",
        );
        let idle = ["a", "b", "c", "d", "e"].map(|name| found.is_idle(&format!("{HOOKS}{name}")));
        assert_eq!(idle, [true, true, false, false, false]);
    }

    #[test]
    fn a_module_stays_in_its_hooks_that_has_no_way_out_of_them() {
        let with = |call: &str| built(&format!("void {call}(void); void f(void) {{ {call}(); }}")).stays_in_hooks;
        assert!(built("int b(void) { return 0; }").stays_in_hooks);
        assert!(with("envoy_dynamic_module_callback_http_get_header"));
        for call in ON_MESSAGES.iter().chain(&BY_OTHERS) {
            assert!(!with(call), "{call}");
        }
    }

    #[test]
    fn a_module_uses_connections_that_asks_for_something_of_theirs() {
        let with = |call: &str| built(&format!("void {call}(void); void f(void) {{ {call}(); }}")).uses_connection;
        assert!(!with("envoy_dynamic_module_callback_http_set_filter_state_bytes"));
        for call in OF_CONNECTIONS.iter().chain(&BY_OTHERS) {
            assert!(with(call), "{call}");
        }
    }

    #[test]
    fn what_a_module_wants_of_others_is_found() {
        let wanted = |more: &str| {
            let source = "int other(void); int known(void) { return 1; } void envoy_dynamic_module_callback_log(void);
                __attribute__((weak)) int perhaps(void); void *dlopen(const char *, int);
                int f(void) { envoy_dynamic_module_callback_log(); return other() + known() + perhaps(); }";
            let names = built(&format!("{source} {more}")).wanted;
            names.iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(wanted(""), ["other"]);
        assert_eq!(wanted("void *g(void) { return dlopen(\"more\", 1); }"), [""; 0], "it brings the rest itself");
    }

    #[test]
    fn a_module_with_a_constructor_runs_at_once() {
        assert!(!built("int f(void) { return 1; }").runs_at_once);
        assert!(built("int f(void); __attribute__((constructor)) void g(void) { f(); }").runs_at_once);
    }

    #[test]
    fn the_list_of_names_is_sorted() {
        assert!(OTHERS.is_sorted());
    }

    /// Every function of Envoy 1.40's, each with what it does here.
    const INTERFACE: &str = include_str!("interface.txt");

    /// The names of that kind which are in one of these states.
    fn listed(kind: &str, states: &[&str]) -> BTreeSet<String> {
        let lines = INTERFACE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parts = lines.map(|line| line.split(' ').collect::<Vec<_>>());
        let wanted = parts.filter_map(|parts| {
            let [of, name, state] = parts[..] else { panic!("{parts:?}") };
            let prefix = if of == "hook" { "envoy_dynamic_module_on_" } else { PREFIX };
            (of == kind && states.contains(&state)).then(|| format!("{prefix}{name}"))
        });
        wanted.collect()
    }

    #[test]
    fn the_list_of_the_interface_says_what_each_function_does() {
        let set = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect::<BTreeSet<_>>();
        let here = set(&mut FUNCTIONS.iter().flat_map(|names| names.iter().copied()));
        assert_eq!(listed("callback", &["works", "nothing"]), here);
        assert_eq!(listed("callback", &["other"]), set(&mut OTHERS.iter().copied()));
        let hooks = [Entries::NAMES, NetworkEntries::NAMES, ListenerEntries::NAMES, LoggerEntries::NAMES, &[INIT]];
        // One is our own, which says what a module wants to hear of.
        let hooks = hooks.iter().flat_map(|names| names.iter()).map(|name| name.to_str().unwrap());
        assert_eq!(listed("hook", &["called"]), set(&mut hooks.filter(|name| name.starts_with("envoy_"))));
    }
}
