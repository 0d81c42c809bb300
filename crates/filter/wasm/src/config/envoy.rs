//! `envoy.extensions.wasm.v3.PluginConfig`, which Envoy's filters, loggers and services have.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::plugin::{CircuitRule, DEFAULT_CIRCUIT, DEFAULT_CPU, DEFAULT_MEMORY, Facts, OnError, Policy};
use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_filter_plugin::read::{keep, within};
use postrider_filter_plugin::{Code, Edition, Pull, PullSecret, budget, json};
use postrider_model::{Fields, Value, ValueError};

use super::factory::{next_id, try_out};
use super::{MAX_MODULE_BYTES, count_fetches};
use crate::program::{Failure, Plugin, Program, Source};

/// Engines that modules may be meant for: each of them runs what the other ones run.
const RUNTIMES: [&str; 3] = ["envoy.wasm.runtime.v8", "envoy.wasm.runtime.wasmtime", "envoy.wasm.runtime.wamr"];

/// Budgets, which `PluginConfig` has no room for: from the metadata of the node, where `crates/config/envoy` found them.
const RULES: &str = "postrider.rules";

/// Its failures mean what its failure policy says.
const NO_CIRCUIT: CircuitRule = CircuitRule { faults: 0, cpu_kills: 0, ..DEFAULT_CIRCUIT };

/// Begins the names of what Istio tells its agent.
const ISTIO_PREFIX: &str = "ISTIO_META_WASM_";

/// How long a machine that failed is left alone at first, where the configuration says nothing.
const RELOAD_BASE: Duration = Duration::from_secs(1);

/// How much longer in the end.
const RELOAD_GROWTH: u32 = 10;

/// A plugin as `PluginConfig` describes it, tried out.
pub(super) struct Read {
    pub(super) facts: Arc<Facts>,
    /// `None` while its code is not here.
    pub(super) plugin: Option<Arc<Plugin>>,
    pub(super) files: Vec<WatchedFile>,
    pub(super) edition: Option<Edition>,
}

impl Read {
    /// Reads what has a `config` and nothing else, compiles its code and tries it out. `name` is the place's, for a plugin
    /// without one.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(super) fn of(name: &str, value: &Value) -> Result<Read, ConfigError> {
        Read::beside(name, value, |_, _| ()).map(|(read, ())| read)
    }

    /// The same of what has more fields beside `config`, which `others` reads.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(super) fn beside<T>(
        name: &str,
        value: &Value,
        others: impl FnOnce(&mut Fields<'_>, &mut ConfigError) -> T,
    ) -> Result<(Read, T), ConfigError> {
        let usual = (DEFAULT_CPU, DEFAULT_MEMORY);
        let given = Cell::new(usual);
        let beside = |fields: &mut Fields<'_>, errors: &mut ConfigError| {
            if let Some(mut rules) = keep(fields.map(RULES), errors).flatten() {
                given.set(budget(&mut rules, errors));
                errors.extend(rules.finish().err().into_iter().flatten());
            }
            others(fields, errors)
        };
        within(value, "config", beside, |config, errors| read(name, config, given.get(), errors))
    }

    /// Whether reading it now would give the same.
    pub(super) fn is_current(&self) -> bool {
        self.plugin.as_ref().is_some_and(|plugin| plugin.program.is_current())
            && self.edition.as_ref().is_none_or(Edition::is_current)
    }
}

