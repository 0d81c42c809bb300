//! Durations and moments of expressions: as they are written, and by the calendar.

use postrider_model::cel::{Calendar, utc_offset};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// From the first to before the last year that a moment may lie in.
const MOMENTS: std::ops::Range<i128> = -62_135_596_800 * SECOND..253_402_300_800 * SECOND;

/// Durations are at most so many nanoseconds, either way.
const LONGEST: i128 = 315_576_000_000 * SECOND;

pub(super) fn in_range(moment: i128) -> Option<i128> {
    MOMENTS.contains(&moment).then_some(moment)
}

pub(super) fn duration_in_range(duration: i128) -> Option<i128> {
    (duration.abs() <= LONGEST).then_some(duration)
}

/// `1h30m`, `-1.5s`.
pub(super) fn parse_duration(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit: i128 = match unit {
            "h" => 3600 * SECOND,
            "m" => 60 * SECOND,
            "s" => SECOND,
            "ms" => 1_000_000,
            "us" | "µs" => 1000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
        total += whole * unit;
        let mut part = unit;
        for digit in fraction.bytes() {
            part /= 10;
            total += i128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * part;
        }
        rest = tail;
    }
    duration_in_range(sign * total)
}

/// `90s`, `0.5s`.
pub(super) fn show_duration(duration: i128) -> String {
    let sign = if duration < 0 { "-" } else { "" };
    let nanos = duration.unsigned_abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{sign}{seconds}{}s", fraction(rest))
}

/// As decimals behind a point, without zeros at the end.
fn fraction(nanos: u128) -> String {
    match nanos {
        0 => String::new(),
        nanos => format!(".{nanos:09}").trim_end_matches('0').to_owned(),
    }
}

/// RFC 3339.
pub(super) fn parse_moment(text: &str) -> Option<i128> {
    let part = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let sign_at = |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|byte| wanted.contains(byte));
    let shape = sign_at(4, b"-") && sign_at(7, b"-") && sign_at(10, b"Tt") && sign_at(13, b":") && sign_at(16, b":");
    if !shape {
        return None;
    }
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(decimals) = rest.strip_prefix('.') {
        let end = decimals.find(|c: char| !c.is_ascii_digit()).unwrap_or(decimals.len());
        let digits = decimals.get(..end).filter(|digits| !digits.is_empty())?;
        nanos = format!("{digits:0<9}").get(..9)?.parse::<i128>().ok()?;
        rest = decimals.get(end..)?;
    }
    let offset = if matches!(rest, "Z" | "z") { 0 } else { utc_offset(rest)? };
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    in_range(i128::from(seconds) * SECOND + nanos)
}

pub(super) fn show_moment(moment: i128) -> String {
    let date = Date::of(moment);
    let (hours, minutes, seconds) =
        (date.nanos / (3600 * SECOND), date.nanos / (60 * SECOND) % 60, date.nanos / SECOND % 60);
    let rest = fraction((date.nanos % SECOND).unsigned_abs());
    format!("{:04}-{:02}-{:02}T{hours:02}:{minutes:02}:{seconds:02}{rest}Z", date.year, date.month, date.day)
}

/// A part of a moment, `offset` seconds east of Greenwich.
pub(super) fn part_of_moment(part: Calendar, moment: i128, offset: i64) -> i64 {
    let date = Date::of(moment + i128::from(offset) * SECOND);
    let small = |number: i128| i64::try_from(number).unwrap_or_default();
    match part {
        Calendar::FullYear => date.year,
        Calendar::Month => date.month - 1,
        Calendar::Date => date.day,
        Calendar::DayOfMonth => date.day - 1,
        // 1970 began on a Thursday.
        Calendar::DayOfWeek => (date.days + 4).rem_euclid(7),
        Calendar::DayOfYear => date.days - days_from_civil(date.year, 1, 1),
        Calendar::Hours => small(date.nanos / (3600 * SECOND)),
        Calendar::Minutes => small(date.nanos / (60 * SECOND) % 60),
        Calendar::Seconds => small(date.nanos / SECOND % 60),
        Calendar::Milliseconds => small(date.nanos / 1_000_000 % 1000),
    }
}

/// The whole duration in a unit, except milliseconds, which are those beyond the seconds.
pub(super) fn part_of_duration(part: Calendar, duration: i128) -> Option<i64> {
    let number = match part {
        Calendar::Hours => duration / (3600 * SECOND),
        Calendar::Minutes => duration / (60 * SECOND),
        Calendar::Seconds => duration / SECOND,
        Calendar::Milliseconds => duration % SECOND / 1_000_000,
        _ => return None,
    };
    i64::try_from(number).ok()
}

struct Date {
    /// Since 1970.
    days: i64,
    year: i64,
    month: i64,
    day: i64,
    /// Since midnight.
    nanos: i128,
}

impl Date {
    /// The Gregorian calendar, in eras of 400 years that begin in March.
    fn of(moment: i128) -> Date {
        let days = i64::try_from(moment.div_euclid(DAY)).unwrap_or_default();
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Date { days, year, month, day, nanos: moment.rem_euclid(DAY) }
    }
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
