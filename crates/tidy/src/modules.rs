//! The tree of modules below a crate's root file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

use crate::workspace::{parent, read};

/// A module, by its names from the root on.
pub(crate) type ModulePath = Vec<String>;

/// The declarations of one module.
#[derive(Default)]
pub(crate) struct Module {
    /// The module's file.
    pub(crate) file: PathBuf,
    /// Names that `use` imports, with their paths.
    pub(crate) bindings: BTreeMap<String, Vec<String>>,
    /// Paths of modules whose names `use` imports all at once.
    pub(crate) globs: Vec<Vec<String>>,
    /// Names of its items.
    pub(crate) items: Vec<String>,
    /// Its source, without inner modules and without code that only tests compile.
    pub(crate) body: Vec<Item>,
}

/// All modules of a target.
#[derive(Default)]
pub(crate) struct Modules(pub(crate) BTreeMap<ModulePath, Module>);

impl Modules {
    /// Reads the modules of the target whose root file is `root`.
    ///
    /// # Panics
    ///
    /// When a file is missing or is not Rust.
    pub(crate) fn read(root: &Path) -> Self {
        let mut modules = Modules::default();
        modules.read_file(root, &[], parent(root));
        modules
    }

    /// Reads a file as module `path`, whose submodules lie in `directory`.
    fn read_file(&mut self, file: &Path, path: &[String], directory: &Path) {
        let source = syn::parse_file(&read(file))
            .unwrap_or_else(|error| panic!("{} does not parse: {error}", file.display()));
        self.add(file, path, directory, source.items);
    }

    fn add(&mut self, file: &Path, path: &[String], directory: &Path, items: Vec<Item>) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            if attributes(&item).iter().any(is_test_only) {
                continue;
            }
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let inner_path = [path, std::slice::from_ref(&name)].concat();
                    match inner.content {
                        Some((_, items)) => {
                            self.add(file, &inner_path, &directory.join(&name), items);
                        }
                        None => {
                            let (file, below) = find(directory, &name);
                            self.read_file(&file, &inner_path, &below);
                        }
                    }
                }
                item => module.take(item),
            }
        }
        self.0.insert(path.to_owned(), module);
    }
}

impl Module {
    fn take(&mut self, item: Item) {
        if let Item::Use(item) = &item {
            bind(&item.tree, &mut Vec::new(), self);
        }
        self.items.extend(name(&item));
        self.body.push(item);
    }
}

/// The file of module `name` in `directory`, and the folder of that module's own submodules.
fn find(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let below = directory.join(name);
    let beside = directory.join(format!("{name}.rs"));
    (if beside.is_file() { beside } else { below.join("mod.rs") }, below)
}

/// Notes the names that a `use` imports.
fn bind(tree: &UseTree, prefix: &mut Vec<String>, module: &mut Module) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            bind(&path.tree, prefix, module);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let mut path = prefix.clone();
            if name.ident != "self" {
                path.push(name.ident.to_string());
            }
            if let Some(last) = path.last().cloned() {
                module.bindings.insert(last, path);
            }
        }
        UseTree::Rename(rename) => {
            let path = [prefix.as_slice(), &[rename.ident.to_string()]].concat();
            module.bindings.insert(rename.rename.to_string(), path);
        }
        UseTree::Glob(_) => module.globs.push(prefix.clone()),
        UseTree::Group(group) => {
            for tree in &group.items {
                bind(tree, prefix, module);
            }
        }
    }
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether this is `#[cfg(test)]`, or `#[cfg]` with `test` among other conditions.
fn is_test_only(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| {
            let condition = list.tokens.to_string();
            condition == "test"
                || condition.starts_with("all (test")
                || condition.starts_with("all(test")
        })
}
