//! Rules for trait implementations: which traits, and which functions of a trait, a handle can
//! forward.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Error, FnArg, ImplItemFn, ItemImpl, Path, Result};

use super::signature;

/// Traits that the handles implement themselves.
const OF_HANDLES: [&str; 3] = ["Debug", "Deref", "DerefMut"];

/// Refuses traits that the handle cannot implement by calling the struct's methods.
pub(super) fn require_for_handle(item: &ItemImpl, path: &Path) -> Result<()> {
    if let Some(unsafety) = &item.unsafety {
        return Err(Error::new(
            unsafety.span,
            "an `unsafe impl` makes a promise about the struct, not about its handle: leave \
             `#[transactional]` off, and implement the trait for the handle yourself",
        ));
    }
    item.modifiers.require_empty()?;
    let name = path.segments.last().map(|segment| segment.ident.to_string());
    if name.is_some_and(|name| OF_HANDLES.contains(&name.as_str())) {
        return Err(Error::new_spanned(
            path,
            "the handle implements this trait itself: leave `#[transactional]` off",
        ));
    }
    Ok(())
}

/// The error for a function of a trait without `self`.
pub(super) fn no_object(item: &ImplItemFn) -> Error {
    let name = &item.sig.ident;
    Error::new(
        name.span(),
        format!(
            "`{name}` has no `self`, so a handle could not implement the trait by calling it: \
             leave `#[transactional]` off, and use the trait in the closure of `transact`"
        ),
    )
}

/// Refuses bare `Self` in a signature: it is the struct in one implementation and the handle in the
/// other.
pub(super) fn require_no_bare_self(item: &ImplItemFn) -> Result<()> {
    let typed = item.sig.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_)));
    let mut types: TokenStream = typed.map(ToTokens::to_token_stream).collect();
    item.sig.output.to_tokens(&mut types);
    match signature::bare_self(types) {
        None => Ok(()),
        Some(span) => Err(Error::new(
            span,
            "`Self` would be the handle, which is not a value to pass around: leave \
             `#[transactional]` off, and use the trait in the closure of `transact`",
        )),
    }
}
