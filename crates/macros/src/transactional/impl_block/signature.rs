//! Analysis of a method's signature: how it takes `self`, whether its result borrows from `self`,
//! and how another method forwards a call to it.

use proc_macro2::{Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    CapturedParam, Error, FnArg, GenericParam, Generics, Lifetime, ParenthesizedGenericArguments,
    Pat, PreciseCapture, Receiver, ReceiverKind, Result, ReturnType, Signature, Type, TypeFnPtr,
    TypeImplTrait, TypeParamBound, TypePath, TypeReference,
};

/// How a method takes its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// `&mut self`: a transaction.
    Change,
    /// `&self`: reads the last committed version.
    Read,
    /// `self`: takes a copy of the last committed version.
    Take,
}

/// How a method takes its object; `None` for a function without `self`.
pub(super) fn access(signature: &Signature) -> Result<Option<Access>> {
    let Some(receiver) = signature.receiver() else {
        return Ok(None);
    };
    let access = match &receiver.kind {
        ReceiverKind::Value => Some(Access::Take),
        ReceiverKind::Reference(_, _, None) => Some(Access::Read),
        ReceiverKind::Reference(_, _, Some(_)) => Some(Access::Change),
        ReceiverKind::Typed(_, ty) => match &**ty {
            Type::Reference(TypeReference { mutability, elem, .. }) if is_self(elem) => {
                Some(if mutability.is_some() { Access::Change } else { Access::Read })
            }
            ty if is_self(ty) => Some(Access::Take),
            _ => None,
        },
        _ => None,
    };
    let refused = || {
        Error::new_spanned(
            receiver,
            "the object lies in the pool, so there is no such `self` to hand out: take `&mut self` \
             to change it, `&self` to read it, or `self` for a copy",
        )
    };
    access.map(Some).ok_or_else(refused)
}

fn is_self(ty: &Type) -> bool {
    matches!(ty, Type::Path(ty) if ty.path.is_ident("Self"))
}

/// The lifetime of a borrowed `self`, if it has a name.
pub(super) fn self_lifetime(receiver: &Receiver) -> Option<&Lifetime> {
    match &receiver.kind {
        ReceiverKind::Reference(_, lifetime, _) => lifetime.as_ref(),
        ReceiverKind::Typed(_, ty) => match &**ty {
            Type::Reference(ty) => ty.lifetime.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses methods that cannot be transactions: `async` ones, those that never return, and those
/// whose result borrows from `self`, since a transaction ends before its result is used.
pub(super) fn require_transaction(signature: &Signature, access: Access) -> Result<()> {
    if let Some(asyncness) = &signature.asyncness {
        return Err(Error::new(
            asyncness.span,
            "a transaction must not wait, since others would wait for it: await first, and pass \
             the result to a method that is not `async`",
        ));
    }
    let (Some(receiver), ReturnType::Type(_, output)) = (signature.receiver(), &signature.output)
    else {
        return Ok(());
    };
    if let Type::Never(never) = &**output {
        return Err(Error::new_spanned(
            never,
            "a method that never returns is no transaction: move it to an `impl` block without \
             `#[transactional]`",
        ));
    }
    let mut borrows = Borrows { access, lifetime: self_lifetime(receiver), found: None };
    borrows.visit_type(output);
    match borrows.found {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Finds the first part of a return type that borrows from `self`.
struct Borrows<'a> {
    access: Access,
    /// The lifetime of `self`.
    lifetime: Option<&'a Lifetime>,
    found: Option<Error>,
}

impl Borrows<'_> {
    fn found(&mut self, tokens: &dyn ToTokens) {
        let reason = match self.access {
            Access::Change | Access::Read => {
                "a reference into the object would outlive the transaction: return a copy"
            }
            Access::Take => {
                "on the handle, an elided lifetime would be that of `self`, which is a copy here: \
                 name the lifetime of the argument"
            }
        };
        self.found.get_or_insert_with(|| Error::new_spanned(tokens, reason));
    }

    fn is_of_self(&self, lifetime: &Lifetime) -> bool {
        lifetime.ident == "_" || Some(lifetime) == self.lifetime
    }
}

impl<'ast> Visit<'ast> for Borrows<'_> {
    fn visit_type_reference(&mut self, ty: &'ast TypeReference) {
        if ty.lifetime.is_none() {
            self.found(ty);
        }
        visit::visit_type_reference(self, ty);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if self.is_of_self(lifetime) {
            self.found(lifetime);
        }
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        let says_what_it_borrows =
            ty.bounds.iter().any(|bound| matches!(bound, TypeParamBound::PreciseCapture(_)));
        if !says_what_it_borrows && self.access != Access::Take {
            let reason = "`impl Trait` borrows from `self`, and a reference into the object would \
                          outlive the transaction: name the type that is returned, or end with \
                          `+ use<>`";
            self.found.get_or_insert_with(|| Error::new_spanned(ty, reason));
        }
        visit::visit_type_impl_trait(self, ty);
    }

    // Elided lifetimes of a function type are its own.
    fn visit_type_fn_ptr(&mut self, _: &'ast TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast ParenthesizedGenericArguments) {}
}

/// Whether a method returns a `Result`, judged by the name of the type.
pub(super) fn returns_result(output: &ReturnType) -> bool {
    let mut ty = match output {
        ReturnType::Default => return false,
        ReturnType::Type(_, ty) => &**ty,
    };
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            Type::Path(ty) => {
                let name = ty.path.segments.last();
                return name.is_some_and(|segment| segment.ident.to_string().ends_with("Result"));
            }
            _ => return false,
        };
    }
}

/// The return type of a method, for another method whose block has the type parameter `medium`.
pub(super) fn output_type(output: &ReturnType, medium: &Ident) -> TokenStream {
    match output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => {
            let mut ty = ty.clone();
            CaptureMedium(medium).visit_type_mut(&mut ty);
            ty.into_token_stream()
        }
    }
}

