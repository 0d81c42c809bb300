//! Walks through an expression once.

use std::borrow::Cow;
use std::cmp::Ordering;

use postrider_model::cel::{Allowed, Constant, Function, Node, utc_offset};

use super::facts::Facts;
use super::value::{Data, Failed, Outcome};
use super::{MAX_TEXT, text, time};

pub(super) fn evaluate<'a>(node: &'a Node, allowed: Allowed, facts: &Facts<'a>) -> Outcome<'a> {
    let value = |node: &'a Node| evaluate(node, allowed, facts);
    match node {
        Node::Constant(constant) => Ok(match constant {
            Constant::Null => Data::Null,
            Constant::Bool(value) => Data::Bool(*value),
            Constant::Int(number) => Data::Int(*number),
            Constant::Uint(number) => Data::Uint(*number),
            Constant::Double(number) => Data::Double(*number),
            Constant::Text(text) => Data::Text(Cow::Borrowed(text)),
            Constant::Bytes(bytes) => Data::Bytes(Cow::Borrowed(bytes)),
        }),
        Node::Attribute(attribute) => facts.attribute(*attribute).ok_or(Failed),
        Node::HasAttribute(attribute) => facts.has(*attribute).map(Data::Bool).ok_or(Failed),
        Node::Type(name) => Ok(Data::Type(name)),
        Node::Field(operand, field) => value(operand)?.entry(field, facts)?.ok_or(Failed),
        Node::Has(operand, field) => Ok(Data::Bool(value(operand)?.entry(field, facts)?.is_some())),
        Node::All(all) => settled(all.iter().map(value), false),
        Node::Any(any) => settled(any.iter().map(value), true),
        Node::Choice(parts) => {
            let [condition, then, otherwise] = &**parts;
            if value(condition)?.bool()? { value(then) } else { value(otherwise) }
        }
        Node::List(items) => items.iter().map(value).collect::<Result<_, _>>().map(Data::List),
        Node::Map(entries) => {
            let entries = entries.iter().map(|(key, held)| Ok((value(key)?, value(held)?)));
            entries.collect::<Result<_, _>>().map(Data::Map)
        }
        Node::Matches(operand, regex) => Ok(Data::Bool(regex.is_match(value(operand)?.str()?))),
        Node::Call(function, operands) => {
            let values = operands.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            call(*function, &values, allowed, facts)
        }
        Node::Prefix(_) => Err(Failed),
    }
}

/// One value decides, wherever it stands: failures beside it do not count.
fn settled<'a>(values: impl Iterator<Item = Outcome<'a>>, decisive: bool) -> Outcome<'a> {
    let mut failed = false;
    for value in values {
        match value {
            Ok(Data::Bool(value)) if value == decisive => return Ok(Data::Bool(decisive)),
            Ok(Data::Bool(_)) => {}
            _ => failed = true,
        }
    }
    if failed { Err(Failed) } else { Ok(Data::Bool(!decisive)) }
}

fn call<'a>(function: Function, values: &[Data<'a>], allowed: Allowed, facts: &Facts<'a>) -> Outcome<'a> {
    let one = values.first().ok_or(Failed)?;
    let other = || values.get(1).ok_or(Failed);
    let order = |test: fn(Ordering) -> bool| {
        let found = one.compare(other()?);
        // With a number that is none, nothing is less or more; other kinds have no order.
        match (found, one, other()?) {
            (Some(order), ..) => Ok(Data::Bool(test(order))),
            (None, Data::Double(_), Data::Double(_) | Data::Int(_) | Data::Uint(_))
            | (None, Data::Int(_) | Data::Uint(_), Data::Double(_)) => Ok(Data::Bool(false)),
            _ => Err(Failed),
        }
    };
    match function {
        Function::Equal => Ok(Data::Bool(one.equals(other()?))),
        Function::Unequal => Ok(Data::Bool(!one.equals(other()?))),
        Function::Less => order(Ordering::is_lt),
        Function::AtMost => order(Ordering::is_le),
        Function::Greater => order(Ordering::is_gt),
        Function::AtLeast => order(Ordering::is_ge),
        Function::Not => Ok(Data::Bool(!one.bool()?)),
        Function::Negate => match one {
            Data::Int(number) => number.checked_neg().map(Data::Int).ok_or(Failed),
            Data::Double(number) => Ok(Data::Double(-number)),
            _ => Err(Failed),
        },
        Function::Add | Function::Subtract | Function::Multiply | Function::Divide | Function::Remainder => {
            arithmetic(function, one, other()?, allowed)
        }
        Function::In => other()?.has(one, facts).map(Data::Bool),
        Function::Index => one.at(other()?, facts),
        Function::Size => one.size(facts).map(|size| Data::Int(size as i64)),
        Function::Contains => Ok(Data::Bool(one.str()?.contains(other()?.str()?))),
        Function::StartsWith => Ok(Data::Bool(one.str()?.starts_with(other()?.str()?))),
        Function::EndsWith => Ok(Data::Bool(one.str()?.ends_with(other()?.str()?))),
        Function::Same => Ok(one.clone()),
        Function::TypeOf => Ok(Data::Type(one.kind())),
        Function::ToText => text::converted(one.clone()),
        Function::ToInt | Function::ToUint | Function::ToDouble | Function::ToBool | Function::ToBytes => {
            converted(function, one)
        }
        Function::Duration => match one {
            Data::Duration(_) => Ok(one.clone()),
            _ => time::parse_duration(one.str()?).map(Data::Duration).ok_or(Failed),
        },
        Function::Timestamp => match one {
            Data::Time(_) => Ok(one.clone()),
            Data::Int(seconds) => time::in_range(i128::from(*seconds) * 1_000_000_000).map(Data::Time).ok_or(Failed),
            _ => time::parse_moment(one.str()?).map(Data::Time).ok_or(Failed),
        },
        Function::Calendar(part) => match (one, values.get(1)) {
            (Data::Duration(duration), None) => time::part_of_duration(part, *duration).map(Data::Int).ok_or(Failed),
            (Data::Time(moment), zone) => {
                let offset = zone.map_or(Some(0), |zone| utc_offset(zone.str().ok()?)).ok_or(Failed)?;
                Ok(Data::Int(time::part_of_moment(part, *moment, offset)))
            }
            _ => Err(Failed),
        },
        Function::Lower
        | Function::Upper
        | Function::Trim
        | Function::Replace
        | Function::Split
        | Function::Join
        | Function::Substring
        | Function::IndexOf => text::call(function, values),
    }
}

