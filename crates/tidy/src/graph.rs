//! The imports between the files of a crate, and circles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::imports::imports;
use crate::modules::Modules;
use crate::workspace::{file_name, parent, show};

/// Which files of one target import something from which others.
#[derive(Debug)]
pub struct Graph {
    edges: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
}

/// Files each of which needs all others, directly or indirectly.
pub type Circle = Vec<PathBuf>;

impl Graph {
    /// Reads the target whose root file is `root`, such as `src/lib.rs`.
    ///
    /// Code that only tests compile is left out.
    ///
    /// # Panics
    ///
    /// When a file is missing or is not Rust.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let modules = Modules::read(root);
        let mut edges: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        for (path, module) in &modules.0 {
            edges.entry(module.file.clone()).or_default().extend(imports(&modules, path, module));
        }
        Graph { edges }
    }

    /// The files, each with the files that it imports something from.
    pub fn edges(&self) -> impl Iterator<Item = (&Path, &BTreeSet<PathBuf>)> {
        self.edges.iter().map(|(file, targets)| (file.as_path(), targets))
    }

    /// Groups of two and more files that import each other, the largest first.
    ///
    /// Imports between a module and its parent do not count: the parent lists its parts, and they
    /// use its common items.
    #[must_use]
    pub fn circles(&self) -> Vec<Circle> {
        let reachable: BTreeMap<&Path, BTreeSet<&Path>> =
            self.edges.keys().map(|file| (file.as_path(), self.reachable(file))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (&file, targets) in &reachable {
            if targets.contains(file) && seen.insert(file) {
                let circle: Circle = targets
                    .iter()
                    .filter(|target| reachable[**target].contains(file))
                    .map(|target| target.to_path_buf())
                    .collect();
                seen.extend(targets.iter().filter(|target| reachable[**target].contains(file)));
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| usize::MAX - circle.len());
        circles
    }

    /// All files that `file` needs, directly or indirectly.
    fn reachable(&self, file: &Path) -> BTreeSet<&Path> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&Path> = self.counted(file).collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.counted(next));
            }
        }
        found
    }

    fn counted(&self, file: &Path) -> impl Iterator<Item = &Path> {
        let targets = self.edges.get(file).into_iter().flatten();
        let file = file.to_owned();
        targets.map(PathBuf::as_path).filter(move |target| !are_module_and_parent(&file, target))
    }

    /// The graph in the language of Graphviz.
    #[must_use]
    pub fn dot(&self) -> String {
        let circles = self.circles();
        let mut text = "digraph {\n    node [shape=box fontname=sans]\n".to_owned();
        let is_together = |a: &PathBuf, b: &PathBuf| {
            circles.iter().any(|circle| circle.contains(a) && circle.contains(b))
        };
        for (file, targets) in &self.edges {
            for target in targets.iter().filter(|target| !are_module_and_parent(file, target)) {
                let color = if is_together(file, target) { "red" } else { "black" };
                writeln!(text, "    {:?} -> {:?} [color={color}]", show(file), show(target))
                    .expect("text takes all");
            }
        }
        text + "}\n"
    }
}

fn are_module_and_parent(a: &Path, b: &Path) -> bool {
    parents_of(a).iter().any(|parent| parent == b) || parents_of(b).iter().any(|parent| parent == a)
}

/// The files that may declare the module of this file.
fn parents_of(file: &Path) -> Vec<PathBuf> {
    let folder = match file_name(file) {
        "mod.rs" => parent(parent(file)),
        _ => parent(file),
    };
    let mut parents: Vec<PathBuf> =
        ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name)).into();
    parents.push(folder.with_extension("rs"));
    parents
}
