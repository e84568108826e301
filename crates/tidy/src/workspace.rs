//! The project's folders and files.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the whole project.
///
/// # Panics
///
/// When this crate was moved elsewhere.
#[must_use]
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate lies two folders below the workspace").to_owned()
}

/// The folders of all crates.
///
/// # Panics
///
/// When the folder cannot be listed.
#[must_use]
pub fn crate_directories() -> Vec<PathBuf> {
    entries(&workspace().join("crates"))
}

/// All files of the project with one of these extensions.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn files(extensions: &[&str]) -> Vec<PathBuf> {
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
    assert!(!found.is_empty(), "no file found: the search began in the wrong place");
    found
}

/// The entries of a folder, by name.
///
/// # Panics
///
/// When it cannot be listed.
#[must_use]
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("listed").path()).collect();
    paths.sort();
    paths
}

/// The text of a file.
///
/// # Panics
///
/// When it cannot be read.
#[must_use]
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", show(path)))
}

/// The last part of a path.
///
/// # Panics
///
/// When it is not UTF-8.
#[must_use]
pub fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name")
}

/// The folder of a file.
///
/// # Panics
///
/// For the root of the file system.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().expect("a file lies in a folder")
}

/// A path relative to the project's folder, for messages.
#[must_use]
pub fn show(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}
