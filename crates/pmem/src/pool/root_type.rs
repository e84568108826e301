//! The type of a root, and in words how two types differ.

use std::fmt;

/// The type of a root, compared when it is opened.
///
/// Displayed without the marks in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootType {
    /// Name a person recognises, such as `HashMap<[u8], [u8]>`; at most 128 bytes.
    ///
    /// The name of a type whose form can change is followed by a mark: a space, and in braces eight
    /// hexadecimal digits, as in `HashMap<u64, Session {1f0c2a9b}>`. The digits are a hash of how
    /// the type is stored. Messages leave marks out, and say instead which type changed.
    pub name: String,
    /// Hash of everything that makes two layouts incompatible.
    pub layout: u64,
}

impl RootType {
    /// Why a root of this type, the stored one, is not opened as `asked`, and what to do.
    pub(crate) fn difference_to(&self, asked: &RootType) -> String {
        let (found, expected) = (self.to_string(), asked.to_string());
        if found != expected {
            return format!(
                "has type {found} and was opened as {expected}; open it with the type that it was \
                 created with"
            );
        }
        let changed = changed_types(&self.name, &asked.name);
        let what = if changed.is_empty() {
            "its layout has (a struct's fields, or the structure's own format)".to_owned()
        } else {
            format!("the fields or variants of {} have", changed.join(" and "))
        };
        format!(
            "has type {found}, but {what} changed since it was created; open it with the program \
             that created it, and copy what it holds to a new root"
        )
    }
}

impl fmt::Display for RootType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parts(&self.name).try_for_each(|part| f.write_str(part.text))
    }
}

/// A piece of a type's name, and the mark that follows it.
struct Part<'n> {
    text: &'n str,
    mark: Option<&'n str>,
}

/// Bytes of a mark: a space, and eight digits in braces.
const MARK_LEN: usize = 11;

/// A type's name, cut behind each mark.
fn parts(mut name: &str) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        if name.is_empty() {
            return None;
        }
        let mark_at = name.match_indices(" {").map(|(at, _)| at).find(|&at| is_mark(&name[at..]));
        let (part, rest) = match mark_at {
            Some(at) => {
                let mark = &name[at..at + MARK_LEN];
                (Part { text: &name[..at], mark: Some(mark) }, &name[at + MARK_LEN..])
            }
            None => (Part { text: name, mark: None }, ""),
        };
        name = rest;
        Some(part)
    })
}

/// Whether a text begins with a mark.
fn is_mark(text: &str) -> bool {
    let digits = text.get(..MARK_LEN).and_then(|mark| mark.strip_prefix(" {")?.strip_suffix('}'));
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// The types in two names that are the same but for marks, whose marks differ.
fn changed_types<'n>(stored: &'n str, asked: &str) -> Vec<&'n str> {
    let mut changed: Vec<&str> = parts(stored)
        .zip(parts(asked))
        .filter(|(stored, asked)| stored.mark != asked.mark)
        .map(|(stored, _)| last_word(stored.text))
        .collect();
    changed.dedup();
    changed
}

/// The type's own name at the end of a text such as `, Session`.
fn last_word(text: &str) -> &str {
    let ends = |letter: char| !letter.is_alphanumeric() && letter != '_';
    text.rsplit(ends).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_type(name: &str, layout: u64) -> RootType {
        RootType { name: name.to_owned(), layout }
    }

    #[test]
    fn names_are_shown_without_marks() {
        for (name, shown) in [
            ("HashMap<u64, [u8]>", "HashMap<u64, [u8]>"),
            ("BlinkTree<Key {00c0ffee}, Row {12345678}>", "BlinkTree<Key, Row>"),
            ("Log<Line {00c0ffee}>", "Log<Line>"),
            ("HashMap<u64, Option<Row { 0: u64 }>>", "HashMap<u64, Option<Row { 0: u64 }>>"),
            ("Odd { {12} {é234567}", "Odd { {12} {é234567}"),
            ("", ""),
        ] {
            assert_eq!(root_type(name, 0).to_string(), shown);
        }
    }

    #[test]
    fn a_difference_names_types_and_no_numbers() {
        let map = root_type("HashMap<u64, Row {00000001}>", 7);
        for (asked, expected) in [
            (root_type("Log<str>", 7), "has type HashMap<u64, Row> and was opened as Log<str>"),
            (
                root_type("HashMap<u64, Row {00000002}>", 7),
                "but the fields or variants of Row have changed since it was created",
            ),
            (root_type("HashMap<u64, Row {00000001}>", 8), "but its layout has"),
        ] {
            let told = map.difference_to(&asked);
            assert!(told.contains(expected), "{told}");
            assert!(!told.contains("0000") && told.contains("; open it with"), "{told}");
        }
        let one = root_type("BlinkTree<Key_1 {00000001}, Row {00000001}>", 7);
        let other = root_type("BlinkTree<Key_1 {00000002}, Row {00000002}>", 7);
        let told = one.difference_to(&other);
        assert!(told.contains("the fields or variants of Key_1 and Row have changed"), "{told}");
    }
}
