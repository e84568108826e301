//! Which files import each other: in small crates that are written for the purpose, and in this
//! project.

use std::fs;
use std::path::Path;

use remanent_tidy::{Graph, crate_directories, file_name, show};

use crate::assert_none;

/// Files that may import each other, beside what a module and its parent import of each other.
const CIRCLE_FILES_MAX: usize = 3;

/// Writes `files` as a crate and returns its circles, by names of files.
fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    let named = |path: &Path| file_name(path).to_owned();
    let circles = Graph::read(&folder.path().join("lib.rs")).circles();
    circles.iter().map(|circle| circle.iter().map(|file| named(file)).collect()).collect()
}

#[test]
fn files_that_import_each_other_are_a_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub struct B; fn f() { crate::c::g(); }"),
        ("c.rs", "pub fn g() { assert!(super::a::A == 1); }"),
        ("d.rs", "use crate::{a::A, b::*};"),
    ]);
    assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
}

#[test]
fn what_is_handed_on_is_of_the_file_that_defines_it() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; pub use a::A;"),
        ("a.rs", "pub struct A(super::b::B);"),
        ("b.rs", "pub struct B; type C = crate::A;"),
    ]);
    assert_eq!(found, [["a.rs", "b.rs"]]);
}

#[test]
fn a_module_and_its_parent_are_no_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; pub struct L;"),
        ("a/mod.rs", "mod b; use b::B; pub struct A;"),
        ("a/b.rs", "pub struct B(super::A);"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_a_root_file_defines_for_deeper_modules_counts() {
    let found = circles(&[
        ("lib.rs", "mod a; pub struct L(a::b::B);"),
        ("a/mod.rs", "pub mod b;"),
        ("a/b.rs", "pub struct B(crate::L);"),
    ]);
    assert_eq!(found, [["b.rs", "lib.rs"]]);
}

#[test]
fn a_visibility_imports_nothing() {
    let found = circles(&[
        ("lib.rs", "mod a; pub use a::b::B;"),
        ("a/mod.rs", "pub(crate) mod b;"),
        ("a/b.rs", "pub struct B { pub(crate) b: u64 } pub(crate) fn f() {}"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn tests_within_a_file_do_not_count() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
        ("b.rs", "pub struct B(crate::a::A);"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn no_large_group_of_files_imports_each_other() {
    let roots = crate_directories()
        .into_iter()
        .flat_map(|directory| ["src/lib.rs", "src/main.rs"].map(|root| directory.join(root)));
    let mut wrong = Vec::new();
    for root in roots.filter(|root| root.is_file()) {
        let circles = Graph::read(&root).circles();
        for circle in circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX) {
            let names: Vec<String> = circle.iter().map(|file| show(file)).collect();
            wrong.push(format!("{} files import each other: {}", circle.len(), names.join(" ")));
        }
    }
    assert_none(&wrong);
}
