//! What each level of the sandbox leaves, and what it takes away.

use serde_json::json;

use super::{Trial, out_of, show, v2};

fn at(level: &str, expression: &str) -> String {
    let script = v2(&[("request_header", &show(expression))]);
    out_of(&mut Trial::manifest(&script, json!({ "sandbox": level })).unwrap()).unwrap()
}

/// What is there at every level.
const ALWAYS: [&str; 28] = [
    "getfenv",
    "setfenv",
    "loadstring",
    "load",
    "unpack",
    "pcall",
    "xpcall",
    "select",
    "require",
    "print",
    "rawlen",
    "table.pack",
    "table.concat",
    "string.format",
    "string.dump",
    "math.random",
    "coroutine.wrap",
    "coroutine.yield",
    "bit.band",
    "os.time",
    "os.date",
    "os.clock",
    "os.difftime",
    "collectgarbage",
    "setmetatable",
    "newproxy",
    "module",
    "tostring",
];

/// What only `full` has.
const FULL: [&str; 18] = [
    "os.exit",
    "os.execute",
    "os.remove",
    "os.rename",
    "os.tmpname",
    "os.setlocale",
    "io.popen",
    "io.tmpfile",
    "io.write",
    "package.loadlib",
    "debug.sethook",
    "debug.getregistry",
    "jit.attach",
    "debug.setlocal",
    "debug.setupvalue",
    "debug.upvalueid",
    "debug.upvaluejoin",
    "require('ffi').load",
];

/// What `strict` has not.
const NOT_STRICT: [&str; 8] =
    ["os.getenv", "io.open", "io.lines", "debug.traceback", "debug.getinfo", "jit.on", "loadfile", "dofile"];

#[test]
fn each_level_has_what_it_should_and_nothing_more() {
    let exists = |level: &str, name: &str| {
        let (library, field) = name.rsplit_once('.').map_or(("_G", name), |(library, field)| (library, field));
        at(level, &format!("type(({library} or {{}}).{field})")) == "function"
    };
    for level in ["full", "standard", "strict"] {
        for name in ALWAYS {
            assert!(exists(level, name), "{level} {name}");
        }
        for name in FULL.iter().filter(|name| level != "strict" || !name.contains("require")) {
            assert_eq!(exists(level, name), level == "full", "{level} {name}");
        }
        for name in NOT_STRICT {
            assert_eq!(exists(level, name), level != "strict", "{level} {name}");
        }
    }
}

#[test]
fn standard_reads_files_and_writes_none() {
    let file = std::env::temp_dir().join(format!("postrider-rider-sandbox-{}", std::process::id()));
    std::fs::write(&file, "content").unwrap();
    let path = file.display();
    let read = format!("io.open('{path}'):read('*a')");
    assert_eq!(at("standard", &read), "content");
    assert_eq!(at("standard", &read.replace("')", "', 'rb')").replace("read('*a', 'rb')", "read('*a')")), "content");
    for mode in ["w", "a", "r+", "w+"] {
        assert!(at("standard", &format!("io.open('{path}', '{mode}')")).starts_with("nil|files can only be read"));
    }
    assert!(at("standard", &format!("require('ffi').load('{path}')")).starts_with("E: "));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "content");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn standard_loads_no_machine_code() {
    assert_eq!(at("standard", "#package.loaders"), "2");
    assert_eq!(at("full", "#package.loaders >= 4"), "true");
    assert_eq!(at("strict", "#package.loaders"), "1");
}

#[test]
fn strict_takes_no_precompiled_code() {
    for loader in ["load", "loadstring"] {
        assert_eq!(at("standard", &format!("{loader}(string.dump(function() return 7 end))()")), "7");
        assert!(
            at("strict", &format!("{loader}(string.dump(function() return 7 end))")).starts_with("nil|"),
            "{loader}"
        );
        assert!(at("strict", &format!("{loader}(string.dump(function() return 7 end), 'x', 'b')")).starts_with("nil|"));
        assert_eq!(at("strict", &format!("{loader}('return 7')()")), "7");
    }
    assert!(
        at("strict", "load(function() local s = dumped dumped = nil return s end)").starts_with("function"),
        "nothing to read"
    );
    assert!(at("strict", "dumped = string.dump(print and function() end); load(function() local s = dumped dumped = nil return s end)").starts_with("nil|"));
    assert_eq!(at("strict", "load('return x', 'x', 't', { x = 8 })()"), "8");
}

#[test]
fn precompiled_plugins_are_refused_at_every_level() {
    let dumped = "G0xKAgo=";
    let config = json!({ "name": "test", "runtime": "rider", "code": { "inline_bytes": dumped }, "options": { "sandbox": "full" } });
    assert!(crate::testing::Trial::new(super::MANIFEST, &config.to_string(), None).is_err());
}

