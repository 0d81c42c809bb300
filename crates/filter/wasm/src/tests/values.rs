//! Properties, shared data, statistics, foreign functions and the system's interface.

use super::*;

/// A module that does this with each request's head.
fn with_head(body: &str) -> Vec<u8> {
    module(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) {body} (i32.const 0))"#
    ))
}

#[test]
fn properties_are_read_by_path() {
    let read = |path: &str, name: &str| {
        format!(
            r#"(call $note $"{name}.status" (call $get_property $"{path}" (i32.const 16) (i32.const 20)))
            (drop (call $set_property $"{name}" (call $place) (call $length)))"#
        )
    };
    let all = [
        read(r"request\00path", "path"),
        read(r"request\00headers\00x-one", "header"),
        read("plugin_name", "plugin"),
        read("plugin_root_id", "root"),
        read("plugin_vm_id", "vm"),
        read(r"node\00id", "node"),
        read(r"node\00metadata\00a", "metadata"),
        read("cluster_name", "cluster"),
    ];
    let none = [read("nothing", "nothing"), read(r"request\00nothing", "absent")];
    let mut trial = Trial::with("vm", &with_head(&(all.concat() + &none.concat())), &[]);
    Rc::get_mut(&mut trial.stream.host.node).unwrap().id = "unused".to_owned();
    trial.stream.info.upstream_cluster = Some("origin".into());
    trial.head(true);
    let noted = |name: &str| trial.noted(name).unwrap_or_default();
    assert_eq!(
        ["path", "header", "plugin", "root", "vm", "cluster"].map(noted),
        ["/path?query", "1", "plugin", "root", "vm", "origin"]
    );
    assert_eq!(["path.status", "nothing.status", "absent.status", "metadata.status"].map(noted), ["0", "1", "1", "1"]);
}

#[test]
fn what_was_written_is_read_back() {
    let mut trial = Trial::new(&with_head(
        r#"(call $note $"before" (call $get_property $"mine" (i32.const 16) (i32.const 20)))
        (drop (call $set_property $"mine" $"bytes\ff\00"))
        (drop (call $get_property $"mine" (i32.const 16) (i32.const 20)))
        (call $note $"length" (call $length))
        (drop (call $set_property $"mine" $"text"))
        (drop (call $get_property $"mine" (i32.const 16) (i32.const 20)))
        (call $note $"again" (call $length))
        (call $note $"outside" (call $set_property (i32.const -1) (i32.const 9) $"x"))"#,
    ));
    trial.head(true);
    let noted = ["before", "length", "mine", "again", "outside"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["1", "7", "text", "4", "6"]);
}

#[test]
fn a_property_without_a_name_is_not_read_back() {
    let mut trial = Trial::new(&with_head(
        r#"(call $note $"set" (call $set_property $"" $"text"))
        (call $note $"get" (call $get_property $"" (i32.const 16) (i32.const 20)))"#,
    ));
    trial.head(true);
    assert_eq!(["set", "get"].map(|name| trial.noted(name).unwrap()), ["0", "3"]);
}

