//! The rules of a message type, compiled from the options of its descriptor.

use std::cmp::Ordering;
use std::collections::HashSet;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, OneofDescriptor, ReflectMessage, Value,
};
use regex::Regex;

/// The option on fields.
const FIELD_RULES: &str = "validate.rules";
/// The option on oneofs.
const ONEOF_REQUIRED: &str = "validate.required";
/// The options on messages that switch all rules off.
const SWITCHED_OFF: [&str; 2] = ["validate.disabled", "validate.ignored"];

const NANOS: i128 = 1_000_000_000;

/// What the fields of a message must satisfy.
#[derive(Debug, Default)]
pub struct MessageRules {
    pub fields: Vec<FieldRules>,
    pub required_oneofs: Vec<OneofDescriptor>,
    /// Numbers of fields whose messages are not to be checked.
    pub skipped: HashSet<u32>,
}

/// The rules of one field.
#[derive(Debug)]
pub struct FieldRules {
    pub descriptor: FieldDescriptor,
    pub rules: Rules,
}

/// What one value must satisfy. Of the parts at most one belongs to the value's kind.
#[derive(Debug, Default)]
pub struct Rules {
    /// A message field that must be set.
    pub required: bool,
    pub boolean: Option<bool>,
    pub integer: Option<Limits<i128>>,
    pub float: Option<Limits<f64>>,
    pub text: Option<TextRules>,
    pub bytes: Option<TextRules>,
    pub enumeration: Option<EnumRules>,
    /// In nanoseconds.
    pub duration: Option<Limits<i128>>,
    pub items: Option<Box<ItemRules>>,
    pub pairs: Option<Box<PairRules>>,
    /// Type URLs that an `Any` may have; empty: any.
    pub any_types: Option<Vec<String>>,
}

/// Bounds and allowed values of a number.
#[derive(Debug)]
pub struct Limits<T> {
    pub constant: Option<T>,
    pub below: Option<T>,
    pub at_most: Option<T>,
    pub above: Option<T>,
    pub at_least: Option<T>,
    pub one_of: Vec<T>,
    pub none_of: Vec<T>,
    pub ignore_empty: bool,
}

/// What a text, or bytes, must look like. Lengths of text are in characters, `*_bytes` in bytes.
#[derive(Debug, Default)]
pub struct TextRules {
    pub constant: Option<String>,
    pub length: Option<usize>,
    pub least: usize,
    pub most: Option<usize>,
    pub length_bytes: Option<usize>,
    pub least_bytes: usize,
    pub most_bytes: Option<usize>,
    pub pattern: Option<Regex>,
    pub prefix: Option<String>,
    pub suffix: Option<String>,
    pub contains: Option<String>,
    pub not_contains: Option<String>,
    pub one_of: Vec<String>,
    pub none_of: Vec<String>,
    /// `ip`, `hostname`, `uri`…: a named form.
    pub form: Option<&'static str>,
    pub header: Option<HeaderForm>,
    pub ignore_empty: bool,
}

/// `well_known_regex`: what an HTTP header takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderForm {
    pub name: bool,
    pub strict: bool,
}

/// What an enum value must be.
#[derive(Debug, Default)]
pub struct EnumRules {
    pub constant: Option<i32>,
    pub defined_only: bool,
    pub one_of: Vec<i32>,
    pub none_of: Vec<i32>,
    pub descriptor: Option<prost_reflect::EnumDescriptor>,
}

/// How many elements a list has, and what each must satisfy.
#[derive(Debug, Default)]
pub struct ItemRules {
    pub least: usize,
    pub most: Option<usize>,
    pub unique: bool,
    pub each: Rules,
}

/// How many entries a map has, and what keys and values must satisfy.
#[derive(Debug, Default)]
pub struct PairRules {
    pub least: usize,
    pub most: Option<usize>,
    pub keys: Rules,
    pub values: Rules,
}

impl MessageRules {
    /// Reads the rules of a type.
    pub fn of(message: &MessageDescriptor) -> MessageRules {
        let pool = message.parent_pool();
        let mut rules = MessageRules::default();
        let options = message.options();
        if SWITCHED_OFF.iter().any(|name| flag(pool, &options, name)) {
            return rules;
        }
        rules.required_oneofs = message.oneofs().filter(|oneof| flag(pool, &oneof.options(), ONEOF_REQUIRED)).collect();
        let Some(extension) = pool.get_extension_by_name(FIELD_RULES) else { return rules };
        for descriptor in message.fields() {
            let options = descriptor.options();
            if !options.has_extension(&extension) {
                continue;
            }
            let option = options.get_extension(&extension);
            let Some(option) = option.as_message() else { continue };
            if nested(option, "message").is_some_and(|message| truth(&message, "skip")) {
                rules.skipped.insert(descriptor.number());
            }
            rules.fields.push(FieldRules { rules: Rules::of(option, &descriptor), descriptor });
        }
        rules
    }
}

