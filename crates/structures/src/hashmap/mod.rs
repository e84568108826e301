//! A lock-free hash map that survives crashes, after the NVC-Hashmap of HYRISE-NV.
//!
//! The map is a split-ordered list (section 3 of the paper): one sorted list, and an array of
//! buckets that point into it. An insert is one compare-exchange on a link. So its linearization
//! point is a single word, and making that word durable makes the insert durable. Growing never
//! moves an entry. `layout.rs` describes the layout.
//!
//! # What holds
//!
//! - **Durable linearizability.** When a call returns, its effect survives. A reader that meets a
//!   link or a value that is not durable yet makes it durable before it answers.
//! - **Lock-freedom.** No operation waits for another one to finish, with three exceptions: when
//!   more than 31 threads write at once, the others wait for a lane; when 200 removed entries
//!   cannot be freed because a reader stands still in the middle of an operation, writers wait for
//!   it; and the first [`len`](HashMap::len) after a crash holds writers up once.
//! - **Fences.** `get` 0, `insert` 2, `update` of at most 8 bytes 1, of more 2, `remove` 1.
//! - **Recovery** looks only at what was in flight.
//!
//! # Damage
//!
//! Every walk ends. When it meets something that cannot have been written, it ends with an error
//! (`walk.rs`). Values of more than 8 bytes have a checksum, which is compared when they are read.
//! `insert`, `put`, `update` and `discard` do not read the value that they replace or remove, so
//! that a damaged value can be replaced. `docs/recovery.md` says which damage reads cannot detect.
//!
//! # Weak points
//!
//! Each entry is a node of its own: a lookup costs a cache miss for the bucket and one for each
//! node that it passes, which is one and a half on average. Replacing a value of more than 8 bytes
//! writes a new node. An operation changes one entry. Changes to several survive a crash together
//! only in a [`Batch`](crate::Batch).

mod batch;
mod buckets;
mod check;
mod damage;
mod entry;
mod iterate;
mod layout;
mod list;
mod member;
mod methods;
mod multi;
mod ops;
mod recover;
mod seal;
mod step;
mod walk;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use remanent_pmem::heap::layout::LANE_COUNT;
use remanent_pmem::heap::{Usage, Violation};
use remanent_pmem::{Mapped, Medium, Pool};

pub use multi::HashMultiMap;

use self::iterate::Sweep;
use self::layout::SEGMENT_COUNT;
use crate::batch::Gate;
use crate::batch::edit::completed;
use crate::batch::intents::Intents;
use crate::iterate::Iter;
use crate::map::map_of;
use crate::nesting::Nesting;
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// A map in persistent memory, shared by any number of threads.
///
/// Clones are handles to one map.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::HashMap;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let ages: HashMap<str, u64> = HashMap::create(&pool, "ages")?;
/// assert!(ages.insert("Ada", &36)?);
/// assert!(!ages.insert("Ada", &37)?); // present: unchanged
/// ages.update("Ada", &37)?;
/// drop((ages, pool)); // or be killed: it makes no difference
///
/// let pool = Pool::options().open(&path)?;
/// let ages: HashMap<str, u64> = HashMap::open(&pool, "ages")?;
/// assert_eq!(ages.get("Ada")?, Some(37));
/// assert_eq!(ages.remove("Ada")?, Some(37));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HashMap<K: Key + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    core: Arc<Core<K, V, M, false>>,
}

/// The part of a map that all its handles in a process share.
#[doc(hidden)]
pub struct Core<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> {
    heap: Site<M>,
    seed: u64,
    /// Whether entries have checksums, which is an option that the map keeps.
    is_summed: bool,
    /// The current generation. Entries of older ones are dead, because the map was cleared. Changes
    /// after the durable word.
    generation: AtomicU64,
    /// Generation up to which dead entries were swept out.
    swept: AtomicU64,
    /// Binary logarithm of the number of buckets.
    bits: AtomicU32,
    segments: [AtomicU64; SEGMENT_COUNT],
    /// The next group of buckets to link into the list, and the bits of the map that the group
    /// belongs to.
    next_group: AtomicU64,
    /// Groups of the last segment that are linked.
    groups_done: AtomicU64,
    growing: Mutex<()>,
    sweep: Mutex<Sweep>,
    /// Entries added minus entries removed since the map was opened; one counter for each lane.
    deltas: Box<[Delta]>,
    /// Entries when the map was opened, or `UNKNOWN` until they are counted.
    base: AtomicI64,
    /// Estimate of the entries when the map was opened. It controls growth only.
    base_estimate: AtomicI64,
    /// Keys that batches are changing.
    gate: Gate,
    /// Keeps the pool's intents open.
    intents: OnceLock<Arc<Intents<M>>>,
    types: PhantomData<fn(&K, &V)>,
}

