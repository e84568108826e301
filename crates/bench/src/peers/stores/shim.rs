//! Stores behind C shims, all of which offer the functions of store.h.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use anyhow::Result;

use super::super::shim::ErrorText;
use super::interface::{Commit, Store};

/// `ABSENT` of store.h; any other number below zero is a failure.
const ABSENT: isize = -2;

/// `struct shim` of store.h.
#[repr(C)]
pub(super) struct Shim {
    open: unsafe extern "C" fn(*const c_char, i32, *mut c_char) -> *mut c_void,
    put: unsafe extern "C" fn(*mut c_void, u64, *const u8, usize, *mut c_char) -> i32,
    get: unsafe extern "C" fn(*mut c_void, u64, *mut u8, usize, *mut c_char) -> isize,
    sync: unsafe extern "C" fn(*mut c_void, *mut c_char) -> i32,
    close: unsafe extern "C" fn(*mut c_void),
}

/// An open store, closed when dropped.
struct CStore {
    shim: &'static Shim,
    store: NonNull<c_void>,
    error: ErrorText,
}

/// Opens the store of a shim in an existing directory.
///
/// # Errors
///
/// What the store says when it cannot be opened.
pub(super) fn open(
    shim: &'static Shim,
    directory: &Path,
    commit: Commit,
) -> Result<Box<dyn Store>> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let mut error = ErrorText::new();
    // SAFETY: the path is a C string that outlives the call; the text has room as the shim expects.
    let store = unsafe { (shim.open)(path.as_ptr(), commit as i32, error.as_mut_ptr()) };
    let store = NonNull::new(store).ok_or_else(|| error.to_error())?;
    Ok(Box::new(CStore { shim, store, error }))
}

impl Store for CStore {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        // SAFETY: the store lives until `drop`, and is not `Send`: one thread uses it; pointer and
        // length describe one slice.
        let code = unsafe { (self.shim.put)(store, key, value.as_ptr(), value.len(), error) };
        if code == 0 { Ok(()) } else { Err(self.error.to_error()) }
    }

    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        loop {
            value.resize(value.capacity(), 0);
            let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
            let (start, room) = (value.as_mut_ptr(), value.len());
            // SAFETY: as for `put`; the shim writes no more bytes than there is room for.
            let len = unsafe { (self.shim.get)(store, key, start, room, error) };
            match usize::try_from(len) {
                Ok(len) if len > room => value.reserve_exact(len),
                Ok(len) => {
                    value.truncate(len);
                    return Ok(true);
                }
                Err(_) if len == ABSENT => return Ok(false),
                Err(_) => return Err(self.error.to_error()),
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        // SAFETY: as for `put`.
        let code = unsafe { (self.shim.sync)(store, error) };
        if code == 0 { Ok(()) } else { Err(self.error.to_error()) }
    }
}

impl Drop for CStore {
    fn drop(&mut self) {
        // SAFETY: made by `open` of the same shim, and nobody uses it after this.
        unsafe { (self.shim.close)(self.store.as_ptr()) };
    }
}
