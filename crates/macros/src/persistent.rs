//! `#[derive(Persistent)]`: refuses what syntax alone shows to be wrong, and leaves the rest (field
//! types, padding) to constants that the compiler evaluates.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Ident, LitStr, Member, Path,
    Result, Type, TypeParam, TypeParamBound, WherePredicate,
};

use crate::crate_path::crate_path;

/// Expands to the implementation for one type.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = struct_fields(input)?;
    require_fixed_layout(input)?;
    require_plain_generics(input)?;
    require_no_addresses(&input.ident, fields)?;
    let pmem = trait_crate(input)?;

    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let type_name = type_name(ident, &input.generics, &pmem);
    let layout = layout(ident, fields, &pmem);
    // The compiler evaluates the constant of a generic type where the type is used. Any other
    // constant is evaluated here.
    let evaluate = input.generics.params.is_empty().then(|| {
        quote! { const _: u64 = <#ident as #pmem::Persistent>::LAYOUT; }
    });
    Ok(quote! {
        // SAFETY: a `repr(C)` or `repr(transparent)` struct whose fields are all `Persistent`; that
        // they leave no padding is asserted in LAYOUT.
        #[automatically_derived]
        #[diagnostic::do_not_recommend]
        unsafe impl #impl_generics #pmem::Persistent for #ident #type_generics #where_clause {
            const TYPE_NAME: &'static ::core::primitive::str = #type_name;
            const LAYOUT: ::core::primitive::u64 = #layout;
        }
        #evaluate
    })
}

fn struct_fields(input: &DeriveInput) -> Result<&Fields> {
    let reason = match &input.data {
        Data::Struct(data) => return Ok(&data.fields),
        Data::Enum(_) => {
            "an enum cannot be `Persistent`: after a crash its bytes may be a value that no \
             variant has; store an integer, and turn it into the enum with a `match` that answers \
             unknown values with an error"
        }
        Data::Union(_) => {
            "a union cannot be `Persistent`: nothing says which of its fields is meant, and they \
             may leave bytes undefined; store the bytes as `[u8; N]` beside an integer that tells"
        }
    };
    Err(Error::new(input.ident.span(), reason))
}

fn require_fixed_layout(input: &DeriveInput) -> Result<()> {
    let mut is_fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // The argument of `align(N)` and `packed(N)`.
            if meta.input.peek(syn::token::Paren) {
                let argument;
                syn::parenthesized!(argument in meta.input);
                argument.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if is_fixed {
        return Ok(());
    }
    Err(Error::new(
        input.ident.span(),
        format!(
            "`{}` needs a fixed layout: the compiler may order its fields anew in every build, and \
             a pool outlives the build; add `#[repr(C)]`, or `#[repr(transparent)]` around one \
             field",
            input.ident
        ),
    ))
}

fn require_plain_generics(input: &DeriveInput) -> Result<()> {
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) => {
                return Err(Error::new(
                    lifetime.span(),
                    format!(
                        "`{}` borrows for {}, and no borrow outlives the process as a pool does: \
                         store an `Off<T>` to another block, or the data itself",
                        input.ident, lifetime.lifetime
                    ),
                ));
            }
            GenericParam::Type(parameter) if !is_persistent(parameter, &input.generics) => {
                return Err(Error::new(
                    parameter.span(),
                    format!(
                        "`{0}` of `{1}` may be a type that cannot live in a pool: bound it, as in \
                         `{0}: Persistent`",
                        parameter.ident, input.ident
                    ),
                ));
            }
            GenericParam::Type(_) | GenericParam::Const(_) => {}
        }
    }
    Ok(())
}

/// Whether a type parameter has the bound `Persistent`, at its declaration or in a `where` clause.
fn is_persistent(parameter: &TypeParam, generics: &Generics) -> bool {
    let names_trait = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|segment| segment.ident == "Persistent")
        }
        _ => false,
    };
    let names_parameter = |ty: &Type| match ty {
        Type::Path(ty) => ty.path.is_ident(&parameter.ident),
        _ => false,
    };
    let mut predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    parameter.bounds.iter().any(names_trait)
        || predicates.any(|predicate| match predicate {
            WherePredicate::Type(predicate) => {
                names_parameter(&predicate.bounded_ty) && predicate.bounds.iter().any(names_trait)
            }
            _ => false,
        })
}

