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
/// Both are created with the database and stay, with their space. SQLite creates and deletes a
/// journal with each transaction; here each of these changes one word ([`File::set_present`]).
#[derive(Debug)]
pub(crate) struct Journals {
    rollback: File,
    wal: File,
    /// Dropped last, because this closes the pool.
    pool: Lease,
}

impl Journals {
    /// The journals of the database at `database`, whose roots begin with `base`. All users share
    /// them.
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

    /// The journals of the database at `database`, whose roots begin with `base`, if they are in a
    /// pool with other journals in use.
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

    /// Their pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The simulated slowdown of their pool.
    pub(crate) fn slowdown(&self) -> Slowdown {
        self.pool.slowdown()
    }

    /// Whether SQLite sees a file there. An empty one does not count, as on a file system.
    pub(crate) fn has_content(&self, kind: JournalKind) -> bool {
        let file = self.file(kind);
        file.is_present() && !file.is_empty()
    }

    /// Whether SQLite would roll back with the present journal if this process died. A journal that
    /// is empty or begins with zeros is only kept for the next transaction.
    pub(crate) fn is_hot(&self) -> Result<bool> {
        let mut first = [0];
        Ok(self.rollback.is_present() && self.rollback.read(0, &mut first)? == 1 && first != [0])
    }

    /// Deletes a journal, durably when this returns: where SQLite deletes a journal, this commits a
    /// transaction. Returns false if there was none.
    pub(crate) fn delete(&self, kind: JournalKind) -> Result<bool> {
        let file = self.file(kind);
        let was_present = file.is_present();
        if was_present {
            self.slowdown().run(|| file.set_present(false))?;
        }
        Ok(was_present)
    }

    /// Makes a journal durable, which SQLite would sync only with `synchronous=FULL`. It costs a
    /// fence or two, and nothing if SQLite has synced it.
    ///
    /// Otherwise bytes that were appended to a journal would be lost with a killed process. On file
    /// systems they are not.
    pub(crate) fn sync(&self, kind: JournalKind) -> Result<()> {
        let file = self.file(kind);
        if file.is_present() {
            file.sync()?;
        }
        Ok(())
    }

    /// Makes the journal and the log durable that can undo or complete the transaction of a page,
    /// before the page is written to the database. This includes the log of another connection: a
    /// checkpoint may read from it before that connection has made it durable.
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
    /// Opens a journal, or creates an empty one if there is none and `may_create`; otherwise
    /// returns `None`.
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

    /// Written in place and durable after a sync: no write is atomic, and writes are not ordered.
    /// Bytes beside a write stay as they are, unless the medium damages the lines that are being
    /// written.
    fn characteristics(&self) -> i32 {
        if self.is_overwrite_safe { codes::IOCAP_POWERSAFE_OVERWRITE } else { 0 }
    }
}
