//! The macros of Remanent.
//!
//! Do not use this crate directly. `remanent_pmem`, `remanent_structures` and the facade `remanent`
//! export each macro beside the trait that it implements. The trait's page has examples.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod crate_path;
mod persistent;
mod stored;
mod transactional;

/// Implements `Persistent` for a struct of plain data, or says why the struct cannot live in a
/// pool.
///
/// The struct must be `#[repr(C)]` or `#[repr(transparent)]`. All its fields must be `Persistent`,
/// without padding between or after them. `#[persistent(crate = "path")]` names the crate that has
/// the trait, if it is neither `remanent_pmem` nor `remanent::pmem`.
#[proc_macro_derive(Persistent, attributes(persistent))]
pub fn derive_persistent(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    persistent::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `Stored`, and `Part`, for a struct, or for an enum whose variants have no fields.
///
/// All fields must be parts: integers, floats, `bool`, `char`, `String`, `Vec<u8>`, arrays,
/// `Option` and tuples of parts, and types with this derive. The type must be `Clone`.
#[proc_macro_derive(Stored)]
pub fn derive_stored(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    stored::expand_stored(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `Key` for a type with `#[derive(Stored)]`.
#[proc_macro_derive(Key)]
pub fn derive_key(input: TokenStream) -> TokenStream {
    stored::expand_key(&parse_macro_input!(input as DeriveInput)).into()
}

/// Implements `OrderedKey` for a type with `#[derive(Stored, Key)]`. The order is that of the
/// derived `Ord`.
#[proc_macro_derive(OrderedKey)]
pub fn derive_ordered_key(input: TokenStream) -> TokenStream {
    stored::expand_ordered_key(&parse_macro_input!(input as DeriveInput)).into()
}

/// Turns a struct of plain data into an object in a pool, and each of its methods with `&mut self`
/// into a transaction: atomic, and durable when it returns.
///
/// # On a struct
///
/// `#[transactional] struct X` adds `Clone`, `Copy`, `Persistent` and `repr(C)` where `X` does not
/// have them, the trait `Transactional`, and two handles with the visibility of `X`. Write the
/// attribute above `#[derive]`, so that it sees what `X` derives.
///
/// - `XHandle<M>` wraps a `Tx<X, M>`. It is the one writer. It has the methods of `X`, and through
///   `Deref` those of `Tx`: `transact` groups calls into one transaction.
/// - `XShared<M>` wraps a `SharedTx<X, M>`, for any number of threads. One thread writes at a time;
///   readers never wait. It has the same methods with `&self`. Make it from an `XHandle` with
///   `into()`.
///
/// An object has at most 1024 bytes. Up to 31 bytes fit into one line, which changes with one flush
/// and one fence; `#[transactional(line)]` refuses to compile a larger struct. A struct may have
/// const parameters, but no type or lifetime parameters.
///
/// # On an `impl` block of the struct
///
/// There may be several blocks, in any module. A block itself stays unchanged. Each handle gets a
/// method of the same name, visibility and arguments for each method in the block. It returns a
/// `Result` of the method's result; the error is the medium's.
///
/// - `&mut self`: one transaction. When the call returns, all its changes are durable. After an
///   earlier crash, all or none of them are there. A panic aborts the transaction.
/// - `&self` and `self`: the method runs on a copy of the last committed version.
/// - Functions without `self` get no counterpart.
///
/// A method that calls another method on `self` calls that of the struct, which joins the
/// transaction.
///
/// # `Err`
///
/// A method whose return type is named `…Result` aborts its transaction by returning `Err`: the
/// object stays as it was. The handle's method returns both results, the medium's outside:
/// `queue.add(1)??`. Two arguments override this, also for types with such a name that are no
/// `Result`:
///
/// - `#[transactional(commit_on_err)]` on a block or a method: `Err` commits the changes.
/// - `#[transactional(abort_on_err)]` on a method: it returns a `Result`, though the type has
///   another name. Inside a block with `commit_on_err`, it exempts the method.
///
/// # On an `impl` block of a trait
///
/// `impl Trait for X` adds `impl Trait for XHandle<M>` with the trait's own signatures. These have
/// no place for an error of the medium, so the methods panic when the medium fails. All functions
/// of the trait must be methods, without `Self` in arguments or results. `XShared` does not
/// implement the trait.
///
/// A provided method that the block does not override is not one transaction: each method that it
/// calls is a transaction of its own, and a crash may come between two of them. Override every
/// method that must be atomic.
///
/// # What is refused
///
/// - Methods that return a reference into the object, which would outlive the transaction.
/// - `async` methods.
/// - Any `self` other than the three above.
/// - Structs whose fields are not plain data, as `Persistent` requires.
#[proc_macro_attribute]
pub fn transactional(arguments: TokenStream, item: TokenStream) -> TokenStream {
    transactional::expand(arguments.into(), item.into()).into()
}
