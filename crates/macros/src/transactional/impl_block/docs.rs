//! Documentation of the handles' methods: that of the struct's methods, and the errors that a
//! handle adds.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, TypePath};

use super::method::{Method, kept_attributes};
use super::signature::Access;
use crate::transactional::arguments::OnErr;

/// The whole documentation of the method, and the handle's errors.
pub(super) fn of_handle(method: &Method<'_>) -> TokenStream {
    let docs: Vec<&Attribute> = docs(method).collect();
    let has_errors = docs.iter().filter_map(|doc| text(doc)).any(|doc| doc.contains("# Errors"));
    let heading = if has_errors { " # Errors of the medium" } else { " # Errors" };
    let errors = errors(method);
    quote! {
        #(#docs)*
        #[doc = ""]
        #[doc = #heading]
        #[doc = ""]
        #[doc = #errors]
    }
}

/// The first paragraph of the documentation. The rest, with its examples, is at the other handle.
pub(super) fn of_shared(method: &Method<'_>, handle: &TypePath) -> TokenStream {
    let mut summary = TokenStream::new();
    for doc in docs(method) {
        match text(doc) {
            None => doc.to_tokens(&mut summary),
            Some(text) => {
                let mut paragraphs = text.split("\n\n");
                let first = paragraphs.next().unwrap_or_default();
                summary.extend(quote!(#[doc = #first]));
                if first.trim().is_empty() || paragraphs.next().is_some() {
                    break;
                }
            }
        }
    }
    let names = handle.path.segments.iter().map(|segment| segment.ident.to_string());
    let begin = if handle.path.leading_colon.is_some() { "::" } else { "" };
    let handle = names.collect::<Vec<_>>().join("::");
    let name = method.item.sig.ident.unraw();
    let more = format!(" More at [`{name}`]({begin}{handle}::{name}) of the one writer's handle.");
    let errors = errors(method);
    quote! {
        #summary
        #[doc = ""]
        #[doc = #more]
        #[doc = ""]
        #[doc = " # Errors"]
        #[doc = ""]
        #[doc = #errors]
    }
}

fn docs<'a>(method: &'a Method<'_>) -> impl Iterator<Item = &'a Attribute> {
    kept_attributes(&method.item.attrs).filter(|attribute| attribute.path().is_ident("doc"))
}

/// The text of a doc comment. Other uses of `doc` have none.
fn text(doc: &Attribute) -> Option<String> {
    match &doc.meta {
        Meta::NameValue(meta) => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn errors(method: &Method<'_>) -> &'static str {
    match (method.access, method.on_err) {
        (Access::Change, Some(OnErr::Abort)) => {
            " When the medium fails. The inner error is the method's own, and leaves the object as \
             it was."
        }
        (Access::Change, Some(OnErr::Commit)) => {
            " When the medium fails. The inner error is the method's own, and what the method \
             changed until then is committed."
        }
        (Access::Read | Access::Take, Some(_)) => {
            " When the medium fails. The inner error is the method's own."
        }
        (_, None) => " When the medium fails.",
    }
}
