//! The derive macro of Remanent.
//!
//! This crate is not used directly: `remanent_pmem` (and the facade, `remanent`) export the macro
//! beside the trait that it implements, and the trait's page says what it accepts.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod persistent;

/// Implements `Persistent` for a struct of plain data, or says why it cannot live in a pool.
///
/// The struct is `#[repr(C)]` or `#[repr(transparent)]`, all its fields are `Persistent`, and there
/// is no padding between or after them. `#[persistent(crate = "path")]` names the crate to find the
/// trait in, when it is not `::remanent_pmem`.
#[proc_macro_derive(Persistent, attributes(persistent))]
pub fn derive_persistent(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    persistent::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
