//! The SQLite that a VFS is registered with.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::raw::{
    CompileoptionUsed, LibversionNumber, Log, Malloc, UriParameter, VfsFind, VfsRegister,
    sqlite3_api_routines, sqlite3_file, sqlite3_vfs,
};
use super::{raw, vfs};
use crate::settings::Settings;
use crate::{Error, Result, codes};

/// Functions of the SQLite that a program is linked with, as addresses, since each binding to SQLite has types of its own.
/// The example is at the [crate](crate).
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// `sqlite3_vfs_find`
    pub vfs_find: *const (),
    /// `sqlite3_vfs_register`
    pub vfs_register: *const (),
    /// `sqlite3_uri_parameter`
    pub uri_parameter: *const (),
    /// `sqlite3_malloc`
    pub malloc: *const (),
    /// `sqlite3_log`
    pub log: *const (),
    /// `sqlite3_libversion_number`
    pub libversion_number: *const (),
    /// `sqlite3_compileoption_used`; null for a SQLite that was built without it, which is not told of batches then.
    pub compileoption_used: *const (),
}

/// The same functions, with their types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sqlite {
    pub(super) vfs_find: VfsFind,
    pub(super) vfs_register: VfsRegister,
    uri_parameter: UriParameter,
    malloc: Malloc,
    log: Log,
    libversion_number: LibversionNumber,
    compileoption_used: Option<CompileoptionUsed>,
}

/// Registers the VFSs `remanent` and `remanent-journal` with the SQLite that a program is linked with. None becomes the
/// default. To do so again changes nothing.
///
/// # Errors
///
/// When SQLite is older than 3.22, has no default VFS, or refuses.
///
/// # Safety
///
/// Each field of `host` is the address of the function of that name, all of one SQLite; or null where the field says so.
pub unsafe fn register(host: &Host) -> Result<()> {
    // SAFETY: the caller says so.
    let sqlite = unsafe { Sqlite::of(host) };
    let version = sqlite.version();
    if version < VERSION_MIN {
        let reason = format!("it is of version {version}, and at least {VERSION_MIN} is needed");
        return Err(Error::Registration { reason });
    }
    vfs::register(sqlite)
}

/// Registers with the SQLite that loads an extension.
///
/// # Safety
///
/// `api` is what SQLite hands to an extension: null, if it was built without loading any.
pub(super) unsafe fn register_with(api: *const sqlite3_api_routines) -> Result<()> {
    // SAFETY: SQLite's routines are static.
    let Some(api) = (unsafe { api.as_ref() }) else {
        let reason = "it was built without extensions; call `remanent_sqlite::register` from Rust";
        return Err(Error::Registration { reason: reason.to_owned() });
    };
    let routine = |place: usize| api.routines[place].cast::<()>();
    let host = Host {
        vfs_find: routine(raw::API_VFS_FIND),
        vfs_register: routine(raw::API_VFS_REGISTER),
        uri_parameter: routine(raw::API_URI_PARAMETER),
        malloc: routine(raw::API_MALLOC),
        log: routine(raw::API_LOG),
        libversion_number: routine(raw::API_LIBVERSION_NUMBER),
        compileoption_used: routine(raw::API_COMPILEOPTION_USED),
    };
    // SAFETY: the places are those of these functions; a test compares them with SQLite's header.
    unsafe { register(&host) }
}

/// The first SQLite that has all that is used here.
const VERSION_MIN: c_int = 3_022_000;
/// The first that knows `SQLITE_OPEN_NOFOLLOW`, and what answers it.
const VERSION_NOFOLLOW: c_int = 3_031_000;

