//! What the descriptor set says: the methods of the configured services and the rules that map requests to them.
//!
//! Read on control threads only. What can be wrong with a rule is found here, not by the request that meets it.

use std::collections::HashSet;
use std::sync::Arc;

use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, field_descriptor_proto};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, Value as Proto,
};

use super::matcher::Matcher;
use super::template::{Template, Variable};

/// Rules of one filter; more would be no schema but an attack on the control thread.
const MAX_RULES: usize = 100_000;

/// The extension of method options that holds the rule.
const RULE: &str = "google.api.http";

/// The message that stands for a body of any type.
pub(super) const HTTP_BODY: &str = "google.api.HttpBody";

const ANY: &str = "google.protobuf.Any";

/// A gRPC method.
#[derive(Debug)]
pub(super) struct Method {
    /// `/package.Service/Method`
    pub(super) path: String,
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    pub(super) client_streaming: bool,
    pub(super) server_streaming: bool,
    /// Some field below the answer may hold a message of any type.
    pub(super) answers_any: bool,
}

/// How one kind of request maps to a method.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) method: Arc<Method>,
    pub(super) variables: Vec<Bound>,
    /// Where the body's value belongs in the request message; empty is the message itself.
    pub(super) body: Vec<FieldDescriptor>,
    /// The body is no JSON: its bytes are the data of a `google.api.HttpBody`.
    pub(super) body_is_raw: bool,
    /// The part of the answer that is sent; empty is the message itself.
    pub(super) response: Option<FieldDescriptor>,
    /// That part is a `google.api.HttpBody`: its data are the body.
    pub(super) response_is_raw: bool,
}

/// Segments of the path that are the value of a field.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) field: Vec<FieldDescriptor>,
    start: usize,
    end: usize,
    /// Of `**` in the template: where, if there is one.
    many: Option<usize>,
    segments: usize,
}

impl Bound {
    /// Its place among the `count` segments of a path, and whether it may be several.
    pub(super) fn place(&self, count: usize) -> (std::ops::Range<usize>, bool) {
        let shifted = |at: usize| match self.many {
            Some(many) if at > many => (at + count).saturating_sub(self.segments),
            _ => at,
        };
        let (start, end) = (shifted(self.start), shifted(self.end));
        let holds_many = self.many.is_some_and(|many| self.start <= many && many < self.end);
        (start..end.max(start), holds_many || self.end - self.start > 1)
    }
}

/// The methods of some services.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) matcher: Matcher,
    pub(super) rules: Vec<Arc<Rule>>,
    /// `google.rpc.Status`
    pub(super) status: MessageDescriptor,
}

/// What is wrong, and with which of the services; `None` means the descriptor set itself.
pub(super) type SchemaError = (Option<usize>, String);

impl Schema {
    /// Reads a serialised `FileDescriptorSet`.
    ///
    /// # Errors
    /// Everything that is wrong with the set and the services' rules.
    pub(super) fn read(
        set: &[u8],
        services: &[String],
        auto_mapping: bool,
        any_verb: bool,
    ) -> Result<Schema, Vec<SchemaError>> {
        let whole = |message: String| vec![(None, message)];
        let mut pool = DescriptorPool::decode(set).map_err(|error| {
            whole(format!(
                "this is no complete set of descriptors ({error}); make it with `protoc --include_imports \
                 --descriptor_set_out=…`"
            ))
        })?;
        let status = status(&mut pool).map_err(whole)?;
        let mut schema = Schema { matcher: Matcher::new(any_verb), rules: Vec::new(), status };
        let mut errors = Vec::new();
        for (index, name) in services.iter().enumerate() {
            let Some(service) = pool.get_service_by_name(name) else {
                let known: Vec<String> = pool.services().take(20).map(|s| s.full_name().to_owned()).collect();
                let message = format!("the descriptors have no service `{name}`; they have {}", known.join(", "));
                errors.push((Some(index), message));
                continue;
            };
            for method in service.methods() {
                errors.extend(schema.add(&method, auto_mapping).into_iter().map(|text| (Some(index), text)));
            }
        }
        if errors.is_empty() { Ok(schema) } else { Err(errors) }
    }

