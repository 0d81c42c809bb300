//! A plugin's manifest: one form of configuration for every runtime.

use std::time::Duration;

use postrider_filter_api::plugin::{
    CircuitRule, DEFAULT_CIRCUIT, DEFAULT_CPU, DEFAULT_MEMORY, Facts, OnError, Policy, Sight,
};
use postrider_filter_api::{ConfigError, RouteConfig, ScopedConfigs};
use postrider_model::{Fields, Value, ValueError};

use crate::code::{Code, MAX_CODE_BYTES};
use crate::read::{keep, object};
use crate::schema::Schema;

/// The type of a manifest, as a filter of a chain.
pub const KIND: &str = "postrider.filters.http.plugin.v1.Plugin";

/// The type of an override of a route table, virtual host, route or weighted cluster.
pub const ROUTE_KIND: &str = "postrider.filters.http.plugin.v1.PluginPerRoute";

/// Most faults that a circuit may wait for: it remembers the moment of each.
pub const MAX_FAULTS: u32 = 10_000;

/// The hooks that `phases` may name, as [`postrider_filter_api::Hooks`] has them.
pub const PHASES: [&str; 7] = [
    "request_headers",
    "request_body",
    "request_trailers",
    "response_headers",
    "response_body",
    "response_trailers",
    "complete",
];

/// The statuses that a plugin's failure may be answered with.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

/// What a runtime's plugins can be configured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Objects,
    /// A text, too: the plugin gets its bytes.
    Texts,
}

/// What a manifest says.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// The name of the runtime, which its host knows.
    pub runtime: String,
    pub code: Code,
    /// An object, empty when there is none; or a text, where the runtime takes one.
    pub config: Value,
    pub schema: Option<Schema>,
    /// The only hooks to call; none means all that the plugin has.
    pub phases: Vec<String>,
    pub policy: Policy,
    /// The runtime's own: an object, empty when there is none.
    pub options: Value,
}

/// What an override says.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// In place of the manifest's; `None` leaves that.
    pub config: Option<Value>,
    pub disabled: bool,
}

impl Manifest {
    /// Reads a value of type [`KIND`].
    ///
    /// # Errors
    /// All that is wrong with it: the manifest's own fields, its code, its schema, and what the schema finds in the
    /// configuration.
    pub fn read(value: &Value, takes: Takes) -> Result<Manifest, ConfigError> {
        Manifest::read_up_to(value, takes, MAX_CODE_BYTES)
    }

    /// The same, for a runtime whose code may be so large.
    ///
    /// # Errors
    /// As for [`Manifest::read`].
    pub fn read_up_to(value: &Value, takes: Takes, max_code: u64) -> Result<Manifest, ConfigError> {
        Manifest::read_with(value, takes, |source| Code::read_anywhere(source, max_code))
    }

