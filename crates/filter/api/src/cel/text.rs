//! Functions that make texts, where an expression may.

use postrider_model::cel::Function;

use super::MAX_TEXT;
use super::time::{show_duration, show_moment};
use super::value::{Data, Failed, Outcome};

/// A text that is not too long.
pub(super) fn made<'a>(text: String) -> Outcome<'a> {
    if text.len() > MAX_TEXT { Err(Failed) } else { Ok(Data::Text(text.into())) }
}

pub(super) fn converted<'a>(value: Data<'a>) -> Outcome<'a> {
    match value {
        Data::Text(_) => Ok(value),
        Data::Bytes(bytes) => match bytes {
            std::borrow::Cow::Borrowed(bytes) => {
                std::str::from_utf8(bytes).map(|text| Data::Text(text.into())).map_err(|_| Failed)
            }
            std::borrow::Cow::Owned(bytes) => {
                String::from_utf8(bytes).map(|text| Data::Text(text.into())).map_err(|_| Failed)
            }
        },
        Data::Bool(value) => made(value.to_string()),
        Data::Int(number) => made(number.to_string()),
        Data::Uint(number) => made(number.to_string()),
        Data::Double(number) => made(number.to_string()),
        Data::Duration(duration) => made(show_duration(duration)),
        Data::Time(moment) => made(show_moment(moment)),
        _ => Err(Failed),
    }
}

/// `values` are the text and what goes with it.
pub(super) fn call<'a>(function: Function, values: &[Data<'a>]) -> Outcome<'a> {
    let number = |at: usize| match values.get(at) {
        None => Ok(None),
        Some(Data::Int(number)) => Ok(Some(*number)),
        Some(_) => Err(Failed),
    };
    if function == Function::Join {
        return join(values);
    }
    let text = values.first().ok_or(Failed)?.str()?;
    let second = || values.get(1).ok_or(Failed)?.str();
    match function {
        Function::Lower => made(text.to_ascii_lowercase()),
        Function::Upper => made(text.to_ascii_uppercase()),
        Function::Trim => made(text.trim().to_owned()),
        Function::IndexOf => {
            let found = text.find(second()?).and_then(|at| text.get(..at));
            Ok(Data::Int(found.map_or(-1, |before| before.chars().count() as i64)))
        }
        Function::Replace => replace(text, second()?, values.get(2).ok_or(Failed)?.str()?, number(3)?),
        Function::Split => {
            let separator = second()?;
            let limit = number(2)?.unwrap_or(-1);
            let items: Vec<&str> = match (limit, separator) {
                (0, _) => Vec::new(),
                (_, "") => text.split("").filter(|part| !part.is_empty()).collect(),
                (..0, separator) => text.split(separator).collect(),
                (limit, separator) => text.splitn(usize::try_from(limit).unwrap_or(usize::MAX), separator).collect(),
            };
            Ok(Data::List(items.into_iter().map(|item| Data::Text(item.to_owned().into())).collect()))
        }
        Function::Substring => {
            let start = usize::try_from(number(1)?.ok_or(Failed)?).map_err(|_| Failed)?;
            let count = text.chars().count();
            let end = number(2)?.map_or(Ok(count), |end| usize::try_from(end).map_err(|_| Failed))?;
            if start > end || end > count {
                return Err(Failed);
            }
            made(text.chars().skip(start).take(end - start).collect())
        }
        _ => Err(Failed),
    }
}

fn replace<'a>(text: &str, old: &str, new: &str, limit: Option<i64>) -> Outcome<'a> {
    let times = match limit {
        None | Some(..0) => usize::MAX,
        Some(limit) => usize::try_from(limit).map_err(|_| Failed)?,
    };
    // Known before it is made: a short expression could ask for very much.
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() }.min(times);
    if text.len().saturating_add(found.saturating_mul(new.len())) > MAX_TEXT {
        return Err(Failed);
    }
    made(text.replacen(old, new, times))
}

fn join<'a>(values: &[Data<'a>]) -> Outcome<'a> {
    let Some(Data::List(items)) = values.first() else { return Err(Failed) };
    let separator = values.get(1).map_or(Ok(""), Data::str)?;
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(item.str()?);
        if out.len() > MAX_TEXT {
            return Err(Failed);
        }
    }
    made(out)
}
