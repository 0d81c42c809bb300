//! Expressions as trees: `google.api.expr.v1alpha1.Expr` and `cel.expr.Expr`, which are written alike.

use super::build::{Builder, whole};
use super::{Allowed, Constant, Expression, Function, MAX_DEPTH, Node};
use crate::{Reading, Value};

impl Allowed {
    /// `envoy.config.core.v3.CelExpressionConfig`.
    pub fn read(at: &mut Reading<'_>) -> Allowed {
        Allowed {
            conversion: at.flag("enable_string_conversion"),
            concatenation: at.flag("enable_string_concat"),
            functions: at.flag("enable_string_functions"),
        }
    }
}

impl Expression {
    /// `Expr`; `None` after an error.
    pub fn read(at: &mut Reading<'_>, allowed: Allowed) -> Option<Expression> {
        let mut builder = Builder::new(allowed);
        let root = node(at, &mut builder, 0)?;
        let root = whole(root).map_err(|message| at.wrong(message)).ok()?;
        Some(Expression { root, allowed })
    }

    /// `ParsedExpr` and `CheckedExpr`: a tree with notes about it.
    pub fn read_noted(at: &mut Reading<'_>, allowed: Allowed) -> Option<Expression> {
        // Types and places, which say nothing about what is computed.
        for key in ["source_info", "reference_map", "type_map", "expr_version"] {
            at.value(key);
        }
        let read = at.map("expr", |at| Expression::read(at, allowed));
        if read.is_none() {
            at.error("expr", "an expression is required");
        }
        read.flatten()
    }

    /// `xds.type.v3.CelExpression`: the last form that is set counts, as its authors have it.
    pub fn read_any(at: &mut Reading<'_>) -> Option<Expression> {
        let allowed = Allowed::default();
        let mut found = None;
        for key in ["parsed_expr", "checked_expr", "cel_expr_parsed", "cel_expr_checked"] {
            found = at.map(key, |at| Expression::read_noted(at, allowed)).or(found);
        }
        if let Some(text) = at.text("cel_expr_string") {
            let parsed = Expression::parse(text, allowed);
            found = Some(parsed.map_err(|error| at.error("cel_expr_string", error.shown())).ok());
        }
        if found.is_none() {
            at.wrong("an expression is required");
        }
        found.flatten()
    }
}

impl super::CelError {
    /// With the place, counted in characters from 1.
    pub fn shown(&self) -> String {
        format!("at byte {}: {}", self.offset + 1, self.message)
    }
}

fn node(at: &mut Reading<'_>, builder: &mut Builder, depth: usize) -> Option<Node> {
    at.value("id");
    if depth > MAX_DEPTH {
        at.wrong(format!("expressions may stand {MAX_DEPTH} deep in each other"));
        at.skip();
        return None;
    }
    at.refuse("comprehension_expr", "a loop in an expression");
    let made = if at.has("const_expr") {
        let constant = at.map("const_expr", constant)??;
        builder.constant(constant)
    } else if at.has("ident_expr") {
        let name = at.map("ident_expr", |at| at.text("name").unwrap_or_default().to_owned())?;
        builder.name(&name)
    } else if at.has("select_expr") {
        at.map("select_expr", |at| {
            let operand = at.map("operand", |at| node(at, builder, depth + 1)).flatten();
            let field = at.text("field").unwrap_or_default();
            let test = at.flag("test_only");
            Some(if test { builder.has(operand?, field) } else { builder.field(operand?, field) })
        })??
    } else if at.has("call_expr") {
        at.map("call_expr", |at| {
            let name = at.text("function").unwrap_or_default();
            let target = at.map("target", |at| node(at, builder, depth + 1));
            let args: Option<Vec<Node>> =
                at.each("args", |at| node(at, builder, depth + 1)).into_iter().collect::<Option<_>>();
            let target = match target {
                None => None,
                Some(target) => Some(target?),
            };
            Some(call(builder, name, target, args?))
        })??
    } else if at.has("list_expr") {
        at.map("list_expr", |at| {
            at.refuse("optional_indices", "optional items");
            let items = at.each("elements", |at| node(at, builder, depth + 1)).into_iter().collect::<Option<_>>();
            Some(builder.list(items?))
        })??
    } else if at.has("struct_expr") {
        at.map("struct_expr", |at| map(at, builder, depth))??
    } else {
        if !at.has("comprehension_expr") {
            at.wrong("an expression is required");
        }
        return None;
    };
    made.map_err(|message| at.wrong(message)).ok()
}