/// A counter that one lane writes. Aligned to two lines, because the prefetcher fetches pairs of
/// lines.
#[derive(Default)]
#[repr(align(128))]
struct Delta {
    entries: AtomicI64,
    /// Entries added since the lane last did a share of the map's maintenance.
    added: AtomicU32,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> HashMap<K, V, M> {
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
        Ok(HashMap { core: pool.create_root(name)? })
    }

    /// As [`create`](HashMap::create), with options that the map keeps.
    ///
    /// # Errors
    ///
    /// As for [`create`](HashMap::create).
    pub fn create_with(pool: &Pool<M>, name: &str, options: &MapOptions) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), options))?;
        Ok(HashMap { core })
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
        completed(HashMap { core: pool.open_root(name)? }, pool)
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](HashMap::open) and [`create`](HashMap::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        match Self::open(pool, name) {
            Err(Error::Pool(remanent_pmem::Error::NoSuchRoot { .. })) => Self::create(pool, name),
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
    /// The value's space is not freed meanwhile, so `use_value` should be quick. It may not
    /// [`clear`](HashMap::clear) the map, which would wait for it.
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

    /// Adds an entry unless the key is present. Returns whether it was added. Two fences.
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

    /// Sets the value of `key`. Returns whether the key is new. At most two fences.
    ///
    /// # Errors
    ///
    /// As for [`insert`](HashMap::insert).
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        self.core.edit_unread(key, |is_present| (Change::Put(value), !is_present))
    }

    /// Sets the value of `key` when it is present. Returns whether it was. One fence for a value of
    /// at most 8 bytes, else two.
    ///
    /// # Errors
    ///
    /// As for [`insert`](HashMap::insert).
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
    /// `decide` runs again when another thread changed the entry first, so it should have no other
    /// effect. It should not change maps, count or clear them, or commit a batch: where that would
    /// have to wait for others, it is refused with [`Error::Nested`], since they may wait for the
    /// closure.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::{Change, HashMap};
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let visits: HashMap<str, u64> = HashMap::create(&pool, "visits")?;
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
    /// As for [`insert`](HashMap::insert).
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
    /// many there were; the number is exact unless other threads add or remove entries meanwhile.
    ///
    /// Changing one word removes the entries. Their space is then freed one by one, while other
    /// threads go on.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries.
    ///
    /// The first call after a crash has to count, and holds other operations up meanwhile. That
    /// takes about a millisecond for ten million entries, or a tenth of a microsecond per entry in
    /// a pool that survives a loss of power.
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
    /// exactly once, others at most once. The map may grow in between.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn scan(&self, cursor: u64, limit: usize, visit: impl FnMut(&K, &V)) -> Result<u64> {
        self.core.scan(cursor, limit, visit)
    }

    /// Copies of all entries, in no particular order; see [`scan`](HashMap::scan).
    pub fn iter(&self) -> Iter<'_, K, V, Self> {
        Iter::new(self)
    }

    /// Current number of buckets.
    pub fn bucket_count(&self) -> u64 {
        1 << self.core.bits()
    }

    /// Space that the map takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    #[cfg(test)]
    pub(crate) fn heap(&self) -> &remanent_pmem::heap::Heap<M> {
        &self.core.heap
    }

    /// Checks that the map is consistent: the list is sorted, every entry is where its hash
    /// belongs, no key occurs twice, and exactly the reachable blocks are allocated. No operation
    /// may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

map_of!(HashMap);

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Clone for HashMap<K, V, M> {
    fn clone(&self) -> Self {
        HashMap { core: Arc::clone(&self.core) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for HashMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMap")
            .field("type", &format_args!("{}, {}", K::type_name(), V::type_name()))
            .field("buckets", &self.bucket_count())
            .finish_non_exhaustive()
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }

    #[inline(always)]
    fn bits(&self) -> u32 {
        // Acquire: pairs with the Release in `grow`; the segment's offset was stored before.
        self.bits.load(Ordering::Acquire)
    }

    /// Counts an added entry. Only the holder of the lane may call this for it.
    #[inline(always)]
    fn count_in(&self, lane: usize) {
        let delta = &self.deltas[lane];
        // Relaxed: only the lane's holder writes, and the lane is handed over with what it wrote.
        // Readers need only a recent sum.
        delta.entries.store(delta.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        delta.added.store(delta.added.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a removed entry. Only the holder of the lane may call this for it.
    #[inline(always)]
    fn count_out(&self, lane: usize) {
        let delta = &self.deltas[lane];
        // Relaxed: as in `count_in`.
        delta.entries.store(delta.entries.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn delta(&self) -> i64 {
        // Relaxed: as in `count_in`.
        self.deltas.iter().map(|delta| delta.entries.load(Ordering::Relaxed)).sum()
    }

    fn new_deltas() -> Box<[Delta]> {
        (0..LANE_COUNT).map(|_| Delta::default()).collect()
    }
}
