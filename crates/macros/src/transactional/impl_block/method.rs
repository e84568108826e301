//! A method that the handles get, and the code that calls it.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Ident, ImplItemFn, ReturnType, Safety};

use super::signature::{Access, Forwarded};
use crate::transactional::arguments::OnErr;
use crate::transactional::at;

/// One method that the handles get.
pub(super) struct Method<'a> {
    pub(super) item: &'a ImplItemFn,
    pub(super) access: Access,
    /// What an `Err` does, if the method can return one.
    pub(super) on_err: Option<OnErr>,
    pub(super) forwarded: Forwarded,
}

impl Method<'_> {
    /// Location of the return type, with names resolved as at the call site.
    fn output_span(&self) -> Span {
        match &self.item.sig.output {
            ReturnType::Default => Span::call_site(),
            ReturnType::Type(_, ty) => ty.span().resolved_at(Span::call_site()),
        }
    }

    /// Calls the method itself on `object`, an expression of this type.
    pub(super) fn call(&self, owner: &TokenStream, object: &TokenStream) -> TokenStream {
        let (name, Forwarded { arguments, turbofish, .. }) =
            (&self.item.sig.ident, &self.forwarded);
        // The compiler locates a call where its path begins. Here that is the return type, since it
        // is wrong if it is named `Result` and is none.
        let span = self.output_span();
        let owner = at(span, owner.clone());
        let call = quote_spanned!(span => #owner::#name #turbofish (#object #(, #arguments)*));
        match self.item.sig.safety {
            Safety::Unsafe(_) => quote!(unsafe { #call }),
            _ => call,
        }
    }

    /// Runs the method as a transaction of `inner`, a `Tx` or a `SharedTx`. The outer result is the
    /// medium's.
    pub(super) fn change(&self, owner: &TokenStream, inner: &TokenStream) -> TokenStream {
        // A hygienic name, which no argument of the method can have.
        let object = Ident::new("object", Span::mixed_site());
        let call = self.call(owner, &object.to_token_stream());
        match self.on_err {
            Some(OnErr::Abort) => {
                let span = self.output_span();
                quote_spanned!(span => #inner.try_transact(move |#object| #call))
            }
            Some(OnErr::Commit) | None => quote!(#inner.transact(move |#object| #call)),
        }
    }

    /// Runs the method on the last committed version in `inner`. The outer result is the medium's.
    pub(super) fn read(&self, owner: &TokenStream, inner: &TokenStream) -> TokenStream {
        let object = Ident::new("object", Span::mixed_site());
        let borrow = (self.access == Access::Read).then(|| quote!(&));
        let call = self.call(owner, &quote!(#borrow #object));
        quote!(#inner.get().map(move |#object| #call))
    }
}

/// The attributes that generated items keep.
///
/// Of the lint attributes only `allow` is kept: an `expect` would not be fulfilled.
pub(super) fn kept_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    const KEPT: [&str; 5] = ["allow", "cfg", "cfg_attr", "deprecated", "doc"];
    attributes.iter().filter(|attribute| KEPT.iter().any(|name| attribute.path().is_ident(name)))
}