#[test]
fn shared_data_and_queues_have_a_life_beyond_streams() {
    let mut trial = Trial::with(
        "shares",
        &with_head(
            r#"(call $note $"absent" (call $get_shared $"k" (i32.const 16) (i32.const 20) (i32.const 24)))
            (drop (call $set_shared $"k" $"value" (i32.const 0)))
            (drop (call $get_shared $"k" (i32.const 16) (i32.const 20) (i32.const 24)))
            (drop (call $set_property $"value" (call $place) (call $length)))
            (call $note $"mismatch" (call $set_shared $"k" $"x" (i32.add (i32.load (i32.const 24)) (i32.const 9))))
            (call $note $"match" (call $set_shared $"k" $"x" (i32.load (i32.const 24))))
            (call $note $"register" (call $register_queue $"q" (i32.const 32)))
            (call $note $"resolve" (call $resolve_queue $"" $"q" (i32.const 36)))
            (call $note $"same" (i32.eq (i32.load (i32.const 32)) (i32.load (i32.const 36))))
            (call $note $"unknown" (call $resolve_queue $"nobody" $"q" (i32.const 36)))
            (call $note $"empty" (call $dequeue (i32.load (i32.const 32)) (i32.const 16) (i32.const 20)))
            (drop (call $enqueue (i32.load (i32.const 32)) $"message"))
            (drop (call $dequeue (i32.load (i32.const 32)) (i32.const 16) (i32.const 20)))
            (drop (call $set_property $"message" (call $place) (call $length)))
            (call $note $"wrong" (call $enqueue (i32.const 0) $"x"))"#,
        ),
        &[],
    );
    trial.head(true);
    let names =
        ["absent", "value", "mismatch", "match", "register", "resolve", "same", "unknown", "empty", "message", "wrong"];
    let noted = names.map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["1", "value", "8", "0", "0", "0", "1", "1", "7", "message", "1"]);
}

#[test]
fn a_queue_tells_its_owner_on_its_worker() {
    let mut trial = Trial::with(
        "tells",
        &module(
            r#"(func (export "proxy_on_configure") (param i32 i32) (result i32)
                (drop (call $register_queue $"q" (i32.const 32)))
                (i32.const 1))
            (func (export "proxy_on_queue_ready") (param i32 i32)
                (drop (call $dequeue (local.get 1) (i32.const 16) (i32.const 20)))
                (drop (call $set_shared $"heard" (call $place) (call $length) (i32.const 0))))"#,
        ),
        &[],
    );
    let token = crate::shared::resolve("tells", b"q").unwrap();
    crate::shared::enqueue(token, b"news").unwrap();
    assert_eq!(trial.host.run_posted(), 1);
    let mut heard = Vec::new();
    crate::shared::Space::of("tells").get(b"heard", &mut heard).unwrap();
    assert_eq!(heard, b"news");
    trial.end();
}

#[test]
fn statistics_are_defined_and_counted() {
    let mut trial = Trial::new(&with_head(
        r#"(drop (call $define_metric (i32.const 0) $"values_counter" (i32.const 32)))
        (drop (call $define_metric (i32.const 1) $"values_gauge" (i32.const 36)))
        (drop (call $define_metric (i32.const 2) $"values_histogram" (i32.const 40)))
        (call $note $"kind" (call $define_metric (i32.const 3) $"x" (i32.const 44)))
        (drop (call $increment (i32.load (i32.const 32)) (i64.const 2)))
        (call $note $"back" (call $increment (i32.load (i32.const 32)) (i64.const -1)))
        (drop (call $record (i32.load (i32.const 36)) (i64.const 9)))
        (drop (call $increment (i32.load (i32.const 36)) (i64.const -4)))
        (drop (call $record (i32.load (i32.const 40)) (i64.const 7)))
        (drop (call $get_metric (i32.load (i32.const 36)) (i32.const 48)))
        (call $note $"gauge" (i32.load (i32.const 48)))
        (call $note $"read" (call $get_metric (i32.load (i32.const 40)) (i32.const 48)))
        (call $note $"unknown" (call $record (i32.const 99) (i64.const 1)))"#,
    ));
    trial.head(true);
    let noted = ["kind", "back", "gauge", "read", "unknown"].map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["2", "2", "5", "2", "1"]);
    let counters = trial.stats.read(&[]);
    let counter = counters.iter().find(|scope| scope.set.cells.iter().any(|cell| cell.name == "values_counter"));
    let counter = counter.unwrap();
    assert_eq!((counter.set.scope_name(&counter.prefix).as_str(), counter.cell(0)), ("wasmcustom.", 2));
}