/// Adds the medium's parameter to `use<…>`, which must name all type parameters in scope.
struct CaptureMedium<'a>(&'a Ident);

impl VisitMut for CaptureMedium<'_> {
    fn visit_precise_capture_mut(&mut self, capture: &mut PreciseCapture) {
        capture.params.push(CapturedParam::Ident(self.0.clone()));
        visit_mut::visit_precise_capture_mut(self, capture);
    }
}

/// What a method needs to forward its arguments to another one with the same signature.
pub(super) struct Forwarded {
    /// Its parameters without `self`, each with a plain name.
    pub(super) parameters: Vec<TokenStream>,
    /// The names of these parameters.
    pub(super) arguments: Vec<Ident>,
    /// Its type and const parameters as arguments, if it has any.
    pub(super) turbofish: TokenStream,
}

impl Forwarded {
    pub(super) fn new(signature: &Signature) -> Self {
        let mut parameters = Vec::new();
        let mut arguments = Vec::new();
        for (index, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(input) = input else { continue };
            let name = match &*input.pat {
                Pat::Ident(pat) if pat.subpat.is_none() => pat.ident.clone(),
                _ => format_ident!("argument_{index}"),
            };
            let ty = &input.ty;
            parameters.push(quote!(#name: #ty));
            arguments.push(name);
        }
        Forwarded { parameters, arguments, turbofish: turbofish(&signature.generics) }
    }
}

/// Lifetimes are inferred: most cannot be named in a call.
fn turbofish(generics: &Generics) -> TokenStream {
    let arguments: Vec<&Ident> = generics
        .params
        .iter()
        .filter_map(|parameter| match parameter {
            GenericParam::Lifetime(_) => None,
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
        })
        .collect();
    if arguments.is_empty() { TokenStream::new() } else { quote!(::<#(#arguments),*>) }
}

/// Replaces `Self` by the type `ty`, for a block in which `Self` is another type.
pub(super) fn with_self_named(tokens: TokenStream, ty: &TypePath) -> TokenStream {
    let mut named = TokenStream::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        match token {
            TokenTree::Ident(ident) if ident == "Self" => {
                // In `Self::Item`, a type needs angle brackets.
                let is_path = leads_on(rest.peek());
                named.extend(if is_path { quote!(<#ty>) } else { quote!(#ty) });
            }
            TokenTree::Group(group) => {
                let inner = with_self_named(group.stream(), ty);
                let mut inner = Group::new(group.delimiter(), inner);
                inner.set_span(group.span());
                named.extend([TokenTree::Group(inner)]);
            }
            token => named.extend([token]),
        }
    }
    named
}

/// Whether `next` begins the `::` of a path.
fn leads_on(next: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Punct(punct)) => {
            punct.as_char() == ':' && punct.spacing() == Spacing::Joint
        }
        _ => false,
    }
}

/// The location of a `Self` that is the type itself, not the beginning of a path.
pub(super) fn bare_self(tokens: TokenStream) -> Option<Span> {
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let found = match token {
            TokenTree::Ident(ident) if ident == "Self" => {
                let is_path = leads_on(rest.peek());
                (!is_path).then(|| ident.span())
            }
            TokenTree::Group(group) => bare_self(group.stream()),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}
