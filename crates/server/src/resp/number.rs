//! Numbers as Redis reads them: no sign but `-`, no leading zero, no space.

/// The number that `bytes` spell, if they spell one that fits.
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

/// The unsigned number that `bytes` spell, if they spell one that fits.
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

/// The floating-point number that `bytes` spell, infinity included; `None` for what is not a number.
pub fn parse_f64(bytes: &[u8]) -> Option<f64> {
    let value: f64 = str::from_utf8(bytes).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Integers beyond this are written with an exponent.
const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;
/// A number is written without an exponent when it needs no more zeros behind its digits.
const TRAILING_ZEROS_MAX: i32 = 7;

/// A floating-point number as Redis 7.2 and later write it: with the fewest digits that tell it from all others.
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
        return format!("{value:.0}");
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
    // Times ten to this, the digits without a point are the number.
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
        for text in [&b""[..], b"nan", b"1x", b" 1", b"\xff", b"--1"] {
            assert_eq!(parse_f64(text), None);
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
