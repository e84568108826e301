//! A registered VFS, with everything that its methods need: the default VFS, SQLite's log, and
//! parameters of URIs.

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::host::Sqlite;
use super::raw::{sqlite3_file, sqlite3_vfs};
use crate::settings::Settings;
use crate::{Result, codes};

/// Name of the VFS that keeps databases in pools.
pub(super) const NAME: &CStr = c"remanent";
/// Name of the VFS that keeps journals in a pool, and databases as files.
pub(super) const JOURNAL_NAME: &CStr = c"remanent-journal";

/// A registered VFS. It lives for ever, because SQLite may call it until the process ends.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) sqlite: Sqlite,
    /// The default VFS at the time of registration.
    pub(super) default: NonNull<sqlite3_vfs>,
    may_batch: bool,
}

impl Registered {
    pub(super) fn new(sqlite: Sqlite, default: NonNull<sqlite3_vfs>) -> Self {
        Registered { sqlite, default, may_batch: sqlite.may_batch() }
    }

    /// The registration of `vfs`.
    ///
    /// # Safety
    ///
    /// `vfs` was registered by this crate.
    pub(super) unsafe fn of<'r>(vfs: *mut sqlite3_vfs) -> &'r Registered {
        // SAFETY: the caller promises a VFS of this crate, which is never freed.
        let data = unsafe { (*vfs).pAppData };
        // SAFETY: it points to a `Registered`, which is never freed nor changed.
        unsafe { &*data.cast::<Registered>() }
    }

    /// Runs a call of SQLite. An error goes to SQLite's log as text, and to the caller as a number:
    /// the most specific one, else `otherwise`. So does a panic.
    pub(super) fn answer(&self, otherwise: c_int, run: impl FnOnce() -> Result<c_int>) -> c_int {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(code)) => code,
            Ok(Err(error)) => {
                let code = error.code(otherwise);
                self.log(code, &error.to_string());
                code
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let text = text.unwrap_or("of unknown cause");
                self.log(otherwise, &format!("panic: {text}; please report it"));
                otherwise
            }
        }
    }

    fn log(&self, code: c_int, text: &str) {
        let Ok(text) = CString::new(format!("remanent: {text}")) else { return };
        // SAFETY: the format takes one string, which ends with a NUL.
        unsafe { (self.sqlite.log)(code, c"%s".as_ptr(), text.as_ptr()) };
    }

    /// The parameters in the URI of a database.
    ///
    /// # Safety
    ///
    /// `name` is the argument of `xOpen` for a main database.
    pub(super) unsafe fn settings(&self, name: *const c_char) -> Result<Settings> {
        let settings = Settings::read(|key| {
            let key = CString::new(key).expect("keys have no NUL");
            // SAFETY: the caller promises that the parameters follow the name.
            let value = unsafe { (self.sqlite.uri_parameter)(name, key.as_ptr()) };
            if value.is_null() {
                return None;
            }
            // SAFETY: SQLite ends it with a NUL, and keeps it as long as the name.
            Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
        })?;
        let is_without_batches = settings.is_without_batches || !self.may_batch;
        Ok(Settings { is_without_batches, ..settings })
    }

    /// A string that SQLite frees.
    pub(super) fn string(&self, text: &CStr) -> *mut c_char {
        let bytes = text.to_bytes_with_nul();
        // SAFETY: it may be called with any length at any time.
        let copy = unsafe { (self.sqlite.malloc)(bytes.len() as c_int) }.cast::<c_char>();
        if !copy.is_null() {
            // SAFETY: so many bytes were allocated above.
            unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        }
        copy
    }

    /// Bytes of an open file of the default VFS.
    pub(super) fn default_file_len(&self) -> c_int {
        // SAFETY: a registered VFS lives until the process ends.
        unsafe { self.default.as_ref() }.szOsFile
    }

    /// Opens a file with the default VFS.
    ///
    /// # Safety
    ///
    /// That of `xOpen`; `file` has room for a file of that VFS.
    pub(super) unsafe fn open_default(
        &self,
        name: *const c_char,
        file: *mut sqlite3_file,
        flags: c_int,
        out_flags: *mut c_int,
    ) -> c_int {
        // SAFETY: a registered VFS lives until the process ends.
        let Some(open) = unsafe { self.default.as_ref() }.xOpen else { return codes::CANTOPEN };
        // SAFETY: `file` may be written. SQLite expects null if opening fails.
        unsafe { (*file).pMethods = std::ptr::null() };
        // SAFETY: these are the arguments of the caller.
        unsafe { open(self.default.as_ptr(), name, file, flags, out_flags) }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;
    use crate::Error;
    use crate::ffi::host::bundled;
    use crate::ffi::register::register;

    #[test]
    fn a_panic_becomes_an_answer() {
        // SAFETY: these are the functions of the fields' names.
        unsafe { register(&bundled()) }.expect("SQLite takes it");
        // SAFETY: it is registered, under a name that ends with a NUL.
        let vfs = unsafe { ffi::sqlite3_vfs_find(NAME.as_ptr()) };
        // SAFETY: it is ours.
        let registered = unsafe { Registered::of(vfs.cast()) };
        let answer = registered.answer(codes::IOERR_READ, || panic!("on purpose"));
        assert_eq!(answer, codes::IOERR_READ);
        let answer = registered.answer(codes::IOERR_READ, || Err(Error::ReadOnly));
        assert_eq!(answer, codes::READONLY);
        assert_eq!(registered.answer(codes::IOERR_READ, || Ok(codes::BUSY)), codes::BUSY);
    }
}