#[test]
fn a_statistic_may_have_labels_and_spaces_in_its_name() {
    let labels = "reporter=.=source;.;".repeat(30);
    let mut trial = Trial::new(&with_head(&format!(
        r#"(call $note $"labels" (call $define_metric (i32.const 0) $"{labels}" (i32.const 32)))
        (call $note $"space" (call $define_metric (i32.const 0) $"of two words" (i32.const 32)))
        (call $note $"line" (call $define_metric (i32.const 0) $"a\0ab" (i32.const 32)))"#
    )));
    trial.head(true);
    assert_eq!(["labels", "space", "line"].map(|name| trial.noted(name).unwrap()), ["0", "0", "2"]);
}

#[test]
fn foreign_functions_are_found_by_name() {
    let mut trial = Trial::new(&with_head(
        r#"(call $note $"unknown" (call $foreign $"nothing" $"" (i32.const 16) (i32.const 20)))
        (drop (call $foreign $"compress" $"hello hello hello" (i32.const 16) (i32.const 20)))
        (drop (call $foreign $"uncompress" (call $place) (call $length) (i32.const 16) (i32.const 20)))
        (drop (call $set_property $"back" (call $place) (call $length)))
        (call $note $"route" (call $foreign $"clear_route_cache" $"" (i32.const 0) (i32.const 0)))
        (call $note $"state"
            (call $foreign $"set_envoy_filter_state" $"\0a\0cenvoy.string\12\05value" (i32.const 0) (i32.const 0)))
        (call $note $"made" (call $foreign $"set_envoy_filter_state" $"\0a\03key\12\05value" (i32.const 0) (i32.const 0)))
        (call $note $"made of" (call $foreign $"set_envoy_filter_state" $"\0a\0aenvoy.bool\12\05value" (i32.const 0) (i32.const 0)))
        (drop (call $foreign $"expr_create" $"request.path + '!'" (i32.const 16) (i32.const 20)))
        (drop (call $foreign $"expr_evaluate" (call $place) (call $length) (i32.const 16) (i32.const 20)))
        (drop (call $set_property $"expression" (call $place) (call $length)))
        (call $note $"wrong" (call $foreign $"expr_create" $"1 +" (i32.const 16) (i32.const 20)))
        (call $note $"declare" (call $foreign $"declare_property" $"\0a\04once\10\01" (i32.const 0) (i32.const 0)))
        (call $note $"again" (call $foreign $"declare_property" $"\0a\04once\10\01" (i32.const 0) (i32.const 0)))
        (drop (call $set_property $"once" $"1"))
        (call $note $"twice" (call $set_property $"once" $"2"))"#,
    ));
    trial.head(true);
    assert!(trial.stream.info.route_is_stale);
    let state =
        trial.stream.info.filter_state.iter().find(|(name, _)| name == "envoy.string").map(|(_, value)| value.clone());
    assert_eq!(state, Some(text("value")));
    let names = ["unknown", "back", "route", "state", "made", "made of", "expression", "wrong"];
    let noted = names.map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["1", "hello hello hello", "0", "0", "1", "2", "/path?query!", "2"]);
    // What a stream declares holds for nothing, and is declared once.
    assert_eq!(["declare", "again", "once", "twice"].map(|name| trial.noted(name).unwrap()), ["0", "2", "2", "0"]);
}

/// They were the machine's: one plugin found those of another, and those of one that was gone stayed.
#[test]
fn expressions_are_their_plugins_and_go_with_it() {
    let module = with_head(
        r#"(i32.store (i32.const 40) (i32.const 0))
        (call $note $"before" (call $foreign $"expr_evaluate" (i32.const 40) (i32.const 4) (i32.const 16) (i32.const 20)))
        (loop $more
            (i32.store (i32.const 44) (i32.add (i32.load (i32.const 44)) (i32.const 1)))
            (br_if $more (i32.and
                (i32.eqz (call $foreign $"expr_create" $"request.path" (i32.const 16) (i32.const 20)))
                (i32.lt_u (i32.load (i32.const 44)) (i32.const 2000)))))
        (call $note $"all" (i32.eq (i32.load (i32.const 44)) (i32.const 1001)))
        (i32.store (i32.const 44) (i32.const 0))
        (call $note $"after" (call $foreign $"expr_evaluate" (i32.const 40) (i32.const 4) (i32.const 16) (i32.const 20)))"#,
    );
    let _keeps_the_machine = Trial::with("expressions", &module, &[]);
    for plugin in ["the first", "another one in the same machine"] {
        let mut trial = Trial::with("expressions", &module, &[]);
        trial.head(true);
        let noted = ["before", "all", "after"].map(|name| trial.noted(name).unwrap());
        assert_eq!(noted, ["1", "1", "0"], "{plugin}");
        trial.end();
    }
}

