//! Numbers as Redis reads and writes them.
//!
//! An integer may begin with `-`, but not with `+`, a space or a leading zero. Floating-point
//! numbers and cursors are read less strictly: they are what C's `strtod` and `strtoul` accept.

/// The integer that `bytes` spell; `None` if they spell none, or one that does not fit.
///
/// ```
/// use remanent_server::resp::parse_i64;
/// assert_eq!(parse_i64(b"-12"), Some(-12));
/// assert_eq!(parse_i64(b"+12"), None);
/// assert_eq!(parse_i64(b"012"), None);
/// assert_eq!(parse_i64(b"9223372036854775808"), None);
/// ```
pub fn parse_i64(bytes: &[u8]) -> Option<i64> {
    match bytes.split_first()? {
        (b'-', digits) => {
            let magnitude = parse_u64(digits)?;
            if magnitude == 0 { None } else { 0i64.checked_sub_unsigned(magnitude) }
        }
        _ => i64::try_from(parse_u64(bytes)?).ok(),
    }
}

/// The unsigned integer that `bytes` spell; `None` if they spell none, or one that does not fit.
pub fn parse_u64(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || (bytes.len() > 1 && bytes[0] == b'0') {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The cursor of a scan that `bytes` spell, as C's `strtoul` reads it.
///
/// Signs and leading zeros are accepted. A negative number counts down from 2⁶⁴. No text is 0, and
/// a NUL ends the text.
///
/// ```
/// use remanent_server::resp::parse_cursor;
/// assert_eq!(parse_cursor(b"17"), Some(17));
/// assert_eq!(parse_cursor(b"+007"), Some(7));
/// assert_eq!(parse_cursor(b"-1"), Some(u64::MAX));
/// assert_eq!(parse_cursor(b""), Some(0));
/// assert_eq!(parse_cursor(b" 0"), None);
/// ```
pub fn parse_cursor(bytes: &[u8]) -> Option<u64> {
    let text = until_nul(bytes);
    if text.is_empty() {
        return Some(0);
    }
    let (is_negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })?;
    Some(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

/// The floating-point number that `bytes` spell, in decimal or hexadecimal notation, infinity
/// included.
///
/// `None` if they spell no number, or one so large or so small that it would become infinity or 0.
///
/// ```
/// use remanent_server::resp::parse_f64;
/// assert_eq!(parse_f64(b"-1.5e3"), Some(-1500.0));
/// assert_eq!(parse_f64(b"0x1.8p1"), Some(3.0));
/// assert_eq!(parse_f64(b"inf"), Some(f64::INFINITY));
/// assert_eq!(parse_f64(b"1e400"), None);
/// assert_eq!(parse_f64(b" 1"), None);
/// ```
pub fn parse_f64(bytes: &[u8]) -> Option<f64> {
    let value = strtod(bytes)?;
    let (_, magnitude) = split_sign(bytes);
    let (digits, exponent) = match magnitude {
        [b'0', b'x' | b'X', digits @ ..] => (digits, b'p'),
        digits => (digits, b'e'),
    };
    let mut mantissa = digits.split(|byte| byte.to_ascii_lowercase() == exponent);
    let mantissa = mantissa.next().unwrap_or(&[]);
    let was_finite = mantissa.first().is_none_or(|byte| !matches!(byte, b'i' | b'I'));
    let was_nonzero = mantissa.iter().any(|byte| !matches!(byte, b'0' | b'.'));
    let is_out_of_range = value.is_infinite() && was_finite || value == 0.0 && was_nonzero;
    (!is_out_of_range).then_some(value)
}

/// One end of a range of floating-point numbers, which Redis reads less strictly than
/// [`parse_f64`].
///
/// Leading spaces are skipped, a NUL ends the text, no text is 0, and a number that is too large is
/// infinity.
pub fn parse_f64_limit(bytes: &[u8]) -> Option<f64> {
    let text = until_nul(bytes);
    if text.is_empty() {
        return Some(0.0);
    }
    let spaces = text.iter().take_while(|byte| matches!(byte, b'\t'..=b'\r' | b' ')).count();
    strtod(&text[spaces..])
}

/// The text that C sees: up to the first NUL.
fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]
}

/// Whether a number begins with `-`, and what follows its sign.
fn split_sign(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    }
}

