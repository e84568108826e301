//! `#[transactional]` on an `impl` block: the block, and the handles' methods that call its methods.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    AngleBracketedGenericArguments, Attribute, Error, GenericArgument, Generics, Ident, ImplItem,
    ImplItemFn, ItemImpl, Path, PathArguments, Result, ReturnType, Safety, Type, TypePath,
    parse_quote,
};

use super::arguments::{self, OnErr};
use super::signature::{self, Access, Forwarded};
use super::{at, inherent, medium_ident, structures_crate, traits, with_error};

pub(super) fn expand(arguments: TokenStream, mut item: ItemImpl) -> TokenStream {
    // First of all, the methods' own `#[transactional(…)]` are taken away: they are read only here.
    let said: Vec<Result<Option<OnErr>>> =
        methods_mut(&mut item).map(|method| arguments::take_on_err(&mut method.attrs)).collect();
    let block = match arguments::on_err(arguments).and_then(|on_err| Block::new(&item, on_err)) {
        Ok(block) => block,
        Err(error) => return with_error(error, item),
    };
    let mut errors = Vec::new();
    let mut methods = Vec::new();
    for (method, said) in methods_of(&item).zip(said) {
        match said.and_then(|said| block.method(method, said)) {
            Ok(method) => methods.extend(method),
            Err(error) => errors.push(error.into_compile_error()),
        }
    }
    let assertion = block.assertion();
    let made = match &item.trait_ {
        None => inherent::expand(&block, &methods),
        // Without the methods that were refused, the compiler would only say that they are missing.
        Some(_) if !errors.is_empty() => TokenStream::new(),
        Some((path, _)) => traits::expand(&block, path, &methods),
    };
    quote! { #assertion #item #(#errors)* #made }
}

fn methods_mut(item: &mut ItemImpl) -> impl Iterator<Item = &mut ImplItemFn> {
    item.items.iter_mut().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    })
}

fn methods_of(item: &ItemImpl) -> impl Iterator<Item = &ImplItemFn> {
    item.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    })
}

/// The attributes that hold for what is made from an item, too.
///
/// Of the lints' only `allow` does: an `expect` would be disappointed.
pub(super) fn kept_attributes(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    const KEPT: [&str; 5] = ["allow", "cfg", "cfg_attr", "deprecated", "doc"];
    attributes.iter().filter(|attribute| KEPT.iter().any(|name| attribute.path().is_ident(name)))
}

/// One `impl` block, and all that its expansion needs to say.
pub(super) struct Block<'a> {
    pub(super) structures: Path,
    pub(super) item: &'a ItemImpl,
    /// The struct, as the block calls it.
    pub(super) ty: &'a TypePath,
    /// The parameters of the block, and the medium's.
    pub(super) generics: Generics,
    /// The name of the medium's type parameter.
    pub(super) medium: Ident,
    /// What the block's own arguments say.
    on_err: Option<OnErr>,
}

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

impl<'a> Block<'a> {
    fn new(item: &'a ItemImpl, on_err: Option<OnErr>) -> Result<Self> {
        let ty = match &*item.self_ty {
            Type::Path(ty) if ty.qself.is_none() => ty,
            other => {
                return Err(Error::new_spanned(
                    other,
                    "`#[transactional]` goes above an `impl` block of a transactional struct itself, \
                     which is called by its name",
                ));
            }
        };
        if let Some((path, _)) = &item.trait_ {
            traits::require_for_handle(item, path)?;
        }
        let medium = medium_ident(&item.to_token_stream());
        let structures = structures_crate();
        let mut generics = item.generics.clone();
        generics.params.push(parse_quote!(#medium: #structures::__private::Medium));
        Ok(Block { structures, item, ty, generics, medium, on_err })
    }

    /// What is to be made of a method: nothing of a function of the struct itself.
    fn method<'m>(&self, item: &'m ImplItemFn, said: Option<OnErr>) -> Result<Option<Method<'m>>> {
        let Some(access) = signature::access(&item.sig)? else {
            return if self.item.trait_.is_some() {
                Err(traits::no_object(item))
            } else {
                Ok(None)
            };
        };
        signature::require_transaction(&item.sig, access)?;
        if self.item.trait_.is_some() {
            traits::require_no_bare_self(item)?;
        }
        if said.is_some() && access != Access::Change {
            return Err(Error::new(
                item.sig.ident.span(),
                format!(
                    "`{}` changes nothing that an `Err` could commit or abort: take `&mut self`, or \
                     leave the argument out",
                    item.sig.ident
                ),
            ));
        }
        // A method is taken at its word. For the others the name of what they return tells whether
        // there can be an `Err`.
        let returns_result = signature::returns_result(&item.sig.output);
        let on_err = said.or(returns_result.then(|| self.on_err.unwrap_or(OnErr::Abort)));
        Ok(Some(Method { item, access, on_err, forwarded: Forwarded::new(&item.sig) }))
    }

    /// The compiler says what is missing when the struct is not transactional.
    fn assertion(&self) -> TokenStream {
        let (structures, item, ty) = (&self.structures, self.item, self.ty);
        let (impl_generics, _, where_clause) = item.generics.split_for_impl();
        let cfg: Vec<&Attribute> = super::cfg_attributes(&item.attrs).collect();
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

    /// The type of the handle whose name ends in `suffix`, for the block's arguments and the medium.
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
