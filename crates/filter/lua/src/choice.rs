//! Scripts beside the filter chain: which cluster a request goes to
//! (`envoy.extensions.router.cluster_specifiers.lua.v3`), and whether a text matches
//! (`envoy.extensions.string_matcher.lua.v3`).
//!
//! A script is tried out where its configuration is read, and runs in a machine of each worker. It cannot wait; one that
//! fails is logged, and the configuration's fallback counts. One that has to be stopped is left alone for a while, as plugins
//! are: the fallback counts without a call.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use postrider_filter_api::plugin::{DEFAULT_CPU, DEFAULT_MEMORY, Facts, Policy};
use postrider_filter_api::{Chooser, Clusters, ConfigError, Judge, Moment, Sampling, Sources, counts_here};
use postrider_filter_plugin::stat::route as account;
use postrider_filter_plugin::{Account, Circuit, Code};
use postrider_http::RequestHead;
use postrider_model::{Value, ValueError};
use postrider_telemetry::Block;
use postrider_telemetry::log::{Component, Level};

use crate::abi::{Choice, Context, TABLE};
use crate::checkhook;
use crate::config::TYPED_CIRCUIT;
use crate::program::Sandbox;
use crate::sdk;
use crate::vm::{Argument, Fault, Ref, Vm};

pub(crate) const SPECIFIER_KIND: &str = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig";
pub(crate) const MATCHER_KIND: &str = "envoy.extensions.string_matcher.lua.v3.Lua";

/// What the scripts of each kind are called together, in statistics and by the admin.
const SPECIFIER: &str = "envoy.router.cluster_specifier_plugin.lua";
const MATCHER: &str = "envoy.string_matcher.lua";

/// Reads `LuaConfig`.
pub(crate) fn build_chooser(value: &Value) -> Result<Chooser, ConfigError> {
    let (code, default_cluster) = read(value, Some("default_cluster"))?;
    let specifier = cluster_specifier(&code.source, &code.text, &default_cluster).map_err(does_not_load)?;
    note(SPECIFIER, &code);
    let token = Arc::new(());
    Ok(Arc::new(move |request, clusters| {
        let own = of_worker(&token, || specifier.on_worker());
        Some(own.cluster(request, clusters).to_string())
    }))
}

/// Reads the string matcher's `Lua`.
pub(crate) fn build_judge(value: &Value) -> Result<Judge, ConfigError> {
    let (code, _) = read(value, None)?;
    let matcher = string_matcher(&code.source, &code.text).map_err(does_not_load)?;
    note(MATCHER, &code);
    let token = Arc::new(());
    Ok(Arc::new(move |text| of_worker(&token, || matcher.on_worker()).matches(text)))
}

/// What this worker made of a configuration, which `token` stands for; made by `make` when it is first needed. What was
/// made of configurations that are gone goes when another one comes.
fn of_worker<T: 'static>(token: &Arc<()>, make: impl FnOnce() -> T) -> Rc<T> {
    type Made = (Weak<()>, Rc<dyn Any>);
    thread_local! {
        static MADE: RefCell<Vec<Made>> = const { RefCell::new(Vec::new()) };
    }
    let known = MADE.with_borrow(|made| {
        let (_, own) = made.iter().find(|(of, _)| ptr::eq(of.as_ptr(), Arc::as_ptr(token)))?;
        own.clone().downcast().ok()
    });
    known.unwrap_or_else(|| {
        let own = Rc::new(make());
        MADE.with_borrow_mut(|made| {
            made.retain(|(of, _)| of.strong_count() > 0);
            made.push((Arc::downgrade(token), own.clone()));
        });
        own
    })
}

fn read(value: &Value, text: Option<&str>) -> Result<(Code, String), ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let code = match fields.map("source_code").map_err(|error| vec![error])? {
        Some(source) => Code::read_data_source(source)?,
        None => return Err(vec![fields.error("source_code", "there is no `source_code`")]),
    };
    let text = match text {
        Some(key) => fields.string(key).map_err(|error| vec![error])?.unwrap_or_default().to_owned(),
        None => String::new(),
    };
    fields.finish()?;
    Ok((code, text))
}

