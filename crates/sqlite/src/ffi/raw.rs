//! SQLite's C interface for a VFS, after `sqlite3.h` and `sqlite3ext.h`.

use std::ffi::{c_char, c_double, c_int, c_void};

/// The beginning of an open file, which SQLite knows; the VFS's own content follows it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct sqlite3_file {
    /// Its methods; null if opening failed.
    pub(crate) pMethods: *const sqlite3_io_methods,
}

/// Methods of an open file. Version 2 has shared memory, version 3 memory mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct sqlite3_io_methods {
    pub(crate) iVersion: c_int,
    pub(crate) xClose: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub(crate) xRead:
        Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) xWrite:
        Option<unsafe extern "C" fn(*mut sqlite3_file, *const c_void, c_int, i64) -> c_int>,
    pub(crate) xTruncate: Option<unsafe extern "C" fn(*mut sqlite3_file, i64) -> c_int>,
    pub(crate) xSync: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub(crate) xFileSize: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut i64) -> c_int>,
    pub(crate) xLock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub(crate) xUnlock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub(crate) xCheckReservedLock:
        Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_int) -> c_int>,
    pub(crate) xFileControl:
        Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, *mut c_void) -> c_int>,
    pub(crate) xSectorSize: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub(crate) xDeviceCharacteristics: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub(crate) xShmMap: Option<
        unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    >,
    pub(crate) xShmLock:
        Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int) -> c_int>,
    pub(crate) xShmBarrier: Option<unsafe extern "C" fn(*mut sqlite3_file)>,
    pub(crate) xShmUnmap: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub(crate) xFetch:
        Option<unsafe extern "C" fn(*mut sqlite3_file, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) xUnfetch: Option<unsafe extern "C" fn(*mut sqlite3_file, i64, *mut c_void) -> c_int>,
}

/// A VFS.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct sqlite3_vfs {
    pub(crate) iVersion: c_int,
    pub(crate) szOsFile: c_int,
    pub(crate) mxPathname: c_int,
    pub(crate) pNext: *mut sqlite3_vfs,
    pub(crate) zName: *const c_char,
    pub(crate) pAppData: *mut c_void,
    pub(crate) xOpen: Option<
        unsafe extern "C" fn(
            *mut sqlite3_vfs,
            *const c_char,
            *mut sqlite3_file,
            c_int,
            *mut c_int,
        ) -> c_int,
    >,
    pub(crate) xDelete:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int>,
    pub(crate) xAccess:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) xFullPathname:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub(crate) xDlOpen:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *mut c_void>,
    pub(crate) xDlError: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char)>,
    pub(crate) xDlSym: Option<
        unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char) -> Option<Symbol>,
    >,
    pub(crate) xDlClose: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void)>,
    pub(crate) xRandomness:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) xSleep: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int>,
    pub(crate) xCurrentTime: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_double) -> c_int>,
    pub(crate) xGetLastError:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) xCurrentTimeInt64: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut i64) -> c_int>,
    /// Three functions by which SQLite's own tests replace system calls; version 3.
    pub(crate) xSystemCalls: [*const c_void; 3],
}

/// The result of `xDlSym`.
pub(crate) type Symbol = unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char);

/// The beginning of `sqlite3_api_routines`, through which an extension calls SQLite: only pointers
/// to functions, identified by their index.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct sqlite3_api_routines {
    pub(crate) routines: [*const c_void; API_URI_PARAMETER + 1],
}

/// Indices in [`sqlite3_api_routines`].
pub(crate) const API_LIBVERSION_NUMBER: usize = 67;
pub(crate) const API_MALLOC: usize = 68;
pub(crate) const API_VFS_FIND: usize = 141;
pub(crate) const API_VFS_REGISTER: usize = 142;
pub(crate) const API_COMPILEOPTION_USED: usize = 161;
pub(crate) const API_LOG: usize = 167;
pub(crate) const API_URI_PARAMETER: usize = 189;

/// `sqlite3_vfs_find`.
pub(crate) type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs;
/// `sqlite3_vfs_register`.
pub(crate) type VfsRegister = unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int;
/// `sqlite3_uri_parameter`.
pub(crate) type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
/// `sqlite3_malloc`.
pub(crate) type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
/// `sqlite3_log`.
pub(crate) type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
/// `sqlite3_compileoption_used`; null in a SQLite that was built without it.
pub(crate) type CompileoptionUsed = unsafe extern "C" fn(*const c_char) -> c_int;
/// `sqlite3_libversion_number`.
pub(crate) type LibversionNumber = unsafe extern "C" fn() -> c_int;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use rusqlite::ffi;

    use super::*;

    macro_rules! assert_same_layout {
        ($name:ident: $($field:ident)*) => {
            assert_eq!(size_of::<$name>(), size_of::<ffi::$name>());
            $(assert_eq!(
                offset_of!($name, $field),
                offset_of!(ffi::$name, $field),
                stringify!($name.$field)
            );)*
        };
    }

    #[test]
    fn structs_lie_as_sqlite_has_them() {
        assert_same_layout!(sqlite3_file: pMethods);
        assert_same_layout!(sqlite3_io_methods: iVersion xClose xRead xWrite xTruncate xSync xFileSize xLock
            xUnlock xCheckReservedLock xFileControl xSectorSize xDeviceCharacteristics xShmMap xShmLock
            xShmBarrier xShmUnmap xFetch xUnfetch);
        assert_same_layout!(sqlite3_vfs: iVersion szOsFile mxPathname pNext zName pAppData xOpen xDelete
            xAccess xFullPathname xDlOpen xDlError xDlSym xDlClose xRandomness xSleep xCurrentTime
            xGetLastError xCurrentTimeInt64);
        assert_eq!(
            offset_of!(sqlite3_vfs, xSystemCalls),
            offset_of!(ffi::sqlite3_vfs, xSetSystemCall)
        );
    }

    /// Compiles a program against Debian's headers that prints where the routines are.
    #[cfg(feature = "client-tests")]
    #[test]
    fn routines_lie_where_the_header_has_them() {
        use std::process::Command;

        let wanted = [
            ("libversion_number", API_LIBVERSION_NUMBER),
            ("malloc", API_MALLOC),
            ("vfs_find", API_VFS_FIND),
            ("vfs_register", API_VFS_REGISTER),
            ("compileoption_used", API_COMPILEOPTION_USED),
            ("log", API_LOG),
            ("uri_parameter", API_URI_PARAMETER),
        ];
        let checks: String = wanted
            .iter()
            .map(|(name, place)| {
                format!(
                    "_Static_assert(offsetof(sqlite3_api_routines, {name}) == {place} * sizeof(void *), \"{name}\");\n"
                )
            })
            .collect();
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("places.c");
        let text = format!("#include <stddef.h>\n#include <sqlite3ext.h>\n{checks}");
        std::fs::write(&source, text).expect("it can be written");
        let output =
            Command::new("cc").arg("-fsyntax-only").arg(&source).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
