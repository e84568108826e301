//! SQLite's constants.

use std::ffi::c_int;

/// Result codes, including extended ones.
pub(crate) const OK: c_int = 0;
pub(crate) const ERROR: c_int = 1;
pub(crate) const BUSY: c_int = 5;
pub(crate) const READONLY: c_int = 8;
pub(crate) const IOERR: c_int = 10;
pub(crate) const CORRUPT: c_int = 11;
pub(crate) const NOTFOUND: c_int = 12;
pub(crate) const FULL: c_int = 13;
pub(crate) const CANTOPEN: c_int = 14;
pub(crate) const NOTADB: c_int = 26;
pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;
pub(crate) const OK_SYMLINK: c_int = OK | 2 << 8;
pub(crate) const IOERR_READ: c_int = IOERR | 1 << 8;
pub(crate) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub(crate) const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub(crate) const IOERR_FSYNC: c_int = IOERR | 4 << 8;
pub(crate) const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
pub(crate) const IOERR_FSTAT: c_int = IOERR | 7 << 8;
pub(crate) const IOERR_UNLOCK: c_int = IOERR | 8 << 8;
pub(crate) const IOERR_DELETE: c_int = IOERR | 10 << 8;
pub(crate) const IOERR_ACCESS: c_int = IOERR | 13 << 8;
pub(crate) const IOERR_LOCK: c_int = IOERR | 15 << 8;
pub(crate) const IOERR_CLOSE: c_int = IOERR | 16 << 8;
pub(crate) const IOERR_SHMLOCK: c_int = IOERR | 20 << 8;
pub(crate) const IOERR_SHMMAP: c_int = IOERR | 21 << 8;
pub(crate) const IOERR_DELETE_NOENT: c_int = IOERR | 23 << 8;
pub(crate) const IOERR_COMMIT_ATOMIC: c_int = IOERR | 30 << 8;
pub(crate) const IOERR_DATA: c_int = IOERR | 32 << 8;

/// Flags of opening: how, and which of SQLite's files.
pub(crate) const OPEN_READWRITE: c_int = 0x2;
pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(crate) const OPEN_SUPER_JOURNAL: c_int = 0x4000;
pub(crate) const OPEN_WAL: c_int = 0x8_0000;

/// Operations of `xFileControl`.
pub(crate) const FCNTL_LOCKSTATE: c_int = 1;
pub(crate) const FCNTL_LAST_ERRNO: c_int = 4;
pub(crate) const FCNTL_SIZE_HINT: c_int = 5;
pub(crate) const FCNTL_CHUNK_SIZE: c_int = 6;
pub(crate) const FCNTL_PERSIST_WAL: c_int = 10;
pub(crate) const FCNTL_VFSNAME: c_int = 12;
pub(crate) const FCNTL_POWERSAFE_OVERWRITE: c_int = 13;
pub(crate) const FCNTL_HAS_MOVED: c_int = 20;
pub(crate) const FCNTL_SYNC: c_int = 21;
pub(crate) const FCNTL_COMMIT_PHASETWO: c_int = 22;
pub(crate) const FCNTL_BEGIN_ATOMIC_WRITE: c_int = 31;
pub(crate) const FCNTL_COMMIT_ATOMIC_WRITE: c_int = 32;
pub(crate) const FCNTL_ROLLBACK_ATOMIC_WRITE: c_int = 33;

/// Device characteristics. The bits of atomic writes are that of any length, and those of 512 bytes
/// to 64 KiB.
pub(crate) const IOCAP_ATOMIC_ALL: c_int = 0x1ff;
pub(crate) const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;
pub(crate) const IOCAP_BATCH_ATOMIC: c_int = 0x4000;

