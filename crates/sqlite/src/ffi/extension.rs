//! The library as an extension that SQLite loads.

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::catch_unwind;

use super::memory::put;
use super::raw::{API_MALLOC, Malloc, sqlite3_api_routines};
use super::register::register_with;
use crate::{Error, codes};

/// Where SQLite begins, after the name of the file: `libremanent_sqlite.so`.
///
/// # Safety
///
/// Only SQLite calls this.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sqlite3_remanentsqlite_init(
    _connection: *mut c_void,
    error: *mut *mut c_char,
    api: *const sqlite3_api_routines,
) -> c_int {
    let register = || {
        // SAFETY: SQLite hands us its routines.
        unsafe { register_with(api) }
    };
    let result = catch_unwind(register)
        .unwrap_or_else(|_| Err(Error::Registration { reason: "registering panicked".to_owned() }));
    match result {
        // The connection that loaded us may be closed, and its files' methods are still needed.
        Ok(()) => codes::OK_LOAD_PERMANENTLY,
        Err(reason) => {
            // SAFETY: SQLite hands us its routines, and a place for a text.
            unsafe { say(error, api, &reason.to_string()) };
            codes::ERROR
        }
    }
}

/// Where SQLite begins with each connection that it opens, if this is what `sqlite3_auto_extension`
/// was called with: for programs that may not load an extension.
///
/// # Safety
///
/// Only SQLite calls this.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn remanent_sqlite_auto_init(
    connection: *mut c_void,
    error: *mut *mut c_char,
    api: *const sqlite3_api_routines,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    match unsafe { sqlite3_remanentsqlite_init(connection, error, api) } {
        // Of an extension that it does not load SQLite expects nothing else.
        codes::OK_LOAD_PERMANENTLY => codes::OK,
        code => code,
    }
}

/// Where SQLite begins if the file has another name.
///
/// # Safety
///
/// Only SQLite calls this.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut c_void,
    error: *mut *mut c_char,
    api: *const sqlite3_api_routines,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe { sqlite3_remanentsqlite_init(connection, error, api) }
}

/// Says what is wrong, in memory that SQLite frees.
///
/// # Safety
///
/// `api` is null or SQLite's, and `error` may be written.
unsafe fn say(error: *mut *mut c_char, api: *const sqlite3_api_routines, text: &str) {
    let Ok(text) = CString::new(text) else { return };
    // SAFETY: SQLite's routines are static; null is none.
    let Some(api) = (unsafe { api.as_ref() }) else { return };
    let malloc = api.routines[API_MALLOC];
    // SAFETY: the place is that of this function.
    let malloc = unsafe { std::mem::transmute::<*const c_void, Malloc>(malloc) };
    let bytes = text.as_bytes_with_nul();
    // SAFETY: it may be called with any length.
    let copy = unsafe { malloc(bytes.len() as c_int) }.cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: as many bytes were asked for just now.
        unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: SQLite hands us a place for it.
        unsafe { put(error, copy) };
    }
}
