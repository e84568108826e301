//! The `impl` block as the macro reads it: its struct, its parameters, and the methods that handles
//! get.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    AngleBracketedGenericArguments, Attribute, Error, GenericArgument, Generics, Ident, ImplItemFn,
    ItemImpl, Path, PathArguments, Result, Type, TypePath, parse_quote,
};

use super::method::Method;
use super::signature::{self, Access, Forwarded};
use super::trait_rules;
use crate::transactional::arguments::OnErr;
use crate::transactional::{cfg_attributes, medium_ident, structures_crate};

/// One `impl` block, and everything that its expansion needs.
pub(super) struct Block<'a> {
    pub(super) structures: Path,
    pub(super) item: &'a ItemImpl,
    /// The struct, as the block names it.
    pub(super) ty: &'a TypePath,
    /// The parameters of the block and the medium's.
    pub(super) generics: Generics,
    /// The name of the medium's type parameter.
    pub(super) medium: Ident,
    /// The block's own argument about `Err`.
    on_err: Option<OnErr>,
}

impl<'a> Block<'a> {
    pub(super) fn new(item: &'a ItemImpl, on_err: Option<OnErr>) -> Result<Self> {
        let ty = match &*item.self_ty {
            Type::Path(ty) if ty.qself.is_none() => ty,
            other => {
                return Err(Error::new_spanned(
                    other,
                    "`#[transactional]` goes above an `impl` block of a transactional struct \
                     itself, which is called by its name",
                ));
            }
        };
        if let Some((path, _)) = &item.trait_ {
            trait_rules::require_for_handle(item, path)?;
        }
        let medium = medium_ident(&item.to_token_stream());
        let structures = structures_crate();
        let mut generics = item.generics.clone();
        generics.params.push(parse_quote!(#medium: #structures::__private::Medium));
        Ok(Block { structures, item, ty, generics, medium, on_err })
    }

    /// Reads one method. A function of the struct itself is none.
    pub(super) fn method<'m>(
        &self,
        item: &'m ImplItemFn,
        said: Option<OnErr>,
    ) -> Result<Option<Method<'m>>> {
        let Some(access) = signature::access(&item.sig)? else {
            return if self.item.trait_.is_some() {
                Err(trait_rules::no_object(item))
            } else {
                Ok(None)
            };
        };
        signature::require_transaction(&item.sig, access)?;
        if self.item.trait_.is_some() {
            trait_rules::require_no_bare_self(item)?;
        }
        if said.is_some() && access != Access::Change {
            return Err(Error::new(
                item.sig.ident.span(),
                format!(
                    "`{}` changes nothing that an `Err` could commit or abort: take `&mut self`, \
                     or leave the argument out",
                    item.sig.ident
                ),
            ));
        }
        // An argument of the method decides. Without one, the name of the return type tells whether
        // there can be an `Err`.
        let returns_result = signature::returns_result(&item.sig.output);
        let on_err = said.or(returns_result.then(|| self.on_err.unwrap_or(OnErr::Abort)));
        Ok(Some(Method { item, access, on_err, forwarded: Forwarded::new(&item.sig) }))
    }

    /// Code that only compiles if the struct is transactional; otherwise the compiler names what is
    /// missing.
    pub(super) fn assertion(&self) -> TokenStream {
        let (structures, item, ty) = (&self.structures, self.item, self.ty);
        let (impl_generics, _, where_clause) = item.generics.split_for_impl();
        let cfg: Vec<&Attribute> = cfg_attributes(&item.attrs).collect();
        let require = quote_spanned! { ty.span() => require::<#ty>(); };
        quote! {
            #(#cfg)*
            #[allow(dead_code)]
            const _: () = {
                fn require<T: #structures::__private::Transactional>() {}
                fn of_this_block #impl_generics () #where_clause {
                    #require
                }
            };
        }
    }

    /// The handle whose name ends in `suffix`, with the block's arguments and the medium's.
    pub(super) fn handle_type(&self, suffix: &str) -> TypePath {
        let mut ty = self.ty.clone();
        let medium = &self.medium;
        if let Some(name) = ty.path.segments.last_mut() {
            name.ident = format_ident!("{}{suffix}", name.ident);
            let argument: GenericArgument = parse_quote!(#medium);
            match &mut name.arguments {
                PathArguments::AngleBracketed(arguments) => arguments.args.push(argument),
                arguments => {
                    let first: AngleBracketedGenericArguments = parse_quote!(<#argument>);
                    *arguments = PathArguments::AngleBracketed(first);
                }
            }
        }
        ty
    }
}
