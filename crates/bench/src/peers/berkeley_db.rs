//! Berkeley DB as memcachedb uses it: a transaction for each operation, a B-tree, a cache of 64 MB.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use anyhow::{Result, bail};

use super::shim::ErrorText;

/// Bytes of a key: `KEY_LEN` of cpp/berkeley_db.c.
pub(crate) const KEY_LEN: usize = 16;
/// `ABSENT` of shim.h.
const ABSENT: i32 = -2;

/// A key.
pub(crate) type Key = [u8; KEY_LEN];

// The functions of cpp/berkeley_db.c.
unsafe extern "C" {
    fn berkeley_open(path: *const c_char, is_synced: i32, error: *mut c_char) -> *mut c_void;
    fn berkeley_put(
        store: *mut c_void,
        key: *const u8,
        value: *const u8,
        len: usize,
        error: *mut c_char,
    ) -> i32;
    fn berkeley_delete(store: *mut c_void, key: *const u8, error: *mut c_char) -> i32;
    fn berkeley_get(
        store: *mut c_void,
        key: *const u8,
        value: *mut u8,
        room: usize,
        error: *mut c_char,
    ) -> isize;
    fn berkeley_checkpoint(store: *mut c_void, error: *mut c_char) -> i32;
    fn berkeley_close(store: *mut c_void);
}

/// An open environment with one database, closed when dropped.
pub(crate) struct BerkeleyDb {
    store: NonNull<c_void>,
    error: ErrorText,
}

impl BerkeleyDb {
    /// Opens the environment of an existing directory, or creates one. With `is_synced` each commit
    /// waits until its log is on the disk (`DB_TXN_SYNC`), otherwise none does (`DB_TXN_NOSYNC`).
    ///
    /// # Errors
    ///
    /// The error of Berkeley DB.
    pub(crate) fn open(directory: &Path, is_synced: bool) -> Result<Self> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let mut error = ErrorText::new();
        // SAFETY: the path is a C string that outlives the call; the text has room as the shim
        // expects.
        let store = unsafe { berkeley_open(path.as_ptr(), is_synced.into(), error.as_mut_ptr()) };
        match NonNull::new(store) {
            Some(store) => Ok(BerkeleyDb { store, error }),
            None => Err(error.to_error()),
        }
    }

    /// Inserts a key or replaces its value, in one transaction.
    ///
    /// # Errors
    ///
    /// The error of Berkeley DB.
    pub(crate) fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        // SAFETY: the store lives until `drop` and is not `Send`: one thread uses it; a key has as
        // many bytes as the shim reads, and pointer and length describe one slice.
        let code = unsafe { berkeley_put(store, key.as_ptr(), value.as_ptr(), value.len(), error) };
        self.checked(code)
    }

    /// Removes a key, in one transaction.
    ///
    /// # Errors
    ///
    /// The error of Berkeley DB; the key does not exist.
    pub(crate) fn delete(&mut self, key: &Key) -> Result<()> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        // SAFETY: as for `put`.
        match unsafe { berkeley_delete(store, key.as_ptr(), error) } {
            ABSENT => bail!("Berkeley DB does not find a key that was inserted"),
            code => self.checked(code),
        }
    }

    /// Reads the value of a key into `value`, and returns its length; `None` if the key does not
    /// exist.
    ///
    /// # Errors
    ///
    /// The error of Berkeley DB.
    pub(crate) fn get(&mut self, key: &Key, value: &mut [u8]) -> Result<Option<usize>> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        let (start, room) = (value.as_mut_ptr(), value.len());
        // SAFETY: as for `put`; the shim writes no more bytes than there is room for.
        let len = unsafe { berkeley_get(store, key.as_ptr(), start, room, error) };
        match usize::try_from(len) {
            Ok(len) => Ok(Some(len)),
            Err(_) if len == ABSENT as isize => Ok(None),
            Err(_) => Err(self.error.to_error()),
        }
    }

    /// Writes the cache to the database's file, and syncs the file.
    ///
    /// # Errors
    ///
    /// The error of Berkeley DB.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let (store, error) = (self.store.as_ptr(), self.error.as_mut_ptr());
        // SAFETY: as for `put`.
        let code = unsafe { berkeley_checkpoint(store, error) };
        self.checked(code)
    }

    fn checked(&self, code: i32) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error.to_error()) }
    }
}

impl Drop for BerkeleyDb {
    fn drop(&mut self) {
        // SAFETY: made by `berkeley_open`, and not used after this.
        unsafe { berkeley_close(self.store.as_ptr()) };
    }
}
