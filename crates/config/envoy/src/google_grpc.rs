//! Envoy's second gRPC client, as a cluster: `google_grpc` of `envoy.config.core.v3.GrpcService`.
//!
//! What it is for: calls go through clusters here, with their connections, limits and statistics. So whoever names a target
//! of Google's client gets a cluster of its own for it, `google_grpc.<stat_prefix>`, before the bootstrap is lowered, and is
//! written as if it had named that cluster. What must never happen: that a part of it is passed over in silence.
//!
//! Who calls it: [`crate::outcome::load`], once the runtime's values are in their places.

mod target;

use postrider_config_core::{Diagnostic, Diagnostics, SourceFile, Span};
use serde_json::{Value as Json, json};

use self::target::Target;
use crate::known::VERSION;
use crate::load::{Format, LoadOptions, load_message};
use crate::message::{Field, Item, Message, Value};
use crate::runtime::{child, list};
use crate::write::message_to_json;

const SERVICE: &str = "envoy.config.core.v3.GrpcService";
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// Google's client limits none of these.
const NO_LIMIT: u32 = u32::MAX;

/// The bootstrap with clusters in place of such targets; `None` where it names none.
pub(crate) fn resolve(bootstrap: &Message, diagnostics: &mut Diagnostics) -> Option<Message> {
    if !names_one(bootstrap) {
        return None;
    }
    let mut resolved = bootstrap.clone();
    let mut clusters = Clusters { taken: names_of_clusters(bootstrap), made: Vec::new(), diagnostics };
    clusters.visit(&mut resolved, "");
    let made = clusters
        .made
        .into_iter()
        .map(|made| Item { span: made.cluster.span, value: Value::Message(Box::new(made.cluster)) });
    list(child(&mut resolved, "static_resources")?, "clusters")?.extend(made);
    Some(resolved)
}

fn names_one(message: &Message) -> bool {
    message.fields.iter().any(|field| {
        (message.type_name() == SERVICE && field.descriptor.name() == "google_grpc") || holds_one(&field.value)
    })
}

fn holds_one(value: &Value) -> bool {
    match value {
        Value::Message(message) => names_one(message),
        Value::Any(any) => any.message.as_ref().is_some_and(names_one),
        Value::List(items) => items.iter().any(|item| holds_one(&item.value)),
        Value::Map(entries) => entries.iter().any(|entry| holds_one(&entry.value)),
        _ => false,
    }
}

fn names_of_clusters(bootstrap: &Message) -> Vec<String> {
    let resources = bootstrap.message("static_resources");
    let Some(Value::List(all)) = resources.and_then(|resources| resources.value("clusters")) else { return Vec::new() };
    let name = |item: &Item| {
        if let Value::Message(cluster) = &item.value { Some(cluster.str("name").to_owned()) } else { None }
    };
    all.iter().filter_map(name).collect()
}

/// The clusters that were made so far.
struct Clusters<'d> {
    taken: Vec<String>,
    made: Vec<Made>,
    diagnostics: &'d mut Diagnostics,
}

struct Made {
    /// What it was made of: whoever says the same has the same cluster.
    of: Json,
    cluster: Message,
}

impl Clusters<'_> {
    fn visit(&mut self, message: &mut Message, path: &str) {
        if message.type_name() == SERVICE {
            self.service(message, path);
        }
        for field in &mut message.fields {
            let name = field.descriptor.name();
            let below = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            self.visit_value(&mut field.value, &below);
        }
    }

    fn visit_value(&mut self, value: &mut Value, path: &str) {
        match value {
            Value::Message(message) => self.visit(message, path),
            Value::Any(any) => any.message.iter_mut().for_each(|message| self.visit(message, path)),
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.visit_value(&mut item.value, &format!("{path}[{index}]"));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let below = format!("{path}[{:?}]", entry.key);
                    self.visit_value(&mut entry.value, &below);
                }
            }
            _ => {}
        }
    }

    /// Writes `envoy_grpc` in the place of a `google_grpc`.
    fn service(&mut self, service: &mut Message, path: &str) {
        let Some(index) = service.fields.iter().position(|field| field.descriptor.name() == "google_grpc") else {
            return;
        };
        let field = service.fields.remove(index);
        let Value::Message(google) = &field.value else { return };
        let mut reading = Reading { at: google, path: format!("{path}.google_grpc"), found: &mut *self.diagnostics };
        let call = reading.call(field.span());
        let of = message_to_json(google);
        let name = match self.made.iter().find(|made| made.of == of) {
            Some(made) => made.cluster.str("name").to_owned(),
            None => {
                let name = self.free_name(google.str("stat_prefix"));
                let cluster = written(CLUSTER, &call.cluster(&name), field.span());
                self.made.extend(cluster.map(|cluster| Made { of, cluster }));
                name
            }
        };
        let mut envoy = json!({"cluster_name": name, "authority": call.authority()});
        if let Some(most) = call.max_answer {
            envoy["max_receive_message_length"] = json!(most);
        }
        let metadata: Vec<Json> =
            call.token.iter().map(|token| json!({"key": "authorization", "value": token})).collect();
        let more = written(SERVICE, &json!({"envoy_grpc": envoy, "initial_metadata": metadata}), field.span());
        for mut field in more.into_iter().flat_map(|more| more.fields) {
            match (service.field_mut(field.descriptor.name()), &mut field.value) {
                (Some(Field { value: Value::List(all), .. }), Value::List(more)) => all.append(more),
                _ => service.fields.push(field),
            }
        }
    }

    fn free_name(&mut self, prefix: &str) -> String {
        let wanted = format!("google_grpc.{prefix}");
        let name = (1..).map(|n| if n == 1 { wanted.clone() } else { format!("{wanted}.{n}") });
        let name = name.into_iter().find(|name| !self.taken.contains(name)).unwrap_or(wanted);
        self.taken.push(name.clone());
        name
    }
}