impl Sqlite {
    /// # Safety
    ///
    /// As for [`register`].
    unsafe fn of(host: &Host) -> Self {
        Sqlite {
            // SAFETY: the caller says that it is this function.
            vfs_find: unsafe { std::mem::transmute::<*const (), VfsFind>(host.vfs_find) },
            // SAFETY: as above.
            vfs_register: unsafe {
                std::mem::transmute::<*const (), VfsRegister>(host.vfs_register)
            },
            // SAFETY: as above.
            uri_parameter: unsafe {
                std::mem::transmute::<*const (), UriParameter>(host.uri_parameter)
            },
            // SAFETY: as above.
            malloc: unsafe { std::mem::transmute::<*const (), Malloc>(host.malloc) },
            // SAFETY: as above.
            log: unsafe { std::mem::transmute::<*const (), Log>(host.log) },
            // SAFETY: as above.
            libversion_number: unsafe {
                std::mem::transmute::<*const (), LibversionNumber>(host.libversion_number)
            },
            // SAFETY: as above; null is none.
            compileoption_used: unsafe {
                std::mem::transmute::<*const (), Option<CompileoptionUsed>>(host.compileoption_used)
            },
        }
    }

    fn version(&self) -> c_int {
        // SAFETY: it takes nothing, and may be called at any time.
        unsafe { (self.libversion_number)() }
    }

    /// What tells SQLite that a path has a symbolic link in it.
    pub(super) fn code_of_link(&self) -> c_int {
        // An older one takes it for an error.
        if self.version() < VERSION_NOFOLLOW { codes::OK } else { codes::OK_SYMLINK }
    }

    /// Whether batches may be used. A SQLite that was built with `SQLITE_ENABLE_ATOMIC_WRITE`, too, does not increment the
    /// change counter when it commits with one, so other connections would go on with the pages that they have.
    fn may_batch(&self) -> bool {
        let option = c"ENABLE_ATOMIC_WRITE".as_ptr();
        // SAFETY: the name ends with a NUL.
        self.compileoption_used.is_some_and(|is_used| unsafe { is_used(option) } == 0)
    }
}

/// A VFS that is registered, for ever: SQLite may call it until the process ends.
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

    /// The one that `vfs` was registered as.
    ///
    /// # Safety
    ///
    /// `vfs` is one of ours.
    pub(super) unsafe fn of<'r>(vfs: *mut sqlite3_vfs) -> &'r Registered {
        // SAFETY: the caller hands us one of ours, which are never freed.
        let data = unsafe { (*vfs).pAppData };
        // SAFETY: that points to what was registered, which is never freed nor changed.
        unsafe { &*data.cast::<Registered>() }
    }

    /// Runs what SQLite asked for. An error goes to SQLite's log as text, and to its caller as a number: the one that
    /// says what is wrong, else `otherwise`. So does a panic.
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

    /// The parameters of the URI of a database.
    ///
    /// # Safety
    ///
    /// `name` is what SQLite gave to `xOpen` for a main database.
    pub(super) unsafe fn settings(&self, name: *const c_char) -> Result<Settings> {
        let settings = Settings::read(|key| {
            let key = CString::new(key).expect("keys have no NUL");
            // SAFETY: the caller says that the name has its parameters behind it.
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

    /// A string for SQLite to free.
    pub(super) fn string(&self, text: &CStr) -> *mut c_char {
        let bytes = text.to_bytes_with_nul();
        // SAFETY: it may be called with any length at any time.
        let copy = unsafe { (self.sqlite.malloc)(bytes.len() as c_int) }.cast::<c_char>();
        if !copy.is_null() {
            // SAFETY: as many bytes were asked for just now.
            unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        }
        copy
    }

    /// Bytes that the default VFS needs for an open file.
    pub(super) fn default_file_len(&self) -> c_int {
        // SAFETY: a registered VFS is there until the process ends.
        unsafe { self.default.as_ref() }.szOsFile
    }

    /// Opens a file with the default VFS.
    ///
    /// # Safety
    ///
    /// As for `xOpen`; `file` has room for a file of that VFS.
    pub(super) unsafe fn open_default(
        &self,
        name: *const c_char,
        file: *mut sqlite3_file,
        flags: c_int,
        out_flags: *mut c_int,
    ) -> c_int {
        // SAFETY: a registered VFS is there until the process ends.
        let Some(open) = unsafe { self.default.as_ref() }.xOpen else { return codes::CANTOPEN };
        // SAFETY: SQLite wants this where opening fails.
        unsafe { (*file).pMethods = std::ptr::null() };
        // SAFETY: the arguments are those that we were called with.
        unsafe { open(self.default.as_ptr(), name, file, flags, out_flags) }
    }
}

/// Stores an answer where SQLite wants one.
///
/// # Safety
///
/// `place` is null, or may be written.
pub(super) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller says so.
        unsafe { place.write(value) };
    }
}

