//! The macros of Remanent.
//!
//! This crate is not used directly: `remanent_pmem`, `remanent_structures` and the facade, `remanent`,
//! export each macro beside the trait that it implements, and the trait's page shows it in use.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod crate_path;
mod persistent;
mod transactional;

/// Implements `Persistent` for a struct of plain data, or says why it cannot live in a pool.
///
/// The struct is `#[repr(C)]` or `#[repr(transparent)]`, all its fields are `Persistent`, and there
/// is no padding between or after them. `#[persistent(crate = "path")]` names the crate to find the
/// trait in, where it is neither `remanent_pmem` nor `remanent::pmem` of the crate's dependencies.
#[proc_macro_derive(Persistent, attributes(persistent))]
pub fn derive_persistent(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    persistent::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of plain data an object in a pool, and each of its methods with `&mut self` a
/// transaction: atomic, and durable when it returns.
///
/// # On a struct
///
/// `#[transactional] struct X` is given `Clone`, `Copy`, `Persistent` and `repr(C)`, as far as it does
/// not derive or have them (stand above its `#[derive]`, so that this can be seen), the trait
/// `Transactional`, and two handles of the same visibility:
///
/// - `XHandle<M>`, around a `Tx<X, M>`, is the one writer. It has `X`'s methods, and through `Deref` those
///   of `Tx`: `transact` groups calls into one transaction.
/// - `XShared<M>`, around a `SharedTx<X, M>`, is for any number of threads: one of them writes at a time,
///   and readers wait for none. It has the same methods with `&self`, and is made from an `XHandle` with
///   `into()`.
///
/// At most 1024 bytes are an object. At most 31 are one line, which changes with one flush and one fence;
/// `#[transactional(line)]` refuses to grow beyond that. A struct may have const parameters, but none of
/// types or lifetimes.
///
/// # On an `impl` block of the struct
///
/// There may be several blocks, in any module. Each block stays as it is, and for each method the
/// handles have one of the same name, visibility and arguments that returns a `Result` of what the method
/// returns; its error is the medium's.
///
/// - `&mut self`: one transaction. When the call returns, all that the method changed is durable; after a
///   crash before that, all of it or nothing is there. A panic rolls it back.
/// - `&self` and `self`: the method is called on a copy of the last committed version.
/// - Functions without `self` are the struct's alone.
///
/// A method that calls another on `self` calls the struct's own, which thus joins the transaction.
///
/// # `Err`
///
/// A method whose return type is called `…Result` aborts its transaction by returning `Err`: the object
/// is as it was before. The handle's method then returns both results, the medium's outside:
/// `queue.add(1)??`. Arguments say otherwise, also for a type that is called so and is no `Result`:
///
/// - `#[transactional(commit_on_err)]` on the block or the method: `Err` commits what was changed.
/// - `#[transactional(abort_on_err)]` on a method: it returns a `Result` though the type is called something
///   else. It also takes a single method out of a block with `commit_on_err`.
///
/// # On an `impl` block of a trait
///
/// `impl Trait for X` is followed by `impl Trait for XHandle<M>` with the trait's own signatures. They have no
/// place for an error of the medium, so a medium that fails makes the method panic. The trait's functions
/// have to be methods, without `Self` among arguments or results. `XShared` does not implement it.
///
/// A method that the trait provides and the block does not write out stays the trait's: called through the
/// handle it is as many transactions as it calls methods, and a crash may come between two of them. Write
/// out each method that is to be one transaction.
///
/// # What is refused
///
/// Methods that return a reference into the object, which would outlive the transaction; `async` methods;
/// any other `self` than the three above; structs whose fields are not plain data, as `Persistent` has it.
#[proc_macro_attribute]
pub fn transactional(arguments: TokenStream, item: TokenStream) -> TokenStream {
    transactional::expand(arguments.into(), item.into()).into()
}
