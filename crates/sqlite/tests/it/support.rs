//! A SQLite with the VFS, a place for pools, and random numbers.

use std::path::{Path, PathBuf};
use std::sync::Once;

use remanent_blockdev::Disk;
use remanent_blockdev::file::File;
use remanent_pmem::Pool;
use remanent_sqlite::Host;
use rusqlite::{Connection, ffi};

/// All the modes that a database's journal may have.
pub(crate) const MODES: [&str; 6] = ["delete", "truncate", "persist", "memory", "off", "wal"];

/// A directory in memory, so that tests do not wait for a disk.
pub(crate) fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("remanent-sqlite-").tempdir_in(parent).expect("a directory")
}

/// Registers the VFS with the SQLite of this process.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let host = Host {
            vfs_find: ffi::sqlite3_vfs_find as *const (),
            vfs_register: ffi::sqlite3_vfs_register as *const (),
            uri_parameter: ffi::sqlite3_uri_parameter as *const (),
            malloc: ffi::sqlite3_malloc as *const (),
            log: ffi::sqlite3_log as *const (),
            libversion_number: ffi::sqlite3_libversion_number as *const (),
            compileoption_used: ffi::sqlite3_compileoption_used as *const (),
        };
        // SAFETY: these are the functions of the fields' names.
        unsafe { remanent_sqlite::register(&host) }.expect("SQLite takes it");
    });
}

/// Opens a database.
pub(crate) fn try_open(uri: &str) -> rusqlite::Result<Connection> {
    register();
    Connection::open(uri)
}

/// Opens a database that must open.
pub(crate) fn open(uri: &str) -> Connection {
    try_open(uri).unwrap_or_else(|error| panic!("{uri}: {error}"))
}

/// The URI of a path with parameters.
pub(crate) fn uri(path: &Path, parameters: &str) -> String {
    format!("file:{}?vfs=remanent{parameters}", path.display())
}

/// The first column of the first row, as text.
pub(crate) fn text(connection: &Connection, sql: &str) -> String {
    let value = connection.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    match value.unwrap_or_else(|error| panic!("{sql}: {error}")) {
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Integer(number) => number.to_string(),
        other => panic!("{sql} has {other:?}"),
    }
}

/// SQLite's number of an error.
pub(crate) fn code(error: &rusqlite::Error) -> i32 {
    match error {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code,
        other => panic!("no failure of SQLite: {other}"),
    }
}

/// Panics with what is wrong with the disks and files in a pool, beneath SQLite.
pub(crate) fn assert_whole(path: &Path) {
    let pool = Pool::options().open(path).expect("the pool opens");
    let mut violations = pool.check().expect("the pool is read").violations;
    for root in pool.roots().expect("its roots are read") {
        let checked = if <Disk>::is_one(&root) {
            Disk::open(&pool, &root.name).expect("the disk opens").check()
        } else {
            File::open(&pool, &root.name).expect("the file opens").check()
        };
        violations.extend(checked.expect("it is read"));
    }
    assert!(violations.is_empty(), "{violations:?}");
}

/// A file that cargo has built beside the tests.
pub(crate) fn built(relative: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("the test has a path");
    let directory = executable.ancestors().nth(2).expect("it lies in a folder of the build");
    let path = directory.join(relative);
    assert!(
        path.exists(),
        "{} is missing; `cargo test -p remanent-sqlite` builds it",
        path.display()
    );
    path
}

/// Random numbers that a seed repeats (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % end
    }
}

/// The number in an environment variable, or `default`.
pub(crate) fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}