fn map(at: &mut Reading<'_>, builder: &mut Builder, depth: usize) -> Option<Result<Node, String>> {
    at.refuse("message_name", "messages in expressions");
    let entries = at.each("entries", |at| {
        at.value("id");
        at.refuse("optional_entry", "optional entries");
        at.refuse("field_key", "messages in expressions");
        let key = at.map("map_key", |at| node(at, builder, depth + 1)).flatten();
        let value = at.map("value", |at| node(at, builder, depth + 1)).flatten();
        Some((key?, value?))
    });
    Some(builder.map(entries.into_iter().collect::<Option<_>>()?))
}

/// Operators have names of their own in trees.
fn call(builder: &mut Builder, name: &str, target: Option<Node>, args: Vec<Node>) -> Result<Node, String> {
    const OPERATORS: [(&str, Function); 15] = [
        ("_==_", Function::Equal),
        ("_!=_", Function::Unequal),
        ("_<_", Function::Less),
        ("_<=_", Function::AtMost),
        ("_>_", Function::Greater),
        ("_>=_", Function::AtLeast),
        ("_+_", Function::Add),
        ("_-_", Function::Subtract),
        ("_*_", Function::Multiply),
        ("_/_", Function::Divide),
        ("_%_", Function::Remainder),
        ("@in", Function::In),
        ("_in_", Function::In),
        ("in", Function::In),
        ("_[_]", Function::Index),
    ];
    const UNARY: [(&str, Function); 2] = [("!_", Function::Not), ("-_", Function::Negate)];
    if target.is_some() {
        return builder.call(name, target, args);
    }
    let count = args.len();
    let wrong = || format!("`{name}` does not take {count} values");
    if let Some((_, function)) = OPERATORS.iter().find(|(known, _)| *known == name) {
        return if count == 2 { builder.operator(*function, args) } else { Err(wrong()) };
    }
    if let Some((_, function)) = UNARY.iter().find(|(known, _)| *known == name) {
        return if count == 1 { builder.operator(*function, args) } else { Err(wrong()) };
    }
    let mut args = args.into_iter();
    let (first, second, third) = (args.next(), args.next(), args.next());
    match (name, first, second, third) {
        ("_&&_", Some(left), Some(right), None) => builder.all(left, right),
        ("_||_", Some(left), Some(right), None) => builder.any(left, right),
        ("_?_:_", Some(condition), Some(then), Some(otherwise)) if count == 3 => {
            builder.choice(condition, then, otherwise)
        }
        (_, first, second, third) => {
            builder.call(name, None, [first, second, third].into_iter().flatten().chain(args).collect())
        }
    }
}

fn constant(at: &mut Reading<'_>) -> Option<Constant> {
    at.refuse("duration_value", "this constant");
    at.refuse("timestamp_value", "this constant");
    if at.value("null_value").is_some() {
        return Some(Constant::Null);
    }
    if let Some(value) = at.bool("bool_value") {
        return Some(Constant::Bool(value));
    }
    if at.has("int64_value") {
        return at.whole("int64_value").map(Constant::Int);
    }
    match at.value("uint64_value") {
        Some(Value::Integer(number)) => return u64::try_from(*number).ok().map(Constant::Uint),
        // Beyond 63 bits a number is no integer here.
        Some(Value::Number(number)) => return Some(Constant::Uint(*number as u64)),
        _ => {}
    }
    match at.value("double_value") {
        Some(Value::Number(number)) => return Some(Constant::Double(*number)),
        Some(Value::Integer(number)) => return Some(Constant::Double(*number as f64)),
        _ => {}
    }
    if at.has("string_value") {
        // Unlike elsewhere, an empty text is one.
        return match at.value("string_value") {
            Some(Value::String(text)) => Some(Constant::Text(text.clone())),
            _ => None,
        };
    }
    if let Some(Value::String(text)) = at.value("bytes_value") {
        let bytes = from_base64(text);
        if bytes.is_none() {
            at.error("bytes_value", "this is not base64");
        }
        return bytes.map(Constant::Bytes);
    }
    at.wrong("a constant is required");
    None
}

/// Standard base64, as values hold bytes.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(out)
}
