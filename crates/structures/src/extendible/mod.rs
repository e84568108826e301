//! A hash map whose changes cost a fence and one cache miss: extendible hashing with buckets of two
//! lines.
//!
//! A directory leads from the first bits of a hash to a segment, and the last bits to one of the
//! segment's buckets (Fagin and others, TODS 1979; for persistent memory CCEH, FAST 2019, and Dash,
//! VLDB 2020). An entry lies in that bucket or in one other, which depends on its hash, so that
//! segments are nearly full before they are split. Keys and values of at most eight bytes lie in
//! the bucket itself, longer ones in a record that the bucket leads to. `layout.rs` describes the
//! layout.
//!
//! # What holds
//!
//! - **Fences.** A search needs none. If keys and values have at most eight bytes, an insert, an
//!   update or a removal needs one. Longer entries lie in records: an insert or an update needs two
//!   then, but one if only a value of at most eight bytes is updated, and a removal one. Where both
//!   buckets of a new entry are full, one more moves another entry out of the way. Splitting a
//!   segment takes two, about every 400 entries, and so does joining two of them.
//! - **Threads.** Readers take no lock, write nothing, and never wait, but for the first touch of a
//!   segment after opening. They see nothing that a crash can undo. Writers lock up to three
//!   buckets. A split or a join makes writers of its segments wait, and nobody else. `modify` calls
//!   its closure while it holds the bucket, so that closure must not use the map.
//! - **Recovery** looks only at what was in flight. The volatile parts of a segment are rebuilt
//!   when it is touched first.
//!
//! # Weak points
//!
//! Entries whose keys and values are words have no checksum. Removals in steps and batches do not
//! join segments. Memory with write disturbance is refused.

mod batch;
mod bucket;
mod check;
mod clear;
mod control;
mod directory;
mod grow;
mod iterate;
mod join;
mod layout;
mod member;
mod methods;
mod multi;
mod nodes;
mod observe;
mod ops;
mod ready;
mod recover;
pub mod rows;
mod segment;
mod step;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use remanent_pmem::heap::{Usage, Violation};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

use self::bucket::Shadows;
use self::directory::Directory;
pub use self::multi::ExtendibleMultiMap;
use self::multi::chain::Dying;
use self::multi::recover::Walks;
pub use self::observe::Changed;
use self::observe::Observer;
use crate::batch::Gate;
use crate::batch::edit::completed;
use crate::batch::intents::Intents;
use crate::count::Count;
use crate::iterate::Iter;
use crate::map::map_of;
use crate::nesting::Nesting;
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// A hash map in persistent memory, shared by any number of threads.
///
/// Clones are handles to one map.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::ExtendibleMap;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let ages: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "ages")?;
/// assert!(ages.insert("Ada", &36)?);
/// assert!(!ages.insert("Ada", &37)?); // present: unchanged
/// ages.update("Ada", &37)?;
/// drop((ages, pool)); // or be killed: it makes no difference
///
/// let pool = Pool::options().open(&path)?;
/// let ages: ExtendibleMap<str, u64> = ExtendibleMap::open(&pool, "ages")?;
/// assert_eq!(ages.get("Ada")?, Some(37));
/// assert_eq!(ages.remove("Ada")?, Some(37));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtendibleMap<K: Key + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    core: Arc<Core<K, V, M>>,
}

/// The state of a map that all handles of a process share.
#[doc(hidden)]
pub struct Core<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool = false> {
    heap: Site<M>,
    seed: u64,
    /// Whether records have checksums. Chosen when the map is created.
    is_summed: bool,
    /// Number of this opening of the pool. A segment that has it is ready to be used.
    epoch: u32,
    directory: Directory,
    /// Held by the thread that changes the directory.
    shape: PauseMutex<()>,
    shadows: Shadows,
    /// Values of a map with several for a key that are being removed.
    dying: Dying,
    walks: Walks,
    count: Count,
    /// Whether `clear` has left something to be freed.
    has_cleared: AtomicBool,
    /// Held by the thread that frees it.
    freeing: PauseMutex<()>,
    /// Keys that batches are changing.
    gate: Gate,
    observer: Observer<K, V>,
    /// Keeps the pool's intents open.
    intents: OnceLock<Arc<Intents<M>>>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> ExtendibleMap<K, V, M> {
    /// Creates an empty map under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        Ok(ExtendibleMap { core: pool.create_root(name)? })
    }

