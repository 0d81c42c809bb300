//! Expressions in CEL, the Common Expression Language, over what is known of a request.
//!
//! Only what can be computed in one pass is taken: there are no loops, so that an evaluation costs no more than the
//! expression is long (times the length of the texts that it looks at). Names, functions and constant patterns are checked
//! when an expression is read; what may still fail is that a value is missing or of another kind.

mod attribute;
mod build;
mod parse;
mod read;

pub use attribute::Attribute;

use crate::Regex;

/// The most parts of one expression: its cost is in proportion to them.
pub const MAX_PARTS: usize = 2000;

/// How deep expressions may stand in each other.
pub const MAX_DEPTH: usize = 64;

/// A checked expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub root: Node,
    pub allowed: Allowed,
}

/// What an expression may do beyond comparing (`envoy.config.core.v3.CelExpressionConfig`): all of it makes texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    pub conversion: bool,
    pub concatenation: bool,
    pub functions: bool,
}

/// One step of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Constant(Constant),
    Attribute(Attribute),
    /// The name of a type, as a value.
    Type(&'static str),
    /// An entry of a map that the operand gives.
    Field(Box<Node>, String),
    /// Whether it has one.
    Has(Box<Node>, String),
    HasAttribute(Attribute),
    All(Vec<Node>),
    Any(Vec<Node>),
    /// If, then, else.
    Choice(Box<[Node; 3]>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Call(Function, Vec<Node>),
    /// Some part of the operand matches.
    Matches(Box<Node>, Regex),
    /// The beginning of an attribute's name: nothing by itself, so that none is left in a checked expression.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// What is done with values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Negate,
    Not,
    In,
    Index,
    Size,
    Contains,
    StartsWith,
    EndsWith,
    ToInt,
    ToUint,
    ToDouble,
    ToBool,
    ToBytes,
    ToText,
    TypeOf,
    Same,
    Duration,
    Timestamp,
    Calendar(Calendar),
    Lower,
    Upper,
    Trim,
    Replace,
    Split,
    Join,
    Substring,
    IndexOf,
}

/// A part of a time of day or of a date, or of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    FullYear,
    /// From 0.
    Month,
    /// From 1.
    Date,
    /// From 0.
    DayOfMonth,
    /// Sunday is 0.
    DayOfWeek,
    /// From 0.
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CelError {
    /// In bytes from the start of the text; 0 for an expression that is no text.
    pub offset: usize,
    pub message: String,
}

impl Expression {
    /// Reads an expression as people write it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str, allowed: Allowed) -> Result<Expression, CelError> {
        Ok(Expression { root: parse::parse(text, allowed)?, allowed })
    }
}

/// Seconds east of Greenwich: `UTC`, or an offset such as `+02:00`.
pub fn utc_offset(zone: &str) -> Option<i64> {
    if matches!(zone, "UTC" | "Z" | "Etc/UTC") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let part = |text: &str, below: i64| {
        let fits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| fits && *number < below)
    };
    Some(sign * (part(hours, 24)? * 3600 + part(minutes, 60)? * 60))
}

#[cfg(test)]
mod tests;
