//! What the documents say about the shape of the code, held against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of the workspace each crate may depend on.
///
/// The simulator may be a dev-dependency of every crate that comes after `remanent-pmem`.
const ARROWS: [(&str, &[&str]); 10] = [
    ("remanent-macros", &[]),
    ("remanent-pmem", &["remanent-macros"]),
    ("remanent-crashsim", &["remanent-pmem"]),
    ("remanent-structures", &["remanent-pmem", "remanent-macros"]),
    ("remanent-blockdev", &["remanent-pmem", "remanent-structures"]),
    ("remanent-server", &["remanent-pmem", "remanent-structures", "remanent-blockdev"]),
    ("remanent-sqlite", &["remanent-pmem", "remanent-blockdev"]),
    (
        "remanent",
        &[
            "remanent-pmem",
            "remanent-crashsim",
            "remanent-structures",
            "remanent-blockdev",
            "remanent-server",
        ],
    ),
    (
        "remanent-bench",
        &["remanent-pmem", "remanent-structures", "remanent-blockdev", "remanent-sqlite"],
    ),
    ("remanent-rig", &[]),
];
const SIMULATOR: &str = "remanent-crashsim";

/// Crates in which `unsafe` may be written.
const UNSAFE_CRATES: [&str; 2] = ["pmem", "structures"];
/// Crates in which single modules may allow it: foreign functions.
const FOREIGN_CRATES: [&str; 2] = ["bench", "sqlite"];

/// Files that each structure has, so that who knows one finds the way in all.
const STRUCTURE_FILES: [&str; 5] = ["mod.rs", "layout.rs", "ops.rs", "recover.rs", "check.rs"];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

#[test]
fn crates_depend_on_what_the_architecture_allows() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, dependencies) in workspace_dependencies() {
        let Some(targets) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is not in the table of arrows"));
            continue;
        };
        for Dependency { target, is_dev } in dependencies {
            let is_simulator_in_tests = is_dev && target == SIMULATOR && name != "remanent-macros";
            if !targets.contains(&target.as_str()) && !is_simulator_in_tests {
                wrong.push(format!("{name} depends on {target}"));
            }
        }
        seen.insert(name);
    }
    assert_none(&wrong);
    let expected: BTreeSet<String> = allowed.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(seen, expected, "the table of arrows and the workspace name different crates");
}

#[test]
fn unsafe_code_stays_in_its_crates() {
    let mut wrong = Vec::new();
    for directory in crate_directories() {
        let name = file_name(&directory);
        if UNSAFE_CRATES.contains(&name) {
            continue;
        }
        let level = if FOREIGN_CRATES.contains(&name) { "deny" } else { "forbid" };
        let attribute = format!("#![{level}(unsafe_code)]");
        for root in ["src/lib.rs", "src/main.rs"].map(|root| directory.join(root)) {
            if root.exists() && !read(&root).lines().any(|line| line == attribute) {
                wrong.push(format!("{} lacks {attribute}", show(&root)));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_crate_obeys_the_workspace_lints() {
    let wrong: Vec<String> = crate_directories()
        .into_iter()
        .map(|directory| directory.join("Cargo.toml"))
        .filter(|manifest| !read(manifest).contains("[lints]\nworkspace = true"))
        .map(|manifest| format!("{} does not inherit the lints", show(&manifest)))
        .collect();
    assert_none(&wrong);
}

#[test]
fn structures_have_the_same_files() {
    let crates = workspace().join("crates");
    let mut structures = vec![crates.join("pmem/src/heap")];
    structures.extend(entries(&crates.join("structures/src")).into_iter().filter(|e| e.is_dir()));
    assert!(structures.len() > 1, "no structure found");
    let wrong: Vec<String> = structures
        .iter()
        .flat_map(|structure| STRUCTURE_FILES.map(|file| structure.join(file)))
        .filter(|path| !path.is_file())
        .map(|path| format!("{} is missing", show(&path)))
        .collect();
    assert_none(&wrong);
}

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

#[test]
fn documents_name_files_that_exist() {
    let mut wrong = Vec::new();
    for path in files(&["md"]) {
        let text = read(&path);
        for link in between(&text, "](", ")").filter(|link| !link.contains("://")) {
            let target = link.split('#').next().unwrap_or_default();
            if !target.is_empty() && !parent(&path).join(target).exists() {
                wrong.push(format!("{} links to {target}", show(&path)));
            }
        }
        for name in between(&text, "`", "`").filter(|name| is_source_path(name)) {
            let places = [workspace(), workspace().join("crates"), parent(&path).to_owned()];
            if !places.iter().any(|place| place.join(name).exists()) {
                wrong.push(format!("{} names `{name}`", show(&path)));
            }
        }
    }
    assert_none(&wrong);
}

struct Dependency {
    target: String,
    is_dev: bool,
}

/// The workspace's crates, with what each takes from the workspace.
fn workspace_dependencies() -> Vec<(String, Vec<Dependency>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let dependencies = list(&package["dependencies"])
                .iter()
                .map(|d| Dependency { target: text(&d["name"]), is_dev: d["kind"] == "dev" })
                .filter(|dependency| dependency.target.starts_with("remanent"))
                .collect();
            (text(&package["name"]), dependencies)
        })
        .collect()
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

/// Whether a quoted name is a path to a source file, as opposed to a pattern or an example.
fn is_source_path(name: &str) -> bool {
    name.contains('/') && name.ends_with(".rs") && !name.contains(['{', '*', ' ', '\n'])
}

/// What stands between `open` and `close`, each time.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(open)?;
        let (inner, after) = after.split_once(close)?;
        rest = after;
        Some(inner)
    })
}

fn crate_directories() -> Vec<PathBuf> {
    let directories = entries(&workspace().join("crates"));
    assert_eq!(directories.len(), ARROWS.len(), "a folder in crates/ that is no crate");
    directories
}

/// All files of the project with one of these extensions.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    const NOT_OURS: [&str; 4] = ["target", ".git", "corpus", "artifacts"];
    let mut found = Vec::new();
    let mut directories = vec![workspace()];
    while let Some(directory) = directories.pop() {
        for entry in entries(&directory) {
            if entry.is_dir() {
                if !NOT_OURS.contains(&file_name(&entry)) {
                    directories.push(entry);
                }
            } else if entry
                .extension()
                .is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
            {
                found.push(entry);
            }
        }
    }
    assert!(!found.is_empty(), "no file found: the test looks in the wrong place");
    found
}

fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate lies two folders below the workspace").to_owned()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("listed").path()).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", show(path)))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name")
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a file lies in a folder")
}

fn show(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
