//! Splitting an inline request into words, which are unquoted in place.

use super::{ProtocolError, Span};

/// Splits `line` into words at white space.
///
/// Within double quotes, `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH` are escapes; within single quotes
/// only `\'`. A quote may open within a word. The closing quote must be followed by a space, or end
/// the line. A NUL ends the line.
pub(super) fn split(line: &mut [u8], words: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let len = memchr::memchr(0, line).unwrap_or(line.len());
    let line = &mut line[..len];
    let mut from = 0;
    loop {
        while from < line.len() && is_space(line[from]) {
            from += 1;
        }
        if from == line.len() {
            return Ok(());
        }
        let start = from;
        let end = unquote(line, &mut from)?;
        words.push(Span::new(start, end - start));
    }
}

/// Unquotes the word at `*from` in place, moves `*from` behind it, and returns the end of the
/// unquoted word.
///
/// Unquoting shortens a word, so the write position never passes the read position.
fn unquote(line: &mut [u8], from: &mut usize) -> Result<usize, ProtocolError> {
    let mut to = *from;
    while *from < line.len() && !is_space(line[*from]) {
        match line[*from] {
            quote @ (b'"' | b'\'') => {
                *from += 1;
                unquote_until(quote, line, from, &mut to)?;
                return Ok(to);
            }
            byte => {
                line[to] = byte;
                to += 1;
                *from += 1;
            }
        }
    }
    Ok(to)
}

/// Unquotes up to the closing `quote`, where the word must end.
fn unquote_until(
    quote: u8,
    line: &mut [u8],
    from: &mut usize,
    to: &mut usize,
) -> Result<(), ProtocolError> {
    loop {
        let byte = *line.get(*from).ok_or(ProtocolError::UnbalancedQuotes)?;
        if byte == quote {
            *from += 1;
            let ends = line.get(*from).is_none_or(|&next| is_space(next));
            return if ends { Ok(()) } else { Err(ProtocolError::UnbalancedQuotes) };
        }
        let (plain, taken) = match quote {
            b'"' => unescape(&line[*from..]),
            _ if line[*from..].starts_with(b"\\'") => (b'\'', 2),
            _ => (byte, 1),
        };
        line[*to] = plain;
        *to += 1;
        *from += taken;
    }
}

/// The next byte within double quotes, and how many bytes spell it.
fn unescape(rest: &[u8]) -> (u8, usize) {
    match rest {
        [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (hex_digit(*high) << 4 | hex_digit(*low), 4)
        }
        [b'\\', escaped, ..] => {
            let plain = match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 0x08,
                b'a' => 0x07,
                other => *other,
            };
            (plain, 2)
        }
        _ => (rest[0], 1),
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use crate::resp::{Limits, Parser, ProtocolError};

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut parser = Parser::new(Limits::default());
        let mut bytes = [line, b"\r\n"].concat();
        let len = parser.parse(&mut bytes)?.expect("the line ends");
        assert_eq!(len, bytes.len());
        Ok(parser.request(&mut bytes).iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn words_are_split_and_unquoted() {
        let cases: [(&[u8], &[&[u8]]); 9] = [
            (b"", &[]),
            (b"  \t ", &[]),
            (b"PING", &[b"PING"]),
            (b" set  k v ", &[b"set", b"k", b"v"]),
            (br#"set k "a b""#, &[b"set", b"k", b"a b"]),
            (br#"set k "\x41\n\q\"""#, &[b"set", b"k", b"A\nq\""]),
            (br"set k '\n\''", &[b"set", b"k", b"\\n'"]),
            (br#"k"ey" ''"#, &[b"key", b""]),
            (b"get k\0 more", &[b"get", b"k"]),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line).unwrap(), expected, "{:?}", line.escape_ascii().to_string());
        }
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [&br#"set "k"#[..], b"set 'k", br#"set "k"x"#, br#"set "k\"#, b"'a'b"] {
            assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes));
        }
    }
}
