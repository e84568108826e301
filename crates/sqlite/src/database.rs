//! A database in a pool: a disk as large as the database.
//!
//! Each write is atomic. It is durable when it returns, if a journal or a log can take it back. What is written
//! while neither says what was there is kept back, and happens as one transaction of the disk when SQLite would sync. So does
//! a batch, with which SQLite commits without a journal if it was built for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use remanent_blockdev::{Disk, Shape};
use remanent_pmem::{Error as PoolError, Pool};

use crate::batch::{self, Batch};
use crate::content::Content;
use crate::journals::Journals;
use crate::locks::{Level, Locks};
use crate::names::{JournalKind, Place, canonical_file};
use crate::pools::{Lease, check_durability, lock};
use crate::settings::Settings;
use crate::slowdown::Slowdown;
use crate::wal_index::{Holding, WalIndex};
use crate::{Error, Result, codes};

/// Databases that this process has open, by their path.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Database>>> = Mutex::new(BTreeMap::new());

/// A database is made for as many bytes as its pool may grow to, and at least this many: that sets the length of the
/// disk's slabs, by which it grows.
const EXPECTED_SIZE_MIN: u64 = 64 << 20;
/// Slabs of a database that fills its pool.
const SLABS: u64 = 4096;
/// Blocks of a slab, at least and at most: 64 KiB to 4 MiB.
const SLAB_BLOCKS: std::ops::RangeInclusive<u64> = 16..=1024;
/// Bytes that are kept back for want of a journal, at most: 256 MiB.
const UNJOURNALED_MAX: u64 = 256 << 20;

/// What the connections of this process share of a database.
#[derive(Debug)]
pub(crate) struct Database {
    disk: Disk,
    locks: Mutex<Locks>,
    index: Mutex<WalIndex>,
    /// Last, since the pool is closed with it.
    journals: Arc<Journals>,
}

impl Database {
    /// Opens the database at a path that [`Place::canonical`] made.
    fn share(path: &Path, settings: &Settings, may_create: bool) -> Result<Arc<Self>> {
        let mut open = lock(&OPEN);
        if let Some(database) = open.get(path).and_then(Weak::upgrade) {
            check_durability(database.journals.pool(), settings)?;
            return Ok(database);
        }
        let Place { pool, name } = Place::parse(path)?;
        let lease = Lease::take(&pool, settings, may_create)?;
        let disk = open_disk(&lease, &name, may_create)?;
        let journals = Journals::share(path, &name, || Ok(lease))?;
        let (locks, index) = Default::default();
        let database = Arc::new(Database { disk, locks, index, journals });
        open.retain(|_, database| database.strong_count() > 0);
        open.insert(path.to_owned(), Arc::downgrade(&database));
        Ok(database)
    }
}

fn open_disk(pool: &Pool, name: &str, may_create: bool) -> Result<Disk> {
    match Disk::open(pool, name) {
        Err(remanent_blockdev::Error::Pool(PoolError::NoSuchRoot { .. })) if may_create => {
            let expected = pool.size_max().max(EXPECTED_SIZE_MIN);
            let blocks = (expected / remanent_blockdev::BLOCK_LEN / SLABS).next_power_of_two();
            let slab_blocks = blocks.clamp(*SLAB_BLOCKS.start(), *SLAB_BLOCKS.end());
            let shape = Shape { slab_blocks, ..Shape::of(0) };
            Ok(Disk::create_with(pool, name, 0, shape)?)
        }
        Err(remanent_blockdev::Error::Pool(PoolError::NoSuchRoot { .. })) => {
            Err(Error::Missing { pool: pool.path().to_owned(), name: name.to_owned() })
        }
        opened => Ok(opened?),
    }
}

/// The journals of the database at `path`, whether this process has it open or not; none if there is no such database.
///
/// SQLite asks for them of a database that it has not open when it recovers another one, with which that one was changed
/// in one transaction.
pub(crate) fn journals(path: &Path) -> Result<Option<Arc<Journals>>> {
    if let Some(journals) = Journals::of(path) {
        return Ok(Some(journals));
    }
    let Ok(Place { pool, name }) = Place::parse(path) else { return Ok(None) };
    let Ok(pool) = canonical_file(&pool) else { return Ok(None) };
    let lease = match Lease::take(&pool, &Settings::default(), false) {
        Ok(lease) => lease,
        Err(error) if error.is_no_pool() => return Ok(None),
        Err(error) => return Err(error),
    };
    if !lease.roots()?.iter().any(|root| root.name == name && <Disk>::is_one(root)) {
        return Ok(None);
    }
    Ok(Some(Journals::share(path, &name, || Ok(lease))?))
}

