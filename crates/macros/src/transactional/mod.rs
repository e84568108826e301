//! `#[transactional]`: generates handles from a struct of plain data, and methods of these handles
//! from an `impl` block of the struct.

mod arguments;
mod impl_block;
mod object;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Attribute, Error, Item, Path};

use crate::crate_path::crate_path;

/// Name suffixes of the two handles: for one writer, and for any number of threads.
const HANDLE_SUFFIX: &str = "Handle";
const SHARED_SUFFIX: &str = "Shared";

/// Expands `#[transactional(arguments)]` on an item.
///
/// The item itself is always part of the expansion, so that its absence causes no further errors.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let error = match syn::parse2(item.clone()) {
        Ok(Item::Struct(item)) => return object::expand(arguments, item),
        Ok(Item::Impl(item)) => return impl_block::expand(arguments, item),
        Ok(other) => refuse(&other),
        Err(error) => error,
    };
    with_error(error, item)
}

fn refuse(item: &Item) -> Error {
    let (tokens, reason): (&dyn ToTokens, _) = match item {
        Item::Enum(item) => (
            &item.ident,
            "an enum cannot be transactional: after a crash its bytes may be a value that no \
             variant has; make it a struct with an integer that tells the variants apart",
        ),
        Item::Union(item) => (
            &item.ident,
            "a union cannot be transactional: nothing says which of its fields is meant; make it a \
             struct with the bytes as `[u8; N]` beside an integer that tells",
        ),
        Item::Fn(item) => (
            &item.sig.ident,
            "a function is a transaction as a method of a transactional struct: put \
             `#[transactional]` above the `impl` block that it is in, and above the struct",
        ),
        Item::Trait(item) => (
            &item.ident,
            "a trait is implemented, not transactional: put `#[transactional]` above an `impl` of \
             it for a transactional struct",
        ),
        other => (other, "`#[transactional]` goes above a struct, or above an `impl` block of one"),
    };
    Error::new_spanned(tokens, reason)
}

/// The item, and an error about it.
fn with_error(error: Error, item: impl ToTokens) -> TokenStream {
    let error = error.into_compile_error();
    quote! { #item #error }
}

/// The path of the crate with `Transactional` and the types inside the handles.
fn structures_crate() -> Path {
    crate_path("remanent-structures", "structures")
}

/// The tokens of a path, all located at `span`.
fn at(span: Span, path: TokenStream) -> TokenStream {
    let moved = path.into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    moved.collect()
}

/// The `cfg` attributes of an item, which generated items need as well.
fn cfg_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"))
}

/// A name for the medium's type parameter that does not occur in `tokens`.
fn medium_ident(tokens: &TokenStream) -> Ident {
    let names = ["M".to_owned()].into_iter().chain((1_u64..).map(|number| format!("M{number}")));
    let mut unused = names.filter(|name| !uses_name(tokens, name));
    let name = unused.next().expect("tokens are finite");
    Ident::new(&name, Span::call_site())
}

fn uses_name(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => ident == name,
        proc_macro2::TokenTree::Group(group) => uses_name(&group.stream(), name),
        _ => false,
    })
}