/// The number that C's `strtod` reads; `None` if it does not read all of `bytes`, or reads NaN.
fn strtod(bytes: &[u8]) -> Option<f64> {
    let value = match split_sign(bytes) {
        (is_negative, [b'0', b'x' | b'X', digits @ ..]) => {
            let magnitude = hexadecimal(digits)?;
            if is_negative { -magnitude } else { magnitude }
        }
        _ => str::from_utf8(bytes).ok()?.parse().ok()?,
    };
    (!value.is_nan()).then_some(value)
}

/// Larger exponents count as this one: the number is infinite, or 0, with either.
const EXPONENT_MAX: i64 = 1 << 40;

/// The number that hexadecimal digits spell, with an optional point and an optional binary
/// exponent.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let mut parts = text.splitn(2, |byte| byte.eq_ignore_ascii_case(&b'p'));
    let (digits, exponent) = (parts.next()?, parts.next());
    let mut exponent = exponent.map_or(Some(0), binary_exponent)?;
    // The mantissa has the first digits, as many as fit. `has_rest` is whether any digit behind
    // them is not 0.
    let (mut mantissa, mut has_rest) = (0u64, false);
    let (mut count, mut is_fraction) = (0, false);
    for byte in digits {
        if *byte == b'.' && !is_fraction {
            is_fraction = true;
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        count += 1;
        let fits = mantissa >> 60 == 0;
        if fits {
            mantissa = mantissa << 4 | u64::from(digit);
        } else {
            has_rest |= digit != 0;
        }
        exponent += match (fits, is_fraction) {
            (true, true) => -4,
            (false, false) => 4,
            _ => 0,
        };
    }
    (count > 0).then(|| scaled(mantissa, has_rest, exponent))
}

fn binary_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i64, |value, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        Some((value * 10 + i64::from(digit)).min(EXPONENT_MAX))
    })?;
    Some(if is_negative { -magnitude } else { magnitude })
}

/// `mantissa` times two to the `exponent`, rounded to the nearest number, ties to even. `has_rest`
/// says that the exact mantissa is a little larger.
fn scaled(mantissa: u64, has_rest: bool, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let zeros = mantissa.leading_zeros();
    let mantissa = mantissa << zeros;
    // Now the number is 1.… times two to the exponent.
    let exponent = exponent + 63 - i64::from(zeros);
    if exponent > 1023 {
        return f64::INFINITY;
    }
    let missing = (-1022 - exponent).max(0);
    if missing > 53 {
        return 0.0;
    }
    let dropped = 11 + missing as u32;
    let kept = mantissa.checked_shr(dropped).unwrap_or(0);
    let half = 1 << (dropped - 1);
    let rest = mantissa & (half | (half - 1));
    let rounds_up = rest > half || (rest == half && (has_rest || kept & 1 == 1));
    // A carry out of the mantissa goes into the exponent, which is right.
    let rounded = kept + u64::from(rounds_up);
    let is_normal = missing == 0;
    f64::from_bits(if is_normal { rounded + (((exponent + 1022) as u64) << 52) } else { rounded })
}

/// Larger integers are written with an exponent.
const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;
/// A number that needs more zeros behind its digits is written with an exponent.
const TRAILING_ZEROS_MAX: i32 = 7;

