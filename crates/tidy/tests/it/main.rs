//! The project's rules about its own source.

#![forbid(unsafe_code)]

mod crates;
mod documents;
mod graph;
mod names;
mod sources;

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
