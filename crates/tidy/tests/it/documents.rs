//! Documents name what exists.

use remanent_tidy::{files, parent, read, show, workspace};

use crate::assert_none;

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
