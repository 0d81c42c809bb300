//! Scans of texts for `sdk/json.lua` and `sdk/numbers.lua`: loops that Lua would have to run byte by byte.

use std::ffi::{c_char, c_double, c_int};

use super::text::take;

/// Up to here a double has each whole number.
const MOST_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// How many blanks stand at the beginning.
pub(super) unsafe extern "C" fn blanks(text: *const c_char, length: usize) -> c_int {
    // SAFETY: the SDK passes a place in a Lua string, with what is left of it.
    until(unsafe { take(text, length) }, |byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
}

/// How many bytes stand before the first that ends a plain part of a JSON string.
pub(super) unsafe extern "C" fn plain(text: *const c_char, length: usize) -> c_int {
    // SAFETY: as in `blanks`.
    until(unsafe { take(text, length) }, |byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
}

/// How many bytes stand before the first that is escaped when it is written.
pub(super) unsafe extern "C" fn unescaped(text: *const c_char, length: usize) -> c_int {
    // SAFETY: as in `blanks`.
    until(unsafe { take(text, length) }, |byte| matches!(byte, b'"' | b'\\' | b'/' | 0..=0x1f | 0x7f))
}

/// How many bytes the number at the beginning has, which goes to `out`; 0 when there is none.
pub(super) unsafe extern "C" fn number(text: *const c_char, length: usize, out: *mut c_double) -> c_int {
    // SAFETY: as in `blanks`.
    let text = unsafe { take(text, length) };
    let end = text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    // SAFETY: the SDK passes a place of its own.
    match (value, unsafe { out.as_mut() }) {
        (Some(value), Some(out)) => {
            *out = value;
            c_int::try_from(text.len()).unwrap_or(0)
        }
        _ => 0,
    }
}

/// The number that plain digits in a base of 2 to 36 stand for, if a double holds it exactly; -1 for everything else.
pub(super) unsafe extern "C" fn whole_number(digits: *const c_char, length: usize, base: c_int) -> c_double {
    // SAFETY: as in `blanks`.
    let digits = unsafe { take(digits, length) };
    match u32::try_from(base) {
        Ok(base @ 2..=36) => digits_in(base, digits).unwrap_or(-1.0),
        _ => -1.0,
    }
}

fn digits_in(base: u32, digits: &[u8]) -> Option<f64> {
    let fits = digits.len() <= SURE_TO_FIT;
    let mut number = 0;
    for digit in digits {
        let value = DIGITS.get(usize::from(*digit)).copied().unwrap_or(NO_DIGIT);
        if u32::from(value) >= base {
            return None;
        }
        number = number * u64::from(base) + u64::from(value);
        if !fits && number > MOST_EXACT {
            return None;
        }
    }
    (!digits.is_empty()).then_some(number as f64)
}

/// Up to so many digits are below [`MOST_EXACT`] in every base.
const SURE_TO_FIT: usize = 10;

/// What each byte stands for as a digit.
static DIGITS: [u8; 256] = digits();

/// Larger than each base.
const NO_DIGIT: u8 = 0xff;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn digits() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 36 {
        let digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        values[digit as usize] = value;
        values[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    values
}

fn until(text: &[u8], stops: impl Fn(u8) -> bool) -> c_int {
    let found = text.iter().position(|byte| stops(*byte)).unwrap_or(text.len());
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_each_base() {
        for base in 2..=36 {
            for byte in 0..=255_u8 {
                let wanted = char::from(byte).to_digit(base).map(f64::from);
                assert_eq!(digits_in(base, &[byte]), wanted, "{byte:#x} in base {base}");
            }
        }
        assert_eq!(digits_in(2, b""), None);
        assert_eq!(digits_in(2, b"01101110"), Some(110.0));
        assert_eq!(digits_in(16, b"Ff"), Some(255.0));
    }

    #[test]
    fn digits_count_up_to_what_a_double_holds() {
        assert_eq!(digits_in(10, b"9007199254740992"), Some(9_007_199_254_740_992.0));
        assert_eq!(digits_in(10, b"9007199254740993"), None);
        assert_eq!(digits_in(10, b"00000000000000000000000042"), Some(42.0));
        assert!(36_u64.pow(u32::try_from(SURE_TO_FIT).unwrap()) <= MOST_EXACT);
        assert_eq!(digits_in(36, b"zzzzzzzzzz"), Some(36_f64.powi(10) - 1.0));
    }
}
