//! The two VFSs and their methods, which SQLite calls.

use std::ffi::{CStr, c_char, c_double, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use super::file::{DATABASE_METHODS, HANDLE_LEN, JOURNAL_METHODS, install};
use super::host::Sqlite;
use super::memory::{bytes_mut, path, put};
use super::raw::{Symbol, sqlite3_file, sqlite3_vfs};
use super::registered::{JOURNAL_NAME, NAME, Registered};
use super::shim::{self, SHIM_LEN};
use crate::database::{self, DatabaseFile};
use crate::journals::{JournalFile, Journals};
use crate::names::{JournalKind, Place, split_journal};
use crate::{Error, Result, codes, file_database};

/// Bytes that SQLite provides for a path.
const PATH_LEN: c_int = 1024;

/// Registers both with a SQLite, unless they are registered already.
pub(super) fn register(sqlite: Sqlite) -> Result<()> {
    let refused = |reason: &str| Error::Registration { reason: reason.to_owned() };
    // SAFETY: with null it finds the default VFS.
    let default = NonNull::new(unsafe { (sqlite.vfs_find)(null()) })
        .ok_or_else(|| refused("it has no default VFS; initialize it first"))?;
    let registered = Box::leak(Box::new(Registered::new(sqlite, default)));
    let default_len = registered.default_file_len() as usize;
    let whole = sqlite3_vfs {
        szOsFile: HANDLE_LEN.max(default_len) as c_int,
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        ..template(NAME, registered)
    };
    let journal = sqlite3_vfs {
        szOsFile: HANDLE_LEN.max(SHIM_LEN + default_len) as c_int,
        xOpen: Some(journal_vfs_open),
        xDelete: Some(journal_vfs_delete),
        xAccess: Some(journal_vfs_access),
        xFullPathname: Some(journal_vfs_full_pathname),
        ..template(JOURNAL_NAME, registered)
    };
    for vfs in [whole, journal] {
        // SAFETY: the name ends with a NUL.
        if unsafe { (sqlite.vfs_find)(vfs.zName) }.is_null() {
            // SAFETY: the VFS is never freed.
            let code = unsafe { (sqlite.vfs_register)(Box::leak(Box::new(vfs)), 0) };
            if code != codes::OK {
                return Err(refused(&format!("it refused with code {code}")));
            }
        }
    }
    Ok(())
}

/// The common part of both. Everything except files is left to the default VFS.
fn template(name: &'static CStr, registered: &'static Registered) -> sqlite3_vfs {
    sqlite3_vfs {
        iVersion: 2,
        szOsFile: 0,
        mxPathname: PATH_LEN,
        pNext: null_mut(),
        zName: name.as_ptr(),
        pAppData: std::ptr::from_ref(registered).cast_mut().cast(),
        xOpen: None,
        xDelete: None,
        xAccess: None,
        xFullPathname: None,
        xDlOpen: Some(library_open),
        xDlError: Some(library_error),
        xDlSym: Some(library_symbol),
        xDlClose: Some(library_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time_64),
        xSystemCalls: [null(); 3],
    }
}

/// Finds the journals of a database, if they are in a pool; otherwise they are on the file system.
type Find = fn(&Path) -> Result<Option<Arc<Journals>>>;

/// The kind of file that SQLite is about to open.
enum Target {
    Database,
    Journal(Arc<Journals>, JournalKind),
    /// A journal of a database that was not opened here.
    NoJournal,
    /// Files outside pools: temporary files, and the super-journals with which SQLite commits to
    /// several databases at once. Super-journals lie beside the pool, so that each VFS that takes
    /// part in the commit finds them.
    Elsewhere,
}

/// Decides from name and flags what is to be opened. The name decides about super-journals: when
/// SQLite recovers another database and reads which super-journal a journal names, it opens that
/// journal with the flags of a super-journal.
///
/// # Safety
///
/// `name` is null or a path.
unsafe fn target(name: *const c_char, flags: c_int, find: Find) -> Result<Target> {
    const JOURNALS: c_int = codes::OPEN_MAIN_JOURNAL | codes::OPEN_WAL;
    if flags & codes::OPEN_MAIN_DB != 0 {
        return Ok(if name.is_null() { Target::Elsewhere } else { Target::Database });
    }
    if name.is_null() || flags & (JOURNALS | codes::OPEN_SUPER_JOURNAL) == 0 {
        return Ok(Target::Elsewhere);
    }
    // SAFETY: it is not null, and so a path.
    let path = unsafe { path(name) };
    if let Some((database, kind)) = split_journal(path)
        && let Some(journals) = find(&database)?
    {
        return Ok(Target::Journal(journals, kind));
    }
    Ok(if flags & JOURNALS != 0 { Target::NoJournal } else { Target::Elsewhere })
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let arguments = Arguments { name, file, flags, out_flags };
    // SAFETY: the arguments are SQLite's.
    unsafe { open_with(vfs, arguments, database::journals, open_database_in_pool) }
}

unsafe extern "C" fn journal_vfs_open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let arguments = Arguments { name, file, flags, out_flags };
    // SAFETY: the arguments are SQLite's.
    unsafe { open_with(vfs, arguments, file_database::journals, open_database_file) }
}

