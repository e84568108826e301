//! The border to SQLite: the only place that follows its pointers.
//!
//! No panic crosses the border, and no error is lost: each call from SQLite runs in
//! [`registered::Registered::answer`].
#![allow(unsafe_code)]

mod extension;
mod file;
pub(crate) mod host;
mod memory;
#[allow(non_snake_case, non_camel_case_types, reason = "the names are SQLite's")]
mod raw;
pub(crate) mod register;
mod registered;
mod shim;
mod vfs;
