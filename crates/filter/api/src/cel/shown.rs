//! Values of expressions in logs, as Envoy writes them.

use postrider_model::Value;

use super::time::show_moment;
use super::value::Data;

pub(super) fn shown(value: &Data<'_>) -> String {
    match value {
        Data::Null => "NULL".to_owned(),
        Data::Bool(value) => value.to_string(),
        Data::Int(number) => number.to_string(),
        Data::Uint(number) => number.to_string(),
        Data::Double(number) => six_digits(*number),
        Data::Text(text) => text.clone().into_owned(),
        Data::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Data::Duration(nanos) => duration(*nanos),
        Data::Time(nanos) => show_moment(*nanos).replace('Z', "+00:00"),
        Data::Type(_) => "CelType value".to_owned(),
        Data::Message(_, text) => text.to_string(),
        Data::List(_) | Data::Noted(Value::List(_)) => "CelList value".to_owned(),
        _ => "CelMap value".to_owned(),
    }
}

/// With at most six digits: `0.3`, `1e+06`.
fn six_digits(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return number.to_string() };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(5 - exponent).unwrap_or_default();
    trimmed(&format!("{number:.decimals$}"))
}

/// `1.5ms`, `2h3m4.5s`.
fn duration(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let part = |unit: u128, name: &str| {
        let (whole, rest) = (nanos / unit, nanos % unit);
        let digits = unit.ilog10() as usize;
        let rest = format!("{rest:0digits$}");
        match rest.trim_end_matches('0') {
            "" => format!("{sign}{whole}{name}"),
            rest => format!("{sign}{whole}.{rest}{name}"),
        }
    };
    match nanos {
        0 => "0".to_owned(),
        1..1_000 => format!("{sign}{nanos}ns"),
        1_000..1_000_000 => part(1_000, "us"),
        1_000_000..1_000_000_000 => part(1_000_000, "ms"),
        _ => {
            let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
            let (seconds, rest) = (nanos / 1_000_000_000 % 60, nanos % 1_000_000_000);
            let mut text = sign.to_owned();
            for (number, unit) in [(hours, 'h'), (minutes, 'm')] {
                if number > 0 {
                    text.push_str(&format!("{number}{unit}"));
                }
            }
            match format!("{rest:09}").trim_end_matches('0') {
                "" if seconds == 0 => {}
                "" => text.push_str(&format!("{seconds}s")),
                rest => text.push_str(&format!("{seconds}.{rest}s")),
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_as_envoy_writes_them() {
        let numbers =
            [(1.5, "1.5"), (0.1 + 0.2, "0.3"), (1e6, "1e+06"), (123456.0, "123456"), (0.00001, "1e-05"), (0.0, "0")];
        for (number, wanted) in numbers {
            assert_eq!(six_digits(number), wanted);
        }
        for (nanos, wanted) in [
            (0, "0"),
            (15, "15ns"),
            (1_500, "1.5us"),
            (1_062_513, "1.062513ms"),
            (-1_500_000_000, "-1.5s"),
            (3_661_000_000_000, "1h1m1s"),
            (60_000_000_000, "1m"),
        ] {
            assert_eq!(duration(nanos), wanted);
        }
    }
}
