//! Which crate may need which, and what each promises of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use remanent_tidy::{crate_directories, entries, file_name, read, show, workspace};
use serde_json::Value;

use crate::assert_none;

/// Which crates of the workspace each crate may depend on.
///
/// The simulator may be a dev-dependency of every crate that comes after `remanent-pmem`.
const ARROWS: [(&str, &[&str]); 17] = [
    ("remanent-macros", &[]),
    ("remanent-pmem", &["remanent-macros"]),
    ("remanent-crashsim", &["remanent-pmem"]),
    ("remanent-structures", &["remanent-pmem", "remanent-macros"]),
    ("remanent-blockdev", &["remanent-pmem"]),
    ("remanent-engine", &["remanent-pmem", "remanent-structures"]),
    ("remanent-tatp", &["remanent-pmem", "remanent-engine"]),
    ("remanent-sockets", &[]),
    ("remanent-nbd", &["remanent-sockets"]),
    ("remanent-server", &["remanent-pmem", "remanent-structures", "remanent-sockets"]),
    ("remanent-sqlite", &["remanent-pmem", "remanent-blockdev"]),
    ("remanent", &["remanent-pmem", "remanent-structures", "remanent-blockdev", "remanent-engine"]),
    (
        "remanent-crashtest",
        &[
            "remanent",
            "remanent-pmem",
            "remanent-crashsim",
            "remanent-structures",
            "remanent-blockdev",
            "remanent-engine",
            "remanent-server",
        ],
    ),
    (
        "remanent-cli",
        &[
            "remanent",
            "remanent-crashsim",
            "remanent-crashtest",
            "remanent-nbd",
            "remanent-server",
            "remanent-tatp",
        ],
    ),
    (
        "remanent-bench",
        &[
            "remanent-pmem",
            "remanent-structures",
            "remanent-blockdev",
            "remanent-engine",
            "remanent-sqlite",
            "remanent-tatp",
        ],
    ),
    ("remanent-rig", &[]),
    ("remanent-tidy", &[]),
];
const SIMULATOR: &str = "remanent-crashsim";

/// Crates in which `unsafe` may be written.
const UNSAFE_CRATES: [&str; 2] = ["pmem", "structures"];
/// Crates in which single modules may allow it: foreign functions.
const FOREIGN_CRATES: [&str; 2] = ["bench", "sqlite"];

/// Files that each structure has, so that who knows one finds the way in all.
const STRUCTURE_FILES: [&str; 5] = ["mod.rs", "layout.rs", "ops.rs", "recover.rs", "check.rs"];

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

/// What a program that embeds the library builds only if it names a feature, or depends on another
/// crate of ours.
const NOT_EMBEDDED: [&str; 5] = ["clap", "postcard", "remanent-crashsim", "serde_core", "tokio"];

#[test]
fn the_library_without_features_is_small() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "remanent",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ])
        .current_dir(workspace())
        .output()
        .expect("cargo tree runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("text");
    let built: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(built.contains("remanent-structures"), "{tree}");
    let wrong = NOT_EMBEDDED.into_iter().filter(|name| built.contains(name));
    assert_none(&wrong.map(|name| format!("remanent builds {name}")).collect::<Vec<_>>());
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
    let papers = crates.join("structures/src/papers");
    // What keys and values are is no structure.
    let stored = crates.join("structures/src/stored");
    // Nor is what several structures do together.
    let together = ["shared", "batch"].map(|folder| crates.join("structures/src").join(folder));
    let mut structures = vec![crates.join("pmem/src/heap")];
    for folder in [&crates.join("structures/src"), &papers] {
        let folders = entries(folder).into_iter().filter(|entry| entry.is_dir());
        let is_structure =
            |folder: &PathBuf| *folder != papers && *folder != stored && !together.contains(folder);
        structures.extend(folders.filter(is_structure));
    }
    assert!(structures.len() > 2, "no structure found");
    let wrong: Vec<String> = structures
        .iter()
        .flat_map(|structure| STRUCTURE_FILES.map(|file| structure.join(file)))
        .filter(|path| !path.is_file())
        .map(|path| format!("{} is missing", show(&path)))
        .collect();
    assert_none(&wrong);
}

#[test]
fn every_folder_in_crates_is_a_crate() {
    assert_eq!(crate_directories().len(), ARROWS.len(), "a folder in crates/ that is no crate");
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
