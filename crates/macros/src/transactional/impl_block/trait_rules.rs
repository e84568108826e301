//! Which trait implementations, and which of a trait's functions, a handle can forward to the struct's.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Error, FnArg, ImplItemFn, ItemImpl, Path, Result};

use super::signature;

/// Traits that each handle implements in its own way.
const OF_HANDLES: [&str; 3] = ["Debug", "Deref", "DerefMut"];

/// Refuses a trait that the handle could not implement by calling the struct's methods.
pub(super) fn require_for_handle(item: &ItemImpl, path: &Path) -> Result<()> {
    if let Some(unsafety) = &item.unsafety {
        return Err(Error::new(
            unsafety.span,
            "what an `unsafe impl` promises of the struct, nobody has promised of its handle: leave \
             `#[transactional]` off, and implement the trait for the handle yourself",
        ));
    }
    item.modifiers.require_empty()?;
    let name = path.segments.last().map(|segment| segment.ident.to_string());
    if name.is_some_and(|name| OF_HANDLES.contains(&name.as_str())) {
        return Err(Error::new_spanned(
            path,
            "the handle has this trait already, in its own way: leave `#[transactional]` off, and the \
             struct's stays the struct's",
        ));
    }
    Ok(())
}

/// Why a handle cannot have a trait's function that is no method.
pub(super) fn no_object(item: &ImplItemFn) -> Error {
    let name = &item.sig.ident;
    Error::new(
        name.span(),
        format!(
            "`{name}` has no `self`, so a handle could not implement the trait by calling it: leave \
             `#[transactional]` off, and use the trait in the closure of `transact`"
        ),
    )
}

/// `Self` is the struct in one implementation of a trait and the handle in the other.
pub(super) fn require_no_bare_self(item: &ImplItemFn) -> Result<()> {
    let typed = item.sig.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_)));
    let mut types: TokenStream = typed.map(ToTokens::to_token_stream).collect();
    item.sig.output.to_tokens(&mut types);
    match signature::bare_self(types) {
        None => Ok(()),
        Some(span) => Err(Error::new(
            span,
            "for the handle `Self` is the handle, which is no value to pass around: leave \
             `#[transactional]` off, and use the trait in the closure of `transact`",
        )),
    }
}