/// `PluginConfig`, with the CPU time and memory that its rules give it.
fn read(
    place: &str,
    mut fields: Fields<'_>,
    (cpu, memory): (Duration, usize),
    errors: &mut ConfigError,
) -> Option<Read> {
    let name = text(&mut fields, "name", errors);
    let root_id = text(&mut fields, "root_id", errors);
    let configuration = any(&mut fields, "configuration", errors);
    let failure = failure(&mut fields, errors);
    let stops_heads_alone = keep(fields.bool("allow_on_headers_stop_iteration"), errors).flatten().unwrap_or(false);
    let outer = capabilities(&mut fields, errors);
    let vm = match keep(fields.map("vm_config"), errors) {
        Some(Some(vm)) => machine(vm, errors),
        Some(None) => {
            errors.push(fields.error("vm_config", "there is no `vm_config`"));
            None
        }
        None => None,
    };
    let at = fields.path_of("vm_config.code");
    let path = fields.path().to_owned();
    errors.extend(fields.finish().err().into_iter().flatten());
    let vm = vm?;
    let on_error = match failure {
        Failure::Open { .. } => OnError::Continue,
        _ => OnError::Respond(503),
    };
    let policy = Policy { on_error, cpu, memory, circuit: NO_CIRCUIT, ..Policy::default() };
    let facts = Arc::new(Facts {
        name: if name.is_empty() { place.to_owned() } else { name },
        version: String::new(),
        runtime: "wasm",
        source: vm.code.source.clone(),
        digest: vm.code.digest.clone(),
        policy,
        config: Value::String(String::from_utf8_lossy(&configuration).into_owned()),
        schema: None,
    });
    if vm.code.missing.is_some() {
        return Some(Read { facts, plugin: None, files: Vec::new(), edition: None });
    }
    let source = Source {
        code: &vm.code.text,
        vm_id: &vm.vm_id,
        configuration: vm.configuration,
        environment: vm.environment,
        capabilities: vm.capabilities.or(outer),
        memory,
        cpu,
    };
    let program = match Program::new(source) {
        Ok(program) => Arc::new(program),
        Err(message) => {
            errors.push(ValueError { path: at, message: format!("the module does not load: {message}") });
            return None;
        }
    };
    let plugin = Arc::new(Plugin {
        id: next_id(),
        program,
        facts: facts.clone(),
        root_id,
        configuration,
        failure,
        stops_heads_alone,
        phases: Vec::new(),
    });
    if errors.is_empty()
        && let Err(message) = try_out(&plugin)
    {
        errors.push(ValueError { path, message: format!("the plugin does not start: {message}") });
        return None;
    }
    let edition = vm.code.edition();
    Some(Read { facts, plugin: Some(plugin), files: vm.code.files, edition })
}

/// What `VmConfig` says.
struct Machine {
    vm_id: String,
    code: Code,
    configuration: Vec<u8>,
    environment: Vec<(String, String)>,
    capabilities: Option<Vec<String>>,
}

fn machine(mut fields: Fields<'_>, errors: &mut ConfigError) -> Option<Machine> {
    let vm_id = text(&mut fields, "vm_id", errors);
    let runtime = text(&mut fields, "runtime", errors);
    if !runtime.is_empty() && !RUNTIMES.contains(&runtime.as_str()) {
        let message = format!("there is no engine `{runtime}`; expected {}", RUNTIMES.join(", "));
        errors.push(fields.error("runtime", message));
    }
    let configuration = any(&mut fields, "configuration", errors);
    // Compiled code is never taken from a module: it is compiled here, once.
    let _ = keep(fields.bool("allow_precompiled"), errors);
    // The last good configuration serves while code is missing, whatever this says.
    let _ = keep(fields.bool("nack_on_code_cache_miss"), errors);
    let (environment, pull) = match keep(fields.map("environment_variables"), errors).flatten() {
        Some(variables) => environment(variables, errors),
        None => Default::default(),
    };
    let capabilities = capabilities(&mut fields, errors);
    let code = match keep(fields.map("code"), errors) {
        Some(Some(code)) => {
            let code = Code::read_async_pulled(code, pull, MAX_MODULE_BYTES);
            code.map_err(|found| errors.extend(found)).ok().inspect(count_fetches)
        }
        Some(None) => {
            errors.push(fields.error("code", "there is no `code`"));
            None
        }
        None => None,
    };
    errors.extend(fields.finish().err().into_iter().flatten());
    Some(Machine { vm_id, code: code?, configuration, environment, capabilities })
}

