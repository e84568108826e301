//! Generates the methods of both handles from an inherent `impl` block.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::block::Block;
use super::docs;
use super::method::{Method, kept_attributes};
use super::signature::{Access, output_type, self_lifetime, with_self_named};
use crate::transactional::{HANDLE_SUFFIX, SHARED_SUFFIX};

/// The handle that gets the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The handle of the one writer: methods that change the object take `&mut self`.
    Handle,
    /// The handle of any number of threads: all methods take `&self`.
    Shared,
}

/// The `impl` blocks of the handles, if there are methods.
pub(super) fn expand(block: &Block<'_>, methods: &[Method<'_>]) -> TokenStream {
    if methods.is_empty() {
        return TokenStream::new();
    }
    [Owner::Handle, Owner::Shared].map(|owner| of(owner, block, methods)).into_iter().collect()
}

fn of(owner: Owner, block: &Block<'_>, methods: &[Method<'_>]) -> TokenStream {
    let ty = match owner {
        Owner::Handle => block.handle_type(HANDLE_SUFFIX),
        Owner::Shared => block.handle_type(SHARED_SUFFIX),
    };
    let attributes = kept_attributes(&block.item.attrs);
    let (impl_generics, _, where_clause) = block.generics.split_for_impl();
    let methods = methods.iter().map(|method| self::method(owner, block, method));
    // Nobody may call the counterpart of a private method that only other methods use, hence
    // `dead_code`. Clippy has already checked the original methods.
    quote! {
        #(#attributes)*
        #[allow(dead_code, deprecated, clippy::all, clippy::undocumented_unsafe_blocks)]
        impl #impl_generics #ty #where_clause {
            #(#methods)*
        }
    }
}

fn method(owner: Owner, block: &Block<'_>, method: &Method<'_>) -> TokenStream {
    let (signature, structures) = (&method.item.sig, &block.structures);
    let (vis, safety, name) = (&method.item.vis, &signature.safety, &signature.ident);
    let docs = match owner {
        Owner::Handle => docs::of_handle(method),
        Owner::Shared => docs::of_shared(method, &block.handle_type(HANDLE_SUFFIX)),
    };
    let attributes = kept_attributes(&method.item.attrs).filter(|a| !a.path().is_ident("doc"));

    let lifetime = signature.receiver().and_then(self_lifetime);
    let changes = method.access == Access::Change;
    let mutability = (changes && owner == Owner::Handle).then(|| quote!(mut));
    let parameters = &method.forwarded.parameters;
    let output = output_type(&signature.output, &block.medium);
    let (generics, where_clause) = (&signature.generics, &signature.generics.where_clause);
    let header = quote! {
        #generics (& #lifetime #mutability self #(, #parameters)*)
            -> #structures::__private::Result<#output> #where_clause
    };
    let header = with_self_named(header, block.ty);

    let object = block.ty.to_token_stream();
    let object = quote!(<#object>);
    let body = match (changes, owner) {
        (true, Owner::Handle) => {
            let inner = quote!(<Self as ::core::ops::DerefMut>::deref_mut(self));
            method.change(&object, &inner)
        }
        (true, Owner::Shared) => {
            let inner = quote!(<Self as ::core::ops::Deref>::deref(self));
            method.change(&object, &inner)
        }
        (false, _) => {
            let inner = quote!(<Self as ::core::ops::Deref>::deref(self));
            method.read(&object, &inner)
        }
    };
    quote! {
        #docs
        #(#attributes)*
        #[inline]
        #vis #safety fn #name #header {
            #body
        }
    }
}
