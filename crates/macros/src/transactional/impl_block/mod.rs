//! `#[transactional]` on an `impl` block: keeps the block, and adds methods of the handles that
//! call its methods.

mod block;
mod docs;
mod inherent;
mod method;
mod signature;
mod trait_impl;
mod trait_rules;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ImplItem, ImplItemFn, ItemImpl, Result};

use super::arguments::{self, OnErr};
use super::with_error;
use block::Block;

pub(super) fn expand(arguments: TokenStream, mut item: ItemImpl) -> TokenStream {
    // Take the methods' own `#[transactional(…)]` away first: only this expansion reads them.
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
        // If a method was refused, the trait is not implemented: the compiler would only report
        // that the method is missing.
        Some(_) if !errors.is_empty() => TokenStream::new(),
        Some((path, _)) => trait_impl::expand(&block, path, &methods),
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
