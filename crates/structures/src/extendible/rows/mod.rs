//! An index of rows: words of 8 bytes, which need no fence of their own.
//!
//! An index leads from the hash of a key to the numbers of rows. It has no keys: whoever finds a
//! row looks at the row itself, and so learns whether it is the one. So a word that leads to a row
//! that does not exist, or has another key, does no harm, and needs no fence that orders it against
//! the row.
//!
//! - **Fences.** None: what [`insert`](RowIndex::insert) and [`remove`](RowIndex::remove) change is
//!   flushed, and durable with the caller's next fence, which it needs for the row anyway. Only
//!   splitting a segment takes two, about every 700 rows, and so does a block for rows of one key.
//! - **Space.** A word is 8 bytes. Segments are about seven tenths full before they are split, so a
//!   row takes 12 to 19 bytes of the pool. Rows of a key for which its two lines have no room go to
//!   a chain of blocks, which has room for any number.
//! - **Threads.** Readers take no lock and write nothing. Writers lock one line or two. A split
//!   makes writers of its segment wait, and one in 32 of the others, which share locks with it; so
//!   does a partition that is added.
//! - **Recovery.** There is nothing to rebuild; opening looks at blocks in flight alone.
//!
//! # Weak points
//!
//! Words have no checksum: of one that has changed, the row is not found, or another one is looked
//! at in vain, or it seems to lead to a chain, which is an error. An index can be made anew from
//! the rows. Removing one of many rows of one key looks through all of them, so removing all of
//! them one by one takes time in the square of their number. Room in blocks of a chain behind the
//! first is used again only once they are empty. Segments are not joined again.

mod chain;
mod check;
mod fill;
mod grow;
mod iterate;
mod layout;
mod member;
mod ops;
mod recover;
mod step;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::{Block, Lane, Usage, Violation};
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Mapped, Medium, Pool};

use self::layout::Buckets;
use self::ops::Locks;
use super::directory::Directory;
use super::layout::Kind;
use super::nodes::Nodes;
use crate::Result;
use crate::shared::{MemberId, Site};

/// Number of a row: at most 2³⁶ − 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(u64);

impl RowId {
    /// The greatest number.
    pub const MAX: RowId = RowId((1 << 36) - 2);

    /// The row `number`; `None` beyond [`MAX`](RowId::MAX).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(RowId(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An index of rows in persistent memory, shared by any number of threads. Clones are handles to
/// one index.
///
/// A *key* here is a word: a column's value of at most 8 bytes, or a hash of a longer one. It need
/// not be mixed. Rows of several keys may be found under one of them, so the caller compares.
///
/// - What is inserted may be found at once, by other threads, too: a row says itself whether it is
///   valid yet. It survives a crash from the next fence of the thread that inserted it.
/// - What is removed may come back in a crash before that. So a row is removed when nobody needs
///   it any more, and whoever finds it can tell that.
/// - A row that was inserted twice is found twice, and has to be removed twice. So is one that was
///   being removed when the process was killed, and was inserted again before the power failed.
///
/// The same index in a pool [in anonymous memory](remanent_pmem::Options::create_in_memory) is one
/// that is made anew after each start, without flushes.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use remanent_pmem::{Medium, Pool};
/// use remanent_structures::{RowId, RowIndex};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let years = [1815, 1912, 1815]; // column of a table; its rows are 0, 1 and 2
/// let by_year = RowIndex::create(&pool, "rows by year")?;
/// for (row, year) in years.iter().enumerate() {
///     by_year.insert(*year, RowId::new(row as u64).unwrap())?;
/// }
/// pool.medium().fence(); // for rows and index together
///
/// let mut found = Vec::new();
/// by_year.find(1815, |row| {
///     if years[row.get() as usize] == 1815 {
///         found.push(row.get());
///     }
///     ControlFlow::<()>::Continue(())
/// })?;
/// found.sort();
/// assert_eq!(found, [0, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowIndex<M: Medium = Mapped> {
    core: Arc<Core<M>>,
}

