//! Moments as text, in UTC or local time, without allocation: `strftime` patterns with Envoy's additions.
//!
//! A pattern is parsed once; a conversion that is not known stands in the text as it was written. Writing works out the calendar once per second and thread and remembers it.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_sys::LocalZone;

/// Widest fraction of a second: nanoseconds.
const MAX_FRACTION: u8 = 9;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// How a moment is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePattern {
    parts: Vec<Part>,
    /// In the time zone of the machine, or of `TZ`, not in UTC.
    local: bool,
}

impl TimePattern {
    /// `2026-11-20T10:11:12.345Z`, Envoy's default for `%START_TIME%`.
    pub fn iso8601() -> Self {
        Self::parse("%Y-%m-%dT%H:%M:%E3SZ")
    }

    /// Reads a `strftime` pattern with Envoy's additions: `%f` and `%1f`…`%9f` (fraction of the second), `%E1S`…`%E9S`
    /// and `%E*S` (seconds with fraction), `%s` (seconds since 1970), `%E4Y`, `%Ez`. As in the C library a conversion may
    /// have flags, a width, and `E` or `O`: `%-d`, `%^a`, `%6S`, `%Od`.
    pub fn parse(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = pattern;
        while let Some((text, after)) = rest.split_once('%') {
            literal.push_str(text);
            let (style, letters) = Style::read(after);
            let (part, tail) = match conversion(style.modifier, letters) {
                Some((Conversion::Literal(c), tail)) => {
                    literal.push(c);
                    rest = tail;
                    continue;
                }
                Some((Conversion::Text(text), tail)) => {
                    let parts = Self::parse(text).parts.into_iter();
                    let in_case = |part| match part {
                        Part::Field(field, inner) => Part::Field(field, Style { upper: style.upper, ..inner }),
                        part => part,
                    };
                    (parts.map(in_case).collect(), tail)
                }
                Some((Conversion::Field(field), tail)) => (vec![Part::Field(field, style)], tail),
                None => {
                    literal.push('%');
                    rest = after;
                    continue;
                }
            };
            rest = tail;
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.extend(part);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Self { parts, local: false }
    }

    /// The same in local time.
    pub fn in_local_time(self) -> Self {
        Self { local: true, ..self }
    }
}

impl Default for TimePattern {
    fn default() -> Self {
        Self::iso8601()
    }
}

/// Appends `moment`; one before 1970 is written as 1970.
pub fn write(pattern: &TimePattern, moment: SystemTime, out: &mut Vec<u8>) {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (date, zone) = pattern.date_of(since.as_secs());
    for part in &pattern.parts {
        match part {
            Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
            Part::Field(field, style) => style.write(*field, out, |out| write_field(*field, &date, &zone, since, out)),
        }
    }
}

impl TimePattern {
    fn date_of(&self, epoch: u64) -> (Date, LocalZone) {
        if !self.local {
            return (date_of(epoch), LocalZone::utc());
        }
        let zone = postrider_sys::local_zone(epoch);
        (calendar(epoch.saturating_add_signed(zone.offset_seconds.into())), zone)
    }
}

/// A pattern that is written again and again: within one second only fractions change.
#[derive(Debug)]
pub struct Stamper {
    pattern: TimePattern,
    /// The second that `text` says, if it says one.
    second: Option<u64>,
    text: Vec<u8>,
    /// Where fractions stand in it, and their digits.
    fractions: Vec<(usize, u8)>,
}

impl Stamper {
    pub fn new(pattern: TimePattern) -> Stamper {
        Stamper { pattern, second: None, text: Vec::new(), fractions: Vec::new() }
    }

    /// As [`write`](write()).
    pub fn write(&mut self, moment: SystemTime, out: &mut Vec<u8>) {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        if self.second != Some(since.as_secs()) && !self.begin(since) {
            return write(&self.pattern, moment, out);
        }
        let start = out.len();
        out.extend_from_slice(&self.text);
        for (at, digits) in &self.fractions {
            let place = out.get_mut(start + at..).unwrap_or_default();
            write_fraction(since, place.get_mut(..usize::from(*digits)).unwrap_or_default());
        }
    }

