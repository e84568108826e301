//! How long files and functions may be, and what may stand in them.

use remanent_tidy::{files, read, show};

use crate::assert_none;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line of comment, as rustfmt keeps to for code.
const COMMENT_WIDTH_MAX: usize = 100;

#[test]
fn files_and_functions_are_of_readable_length() {
    let mut wrong = Vec::new();
    for path in files(&["rs"]) {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX {
            wrong.push(format!("{} has {} lines", show(&path), lines.len()));
        }
        for (line, len) in functions(&lines) {
            if len > FUNCTION_LINES_MAX {
                wrong.push(format!("{}:{line}: a function of {len} lines", show(&path)));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn comments_are_as_wide_as_code() {
    let mut wrong = Vec::new();
    for path in files(&["rs"]) {
        for (number, line) in read(&path).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let width = line.chars().count();
            if is_comment && width > COMMENT_WIDTH_MAX {
                wrong.push(format!("{}:{}: {width} characters", show(&path), number + 1));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    // In two parts, so that this file does not find itself.
    let prefixes = [("/ho", "me/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/Use", "rs/")]
        .map(|(begin, end)| format!("{begin}{end}"));
    let mut wrong = Vec::new();
    for path in files(&["rs", "md", "toml", "sh", "yml", "yaml", "c", "cpp", "py", "stderr"]) {
        for (number, line) in read(&path).lines().enumerate() {
            if prefixes.iter().any(|prefix| line.contains(prefix.as_str())) {
                wrong.push(format!("{}:{}: {}", show(&path), number + 1, line.trim()));
            }
        }
    }
    assert_none(&wrong);
}

/// Line number and length of each function with a body, told by rustfmt's indentation.
fn functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    lines.iter().enumerate().filter(|(_, line)| is_function(line)).filter_map(|(first, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let signature = lines[first..].iter().position(|line| line.ends_with(['{', ';', '}']))?;
        if !lines[first + signature].ends_with('{') {
            return None;
        }
        let end = format!("{indent}}}");
        let len = lines[first..].iter().position(|line| *line == end)? + 1;
        Some((first + 1, len))
    })
}

fn is_function(line: &str) -> bool {
    const QUALIFIERS: [&str; 6] = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe"];
    line.split_whitespace().find(|word| !QUALIFIERS.contains(word)) == Some("fn")
}

#[test]
fn functions_are_measured_by_their_braces() {
    let source = [
        "trait T {",
        "    fn declared(&self);",
        "    fn one_line(&self) {}",
        "    pub(crate) const unsafe fn long(",
        "        &self,",
        "    ) -> u64",
        "    where",
        "        Self: Sized,",
        "    {",
        "        if true {",
        "        }",
        "        0",
        "    }",
        "}",
        "let fn_like = 1;",
    ];
    assert_eq!(functions(&source).collect::<Vec<_>>(), [(4, 10)]);
}