/// For whoever makes a plan of it: a change of the file is a new version, and the admin shows the script.
fn note(name: &str, code: &Code) {
    let facts = Facts {
        name: name.to_owned(),
        version: String::new(),
        runtime: "envoy-lua",
        source: code.source.clone(),
        digest: code.digest.clone(),
        policy: Policy { circuit: TYPED_CIRCUIT, ..Policy::default() },
        config: Value::Null,
        schema: None,
    };
    Sources::note(&code.files, facts);
}

fn does_not_load(message: String) -> ConfigError {
    vec![ValueError { path: "source_code".to_owned(), message: format!("script load error: {message}") }]
}

/// A script that names the cluster for a request.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSpecifier {
    script: Arc<Script>,
    default_cluster: Arc<str>,
}

/// A script that says whether a text matches.
#[derive(Debug, Clone)]
pub(crate) struct StringMatcher(Arc<Script>);

/// The specifier on one worker.
pub(crate) struct WorkerSpecifier {
    runner: Runner,
    default_cluster: Arc<str>,
}

/// The matcher on one worker.
pub(crate) struct WorkerMatcher(Runner);

/// Tries out a script with `envoy_on_route(handle)`. Requests for which it fails go to `default_cluster`.
///
/// # Errors
/// It does not load, or has no such function.
pub(crate) fn cluster_specifier(name: &str, source: &[u8], default_cluster: &str) -> Result<ClusterSpecifier, String> {
    let script = Script::new(SPECIFIER, name, source, "envoy_on_route", c"route")?;
    Ok(ClusterSpecifier { script, default_cluster: default_cluster.into() })
}

/// Tries out a script with `envoy_match(text)`. A text for which it fails does not match.
///
/// # Errors
/// It does not load, or has no such function.
pub(crate) fn string_matcher(name: &str, source: &[u8]) -> Result<StringMatcher, String> {
    Ok(StringMatcher(Script::new(MATCHER, name, source, "envoy_match", c"match")?))
}

impl ClusterSpecifier {
    /// For the calling worker.
    pub(crate) fn on_worker(&self) -> WorkerSpecifier {
        WorkerSpecifier { runner: Runner::new(&self.script), default_cluster: self.default_cluster.clone() }
    }
}

impl WorkerSpecifier {
    /// The cluster for this request.
    pub(crate) fn cluster(&self, request: &RequestHead, clusters: &dyn Clusters) -> Rc<str> {
        let mut choice = Choice { request, clusters, bytes: Vec::new() };
        let chosen = choice.during(|| self.runner.call(&[], c"cluster"));
        chosen.map_or_else(|| Rc::from(&*self.default_cluster), |name| Rc::from(name.as_str()))
    }
}

impl StringMatcher {
    /// For the calling worker.
    pub(crate) fn on_worker(&self) -> WorkerMatcher {
        WorkerMatcher(Runner::new(&self.0))
    }
}

impl WorkerMatcher {
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.0.call(&[Argument::Text(text)], c"matches").is_some()
    }
}

#[derive(Debug)]
struct Script {
    kind: &'static str,
    /// Where it comes from.
    name: String,
    source: Vec<u8>,
    function: &'static std::ffi::CStr,
}