    /// Writes all that is the same for the rest of this second; `false` where the length of the fraction is not.
    fn begin(&mut self, since: Duration) -> bool {
        let (date, zone) = self.pattern.date_of(since.as_secs());
        self.second = None;
        self.text.clear();
        self.fractions.clear();
        for part in &self.pattern.parts {
            match part {
                Part::Literal(text) => self.text.extend_from_slice(text.as_bytes()),
                Part::Field(Field::SecondExact, _) => return false,
                Part::Field(field, style) => {
                    if let Field::Fraction(digits) = field {
                        self.fractions.push((self.text.len(), *digits));
                    }
                    let write = |out: &mut Vec<u8>| write_field(*field, &date, &zone, since, out);
                    style.write(*field, &mut self.text, write);
                }
            }
        }
        self.second = Some(since.as_secs());
        true
    }
}

/// As many digits of the fraction as there is room for, cut off and not rounded.
fn write_fraction(since: Duration, place: &mut [u8]) {
    let cut = u32::from(MAX_FRACTION).saturating_sub(u32::try_from(place.len()).unwrap_or(u32::MAX));
    let mut fraction = since.subsec_nanos() / 10u32.pow(cut);
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (fraction % 10) as u8;
        fraction /= 10;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Field(Field, Style),
}

/// How a conversion is written, by what stands between its `%` and its letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Style {
    /// `-`, `_` or `0`: how a number is filled up.
    fill: Option<u8>,
    /// `^`.
    upper: bool,
    /// `#`: the other case.
    swap: bool,
    /// At least so many characters.
    width: Option<u8>,
    /// `E` or `O`, which change nothing, but not all conversions take them.
    modifier: Option<u8>,
}

impl Style {
    /// Reads what stands before the letter; answers what is left.
    fn read(text: &str) -> (Style, &str) {
        let mut style = Style::default();
        let letters = text.trim_start_matches(|c| {
            match c {
                '-' | '_' | '0' => style.fill = Some(c as u8),
                '^' => style.upper = true,
                '#' => style.swap = true,
                _ => return false,
            }
            true
        });
        // `%3f` is no width.
        if letters.as_bytes().get(1) == Some(&b'f') {
            return (style, letters);
        }
        let after = letters.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = letters.get(..letters.len() - after.len()).unwrap_or_default();
        style.width = (!digits.is_empty()).then(|| digits.parse().unwrap_or(u8::MAX));
        style.modifier = after.bytes().next().filter(|byte| matches!(byte, b'E' | b'O'));
        (style, if style.modifier.is_some() { after.get(1..).unwrap_or_default() } else { after })
    }

