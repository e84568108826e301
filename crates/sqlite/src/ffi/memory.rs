//! Memory of SQLite: places for results, buffers, and paths.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Stores a result at a place of SQLite.
///
/// # Safety
///
/// `place` is null, or may be written.
pub(super) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller promises it.
        unsafe { place.write(value) };
    }
}

/// A buffer of SQLite.
///
/// # Safety
///
/// `bytes` points to `len` initialised bytes that nobody else uses while the result lives.
pub(super) unsafe fn bytes_mut<'b>(bytes: *mut c_void, len: c_int) -> &'b mut [u8] {
    if len <= 0 {
        return &mut [];
    }
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts_mut(bytes.cast(), len as usize) }
}

/// The path in a string of SQLite.
///
/// # Safety
///
/// `name` ends with a NUL, and lives as long as the result is used.
pub(super) unsafe fn path<'p>(name: *const c_char) -> &'p Path {
    // SAFETY: the caller promises it.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}
