//! Open files and their methods, which SQLite calls.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use super::memory::{bytes_mut, put};
use super::raw::{sqlite3_file, sqlite3_io_methods};
use super::registered::{NAME, Registered};
use crate::codes::{self, SHM_LOCKS};
use crate::content::Content;
use crate::database::DatabaseFile;
use crate::journals::JournalFile;
use crate::locks::Level;

/// An open file of this VFS, in memory that SQLite provides.
#[repr(C)]
pub(super) struct Handle<T> {
    base: sqlite3_file,
    registered: &'static Registered,
    file: T,
}

/// Bytes of the largest handle.
pub(super) const HANDLE_LEN: usize = {
    let (database, journal) = (size_of::<Handle<DatabaseFile>>(), size_of::<Handle<JournalFile>>());
    if database > journal { database } else { journal }
};

/// Writes an open file to the memory that SQLite provides.
///
/// # Safety
///
/// `place` has room for [`HANDLE_LEN`] bytes, and is aligned to 8 bytes, as SQLite does it.
pub(super) unsafe fn install<T>(
    place: *mut sqlite3_file,
    registered: &'static Registered,
    methods: &'static sqlite3_io_methods,
    file: T,
) {
    const { assert!(align_of::<Handle<T>>() <= 8 && size_of::<Handle<T>>() <= HANDLE_LEN) };
    let handle = Handle { base: sqlite3_file { pMethods: methods }, registered, file };
    // SAFETY: the caller promises the room.
    unsafe { place.cast::<Handle<T>>().write(handle) };
}

/// # Safety
///
/// `file` was installed as a `T`. One thread at a time uses it, which SQLite guarantees.
unsafe fn handle<'h, T>(file: *mut sqlite3_file) -> &'h mut Handle<T> {
    // SAFETY: the caller promises both.
    unsafe { &mut *file.cast::<Handle<T>>() }
}

/// Methods of a database: version 2, with shared memory. Version 3, memory mapping, is not offered,
/// because a disk moves a block with each write.
pub(super) static DATABASE_METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(control),
    xShmMap: Some(map_index),
    xShmLock: Some(lock_index),
    xShmBarrier: Some(order_index),
    xShmUnmap: Some(unmap_index),
    ..methods::<DatabaseFile>()
};

/// Methods of a journal, which SQLite only reads and writes.
pub(super) static JOURNAL_METHODS: sqlite3_io_methods = sqlite3_io_methods {
    xLock: Some(lock_nothing),
    xUnlock: Some(lock_nothing),
    xCheckReservedLock: Some(check_nothing),
    xFileControl: Some(control_nothing),
    ..methods::<JournalFile>()
};

const fn methods<T: Content>() -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: 1,
        xClose: Some(close::<T>),
        xRead: Some(read::<T>),
        xWrite: Some(write::<T>),
        xTruncate: Some(truncate::<T>),
        xSync: Some(sync::<T>),
        xFileSize: Some(file_size::<T>),
        xLock: None,
        xUnlock: None,
        xCheckReservedLock: None,
        xFileControl: None,
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(characteristics::<T>),
        xShmMap: None,
        xShmLock: None,
        xShmBarrier: None,
        xShmUnmap: None,
        xFetch: None,
        xUnfetch: None,
    }
}

unsafe extern "C" fn close<T>(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and does not use it after that.
    let handle = unsafe { file.cast::<Handle<T>>().read() };
    let Handle { registered, file, .. } = handle;
    registered.answer(codes::IOERR_CLOSE, || {
        drop(file);
        Ok(codes::OK)
    })
}