    fn write(self, field: Field, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        let is_plain = self.fill.is_none() && self.width.is_none() && !self.upper && !self.swap;
        if is_plain || matches!(field, Field::Fraction(_) | Field::SecondExact | Field::Offset { .. }) {
            return;
        }
        let mut text = out.split_off(start);
        let mut width = usize::from(self.width.unwrap_or_default());
        let mut fill = b' ';
        if text.iter().all(|byte| byte.is_ascii_digit() || *byte == b' ') {
            let is_spaced = matches!(field, Field::DaySpaced | Field::HourSpaced | Field::Hour12Spaced);
            fill = match self.fill {
                Some(b'0') => b'0',
                None if !is_spaced => b'0',
                _ => b' ',
            };
            if self.fill != Some(b'-') {
                width = width.max(text.len());
            }
            let zeros = text.iter().take_while(|byte| matches!(byte, b'0' | b' ')).count();
            text.drain(..zeros.min(text.len().saturating_sub(1)));
        } else if self.fill == Some(b'0') {
            fill = b'0';
        }
        let is_upper = text.iter().all(|byte| !byte.is_ascii_lowercase());
        if self.swap && is_upper {
            text.make_ascii_lowercase();
        } else if self.upper || (self.swap && !matches!(field, Field::HalfDayLower)) {
            text.make_ascii_uppercase();
        }
        out.resize(start + width.saturating_sub(text.len()), fill);
        out.extend_from_slice(&text);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year,
    Century,
    YearOfCentury,
    IsoYear,
    IsoYearOfCentury,
    Month,
    MonthName,
    MonthShort,
    Day,
    DaySpaced,
    DayOfYear,
    DayName,
    DayShort,
    WeekdayFromSunday,
    WeekdayFromMonday,
    WeekFromSunday,
    WeekFromMonday,
    IsoWeek,
    Hour,
    HourSpaced,
    Hour12,
    Hour12Spaced,
    HalfDay,
    HalfDayLower,
    Minute,
    Second,
    /// Digits of the fraction, cut off and not rounded.
    Fraction(u8),
    /// Second and as many digits of its fraction as are needed.
    SecondExact,
    Epoch,
    /// `+0100`, or `+01:00`.
    Offset {
        colon: bool,
    },
    ZoneName,
}

enum Conversion {
    Literal(char),
    /// Another pattern in its place.
    Text(&'static str),
    Field(Field),
}

/// Reads a conversion, behind its flags; `None` for none that is known.
fn conversion(modifier: Option<u8>, text: &str) -> Option<(Conversion, &str)> {
    use Conversion::{Literal, Text};
    if modifier == Some(b'E')
        && let Some((known, length)) = extended(text)
    {
        return Some((known, text.get(length..)?));
    }
    let mut rest = text.chars();
    let c = rest.next()?;
    let takes = match modifier {
        Some(b'E') => "cCxXyY",
        Some(_) => "deHImMSuUVwWyBbt",
        None => "",
    };
    if modifier.is_some() && !takes.contains(c) {
        return None;
    }
    let field = match c {
        '%' => return Some((Literal('%'), rest.as_str())),
        'n' => return Some((Literal('\n'), rest.as_str())),
        't' => return Some((Literal('\t'), rest.as_str())),
        'T' => return Some((Text("%H:%M:%S"), rest.as_str())),
        'R' => return Some((Text("%H:%M"), rest.as_str())),
        'r' => return Some((Text("%I:%M:%S %p"), rest.as_str())),
        'F' => return Some((Text("%Y-%m-%d"), rest.as_str())),
        'D' | 'x' => return Some((Text("%m/%d/%y"), rest.as_str())),
        'X' => return Some((Text("%H:%M:%S"), rest.as_str())),
        'c' => return Some((Text("%a %b %e %H:%M:%S %Y"), rest.as_str())),
        ':' if rest.as_str().starts_with('z') => {
            rest.next();
            Field::Offset { colon: true }
        }
        'Y' => Field::Year,
        'C' => Field::Century,
        'y' => Field::YearOfCentury,
        'G' => Field::IsoYear,
        'g' => Field::IsoYearOfCentury,
        'm' => Field::Month,
        'B' => Field::MonthName,
        'b' | 'h' => Field::MonthShort,
        'd' => Field::Day,
        'e' => Field::DaySpaced,
        'j' => Field::DayOfYear,
        'A' => Field::DayName,
        'a' => Field::DayShort,
        'w' => Field::WeekdayFromSunday,
        'u' => Field::WeekdayFromMonday,
        'U' => Field::WeekFromSunday,
        'W' => Field::WeekFromMonday,
        'V' => Field::IsoWeek,
        'H' => Field::Hour,
        'k' => Field::HourSpaced,
        'I' => Field::Hour12,
        'l' => Field::Hour12Spaced,
        'p' => Field::HalfDay,
        'P' => Field::HalfDayLower,
        'M' => Field::Minute,
        'S' => Field::Second,
        's' => Field::Epoch,
        'z' => Field::Offset { colon: false },
        'Z' => Field::ZoneName,
        'f' => Field::Fraction(MAX_FRACTION),
        '1'..='9' if rest.as_str().starts_with('f') => {
            rest.next();
            Field::Fraction(c as u8 - b'0')
        }
        _ => return None,
    };
    Some((Conversion::Field(field), rest.as_str()))
}

/// `%E…`: seconds with a fraction, the four-digit year, the zone with a colon; and how many characters that took.
fn extended(text: &str) -> Option<(Conversion, usize)> {
    const SECONDS: [&str; 10] =
        ["%S", "%S.%1f", "%S.%2f", "%S.%3f", "%S.%4f", "%S.%5f", "%S.%6f", "%S.%7f", "%S.%8f", "%S.%9f"];
    let mut chars = text.chars();
    match (chars.next()?, chars.next()) {
        ('z', _) => Some((Conversion::Field(Field::Offset { colon: true }), 1)),
        ('T', _) => Some((Conversion::Literal('T'), 1)),
        ('4', Some('Y')) => Some((Conversion::Field(Field::Year), 2)),
        ('*', Some('S')) => Some((Conversion::Field(Field::SecondExact), 2)),
        ('*', Some('f')) => Some((Conversion::Field(Field::Fraction(MAX_FRACTION)), 2)),
        ('0', Some('f')) => Some((Conversion::Text(""), 2)),
        (digit @ '0'..='9', Some('S')) => {
            let pattern = SECONDS.get(digit as usize - '0' as usize)?;
            Some((Conversion::Text(pattern), 2))
        }
        (digit @ '1'..='9', Some('f')) => Some((Conversion::Field(Field::Fraction(digit as u8 - b'0')), 2)),
        _ => None,
    }
}

/// One second on the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Date {
    epoch: u64,
    year: u32,
    /// 1…12.
    month: u32,
    /// 1…31.
    day: u32,
    /// 0 on 1 January.
    day_of_year: u32,
    /// 0 on Sunday.
    weekday: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

thread_local! {
    /// Each thread writes many lines within a second.
    static LAST: Cell<Option<Date>> = const { Cell::new(None) };
}

fn date_of(epoch: u64) -> Date {
    if let Some(last) = LAST.get().filter(|last| last.epoch == epoch) {
        return last;
    }
    let date = calendar(epoch);
    LAST.set(Some(date));
    date
}

/// The proleptic Gregorian calendar, counted from 1 March of year 0 so that the leap day comes last.
fn calendar(epoch: u64) -> Date {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_IN_ERA: u64 = 146_097;
    let (days, seconds) = (epoch / 86_400, (epoch % 86_400) as u32);
    let shifted = days + DAYS_TO_1970;
    let (era, day_of_era) = (shifted / DAYS_IN_ERA, shifted % DAYS_IN_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * from_march + 2) / 153;
    let day = (from_march - (153 * march_month + 2) / 5 + 1) as u32;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u32;
    let year = (year_of_era + era * 400 + u64::from(month <= 2)) as u32;
    let leap = u32::from(is_leap(year));
    let day_of_year = match month {
        1 => day - 1,
        2 => day + 30,
        _ => from_march as u32 + 59 + leap,
    };
    Date {
        epoch,
        year,
        month,
        day,
        day_of_year,
        weekday: ((days + 4) % 7) as u32,
        hour: seconds / 3_600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
    }
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

impl Date {
    /// Year and week after ISO 8601: the week with the year's first Thursday is its first.
    fn iso_week(&self) -> (u32, u32) {
        let monday_based = (self.weekday + 6) % 7;
        let week = (self.day_of_year + 10 - (monday_based + 1) + 1) / 7;
        if week == 0 {
            let last = calendar(self.epoch - u64::from(self.day_of_year + 1) * 86_400);
            return last.iso_week();
        }
        let days_in_year = 365 + u32::from(is_leap(self.year));
        if week == 53 && days_in_year - self.day_of_year + monday_based <= 3 {
            return (self.year + 1, 1);
        }
        (self.year, week)
    }
}

fn write_field(field: Field, date: &Date, zone: &LocalZone, since: Duration, out: &mut Vec<u8>) {
    let hour12 = match date.hour % 12 {
        0 => 12,
        hour => hour,
    };
    let month = MONTHS.get(date.month as usize - 1).copied().unwrap_or_default();
    let weekday = DAYS.get(date.weekday as usize).copied().unwrap_or_default();
    match field {
        Field::Year => number(date.year.into(), 4, b'0', out),
        Field::Century => number((date.year / 100).into(), 2, b'0', out),
        Field::YearOfCentury => number((date.year % 100).into(), 2, b'0', out),
        Field::IsoYear => number(date.iso_week().0.into(), 4, b'0', out),
        Field::IsoYearOfCentury => number((date.iso_week().0 % 100).into(), 2, b'0', out),
        Field::Month => number(date.month.into(), 2, b'0', out),
        Field::MonthName => out.extend_from_slice(month.as_bytes()),
        Field::MonthShort => out.extend(month.bytes().take(3)),
        Field::Day => number(date.day.into(), 2, b'0', out),
        Field::DaySpaced => number(date.day.into(), 2, b' ', out),
        Field::DayOfYear => number((date.day_of_year + 1).into(), 3, b'0', out),
        Field::DayName => out.extend_from_slice(weekday.as_bytes()),
        Field::DayShort => out.extend(weekday.bytes().take(3)),
        Field::WeekdayFromSunday => number(date.weekday.into(), 1, b'0', out),
        Field::WeekdayFromMonday => number(if date.weekday == 0 { 7 } else { date.weekday.into() }, 1, b'0', out),
        Field::WeekFromSunday => number(((date.day_of_year + 7 - date.weekday) / 7).into(), 2, b'0', out),
        Field::WeekFromMonday => {
            number(((date.day_of_year + 7 - (date.weekday + 6) % 7) / 7).into(), 2, b'0', out);
        }
        Field::IsoWeek => number(date.iso_week().1.into(), 2, b'0', out),
        Field::Hour => number(date.hour.into(), 2, b'0', out),
        Field::HourSpaced => number(date.hour.into(), 2, b' ', out),
        Field::Hour12 => number(hour12.into(), 2, b'0', out),
        Field::Hour12Spaced => number(hour12.into(), 2, b' ', out),
        Field::HalfDay => out.extend_from_slice(if date.hour < 12 { b"AM" } else { b"PM" }),
        Field::HalfDayLower => out.extend_from_slice(if date.hour < 12 { b"am" } else { b"pm" }),
        Field::Minute => number(date.minute.into(), 2, b'0', out),
        Field::Second => number(date.second.into(), 2, b'0', out),
        Field::Fraction(digits) => fraction(since, digits, out),
        Field::SecondExact => {
            number(date.second.into(), 2, b'0', out);
            if since.subsec_nanos() > 0 {
                out.push(b'.');
                fraction(since, MAX_FRACTION, out);
                while out.last() == Some(&b'0') {
                    out.pop();
                }
            }
        }
        Field::Epoch => number(since.as_secs(), 1, b'0', out),
        Field::Offset { colon } => offset(zone, colon, out),
        Field::ZoneName if zone.name.is_empty() => out.extend_from_slice(b"UTC"),
        Field::ZoneName => out.extend_from_slice(zone.name.as_bytes()),
    }
}

fn offset(zone: &LocalZone, colon: bool, out: &mut Vec<u8>) {
    let minutes = u64::from(zone.offset_seconds.unsigned_abs() / 60);
    out.push(if zone.offset_seconds < 0 { b'-' } else { b'+' });
    number(minutes / 60, 2, b'0', out);
    if colon {
        out.push(b':');
    }
    number(minutes % 60, 2, b'0', out);
}

fn fraction(since: Duration, digits: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + usize::from(digits), 0);
    write_fraction(since, out.get_mut(start..).unwrap_or_default());
}

/// A number of at least `width` characters.
fn number(value: u64, width: usize, fill: u8, out: &mut Vec<u8>) {
    let mut digits = [fill; 20];
    let mut rest = value;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    let shown = digits.len().saturating_sub(width.max(used));
    out.extend_from_slice(digits.get(shown..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_says_how_far_it_is_from_utc() {
        let written = |seconds, colon| {
            let mut out = Vec::new();
            offset(&LocalZone { offset_seconds: seconds, name: "X".into() }, colon, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!([written(0, false), written(5 * 3_600 + 45 * 60, false)], ["+0000", "+0545"]);
        assert_eq!([written(-12_600, true), written(3_600, true)], ["-03:30", "+01:00"]);
    }

    fn at(pattern: &str, seconds: u64, nanos: u32) -> String {
        let mut out = Vec::new();
        let (pattern, moment) = (TimePattern::parse(pattern), UNIX_EPOCH + Duration::new(seconds, nanos));
        write(&pattern, moment, &mut out);
        let mut stamper = Stamper::new(pattern);
        for before in [moment, moment - Duration::from_nanos(1), moment + Duration::from_secs(1)] {
            stamper.write(before, &mut Vec::new());
            let mut stamped = b"at ".to_vec();
            stamper.write(moment, &mut stamped);
            assert_eq!(stamped.strip_prefix(b"at "), Some(out.as_slice()));
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn envoys_default_is_iso8601_with_millis() {
        let mut out = Vec::new();
        write(&TimePattern::iso8601(), UNIX_EPOCH + Duration::new(1_795_169_472, 345_999_999), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "2026-11-20T10:11:12.345Z");
        let before = UNIX_EPOCH - Duration::from_secs(9);
        let mut out = Vec::new();
        write(&TimePattern::iso8601(), before, &mut out);
        assert_eq!(out, b"1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn every_conversion() {
        let (s, n) = (1_795_169_472, 12_345_678);
        let cases = [
            ("%Y/%m/%dT%H:%M:%S%z %s", "2026/11/20T10:11:12+0000 1795169472"),
            ("%s.%3f", "1795169472.012"),
            ("%1f %2f %4f %5f %6f %7f %8f %9f %f", "0 01 0123 01234 012345 0123456 01234567 012345678 012345678"),
            ("%E3S %E9S %E0S %E*S", "12.012 12.012345678 12 12.012345678"),
            ("%a %A %b %B %h", "Fri Friday Nov November Nov"),
            ("%F %T %R %D %r", "2026-11-20 10:11:12 10:11 11/20/26 10:11:12 AM"),
            ("%c|%x|%X", "Fri Nov 20 10:11:12 2026|11/20/26|10:11:12"),
            ("%e %j %u %w %U %W %V %G %g", "20 324 5 5 46 46 47 2026 26"),
            ("%C %y %I %l %k %p %P", "20 26 10 10 10 AM am"),
            ("%% %n%t %Z %Ez %E4Y%ETx", "% \n\t UTC +00:00 2026Tx"),
            ("grün", "grün"),
            ("", ""),
        ];
        for (pattern, want) in cases {
            assert_eq!(at(pattern, s, n), want, "{pattern}");
        }
        assert_eq!(at("%E*S", s, 500_000_000), "12.5");
        assert_eq!(at("%E*S", s, 0), "12");
    }

    #[test]
    fn leap_years_and_year_ends() {
        assert_eq!(at("%F %j %a", 951_782_400, 0), "2000-02-29 060 Tue");
        assert_eq!(at("%F %j", 978_220_800, 0), "2000-12-31 366");
        assert_eq!(at("%F %j", 4_107_542_400, 0), "2100-03-01 060");
        assert_eq!(at("%F", 253_402_300_799, 0), "9999-12-31");
        // ISO weeks around the turn of the year.
        assert_eq!(at("%G-%V %U %W", 1_104_537_600, 0), "2004-53 00 00", "2005-01-01");
        assert_eq!(at("%G-%V", 1_230_681_600, 0), "2009-01", "2008-12-31");
        assert_eq!(at("%G-%V", 1_262_304_000, 0), "2009-53", "2010-01-01");
        assert_eq!(at("%I %p %l", 0, 0), "12 AM 12");
        assert_eq!(at("%I %p|%l|%k|%e", 46_800, 0), "01 PM| 1|13| 1");
    }

    #[test]
    fn flags_and_widths_are_those_of_the_c_library() {
        let (s, n) = (1_795_941_220, 267_467_000);
        for (pattern, want) in [
            ("%-d|%_d|%-m|%_m|%0e|%-j|%-k|%_H|%-I|%-y", "29|29|11|11|29|333|8| 8|8|26"),
            ("%6S|%6Y|%12a|%-3d|%_5d|%010d|%3s", "000040|002026|         Sun| 29|   29|0000000029|1795941220"),
            ("%^a|%#a|%^B|%#Z|%#p|%#P|%^c|%-^a", "SUN|SUN|NOVEMBER|utc|am|am|SUN NOV 29 08:33:40 2026|SUN"),
            ("%Ey|%Od|%OS|%EC|%Ex|%EX|%:z", "26|29|40|20|11/29/26|08:33:40|+00:00"),
            ("%E3S|%E*f|%E0f|%E1f", "40.267|267467000||2"),
        ] {
            assert_eq!(at(pattern, s, n), want, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_known_stays_as_it_is() {
        for pattern in ["%L|%N|%v|%q|%+|%Q", "%E5z|%EH|%ES|%E|%-", "%E?S", "100%", "grün %ü"] {
            assert_eq!(at(pattern, 0, 0), pattern);
        }
        assert_eq!(at("%Q %Y", 0, 0), "%Q 1970");
    }
}
