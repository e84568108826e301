//! A lock-free hash map that survives crashes, after the NVC-Hashmap of HYRISE-NV.
//!
//! The map is a split-ordered list (section 3 of the paper): one sorted list, and an array of buckets
//! that are places in it. Inserting is one compare-exchange on a link, so the linearization point is a
//! single word, and making that word durable makes the operation durable. Growing never moves an
//! entry. The layout is described in `layout.rs`.
//!
//! # What holds
//!
//! - **Durable linearizability.** When a call returns, its effect survives. A reader that meets a link
//!   or a value which is not durable yet makes it durable before it answers.
//! - **Lock-freedom.** No operation waits for another one to finish. Exceptions: more than 31 threads
//!   that write at once wait for a lane; writers wait when 200 removed entries cannot be freed because a
//!   reader stands still in the middle of an operation; [`len`](HashMap::len) holds writers up once, the
//!   first time after a crash.
//! - **Fences.** `get` 0, `insert` 2, `update` of at most 8 bytes 1, of more 2, `remove` 1.
//! - **Recovery** looks at what was in flight and at nothing else.
//!
//! # Damage
//!
//! Every walk ends, with an error if what it meets cannot have been written (`walk.rs`). Values of more than 8 bytes
//! have a checksum that is compared when they are read; what `insert`, `put`, `update` and `discard` replace or remove is
//! not read, so that a damaged value can be replaced. See `docs/recovery.md` for what reading cannot notice.
//!
//! # Weak points
//!
//! An entry is a node of its own: a lookup costs a cache miss for the bucket and one for each node it
//! passes, one and a half on average. Replacing a value of more than 8 bytes writes a new node.
//! Several entries do not change as one.

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
use crate::batch::intents::Intents;
use crate::iterate::Iter;
use crate::map::map_of;
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

/// The part of a map that exists once a process.
#[doc(hidden)]
pub struct Core<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> {
    heap: Site<M>,
    seed: u64,
    /// Whether entries have checksums, by what the map was created with.
    is_summed: bool,
    /// Entries of an older generation are dead: a clear has passed. Follows the durable word.
    generation: AtomicU64,
    /// Generation up to which dead entries were swept out.
    swept: AtomicU64,
    /// Binary logarithm of the number of buckets.
    bits: AtomicU32,
    segments: [AtomicU64; SEGMENT_COUNT],
    /// Next group of buckets of the last segment to link into the list, and which segment that is.
    next_group: AtomicU64,
    /// Groups of the last segment that are linked.
    groups_done: AtomicU64,
    growing: Mutex<()>,
    sweep: Mutex<Sweep>,
    /// Entries added less entries removed since the map was opened, a counter a lane.
    deltas: Box<[Delta]>,
    /// Entries when it was opened, or `UNKNOWN` until somebody asks.
    base: AtomicI64,
    /// About how many entries there were when it was opened; steers growth, nothing else.
    base_estimate: AtomicI64,
    /// Keys that batches are changing.
    gate: Gate,
    /// Keeps the pool's intents open.
    intents: OnceLock<Arc<Intents<M>>>,
    types: PhantomData<fn(&K, &V)>,
}

/// A counter that one lane writes. Aligned to two lines: the prefetcher fetches pairs.
#[derive(Default)]
#[repr(align(128))]
struct Delta {
    entries: AtomicI64,
    /// Entries added since the lane's last share in the map's own work.
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
        HashMap { core: pool.open_root(name)? }.completed(pool)
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
    /// The value's space is not freed meanwhile, so `use_value` should be quick; and it may not
    /// [`clear`](HashMap::clear) the map, which would wait for itself.
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

    /// Sets the value of `key` when it is present. Returns whether it was. One fence for a value of at
    /// most 8 bytes, else two.
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

    /// Reads an entry and decides what becomes of it, as one step that no other thread and no crash
    /// divides.
    ///
    /// `decide` runs again when another thread was quicker, so it should have no other effect; and it may
    /// not call [`len`](HashMap::len) or [`clear`](HashMap::clear), which would wait for it.
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
        decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.core.edit(key, decide)
    }

    /// Removes every entry at once: a crash, or another thread, sees all of them or none. Returns how
    /// many there were, as far as others did not add or remove meanwhile.
    ///
    /// One word decides; the entries' space is then freed one by one, while other threads go on.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries.
    ///
    /// The first call after a crash has to count, and holds other operations up meanwhile: about a
    /// millisecond for ten million entries, but a tenth of a microsecond an entry where power loss was
    /// to be survived.
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

    /// Passes about `limit` entries to `visit` and returns the cursor for the next call; 0 when done.
    ///
    /// Begins at cursor 0. Entries that are there from the first call to the last are visited exactly
    /// once; others once or not at all. The map may grow in between.
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

    /// Buckets at present.
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

    /// Proves that the map is whole: sorted, every entry where its hash belongs, no key twice, and
    /// exactly the reachable blocks allocated. No operation may be in progress.
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

    /// Counts an entry in; only the holder of the lane calls this for it.
    #[inline(always)]
    fn count_in(&self, lane: usize) {
        let delta = &self.deltas[lane];
        // Relaxed: one writer at a time, handed over with the lane; readers want a recent sum.
        delta.entries.store(delta.entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        delta.added.store(delta.added.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts an entry out; only the holder of the lane calls this for it.
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
