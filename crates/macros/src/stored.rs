//! `#[derive(Stored)]`, `#[derive(Key)]` and `#[derive(OrderedKey)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Generics, Index, Member, Path, Result};

use crate::crate_path::crate_path;

/// Where the traits are, and what the expansion calls.
fn structures() -> Path {
    crate_path("remanent-structures", "structures")
}

/// Expands `#[derive(Stored)]`: the type as a part of others, and as a value.
pub(crate) fn expand_stored(input: &DeriveInput) -> Result<TokenStream> {
    let root = structures();
    let body = match &input.data {
        Data::Struct(data) => part_of_struct(input, &data.fields, &root),
        Data::Enum(data) => part_of_enum(input, data, &root)?,
        Data::Union(_) => {
            let reason = "a union cannot be `Stored`: nothing says which of its fields is meant";
            return Err(Error::new(input.ident.span(), reason));
        }
    };
    let ident = &input.ident;
    let generics = bounded(&input.generics, &root);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = ident.to_string();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #root::Part for #ident #type_generics #where_clause {
            #body
        }

        #[automatically_derived]
        impl #impl_generics #root::Stored for #ident #type_generics #where_clause {
            fn type_name() -> ::std::string::String {
                #root::__private::name_with_shape(#name, &<Self as #root::Part>::shape())
            }

            const LEN: ::core::option::Option<u32> = <Self as #root::Part>::LEN;

            fn with_bytes<__R>(&self, use_bytes: impl FnOnce(&[u8]) -> __R) -> __R {
                #root::__private::with_form(self, use_bytes)
            }

            fn with_stored<__R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> __R) -> __R {
                use_value(&#root::__private::read_form::<Self>(bytes))
            }
        }
    })
}

/// Expands `#[derive(Key)]`.
pub(crate) fn expand_key(input: &DeriveInput) -> TokenStream {
    let root = structures();
    let ident = &input.ident;
    let generics = bounded(&input.generics, &root);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #root::Key for #ident #type_generics #where_clause {}
    }
}

/// Expands `#[derive(OrderedKey)]`: the stored form has the order of the type.
pub(crate) fn expand_ordered_key(input: &DeriveInput) -> TokenStream {
    let root = structures();
    let ident = &input.ident;
    let generics = bounded(&input.generics, &root);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #root::OrderedKey for #ident #type_generics #where_clause {
            fn with_ordered<__R>(&self, use_bytes: impl FnOnce(&[u8]) -> __R) -> __R {
                #root::__private::with_form(self, use_bytes)
            }

            fn from_ordered<__R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> __R) -> __R {
                use_key(&#root::__private::read_form::<Self>(bytes))
            }
        }
    }
}

/// The type's generics, with each type parameter a part.
fn bounded(generics: &Generics, root: &Path) -> Generics {
    let mut bounded = generics.clone();
    for parameter in bounded.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(#root::Part));
    }
    bounded
}

fn part_of_struct(input: &DeriveInput, fields: &Fields, root: &Path) -> TokenStream {
    let name = input.ident.to_string();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let members: Vec<Member> = fields.iter().enumerate().map(member).collect();
    let names: Vec<String> =
        members.iter().map(|member| member.to_token_stream().to_string()).collect();
    quote! {
        const LEN: ::core::option::Option<u32> =
            #root::__private::sum(&[#(<#types as #root::Part>::LEN),*]);

        fn shape() -> ::std::string::String {
            let parts: &[(&str, ::std::string::String)] =
                &[#((#names, <#types as #root::Part>::shape())),*];
            #root::__private::shape_of_struct(#name, parts)
        }

        fn write(&self, writer: &mut #root::PartWriter) {
            let _ = &writer;
            #(#root::Part::write(&self.#members, writer);)*
        }

        fn read(bytes: &mut &[u8]) -> ::core::option::Option<Self> {
            let _ = &bytes;
            ::core::option::Option::Some(Self {
                #(#members: <#types as #root::Part>::read(bytes)?,)*
            })
        }

        fn fallback() -> Self {
            Self { #(#members: <#types as #root::Part>::fallback(),)* }
        }
    }
}

fn member((index, field): (usize, &syn::Field)) -> Member {
    match &field.ident {
        Some(ident) => Member::Named(ident.clone()),
        None => Member::Unnamed(Index::from(index)),
    }
}

fn part_of_enum(input: &DeriveInput, data: &DataEnum, root: &Path) -> Result<TokenStream> {
    if let Some(variant) = data.variants.iter().find(|variant| !variant.fields.is_empty()) {
        let reason = format!(
            "`{}` has fields, and only enums whose variants have none can be `Stored`: store a \
             struct with an enum without fields, and an `Option` for what only some variants have",
            variant.ident
        );
        return Err(Error::new(variant.ident.span(), reason));
    }
    let Some(first) = data.variants.first() else {
        let reason = "an enum without variants has no value that could be stored";
        return Err(Error::new(input.ident.span(), reason));
    };
    let is_numbered = data.variants.iter().any(|variant| variant.discriminant.is_some());
    if !is_numbered && data.variants.len() > 256 {
        let reason =
            "more than 256 variants: write a discriminant out, so that they are stored as `i64`";
        return Err(Error::new(input.ident.span(), reason));
    }
    let name = input.ident.to_string();
    let idents: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names: Vec<String> = idents.iter().map(ToString::to_string).collect();
    let first = &first.ident;
    // A discriminant may be any constant, so the compiler works the numbers out.
    let (stored, numbers) = if is_numbered {
        (quote!(i64), idents.iter().map(|ident| quote!(Self::#ident as i64)).collect())
    } else {
        let numbers: Vec<_> = (0..idents.len()).map(|number| quote!(#number as u8)).collect();
        (quote!(u8), numbers)
    };
    let check = is_numbered.then(|| {
        let reason = format!(
            "a discriminant of `{name}` is more than `i64::MAX`, and discriminants are stored as \
             `i64`"
        );
        quote!(#(assert!(Self::#idents as i128 <= i64::MAX as i128, #reason);)*)
    });
    Ok(quote! {
        const LEN: ::core::option::Option<u32> = {
            #check
            <#stored as #root::Part>::LEN
        };

        fn shape() -> ::std::string::String {
            let variants: &[(&str, i128)] = &[#((#names, (#numbers) as i128)),*];
            #root::__private::shape_of_enum(#name, variants)
        }

        fn write(&self, writer: &mut #root::PartWriter) {
            let number: #stored = match self {
                #(Self::#idents => #numbers,)*
            };
            #root::Part::write(&number, writer);
        }

        fn read(bytes: &mut &[u8]) -> ::core::option::Option<Self> {
            let number = <#stored as #root::Part>::read(bytes)?;
            #(if number == #numbers {
                return ::core::option::Option::Some(Self::#idents);
            })*
            ::core::option::Option::None
        }

        fn fallback() -> Self {
            Self::#first
        }
    })
}
