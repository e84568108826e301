//! The files that a file imports something from.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ItemUse, Macro, Path, UseTree, VisRestricted};

use crate::modules::{Module, ModulePath, Modules};

/// Maximal number of names that stand for other names before the search gives up, because names may
/// be imported in a circle.
const DETOURS_MAX: usize = 16;

/// The files that define the names in `module`, and not the files that re-export them.
pub(crate) fn imports(modules: &Modules, at: &ModulePath, module: &Module) -> BTreeSet<PathBuf> {
    let mut paths = Paths::default();
    module.body.iter().for_each(|item| paths.visit_item(item));
    paths
        .0
        .iter()
        .filter_map(|path| resolve(modules, at, path, DETOURS_MAX))
        .filter(|file| *file != module.file)
        .collect()
}

/// The file that defines `path`, as seen from module `at`; `None` if it is not in this crate.
fn resolve(modules: &Modules, at: &ModulePath, path: &[String], detours: usize) -> Option<PathBuf> {
    let detours = detours.checked_sub(1)?;
    let mut at = at.clone();
    let mut rest = path;
    let mut is_rooted = false;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            name => {
                let module = modules.0.get(&at)?;
                let child = [at.as_slice(), &[name.to_owned()]].concat();
                if modules.0.contains_key(&child) {
                    at = child;
                } else if module.items.iter().any(|item| item == name) {
                    return Some(module.file.clone());
                } else if let Some(target) = module.bindings.get(name)
                    && target != path
                {
                    let target = [target.as_slice(), after].concat();
                    return resolve(modules, &at, &target, detours);
                } else {
                    return module
                        .globs
                        .iter()
                        .filter(|glob| is_local(modules, &at, glob))
                        .find_map(|glob| {
                            resolve(modules, &at, &[glob.as_slice(), rest].concat(), detours)
                        })
                        .or_else(|| is_rooted.then(|| module.file.clone()));
                }
            }
        }
        is_rooted = true;
        rest = after;
    }
    modules.0.get(&at).map(|module| module.file.clone())
}

fn is_local(modules: &Modules, at: &ModulePath, path: &[String]) -> bool {
    let Some(first) = path.first() else { return false };
    matches!(first.as_str(), "crate" | "super" | "self")
        || modules.0.contains_key(&[at.as_slice(), std::slice::from_ref(first)].concat())
}

/// Collects the paths in a piece of source.
#[derive(Default)]
struct Paths(BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast Path) {
        self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.take_use(&item.tree, &mut Vec::new());
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.take_tokens(invocation.tokens.clone());
        visit::visit_macro(self, invocation);
    }

    // `pub(crate)` restricts the users of an item, and imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}

impl Paths {
    fn take_use(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.take_use(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => drop(self.0.insert(prefix.clone())),
            UseTree::Name(name) => self.take_name(prefix, &name.ident),
            UseTree::Rename(rename) => self.take_name(prefix, &rename.ident),
            UseTree::Glob(_) => drop(self.0.insert(prefix.clone())),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_use(tree, prefix));
            }
        }
    }

    fn take_name(&mut self, prefix: &[String], name: &impl ToString) {
        self.0.insert([prefix, &[name.to_string()]].concat());
    }

    /// Finds `a::b` in the tokens of a macro call, whose grammar is unknown.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.finish(&mut path);
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.finish(&mut path);
                    self.take_tokens(group.stream());
                }
                _ => self.finish(&mut path),
            }
        }
        self.finish(&mut path);
    }

    fn finish(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.0.insert(std::mem::take(path));
        }
        path.clear();
    }
}