/// Locks on parts of the WAL-index.
pub(crate) const SHM_UNLOCK: c_int = 1;
pub(crate) const SHM_SHARED: c_int = 4;
pub(crate) const SHM_LOCKS: usize = 8;

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    macro_rules! assert_same_numbers {
        ($($ours:ident $theirs:ident)*) => {
            $(assert_eq!($ours, ffi::$theirs, stringify!($ours));)*
        };
    }

    #[test]
    fn numbers_are_those_of_sqlite() {
        assert_same_numbers!(
            OK SQLITE_OK ERROR SQLITE_ERROR BUSY SQLITE_BUSY READONLY SQLITE_READONLY IOERR SQLITE_IOERR
            CORRUPT SQLITE_CORRUPT NOTFOUND SQLITE_NOTFOUND FULL SQLITE_FULL CANTOPEN SQLITE_CANTOPEN
            NOTADB SQLITE_NOTADB OK_LOAD_PERMANENTLY SQLITE_OK_LOAD_PERMANENTLY
            OK_SYMLINK SQLITE_OK_SYMLINK
            IOERR_READ SQLITE_IOERR_READ IOERR_SHORT_READ SQLITE_IOERR_SHORT_READ
            IOERR_WRITE SQLITE_IOERR_WRITE IOERR_FSYNC SQLITE_IOERR_FSYNC
            IOERR_TRUNCATE SQLITE_IOERR_TRUNCATE IOERR_FSTAT SQLITE_IOERR_FSTAT
            IOERR_UNLOCK SQLITE_IOERR_UNLOCK IOERR_DELETE SQLITE_IOERR_DELETE
            IOERR_ACCESS SQLITE_IOERR_ACCESS IOERR_LOCK SQLITE_IOERR_LOCK IOERR_CLOSE SQLITE_IOERR_CLOSE
            IOERR_SHMLOCK SQLITE_IOERR_SHMLOCK IOERR_SHMMAP SQLITE_IOERR_SHMMAP
            IOERR_DELETE_NOENT SQLITE_IOERR_DELETE_NOENT
            IOERR_COMMIT_ATOMIC SQLITE_IOERR_COMMIT_ATOMIC IOERR_DATA SQLITE_IOERR_DATA
            OPEN_READWRITE SQLITE_OPEN_READWRITE
            OPEN_CREATE SQLITE_OPEN_CREATE OPEN_MAIN_DB SQLITE_OPEN_MAIN_DB
            OPEN_MAIN_JOURNAL SQLITE_OPEN_MAIN_JOURNAL OPEN_SUPER_JOURNAL SQLITE_OPEN_SUPER_JOURNAL
            OPEN_WAL SQLITE_OPEN_WAL
            FCNTL_LOCKSTATE SQLITE_FCNTL_LOCKSTATE FCNTL_LAST_ERRNO SQLITE_FCNTL_LAST_ERRNO
            FCNTL_SIZE_HINT SQLITE_FCNTL_SIZE_HINT FCNTL_CHUNK_SIZE SQLITE_FCNTL_CHUNK_SIZE
            FCNTL_PERSIST_WAL SQLITE_FCNTL_PERSIST_WAL FCNTL_VFSNAME SQLITE_FCNTL_VFSNAME
            FCNTL_POWERSAFE_OVERWRITE SQLITE_FCNTL_POWERSAFE_OVERWRITE
            FCNTL_HAS_MOVED SQLITE_FCNTL_HAS_MOVED FCNTL_SYNC SQLITE_FCNTL_SYNC
            FCNTL_COMMIT_PHASETWO SQLITE_FCNTL_COMMIT_PHASETWO
            FCNTL_BEGIN_ATOMIC_WRITE SQLITE_FCNTL_BEGIN_ATOMIC_WRITE
            FCNTL_COMMIT_ATOMIC_WRITE SQLITE_FCNTL_COMMIT_ATOMIC_WRITE
            FCNTL_ROLLBACK_ATOMIC_WRITE SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE
            IOCAP_POWERSAFE_OVERWRITE SQLITE_IOCAP_POWERSAFE_OVERWRITE
            IOCAP_BATCH_ATOMIC SQLITE_IOCAP_BATCH_ATOMIC
            SHM_UNLOCK SQLITE_SHM_UNLOCK SHM_SHARED SQLITE_SHM_SHARED
        );
        let sizes = [
            ffi::SQLITE_IOCAP_ATOMIC512,
            ffi::SQLITE_IOCAP_ATOMIC1K,
            ffi::SQLITE_IOCAP_ATOMIC2K,
            ffi::SQLITE_IOCAP_ATOMIC4K,
            ffi::SQLITE_IOCAP_ATOMIC8K,
            ffi::SQLITE_IOCAP_ATOMIC16K,
            ffi::SQLITE_IOCAP_ATOMIC32K,
            ffi::SQLITE_IOCAP_ATOMIC64K,
        ];
        let all = sizes.into_iter().fold(ffi::SQLITE_IOCAP_ATOMIC, |all, bit| all | bit);
        assert_eq!(IOCAP_ATOMIC_ALL, all);
        assert_eq!(SHM_LOCKS as i32, ffi::SQLITE_SHM_NLOCK);
    }
}
