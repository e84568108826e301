//! A database that is a file of the default VFS, with its journals in a pool.
//!
//! All calls are forwarded to that file. The shim adds two things: it keeps the pool open as long
//! as the file; and it makes the journals durable before dependent writes to the database.
//!
//! ```text
//! byte 0        Shim
//! SHIM_LEN      the default VFS's file
//! ```

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::raw::{sqlite3_file, sqlite3_io_methods};
use super::registered::Registered;
use crate::journals::Journals;
use crate::names::JournalKind;
use crate::{Result, codes};

/// The part before the default VFS's file.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    registered: &'static Registered,
    journals: Arc<Journals>,
}

/// Bytes of the shim, before the file.
pub(super) const SHIM_LEN: usize = size_of::<Shim>().next_multiple_of(8);

/// The place of the default VFS's file.
///
/// # Safety
///
/// `file` has room for [`SHIM_LEN`] bytes and that file.
pub(super) unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the caller promises the room.
    unsafe { file.byte_add(SHIM_LEN) }
}

/// Installs a shim before a file that the default VFS has opened.
///
/// # Safety
///
/// [`inner`] of `file` is open.
pub(super) unsafe fn install(
    file: *mut sqlite3_file,
    registered: &'static Registered,
    journals: Arc<Journals>,
) {
    // SAFETY: the caller promises the file.
    let inner = unsafe { inner(file) };
    // SAFETY: it is open, and so has methods.
    let methods = unsafe { (*inner).pMethods };
    // SAFETY: a VFS's methods are static.
    let version = unsafe { (*methods).iVersion };
    let base = sqlite3_file { pMethods: &METHODS[version.clamp(1, 3) as usize - 1] };
    // SAFETY: the caller promises the room.
    unsafe { file.cast::<Shim>().write(Shim { base, registered, journals }) };
}

/// Methods of each version; a shim has the version of the default VFS's file.
static METHODS: [sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];

const fn methods(version: c_int) -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: version,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write_after_journal),
        xTruncate: Some(truncate_after_journal),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(check_reserved_lock),
        xFileControl: Some(control_with_journal),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(characteristics),
        xShmMap: Some(map_index),
        xShmLock: Some(lock_index),
        xShmBarrier: Some(order_index),
        xShmUnmap: Some(unmap_index),
        xFetch: Some(fetch),
        xUnfetch: Some(unfetch),
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the file was opened with a shim.
    let inner = unsafe { inner(file) };
    // SAFETY: it is open.
    let methods = unsafe { (*inner).pMethods };
    // SAFETY: a VFS's methods are static.
    let close = unsafe { (*methods).xClose };
    // SAFETY: the call is for this file.
    let code = close.map_or(codes::OK, |close| unsafe { close(inner) });
    // SAFETY: SQLite closes a file once, and does not use it after that.
    let shim = unsafe { file.cast::<Shim>().read() };
    // Only closing the pool can fail here. That leaves the recovery to the next opening.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(shim.journals)));
    code
}

/// Makes the file's journals durable as `sync` does it; returns a code of SQLite.
///
/// # Safety
///
/// The file was opened with a shim.
unsafe fn sync_journals(
    file: *mut sqlite3_file,
    sync: impl FnOnce(&Journals) -> Result<()>,
) -> c_int {
    // SAFETY: the caller promises it.
    let shim = unsafe { &*file.cast::<Shim>() };
    let sync = || shim.journals.slowdown().run(|| sync(&shim.journals)).map(|()| codes::OK);
    shim.registered.answer(codes::IOERR_FSYNC, sync)
}

unsafe extern "C" fn write_after_journal(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: the file was opened with a shim.
    match unsafe { sync_journals(file, Journals::sync_before_page) } {
        // SAFETY: these are the arguments of this call.
        codes::OK => unsafe { write(file, bytes, len, offset) },
        code => code,
    }
}

unsafe extern "C" fn truncate_after_journal(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: the file was opened with a shim.
    match unsafe { sync_journals(file, Journals::sync_before_page) } {
        // SAFETY: these are the arguments of this call.
        codes::OK => unsafe { truncate(file, size) },
        code => code,
    }
}

unsafe extern "C" fn control_with_journal(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    if operation == codes::FCNTL_COMMIT_PHASETWO {
        // SAFETY: the file was opened with a shim.
        let code = unsafe { sync_journals(file, |journals| journals.sync(JournalKind::Wal)) };
        if code != codes::OK {
            return code;
        }
    }
    // SAFETY: these are the arguments of this call.
    unsafe { control(file, operation, argument) }
}

/// Calls the default VFS's method. If there is none, the result is `$missing`.
macro_rules! forward {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, $missing:expr;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) $(-> $result)? {
            // SAFETY: the file was opened with a shim.
            let inner = unsafe { inner(file) };
            // SAFETY: it is open.
            let methods = unsafe { (*inner).pMethods };
            // SAFETY: a VFS's methods are static.
            match unsafe { (*methods).$method } {
                // SAFETY: these are the arguments of this call.
                Some(method) => unsafe { method(inner, $($argument),*) },
                None => $missing,
            }
        }
    )*};
}

forward! {
    read => xRead(bytes: *mut c_void, len: c_int, offset: i64) -> c_int, codes::IOERR_READ;
    write => xWrite(bytes: *const c_void, len: c_int, offset: i64) -> c_int, codes::IOERR_WRITE;
    truncate => xTruncate(size: i64) -> c_int, codes::IOERR_TRUNCATE;
    sync => xSync(flags: c_int) -> c_int, codes::OK;
    file_size => xFileSize(size: *mut i64) -> c_int, codes::IOERR_FSTAT;
    lock => xLock(level: c_int) -> c_int, codes::OK;
    unlock => xUnlock(level: c_int) -> c_int, codes::OK;
    check_reserved_lock => xCheckReservedLock(is_reserved: *mut c_int) -> c_int, codes::IOERR_LOCK;
    control => xFileControl(operation: c_int, argument: *mut c_void) -> c_int, codes::NOTFOUND;
    sector_size => xSectorSize() -> c_int, 0;
    characteristics => xDeviceCharacteristics() -> c_int, 0;
    map_index => xShmMap(number: c_int, len: c_int, is_wanted: c_int, region: *mut *mut c_void) -> c_int,
        codes::IOERR_SHMMAP;
    lock_index => xShmLock(first: c_int, count: c_int, flags: c_int) -> c_int, codes::IOERR_SHMLOCK;
    order_index => xShmBarrier(), ();
    unmap_index => xShmUnmap(is_to_delete: c_int) -> c_int, codes::OK;
    fetch => xFetch(offset: i64, len: c_int, page: *mut *mut c_void) -> c_int, codes::IOERR;
    unfetch => xUnfetch(offset: i64, page: *mut c_void) -> c_int, codes::OK;
}