fn failure(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Failure {
    let open = keep(fields.bool("fail_open"), errors).flatten().unwrap_or(false);
    let policy = text(fields, "failure_policy", errors);
    let (mut base, mut most) = (RELOAD_BASE, None);
    if let Some(mut reload) = keep(fields.map("reload_config"), errors).flatten() {
        if let Some(mut backoff) = keep(reload.map("backoff"), errors).flatten() {
            base = keep(backoff.duration("base_interval"), errors).flatten().unwrap_or(RELOAD_BASE);
            most = keep(backoff.duration("max_interval"), errors).flatten();
            errors.extend(backoff.finish().err().into_iter().flatten());
        }
        errors.extend(reload.finish().err().into_iter().flatten());
    }
    let most = most.unwrap_or(base.saturating_mul(RELOAD_GROWTH));
    if open && !matches!(policy.as_str(), "" | "UNSPECIFIED") {
        errors.push(fields.error("fail_open", "`failure_policy` is set too; only one of them can be"));
    }
    match policy.as_str() {
        "FAIL_OPEN" => Failure::Open { spares: false },
        "FAIL_RELOAD" => Failure::Reload(base, most),
        // The older field for it, by which Envoy spares the request that meets the failure as well.
        "" | "UNSPECIFIED" if open => Failure::Open { spares: true },
        _ => Failure::Closed,
    }
}

/// `CapabilityRestrictionConfig`: without any, everything is allowed.
fn capabilities(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Vec<String>> {
    let mut restriction = keep(fields.map("capability_restriction_config"), errors).flatten()?;
    let allowed = keep(restriction.map("allowed_capabilities"), errors).flatten();
    let names: Vec<String> = allowed.iter().flat_map(Fields::keys).map(str::to_owned).collect();
    errors.extend(restriction.finish().err().into_iter().flatten());
    (!names.is_empty()).then_some(names)
}

/// What the module sees, and how Istio has its image pulled: by variables that are meant for its agent alone.
fn environment(mut fields: Fields<'_>, errors: &mut ConfigError) -> (Vec<(String, String)>, Pull) {
    const TWICE: &str = "a variable of that name is given already";
    let mut all: Vec<(String, String)> = Vec::new();
    let mut of_host: Vec<&str> = Vec::new();
    let mut pull = Pull::default();
    for (path, key) in keep(fields.list("host_env_keys"), errors).unwrap_or_default() {
        match key {
            Value::String(key) if of_host.contains(&key.as_str()) => {
                errors.push(ValueError { path, message: TWICE.to_owned() });
            }
            Value::String(key) => {
                of_host.push(key);
                // One that is not set is left out.
                if let Ok(value) = std::env::var(key) {
                    all.push((key.clone(), value));
                }
            }
            _ => errors.push(ValueError { path, message: "expected the name of a variable".to_owned() }),
        }
    }
    if let Some(mut pairs) = keep(fields.map("key_values"), errors).flatten() {
        let keys: Vec<&str> = pairs.keys().collect();
        for key in keys {
            let value = keep(pairs.string(key), errors).flatten().unwrap_or_default();
            if of_host.contains(&key) {
                errors.push(pairs.error(key, TWICE));
            }
            match key.strip_prefix(ISTIO_PREFIX) {
                Some("IMAGE_PULL_SECRET") => pull.secret = Some(PullSecret::Text(value.to_owned())),
                Some("IMAGE_PULL_POLICY") => pull.policy = Some(value.to_owned()),
                // Has the agent ask anew: here an image that may move is asked for with every configuration.
                Some("PLUGIN_RESOURCE_VERSION") => {}
                _ => all.push((key.to_owned(), value.to_owned())),
            }
        }
    }
    errors.extend(fields.finish().err().into_iter().flatten());
    (all, pull)
}

/// An `Any` as the bytes that modules get: a text, bytes, or an object as JSON.
fn any(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> Vec<u8> {
    let Some(value) = fields.value(key).filter(|value| **value != Value::Null) else { return Vec::new() };
    let part = |name: &str| match value {
        Value::Map(entries) => entries.iter().find(|(known, _)| known == name).map(|(_, value)| value),
        _ => None,
    };
    let kind = match part("@type") {
        Some(Value::String(kind)) => kind.rsplit('/').next().unwrap_or_default(),
        _ => "",
    };
    let text = match part("value") {
        Some(Value::String(text)) => text.as_str(),
        _ => "",
    };
    // Envoy hands on the bytes of every other message.
    if let Some(Value::String(bytes)) = part("@bytes") {
        return STANDARD.decode(bytes).unwrap_or_else(|error| {
            errors.push(fields.error(key, format!("no base64: {error}")));
            Vec::new()
        });
    }
    match kind {
        "google.protobuf.StringValue" => text.as_bytes().to_vec(),
        "google.protobuf.BytesValue" => match STANDARD.decode(text) {
            Ok(bytes) => bytes,
            Err(error) => {
                errors.push(fields.error(key, format!("no base64: {error}")));
                Vec::new()
            }
        },
        "google.protobuf.Struct" => {
            let object = part("fields").or_else(|| part("value")).cloned().unwrap_or(Value::Map(Vec::new()));
            json::to_json_text(&object).into_bytes()
        }
        other => {
            let message = format!(
                "a configuration of type {other} is not supported; expected google.protobuf.StringValue, BytesValue or \
                 Struct"
            );
            errors.push(fields.error(key, message));
            Vec::new()
        }
    }
}

fn text(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> String {
    keep(fields.string(key), errors).flatten().unwrap_or_default().to_owned()
}