impl Rules {
    /// Reads a `validate.FieldRules` for a field (or for the elements of one).
    fn of(option: &DynamicMessage, field: &FieldDescriptor) -> Rules {
        let mut rules =
            Rules { required: nested(option, "message").is_some_and(|m| truth(&m, "required")), ..Rules::default() };
        for (part, value) in option.fields() {
            let Some(part_rules) = value.as_message() else { continue };
            match part.name() {
                "message" => {}
                "bool" => rules.boolean = set(part_rules, "const").and_then(|value| value.as_bool()),
                "float" | "double" => rules.float = Some(limits(part_rules, float)),
                "string" => rules.text = Some(TextRules::of(part_rules)),
                "bytes" => rules.bytes = Some(TextRules::of(part_rules)),
                "enum" => rules.enumeration = Some(EnumRules::of(part_rules, field)),
                "duration" => {
                    rules.required |= truth(part_rules, "required");
                    rules.duration = Some(limits(part_rules, nanoseconds));
                }
                "timestamp" => rules.required |= truth(part_rules, "required"),
                "any" => {
                    rules.required |= truth(part_rules, "required");
                    rules.any_types = Some(strings(part_rules, "in"));
                }
                "repeated" => {
                    rules.items = Some(Box::new(ItemRules {
                        least: size(part_rules, "min_items").unwrap_or(0),
                        most: size(part_rules, "max_items"),
                        unique: truth(part_rules, "unique"),
                        each: nested(part_rules, "items").map(|each| Rules::of(&each, field)).unwrap_or_default(),
                    }));
                }
                "map" => {
                    let of =
                        |name: &str| nested(part_rules, name).map(|each| Rules::of(&each, field)).unwrap_or_default();
                    rules.pairs = Some(Box::new(PairRules {
                        least: size(part_rules, "min_pairs").unwrap_or(0),
                        most: size(part_rules, "max_pairs"),
                        keys: of("keys"),
                        values: of("values"),
                    }));
                }
                _ => rules.integer = Some(limits(part_rules, integer)),
            }
        }
        rules
    }
}

impl TextRules {
    fn of(option: &DynamicMessage) -> TextRules {
        let text = |name: &str| set(option, name).and_then(|value| as_text(&value));
        let forms = ["email", "hostname", "ip", "ipv4", "ipv6", "uri", "uri_ref", "address", "uuid"];
        let well_known = set(option, "well_known_regex").and_then(|value| value.as_enum_number()).unwrap_or(0);
        // Strict unless it says otherwise.
        let strict = set(option, "strict").and_then(|value| value.as_bool()).unwrap_or(true);
        TextRules {
            constant: text("const"),
            length: size(option, "len"),
            least: size(option, "min_len").unwrap_or(0),
            most: size(option, "max_len"),
            length_bytes: size(option, "len_bytes"),
            least_bytes: size(option, "min_bytes").unwrap_or(0),
            most_bytes: size(option, "max_bytes"),
            // The schema's patterns are RE2's; a test compiles every one of them.
            pattern: text("pattern").and_then(|pattern| Regex::new(&pattern).ok()),
            prefix: text("prefix"),
            suffix: text("suffix"),
            contains: text("contains"),
            not_contains: text("not_contains"),
            one_of: strings(option, "in"),
            none_of: strings(option, "not_in"),
            form: forms.into_iter().find(|form| truth(option, form)),
            header: (well_known != 0).then_some(HeaderForm { name: well_known == 1, strict }),
            ignore_empty: truth(option, "ignore_empty"),
        }
    }
}

impl EnumRules {
    fn of(option: &DynamicMessage, field: &FieldDescriptor) -> EnumRules {
        let numbers = |name: &str| list(option, name).iter().filter_map(Value::as_i32).collect();
        let descriptor = match field.kind() {
            prost_reflect::Kind::Enum(descriptor) => Some(descriptor),
            _ => None,
        };
        EnumRules {
            constant: set(option, "const").and_then(|value| value.as_i32()),
            defined_only: truth(option, "defined_only"),
            one_of: numbers("in"),
            none_of: numbers("not_in"),
            descriptor,
        }
    }
}

