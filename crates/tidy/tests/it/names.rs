//! Names of files and public items, held to docs/glossary.md.

use remanent_tidy::{files, read, show, workspace};

use crate::assert_none;

#[test]
fn names_have_no_word_that_the_glossary_refuses() {
    let refused = refused_words();
    let mut wrong = Vec::new();
    for path in files(&["rs"]) {
        let shown = show(&path).to_string();
        let stem = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let is_source = shown.contains("/src/");
        let text = read(&path);
        let items = text.lines().enumerate().filter_map(|(line, text)| {
            let name = public_name(text).filter(|_| is_source)?;
            Some((format!("{shown}:{}", line + 1), name.to_owned()))
        });
        for (place, name) in items.chain([(shown.clone(), stem)]) {
            let parts = parts(&name);
            if let Some(word) = refused.iter().find(|word| parts.contains(word)) {
                wrong.push(format!("{place}: {name} has the word {word}: see docs/glossary.md"));
            }
        }
    }
    assert_none(&wrong);
}

/// Words that stand as code in the last column of the glossary's table, and those that say too
/// little.
fn refused_words() -> Vec<String> {
    let glossary = read(&workspace().join("docs/glossary.md"));
    let columns = glossary
        .lines()
        .filter(|line| line.starts_with("| **"))
        .filter_map(|line| line.trim_end_matches('|').rsplit('|').next());
    let list = glossary.split("Not in names").nth(1).expect("the list");
    let list = list.split("\n\n").next().expect("it ends");
    let words: Vec<String> = columns.chain([list]).flat_map(in_backticks).collect();
    assert!(words.len() > 25, "the glossary is read as it is written: {words:?}");
    words
}

fn in_backticks(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The name that a line of a source declares for everybody.
fn public_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "union"];
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let is_kind = KINDS.contains(&word);
        if is_kind && words.peek().is_some_and(|next| *next != "fn") {
            let rest = words.next()?;
            return rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
        }
        if !is_kind && !["unsafe", "async", "extern", "\"C\""].contains(&word) {
            return None;
        }
    }
    None
}

/// The words of a name in any of Rust's styles.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("one at least").extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    parts
}

#[test]
fn names_are_found_and_taken_apart() {
    assert_eq!(public_name("    pub const fn settle_all(&self) {"), Some("settle_all"));
    assert_eq!(public_name("pub const LEN: u64 = 1;"), Some("LEN"));
    assert_eq!(public_name("pub unsafe fn go<T>() {"), Some("go"));
    assert_eq!(public_name("pub(crate) fn hidden() {}"), None);
    assert_eq!(public_name("    pub field: u64,"), None);
    assert_eq!(parts("LineCell"), ["line", "cell"]);
    assert_eq!(parts("size_max"), ["size", "max"]);
    assert_eq!(parts("SIZE_MAX"), ["size", "max"]);
}
