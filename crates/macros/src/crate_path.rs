//! Paths of Remanent's crates, as an expansion must write them where a macro is used.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::Span;
use syn::{Ident, Path, parse_quote};

/// The package that has all others as modules.
const FACADE: &str = "remanent";

/// The path of `package`, or of `module` in the facade if only the facade is a dependency.
///
/// If neither is found, the path is that of the package, and the compiler says that it is missing.
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

/// The name of a package in the crate that is being compiled, if it is a dependency.
fn name_of(package: &str) -> Option<String> {
    match crate_name(package).ok()? {
        // Each crate that uses a macro in its own sources has `extern crate self as` this name.
        FoundCrate::Itself => Some(package.replace('-', "_")),
        FoundCrate::Name(name) => Some(name),
    }
}
