//! A trait of the struct, implemented for the handle of the one writer.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Error, FnArg, ImplItem, ImplItemFn, ItemImpl, Path, ReceiverKind, Result};

use super::HANDLE_SUFFIX;
use super::block::{Block, Method, kept_attributes};
use super::signature::{self, Access, with_self_named};

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

/// The block that implements the trait at `path` for the handle.
pub(super) fn expand(block: &Block<'_>, path: &Path, methods: &[Method<'_>]) -> TokenStream {
    let ty = block.handle_type(HANDLE_SUFFIX);
    let attributes = kept_attributes(&block.item.attrs);
    let (impl_generics, _, where_clause) = block.generics.split_for_impl();
    let path = with_self_named(path.to_token_stream(), block.ty);
    // Types and constants are the struct's.
    let items = block
        .item
        .items
        .iter()
        .filter(|item| matches!(item, ImplItem::Const(_) | ImplItem::Type(_)));
    let items = items.map(|item| with_self_named(item.to_token_stream(), block.ty));
    let methods = methods.iter().map(|method| self::method(block, &path, method));
    quote! {
        #(#attributes)*
        ///
        /// The trait has no place for an error of the medium, so each method panics when the medium
        /// fails.
        #[automatically_derived]
        #[allow(deprecated, clippy::all, clippy::undocumented_unsafe_blocks)]
        impl #impl_generics #path for #ty #where_clause {
            #(#items)*
            #(#methods)*
        }
    }
}

fn method(block: &Block<'_>, path: &TokenStream, method: &Method<'_>) -> TokenStream {
    let (signature, structures, ty) = (&method.item.sig, &block.structures, block.ty);
    let attributes = kept_attributes(&method.item.attrs);
    let (safety, name, output) = (&signature.safety, &signature.ident, &signature.output);
    let (generics, where_clause) = (&signature.generics, &signature.generics.where_clause);
    let receiver = signature.receiver().map(|receiver| {
        let mut receiver = receiver.clone();
        // `mut self` says what the body does with it, and this one does nothing.
        if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
            receiver.mutability = None;
        }
        receiver
    });
    let parameters = &method.forwarded.parameters;

    let owner = quote!(<#ty as #path>);
    let result = match method.access {
        Access::Change => {
            method.change(&owner, &quote!(<Self as ::core::ops::DerefMut>::deref_mut(self)))
        }
        Access::Read => method.read(&owner, &quote!(<Self as ::core::ops::Deref>::deref(self))),
        Access::Take => method.read(&owner, &quote!(<Self as ::core::ops::Deref>::deref(&self))),
    };
    quote! {
        #(#attributes)*
        #safety fn #name #generics (#receiver #(, #parameters)*) #output #where_clause {
            #result.unwrap_or_else(|error| #structures::__private::failed(error))
        }
    }
}
