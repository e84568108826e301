//! Reads the project's source files, and finds which of them depend on which.
//!
//! The rules are in `tests/`: which crate may need which, the length of files, the size of circles
//! of imports, and the words in names. `cargo run -p remanent-tidy -- circles` and `-- graph` show
//! what those tests check.

#![forbid(unsafe_code)]

mod graph;
mod imports;
mod modules;
mod workspace;

pub use graph::{Circle, Graph};
pub use workspace::{crate_directories, entries, file_name, files, parent, read, show, workspace};
