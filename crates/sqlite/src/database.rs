//! A database in a pool: a disk as large as the database.
//!
//! Each write is atomic. It is durable when it returns, if a journal or a log can undo it. Writes
//! that neither can undo are held back, and take effect in one transaction of the disk when SQLite
//! would sync. So do the writes of a batch, with which a SQLite built for that commits without a
//! journal.

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

/// A database is created for as many bytes as its pool may grow to, and for at least this many.
/// This determines the length of the disk's slabs.
const EXPECTED_SIZE_MIN: u64 = 64 << 20;
/// Slabs of a database that fills its pool.
const SLABS: u64 = 4096;
/// Minimal and maximal number of blocks in a slab: 64 KiB to 4 MiB.
const SLAB_BLOCKS: std::ops::RangeInclusive<u64> = 16..=1024;
/// Maximal number of bytes that are held back without a journal: 256 MiB.
const UNJOURNALED_MAX: u64 = 256 << 20;

/// State of a database shared by the connections of this process.
#[derive(Debug)]
pub(crate) struct Database {
    disk: Disk,
    locks: Mutex<Locks>,
    index: Mutex<WalIndex>,
    /// Dropped last, because this closes the pool.
    journals: Arc<Journals>,
}

impl Database {
    /// Opens the database at a path from [`Place::canonical`].
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

/// The journals of the database at `path`, whether or not this process has it open; `None` if there
/// is no such database.
///
/// SQLite asks for the journals of a database that it has not opened when it recovers another
/// database that was changed in the same transaction.
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

/// One connection to a database.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    database: Arc<Database>,
    level: Level,
    /// Its locks on the WAL-index, once it uses the index.
    holding: Option<Holding>,
    /// Writes that SQLite made without a journal. They are held back until it would sync the
    /// database, so that they take effect atomically. With `synchronous=OFF` a SQLite that knows
    /// batches neither uses one nor makes a journal.
    unjournaled: Option<Batch>,
    /// Writes of SQLite's present batch.
    batch: Option<Batch>,
    pub(crate) is_read_only: bool,
    /// Whether the log stays when the last connection closes.
    pub(crate) keeps_wal: bool,
    /// Whether SQLite may rely on the bytes beside a write of a journal.
    pub(crate) is_overwrite_safe: bool,
    /// Whether SQLite is told of batches.
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

    /// Its lock level.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Raises the lock level; returns false if other connections prevent it.
    pub(crate) fn lock(&mut self, level: Level) -> bool {
        lock(&self.database.locks).raise(&mut self.level, level)
    }

    /// Lowers the lock level. Writes that SQLite has neither synced nor committed by then belong to
    /// a failed transaction, and are dropped.
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

    /// Takes locks on the WAL-index; returns false if other connections prevent it.
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

    /// Makes one connection's changes to the WAL-index visible to the next connection that calls
    /// this.
    pub(crate) fn order_index(&self) {
        drop(lock(&self.database.index));
        // SeqCst: SQLite calls this where a store must not pass a load; the partner calls it, too.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Stops using the WAL-index.
    pub(crate) fn leave_index(&mut self) {
        if let Some(holding) = self.holding.take() {
            lock(&self.database.index).leave(holding);
        }
    }

    /// Begins a batch: from here on writes are kept until they are committed or dropped.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.check_writable()?;
        self.batch = Some(Batch::new(self.size_with_batches()));
        Ok(())
    }

    /// Makes all writes since [`begin`](DatabaseFile::begin), and those without a journal, take
    /// effect atomically. Durable when it returns.
    ///
    /// # Errors
    ///
    /// The writes since `begin` are then dropped, as SQLite expects; those without a journal are
    /// kept.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let batch = self.batch.take();
        let size = batch.as_ref().or(self.unjournaled.as_ref()).map(Batch::size);
        let Some(size) = size else { return Ok(()) };
        // If SQLite has made a journal since, the journal can undo these writes.
        self.database.journals.sync(JournalKind::Rollback)?;
        batch::commit(&self.database.disk, self.unjournaled.iter().chain(&batch), size)?;
        self.unjournaled = None;
        Ok(())
    }

    /// Makes a transaction durable that SQLite has written to its log and perhaps not synced.
    pub(crate) fn end_transaction(&mut self) -> Result<()> {
        self.slowdown().run(|| self.database.journals.sync(JournalKind::Wal))
    }

    /// Drops the writes since [`begin`](DatabaseFile::begin).
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
        // The page is durable at once. So the journal or log that can undo or complete its
        // transaction must be durable first.
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
        // Truncating ends a transaction: earlier writes come first.
        self.commit()?;
        self.database.journals.sync_before_page()?;
        Ok(self.database.disk.resize(size)?)
    }

    /// Everything is durable already, except writes that were held back.
    fn sync(&mut self) -> Result<()> {
        self.commit()?;
        Ok(self.database.disk.flush()?)
    }

    fn size(&mut self) -> Result<u64> {
        Ok(self.size_with_batches())
    }

    /// SQLite applies the characteristics of the database to its journals, too. Journals are not
    /// written in order, and their length may become durable before their content. So neither order
    /// nor safe appending is stated here.
    fn characteristics(&self) -> i32 {
        let overwrite = if self.is_overwrite_safe { codes::IOCAP_POWERSAFE_OVERWRITE } else { 0 };
        let batches = if self.has_batches { codes::IOCAP_BATCH_ATOMIC } else { 0 };
        codes::IOCAP_ATOMIC_ALL | batches | overwrite
    }
}

impl DatabaseFile {
    /// The batches, in the order in which they take effect.
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.unjournaled.iter().chain(&self.batch)
    }

    fn size_with_batches(&self) -> u64 {
        self.batches().last().map_or_else(|| self.database.disk.size(), Batch::size)
    }

    /// Whether SQLite changes the database while only its own memory can undo the change: there is
    /// no journal that a next connection would find, and no log that the change could come from.
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

    /// With `synchronous=OFF` nothing else syncs a log between the commit that one connection
    /// writes to it and the checkpoint of another.
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
        // The state that a killed process leaves.
        std::fs::copy(&path, &copy).unwrap();
        let pool = Pool::options().open(&copy).unwrap();
        assert_eq!(Disk::open(&pool, MAIN).unwrap().size(), 4096);
        assert_eq!(File::open(&pool, &JournalKind::Wal.root(MAIN)).unwrap().len(), 6);
    }
}