/// A message as if it stood where `span` is.
fn written(kind: &str, json: &Json, span: Option<Span>) -> Option<Message> {
    let options = LoadOptions { format: Some(Format::Json), ..LoadOptions::default() };
    let mut message = load_message(&SourceFile::new(kind, json.to_string()), kind, &options).bootstrap?;
    place(&mut message, span);
    Some(message)
}

fn place(message: &mut Message, span: Option<Span>) {
    message.span = span;
    for field in &mut message.fields {
        (field.key_span, field.value_span) = (span, span);
        place_value(&mut field.value, span);
    }
}

fn place_value(value: &mut Value, span: Option<Span>) {
    match value {
        Value::Message(message) => place(message, span),
        Value::Any(any) => {
            any.type_url_span = span;
            any.message.iter_mut().for_each(|message| place(message, span));
        }
        Value::List(items) => items.iter_mut().for_each(|item| {
            item.span = span;
            place_value(&mut item.value, span);
        }),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| {
            (entry.key_span, entry.value_span) = (span, span);
            place_value(&mut entry.value, span);
        }),
        _ => {}
    }
}

/// What a `google_grpc` says.
struct Call {
    target: Target,
    /// `None`: in the clear.
    tls: Option<Tls>,
    /// The value of `authorization`, as a format.
    token: Option<String>,
    /// `grpc.default_authority`.
    authority: Option<String>,
    /// `grpc.max_receive_message_length`.
    max_answer: Option<u64>,
    /// Bytes that each stream may buffer.
    buffer: Option<Json>,
}

/// Data sources, in their JSON form.
struct Tls {
    roots: Option<Json>,
    key: Option<Json>,
    chain: Option<Json>,
    /// `grpc.ssl_target_name_override`: the name that the certificate must have.
    name: Option<String>,
}

impl Call {
    /// As Google's client finds it: what is said, the name that is verified, what the target names.
    fn authority(&self) -> &str {
        let name = self.tls.as_ref().and_then(|tls| tls.name.as_deref());
        self.authority.as_deref().or(name).unwrap_or(&self.target.authority)
    }

    fn cluster(&self, name: &str) -> Json {
        let endpoints: Vec<Json> =
            self.target.addresses.iter().map(|address| json!({"endpoint": {"address": address.to_json()}})).collect();
        let mut cluster = json!({
            "name": name,
            "type": if self.target.is_name() { "LOGICAL_DNS" } else { "STATIC" },
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
            "circuit_breakers": {"thresholds": [{
                "max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT, "max_retries": NO_LIMIT,
            }]},
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }},
        });
        if self.target.is_name() {
            cluster["dns_lookup_family"] = json!("ALL");
        }
        if let Some(tls) = &self.tls {
            cluster["transport_socket"] = json!({"name": "tls", "typed_config": tls.context(&self.target)});
        }
        if let Some(buffer) = &self.buffer {
            cluster["per_connection_buffer_limit_bytes"] = buffer.clone();
        }
        cluster
    }
}

impl Tls {
    /// The target's certificate must be for its host, as in Google's client.
    fn context(&self, target: &Target) -> Json {
        let mut validation = match &self.roots {
            Some(roots) => json!({"trusted_ca": roots}),
            None => json!({"system_root_certs": {}}),
        };
        let name = self.name.as_deref().unwrap_or(target.host());
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        let kind = if is_address { "IP_ADDRESS" } else { "DNS" };
        validation["match_typed_subject_alt_names"] = json!([{"san_type": kind, "matcher": {"exact": name}}]);
        let mut common = json!({"alpn_protocols": ["h2"], "validation_context": validation});
        if self.key.is_some() || self.chain.is_some() {
            common["tls_certificates"] = json!([{"private_key": self.key, "certificate_chain": self.chain}]);
        }
        json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": if is_address { "" } else { name },
            "common_tls_context": common,
        })
    }
}

