//! `#[transactional]` on a struct: implements `Persistent` and `Transactional`, and declares the
//! two handles.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, GenericArgument, GenericParam, Generics, Ident, ItemStruct, LitStr, Path,
    Result, Token, Visibility, parse_quote,
};

use crate::persistent::require_no_addresses;

use super::{
    HANDLE_SUFFIX, SHARED_SUFFIX, arguments, at, cfg_attributes, medium_ident, structures_crate,
    with_error,
};

pub(super) fn expand(arguments: TokenStream, mut item: ItemStruct) -> TokenStream {
    let is_line = match prepare(arguments, &mut item) {
        Ok(is_line) => is_line,
        Err(error) => return with_error(error, item),
    };
    let object = Object::new(&item, is_line);
    let [fits, implementation] = [object.fits(), object.implementation()];
    let [handle, shared] = [object.handle(), object.shared()];
    let cfg: Vec<&Attribute> = cfg_attributes(&item.attrs).collect();
    // A `cfg` holds for one item, so each generated item gets its own.
    let made = [fits, implementation, handle, shared].into_iter().flatten().map(|made| {
        quote! { #(#cfg)* #made }
    });
    quote! { #item #(#made)* }
}

/// Refuses structs that cannot be objects, and adds missing derives. Returns whether the struct
/// must fit into a line.
fn prepare(arguments: TokenStream, item: &mut ItemStruct) -> Result<bool> {
    require_plain_generics(item)?;
    require_no_addresses(&item.ident, &item.fields)?;
    let is_line = arguments::is_line(arguments)?;
    make_persistent(item)?;
    Ok(is_line)
}

fn require_plain_generics(item: &ItemStruct) -> Result<()> {
    for parameter in &item.generics.params {
        let (span, reason) = match parameter {
            GenericParam::Const(_) => continue,
            GenericParam::Lifetime(parameter) => (
                parameter.lifetime.span(),
                format!(
                    "`{}` borrows for `{}`, and no borrow outlives the process as a pool does: \
                     store the data itself, or the number by which it is found",
                    item.ident, parameter.lifetime
                ),
            ),
            GenericParam::Type(parameter) => (
                parameter.ident.span(),
                format!(
                    "a transactional struct has no type parameters, as its size decides how it is \
                     stored: name the type that `{}` stands for, or keep `Tx<{}<…>>` without this \
                     attribute",
                    parameter.ident, item.ident
                ),
            ),
        };
        return Err(Error::new(span, reason));
    }
    Ok(())
}

/// Adds the derives and attributes of a transactional struct that this one lacks.
fn make_persistent(item: &mut ItemStruct) -> Result<()> {
    let structures = structures_crate();
    let derived = derived(&item.attrs)?;
    let is_derived = |name: &str| derived.iter().any(|ident| ident == name);
    if !has_attribute(&item.attrs, "repr") {
        item.attrs.push(parse_quote!(#[repr(C)]));
    }
    let wanted: [(&str, Path); 3] = [
        ("Clone", parse_quote!(::core::clone::Clone)),
        ("Copy", parse_quote!(::core::marker::Copy)),
        ("Persistent", parse_quote!(#structures::__private::Persistent)),
    ];
    let lacking = wanted.into_iter().filter(|(name, _)| !is_derived(name)).map(|(_, path)| path);
    item.attrs.push(parse_quote!(#[derive(#(#lacking),*)]));
    if !has_attribute(&item.attrs, "persistent") {
        let path = quote!(#structures::__private).to_string().replace(' ', "");
        let path = LitStr::new(&path, Span::call_site());
        item.attrs.push(parse_quote!(#[persistent(crate = #path)]));
    }
    Ok(())
}

/// The last path segments of all derives.
fn derived(attributes: &[Attribute]) -> Result<Vec<Ident>> {
    let mut derived = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated)?;
        derived
            .extend(paths.iter().filter_map(|path| path.segments.last()).map(|s| s.ident.clone()));
    }
    Ok(derived)
}

fn has_attribute(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// The struct, and everything that its expansion needs.
struct Object<'a> {
    structures: Path,
    vis: &'a Visibility,
    ident: &'a Ident,
    generics: &'a Generics,
    /// The name of the medium's type parameter.
    medium: Ident,
    /// `generics` and the medium's parameter, as a struct declares them.
    declared: Generics,
    /// Arguments for `generics` and the medium's parameter, for a handle.
    arguments: Punctuated<GenericArgument, Token![,]>,
    handle: Ident,
    shared: Ident,
    is_line: bool,
}

impl<'a> Object<'a> {
    fn new(item: &'a ItemStruct, is_line: bool) -> Self {
        let structures = structures_crate();
        let medium = medium_ident(&item.generics.to_token_stream());
        let mut declared = item.generics.clone();
        declared.params.push(parse_quote! {
            #medium: #structures::__private::Medium = #structures::__private::Mapped
        });
        let (_, arguments, _) = declared.split_for_impl();
        let arguments: syn::AngleBracketedGenericArguments = parse_quote!(#arguments);
        Object {
            vis: &item.vis,
            ident: &item.ident,
            generics: &item.generics,
            medium,
            arguments: arguments.args,
            declared,
            handle: format_ident!("{}{HANDLE_SUFFIX}", item.ident),
            shared: format_ident!("{}{SHARED_SUFFIX}", item.ident),
            is_line,
            structures,
        }
    }

    /// The struct as a type.
    fn ty(&self) -> TokenStream {
        let (ident, (_, arguments, _)) = (self.ident, self.generics.split_for_impl());
        quote!(#ident #arguments)
    }

    /// A call that does not compile if the struct is too large. Errors point at the struct.
    fn require_size(&self) -> TokenStream {
        let (structures, ty) = (&self.structures, self.ty());
        let check = if self.is_line { "require_line" } else { "require_fits" };
        let span = self.ident.span().resolved_at(Span::call_site());
        let check = Ident::new(check, span);
        // The compiler locates a call where its path begins: here at the struct's name.
        let path = at(span, quote!(#structures::line_tx::#check));
        quote_spanned! { span => #path::<#ty>() }
    }

    /// Checks the size here if the struct has no parameters. Otherwise `wrapper` does it where the
    /// struct is used.
    fn fits(&self) -> Vec<TokenStream> {
        let require_size = self.require_size();
        let is_known = self.generics.params.is_empty();
        is_known.then(|| quote! { const _: () = #require_size; }).into_iter().collect()
    }

    fn implementation(&self) -> Vec<TokenStream> {
        let Object { structures, ident, medium, arguments, handle, shared, .. } = self;
        let (impl_generics, type_generics, where_clause) = self.generics.split_for_impl();
        vec![quote! {
            #[automatically_derived]
            #[diagnostic::do_not_recommend]
            impl #impl_generics #structures::__private::Transactional for #ident #type_generics
            #where_clause
            {
                type Handle<#medium: #structures::__private::Medium> = #handle<#arguments>;
                type Shared<#medium: #structures::__private::Medium> = #shared<#arguments>;
            }
        }]
    }

    fn handle(&self) -> Vec<TokenStream> {
        let Object { structures, vis, medium, declared, handle, .. } = self;
        let (ty, [summary, methods]) = (self.ty(), self.handle_docs());
        let (impl_generics, type_generics, where_clause) = declared.split_for_impl();
        let wrapper = self.wrapper(handle, quote!(#structures::__private::Tx<#ty, #medium>));
        let declaration = quote! {
            #[doc = #summary]
            #[doc = ""]
            #[doc = #methods]
            #vis struct #handle #declared (#structures::__private::Tx<#ty, #medium>) #where_clause;
        };
        let deref_mut = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::ops::DerefMut for #handle #type_generics #where_clause {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.0
                }
            }
        };
        [declaration, deref_mut].into_iter().chain(wrapper).collect()
    }

    fn shared(&self) -> Vec<TokenStream> {
        let Object { structures, vis, medium, declared, handle, shared, .. } = self;
        let (ty, [summary, methods]) = (self.ty(), self.shared_docs());
        let (impl_generics, type_generics, where_clause) = declared.split_for_impl();
        let wrapper = self.wrapper(shared, quote!(#structures::__private::SharedTx<#ty, #medium>));
        let declaration = quote! {
            #[doc = #summary]
            #[doc = ""]
            #[doc = #methods]
            #vis struct #shared #declared (#structures::__private::SharedTx<#ty, #medium>) #where_clause;
        };
        let clone = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::clone::Clone for #shared #type_generics #where_clause {
                fn clone(&self) -> Self {
                    #shared(::core::clone::Clone::clone(&self.0))
                }
            }
        };
        let from_handle = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::convert::From<#handle #type_generics>
                for #shared #type_generics #where_clause
            {
                fn from(handle: #handle #type_generics) -> Self {
                    #shared(handle.0.share())
                }
            }
        };
        [declaration, clone, from_handle].into_iter().chain(wrapper).collect()
    }

    /// The implementations of both handles: conversion from `inner`, `Deref` to it, and `Debug`.
    fn wrapper(&self, name: &Ident, inner: TokenStream) -> [TokenStream; 3] {
        let (impl_generics, type_generics, where_clause) = self.declared.split_for_impl();
        let is_generic = !self.generics.params.is_empty();
        let require_size = is_generic.then(|| {
            let require_size = self.require_size();
            quote! { const { #require_size }; }
        });
        let from = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::convert::From<#inner> for #name #type_generics #where_clause {
                fn from(inner: #inner) -> Self {
                    #require_size
                    #name(inner)
                }
            }
        };
        let deref = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::ops::Deref for #name #type_generics #where_clause {
                type Target = #inner;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }
        };
        let text = name.to_string();
        let debug = quote! {
            #[automatically_derived]
            impl #impl_generics ::core::fmt::Debug for #name #type_generics #where_clause {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(#text).finish_non_exhaustive()
                }
            }
        };
        [from, deref, debug]
    }

    fn handle_docs(&self) -> [String; 2] {
        let name = self.ident.unraw();
        [
            format!(
                " A [`{name}`] in a pool, and the right to change it: each method with `&mut self` \
                 is one transaction."
            ),
            format!(
                " It has the methods of those `impl` blocks of [`{name}`] that have \
                 `#[transactional]`. Other methods, or several as one transaction, are called in \
                 the closure of `transact`. [`{name}{SHARED_SUFFIX}`] is made from it with \
                 `into()`."
            ),
        ]
    }

    fn shared_docs(&self) -> [String; 2] {
        let name = self.ident.unraw();
        [
            format!(
                " A [`{name}`] in a pool for any number of threads: one changes it at a time, and \
                 readers wait for none."
            ),
            format!(
                " Clones are the same object. It has the inherent methods of \
                 [`{name}{HANDLE_SUFFIX}`], all with `&self`."
            ),
        ]
    }
}
