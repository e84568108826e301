//! SQLite that inserts small rows, each in a transaction with full sync, with its database and
//! journals in a chosen place.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, OpenFlags, ffi};

use crate::report::{Ground, backing_of};

/// Bytes of a row's text.
const ROW_LEN: usize = 100;

/// SQLite's way to make a transaction atomic, as in the paper's Figure 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Delete,
    Truncate,
    Persist,
    Wal,
    Memory,
    Off,
}

impl Mode {
    pub(crate) const ALL: [Mode; 6] =
        [Mode::Delete, Mode::Truncate, Mode::Persist, Mode::Wal, Mode::Memory, Mode::Off];

    /// Its name in SQLite.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Delete => "DELETE",
            Mode::Truncate => "TRUNCATE",
            Mode::Persist => "PERSIST",
            Mode::Wal => "WAL",
            Mode::Memory => "MEMORY",
            Mode::Off => "OFF",
        }
    }
}

/// The place of a database and its journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Both on a real disk.
    Disk,
    /// Both on a tmpfs: the paper's ramdisk.
    Tmpfs,
    /// Both in a pool. A transaction is one atomic step of the pool, without a journal except in
    /// WAL mode.
    Pool,
    /// Both in a pool, by a SQLite without batches, such as Debian's.
    PoolWithJournals,
    /// The database on a real disk, its journals in a pool: the paper's setup.
    WalInPool,
}

impl Place {
    pub(crate) const ALL: [Place; 5] =
        [Place::Disk, Place::Tmpfs, Place::Pool, Place::PoolWithJournals, Place::WalInPool];

    /// Name in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Disk => "real disk",
            Place::Tmpfs => "tmpfs",
            Place::Pool => "pool",
            Place::PoolWithJournals => "pool, without batches",
            Place::WalInPool => "disk, journals in a pool",
        }
    }

    /// Its guarantee, with these directories in memory and on a disk.
    ///
    /// # Errors
    ///
    /// When one of them cannot be inspected.
    pub(crate) fn ground(self, memory: &Path, disk: &Path) -> Result<Ground> {
        let disk = backing_of(disk)?;
        let power = "a commit survives the loss of power";
        let process = "a commit survives the death of the process";
        let both = "a commit survives the loss of power, DRAM standing in for persistent memory";
        Ok(match self {
            Place::Disk => Ground::new(disk, "power", "none", power),
            Place::Tmpfs => Ground::new(backing_of(memory)?, "process", "none", process),
            Place::Pool | Place::PoolWithJournals => Ground::nvram_at(memory)?,
            Place::WalInPool => Ground::new(disk, "power", "nvram", both),
        })
    }

    fn uri(self, [memory, disk]: [&Path; 2], latency_percent: u32) -> String {
        let file = |directory: &Path, name: &str| directory.join(name).display().to_string();
        let pool = file(memory, "sqlite.pool");
        let options = format!("emulate=nvram&slowdown={latency_percent}");
        match self {
            Place::Disk => format!("file:{}", file(disk, "app.db")),
            Place::Tmpfs => format!("file:{}", file(memory, "app.db")),
            Place::Pool => format!("file:{pool}?vfs=remanent&{options}"),
            Place::PoolWithJournals => format!("file:{pool}?vfs=remanent&batch=0&{options}"),
            Place::WalInPool => {
                let database = file(disk, "app.db");
                format!("file:{database}?vfs=remanent-journal&journal={pool}&{options}")
            }
        }
    }
}

/// Registers the VFSs with the SQLite of this program, once.
fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let host = remanent_sqlite::Host {
            vfs_find: ffi::sqlite3_vfs_find as *const (),
            vfs_register: ffi::sqlite3_vfs_register as *const (),
            uri_parameter: ffi::sqlite3_uri_parameter as *const (),
            malloc: ffi::sqlite3_malloc as *const (),
            log: ffi::sqlite3_log as *const (),
            libversion_number: ffi::sqlite3_libversion_number as *const (),
            compileoption_used: ffi::sqlite3_compileoption_used as *const (),
        };
        // SAFETY: these are the functions of the fields' names, of the one SQLite that this program
        // has.
        let registered = unsafe { remanent_sqlite::register(&host) };
        registered.expect("a linked SQLite has a default VFS");
    });
}

/// A database with one table.
pub(crate) struct Inserter {
    connection: Connection,
    inserted: i64,
}

impl Inserter {
    /// Creates a database in one of these directories, the first in memory, the second on a disk.
    /// Each access to a pool takes `latency_percent` of its real time.
    ///
    /// # Errors
    ///
    /// When SQLite refuses something.
    pub(crate) fn open(
        place: Place,
        mode: Mode,
        directories: [&Path; 2],
        latency_percent: u32,
    ) -> Result<Self> {
        register();
        let uri = place.uri(directories, latency_percent);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(PathBuf::from(&uri), flags)
            .with_context(|| format!("SQLite does not open {uri}"))?;
        let set = format!("PRAGMA journal_mode={}", mode.name());
        let found: String = connection.query_row(&set, [], |row| row.get(0))?;
        ensure!(found.eq_ignore_ascii_case(mode.name()), "{uri} has journal mode {found}");
        connection.execute_batch(
            "PRAGMA synchronous=FULL; CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
        )?;
        Ok(Inserter { connection, inserted: 0 })
    }

    /// Inserts rows for so long; returns rows a second.
    ///
    /// # Errors
    ///
    /// When SQLite refuses a row, or counts other rows.
    pub(crate) fn run(&mut self, time: Duration) -> Result<f64> {
        let before = self.inserted;
        let mut insert = self.connection.prepare("INSERT INTO rows (text) VALUES (?1)")?;
        let mut text = "x".repeat(ROW_LEN);
        let start = Instant::now();
        let elapsed = loop {
            text.replace_range(..8, &format!("{:08}", self.inserted % 100_000_000));
            insert.execute([&text])?;
            self.inserted += 1;
            let elapsed = start.elapsed();
            if elapsed >= time {
                break elapsed;
            }
        };
        let count = "SELECT count(*) FROM rows";
        let found: i64 = self.connection.query_row(count, [], |row| row.get(0))?;
        ensure!(found == self.inserted, "{found} rows, {} were inserted", self.inserted);
        Ok((self.inserted - before) as f64 / elapsed.as_secs_f64())
    }
}