    /// The same, for a runtime whose code is read another way.
    ///
    /// # Errors
    /// As for [`Manifest::read`].
    pub fn read_with(
        value: &Value,
        takes: Takes,
        read_code: impl FnOnce(Fields<'_>) -> Result<Code, ConfigError>,
    ) -> Result<Manifest, ConfigError> {
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let name = required(&mut fields, "name", "the name that routes and statistics know it by", &mut errors);
        let version = keep(fields.string("version"), &mut errors).flatten().unwrap_or_default().to_owned();
        let runtime = required(&mut fields, "runtime", "what runs it, such as `rider`", &mut errors);
        let code = match keep(fields.map("code"), &mut errors) {
            Some(Some(source)) => read_code(source).map_err(|found| errors.extend(found)).ok(),
            Some(None) => {
                errors.push(fields.error("code", "there is no `code`"));
                None
            }
            None => None,
        };
        let config = takes.read(&mut fields, "config", &mut errors);
        let schema = fields.value("config_schema").filter(|schema| **schema != Value::Null).and_then(|schema| {
            let below = |error: ValueError| ValueError { path: under("config_schema", &error.path), ..error };
            Schema::compile(schema).map_err(|found| errors.extend(found.into_iter().map(below))).ok()
        });
        if let (Some(schema), Some(config)) = (&schema, &config) {
            errors.extend(schema.check(config, "config"));
        }
        let phases = phases(&mut fields, &mut errors);
        let policy = policy(&mut fields, DEFAULT_CIRCUIT, &mut errors);
        let options = object(&mut fields, "options", &mut errors);
        errors.extend(fields.finish().err().into_iter().flatten());
        match code.zip(config) {
            Some((code, config)) if errors.is_empty() => {
                Ok(Manifest { name, version, runtime, code, config, schema, phases, policy, options })
            }
            _ => Err(errors),
        }
    }

    /// What the admin tells about it. `runtime` is the host's own name for itself.
    pub fn facts(&self, runtime: &'static str) -> Facts {
        Facts {
            name: self.name.clone(),
            version: self.version.clone(),
            runtime,
            source: self.code.source.clone(),
            digest: self.code.digest.clone(),
            policy: self.policy.clone(),
            config: self.config.clone(),
            schema: self.schema.as_ref().map(|schema| schema.source().clone()),
        }
    }
}

impl Takes {
    /// A configuration; an empty object where there is none.
    fn read(self, fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> Option<Value> {
        let expected = match (fields.value(key), self) {
            (None | Some(Value::Null), _) => return Some(Value::Map(Vec::new())),
            (Some(config @ Value::Map(_)), _) | (Some(config @ Value::String(_)), Takes::Texts) => {
                return Some(config.clone());
            }
            (Some(Value::String(_)), Takes::Objects) => "expected an object: plugins of this runtime take no text",
            (Some(_), Takes::Objects) => "expected an object",
            (Some(_), Takes::Texts) => "expected an object, or a text: what looks like a number is one in quotes",
        };
        errors.push(fields.error(key, expected));
        None
    }
}

impl Override {
    /// Reads an override of type `kind` for a plugin with this schema, of a runtime that takes this.
    ///
    /// # Errors
    /// It is of another type, or what is wrong with it, the schema's findings included.
    pub fn read(kind: &str, value: &Value, schema: Option<&Schema>, takes: Takes) -> Result<Override, ConfigError> {
        if kind != ROUTE_KIND {
            let message = format!("a plugin is overridden by {ROUTE_KIND}, not by {kind}");
            return Err(vec![ValueError { path: String::new(), message }]);
        }
        let mut fields = value.fields().map_err(|error| vec![error])?;
        let mut errors = Vec::new();
        let disabled = keep(fields.bool("disabled"), &mut errors).flatten().unwrap_or(false);
        let given = fields.value("config").is_some_and(|config| *config != Value::Null);
        let config = given.then(|| takes.read(&mut fields, "config", &mut errors)).flatten();
        if let (Some(schema), Some(config)) = (schema, &config) {
            errors.extend(schema.check(config, "config"));
        }
        errors.extend(fields.finish().err().into_iter().flatten());
        if errors.is_empty() { Ok(Override { config, disabled }) } else { Err(errors) }
    }

    /// The schema that overrides of a manifest's plugin must satisfy, where the manifest itself may be wrong.
    pub fn schema_of(manifest: &Value) -> Option<Schema> {
        let schema = manifest.fields().ok()?.value("config_schema").filter(|schema| **schema != Value::Null)?;
        Schema::compile(schema).ok()
    }

