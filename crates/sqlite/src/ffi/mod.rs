//! The border to SQLite: the only place where pointers are followed.
//!
//! No panic crosses it, and no error is lost on it: each call from SQLite runs within [`host::Registered::answer`].
#![allow(unsafe_code)]

mod extension;
mod file;
pub(crate) mod host;
#[allow(non_snake_case, non_camel_case_types, reason = "the names are SQLite's")]
mod raw;
mod shim;
mod vfs;