/// A connection's hold on a database.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    database: Arc<Database>,
    level: Level,
    /// What it holds of the WAL-index, once it uses that.
    holding: Option<Holding>,
    /// What SQLite has written without a journal: kept back until it would sync the database, so that all of it happens as
    /// one. With `synchronous=OFF` a SQLite that knows batches neither uses one nor makes a journal.
    unjournaled: Option<Batch>,
    /// Writes that SQLite wants to happen as one.
    batch: Option<Batch>,
    pub(crate) is_read_only: bool,
    /// Whether the log is to stay when the last connection closes.
    pub(crate) keeps_wal: bool,
    /// Whether SQLite may rely on bytes beside a write of a journal.
    pub(crate) is_overwrite_safe: bool,
    /// Whether SQLite may know of batches.
    has_batches: bool,
}

impl DatabaseFile {
    /// Opens, or creates, a database.
    pub(crate) fn open(
        path: &Path,
        settings: &Settings,
        may_create: bool,
        is_read_only: bool,
    ) -> Result<Self> {
        let database = Database::share(path, settings, may_create)?;
        let is_disturbed = database.journals.pool().guarantee().write_disturbance;
        Ok(DatabaseFile {
            database,
            level: Level::None,
            holding: None,
            unjournaled: None,
            batch: None,
            is_read_only,
            keeps_wal: false,
            is_overwrite_safe: settings.is_overwrite_safe && !is_disturbed,
            has_batches: !settings.is_without_batches,
        })
    }

    /// What it holds of the database.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Raises that; false if other connections are in the way.
    pub(crate) fn lock(&mut self, level: Level) -> bool {
        lock(&self.database.locks).raise(&mut self.level, level)
    }

    /// Lowers it. What SQLite has neither synced nor committed by then, because something failed, it has given up.
    pub(crate) fn unlock(&mut self, level: Level) {
        self.batch = None;
        self.unjournaled = None;
        lock(&self.database.locks).lower(&mut self.level, level);
    }

    /// Whether a connection is going to write.
    pub(crate) fn is_reserved(&self) -> bool {
        lock(&self.database.locks).is_reserved()
    }

    /// Memory of the WAL-index.
    pub(crate) fn region(
        &mut self,
        number: usize,
        len: usize,
        is_wanted: bool,
    ) -> Option<*mut u64> {
        let mut index = lock(&self.database.index);
        self.holding.get_or_insert_with(|| index.enter());
        index.region(number, len, is_wanted)
    }

    /// Takes locks on the WAL-index; false if other connections are in the way.
    pub(crate) fn lock_index(&mut self, slots: std::ops::Range<usize>, is_shared: bool) -> bool {
        let mut index = lock(&self.database.index);
        let holding = self.holding.get_or_insert_with(|| index.enter());
        index.lock(holding, slots, is_shared)
    }

    /// Gives back locks on the WAL-index.
    pub(crate) fn unlock_index(&mut self, slots: std::ops::Range<usize>) {
        if let Some(holding) = &mut self.holding {
            lock(&self.database.index).unlock(holding, slots);
        }
    }

    /// Everything that was done with the WAL-index by one connection is seen by the next one that comes here.
    pub(crate) fn order_index(&self) {
        drop(lock(&self.database.index));
        // SeqCst: SQLite calls this where a store must not pass a load, whoever pairs with it does the same.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Stops using the WAL-index.
    pub(crate) fn leave_index(&mut self) {
        if let Some(holding) = self.holding.take() {
            lock(&self.database.index).leave(holding);
        }
    }

    /// From here on writes are kept until they are committed, or forgotten.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.check_writable()?;
        self.batch = Some(Batch::new(self.size_with_batches()));
        Ok(())
    }

