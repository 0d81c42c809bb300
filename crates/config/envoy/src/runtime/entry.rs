//! One value of the runtime, and what it says to those who ask for a number, a truth or a share.

use postrider_config_core::{Diagnostics, FileId, SourceFile};
use serde_json::Value as Json;

use crate::tree::{self, Node, NodeKind};

/// A value of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// As `/runtime` shows it.
    text: String,
    number: Option<f64>,
    truth: Option<bool>,
    share: Option<Share>,
}

/// A share, as `FractionalPercent` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub numerator: u32,
    /// The number of a `DenominatorType`.
    pub denominator: i32,
}

/// In the order of their numbers.
const DENOMINATORS: [&str; 3] = ["HUNDRED", "TEN_THOUSAND", "MILLION"];

/// What YAML 1.1 takes for a truth; Envoy reads it so in files and from the admin interface.
const TRUTHS: [(&str, bool); 8] = [
    ("true", true),
    ("yes", true),
    ("on", true),
    ("y", true),
    ("false", false),
    ("no", false),
    ("off", false),
    ("n", false),
];

impl Entry {
    /// A value of a static layer; `None` for what cannot be one. A text is a number where it reads as one, and never a
    /// truth or a share.
    pub fn of_json(value: &Json) -> Option<Entry> {
        match value {
            Json::Null | Json::Array(_) => None,
            Json::Bool(truth) => Some(Entry { truth: Some(*truth), ..Entry::text(truth.to_string()) }),
            Json::Number(number) => {
                let value = number.as_f64()?;
                let whole = (value.fract() == 0.0 && value.abs() < 9e15).then(|| format!("{value:.0}"));
                Some(Entry::text(whole.unwrap_or_else(|| number.to_string())).with_number(value))
            }
            Json::String(text) => Some(match number(text) {
                Some(value) => Entry::text(text.clone()).with_number(value),
                None => Entry::text(text.clone()),
            }),
            Json::Object(fields) => {
                let numerator = fields.get("numerator").and_then(Json::as_f64);
                let denominator = fields.get("denominator").map(|name| name.as_str().unwrap_or_default());
                Some(Entry { share: share(numerator, denominator), ..Entry::text(as_text_proto(fields)) })
            }
        }
    }

    /// A value of a file or from the admin interface: text that is read as YAML.
    pub fn of_text(text: &str) -> Entry {
        let entry = Entry::text(text.to_owned());
        if let Some(value) = number(text) {
            return entry.with_number(value);
        }
        let trimmed = text.trim();
        if let Some((_, truth)) = TRUTHS.iter().find(|(known, _)| {
            // All small, all large, or the first letter large.
            let rest = trimmed.get(1..).unwrap_or_default();
            trimmed.eq_ignore_ascii_case(known) && (rest == known.get(1..).unwrap_or_default() || is_large(trimmed))
        }) {
            return Entry { truth: Some(*truth), ..entry };
        }
        // Anything else that is no mapping is a text.
        if !trimmed.contains(':') {
            return entry;
        }
        let mut diagnostics = Diagnostics::new();
        let document = tree::parse(&SourceFile::new("", text), FileId::MAIN, &mut diagnostics);
        let Some(root) = document.root.filter(|_| !diagnostics.has_errors()) else { return entry };
        if !matches!(root.kind, NodeKind::Map(_)) {
            return entry;
        }
        let numerator = root.get("numerator").and_then(Node::as_number);
        Entry { share: share(numerator, root.get("denominator").map(|name| name.text().unwrap_or_default())), ..entry }
    }

    fn text(text: String) -> Entry {
        Entry { text, number: None, truth: None, share: None }
    }

    /// A whole number is a truth, too: zero is false.
    fn with_number(self, value: f64) -> Entry {
        let is_whole = value.fract() == 0.0 && value < f64::from(i32::MAX) && value >= f64::from(i32::MIN);
        Entry { number: Some(value), truth: is_whole.then_some(value != 0.0), ..self }
    }

    pub fn as_text(&self) -> &str {
        &self.text
    }

    pub fn number(&self) -> Option<f64> {
        self.number
    }

    /// A number from zero; what is behind the point is cut off.
    pub fn integer(&self) -> Option<u64> {
        // A cast of a float saturates.
        self.number.filter(|value| *value >= 0.0).map(|value| value as u64)
    }

    pub fn truth(&self) -> Option<bool> {
        self.truth
    }

    /// A share, or a number that is taken for percent.
    pub fn share(&self) -> Option<Share> {
        self.share.or_else(|| Some(Share { numerator: self.integer()?.min(100) as u32, denominator: 0 }))
    }

