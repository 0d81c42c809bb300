//! Durations and timestamps in the text forms of protobuf's JSON mapping: `0.25s`, `2026-01-02T03:04:05.5Z`.

/// Seconds that a `google.protobuf.Duration` may hold either way: 10,000 years, protobuf's own bound.
pub const DURATION_SECONDS_LIMIT: i64 = 315_576_000_000;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// The first and last second of a timestamp: years 1 to 9999.
const TIMESTAMP_RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// `-1.5s` → (-1, -500_000_000). The text must end in `s` and have at most nine decimals; `None` otherwise.
pub fn parse_duration(text: &str) -> Option<(i64, i32)> {
    let number = text.strip_suffix('s')?;
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (whole, fraction) = match number.split_once('.') {
        // As Envoy: digits on both sides of the point.
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    let seconds = digits(whole)?;
    let nanos = i32::try_from(nanos(fraction)?).ok()?;
    if seconds > DURATION_SECONDS_LIMIT {
        return None;
    }
    Some(if negative { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// The inverse of [`parse_duration`], with 0, 3, 6 or 9 decimals.
pub fn format_duration(seconds: i64, nanos: i64) -> String {
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    format!("{sign}{}{}s", seconds.abs(), decimals(nanos.abs()))
}

/// RFC 3339 with `Z` or an offset → (seconds since 1970, nanoseconds).
pub fn parse_timestamp(text: &str) -> Option<(i64, i32)> {
    let (date, clock) = text.split_once(['T', 't'])?;
    let [year, month, day] = fields::<3>(date, '-')?;
    let cut = clock.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = clock.split_at(cut);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) if !fraction.is_empty() => (clock, fraction),
        Some(_) => return None,
        None => (clock, ""),
    };
    let [hour, minute, second] = fields::<3>(clock, ':')?;
    if !(1..=12).contains(&month)
        || day < 1
        || day > days_in_month(year, month)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return None;
    }
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign, rest) => {
            let [hours, minutes] = fields::<2>(rest, ':')?;
            let seconds = hours * 3600 + minutes * 60;
            if sign == "-" { -seconds } else { seconds }
        }
    };
    let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
    TIMESTAMP_RANGE.contains(&seconds).then_some((seconds, i32::try_from(nanos(fraction)?).ok()?))
}

/// The inverse of [`parse_timestamp`], in UTC.
pub fn format_timestamp(seconds: i64, nanos: i64) -> String {
    let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
    let clock = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{}Z", decimals(nanos))
}

fn digits(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn nanos(fraction: &str) -> Option<i64> {
    match fraction.len() {
        0 => Some(0),
        1..=9 => digits(&format!("{fraction:0<9}")),
        _ => None,
    }
}

fn decimals(nanos: i64) -> String {
    match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{:09}", n.rem_euclid(NANOS_PER_SECOND)),
    }
}

fn fields<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let mut out = [0; N];
    let mut parts = text.split(separator);
    for slot in &mut out {
        *slot = digits(parts.next()?)?;
    }
    parts.next().is_none().then_some(out)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years start in March, so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // Guess the year, then step to the right one: the guess is off by one at most.
    let mut year = 1970 + days.div_euclid(365);
    while days_from_civil(year, 1, 1) > days {
        year -= 1;
    }
    let mut month = 12;
    while days_from_civil(year, month, 1) > days {
        month -= 1;
    }
    (year, month, days - days_from_civil(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("0.25s", Some((0, 250_000_000))),
            ("15s", Some((15, 0))),
            (".5s", None),
            ("5.s", None),
            ("-1.5s", Some((-1, -500_000_000))),
            ("0.000000001s", Some((0, 1))),
            ("15", None),
            ("s", None),
            ("1.0000000001s", None),
            ("15ms", None),
            ("1m", None),
            ("315576000001s", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
        assert_eq!(format_duration(0, 250_000_000), "0.250s");
        assert_eq!(format_duration(-1, -5), "-1.000000005s");
        assert_eq!(format_duration(15, 0), "15s");
    }

    #[test]
    fn timestamps() {
        assert_eq!(parse_timestamp("1970-01-01T00:00:00Z"), Some((0, 0)));
        assert_eq!(parse_timestamp("2024-02-29T12:30:01.5+01:00"), Some((1_709_206_201, 500_000_000)));
        assert_eq!(parse_timestamp("2023-02-29T12:30:01Z"), None);
        assert_eq!(parse_timestamp("2023-02-28 12:30:01Z"), None);
        for seconds in [0, 951_782_400, 1_709_206_201, -1, 253_402_300_799] {
            assert_eq!(parse_timestamp(&format_timestamp(seconds, 0)), Some((seconds, 0)));
        }
        assert_eq!(format_timestamp(1_709_206_201, 5_000), "2024-02-29T11:30:01.000005Z");
    }
}