/// The state of an index that all handles of a process share.
#[doc(hidden)]
pub struct Core<M: Medium> {
    heap: Site<M>,
    seed: u64,
    buckets: Buckets,
    directory: Directory,
    /// Held by the thread that changes the directory.
    shape: PauseMutex<()>,
    locks: Locks,
}

impl<M: Medium> RowIndex<M> {
    /// Creates an empty index under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(RowIndex { core: pool.create_root(name)? })
    }

    /// As [`create`](RowIndex::create), with segments of 2^`bits` lines, which are split sooner.
    #[doc(hidden)]
    pub fn create_small(pool: &Pool<M>, name: &str, bits: u64) -> Result<Self> {
        let buckets = Buckets::new(bits).expect("1 to 8 bits");
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), buckets))?;
        Ok(RowIndex { core })
    }

    /// As [`create_small`](RowIndex::create_small), in a heap that the index shares with others.
    ///
    /// # Errors
    ///
    /// When the pool is full.
    #[doc(hidden)]
    pub fn create_small_in(site: Site<M>, bits: u64) -> Result<Self, remanent_pmem::Error> {
        let buckets = Buckets::new(bits).expect("1 to 8 bits");
        Ok(RowIndex { core: Arc::new(Core::create_at(site, buckets)?) })
    }

    /// Makes an empty index in a lane of its owner, which makes other things in the same lane, and
    /// fences before anything leads to them. The header exists and is zero. If that comes to
    /// nothing, the owner [gives the index back](RowIndex::abandon).
    ///
    /// # Errors
    ///
    /// When the pool is full.
    pub fn create_in_lane(site: Site<M>, lane: &mut Lane<'_, M>) -> Result<Self> {
        Ok(RowIndex { core: Arc::new(Core::create_in_lane(site, lane, Buckets::MOST)?) })
    }

    /// Opens an existing index, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(RowIndex { core: pool.open_root(name)? })
    }

    /// Adds a row. Durable with the caller's next fence on the pool's medium.
    ///
    /// # Errors
    ///
    /// When the pool is full: nothing was changed.
    #[inline]
    pub fn insert(&self, key: u64, row: RowId) -> Result<()> {
        self.core.insert(self.core.hash(key), row)
    }

    /// Adds a row unless it is there; in both cases it is durable with the caller's next fence. For
    /// recovery, which does not know what was done.
    ///
    /// # Errors
    ///
    /// As for [`insert`](RowIndex::insert).
    pub fn ensure(&self, key: u64, row: RowId) -> Result<()> {
        self.core.ensure(self.core.hash(key), row)
    }

    /// Adds many rows, which takes less time for each: the lines of some are fetched while others
    /// are added. Durable with the caller's next fence.
    ///
    /// # Errors
    ///
    /// As for [`insert`](RowIndex::insert); those before are there.
    pub fn insert_all(&self, rows: impl IntoIterator<Item = (u64, RowId)>) -> Result<()> {
        self.core.insert_all(rows.into_iter())
    }

    /// Adds rows of keys that have the same number of a [`partition`](RowIndex::partition) of so
    /// many bits, which takes less than half as long as [`insert_all`](RowIndex::insert_all). It is
    /// of most use for partitions of about a thousand rows, of which all are added. Durable with
    /// the caller's next fence.
    ///
    /// # Errors
    ///
    /// As for [`insert`](RowIndex::insert); some of the rows are there.
    pub fn insert_partition(&self, bits: u32, rows: &[(u64, RowId)]) -> Result<()> {
        self.core.insert_partition(bits.min(32), rows)
    }

    /// Whether a row has one word for both keys: words have a part of the hash by which the index
    /// spreads keys. Who gives a row another key must not remove the word of the old one then.
    pub fn is_one_word(&self, key: u64, other: u64) -> bool {
        let bits = layout::Word::HASH_BITS;
        self.core.hash(key).prefix(bits) == self.core.hash(other).prefix(bits)
    }

    /// The first `bits` bits, at most 32, of the hash by which the index spreads keys. Rows of keys
    /// that have these bits in common lie beside each other, so that adding many rows in the order
    /// of this number takes less time than in another order.
    #[inline]
    pub fn partition(&self, key: u64, bits: u32) -> u64 {
        self.core.hash(key).prefix(bits.min(32))
    }

    /// Calls `visit` with the rows of a key, and perhaps with others, in no particular order, until
    /// it breaks. No fence. A row that is there all the time, and once, is visited; one that is
    /// added or removed meanwhile may be. Rows are not seen as of one moment: if one is added, and
    /// then another removed, both may be missed.
    ///
    /// `visit` should be quick, because no block of the index is freed meanwhile, and must not
    /// change the index.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a chain of rows is damaged.
    #[inline]
    pub fn find<R>(
        &self,
        key: u64,
        visit: impl FnMut(RowId) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        self.core.find(self.core.hash(key), visit)
    }

    /// Removes a row of a key, once if it is there several times. Returns whether it was there.
    /// Durable with the caller's next fence.
    ///
    /// If a row was added to a key that led to it before, the thread that added it has to fence
    /// before anybody removes one of both: what is removed may be the word that was durable.
    ///
    /// # Errors
    ///
    /// As for [`find`](RowIndex::find).
    pub fn remove(&self, key: u64, row: RowId) -> Result<bool> {
        self.core.remove(self.core.hash(key), row)
    }

    /// Calls `visit` with every row, in no particular order. What other threads change meanwhile
    /// may be seen or not.
    ///
    /// # Errors
    ///
    /// As for [`find`](RowIndex::find).
    pub fn for_each(&self, visit: impl FnMut(RowId)) -> Result<()> {
        self.core.for_each(visit)
    }

    /// Removes the rows for which `keep` is false, and returns how many: those that a crash has
    /// left without their row, say. Durable with the caller's next fence. One that is removed and
    /// inserted again meanwhile may be removed.
    ///
    /// # Errors
    ///
    /// As for [`find`](RowIndex::find).
    pub fn retain(&self, keep: impl FnMut(RowId) -> bool) -> Result<u64> {
        self.core.retain(keep)
    }

    /// The number of the index that a block says it belongs to, in a heap that it shares with
    /// blocks of other kinds; which may say the same of themselves unless their owner knows them.
    pub fn owner_of(medium: &M, block: Block) -> Option<MemberId> {
        Kind::member(medium, block.offset)
    }

    /// Gives the blocks of an index back, but its header: for an owner that could not finish what
    /// it made the index for. Nothing durable may lead to the index, and nobody else may have it.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn abandon(self, lane: &mut Lane<'_, M>) -> Result<()> {
        for offset in self.core.walk()?.blocks.into_iter().flatten() {
            lane.give_back(Block { offset, len: 0 });
        }
        Ok(())
    }

    /// Space that the index takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    /// Checks that the index is consistent, and that exactly the reachable blocks are allocated. No
    /// operation may be in progress. What rows say of themselves is not looked at.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the index is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

impl<M: Medium> Clone for RowIndex<M> {
    fn clone(&self) -> Self {
        RowIndex { core: Arc::clone(&self.core) }
    }
}

impl<M: Medium> fmt::Debug for RowIndex<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowIndex").finish_non_exhaustive()
    }
}

impl<M: Medium> Core<M> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// All locks of a segment.
    fn lock_segment(&self, segment: u64) -> Vec<PauseGuard<'_, ()>> {
        self.locks.lock_all(self.medium(), self.buckets.of(segment))
    }

    fn nodes(&self) -> Nodes<'_, M> {
        Nodes { heap: &self.heap }
    }
}