    /// Adds the rules of a method; answers what is wrong with them.
    fn add(&mut self, method: &MethodDescriptor, auto_mapping: bool) -> Vec<String> {
        let service = method.parent_service();
        let known = Arc::new(Method {
            path: format!("/{}/{}", service.full_name(), method.name()),
            input: method.input(),
            output: method.output(),
            client_streaming: method.is_client_streaming(),
            server_streaming: method.is_server_streaming(),
            answers_any: reaches_any(&method.output()),
        });
        let options = method.options();
        let extension = method.parent_pool().get_extension_by_name(RULE);
        let rule =
            extension.filter(|rule| options.has_extension(rule)).map(|rule| options.get_extension(&rule).into_owned());
        let texts = match rule {
            Some(Proto::Message(rule)) => {
                let mut texts = vec![RuleText::of(&rule)];
                if let Some(Proto::List(more)) = rule.get_field_by_name("additional_bindings").as_deref() {
                    texts.extend(more.iter().filter_map(Proto::as_message).map(RuleText::of));
                }
                texts
            }
            _ if auto_mapping => {
                let (method, path) = ("POST".to_owned(), known.path.clone());
                vec![RuleText { pattern: Some((method, path)), body: "*".to_owned(), response_body: String::new() }]
            }
            _ => Vec::new(),
        };
        let name = method.full_name();
        texts.iter().filter_map(|text| self.add_rule(&known, text).err()).map(|e| format!("`{name}`: {e}")).collect()
    }

    fn add_rule(&mut self, method: &Arc<Method>, text: &RuleText) -> Result<(), String> {
        let Some((verb, path)) = &text.pattern else { return Err("the rule has no method and path".to_owned()) };
        if verb == "HEAD" {
            // Whether an answer has a body is decided by the request's method, which is another one upstream.
            return Err("the method HEAD is not supported; it is answered by no rule".to_owned());
        }
        if self.rules.len() >= MAX_RULES {
            return Err(format!("there are more than {MAX_RULES} rules"));
        }
        let template = Template::parse(path).map_err(|error| format!("the path `{path}`: {error}"))?;
        let variables = template.variables.iter().map(|variable| bound(&template, variable, &method.input));
        let variables = variables.collect::<Result<_, _>>()?;
        let body = match text.body.as_str() {
            "" | "*" => Vec::new(),
            body => resolve(&method.input, body.split('.'))?,
        };
        if body.iter().rev().skip(1).any(|field| field.is_list()) {
            return Err(format!("the body `{}` lies below a repeated field", text.body));
        }
        let body_kind = kind_at(&method.input, &body);
        let response = match text.response_body.as_str() {
            "" => None,
            name => Some(field(&method.output, name)?),
        };
        let response_kind = kind_at(&method.output, response.as_slice());
        let rule = Rule {
            method: method.clone(),
            variables,
            body_is_raw: body_kind.is_some_and(|kind| kind.full_name() == HTTP_BODY),
            body,
            response_is_raw: response_kind.is_some_and(|kind| kind.full_name() == HTTP_BODY),
            response,
        };
        self.matcher.insert(verb, &template, self.rules.len()).map_err(|other| {
            let other = self.rules.get(other).map_or("", |rule| &rule.method.path);
            format!("`{verb} {path}` is taken by `{other}`")
        })?;
        self.rules.push(Arc::new(rule));
        Ok(())
    }
}

/// A rule as it is written.
struct RuleText {
    pattern: Option<(String, String)>,
    body: String,
    response_body: String,
}