/// Reads one `google_grpc`, and refuses by name what it holds beyond that.
struct Reading<'r> {
    at: &'r Message,
    path: String,
    found: &'r mut Diagnostics,
}

impl Reading<'_> {
    fn call(&mut self, span: Option<Span>) -> Call {
        let target = Target::parse(self.at.str("target_uri")).unwrap_or_else(|error| {
            self.error(
                "target_uri",
                self.at.field("target_uri").and_then(Field::span).or(span),
                "invalid-value",
                error,
            );
            Target::nowhere()
        });
        let mut call = Call { target, tls: None, token: None, authority: None, max_answer: None, buffer: None };
        // The stand-in for the name comes before what it stands in for.
        call.tls =
            self.at.message("channel_credentials").and_then(|credentials| self.channel(credentials, &call.target));
        for field in &self.at.fields {
            match (field.descriptor.name(), &field.value) {
                ("target_uri" | "stat_prefix" | "channel_credentials", _) => {}
                ("credentials_factory_name", Value::String(name)) if name.is_empty() => {}
                ("per_stream_buffer_limit_bytes", Value::Message(limit)) => call.buffer = Some(message_to_json(limit)),
                ("channel_args", Value::Message(args)) => self.arguments(args, &mut call),
                ("call_credentials", Value::List(all)) => {
                    for (index, item) in all.iter().enumerate() {
                        if let Value::Message(credentials) = &item.value {
                            self.token(credentials, &format!("call_credentials[{index}]"), &mut call);
                        }
                    }
                }
                (name, _) => self.refuse(name, field, ""),
            }
        }
        call
    }

    fn channel(&mut self, credentials: &Message, target: &Target) -> Option<Tls> {
        let mut tls = None;
        for field in &credentials.fields {
            let name = field.descriptor.name();
            match (name, &field.value) {
                ("ssl_credentials", Value::Message(ssl)) => {
                    let source = |name| ssl.message(name).map(message_to_json);
                    let (key, chain) = (source("private_key"), source("cert_chain"));
                    tls = Some(Tls { roots: source("root_certs"), key, chain, name: None });
                }
                ("local_credentials", _) if target.is_local() => {}
                ("local_credentials", _) => {
                    let text = "local credentials are for targets on Unix domain sockets (`unix:…`)";
                    self.error(&format!("channel_credentials.{name}"), field.span(), "conflict", text);
                }
                _ => self.refuse(
                    &format!("channel_credentials.{name}"),
                    field,
                    "; `ssl_credentials` alone trusts the system's CAs",
                ),
            }
        }
        tls
    }

    fn token(&mut self, credentials: &Message, at: &str, call: &mut Call) {
        for field in &credentials.fields {
            let name = field.descriptor.name();
            match &field.value {
                Value::String(token) if name == "access_token" && call.tls.is_some() && call.token.is_none() => {
                    call.token = Some(format!("Bearer {}", token.replace('%', "%%")));
                }
                Value::String(_) if name == "access_token" => {
                    let text =
                        "a token is sent over TLS alone, and one of them: set `channel_credentials.ssl_credentials`";
                    self.error(&format!("{at}.{name}"), field.span(), "conflict", text);
                }
                _ => self.refuse(&format!("{at}.{name}"), field, "; `access_token` is"),
            }
        }
    }

    fn arguments(&mut self, args: &Message, call: &mut Call) {
        let Some(Value::Map(args)) = args.value("args") else { return };
        for entry in args {
            let Value::Message(value) = &entry.value else { continue };
            let (text, number) = (value.str("string_value"), value.integer("int_value"));
            match (entry.key.as_str(), &mut call.tls) {
                ("grpc.default_authority", _) if !text.is_empty() => call.authority = Some(text.to_owned()),
                ("grpc.ssl_target_name_override", Some(tls)) if !text.is_empty() => tls.name = Some(text.to_owned()),
                // None is none here, too.
                ("grpc.max_receive_message_length", _) if number >= -1 => {
                    call.max_answer = Some(u64::try_from(number).unwrap_or(u32::MAX.into()))
                }
                (key, _) => {
                    let text = format!(
                        "the channel argument `{key}`, with this value, is not supported by Postrider {VERSION}: it knows \
                         `grpc.default_authority`, `grpc.max_receive_message_length` and, with TLS, `grpc.ssl_target_name_override`"
                    );
                    self.error(&format!("channel_args.args[{key:?}]"), entry.key_span, "unsupported-value", text);
                }
            }
        }
    }

    fn refuse(&mut self, name: &str, field: &Field, instead: &str) {
        let text = format!(
            "`{}`: known to Envoy, not supported by Postrider {VERSION}{instead}",
            name.rsplit('.').next().unwrap_or(name)
        );
        self.error(name, field.key_span, "unsupported-field", text);
    }

    fn error(&mut self, below: &str, span: Option<Span>, code: &'static str, text: impl Into<String>) {
        self.found.push(Diagnostic::error(code, text.into()).at(span).path(format!("{}.{below}", self.path)));
    }
}
