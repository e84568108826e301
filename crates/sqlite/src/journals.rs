//! Journals and write-ahead logs: files in a pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use remanent_blockdev::file::File;
use remanent_pmem::{Error as PoolError, Pool};

use crate::content::Content;
use crate::names::JournalKind;
use crate::pools::{Lease, lock};
use crate::slowdown::Slowdown;
use crate::{Result, codes};

/// Journals that this process uses, by the path of their database.
static IN_USE: Mutex<BTreeMap<PathBuf, Weak<Journals>>> = Mutex::new(BTreeMap::new());

/// The rollback journal and the write-ahead log of one database.
///
/// Both are made with the database and stay, with the space they took: SQLite creates and deletes a journal with each
/// transaction, and that is one word each time ([`File::set_present`]).
#[derive(Debug)]
pub(crate) struct Journals {
    rollback: File,
    wal: File,
    /// Last, since the pool is closed with it.
    pool: Lease,
}

impl Journals {
    /// The journals of the database at `database`, whose roots begin with `base`, shared by all who use them.
    pub(crate) fn share(
        database: &Path,
        base: &str,
        pool: impl FnOnce() -> Result<Lease>,
    ) -> Result<Arc<Self>> {
        if let Some(journals) = Self::of(database) {
            return Ok(journals);
        }
        let pool = pool()?;
        let mut in_use = lock(&IN_USE);
        if let Some(journals) = in_use.get(database).and_then(Weak::upgrade) {
            return Ok(journals);
        }
        let open = |kind: JournalKind| open_or_create(&pool, &kind.root(base));
        let (rollback, wal) = (open(JournalKind::Rollback)?, open(JournalKind::Wal)?);
        let journals = Arc::new(Journals { rollback, wal, pool });
        in_use.retain(|_, journals| journals.strong_count() > 0);
        in_use.insert(database.to_owned(), Arc::downgrade(&journals));
        Ok(journals)
    }

    /// The journals of the database at a path, if this process uses them.
    pub(crate) fn of(database: &Path) -> Option<Arc<Self>> {
        lock(&IN_USE).get(database).and_then(Weak::upgrade)
    }

    /// The journals of the database at `database`, whose roots begin with `base`, if they are in a pool in which others
    /// are used.
    pub(crate) fn in_pools_in_use(database: &Path, base: &str) -> Result<Option<Arc<Self>>> {
        let in_use: Vec<Arc<Self>> = lock(&IN_USE).values().filter_map(Weak::upgrade).collect();
        for other in in_use {
            let root = JournalKind::Rollback.root(base);
            if other.pool.roots()?.iter().any(|found| found.name == root && <File>::is_one(found)) {
                return Self::share(database, base, || Ok(other.pool.clone())).map(Some);
            }
        }
        Ok(None)
    }

    /// The pool that they lie in.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How much slower than it is that pool is to seem.
    pub(crate) fn slowdown(&self) -> Slowdown {
        self.pool.slowdown()
    }

    /// Whether SQLite is to see a file there. One without content counts for nothing, as on a file system.
    pub(crate) fn has_content(&self, kind: JournalKind) -> bool {
        let file = self.file(kind);
        file.is_present() && !file.is_empty()
    }

    /// Whether SQLite would roll back with the journal that is there if this process died: one that begins with zeros, or
    /// with nothing, is kept for the next transaction.
    pub(crate) fn is_hot(&self) -> Result<bool> {
        let mut first = [0];
        Ok(self.rollback.is_present() && self.rollback.read(0, &mut first)? == 1 && first != [0])
    }

    /// Deletes it, durably when this returns: where SQLite deletes a journal, this commits a transaction. False if
    /// there was none.
    pub(crate) fn delete(&self, kind: JournalKind) -> Result<bool> {
        let file = self.file(kind);
        let was_present = file.is_present();
        if was_present {
            self.slowdown().run(|| file.set_present(false))?;
        }
        Ok(was_present)
    }

    /// Makes durable what SQLite has written to a journal and would sync with `synchronous=FULL` alone: it costs a fence or
    /// two here, and nothing if SQLite has done it.
    ///
    /// Without that, what was appended to a journal would go with a process that is killed, which no file system does.
    pub(crate) fn sync(&self, kind: JournalKind) -> Result<()> {
        let file = self.file(kind);
        if file.is_present() {
            file.sync()?;
        }
        Ok(())
    }

    /// Makes durable what says how to take a page back, or to complete what it is of, before it is
    /// written to the database: another connection's log, too, of which a checkpoint may read
    /// before that connection has made it durable.
    pub(crate) fn sync_before_page(&self) -> Result<()> {
        self.sync(JournalKind::Rollback)?;
        self.sync(JournalKind::Wal)
    }

    fn file(&self, kind: JournalKind) -> &File {
        match kind {
            JournalKind::Rollback => &self.rollback,
            JournalKind::Wal => &self.wal,
        }
    }
}

fn open_or_create(pool: &Pool, root: &str) -> Result<File> {
    match File::open(pool, root) {
        Err(remanent_blockdev::Error::Pool(PoolError::NoSuchRoot { .. })) => {
            let file = File::create(pool, root)?;
            file.set_present(false)?;
            Ok(file)
        }
        opened => Ok(opened?),
    }
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct JournalFile {
    file: File,
    is_overwrite_safe: bool,
    /// Keeps the pool open.
    journals: Arc<Journals>,
}

impl JournalFile {
    /// Opens it, or makes an empty one if there is none and `may_create`; else that is nothing.
    pub(crate) fn open(
        journals: Arc<Journals>,
        kind: JournalKind,
        may_create: bool,
    ) -> Result<Option<Self>> {
        let file = journals.file(kind).clone();
        if !file.is_present() {
            if !may_create {
                return Ok(None);
            }
            journals.slowdown().run(|| file.set_present(true))?;
        }
        let is_overwrite_safe = !journals.pool.guarantee().write_disturbance;
        Ok(Some(JournalFile { file, is_overwrite_safe, journals }))
    }
}

impl Content for JournalFile {
    fn slowdown(&self) -> Slowdown {
        self.journals.slowdown()
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        Ok(self.file.read(offset, bytes)?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.file.write(offset, bytes)?)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        Ok(self.file.set_len(size)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.file.sync()?)
    }

    fn size(&mut self) -> Result<u64> {
        Ok(self.file.len())
    }

    /// Written in place and durable when synced: no write is atomic, and none before the next one. Bytes beside a write
    /// stay as they are, unless the medium damages the lines that it is in.
    fn characteristics(&self) -> i32 {
        if self.is_overwrite_safe { codes::IOCAP_POWERSAFE_OVERWRITE } else { 0 }
    }
}