/// Each row was observed on Envoy 1.40.
#[test]
fn what_is_declared_to_last_is_found_by_later_requests_of_the_connection() {
    let declare = |name: &str, fields: &str| {
        let length = name.len();
        format!(
            r#"(drop (call $foreign $"declare_property" $"\0a\{length:02x}{name}{fields}" (i32.const 0) (i32.const 0)))"#
        )
    };
    let declared =
        [declare("lasts", r"\28\02"), declare("fixed", r"\10\01\28\02"), declare("gone", r"\28\01")].concat();
    let write = |name: &str| format!(r#"(call $note $"{name} said" (call $set_property $"{name}" $"{name}\ff"))"#);
    let module = module(&format!(
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) {declared} (i32.const 1))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $note $"lasts before" (call $get_property $"lasts" (i32.const 16) (i32.const 20)))
            (call $note $"length" (call $length))
            (call $note $"gone before" (call $get_property $"gone" (i32.const 16) (i32.const 20)))
            {} (drop (call $foreign $"set_envoy_filter_state" $"\0a\0cenvoy.string\12\01v\18\02" (i32.const 0) (i32.const 0)))
            (i32.const 0))"#,
        ["lasts", "fixed", "gone"].map(write).concat()
    ));
    let noted = Rc::new(postrider_filter_api::Noted::default());
    let mut trial = Trial::new(&module);
    let mut ask = || {
        let names = ["lasts before", "gone before", "lasts said", "fixed said", "gone said"];
        trial.stream.info = postrider_filter_api::testing::FakeStream::new("GET", "/", &[]).info;
        noted.begin(&mut trial.stream.info);
        let object = trial.stream.info.filter_state.iter().any(|(name, _)| name == "envoy.string");
        trial.head(true);
        (names.map(|name| trial.noted(name).unwrap()).join(" "), object)
    };
    assert_eq!(ask(), ("1 1 0 0 0".to_owned(), false));
    assert_eq!(ask(), ("0 1 0 2 0".to_owned(), true));
    assert_eq!(trial.noted("length").unwrap(), "6", "what is no text, too");
}

#[test]
fn logs_levels_and_clocks_answer() {
    let mut trial = Trial::new(&with_head(
        r#"(call $note $"log" (call $log (i32.const 0) $"text"))
        (call $note $"level" (call $log (i32.const 9) $"text"))
        (call $note $"threshold" (call $log_level (i32.const 24)))
        (call $note $"time" (call $time (i32.const 24)))
        (call $note $"outside" (call $time (i32.const -4)))
        (call $note $"status" (call $get_status (i32.const 24) (i32.const 16) (i32.const 20)))"#,
    ));
    trial.head(true);
    let names = ["log", "level", "threshold", "time", "outside", "status"];
    assert_eq!(names.map(|name| trial.noted(name).unwrap()), ["0", "2", "0", "0", "6", "0"]);
}