/// Bytes of SQLite's to be filled.
///
/// # Safety
///
/// `bytes` points to `len` initialised bytes that nobody else uses while the result lives.
pub(super) unsafe fn bytes_mut<'b>(bytes: *mut c_void, len: c_int) -> &'b mut [u8] {
    if len <= 0 {
        return &mut [];
    }
    // SAFETY: the caller says so.
    unsafe { std::slice::from_raw_parts_mut(bytes.cast(), len as usize) }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn host() -> Host {
        Host {
            vfs_find: ffi::sqlite3_vfs_find as *const (),
            vfs_register: ffi::sqlite3_vfs_register as *const (),
            uri_parameter: ffi::sqlite3_uri_parameter as *const (),
            malloc: ffi::sqlite3_malloc as *const (),
            log: ffi::sqlite3_log as *const (),
            libversion_number: ffi::sqlite3_libversion_number as *const (),
            compileoption_used: ffi::sqlite3_compileoption_used as *const (),
        }
    }

    #[test]
    fn batches_are_offered_where_they_are_known_to_work() {
        unsafe extern "C" fn has_atomic_writes(option: *const c_char) -> c_int {
            // SAFETY: the caller hands us a string that ends with a NUL.
            let option = unsafe { CStr::from_ptr(option) };
            c_int::from(option == c"ENABLE_ATOMIC_WRITE")
        }
        // SAFETY: these are the functions of the fields' names.
        let sqlite = unsafe { Sqlite::of(&host()) };
        assert!(sqlite.may_batch(), "rusqlite's is not built with that option");
        assert!(!Sqlite { compileoption_used: Some(has_atomic_writes), ..sqlite }.may_batch());
        assert!(!Sqlite { compileoption_used: None, ..sqlite }.may_batch());
    }

    #[test]
    fn links_are_told_to_a_sqlite_that_asks_for_them() {
        unsafe extern "C" fn old() -> c_int {
            VERSION_NOFOLLOW - 1
        }
        unsafe extern "C" fn too_old() -> c_int {
            VERSION_MIN - 1
        }
        // SAFETY: these are the functions of the fields' names.
        let sqlite = unsafe { Sqlite::of(&host()) };
        assert_eq!(sqlite.code_of_link(), codes::OK_SYMLINK);
        assert_eq!(Sqlite { libversion_number: old, ..sqlite }.code_of_link(), codes::OK);
        let host = Host { libversion_number: too_old as *const (), ..host() };
        // SAFETY: these are functions of the fields' types.
        let refused = unsafe { register(&host) };
        assert!(matches!(refused, Err(Error::Registration { .. })), "{refused:?}");
    }

    #[test]
    fn a_panic_becomes_an_answer() {
        // SAFETY: these are the functions of the fields' names.
        unsafe { register(&host()) }.expect("SQLite takes it");
        // SAFETY: it is registered, under a name that ends with a NUL.
        let vfs = unsafe { ffi::sqlite3_vfs_find(vfs::NAME.as_ptr()) };
        // SAFETY: it is ours.
        let registered = unsafe { Registered::of(vfs.cast()) };
        let answer = registered.answer(codes::IOERR_READ, || panic!("on purpose"));
        assert_eq!(answer, codes::IOERR_READ);
        let answer = registered.answer(codes::IOERR_READ, || Err(Error::ReadOnly));
        assert_eq!(answer, codes::READONLY);
        assert_eq!(registered.answer(codes::IOERR_READ, || Ok(codes::BUSY)), codes::BUSY);
    }
}
