//! ASN.1 times (RFC 5280, 4.1.2.5) as the system's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::der::{Element, GENERALIZED_TIME, UTC_TIME};

/// `None` for what is not a time in UTC with seconds.
pub(crate) fn read(element: Element<'_>) -> Option<SystemTime> {
    let (year, rest) = match element.tag {
        UTC_TIME => {
            let (year, rest) = number(element.content, 2)?;
            // RFC 5280: two digits are 1950 to 2049.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(element.content, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let possible =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61 && rest == b"Z";
    if !possible {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// The first `digits` of `text` as a number, and what is left.
fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let value = digits.iter().try_fold(0i64, |value, digit| match digit {
        b'0'..=b'9' => Some(value * 10 + i64::from(digit - b'0')),
        _ => None,
    })?;
    Some((value, rest))
}

/// Days from 1970-01-01 in the Gregorian calendar. Years begin in March, so that the leap day is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let time = read(Element { tag, content: text.as_bytes(), whole: &[] })?;
        time.duration_since(UNIX_EPOCH).ok().map(|it| it.as_secs())
    }

    #[test]
    fn both_forms() {
        for (tag, text, want) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20240301000000Z", Some(1_709_251_200)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "500101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000000", None),
            (GENERALIZED_TIME, "20240301000000.5Z", None),
        ] {
            assert_eq!(seconds(tag, text), want, "{text}");
        }
    }

    #[test]
    fn before_the_epoch() {
        let time = read(Element { tag: UTC_TIME, content: b"691231235959Z", whole: &[] });
        assert_eq!(time, UNIX_EPOCH.checked_sub(Duration::from_secs(1)));
    }
}