/// The arguments of `xOpen`.
#[derive(Clone, Copy)]
struct Arguments {
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
}

impl Arguments {
    fn may_create(self) -> bool {
        self.flags & codes::OPEN_CREATE != 0
    }
}

/// # Safety
///
/// That of `xOpen`. `open_database` is called for main databases only.
unsafe fn open_with(
    vfs: *mut sqlite3_vfs,
    arguments: Arguments,
    find: Find,
    open_database: unsafe fn(&'static Registered, Arguments) -> Result<c_int>,
) -> c_int {
    let Arguments { name, file, flags, out_flags } = arguments;
    // SAFETY: this crate registered it.
    let registered = unsafe { Registered::of(vfs) };
    // SAFETY: `file` may be written. SQLite expects null if opening fails.
    unsafe { (*file).pMethods = null() };
    registered.answer(codes::CANTOPEN, || {
        // SAFETY: the arguments are SQLite's.
        match unsafe { target(name, flags, find) }? {
            // SAFETY: the arguments are SQLite's, and it opens a main database.
            Target::Database => unsafe { open_database(registered, arguments) },
            Target::Journal(journals, kind) => {
                // SAFETY: the arguments are SQLite's.
                unsafe { open_journal(registered, file, journals, kind, arguments.may_create()) }
            }
            Target::NoJournal => Ok(codes::CANTOPEN),
            Target::Elsewhere => {
                // SAFETY: the arguments are SQLite's.
                unsafe { check_outlasts_power(name, flags) }?;
                // SAFETY: the arguments are SQLite's, and there is room for the default VFS's
                // files.
                Ok(unsafe { registered.open_default(name, file, flags, out_flags) })
            }
        }
    })
}

/// Opens a database in a pool.
///
/// # Safety
///
/// The arguments are SQLite's for a main database.
unsafe fn open_database_in_pool(
    registered: &'static Registered,
    arguments: Arguments,
) -> Result<c_int> {
    let Arguments { name, file, flags, out_flags } = arguments;
    // SAFETY: the name is that of a main database.
    let settings = unsafe { registered.settings(name) }?;
    let is_read_only = flags & codes::OPEN_READWRITE == 0;
    // SAFETY: the name of a database is a path.
    let path = unsafe { path(name) };
    let opened = DatabaseFile::open(path, &settings, arguments.may_create(), is_read_only)?;
    // SAFETY: SQLite provides as much room as the VFS has stated.
    unsafe { install(file, registered, &DATABASE_METHODS, opened) };
    // SAFETY: SQLite passes a valid place.
    unsafe { put(out_flags, flags) };
    Ok(codes::OK)
}

/// Opens a database that is a file of the default VFS.
///
/// # Safety
///
/// The arguments are SQLite's for a main database.
unsafe fn open_database_file(
    registered: &'static Registered,
    arguments: Arguments,
) -> Result<c_int> {
    let Arguments { name, file, flags, out_flags } = arguments;
    // SAFETY: the name is that of a main database.
    let settings = unsafe { registered.settings(name) }?;
    // SAFETY: the name of a database is a path.
    let journals =
        file_database::open_journals(unsafe { path(name) }, &settings, arguments.may_create())?;
    // SAFETY: SQLite provides as much room as the VFS has stated.
    let inner = unsafe { shim::inner(file) };
    // SAFETY: there is room for a file of the default VFS, and the arguments are SQLite's.
    let code = unsafe { registered.open_default(name, inner, flags, out_flags) };
    if code == codes::OK {
        // SAFETY: it is open.
        unsafe { shim::install(file, registered, journals) };
    }
    Ok(code)
}

/// Refuses a super-journal in /dev, beside a pool on a bare device. A power failure would destroy
/// it, and SQLite would take that for a commit.
///
/// # Safety
///
/// `name` is null or a path.
unsafe fn check_outlasts_power(name: *const c_char, flags: c_int) -> Result<()> {
    if name.is_null() || flags & codes::OPEN_SUPER_JOURNAL == 0 {
        return Ok(());
    }
    // SAFETY: it is not null, and so a path.
    let path = unsafe { path(name) };
    if !path.starts_with("/dev") || path.starts_with("/dev/shm") {
        return Ok(());
    }
    let reason = "a commit to several databases needs a file beside the pool, which would not \
                  outlast the power in /dev; keep the pool in a file";
    Err(Error::Name { path: path.to_owned(), reason: reason.to_owned() })
}

/// Opens a journal. A missing journal is no failure for the log.
///
/// # Safety
///
/// That of `xOpen`.
unsafe fn open_journal(
    registered: &'static Registered,
    file: *mut sqlite3_file,
    journals: Arc<Journals>,
    kind: JournalKind,
    may_create: bool,
) -> Result<c_int> {
    let Some(opened) = JournalFile::open(journals, kind, may_create)? else {
        return Ok(codes::CANTOPEN);
    };
    // SAFETY: SQLite provides as much room as the VFS has stated.
    unsafe { install(file, registered, &JOURNAL_METHODS, opened) };
    Ok(codes::OK)
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe { delete_with(vfs, name, sync, database::journals) }
}

unsafe extern "C" fn journal_vfs_delete(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync: c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe { delete_with(vfs, name, sync, file_database::journals) }
}

/// # Safety
///
/// That of `xDelete`.
unsafe fn delete_with(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    sync: c_int,
    find: Find,
) -> c_int {
    // SAFETY: this crate registered it.
    let registered = unsafe { Registered::of(vfs) };
    // SAFETY: SQLite deletes by a path.
    let path = unsafe { path(name) };
    registered.answer(codes::IOERR_DELETE, || {
        if let Some((database, kind)) = split_journal(path)
            && let Some(journals) = find(&database)?
        {
            let was_there = journals.delete(kind)?;
            return Ok(if was_there { codes::OK } else { codes::IOERR_DELETE_NOENT });
        }
        let default = registered.default.as_ptr();
        // SAFETY: a registered VFS lives until the process ends.
        let Some(delete) = (unsafe { (*default).xDelete }) else { return Ok(codes::IOERR_DELETE) };
        // SAFETY: these are the arguments of this call.
        Ok(unsafe { delete(default, name, sync) })
    })
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    is_there: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe { access_with(vfs, name, flags, is_there, database::journals) }
}

unsafe extern "C" fn journal_vfs_access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    is_there: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's.
    unsafe { access_with(vfs, name, flags, is_there, file_database::journals) }
}