    /// As [`create`](ExtendibleMap::create), with options that the map keeps.
    ///
    /// # Errors
    ///
    /// As for [`create`](ExtendibleMap::create).
    pub fn create_with(pool: &Pool<M>, name: &str, options: &MapOptions) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), options))?;
        Ok(ExtendibleMap { core })
    }

    /// Opens an existing map, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        completed(ExtendibleMap { core: pool.open_root(name)? }, pool)
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](ExtendibleMap::open) and [`create`](ExtendibleMap::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        match Self::open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name),
            opened => opened,
        }
    }

    /// A copy of the value of `key`. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        self.core.get_with(key, V::to_owned)
    }

    /// Passes the value of `key` to `use_value`, without a copy where memory is mapped. No fence.
    ///
    /// The value's space is not freed meanwhile, so `use_value` should be quick. It must not change
    /// the map, or it may wait for itself.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        self.core.get_with(key, use_value)
    }

    /// Whether `key` has a value. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn contains(&self, key: &K) -> Result<bool> {
        Ok(self.core.get_with(key, |_| ())?.is_some())
    }

    /// Adds an entry unless the key is present. Returns whether it was added. One fence for keys
    /// and values of at most 8 bytes, else two.
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: nothing was changed.
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<bool> {
        self.core.edit_unread(key, |is_present| match is_present {
            false => (Change::Put(value), true),
            true => (Change::Keep, false),
        })
    }

    /// Sets the value of `key`. Returns whether the key is new. Fences as for
    /// [`insert`](ExtendibleMap::insert) and [`update`](ExtendibleMap::update).
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert).
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        self.core.edit_unread(key, |is_present| (Change::Put(value), !is_present))
    }

    /// Sets the value of `key` when it is present. Returns whether it was. One fence for a value of
    /// at most 8 bytes, else two.
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert).
    #[inline]
    pub fn update(&self, key: &K, value: &V) -> Result<bool> {
        self.core.edit_unread(key, |is_present| match is_present {
            true => (Change::Put(value), true),
            false => (Change::Keep, false),
        })
    }

    /// Removes the entry of `key` and returns its value. One fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
        self.core.edit(key, |found| (Change::<&V>::Remove, found.map(V::to_owned)))
    }

    /// Removes the entry of `key`. Returns whether there was one. One fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn discard(&self, key: &K) -> Result<bool> {
        self.core.edit_unread(key, |is_present| (Change::<&V>::Remove, is_present))
    }

    /// Reads an entry and changes it as `decide` says, as one step: atomic for other threads and
    /// for a crash.
    ///
    /// `decide` is called while this thread holds the entry's bucket. It must not use the map, and
    /// should not change other maps: see [`Error::Nested`]. It may run again when the map has to
    /// grow first, so it should have no other effect.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::{Change, ExtendibleMap};
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let visits: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "visits")?;
    /// let count = visits.modify("home", |found| {
    ///     let count = found.copied().unwrap_or(0) + 1;
    ///     (Change::Put(count), count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert).
    #[inline]
    pub fn modify<R, T: Borrow<V>>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.core.edit(key, |found| {
            let _nesting = Nesting::begin();
            decide(found)
        })
    }

    /// Removes every entry at once: a crash or another thread sees all of them or none. Returns how
    /// many there were.
    ///
    /// Changing one word removes the entries; writers wait meanwhile. Their space is freed before
    /// the call returns, while other threads go on.
    ///
    /// If the pool is full, entries are removed one by one instead: then a crash, or another
    /// thread, may see some of them gone.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries.
    ///
    /// The first call after a crash has to count, and holds other operations up meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn len(&self) -> Result<u64> {
        self.core.len()
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Passes about `limit` entries to `visit` and returns the cursor for the next call; 0 when
    /// done.
    ///
    /// Begin with cursor 0. Entries that are present from the first call to the last are visited
    /// exactly once, others at most once. The map may grow in between. `visit` must not change the
    /// map, or it may wait for itself.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn scan(&self, cursor: u64, limit: usize, visit: impl FnMut(&K, &V)) -> Result<u64> {
        self.core.scan(cursor, limit, visit)
    }

    /// Copies of all entries, in no particular order; see [`scan`](ExtendibleMap::scan).
    pub fn iter(&self) -> Iter<'_, K, V, Self> {
        Iter::new(self)
    }

    /// Space that the map takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    /// Checks that the map is consistent: every entry is where its hash belongs, no key occurs
    /// twice, and exactly the reachable blocks are allocated. No operation may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

map_of!(ExtendibleMap);

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Clone for ExtendibleMap<K, V, M> {
    fn clone(&self) -> Self {
        ExtendibleMap { core: Arc::clone(&self.core) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for ExtendibleMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("ExtendibleMap<{}, {}>", K::type_name(), V::type_name());
        f.debug_struct(&name).finish_non_exhaustive()
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }
}
