//! Reads the project's source files and tells which of them depend on which.
//!
//! The rules themselves are in `tests/`: which crate may need which, how long a file may be, that no large group of files
//! imports each other, and which words names are made of. `cargo run -p remanent-tidy -- circles` and `-- graph` show what
//! those tests look at.

#![forbid(unsafe_code)]

mod graph;
mod imports;
mod modules;
mod workspace;

pub use graph::{Circle, Graph};
pub use workspace::{crate_directories, entries, file_name, files, parent, read, show, workspace};