impl Script {
    fn new(
        kind: &'static str,
        name: &str,
        source: &[u8],
        global: &str,
        function: &'static std::ffi::CStr,
    ) -> Result<Arc<Script>, String> {
        let script = Script { kind, name: name.to_owned(), source: source.to_vec(), function };
        match Loaded::new(&script) {
            Ok(Some(_)) => Ok(Arc::new(script)),
            Ok(None) => Err(format!("the script has no function {global}")),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// A script in a machine.
struct Loaded {
    vm: Vm,
    /// Boxed: the machine knows its address.
    context: Box<Context>,
    chosen: Ref,
    function: Ref,
    last_turn: Cell<i32>,
}

impl Loaded {
    /// `None` when the script lacks the function.
    fn new(script: &Script) -> Result<Option<Loaded>, Fault> {
        checkhook::required()?;
        let vm = Vm::new(DEFAULT_MEMORY, DEFAULT_CPU)?;
        let context = Box::new(Context::default());
        context.side.set(-1);
        let address: *const Context = &*context;
        let border = vm.run(
            "=postrider.abi",
            sdk::ABI.as_bytes(),
            &[Argument::Pointer((&raw const TABLE).cast()), Argument::Pointer(address.cast()), Argument::Mark],
        )?;
        let border = border.ok_or_else(|| Fault::Error("the SDK did not load".to_owned()))?;
        let Some(chosen) =
            sdk::install_choice(&vm, border, Sandbox::default(), &format!("={}", script.name), &script.source)?
        else {
            return Ok(None);
        };
        let Some(function) = vm.function(chosen, script.function) else { return Ok(None) };
        Ok(Some(Loaded { vm, context, chosen, function, last_turn: Cell::new(0) }))
    }
}

/// A script on one worker; its machine is made with the first call, and again when its memory was used up.
struct Runner {
    script: Arc<Script>,
    loaded: RefCell<Option<Loaded>>,
    circuit: Circuit,
    /// `None` on threads that are no workers.
    counted: OnceCell<Option<Counted>>,
}

/// Where one script counts on one worker: as plugins do, with the place that it comes from instead of a route.
struct Counted {
    account: Account,
    block: Rc<Block>,
    sampling: Sampling,
}

impl Runner {
    fn new(script: &Arc<Script>) -> Runner {
        Runner {
            script: script.clone(),
            loaded: RefCell::new(None),
            circuit: Circuit::new(TYPED_CIRCUIT),
            counted: OnceCell::new(),
        }
    }

    fn counted(&self) -> Option<&Counted> {
        let counted = self.counted.get_or_init(|| {
            let account = Account::new(&counts_here()?, self.script.kind);
            let block = account.beside(&self.script.name);
            Some(Counted { account, block, sampling: Sampling::default() })
        });
        counted.as_ref()
    }

    fn count(&self, stat: postrider_telemetry::stats::Counter) {
        if let Some(counted) = self.counted() {
            counted.block.inc(stat);
        }
    }

    /// Calls the function; what it left under `result`.
    fn call(&self, arguments: &[Argument<'_>], result: &std::ffi::CStr) -> Option<String> {
        if !self.circuit.is_closed() && self.circuit.is_open(now()) {
            self.count(account::BYPASSED);
            return None;
        }
        let mut loaded = self.loaded.borrow_mut();
        if loaded.is_none() {
            *loaded = Loaded::new(&self.script).ok().flatten();
        }
        let Some(machine) = loaded.as_ref() else {
            self.fail(&Fault::Memory);
            return None;
        };
        let turn = machine.last_turn.get().checked_sub(1).unwrap_or(-1);
        machine.last_turn.set(turn);
        machine.context.turn.set(turn);
        let counted = self.counted();
        let began = counted.and_then(|counted| Some((counted.sampling.take()?, machine.vm.taken(), now())));
        let outcome = machine.vm.call(machine.function, arguments);
        let after = machine.vm.taken();
        let is_overrun = machine.vm.collect();
        self.count(account::CALLS);
        if let (Some(counted), Some((stands_for, before, began))) = (counted, began) {
            let took = now().saturating_duration_since(began).as_nanos();
            counted.block.record(account::TIME, u64::try_from(took).unwrap_or(u64::MAX));
            counted.block.add(account::ALLOCATED_BYTES, after.saturating_sub(before).saturating_mul(stands_for.into()));
            counted.account.set_memory(machine.vm.memory());
        }
        if is_overrun {
            self.fail(&Fault::Cpu(None));
        }
        match outcome {
            Ok(_) => {
                self.succeed();
                machine.vm.text(machine.chosen, result)
            }
            Err(fault) => {
                self.fail(&fault);
                if fault == Fault::Memory {
                    *loaded = None;
                }
                None
            }
        }
    }

    /// A call ended well, or by an error of its own.
    fn succeed(&self) {
        if self.circuit.succeed() && self.tell_circuit(false) {
            let line = format_args!("script log: {} works again", self.script.name);
            postrider_telemetry::log::write(Component::Filter, Level::Info, line);
        }
    }

    fn fail(&self, fault: &Fault) {
        let name = &self.script.name;
        let tell = postrider_telemetry::log::write;
        tell(Component::Filter, Level::Error, format_args!("script log: {name}: {fault}"));
        self.count(account::ERRORS);
        let (opened, why) = match fault {
            Fault::Error(_) | Fault::Config(_) => {
                // It came back by itself, and in time.
                self.succeed();
                return;
            }
            Fault::Cpu(_) => {
                self.count(account::CPU_KILLS);
                (self.circuit.overrun(now()), "used up its CPU time")
            }
            Fault::Memory => {
                self.count(account::MEMORY_KILLS);
                (self.circuit.fault(now()), "failed too often")
            }
        };
        if opened {
            self.count(account::CIRCUIT_OPENED);
            // A trial that fails opens it again: that is told by the counter alone.
            if self.tell_circuit(true) {
                let line = format_args!("script log: {name}: {why} and is passed by for a while");
                tell(Component::Filter, Level::Warning, line);
            }
        }
    }

    /// Whether that is news.
    fn tell_circuit(&self, open: bool) -> bool {
        self.counted().is_none_or(|counted| counted.account.set_circuit_open(open))
    }
}

/// Asked for only where a call is measured, or something went wrong.
fn now() -> Moment {
    Moment::from_nanos(postrider_sys::monotonic_nanos())
}

#[cfg(test)]
mod tests {
    use postrider_filter_api::ClusterLoad;

    use super::*;

    struct Known;

    impl Clusters for Known {
        fn load(&self, name: &str) -> Option<ClusterLoad> {
            (name == "blue").then_some(ClusterLoad { connections: 1, requests: 7, pending: 2 })
        }

        fn state(&self, _: &str) -> Option<&Value> {
            None
        }
    }

    fn request(lines: &[(&str, &str)]) -> RequestHead {
        postrider_filter_api::testing::FakeStream::new("GET", "/a", lines).request
    }

    #[test]
    fn what_a_worker_made_of_a_gone_configuration_goes_with_the_next() {
        let (old, new) = (Arc::new(()), Arc::new(()));
        let made = Rc::downgrade(&of_worker(&old, || 1));
        assert_eq!(*of_worker(&old, || 2), 1, "made once");
        drop(old);
        assert_eq!(*of_worker(&new, || 3), 3);
        assert_eq!(made.strong_count(), 0);
    }

    #[test]
    fn a_script_names_the_cluster() {
        let source = b"function envoy_on_route(handle)
            local blue = handle:getCluster('blue')
            if handle:getCluster('red') then return 'red' end
            local version = handle:headers():get('x-version')
            if version == 'number' then return 7 end
            if version == 'busy' then return 'after-' .. blue:numRequests() .. '-' .. blue:numPendingRequests() end
            if version then return 'v' .. version end
            return handle:headers():get(':path')
          end";
        let specifier = cluster_specifier("route", source, "fallback").unwrap().on_worker();
        let to = |lines: &[(&str, &str)]| specifier.cluster(&request(lines), &Known).to_string();
        assert_eq!(to(&[("x-version", "1"), ("x-version", "2")]), "v1,2");
        assert_eq!(to(&[("x-version", "busy")]), "after-7-2");
        assert_eq!(to(&[]), "/a");
        assert_eq!(to(&[("x-version", "number")]), "7", "a number is a text to Lua");
    }

    #[test]
    fn a_script_that_fails_or_names_nothing_leaves_the_default() {
        // Nothing could stop C in such a search.
        let search = "string.find(('a'):rep(60), ('a?'):rep(50) .. ('a'):rep(60) .. 'b')";
        for body in ["error('no')", "return true", "return nil", "while true do end", "coroutine.yield()", search] {
            let source = format!("function envoy_on_route(handle) {body} end");
            let specifier = cluster_specifier("route", source.as_bytes(), "fallback").unwrap().on_worker();
            assert_eq!(&*specifier.cluster(&request(&[]), &Known), "fallback", "{body}");
        }
    }

    #[test]
    fn a_script_that_has_to_be_stopped_is_left_alone_and_one_with_errors_is_not() {
        let source = b"local calls = 0
            function envoy_on_route(handle)
              calls = calls + 1
              if calls <= 10 then FAIL end
              return 'works'
            end";
        let specifier = |fail: &str| {
            let source = String::from_utf8_lossy(source).replace("FAIL", fail);
            cluster_specifier("route", source.as_bytes(), "fallback").unwrap().on_worker()
        };
        let registry = postrider_telemetry::Registry::new();
        postrider_filter_api::count_here(&registry.worker(0));
        let counted = || {
            let scopes = registry.read(&[]);
            let of_script =
                |scope: &&postrider_telemetry::stats::ScopeValues| scope.prefix == format!("{SPECIFIER}.route");
            let scope = scopes.iter().find(of_script).unwrap();
            let at = |name: &str| scope.set.cells.iter().position(|cell| cell.name == name).unwrap();
            ["calls", "errors", "cpu_kills", "bypassed", "circuit_opened"].map(|name| scope.cell(at(name)))
        };
        let stopped = specifier("while true do end");
        for _ in 0..12 {
            assert_eq!(&*stopped.cluster(&request(&[]), &Known), "fallback");
        }
        assert!(!stopped.runner.circuit.is_closed());
        assert_eq!(counted(), [1, 1, 1, 11, 1], "it was called once");
        let failing = specifier("error('on purpose')");
        for _ in 0..10 {
            assert_eq!(&*failing.cluster(&request(&[]), &Known), "fallback");
        }
        assert_eq!(&*failing.cluster(&request(&[]), &Known), "works");
        assert_eq!(counted(), [12, 11, 1, 11, 1], "both come from the same place");
        let whole = registry.read(&[]).into_iter().find(|scope| scope.prefix == SPECIFIER).unwrap();
        assert!(whole.cell(1) > 0, "its memory is told");
    }

    #[test]
    fn a_script_says_whether_a_text_matches() {
        let matcher = string_matcher("match", b"function envoy_match(s) return s:find('^a+$') ~= nil end").unwrap();
        let matcher = matcher.on_worker();
        assert!(matcher.matches(b"aaa"));
        assert!(!matcher.matches(b"aab"));
        let failing = string_matcher("match", b"function envoy_match(s) error('x') end").unwrap();
        assert!(!failing.on_worker().matches(b"a"));
    }

    #[test]
    fn a_matcher_that_answers_neither_true_nor_false_said_nothing() {
        let registry = postrider_telemetry::Registry::new();
        postrider_filter_api::count_here(&registry.worker(0));
        let matcher =
            string_matcher("answers", b"function envoy_match(s) if s ~= 'nothing' then return s end end").unwrap();
        let matcher = matcher.on_worker();
        assert!(!matcher.matches(b"text") && !matcher.matches(b"nothing"));
        let scopes = registry.read(&[]);
        let scope = scopes.iter().find(|scope| scope.prefix == format!("{MATCHER}.answers")).unwrap();
        let errors = scope.set.cells.iter().position(|cell| cell.name == "errors").unwrap();
        assert_eq!(scope.cell(errors), 2, "each is an error, which the log tells");
    }

    #[test]
    fn scripts_without_the_function_or_with_errors_are_refused() {
        assert_eq!(string_matcher("m", b"x = 1").unwrap_err(), "the script has no function envoy_match");
        assert!(cluster_specifier("r", b"x =", "d").unwrap_err().starts_with("r:1:"));
    }
}