impl<T: PartialOrd> Limits<T> {
    /// Whether a number is within the bounds. With the lower bound above the upper one, the rule means what is outside.
    pub fn within(&self, number: &T) -> bool {
        let low = match (&self.above, &self.at_least) {
            (Some(bound), _) => number > bound,
            (None, Some(bound)) => number >= bound,
            (None, None) => true,
        };
        let high = match (&self.below, &self.at_most) {
            (Some(bound), _) => number < bound,
            (None, Some(bound)) => number <= bound,
            (None, None) => true,
        };
        let lowest = self.above.as_ref().or(self.at_least.as_ref());
        let highest = self.below.as_ref().or(self.at_most.as_ref());
        match (lowest, highest) {
            (Some(low_bound), Some(high_bound)) if low_bound.partial_cmp(high_bound) == Some(Ordering::Greater) => {
                low || high
            }
            _ => low && high,
        }
    }
}

fn limits<T>(option: &DynamicMessage, read: fn(&Value) -> Option<T>) -> Limits<T> {
    let bound = |name: &str| set(option, name).and_then(|value| read(&value));
    let all = |name: &str| list(option, name).iter().filter_map(read).collect();
    Limits {
        constant: bound("const"),
        below: bound("lt"),
        at_most: bound("lte"),
        above: bound("gt"),
        at_least: bound("gte"),
        one_of: all("in"),
        none_of: all("not_in"),
        ignore_empty: truth(option, "ignore_empty"),
    }
}

fn flag(pool: &DescriptorPool, options: &DynamicMessage, name: &str) -> bool {
    pool.get_extension_by_name(name).is_some_and(|extension| options.get_extension(&extension).as_bool() == Some(true))
}

/// The value of a field that is set.
fn set(message: &DynamicMessage, name: &str) -> Option<Value> {
    let field = message.descriptor().get_field_by_name(name)?;
    message.has_field(&field).then(|| message.get_field(&field).into_owned())
}

fn truth(message: &DynamicMessage, name: &str) -> bool {
    set(message, name).and_then(|value| value.as_bool()).unwrap_or(false)
}

fn nested(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    set(message, name).and_then(|value| value.as_message().cloned())
}

fn list(message: &DynamicMessage, name: &str) -> Vec<Value> {
    set(message, name).and_then(|value| value.as_list().map(<[Value]>::to_vec)).unwrap_or_default()
}

fn strings(message: &DynamicMessage, name: &str) -> Vec<String> {
    list(message, name).iter().filter_map(as_text).collect()
}

fn size(message: &DynamicMessage, name: &str) -> Option<usize> {
    set(message, name).and_then(|value| value.as_u64()).and_then(|n| usize::try_from(n).ok())
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::I32(n) => Some(i128::from(*n)),
        Value::I64(n) => Some(i128::from(*n)),
        Value::U32(n) => Some(i128::from(*n)),
        Value::U64(n) => Some(i128::from(*n)),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::F32(n) => Some(f64::from(*n)),
        Value::F64(n) => Some(*n),
        _ => None,
    }
}

fn nanoseconds(value: &Value) -> Option<i128> {
    let message = value.as_message()?;
    let seconds = set(message, "seconds").and_then(|value| value.as_i64()).unwrap_or(0);
    let nanos = set(message, "nanos").and_then(|value| value.as_i32()).unwrap_or(0);
    Some(i128::from(seconds) * NANOS + i128::from(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern that does not compile would switch its rule off.
    #[test]
    fn every_pattern_of_the_schema_compiles() {
        let pool = postrider_envoy_proto::full_pool();
        let rules = pool.get_extension_by_name(FIELD_RULES).unwrap();
        let mut patterns = 0;
        for message in pool.all_messages() {
            for field in message.fields() {
                let options = field.options();
                let option = options.get_extension(&rules);
                let Some(text) = option.as_message().and_then(|rules| nested(rules, "string")) else { continue };
                if let Some(pattern) = set(&text, "pattern").and_then(|value| as_text(&value)) {
                    patterns += 1;
                    assert!(Regex::new(&pattern).is_ok(), "{}: {pattern}", field.full_name());
                }
            }
        }
        assert!(patterns > 10, "{patterns}");
    }
}