#[test]
fn a_plugin_that_needs_what_strict_has_not_fails_to_load_and_says_why() {
    for (module, script) in [
        ("ffi", "local ffi = require('ffi') return {}"),
        ("io", "local io = require('io') return {}"),
        ("debug", "local d = require 'debug' return {}"),
        ("jit", "require('jit') return {}"),
        ("jit.util", "require('jit.util') return {}"),
        ("jit.profile", "require('jit.profile') return {}"),
        ("string.buffer", "require('string.buffer') return {}"),
    ] {
        let errors = Trial::manifest(script, json!({ "sandbox": "strict" })).err().unwrap();
        let expected = format!("the sandbox level `strict` has no `{module}`");
        assert!(errors[0].message.contains(&expected), "{}", errors[0].message);
    }
    let errors =
        Trial::manifest("local x = io.open('/etc/passwd') return {}", json!({ "sandbox": "strict" })).err().unwrap();
    assert!(errors[0].message.contains("global 'io'"), "{}", errors[0].message);
}

#[test]
fn the_sdk_works_at_every_level() {
    for level in ["full", "standard", "strict"] {
        let expression = "req.get_header(':method'), require('cjson').encode({ 1 }), require('base64').encode('a'), \
            require('md5').sumhexa(''), type(require('cjson').null), require('inspect')({}), \
            require('jsonschema').generate_validator({ type = 'string' })('x')";
        assert_eq!(at(level, expression), "GET|[1]|YQ==|d41d8cd98f00b204e9800998ecf8427e|userdata|{}|true", "{level}");
    }
}

#[test]
fn strict_hands_out_no_pointers_and_has_no_finalisers() {
    for (expression, why) in [
        ("require('rider.base').get_context_handle()", "has no pointers"),
        ("require('rider.base').get_string_buf()", "has no pointers"),
        ("newproxy(true)", "no proxies with metatables"),
    ] {
        let got = at("strict", expression);
        assert!(got.starts_with("E: ") && got.contains(why), "{expression}: {got}");
        assert!(at("standard", &format!("type({expression})")).ends_with("data"), "{expression}");
    }
    assert_eq!(at("strict", "type(newproxy()), type(newproxy(false))"), "userdata|userdata");
    // Patterns are made with buffers; scripts are given none of them.
    assert_eq!(at("strict", "type(package.loaded['string.buffer']), (('a-b'):gsub('%-', '+'))"), "nil|a+b");
}

#[test]
fn strict_reaches_no_ffi_by_what_the_sdk_hands_out() {
    for expression in
        ["type(package.loaded.ffi)", "type(package.preload.ffi and select(2, pcall(package.preload.ffi)))"]
    {
        assert_ne!(at("strict", expression), "table", "{expression}");
    }
}

/// A named pipe that nobody writes to.
struct Pipe(std::path::PathBuf);

impl Pipe {
    fn new(name: &str) -> Pipe {
        let path = std::env::temp_dir().join(format!("postrider-rider-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        Pipe(path)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_that_would_keep_the_worker_waiting_is_not_opened() {
    let pipe = Pipe::new("waits");
    for name in [pipe.0.to_str().unwrap(), "/dev/zero", "/dev/ptmx"] {
        let why = format!("{name}: reading this could wait without end");
        for opened in ["io.open('NAME')", "io.open('NAME', 'rb')", "loadfile('NAME')"] {
            let got = at("standard", &opened.replace("NAME", name));
            assert!(got.starts_with(&format!("nil|{why}")), "{opened}: {got}");
        }
        for raised in ["io.lines('NAME')", "io.input('NAME')", "dofile('NAME')", "io.open('NAME\\0x')"] {
            let got = at("standard", &raised.replace("NAME", name));
            assert!(got.contains("could wait without end"), "{raised}: {got}");
        }
    }
    assert_eq!(at("standard", "io.open('/dev/null'):read('*a'), #io.open('/dev/urandom'):read(8)"), "|8");
    assert!(at("standard", "io.open('/no/such/file')").starts_with("nil|/no/such/file: No such file"));
}

#[test]
fn standard_leaves_the_input_of_the_process_alone() {
    for expression in ["io.read()", "io.lines()", "io.input()", "dofile()"] {
        let got = at("standard", expression);
        assert!(got.starts_with("E: ") && got.contains("standard input cannot be read"), "{expression}: {got}");
    }
    assert!(at("standard", "loadfile()").starts_with("nil|the process's standard input cannot be read"));
    assert_eq!(at("standard", "io.stdin"), "nil");
    let file = std::env::temp_dir().join(format!("postrider-rider-input-{}", std::process::id()));
    std::fs::write(&file, "one\ntwo\nthree").unwrap();
    let own = format!("io.type(io.input('{}')), io.read(), io.lines()(), io.input():read('*a')", file.display());
    assert_eq!(at("standard", &own), "file|one|two|three");
    std::fs::remove_file(&file).unwrap();
}