    /// What counts on a route with these overrides of a manifest's plugin: the most specific one alone.
    pub fn sight(configs: &ScopedConfigs) -> Sight {
        let Some((_, RouteConfig { shown: Value::Map(fields), .. })) = configs.narrowest() else {
            return Sight::Nothing;
        };
        let of = |key: &str| fields.iter().find(|(known, _)| known == key).map(|(_, value)| value);
        match (of("disabled"), of("config")) {
            (Some(Value::Bool(true)), _) => Sight::Off,
            (_, None | Some(Value::Null)) => Sight::Nothing,
            (_, Some(config)) => Sight::Config(config.clone()),
        }
    }
}

/// What a plugin may do, and what happens when it fails: `on_error`, `budget`, `circuit` and `clusters`. `usual` is the circuit
/// where none is set; where it opens at calls that were stopped only, `circuit.kills_only` may say otherwise.
pub fn policy(fields: &mut Fields<'_>, usual: CircuitRule, errors: &mut ConfigError) -> Policy {
    let written = match fields.value("on_error") {
        // Where the type is free a status may be a number.
        Some(Value::Number(status)) => Some(status.to_string()),
        Some(Value::Integer(status)) => Some(status.to_string()),
        _ => keep(fields.string("on_error"), errors).flatten().map(str::to_owned),
    };
    let on_error = written.as_deref().unwrap_or("continue");
    let on_error = match (on_error, on_error.parse::<u16>()) {
        ("continue" | "", _) => OnError::Continue,
        (_, Ok(status)) if STATUSES.contains(&status) => OnError::Respond(status),
        _ => {
            let message = format!("expected `continue` or a status from 200 to 599, found `{on_error}`");
            errors.push(fields.error("on_error", message));
            OnError::Continue
        }
    };
    let (cpu, memory) = budget(fields, errors);
    let circuit = keep(fields.map("circuit"), errors).flatten();
    let circuit = circuit.map_or(usual, |circuit| circuit_rule(circuit, usual, errors));
    // An empty list names no cluster: there is none that it may call.
    let named = fields.value("clusters").is_some_and(|clusters| *clusters != Value::Null);
    let clusters = named.then(|| strings(fields, "clusters", errors));
    Policy { on_error, cpu, memory, circuit, clusters, ends: None }
}

/// `budget`: CPU time of a call, and bytes of memory.
pub fn budget(fields: &mut Fields<'_>, errors: &mut ConfigError) -> (Duration, usize) {
    let Some(mut budget) = keep(fields.map("budget"), errors).flatten() else { return (DEFAULT_CPU, DEFAULT_MEMORY) };
    let cpu = positive(&mut budget, "cpu", DEFAULT_CPU, errors);
    let memory = match keep(budget.integer("memory_bytes"), errors).flatten() {
        None | Some(0) => DEFAULT_MEMORY,
        Some(bytes) => usize::try_from(bytes).unwrap_or_else(|_| {
            errors.push(budget.error("memory_bytes", format!("expected a number of bytes, found {bytes}")));
            DEFAULT_MEMORY
        }),
    };
    errors.extend(budget.finish().err().into_iter().flatten());
    (cpu, memory)
}

fn circuit_rule(mut fields: Fields<'_>, usual: CircuitRule, errors: &mut ConfigError) -> CircuitRule {
    let mut number = |key, usual| match keep(fields.integer(key), errors).flatten() {
        None => usual,
        Some(number) => match u32::try_from(number) {
            Ok(number) if number <= MAX_FAULTS => number,
            _ => {
                errors.push(fields.error(key, format!("expected 0 to {MAX_FAULTS} faults, found {number}")));
                usual
            }
        },
    };
    let faults = number("faults", usual.faults);
    // Whoever wants no circuit gets none, without naming each of its causes.
    let cpu_kills = number("cpu_kills", if faults == 0 { 0 } else { usual.cpu_kills });
    let rule = CircuitRule {
        faults,
        cpu_kills,
        window: positive(&mut fields, "window", usual.window, errors),
        retry: positive(&mut fields, "retry", usual.retry, errors),
        kills_only: match usual.kills_only {
            true => keep(fields.bool("kills_only"), errors).flatten().unwrap_or(true),
            false => false,
        },
    };
    errors.extend(fields.finish().err().into_iter().flatten());
    rule
}

fn phases(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Vec<String> {
    let phases = strings(fields, "phases", errors);
    for (index, phase) in phases.iter().enumerate() {
        if !PHASES.contains(&phase.as_str()) {
            let message = format!("there is no phase `{phase}`; expected {}", PHASES.join(", "));
            errors.push(fields.error(&format!("phases[{index}]"), message));
        }
    }
    phases
}

/// A duration that is not zero.
fn positive(fields: &mut Fields<'_>, key: &str, default: Duration, errors: &mut ConfigError) -> Duration {
    match keep(fields.duration(key), errors).flatten() {
        None => default,
        Some(Duration::ZERO) => {
            errors.push(fields.error(key, "expected a duration above zero"));
            default
        }
        Some(duration) => duration,
    }
}

fn strings(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> Vec<String> {
    let mut all = Vec::new();
    for (path, item) in keep(fields.list(key), errors).unwrap_or_default() {
        match item {
            Value::String(text) if !text.is_empty() => all.push(text.clone()),
            _ => errors.push(ValueError { path, message: "expected a text that is not empty".to_owned() }),
        }
    }
    all
}

fn required(fields: &mut Fields<'_>, key: &str, what: &str, errors: &mut ConfigError) -> String {
    match keep(fields.string(key), errors) {
        Some(Some(text)) if !text.is_empty() => text.to_owned(),
        Some(_) => {
            errors.push(fields.error(key, format!("there is no `{key}`: {what}")));
            String::new()
        }
        None => String::new(),
    }
}

fn under(field: &str, path: &str) -> String {
    match path {
        "" => field.to_owned(),
        path if path.starts_with('[') => format!("{field}{path}"),
        path => format!("{field}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json_text;

    fn read(text: &str) -> Result<Manifest, Vec<String>> {
        Manifest::read(&from_json_text(text).unwrap(), Takes::Objects).map_err(told)
    }

    fn told(errors: ConfigError) -> Vec<String> {
        errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
    }

    #[test]
    fn a_short_manifest_has_the_defaults() {
        let manifest = read(r#"{"name": "p", "runtime": "rider", "code": {"inline_string": "return {}"}}"#).unwrap();
        assert_eq!(manifest.policy, Policy::default());
        assert_eq!((manifest.config.clone(), manifest.options.clone()), (Value::Map(vec![]), Value::Map(vec![])));
        assert!(manifest.phases.is_empty() && manifest.schema.is_none() && manifest.version.is_empty());
        let facts = manifest.facts("rider");
        assert_eq!((facts.source.as_str(), facts.digest), ("inline", manifest.code.digest));
    }

    #[test]
    fn every_field_has_its_meaning() {
        let manifest = read(
            r#"{"name": "p", "version": "1.2", "runtime": "rider", "code": {"inline_string": "x"},
                "config": {"n": 1}, "config_schema": {"properties": {"n": {"type": "integer"}}},
                "phases": ["request_headers", "complete"], "on_error": "503",
                "budget": {"cpu": "0.010s", "memory_bytes": 1048576},
                "circuit": {"faults": 0, "window": "60s", "retry": "1s"},
                "clusters": ["a", "b"], "options": {"sandbox": "strict"}}"#,
        )
        .unwrap();
        let circuit = CircuitRule {
            faults: 0,
            cpu_kills: 0,
            window: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            kills_only: false,
        };
        let policy = Policy {
            on_error: OnError::Respond(503),
            cpu: Duration::from_millis(10),
            memory: 1 << 20,
            circuit,
            clusters: Some(vec!["a".into(), "b".into()]),
            ends: None,
        };
        assert_eq!(manifest.policy, policy);
        assert_eq!(manifest.phases, ["request_headers", "complete"]);
        assert_eq!(manifest.facts("rider").schema, Some(manifest.schema.unwrap().source().clone()));
    }

    #[test]
    fn an_empty_list_of_clusters_is_none_and_not_any() {
        let clusters = |text: &str| {
            let text = format!(r#"{{"name": "p", "runtime": "rider", "code": {{"inline_string": "x"}}{text}}}"#);
            read(&text).unwrap().policy.clusters
        };
        assert_eq!(clusters(r#", "clusters": []"#), Some(Vec::new()));
        assert_eq!((clusters(""), clusters(r#", "clusters": null"#)), (None, None));
    }

    #[test]
    fn one_call_that_is_stopped_opens_a_circuit_unless_there_is_none_or_the_manifest_says_otherwise() {
        let rule = |text: &str| {
            let text = format!(r#"{{"name": "p", "runtime": "rider", "code": {{"inline_string": "x"}}{text}}}"#);
            let circuit = read(&text).unwrap().policy.circuit;
            (circuit.faults, circuit.cpu_kills)
        };
        assert_eq!(rule(""), (10, 1));
        assert_eq!(rule(r#", "circuit": {"faults": 3}"#), (3, 1));
        assert_eq!(rule(r#", "circuit": {"faults": 0}"#), (0, 0));
        assert_eq!(rule(r#", "circuit": {"faults": 0, "cpu_kills": 1}"#), (0, 1));
        assert_eq!(rule(r#", "circuit": {"cpu_kills": 0}"#), (10, 0));
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let errors = read(
            r#"{"name": "", "code": {"filename": "/no/such"}, "config": {"users": [{"n": 1}, {"n": "x"}]},
                "config_schema": {"properties": {"users": {"items": {"properties": {"n": {"type": "integer"}}}}}},
                "phases": ["request"], "on_error": "199", "budget": {"cpu": "0s", "memory_bytes": -1, "disk": 1},
                "circuit": {"faults": 10001, "cpu_kills": -1, "retry": "soon"}, "clusters": [""], "options": [], "extra": 1}"#,
        )
        .unwrap_err();
        let paths: Vec<&str> = errors.iter().filter_map(|error| error.split(": ").next()).collect();
        let wanted = [
            "name",
            "runtime",
            "code.filename",
            "config.users[1].n",
            "phases[0]",
            "on_error",
            "budget.cpu",
            "budget.memory_bytes",
            "budget.disk",
            "circuit.faults",
            "circuit.cpu_kills",
            "circuit.retry",
            "clusters[0]",
            "options",
            "extra",
        ];
        assert_eq!(paths, wanted, "{errors:#?}");
        let schema =
            read(r#"{"name": "p", "runtime": "r", "code": {"inline_string": "x"}, "config_schema": {"minimum": "x"}}"#);
        assert_eq!(schema.unwrap_err(), [r#"config_schema.minimum: expected a number, found "x""#]);
    }

    #[test]
    fn a_text_configures_where_the_runtime_takes_one() {
        let read = |config: &str, takes: Takes| {
            let text = format!(
                r#"{{"name": "p", "runtime": "r", "code": {{"inline_string": "x"}}, "config": {config},
                    "config_schema": {{"maxLength": 3}}}}"#
            );
            Manifest::read(&from_json_text(&text).unwrap(), takes).map(|manifest| manifest.config).map_err(told)
        };
        assert_eq!(read(r#""a\"b""#, Takes::Texts), Ok(Value::String("a\"b".to_owned())));
        assert_eq!(read("null", Takes::Texts), Ok(Value::Map(Vec::new())));
        let long = ["config: expected 3 characters or fewer, found \"long\""].map(str::to_owned).to_vec();
        assert_eq!(read(r#""long""#, Takes::Texts), Err(long));
        let none = ["config: expected an object: plugins of this runtime take no text"].map(str::to_owned).to_vec();
        assert_eq!(read(r#""a""#, Takes::Objects), Err(none));
        for wrong in ["5", "[]", "true"] {
            assert!(read(wrong, Takes::Texts).unwrap_err()[0].contains("in quotes"), "{wrong}");
        }
    }

    #[test]
    fn an_override_replaces_the_configuration_or_switches_off() {
        let schema = Schema::compile(&from_json_text(r#"{"required": ["n"]}"#).unwrap()).unwrap();
        let read = |text: &str| {
            Override::read(ROUTE_KIND, &from_json_text(text).unwrap(), Some(&schema), Takes::Objects).map_err(told)
        };
        let config = Some(from_json_text(r#"{"n": 1}"#).unwrap());
        assert_eq!(read(r#"{"config": {"n": 1}}"#), Ok(Override { config, disabled: false }));
        assert_eq!(read(r#"{"disabled": true}"#), Ok(Override { config: None, disabled: true }));
        assert_eq!(read(r#"{"config": {}}"#), Err(vec![r#"config: "n" is missing"#.to_owned()]));
        assert_eq!(read(r#"{"confg": {}}"#).unwrap_err().len(), 1);
        assert!(told(Override::read(KIND, &Value::Null, None, Takes::Objects).unwrap_err())[0].contains(ROUTE_KIND));
    }

    #[test]
    fn an_override_is_a_text_where_the_runtime_takes_one() {
        let schema = Schema::compile(&from_json_text(r#"{"type": "string"}"#).unwrap()).unwrap();
        let read = |config: &str, takes: Takes| {
            let value = from_json_text(&format!(r#"{{"config": {config}}}"#)).unwrap();
            Override::read(ROUTE_KIND, &value, Some(&schema), takes).map(|own| own.config).map_err(told)
        };
        assert_eq!(read(r#""a""#, Takes::Texts), Ok(Some(Value::String("a".to_owned()))));
        assert_eq!(read(r#""""#, Takes::Texts), Ok(Some(Value::String(String::new()))));
        assert_eq!(read("null", Takes::Texts), Ok(None));
        assert_eq!(read("{}", Takes::Texts), Err(vec!["config: expected a text, found {}".to_owned()]));
        let none = "config: expected an object: plugins of this runtime take no text";
        assert_eq!(read(r#""a""#, Takes::Objects), Err(vec![none.to_owned()]));
    }
}