/// # Safety
///
/// That of `xAccess`.
unsafe fn access_with(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    is_there: *mut c_int,
    find: Find,
) -> c_int {
    // SAFETY: this crate registered it.
    let registered = unsafe { Registered::of(vfs) };
    // SAFETY: SQLite asks for a path.
    let path = unsafe { path(name) };
    registered.answer(codes::IOERR_ACCESS, || {
        if let Some((database, kind)) = split_journal(path)
            && let Some(journals) = find(&database)?
        {
            // SAFETY: SQLite passes a valid place.
            unsafe { put(is_there, c_int::from(journals.has_content(kind))) };
            return Ok(codes::OK);
        }
        let default = registered.default.as_ptr();
        // SAFETY: a registered VFS lives until the process ends.
        let Some(access) = (unsafe { (*default).xAccess }) else { return Ok(codes::IOERR_ACCESS) };
        // SAFETY: these are the arguments of this call.
        Ok(unsafe { access(default, name, flags, is_there) })
    })
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    full: *mut c_char,
) -> c_int {
    // SAFETY: this crate registered it.
    let registered = unsafe { Registered::of(vfs) };
    // SAFETY: SQLite asks for a path.
    let path = unsafe { path(name) };
    // SAFETY: SQLite passes a buffer of its own, which is written and not read.
    let full = unsafe { bytes_mut(full.cast(), len) };
    registered.answer(codes::CANTOPEN, || {
        let canonical = Place::canonical(path)?;
        // With SQLITE_OPEN_NOFOLLOW this result makes SQLite refuse the path.
        let code = if Place::has_link(path) { registered.sqlite.code_of_link() } else { codes::OK };
        let bytes = canonical.as_os_str().as_bytes();
        if bytes.len() >= full.len() {
            let reason = format!("it has more than {} bytes", full.len().saturating_sub(1));
            return Err(Error::Name { path: canonical, reason });
        }
        full[..bytes.len()].copy_from_slice(bytes);
        full[bytes.len()] = 0;
        Ok(code)
    })
}

/// Calls the default VFS's method with that VFS. If there is none, the result is `$missing`.
macro_rules! forward {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?, $missing:expr;)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($argument: $type),*) $(-> $result)? {
            // SAFETY: this crate registered it.
            let default = unsafe { Registered::of(vfs) }.default.as_ptr();
            // SAFETY: a registered VFS lives until the process ends.
            match unsafe { (*default).$method } {
                // SAFETY: these are the arguments of this call.
                Some(method) => unsafe { method(default, $($argument),*) },
                None => $missing,
            }
        }
    )*};
}

forward! {
    journal_vfs_full_pathname => xFullPathname(name: *const c_char, len: c_int, full: *mut c_char) -> c_int,
        codes::CANTOPEN;
    library_open => xDlOpen(name: *const c_char) -> *mut c_void, null_mut();
    library_error => xDlError(len: c_int, text: *mut c_char), ();
    library_symbol => xDlSym(library: *mut c_void, name: *const c_char) -> Option<Symbol>, None;
    library_close => xDlClose(library: *mut c_void), ();
    randomness => xRandomness(len: c_int, bytes: *mut c_char) -> c_int, 0;
    sleep => xSleep(microseconds: c_int) -> c_int, 0;
    current_time => xCurrentTime(days: *mut c_double) -> c_int, codes::ERROR;
    last_error => xGetLastError(len: c_int, text: *mut c_char) -> c_int, 0;
    current_time_64 => xCurrentTimeInt64(milliseconds: *mut i64) -> c_int, codes::ERROR;
}