/// Refuses fields that are visibly addresses. Types that hide an address are refused because they
/// are not `Persistent`.
pub(crate) fn require_no_addresses(ident: &Ident, fields: &Fields) -> Result<()> {
    for (member, Field { ty, .. }) in fields.members().zip(fields) {
        let kind = match ty {
            Type::Reference(_) => "reference",
            Type::Ptr(_) => "raw pointer",
            Type::FnPtr(_) => "function pointer",
            _ => continue,
        };
        return Err(Error::new(
            ty.span(),
            format!(
                "field `{}` of `{ident}` is a {kind}, which means nothing once the process has \
                 ended: store an `Off<T>` to a block of the pool, or the data itself",
                field_name(&member)
            ),
        ));
    }
    Ok(())
}

/// The path of the crate that has the trait, as the expansion must write it.
fn trait_crate(input: &DeriveInput) -> Result<Path> {
    let mut named = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("persistent"))
    {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown option; the only one is `crate = \"path\"`"));
            }
            named = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            Ok(())
        })?;
    }
    Ok(named.unwrap_or_else(|| crate_path("remanent-pmem", "pmem")))
}

/// Expression for the type's name: a literal, or a concatenation with the generic arguments.
fn type_name(ident: &Ident, generics: &Generics, pmem: &Path) -> TokenStream {
    let name = ident.unraw().to_string();
    if generics.params.is_empty() {
        return name.into_token_stream();
    }
    let arguments = generics.params.iter().enumerate().map(|(index, parameter)| {
        let separator = if index == 0 { "<" } else { ", " };
        let argument = match parameter {
            GenericParam::Const(parameter) => {
                let ident = &parameter.ident;
                quote! { .push_number(#ident as ::core::primitive::i128) }
            }
            GenericParam::Type(parameter) => {
                let ident = &parameter.ident;
                quote! { .push(<#ident as #pmem::Persistent>::TYPE_NAME) }
            }
            GenericParam::Lifetime(_) => unreachable!("refused by require_plain_generics"),
        };
        quote! { .push(#separator) #argument }
    });
    quote! {
        const { &#pmem::persistent::TypeName::new(#name) #(#arguments)* .push(">") }.as_str()
    }
}

/// Expression for the layout hash. Each call has the span of its field, so that compiler errors
/// point at the field that is no plain data or has padding before it.
fn layout(ident: &Ident, fields: &Fields, pmem: &Path) -> TokenStream {
    // Path to the builder, located at `span`. The compiler locates an expression where its path
    // begins.
    let hash_at = |span: Span| -> TokenStream {
        let path = quote! { #pmem::persistent::LayoutHash };
        path.into_iter()
            .map(|mut token| {
                token.set_span(span);
                token
            })
            .collect()
    };
    // Location of the span, with names resolved as at the call site.
    let at = |span: Span| span.resolved_at(Span::call_site());
    let add_fields = fields.members().zip(fields).map(|(member, Field { ty, .. })| {
        let name = field_name(&member);
        let span = at(ty.span());
        let hash = hash_at(span);
        let add = quote_spanned! { span =>
            #hash::field::<#ty>(layout, #name, ::core::mem::offset_of!(Self, #member))
        };
        quote! { let layout = #add; }
    });
    let hash = hash_at(Span::call_site());
    let finish = {
        let span = at(ident.span());
        let hash = hash_at(span);
        quote_spanned! { span => #hash::finish::<Self>(layout) }
    };
    quote! {{
        let layout = #hash::new(<Self as #pmem::Persistent>::TYPE_NAME);
        #(#add_fields)*
        #finish
    }}
}

fn field_name(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}