#[test]
fn the_systems_interface_has_output_chance_and_environment_and_no_files() {
    let functions = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.store (i32.const 100) (i32.const 1024))
        (i32.store (i32.const 104) (i32.const 2))
        (call $note $"write" (call $fd_write (i32.const 1) (i32.const 100) (i32.const 1) (i32.const 108)))
        (call $note $"written" (i32.load (i32.const 108)))
        (call $note $"descriptor" (call $fd_write (i32.const 7) (i32.const 100) (i32.const 1) (i32.const 108)))
        (drop (call $environ_sizes (i32.const 112) (i32.const 116)))
        (call $note $"variables" (i32.load (i32.const 112)))
        (drop (call $environ (i32.const 120) (i32.const 130)))
        (drop (call $set_property $"variable" (i32.load (i32.const 120)) (i32.sub (i32.load (i32.const 116)) (i32.const 1))))
        (call $note $"random" (call $random (i32.const 200) (i32.const 8)))
        (call $note $"chance" (i64.ne (i64.load (i32.const 200)) (i64.const 0)))
        (call $note $"clock" (call $clock (i32.const 1) (i64.const 0) (i32.const 208)))
        (call $note $"none" (i32.eq (call $clock (i32.const 9) (i64.const 0) (i32.const 208)) (i32.const 58)))
        (call $note $"open" (i32.eq (call $open (i32.const 3)) (i32.const 58)))
        (call $note $"resolution" (call $resolution (i32.const 1) (i32.const 208)))
        (call $note $"nanoseconds" (i32.wrap_i64 (i64.load (i32.const 208))))
        (call $note $"place" (call $tell (i32.const 1) (i32.const 208)))
        (call $note $"beginning" (i64.eqz (i64.load (i32.const 208))))
        (call $note $"no place" (call $tell (i32.const 0) (i32.const 208)))
        (i32.const 0))"#;
    let imports = r#"
    (import "wasi_snapshot_preview1" "clock_res_get" (func $resolution (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_tell" (func $tell (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_unstable" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
    (import "wasi_unstable" "environ_get" (func $environ (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_create_directory" (func $open (param i32) (result i32)))
    "#;
    let text_of = |text: &str| text.to_owned();
    let whole = super::module_with(imports, functions);
    let environment = map([("key_values", map([("NAME", text(&text_of("value")))]))]);
    let vm = map([("code", map([("local", code(&whole))])), ("environment_variables", environment)]);
    let factory = build(ENVOY, &map([("config", map([("vm_config", vm)]))])).unwrap();
    let mut trial = Trial::of(factory, None);
    trial.head(true);
    let names =
        ["write", "written", "descriptor", "variables", "variable", "random", "chance", "clock", "none", "open"];
    let noted = names.map(|name| trial.noted(name).unwrap());
    assert_eq!(noted, ["0", "2", "8", "1", "NAME=value", "0", "1", "0", "1", "1"]);
    let more = ["resolution", "nanoseconds", "place", "beginning", "no place"];
    assert_eq!(more.map(|name| trial.noted(name).unwrap()), ["0", "1", "0", "1", "8"]);
}

#[test]
fn a_recursion_that_ends_in_envoy_ends_here() {
    const FRAMES: u32 = 24_430;
    let functions = format!(
        r#"
    (func $deep (param i32 i32 i32) (result i32)
        (local i32)
        (if (i32.eqz (local.get 0)) (then (return (i32.xor (local.get 1) (local.get 2)))))
        (local.set 3 (call $deep
            (i32.sub (local.get 0) (i32.const 1))
            (i32.add (i32.mul (local.get 1) (i32.const 3)) (local.get 2))
            (i32.xor (local.get 2) (local.get 0))))
        (i32.add (i32.add (local.get 3) (i32.xor (local.get 1) (local.get 0))) (i32.mul (local.get 2) (local.get 3))))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $deep (i32.const {FRAMES}) (i32.const 1) (i32.const 2)))
        (call $note $"returned" (i32.const 1))
        (drop (call $deep (i32.const -1) (i32.const 1) (i32.const 2)))
        (call $note $"never" (i32.const 1))
        (i32.const 0))"#
    );
    let mut trial = Trial::new(&module(&functions));
    trial.head(true);
    assert_eq!(trial.noted("returned").as_deref(), Some("1"));
    assert_eq!(trial.noted("never"), None, "one without an end is stopped");
}
