//! The patterns of `KEYS`, `SCAN … MATCH` and `CONFIG GET`.

/// Whether `pattern` matches all of `text`. `*`, `?`, `[a-z]`, `[^a]` and `\` have the meaning that
/// they have in Redis.
///
/// After a mismatch only the last `*` takes one byte more, so the time is bounded by the product of
/// both lengths, whatever the pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on after a mismatch: behind the last star, and at the first byte that the star
    // has not taken.
    let mut star = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, from));
        } else if let Some(len) = match_one(&pattern[at..], text[from]) {
            at += len;
            from += 1;
        } else if let Some((behind, taken)) = star {
            at = behind;
            from = taken + 1;
            star = Some((behind, from));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}

/// Length of the first element of a pattern, if that matches `byte`.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => match_class(class, byte).map(|len| len + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// Length of a class up to and including its `]`, if `byte` is in the class. A class that is not
/// closed ends with the pattern.
fn match_class(class: &[u8], byte: u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    while at < class.len() {
        match &class[at..] {
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [start, b'-', end, ..] => {
                found |= (start.min(end)..=start.max(end)).contains(&&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= *plain == byte;
                at += 1;
            }
            [] => unreachable!("the loop ends with the class"),
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: [(&str, &str, bool); 26] = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**a", "ba", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo*", "heeeello world", true),
            ("h*llo", "hello!", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("h[\\]]llo", "h]llo", true),
            ("[abc", "c", true),
            ("a\\", "a\\", true),
            ("a", "A", false),
            ("*ab*cd*", "xxabyycdzz", true),
            ("*ab*cd", "xxabyycdzz", false),
            ("a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, expected) in cases {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern:?} on {text:?}");
        }
    }
}
