//! Paths of our crates, as code must write them where a macro is used.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::Span;
use syn::{Ident, Path, parse_quote};

/// The package that has all others as its modules.
const FACADE: &str = "remanent";

/// The path of `package`, or of `module` in the facade where only that is a dependency.
///
/// Where neither is found the path is the package's own, and the compiler says that it is missing.
pub(crate) fn crate_path(package: &str, module: &str) -> Path {
    let ident = |name: &str| Ident::new(name, Span::call_site());
    if let Some(name) = name_of(package) {
        let name = ident(&name);
        return parse_quote!(::#name);
    }
    if let Some(name) = name_of(FACADE) {
        let (name, module) = (ident(&name), ident(module));
        return parse_quote!(::#name::#module);
    }
    let name = ident(&package.replace('-', "_"));
    parse_quote!(::#name)
}

/// The name of a package in the sources that are being compiled, if they may name it.
fn name_of(package: &str) -> Option<String> {
    match crate_name(package).ok()? {
        // Each crate whose own sources use a macro has `extern crate self as` this.
        FoundCrate::Itself => Some(package.replace('-', "_")),
        FoundCrate::Name(name) => Some(name),
    }
}
