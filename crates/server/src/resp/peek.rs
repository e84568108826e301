//! A glance at a request that has not been parsed yet.

use std::ops::Range;

/// Most arguments of a request that is looked at.
const ARGUMENTS_MAX: usize = 8;
/// Most digits of a number in such a request.
const DIGITS_MAX: usize = 4;

/// The length of the request at the start of `input`, and where its first argument behind the
/// command's name is, which for most commands is a key. The range is empty if there is none.
///
/// `None` for a request that has not arrived in full, that is long, or that is no array: this is
/// for hints alone. What the parser says of the request counts.
pub(crate) fn peek(input: &[u8]) -> Option<(usize, Range<usize>)> {
    let (count, mut at) = number(input, 0, b'*')?;
    let mut argument = 0..0;
    if count > ARGUMENTS_MAX {
        return None;
    }
    for index in 0..count {
        let (len, start) = number(input, at, b'$')?;
        if index == 1 {
            argument = start..start + len;
        }
        at = start + len + 2;
    }
    (at <= input.len()).then_some((at, argument))
}

/// The number in the line at `start`, which begins with `mark`, and the offset behind the line.
fn number(input: &[u8], start: usize, mark: u8) -> Option<(usize, usize)> {
    let line = input.get(start..)?.strip_prefix(&[mark])?;
    let mut value = 0;
    for (index, byte) in line.iter().take(DIGITS_MAX + 1).enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + usize::from(byte - b'0'),
            b'\r' if index > 0 => return Some((value, start + index + 3)),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Parser, encode_request};
    use super::*;

    #[test]
    fn a_key_is_seen_in_an_array_that_is_there() {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &[&b"SET"[..], b"key", &[b'v'; 1000]]);
        let len = bytes.len();
        bytes.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        let (found, key) = peek(&bytes).unwrap();
        assert_eq!((found, &bytes[key]), (len, &b"key"[..]));
        assert_eq!(peek(&bytes[len..]), Some((bytes.len() - len, 0..0)));
        for end in 0..len {
            assert_eq!(peek(&bytes[..end]), None);
        }
        for other in ["GET key\r\n", "*x\r\n", "*\r\n", "*-1\r\n", "*2\r\n$3\r\nGET\r\n$99999\r\n"]
        {
            assert_eq!(peek(other.as_bytes()), None, "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_looked_at(bytes: Vec<u8>) {
            peek(&bytes);
        }

        #[test]
        fn what_is_seen_is_what_is_parsed(arguments in proptest::collection::vec("[a-z]{0,12}", 1..8)) {
            let mut bytes = Vec::new();
            encode_request(&mut bytes, &arguments);
            let (len, key) = peek(&bytes).unwrap();
            let key = bytes[key].to_vec();
            let mut parser = Parser::new(Limits::default());
            proptest::prop_assert_eq!(parser.parse(&mut bytes), Ok(Some(len)));
            let second = arguments.get(1).map_or(&b""[..], |second| second.as_bytes());
            proptest::prop_assert_eq!(key, second);
        }
    }
}
