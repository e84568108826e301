//! Implements a trait of the struct for the handle of the one writer.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{ImplItem, Path, ReceiverKind};

use super::block::Block;
use super::method::{Method, kept_attributes};
use super::signature::{Access, with_self_named};
use crate::transactional::HANDLE_SUFFIX;

/// The `impl` block of the trait at `path` for the handle.
pub(super) fn expand(block: &Block<'_>, path: &Path, methods: &[Method<'_>]) -> TokenStream {
    let ty = block.handle_type(HANDLE_SUFFIX);
    let attributes = kept_attributes(&block.item.attrs);
    let (impl_generics, _, where_clause) = block.generics.split_for_impl();
    let path = with_self_named(path.to_token_stream(), block.ty);
    // Associated types and constants are those of the struct.
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
        // `mut self` only matters to the original body.
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