    /// Makes all that was written since [`begin`](DatabaseFile::begin) or without a journal happen as one step, durably
    /// when this returns.
    ///
    /// # Errors
    ///
    /// What was written since then is forgotten, as SQLite expects; what it wrote without a journal is kept.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let batch = self.batch.take();
        let size = batch.as_ref().or(self.unjournaled.as_ref()).map(Batch::size);
        let Some(size) = size else { return Ok(()) };
        // If SQLite has made a journal since, it tells how to take this back.
        self.database.journals.sync(JournalKind::Rollback)?;
        batch::commit(&self.database.disk, self.unjournaled.iter().chain(&batch), size)?;
        self.unjournaled = None;
        Ok(())
    }

    /// Makes a transaction durable that SQLite has written to its log and perhaps not synced.
    pub(crate) fn end_transaction(&mut self) -> Result<()> {
        self.slowdown().run(|| self.database.journals.sync(JournalKind::Wal))
    }

    /// Forgets what was written since [`begin`](DatabaseFile::begin).
    pub(crate) fn abort(&mut self) {
        self.batch = None;
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl Content for DatabaseFile {
    fn slowdown(&self) -> Slowdown {
        self.database.journals.slowdown()
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let disk = &self.database.disk;
        let within = |size: u64| size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (on_disk, len) = (within(disk.size()), within(self.size_with_batches()));
        if on_disk > 0 {
            disk.read(offset, &mut bytes[..on_disk])?;
        }
        if len > on_disk {
            bytes[on_disk..len].fill(0);
        }
        for batch in self.batches() {
            batch.put_over(offset, &mut bytes[..len]);
        }
        Ok(len)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let size = self.size_with_batches();
        if let Some(batch) = &mut self.batch {
            batch.put(offset, bytes);
            return Ok(());
        }
        if self.unjournaled.is_some() || self.is_without_journal()? {
            let unjournaled = self.unjournaled.get_or_insert_with(|| Batch::new(size));
            unjournaled.put(offset, bytes);
            return if unjournaled.len() > UNJOURNALED_MAX { self.commit() } else { Ok(()) };
        }
        // The page is durable at once, so what it was must be before, or what else its transaction
        // has changed.
        self.database.journals.sync_before_page()?;
        let disk = &self.database.disk;
        let end = offset + bytes.len() as u64;
        if end <= size {
            return Ok(disk.write(offset, bytes)?);
        }
        let mut transaction = disk.transaction();
        transaction.grow(end)?;
        transaction.write(offset, bytes)?;
        Ok(transaction.commit()?)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.check_writable()?;
        if self.size_with_batches() == size {
            return Ok(());
        }
        if size >= self.database.disk.size()
            && let Some(batch) = self.batch.as_mut().or(self.unjournaled.as_mut())
        {
            batch.cut(size);
            return Ok(());
        }
        // A smaller database is the end of a transaction: what came before happens before.
        self.commit()?;
        self.database.journals.sync_before_page()?;
        Ok(self.database.disk.resize(size)?)
    }

    /// Everything is durable already but what was kept back.
    fn sync(&mut self) -> Result<()> {
        self.commit()?;
        Ok(self.database.disk.flush()?)
    }

    fn size(&mut self) -> Result<u64> {
        Ok(self.size_with_batches())
    }

    /// SQLite takes what is said of the database to hold for its journals, too. They are not written in order, and their
    /// length may become durable before their content: so nothing is said here of order and of appending.
    fn characteristics(&self) -> i32 {
        let overwrite = if self.is_overwrite_safe { codes::IOCAP_POWERSAFE_OVERWRITE } else { 0 };
        let batches = if self.has_batches { codes::IOCAP_BATCH_ATOMIC } else { 0 };
        codes::IOCAP_ATOMIC_ALL | batches | overwrite
    }
}

impl DatabaseFile {
    /// In the order in which they happen.
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.unjournaled.iter().chain(&self.batch)
    }

    fn size_with_batches(&self) -> u64 {
        self.batches().last().map_or_else(|| self.database.disk.size(), Batch::size)
    }

    /// Whether SQLite changes the database and nothing outside its memory says what it was: no journal that a next
    /// connection would find, and no log from which this could come.
    fn is_without_journal(&self) -> Result<bool> {
        let journals = &self.database.journals;
        Ok(self.level == Level::Exclusive
            && !journals.has_content(JournalKind::Wal)
            && !journals.is_hot()?)
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        self.leave_index();
        self.unlock(Level::None);
    }
}

#[cfg(test)]
mod tests {
    use remanent_blockdev::file::File;

    use super::*;
    use crate::journals::JournalFile;
    use crate::names::MAIN;

    /// With `synchronous=OFF` nobody else syncs a log between the commit that one connection writes
    /// to it and the checkpoint of another.
    #[test]
    fn a_log_is_durable_before_a_page_is_written_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["a.pool", "copy.pool"].map(|name| directory.path().join(name));
        let mut database = DatabaseFile::open(&path, &Settings::default(), true, false).unwrap();
        let journals = Arc::clone(&database.database.journals);
        let mut log = JournalFile::open(journals, JournalKind::Wal, true).unwrap().unwrap();
        log.write(0, b"frames").unwrap();
        database.write(0, &[1; 4096]).unwrap();
        log.write(6, b" of the next").unwrap();
        // As a killed process leaves it.
        std::fs::copy(&path, &copy).unwrap();
        let pool = Pool::options().open(&copy).unwrap();
        assert_eq!(Disk::open(&pool, MAIN).unwrap().size(), 4096);
        assert_eq!(File::open(&pool, &JournalKind::Wal.root(MAIN)).unwrap().len(), 6);
    }
}
