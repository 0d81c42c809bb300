//! Numbers with a fraction, as `printf` writes them with `%g`.

/// `value` with so many significant digits at most and no zeros after them; with an exponent where there are more places
/// than digits, or more than four zeros behind the point.
pub(super) fn general(value: f64, digits: usize) -> String {
    let digits = digits.max(1);
    // Exact, however many digits are asked for.
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let places = (digits as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.places$}")).to_owned()
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_printf_makes_of_them() {
        let short = [0.1, 1.5, 20.0, 999_999.0, 1_000_000.0, 1_234_567.0, 1_800_000.0, 0.0001, 0.00001, 1e100, 0.0];
        let want = ["0.1", "1.5", "20", "999999", "1e+06", "1.23457e+06", "1.8e+06", "0.0001", "1e-05", "1e+100", "0"];
        assert_eq!(short.map(|value| general(value, 6)), want);
        assert_eq!(general(999_999.5, 6), "1e+06");
        let long = [0.1, 0.5, 3_600_000.0, 1e31, 1e32];
        let want = [
            "0.10000000000000000555111512312578",
            "0.5",
            "3600000",
            "9999999999999999635896294965248",
            "1.0000000000000000536616220439347e+32",
        ];
        assert_eq!(long.map(|value| general(value, 32)), want);
    }
}
