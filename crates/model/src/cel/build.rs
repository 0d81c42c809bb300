//! Puts checked expressions together, whatever they were written as.

use super::{Allowed, Attribute, Calendar, Constant, Function, MAX_PARTS, Node};
use crate::Regex;

/// Counts the parts while an expression grows.
pub(super) struct Builder {
    pub(super) allowed: Allowed,
    parts: usize,
}

type Built = Result<Node, String>;

/// Names that mean types.
const TYPES: [&str; 10] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

impl Builder {
    pub(super) fn new(allowed: Allowed) -> Builder {
        Builder { allowed, parts: 0 }
    }

    fn count(&mut self) -> Result<(), String> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(format!("an expression may have {MAX_PARTS} parts"));
        }
        Ok(())
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Built {
        self.count()?;
        Ok(Node::Constant(constant))
    }

    pub(super) fn name(&mut self, name: &str) -> Built {
        self.count()?;
        let name = name.trim_start_matches('.');
        if let Some(known) = TYPES.iter().find(|known| **known == name) {
            return Ok(Node::Type(known));
        }
        self.attribute(name)
    }

    /// The whole name of an attribute, or its beginning.
    fn attribute(&self, name: &str) -> Built {
        // A message has a value, and more may follow its name.
        if Attribute::is_prefix(name) {
            return Ok(Node::Prefix(name.to_owned()));
        }
        if let Some(attribute) = Attribute::named(name) {
            return Ok(Node::Attribute(attribute));
        }
        Err(match name.rsplit_once('.') {
            Some((before, last)) => {
                format!("`{before}` has no `{last}` here; known are {}", Attribute::below(before))
            }
            None => format!(
                "`{name}` is unknown; expressions look at request, response, source, destination, connection, upstream, \
                 metadata, filter_state and xds"
            ),
        })
    }

    pub(super) fn field(&mut self, operand: Node, field: &str) -> Built {
        self.count()?;
        match operand {
            Node::Prefix(prefix) => self.attribute(&format!("{prefix}.{field}")),
            operand => Ok(Node::Field(Box::new(operand), field.to_owned())),
        }
    }

    pub(super) fn has(&mut self, operand: Node, field: &str) -> Built {
        self.count()?;
        match operand {
            Node::Prefix(prefix) => match self.attribute(&format!("{prefix}.{field}"))? {
                Node::Attribute(attribute) => Ok(Node::HasAttribute(attribute)),
                Node::Prefix(name) => Ok(match Attribute::named(&name) {
                    Some(message) => Node::HasAttribute(message),
                    // A group of attributes is always there.
                    None => Node::Constant(Constant::Bool(true)),
                }),
                _ => Ok(Node::Constant(Constant::Bool(true))),
            },
            operand => Ok(Node::Has(Box::new(operand), field.to_owned())),
        }
    }

    pub(super) fn all(&mut self, left: Node, right: Node) -> Built {
        self.count()?;
        Ok(Node::All(joined(whole(left)?, whole(right)?, |node| match node {
            Node::All(all) => Ok(all),
            other => Err(other),
        })))
    }

    pub(super) fn any(&mut self, left: Node, right: Node) -> Built {
        self.count()?;
        Ok(Node::Any(joined(whole(left)?, whole(right)?, |node| match node {
            Node::Any(any) => Ok(any),
            other => Err(other),
        })))
    }

    pub(super) fn choice(&mut self, condition: Node, then: Node, otherwise: Node) -> Built {
        self.count()?;
        Ok(Node::Choice(Box::new([whole(condition)?, whole(then)?, whole(otherwise)?])))
    }

    pub(super) fn list(&mut self, items: Vec<Node>) -> Built {
        self.count()?;
        items.into_iter().map(whole).collect::<Result<_, _>>().map(Node::List)
    }

    pub(super) fn map(&mut self, entries: Vec<(Node, Node)>) -> Built {
        self.count()?;
        entries
            .into_iter()
            .map(|(key, value)| Ok((whole(key)?, whole(value)?)))
            .collect::<Result<_, _>>()
            .map(Node::Map)
    }

    pub(super) fn operator(&mut self, function: Function, operands: Vec<Node>) -> Built {
        self.count()?;
        if let (Function::Index, [Node::Prefix(prefix), Node::Constant(Constant::Text(field))]) =
            (function, operands.as_slice())
            && !Attribute::named(prefix).is_some_and(Attribute::is_locality)
        {
            return self.attribute(&format!("{prefix}.{field}"));
        }
        if let (Function::Negate, [Node::Constant(constant)]) = (function, operands.as_slice()) {
            match constant {
                Constant::Int(number) => {
                    let negative = number.checked_neg().ok_or("the number is too large")?;
                    return Ok(Node::Constant(Constant::Int(negative)));
                }
                Constant::Double(number) => return Ok(Node::Constant(Constant::Double(-number))),
                _ => {}
            }
        }
        let operands = operands.into_iter().map(whole).collect::<Result<_, _>>()?;
        Ok(Node::Call(function, operands))
    }

    /// Refuses functions that are loops, whose variable means nothing outside them.
    pub(super) fn no_loop(&self, name: &str) -> Result<(), String> {
        if matches!(name, "all" | "exists" | "exists_one" | "map" | "filter") {
            return Err(format!(
                "`{name}` is a loop, and expressions have none: they would cost more than they are long"
            ));
        }
        Ok(())
    }

    /// A function by its name; `target` is what stands before its dot.
    pub(super) fn call(&mut self, name: &str, target: Option<Node>, mut args: Vec<Node>) -> Built {
        self.count()?;
        let of_target = target.is_some();
        if let Some(target) = target {
            args.insert(0, target);
        }
        let mut args = args.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        if name == "matches" {
            let (Some(pattern), Some(text), true) = (args.pop(), args.pop(), args.is_empty()) else {
                return Err("`matches` takes a text and a pattern".to_owned());
            };
            let Node::Constant(Constant::Text(pattern)) = pattern else {
                return Err("the pattern of `matches` must be written out: it is compiled once".to_owned());
            };
            let regex = Regex::of_characters(&pattern).map_err(|error| {
                let reason = error.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
                format!("`{pattern}` is no regular expression: {reason}")
            })?;
            return Ok(Node::Matches(Box::new(text), regex));
        }
        let Some(&(_, function, form, counts, need)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!("there is no function `{name}`"));
        };
        let setting = match need {
            Need::Nothing => None,
            Need::Conversion => (!self.allowed.conversion).then_some("enable_string_conversion"),
            Need::Functions => (!self.allowed.functions).then_some("enable_string_functions"),
        };
        if let Some(setting) = setting {
            return Err(format!("`{name}` makes texts, which cel_config allows with {setting}: true"));
        }
        let fits = match form {
            Form::Global => !of_target,
            Form::Member => of_target,
            Form::Either => true,
        };
        if !fits {
            let shown = if of_target { format!("{name}(x)") } else { format!("x.{name}()") };
            return Err(format!("`{name}` is called as `{shown}`"));
        }
        if !(counts.0..=counts.1).contains(&args.len()) {
            return Err(format!("`{name}` does not take {} values", args.len()));
        }
        if let (Function::Calendar(_), Some(zone)) = (function, args.get(1)) {
            let Node::Constant(Constant::Text(zone)) = zone else {
                return Err("a time zone must be written out".to_owned());
            };
            if super::utc_offset(zone).is_none() {
                return Err(format!("`{zone}`: a time zone is written as UTC or as its offset, such as +02:00"));
            }
        }
        Ok(Node::Call(function, args))
    }
}