    /// Whether it was written as a share, not as a number.
    pub fn is_share(&self) -> bool {
        self.share.is_some()
    }
}

impl Share {
    /// How many parts there are.
    pub fn parts(self) -> u32 {
        match self.denominator {
            1 => 10_000,
            2 => 1_000_000,
            _ => 100,
        }
    }

    /// The name of the denominator.
    pub fn denominator_name(self) -> &'static str {
        usize::try_from(self.denominator).ok().and_then(|at| DENOMINATORS.get(at)).copied().unwrap_or("HUNDRED")
    }
}

impl Node {
    fn as_number(&self) -> Option<f64> {
        number(self.text()?)
    }
}

fn is_large(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // `inf` and `nan` are texts.
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|value: &f64| digits && value.is_finite())
}

/// `None` where neither part is there, or the denominator has no meaning.
fn share(numerator: Option<f64>, denominator: Option<&str>) -> Option<Share> {
    if numerator.is_none() && denominator.is_none() {
        return None;
    }
    let denominator = match denominator {
        Some(name) => DENOMINATORS.iter().position(|known| *known == name)? as i32,
        None => 0,
    };
    // A cast of a float saturates.
    Some(Share { numerator: numerator.unwrap_or_default() as u32, denominator })
}

/// A `Struct` as Envoy shows it: in the text form of protocol buffers, its keys in order.
fn as_text_proto(fields: &serde_json::Map<String, Json>) -> String {
    let mut keys: Vec<_> = fields.iter().collect();
    keys.sort_by_key(|(key, _)| key.as_str());
    let field = |(key, value): (&String, &Json)| {
        let value = match value {
            Json::String(text) => format!("string_value: {text:?}"),
            Json::Bool(truth) => format!("bool_value: {truth}"),
            Json::Number(number) => format!("number_value: {}", Entry::of_json(&Json::Number(number.clone()))?.text),
            _ => return None,
        };
        Some(format!("fields {{\n  key: {key:?}\n  value {{\n    {value}\n  }}\n}}\n"))
    };
    keys.into_iter().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fixed(value: Json) -> Entry {
        Entry::of_json(&value).unwrap()
    }

    #[test]
    fn values_mean_what_they_mean_in_envoy() {
        // Each row was seen on Envoy 1.40: as a percentage, a truth and a whole number.
        let share = |numerator, denominator| Some(Share { numerator, denominator });
        let rows = [
            (fixed(json!(50)), share(50, 0), Some(true), Some(50)),
            (fixed(json!(150)), share(100, 0), Some(true), Some(150)),
            (fixed(json!(99.9)), share(99, 0), None, Some(99)),
            (fixed(json!(-5)), None, Some(true), None),
            (fixed(json!(0)), share(0, 0), Some(false), Some(0)),
            (fixed(json!(true)), None, Some(true), None),
            (fixed(json!(" 100")), share(100, 0), Some(true), Some(100)),
            (fixed(json!("true")), None, None, None),
            (fixed(json!("{numerator: 100}")), None, None, None),
            (fixed(json!({"numerator": 7, "denominator": "MILLION"})), share(7, 2), None, None),
            (Entry::of_text("true"), None, Some(true), None),
            (Entry::of_text("1.50"), share(1, 0), None, Some(1)),
            (Entry::of_text("{numerator: 20}"), share(20, 0), None, None),
            (Entry::of_text("numerator: 20\ndenominator: TEN_THOUSAND"), share(20, 1), None, None),
            (Entry::of_text(r#"{"numerator":1,"denominator":"HUNDRED"}"#), share(1, 0), None, None),
            (Entry::of_text("{foo: 1}"), None, None, None),
            (Entry::of_text("hello: ["), None, None, None),
        ];
        for (entry, share, truth, integer) in rows {
            assert_eq!((entry.share(), entry.truth(), entry.integer()), (share, truth, integer), "{entry:?}");
        }
    }

    #[test]
    fn what_is_no_value_is_none() {
        assert_eq!((Entry::of_json(&json!(null)), Entry::of_json(&json!([1]))), (None, None));
    }

    #[test]
    fn a_share_is_shown_as_envoy_shows_it() {
        let shown = fixed(json!({"numerator": 1, "denominator": "MILLION"}));
        let want = "fields {\n  key: \"denominator\"\n  value {\n    string_value: \"MILLION\"\n  }\n}\n\
                    fields {\n  key: \"numerator\"\n  value {\n    number_value: 1\n  }\n}\n";
        assert_eq!(shown.as_text(), want);
    }
}