/// Writes a floating-point number as Redis 7.2 and later do: with the fewest digits that tell it
/// from all others.
///
/// ```
/// use remanent_server::resp::format_f64;
/// assert_eq!(format_f64(3.0), "3");
/// assert_eq!(format_f64(0.1), "0.1");
/// assert_eq!(format_f64(-2.5e-7), "-2.5e-7");
/// assert_eq!(format_f64(f64::NEG_INFINITY), "-inf");
/// ```
pub fn format_f64(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if value == value.trunc() && value.abs() <= INTEGER_MAX {
        // As an integer, −0 has no sign.
        return match value == 0.0 && value.is_sign_negative() {
            true => "-0".to_owned(),
            false => itoa::Buffer::new().format(value as i64).to_owned(),
        };
    }
    let shortest = format!("{:e}", value.abs());
    let (mantissa, exponent) = shortest.split_once('e').expect("this notation has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let digits = mantissa.replace('.', "");
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", place_point(&digits, exponent, TRAILING_ZEROS_MAX - sign.len() as i32))
}

/// `digits` with a point behind the first one, times ten to the `exponent`.
fn place_point(digits: &str, exponent: i32, zeros_max: i32) -> String {
    let len = digits.len() as i32;
    // The number is the digits without a point, times ten to this.
    let shift = exponent - (len - 1);
    if shift >= 0 && exponent.abs() < len + zeros_max {
        return format!("{digits}{}", "0".repeat(shift as usize));
    }
    if shift < 0 && (shift > -7 || exponent.abs() < 4) {
        let before = len + shift;
        return if before <= 0 {
            format!("0.{}{digits}", "0".repeat(-before as usize))
        } else {
            let (whole, fraction) = digits.split_at(before as usize);
            format!("{whole}.{fraction}")
        };
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { "-" } else { "+" };
    format!("{first}{point}{rest}e{sign}{}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_numbers_are_written_as_redis_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (-17.0, "-17"),
            (1e17, "100000000000000000"),
            (1e300, "1e+300"),
            (1.5e-9, "1.5e-9"),
            (0.001_234, "0.001234"),
            (2.345_678_901_234_567, "2.345678901234567"),
            (123_456.789, "123456.789"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(format_f64(value), text);
            assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(value.to_bits()));
        }
        for text in [&b""[..], b"nan", b"1x", b" 1", b"\xff", b"--1", b"1\0"] {
            assert_eq!(parse_f64(text), None);
        }
    }

    #[test]
    fn hexadecimal_numbers_are_read_and_rounded_as_in_c() {
        for (text, value) in [
            ("0x10", 16.0),
            ("0X1P-2", 0.25),
            ("+0x.8", 0.5),
            ("-0x1.8p+4", -24.0),
            ("0xaBc.", 2748.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1p-1074", 5e-324),
            ("0x1.8p-1075", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x0.fffffffffffff8p-1022", f64::MIN_POSITIVE),
            ("0x20000000000001", 9_007_199_254_740_992.0),
            ("0x20000000000001.00000000000000000001", 9_007_199_254_740_994.0),
            ("0x20000000000003", 9_007_199_254_740_996.0),
            ("0x10000000000000000000p-76", 1.0),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["0x", "0x1p", "0xp1", "0x.", "0x1.2.3", "0x1p1024", "0x1p-1075", "0x1p-99999"]
        {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_and_end_ranges() {
        for (text, limit) in [
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("0x1p1024", f64::INFINITY),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
            assert_eq!(parse_f64_limit(text.as_bytes()), Some(limit), "{text}");
        }
        for text in ["0", "-0", "0.00e5", "0x0p-5", "inf", "-INFINITY"] {
            assert!(parse_f64(text.as_bytes()).is_some(), "{text}");
        }
        for (text, limit) in [(&b""[..], 0.0), (b" \t1", 1.0), (b"1\0x", 1.0), (b"\0", 0.0)] {
            assert_eq!(parse_f64_limit(text), Some(limit));
        }
        for text in [&b" "[..], b"1 ", b"nan", b"( 1"] {
            assert_eq!(parse_f64_limit(text), None);
        }
    }

    #[test]
    fn cursors_are_read_as_in_c() {
        let max = u64::MAX.to_string();
        for (text, cursor) in [
            (&b"0"[..], 0),
            (b"-0", 0),
            (b"007", 7),
            (b"5\0x", 5),
            (b"-18446744073709551615", 1),
            (max.as_bytes(), u64::MAX),
        ] {
            assert_eq!(parse_cursor(text), Some(cursor), "{}", text.escape_ascii());
        }
        for text in [&b"18446744073709551616"[..], b"x", b"1x", b"+", b"--1", b"1 ", b"0x1"] {
            assert_eq!(parse_cursor(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        let good: [(&[u8], i64); 6] = [
            (b"0", 0),
            (b"7", 7),
            (b"-1", -1),
            (b"9223372036854775807", i64::MAX),
            (b"-9223372036854775808", i64::MIN),
            (b"100", 100),
        ];
        for (bytes, value) in good {
            assert_eq!(parse_i64(bytes), Some(value));
        }
        let bad: [&[u8]; 9] = [
            b"",
            b"-",
            b"-0",
            b"00",
            b"+1",
            b" 1",
            b"1 ",
            b"-9223372036854775809",
            b"99999999999999999999",
        ];
        for bytes in bad {
            assert_eq!(parse_i64(bytes), None, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn unsigned_numbers_reach_their_maximum() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }
}