impl RuleText {
    fn of(rule: &DynamicMessage) -> RuleText {
        let text = |message: &DynamicMessage, name: &str| {
            message.get_field_by_name(name).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let simple = ["get", "put", "post", "delete", "patch"].into_iter().find(|name| rule.has_field_by_name(name));
        let pattern = match simple {
            Some(name) => Some((name.to_ascii_uppercase(), text(rule, name))),
            None if rule.has_field_by_name("custom") => rule
                .get_field_by_name("custom")
                .and_then(|custom| custom.as_message().map(|custom| (text(custom, "kind"), text(custom, "path")))),
            None => None,
        };
        RuleText { pattern, body: text(rule, "body"), response_body: text(rule, "response_body") }
    }
}

fn bound(template: &Template, variable: &Variable, input: &MessageDescriptor) -> Result<Bound, String> {
    let field = resolve(input, variable.path.iter().map(String::as_str))?;
    if let Some(field) = field.iter().find(|field| field.is_list() || field.is_map()) {
        return Err(format!("a part of the path cannot be bound to the repeated field `{}`", field.name()));
    }
    Ok(Bound {
        field,
        start: variable.start,
        end: variable.end,
        many: template.segments.iter().position(|segment| *segment == super::template::Segment::Many),
        segments: template.segments.len(),
    })
}

/// The fields of a path from a message down, each by its name or its name in JSON.
pub(super) fn resolve<'n>(
    message: &MessageDescriptor,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<FieldDescriptor>, String> {
    let mut fields: Vec<FieldDescriptor> = Vec::new();
    for name in names {
        let next = match fields.last() {
            None => field(message, name)?,
            Some(last) => match last.kind() {
                Kind::Message(inner) if !last.is_map() => field(&inner, name)?,
                _ => return Err(no_field(name, last.full_name())),
            },
        };
        fields.push(next);
    }
    Ok(fields)
}

fn field(message: &MessageDescriptor, name: &str) -> Result<FieldDescriptor, String> {
    let found = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
    found.ok_or_else(|| no_field(name, message.full_name()))
}

fn no_field(name: &str, kind: &str) -> String {
    format!("Could not find field \"{name}\" in the type \"{kind}\".")
}

/// The message at the end of a path, if it is a single one.
fn kind_at(message: &MessageDescriptor, path: &[FieldDescriptor]) -> Option<MessageDescriptor> {
    match path.last() {
        None => Some(message.clone()),
        Some(field) if field.is_list() || field.is_map() => None,
        Some(field) => field.kind().as_message().cloned(),
    }
}

/// Whether a message of any type may lie somewhere below one of this type.
fn reaches_any(message: &MessageDescriptor) -> bool {
    let mut seen = HashSet::from([message.full_name().to_owned()]);
    let mut pending = vec![message.clone()];
    while let Some(message) = pending.pop() {
        if message.full_name() == ANY {
            return true;
        }
        for inner in message.fields().filter_map(|field| field.kind().as_message().cloned()) {
            if seen.insert(inner.full_name().to_owned()) {
                pending.push(inner);
            }
        }
    }
    false
}

/// `google.rpc.Status`, which answers may carry whether or not the descriptors have it.
fn status(pool: &mut DescriptorPool) -> Result<MessageDescriptor, String> {
    const STATUS: &str = "google.rpc.Status";
    const ANY_FILE: &str = "google/protobuf/any.proto";
    if pool.get_message_by_name(STATUS).is_none() {
        let own = |error: prost_reflect::DescriptorError| format!("the descriptors do not take `{STATUS}`: {error}");
        if pool.get_message_by_name(ANY).is_none() {
            let any =
                DescriptorPool::global().get_file_by_name(ANY_FILE).map(|file| file.file_descriptor_proto().clone());
            pool.add_file_descriptor_protos(any).map_err(own)?;
        }
        let any_file = pool.get_message_by_name(ANY).map(|any| any.parent_file().name().to_owned());
        pool.add_file_descriptor_proto(status_file(any_file.unwrap_or_else(|| ANY_FILE.to_owned()))).map_err(own)?;
    }
    pool.get_message_by_name(STATUS).ok_or_else(|| format!("the descriptors do not take `{STATUS}`"))
}

fn status_file(any_file: String) -> FileDescriptorProto {
    use field_descriptor_proto::{Label, Type};
    let field = |name: &str, number: i32, label: Label, kind: Type| FieldDescriptorProto {
        name: Some(name.to_owned()),
        json_name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label as i32),
        r#type: Some(kind as i32),
        type_name: (kind == Type::Message).then(|| format!(".{ANY}")),
        ..FieldDescriptorProto::default()
    };
    FileDescriptorProto {
        name: Some("postrider/google_rpc_status.proto".to_owned()),
        package: Some("google.rpc".to_owned()),
        syntax: Some("proto3".to_owned()),
        dependency: vec![any_file],
        message_type: vec![DescriptorProto {
            name: Some("Status".to_owned()),
            field: vec![
                field("code", 1, Label::Optional, Type::Int32),
                field("message", 2, Label::Optional, Type::String),
                field("details", 3, Label::Repeated, Type::Message),
            ],
            ..DescriptorProto::default()
        }],
        ..FileDescriptorProto::default()
    }
}
