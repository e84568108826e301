//! The SQLite that a VFS is registered with: its functions and its abilities.

use std::ffi::c_int;

use super::raw::{
    CompileoptionUsed, LibversionNumber, Log, Malloc, UriParameter, VfsFind, VfsRegister,
};
use crate::codes;

/// Functions of the SQLite that a program links, as addresses, because each binding to SQLite has
/// types of its own. The [crate](crate) has an example.
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
    /// `sqlite3_compileoption_used`; null for a SQLite that was built without it. Batches are then
    /// hidden from it.
    pub compileoption_used: *const (),
}

/// The same functions, with their types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sqlite {
    pub(super) vfs_find: VfsFind,
    pub(super) vfs_register: VfsRegister,
    pub(super) uri_parameter: UriParameter,
    pub(super) malloc: Malloc,
    pub(super) log: Log,
    libversion_number: LibversionNumber,
    compileoption_used: Option<CompileoptionUsed>,
}

/// The first version with `SQLITE_OPEN_NOFOLLOW`, and with the result code for links.
const VERSION_NOFOLLOW: c_int = 3_031_000;

impl Sqlite {
    /// # Safety
    ///
    /// That of [`register`](super::register::register).
    pub(super) unsafe fn of(host: &Host) -> Self {
        Sqlite {
            // SAFETY: the caller promises that it is this function.
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
            // SAFETY: as above; null becomes `None`.
            compileoption_used: unsafe {
                std::mem::transmute::<*const (), Option<CompileoptionUsed>>(host.compileoption_used)
            },
        }
    }

    pub(super) fn version(&self) -> c_int {
        // SAFETY: it has no arguments, and may be called at any time.
        unsafe { (self.libversion_number)() }
    }

    /// The result code for a path with a symbolic link.
    pub(super) fn code_of_link(&self) -> c_int {
        // An older version takes it for an error.
        if self.version() < VERSION_NOFOLLOW { codes::OK } else { codes::OK_SYMLINK }
    }

    /// Whether batches may be used. A SQLite that was also built with `SQLITE_ENABLE_ATOMIC_WRITE`
    /// does not increment the change counter when it commits with a batch, so other connections
    /// would keep using their old pages.
    pub(super) fn may_batch(&self) -> bool {
        let option = c"ENABLE_ATOMIC_WRITE".as_ptr();
        // SAFETY: the name ends with a NUL.
        self.compileoption_used.is_some_and(|is_used| unsafe { is_used(option) } == 0)
    }
}

/// The SQLite that is bundled with rusqlite.
#[cfg(test)]
pub(super) fn bundled() -> Host {
    Host {
        vfs_find: rusqlite::ffi::sqlite3_vfs_find as *const (),
        vfs_register: rusqlite::ffi::sqlite3_vfs_register as *const (),
        uri_parameter: rusqlite::ffi::sqlite3_uri_parameter as *const (),
        malloc: rusqlite::ffi::sqlite3_malloc as *const (),
        log: rusqlite::ffi::sqlite3_log as *const (),
        libversion_number: rusqlite::ffi::sqlite3_libversion_number as *const (),
        compileoption_used: rusqlite::ffi::sqlite3_compileoption_used as *const (),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};

    use super::*;

    #[test]
    fn batches_are_offered_where_they_are_known_to_work() {
        unsafe extern "C" fn has_atomic_writes(option: *const c_char) -> c_int {
            // SAFETY: the caller passes a string that ends with a NUL.
            let option = unsafe { CStr::from_ptr(option) };
            c_int::from(option == c"ENABLE_ATOMIC_WRITE")
        }
        // SAFETY: these are the functions of the fields' names.
        let sqlite = unsafe { Sqlite::of(&bundled()) };
        assert!(sqlite.may_batch(), "rusqlite's is not built with that option");
        assert!(!Sqlite { compileoption_used: Some(has_atomic_writes), ..sqlite }.may_batch());
        assert!(!Sqlite { compileoption_used: None, ..sqlite }.may_batch());
    }

    #[test]
    fn links_are_told_to_a_sqlite_that_asks_for_them() {
        unsafe extern "C" fn old() -> c_int {
            VERSION_NOFOLLOW - 1
        }
        // SAFETY: these are the functions of the fields' names.
        let sqlite = unsafe { Sqlite::of(&bundled()) };
        assert_eq!(sqlite.code_of_link(), codes::OK_SYMLINK);
        assert_eq!(Sqlite { libversion_number: old, ..sqlite }.code_of_link(), codes::OK);
    }
}