/// The same for both kinds of integers, whose operations are their own methods. `None`: there is no such number.
macro_rules! checked {
    ($function:expr, $one:expr, $other:expr) => {
        match $function {
            Function::Add => $one.checked_add($other),
            Function::Subtract => $one.checked_sub($other),
            Function::Multiply => $one.checked_mul($other),
            Function::Divide => $one.checked_div($other),
            _ => $one.checked_rem($other),
        }
    };
}

fn arithmetic<'a>(function: Function, one: &Data<'a>, other: &Data<'a>, allowed: Allowed) -> Outcome<'a> {
    let moment = |nanos: i128| time::in_range(nanos).map(Data::Time).ok_or(Failed);
    let duration = |nanos: i128| time::duration_in_range(nanos).map(Data::Duration).ok_or(Failed);
    match (function, one, other) {
        (_, Data::Int(one), Data::Int(other)) => checked!(function, one, *other).map(Data::Int).ok_or(Failed),
        (_, Data::Uint(one), Data::Uint(other)) => checked!(function, one, *other).map(Data::Uint).ok_or(Failed),
        (Function::Add, Data::Double(one), Data::Double(other)) => Ok(Data::Double(one + other)),
        (Function::Subtract, Data::Double(one), Data::Double(other)) => Ok(Data::Double(one - other)),
        (Function::Multiply, Data::Double(one), Data::Double(other)) => Ok(Data::Double(one * other)),
        (Function::Divide, Data::Double(one), Data::Double(other)) => Ok(Data::Double(one / other)),
        (Function::Add, Data::Text(one), Data::Text(other)) if allowed.concatenation => {
            if one.len().saturating_add(other.len()) > MAX_TEXT {
                return Err(Failed);
            }
            text::made(format!("{one}{other}"))
        }
        (Function::Add, Data::Bytes(one), Data::Bytes(other)) if allowed.concatenation => {
            if one.len().saturating_add(other.len()) > MAX_TEXT {
                return Err(Failed);
            }
            Ok(Data::Bytes([&**one, &**other].concat().into()))
        }
        (Function::Add, Data::Time(time), Data::Duration(more))
        | (Function::Add, Data::Duration(more), Data::Time(time)) => moment(time + more),
        (Function::Subtract, Data::Time(time), Data::Duration(less)) => moment(time - less),
        (Function::Subtract, Data::Time(one), Data::Time(other)) => duration(one - other),
        (Function::Add, Data::Duration(one), Data::Duration(other)) => duration(one + other),
        (Function::Subtract, Data::Duration(one), Data::Duration(other)) => duration(one - other),
        _ => Err(Failed),
    }
}

fn converted<'a>(function: Function, value: &Data<'a>) -> Outcome<'a> {
    const WHOLE: f64 = 9_223_372_036_854_775_807.0;
    match (function, value) {
        (Function::ToInt, Data::Int(_))
        | (Function::ToUint, Data::Uint(_))
        | (Function::ToDouble, Data::Double(_))
        | (Function::ToBool, Data::Bool(_))
        | (Function::ToBytes, Data::Bytes(_)) => Ok(value.clone()),
        (Function::ToInt, Data::Uint(number)) => i64::try_from(*number).map(Data::Int).map_err(|_| Failed),
        (Function::ToInt, Data::Double(number)) if number.abs() < WHOLE => Ok(Data::Int(*number as i64)),
        (Function::ToInt, Data::Text(text)) => text.parse().map(Data::Int).map_err(|_| Failed),
        (Function::ToInt, Data::Time(moment)) => {
            i64::try_from(moment.div_euclid(1_000_000_000)).map(Data::Int).map_err(|_| Failed)
        }
        (Function::ToUint, Data::Int(number)) => u64::try_from(*number).map(Data::Uint).map_err(|_| Failed),
        (Function::ToUint, Data::Double(number)) if *number >= 0.0 && *number < 2.0 * WHOLE => {
            Ok(Data::Uint(*number as u64))
        }
        (Function::ToUint, Data::Text(text)) => text.parse().map(Data::Uint).map_err(|_| Failed),
        (Function::ToDouble, Data::Int(number)) => Ok(Data::Double(*number as f64)),
        (Function::ToDouble, Data::Uint(number)) => Ok(Data::Double(*number as f64)),
        (Function::ToDouble, Data::Text(text)) => text.parse().map(Data::Double).map_err(|_| Failed),
        (Function::ToBool, Data::Text(text)) => match &**text {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Data::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Data::Bool(false)),
            _ => Err(Failed),
        },
        (Function::ToBytes, Data::Text(text)) => Ok(Data::Bytes(text.as_bytes().to_vec().into())),
        _ => Err(Failed),
    }
}