unsafe extern "C" fn read<T: Content>(
    file: *mut sqlite3_file,
    bytes: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    let Handle { registered, file, .. } = unsafe { handle::<T>(file) };
    // SAFETY: SQLite passes a buffer of its own.
    let bytes = unsafe { bytes_mut(bytes, len) };
    registered.answer(codes::IOERR_READ, || {
        let there = file.slowdown().run(|| file.read(offset.max(0) as u64, bytes))?;
        // SQLite relies on zeros behind the end.
        bytes[there..].fill(0);
        Ok(if there == bytes.len() { codes::OK } else { codes::IOERR_SHORT_READ })
    })
}

unsafe extern "C" fn write<T: Content>(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    let Handle { registered, file, .. } = unsafe { handle::<T>(file) };
    // SAFETY: SQLite passes a buffer of its own, of at least one byte.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len.max(0) as usize) };
    registered.answer(codes::IOERR_WRITE, || {
        file.slowdown().run(|| file.write(offset.max(0) as u64, bytes))?;
        Ok(codes::OK)
    })
}

unsafe extern "C" fn truncate<T: Content>(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    let Handle { registered, file, .. } = unsafe { handle::<T>(file) };
    registered.answer(codes::IOERR_TRUNCATE, || {
        file.slowdown().run(|| file.truncate(size.max(0) as u64))?;
        Ok(codes::OK)
    })
}

unsafe extern "C" fn sync<T: Content>(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    let Handle { registered, file, .. } = unsafe { handle::<T>(file) };
    registered.answer(codes::IOERR_FSYNC, || {
        file.slowdown().run(|| file.sync())?;
        Ok(codes::OK)
    })
}

unsafe extern "C" fn file_size<T: Content>(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    let Handle { registered, file, .. } = unsafe { handle::<T>(file) };
    registered.answer(codes::IOERR_FSTAT, || {
        let bytes = file.size()?;
        // SAFETY: SQLite passes a valid place.
        unsafe { put(size, bytes as i64) };
        Ok(codes::OK)
    })
}

/// The block size of the disk. Writes of any length are atomic, so only two things depend on it:
/// the page size of new databases, and the padding of logs if the medium damages bytes beside a
/// write.
unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    remanent_blockdev::BLOCK_LEN as c_int
}

unsafe extern "C" fn characteristics<T: Content>(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite calls the methods that the file was installed with.
    unsafe { handle::<T>(file) }.file.characteristics()
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_LOCK, || Ok(free_or_busy(file.lock(Level::from_number(level)))))
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_UNLOCK, || {
        file.unlock(Level::from_number(level));
        Ok(codes::OK)
    })
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut sqlite3_file,
    is_reserved: *mut c_int,
) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_LOCK, || {
        // SAFETY: SQLite passes a valid place.
        unsafe { put(is_reserved, c_int::from(file.is_reserved())) };
        Ok(codes::OK)
    })
}

unsafe extern "C" fn control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    let number = argument.cast::<c_int>();
    match operation {
        codes::FCNTL_LOCKSTATE => {
            // SAFETY: the argument of this operation is a place for a number.
            unsafe { put(number, file.level() as c_int) };
        }
        // Our errors are not errors of the system; and a moved pool takes its journals along.
        codes::FCNTL_LAST_ERRNO | codes::FCNTL_HAS_MOVED => {
            // SAFETY: the argument of these operations is a place for a number.
            unsafe { put(number, 0) };
        }
        // The disk takes space slab by slab, in steps of its own.
        codes::FCNTL_SIZE_HINT | codes::FCNTL_CHUNK_SIZE => {}
        codes::FCNTL_PERSIST_WAL => {
            // SAFETY: the argument of this operation is a number.
            unsafe { exchange(number, &mut file.keeps_wal) };
        }
        codes::FCNTL_POWERSAFE_OVERWRITE => {
            // SAFETY: the argument of this operation is a number.
            unsafe { exchange(number, &mut file.is_overwrite_safe) };
        }
        codes::FCNTL_VFSNAME => {
            // SAFETY: the argument of this operation is a place for a string.
            unsafe { put(argument.cast(), registered.string(NAME)) };
        }
        codes::FCNTL_BEGIN_ATOMIC_WRITE => {
            return registered
                .answer(codes::IOERR_COMMIT_ATOMIC, || file.begin().map(|()| codes::OK));
        }
        codes::FCNTL_COMMIT_ATOMIC_WRITE => {
            let code = registered.answer(codes::IOERR_COMMIT_ATOMIC, || {
                file.slowdown().run(|| file.commit()).map(|()| codes::OK)
            });
            // After an error of another kind SQLite would forget its journal, instead of committing
            // without a batch.
            return if code == codes::OK { code } else { codes::IOERR_COMMIT_ATOMIC };
        }
        codes::FCNTL_ROLLBACK_ATOMIC_WRITE => file.abort(),
        // This comes before the sync, and with synchronous=OFF in its place.
        codes::FCNTL_SYNC => {
            return registered.answer(codes::IOERR_FSYNC, || {
                file.slowdown().run(|| file.commit()).map(|()| codes::OK)
            });
        }
        codes::FCNTL_COMMIT_PHASETWO => {
            return registered
                .answer(codes::IOERR_FSYNC, || file.end_transaction().map(|()| codes::OK));
        }
        _ => return codes::NOTFOUND,
    }
    codes::OK
}

