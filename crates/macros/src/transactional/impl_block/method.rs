//! A method of the block that the handles are to have, and calls of it in their methods.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Ident, ImplItemFn, ReturnType, Safety};

use super::signature::{Access, Forwarded};
use crate::transactional::arguments::OnErr;
use crate::transactional::at;

/// One method that the handles are to have.
pub(super) struct Method<'a> {
    pub(super) item: &'a ImplItemFn,
    pub(super) access: Access,
    /// What becomes of an `Err`, where one is returned.
    pub(super) on_err: Option<OnErr>,
    pub(super) forwarded: Forwarded,
}

impl Method<'_> {
    /// The place of the return type, with names resolved as at the call site.
    fn output_span(&self) -> Span {
        match &self.item.sig.output {
            ReturnType::Default => Span::call_site(),
            ReturnType::Type(_, ty) => ty.span().resolved_at(Span::call_site()),
        }
    }

    /// The method's own body, called on `object`: an expression of this type.
    pub(super) fn call(&self, owner: &TokenStream, object: &TokenStream) -> TokenStream {
        let (name, Forwarded { arguments, turbofish, .. }) =
            (&self.item.sig.ident, &self.forwarded);
        // A call begins where its path does: this one where the return type stands, as that is what
        // does not fit when it is called a `Result` and is none.
        let span = self.output_span();
        let owner = at(span, owner.clone());
        let call = quote_spanned!(span => #owner::#name #turbofish (#object #(, #arguments)*));
        match self.item.sig.safety {
            Safety::Unsafe(_) => quote!(unsafe { #call }),
            _ => call,
        }
    }

    /// What changes the object through `inner`, a `Tx` or a `SharedTx`; its result is the medium's.
    pub(super) fn change(&self, owner: &TokenStream, inner: &TokenStream) -> TokenStream {
        // No argument of the method has this name, whatever it is called.
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

    /// What the method says of the last committed version in `inner`; its result is the medium's.
    pub(super) fn read(&self, owner: &TokenStream, inner: &TokenStream) -> TokenStream {
        let object = Ident::new("object", Span::mixed_site());
        let borrow = (self.access == Access::Read).then(|| quote!(&));
        let call = self.call(owner, &quote!(#borrow #object));
        quote!(#inner.get().map(move |#object| #call))
    }
}

/// The attributes that hold for what is made from an item, too.
///
/// Of the lints' only `allow` does: an `expect` would be disappointed.
pub(super) fn kept_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    const KEPT: [&str; 5] = ["allow", "cfg", "cfg_attr", "deprecated", "doc"];
    attributes.iter().filter(|attribute| KEPT.iter().any(|name| attribute.path().is_ident(name)))
}
