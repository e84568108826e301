//! The arrows between crates that ARCHITECTURE.md draws, compared with what cargo sees.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Each crate, and those of ours that it needs in order to run.
const ARROWS: &[(&str, &[&str])] = &[
    ("remanent-macros", &[]),
    ("remanent-pmem", &["remanent-macros"]),
    ("remanent-crashsim", &["remanent-pmem"]),
    ("remanent-structures", &["remanent-pmem"]),
    ("remanent-server", &["remanent-pmem", "remanent-structures"]),
    ("remanent", &["remanent-crashsim", "remanent-pmem", "remanent-server", "remanent-structures"]),
];

/// Nothing may need these: rivals' dependencies stay with the benchmarks, the facade is the top.
const TOPS: &[&str] = &["remanent-bench", "remanent"];

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let needs = dependencies(package);
        if let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| *of == name) {
            let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
            assert!(needs.is_subset(&allowed), "{name} needs {needs:?}, beyond {allowed:?}");
        } else {
            assert!(TOPS.contains(&name), "{name} is not in ARCHITECTURE.md");
        }
        let tops: Vec<_> = needs.iter().filter(|need| TOPS.contains(need)).collect();
        assert!(tops.is_empty(), "{name} needs {tops:?}, which nothing may need");
    }
    for (name, _) in ARROWS {
        assert!(packages.iter().any(|package| package["name"] == *name), "{name} is gone");
    }
}

/// Our own crates that a package needs, its tests aside.
fn dependencies(package: &Value) -> BTreeSet<&str> {
    let all = package["dependencies"].as_array().expect("a list of dependencies");
    let real = all.iter().filter(|dependency| dependency["kind"].is_null());
    let names = real.map(|dependency| dependency["name"].as_str().expect("a name"));
    names.filter(|name| name.starts_with("remanent")).collect()
}