/// A value: not the mere beginning of a name.
pub(super) fn whole(node: Node) -> Built {
    match node {
        Node::Prefix(prefix) => match Attribute::named(&prefix) {
            Some(message) => Ok(Node::Attribute(message)),
            None => Err(format!("`{prefix}` is no value by itself; it has {}", Attribute::below(&prefix))),
        },
        node => Ok(node),
    }
}

/// Long chains stand side by side, not in each other.
fn joined(left: Node, right: Node, open: impl Fn(Node) -> Result<Vec<Node>, Node>) -> Vec<Node> {
    let mut all = open(left).unwrap_or_else(|node| vec![node]);
    match open(right) {
        Ok(more) => all.extend(more),
        Err(node) => all.push(node),
    }
    all
}

#[derive(Clone, Copy)]
enum Form {
    Global,
    Member,
    Either,
}

#[derive(Clone, Copy)]
enum Need {
    Nothing,
    Conversion,
    Functions,
}

type Row = (&'static str, Function, Form, (usize, usize), Need);

const FUNCTIONS: &[Row] = &[
    ("size", Function::Size, Form::Either, (1, 1), Need::Nothing),
    ("contains", Function::Contains, Form::Either, (2, 2), Need::Nothing),
    ("startsWith", Function::StartsWith, Form::Either, (2, 2), Need::Nothing),
    ("endsWith", Function::EndsWith, Form::Either, (2, 2), Need::Nothing),
    ("int", Function::ToInt, Form::Global, (1, 1), Need::Nothing),
    ("uint", Function::ToUint, Form::Global, (1, 1), Need::Nothing),
    ("double", Function::ToDouble, Form::Global, (1, 1), Need::Nothing),
    ("bool", Function::ToBool, Form::Global, (1, 1), Need::Nothing),
    ("bytes", Function::ToBytes, Form::Global, (1, 1), Need::Nothing),
    ("string", Function::ToText, Form::Global, (1, 1), Need::Conversion),
    ("type", Function::TypeOf, Form::Global, (1, 1), Need::Nothing),
    ("dyn", Function::Same, Form::Global, (1, 1), Need::Nothing),
    ("duration", Function::Duration, Form::Global, (1, 1), Need::Nothing),
    ("timestamp", Function::Timestamp, Form::Global, (1, 1), Need::Nothing),
    ("getFullYear", Function::Calendar(Calendar::FullYear), Form::Member, (1, 2), Need::Nothing),
    ("getMonth", Function::Calendar(Calendar::Month), Form::Member, (1, 2), Need::Nothing),
    ("getDate", Function::Calendar(Calendar::Date), Form::Member, (1, 2), Need::Nothing),
    ("getDayOfMonth", Function::Calendar(Calendar::DayOfMonth), Form::Member, (1, 2), Need::Nothing),
    ("getDayOfWeek", Function::Calendar(Calendar::DayOfWeek), Form::Member, (1, 2), Need::Nothing),
    ("getDayOfYear", Function::Calendar(Calendar::DayOfYear), Form::Member, (1, 2), Need::Nothing),
    ("getHours", Function::Calendar(Calendar::Hours), Form::Member, (1, 2), Need::Nothing),
    ("getMinutes", Function::Calendar(Calendar::Minutes), Form::Member, (1, 2), Need::Nothing),
    ("getSeconds", Function::Calendar(Calendar::Seconds), Form::Member, (1, 2), Need::Nothing),
    ("getMilliseconds", Function::Calendar(Calendar::Milliseconds), Form::Member, (1, 2), Need::Nothing),
    ("lowerAscii", Function::Lower, Form::Member, (1, 1), Need::Functions),
    ("upperAscii", Function::Upper, Form::Member, (1, 1), Need::Functions),
    ("trim", Function::Trim, Form::Member, (1, 1), Need::Functions),
    ("replace", Function::Replace, Form::Member, (3, 4), Need::Functions),
    ("split", Function::Split, Form::Member, (2, 3), Need::Functions),
    ("join", Function::Join, Form::Member, (1, 2), Need::Functions),
    ("substring", Function::Substring, Form::Member, (2, 3), Need::Functions),
    ("indexOf", Function::IndexOf, Form::Member, (2, 2), Need::Functions),
];
