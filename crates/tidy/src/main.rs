//! `cargo run -p remanent-tidy`: shows which files depend on which.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::Parser;
use remanent_tidy::{Graph, crate_directories, show};

/// Shows which files of the project import something from which others.
///
/// Imports between a module and its parent do not count.
#[derive(Parser)]
#[command(name = "remanent-tidy")]
enum Arguments {
    /// Groups of files that import each other, the largest first.
    Circles,
    /// The files of one crate and their imports, for Graphviz (`… | dot -Tsvg`); circles are red.
    Graph {
        /// Folder of the crate below `crates/`, such as `blockdev`.
        name: String,
    },
}

fn main() {
    match Arguments::parse() {
        Arguments::Circles => print_circles(),
        Arguments::Graph { name } => {
            let of_crate = crate_directories().into_iter().filter(|path| path.ends_with(&name));
            for root in of_crate.flat_map(roots) {
                print!("{}", Graph::read(&root).dot());
            }
        }
    }
}

fn print_circles() {
    let mut circles: Vec<_> = crate_directories()
        .into_iter()
        .flat_map(roots)
        .flat_map(|root| Graph::read(&root).circles())
        .collect();
    circles.sort_by_key(|circle| usize::MAX - circle.len());
    for circle in circles {
        let names: Vec<String> = circle.iter().map(|file| show(file)).collect();
        println!("{}: {}", circle.len(), names.join(" "));
    }
}

/// Root files of a crate's library and program.
fn roots(directory: PathBuf) -> Vec<PathBuf> {
    ["src/lib.rs", "src/main.rs"]
        .map(|root| directory.join(root))
        .into_iter()
        .filter(|root| root.is_file())
        .collect()
}