/// Sets a flag if the number is not negative; otherwise stores the flag in the number.
///
/// # Safety
///
/// `number` may be read and written.
unsafe fn exchange(number: *mut c_int, flag: &mut bool) {
    // SAFETY: the caller promises it.
    match unsafe { number.read() } {
        // SAFETY: the caller promises it.
        ..0 => unsafe { number.write(c_int::from(*flag)) },
        value => *flag = value != 0,
    }
}

unsafe extern "C" fn map_index(
    file: *mut sqlite3_file,
    number: c_int,
    len: c_int,
    is_wanted: c_int,
    region: *mut *mut c_void,
) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_SHMMAP, || {
        let found = file.region(number.max(0) as usize, len.max(0) as usize, is_wanted != 0);
        // SAFETY: SQLite passes a valid place.
        unsafe { put(region, found.map_or(null_mut(), |found| found.cast())) };
        Ok(codes::OK)
    })
}

unsafe extern "C" fn lock_index(
    file: *mut sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_SHMLOCK, || {
        let slots: Range<usize> = first.max(0) as usize..(first + count).max(0) as usize;
        if slots.end > SHM_LOCKS {
            return Ok(codes::IOERR_SHMLOCK);
        }
        if flags & codes::SHM_UNLOCK != 0 {
            file.unlock_index(slots);
            return Ok(codes::OK);
        }
        Ok(free_or_busy(file.lock_index(slots, flags & codes::SHM_SHARED != 0)))
    })
}

unsafe extern "C" fn order_index(file: *mut sqlite3_file) {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR, || {
        file.order_index();
        Ok(codes::OK)
    });
}

/// The memory is freed with the last connection, whether or not SQLite wants it deleted.
unsafe extern "C" fn unmap_index(file: *mut sqlite3_file, _is_to_delete: c_int) -> c_int {
    // SAFETY: only databases have these methods.
    let Handle { registered, file, .. } = unsafe { handle::<DatabaseFile>(file) };
    registered.answer(codes::IOERR_SHMMAP, || {
        file.leave_index();
        Ok(codes::OK)
    })
}

fn free_or_busy(is_free: bool) -> c_int {
    if is_free { codes::OK } else { codes::BUSY }
}

unsafe extern "C" fn lock_nothing(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    codes::OK
}

unsafe extern "C" fn check_nothing(_file: *mut sqlite3_file, is_reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a valid place.
    unsafe { put(is_reserved, 0) };
    codes::OK
}

unsafe extern "C" fn control_nothing(
    _file: *mut sqlite3_file,
    _operation: c_int,
    _argument: *mut c_void,
) -> c_int {
    codes::NOTFOUND
}
