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

#[cfg(test)]
mod tests {
    use super::*;

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
