//! Registration: with the SQLite that a program links, or that loads this library as an extension.

use std::ffi::c_int;

use super::host::{Host, Sqlite};
use super::raw::{self, sqlite3_api_routines};
use super::vfs;
use crate::{Error, Result};

/// Registers the VFSs `remanent` and `remanent-journal` with the SQLite that a program links.
/// Neither becomes the default. Calling it again changes nothing.
///
/// # Errors
///
/// When SQLite is older than 3.22, has no default VFS, or refuses.
///
/// # Safety
///
/// Each field of `host` is the address of the function of that name, all of one SQLite; or null
/// where the field allows it.
pub unsafe fn register(host: &Host) -> Result<()> {
    // SAFETY: the caller promises it.
    let sqlite = unsafe { Sqlite::of(host) };
    let version = sqlite.version();
    if version < VERSION_MIN {
        let reason = format!("it is of version {version}, and at least {VERSION_MIN} is needed");
        return Err(Error::Registration { reason });
    }
    vfs::register(sqlite)
}

/// Registers with the SQLite that loads this library as an extension.
///
/// # Safety
///
/// `api` is the pointer that SQLite passes to an extension: null, if SQLite was built without
/// extensions.
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
    // SAFETY: the indices are those of these functions; a test compares them with SQLite's header.
    unsafe { register(&host) }
}

/// The first version of SQLite with everything that is used here.
const VERSION_MIN: c_int = 3_022_000;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::host::bundled;

    #[test]
    fn a_sqlite_that_is_too_old_is_refused() {
        unsafe extern "C" fn too_old() -> c_int {
            VERSION_MIN - 1
        }
        let host = Host { libversion_number: too_old as *const (), ..bundled() };
        // SAFETY: these are functions of the fields' types.
        let refused = unsafe { register(&host) };
        assert!(matches!(refused, Err(Error::Registration { .. })), "{refused:?}");
    }
}
