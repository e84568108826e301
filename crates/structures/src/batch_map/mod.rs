//! A hash map whose writes are acknowledged at once and become safe in batches.
//!
//! The batch-optimized persistent list (BOPL) takes flushes off the critical path, but it walks the
//! list for every search, update and removal. Its authors leave an index as future work; this map
//! adds it. Records are appended to a log without a flush. A thread makes appended records safe,
//! with one fence a batch. An index in volatile memory leads from each key to its newest record.
//!
//! # What holds
//!
//! - **Prefix.** A crash leaves a prefix of the history: if an operation survives, so does every
//!   operation that was acknowledged before it began (buffered durable linearizability). Everything
//!   acknowledged before the last [`sync`](BatchMap::sync) survives, and everything further back
//!   than [`BatchOptions::lag_bytes`]. Operations older than [`BatchOptions::lag_age`] survive as
//!   far as the thread keeps up.
//! - **Fences.** None on the critical path; one a batch. A batch has many pages, unless its time
//!   limit comes first.
//! - **Threads.** Any number read and write. Keys are spread over 256 shards, and an operation
//!   holds the lock of its key's shard. Closures (of `get_with`, `modify`, `scan`) read the value
//!   in place under that lock, so a closure must not use the map.
//! - **Space** of replaced and removed values is reclaimed online: compaction empties segments of
//!   the log that have little live data. The log takes at most twice the live bytes plus 16
//!   segments: a writer that finds it longer compacts, or waits for a writer that does, before its
//!   write returns ([`BatchMap::space`]). Two segments and one in 32 are kept in reserve, so that
//!   entries can be removed from a full pool.
//! - **Recovery** reads the log once to rebuild the index, and compares every record with its
//!   checksum (docs/batching.md).
//! - **Damage** is reported. A record has a checksum of key and value. It is compared when the
//!   value is read, and before compaction moves the record: [`Error::Checksum`]. Damage to safe
//!   records is not mistaken for a log end that a crash has torn.
//!
//! # Why is the index volatile?
//!
//! A persistent index would change in other places than the log's end, and each of these changes
//! would need flushes in an order of its own. Those are the flushes that batching saves. A
//! persistent index would save the rebuilding on opening, and would slow down every write.
//!
//! # Weak points
//!
//! The time to open is proportional to the size of the log. The index takes 21 to 43 bytes of
//! volatile memory for each entry. Replacing a value writes a whole new record, however short the
//! change. A thread that waits for a full disk or for a growing shard blocks the others that want
//! the same shard.

mod balance;
mod check;
mod compact;
mod index;
mod layout;
mod list;
mod log;
mod methods;
mod ops;
mod pace;
mod record;
mod recover;
mod space;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

pub use self::balance::Space;
use self::index::SHARD_BITS;
use self::layout::SEGMENT_LEN_MAX;
use self::log::Log;
use self::ops::{Hashed, Shard, When};
use crate::background::{Background, BatchOptions, Batches, Lag, lock_patiently};
use crate::iterate::Iter;
use crate::map::map_of;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 2;

/// A map in persistent memory whose writes become safe in batches; see the [module](self).
///
/// Clones are handles to one map, for any number of threads.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{BatchMap, BatchOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let visits: BatchMap<str, u64> = BatchMap::create(&pool, "visits", BatchOptions::default())?;
/// visits.put("/", &1)?; // acknowledged; safe within the bound
/// visits.put("/about", &1)?;
/// visits.sync()?; // safe now
/// assert_eq!(visits.lag().bytes, 0);
/// drop((visits, pool));
///
/// let pool = Pool::options().open(&path)?;
/// let visits: BatchMap<str, u64> = BatchMap::open(&pool, "visits", BatchOptions::default())?;
/// assert_eq!(visits.get("/")?, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BatchMap<K: Key + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    /// Dropped before `root`: dropping it waits for the thread, which shares the core.
    background: Arc<Background>,
    root: Arc<Root<K, V, M>>,
}

/// The state of a map that all handles of a process share, under the root's type.
struct Root<K: ?Sized, V: ?Sized, M: Medium> {
    core: Arc<Core<M>>,
    background: Mutex<Weak<Background>>,
    types: PhantomData<fn(&K, &V)>,
}

/// The map without the types of its keys and values.
struct Core<M: Medium> {
    log: Log<M>,
    seed: u64,
    shards: Box<[Padded]>,
    /// Held by the thread that empties a segment or clears the map.
    compacting: PauseMutex<()>,
    /// How many times a segment was emptied.
    relieved: AtomicU64,
}

/// Aligned to two lines, because the prefetcher fetches pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded(PauseMutex<Shard>);

impl<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static, M: Medium> BatchMap<K, V, M> {
    /// Creates an empty map under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken, the pool is full, or the thread cannot be started.
    pub fn create(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        let segment_len =
            options.segment_len.next_multiple_of(CHUNK_LEN).clamp(CHUNK_LEN, SEGMENT_LEN_MAX);
        let create = |heap| Core::create(heap, segment_len).map(Root::of);
        Self::with_thread(pool.create_root_with(name, create)?, options)
    }

    /// Opens an existing map, in any state that a crash left it in. Takes about 0.12 µs for each
    /// record.
    ///
    /// If the map is already open in this process, it keeps the options that it has.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, the map is damaged, or the thread cannot
    /// be started.
    pub fn open(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        Self::with_thread(pool.open_root(name)?, options)
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](BatchMap::open) and [`create`](BatchMap::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        match Self::open(pool, name, options) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name, options),
            opened => opened,
        }
    }

    fn with_thread(root: Arc<Root<K, V, M>>, options: BatchOptions) -> Result<Self> {
        let background = {
            let mut shared = root.background.lock().unwrap_or_else(PoisonError::into_inner);
            match shared.upgrade() {
                Some(background) => background,
                None => {
                    let started = Arc::new(Background::start(Arc::clone(&root.core), options)?);
                    *shared = Arc::downgrade(&started);
                    started
                }
            }
        };
        Ok(BatchMap { background, root })
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> BatchMap<K, V, M> {
    #[inline]
    fn core(&self) -> &Core<M> {
        &self.root.core
    }

    #[inline]
    fn hashed<R>(&self, key: &K, action: impl FnOnce(Hashed<'_>) -> R) -> R {
        let hash = key.hash(self.core().seed);
        key.with_bytes(|bytes| action(Hashed { hash, bytes }))
    }

    /// Ends a write: wakes the thread if there is a batch for it, or makes the batch safe itself
    /// when the bound is reached.
    #[inline]
    fn written<R>(&self, result: R) -> Result<R> {
        let core = self.core();
        if self.background.note(core.log.unsafe_bytes())? {
            core.log.persist()?;
            if !self.background.options().background {
                core.tidy()?;
            }
        }
        Ok(result)
    }

    /// A copy of the value of a key.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        self.get_with(key, V::to_owned)
    }

    /// Passes the value of a key to `use_value`, without a copy. `use_value` must not use the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        self.hashed(key, |key| self.core().get_with(key, |bytes| V::with_stored(bytes, use_value)))
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn contains(&self, key: &K) -> Result<bool> {
        self.hashed(key, |key| self.core().contains(key))
    }

    fn write(&self, key: &K, value: &V, when: When) -> Result<bool> {
        let had_value =
            self.hashed(key, |key| value.with_bytes(|value| self.core().write(key, value, when)))?;
        self.written(had_value)
    }

    /// Adds an entry unless the key is present. Returns whether it was added.
    ///
    /// # Errors
    ///
    /// When the pool is full, or key or value is too long: nothing was changed. When no thread
    /// makes batches safe any more ([`Error::Persister`]), or the medium met a fault: the map was
    /// changed, and the change may not become safe.
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<bool> {
        Ok(!self.write(key, value, When::Absent)?)
    }

    /// Sets the value of a key. Returns whether the key is new.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert).
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        Ok(!self.write(key, value, When::Always)?)
    }

    /// Sets the value of a key when it is present. Returns whether it was.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert).
    pub fn update(&self, key: &K, value: &V) -> Result<bool> {
        self.write(key, value, When::Present)
    }

    /// Removes the entry of a key and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert). The pool counts as full only when the reserve is used
    /// up, too.
    pub fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
        let removed = self.hashed(key, |key| {
            self.core().remove_with(key, |bytes| V::with_stored(bytes, V::to_owned))
        })?;
        self.written(removed)
    }

    /// Removes the entry of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`remove`](BatchMap::remove).
    pub fn discard(&self, key: &K) -> Result<bool> {
        let removed = self.hashed(key, |key| self.core().remove(key))?;
        self.written(removed)
    }

    /// Reads an entry and decides what becomes of it, as one step. `decide` must not use the map.
    /// It runs again when the pool was full and room could be made.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert).
    pub fn modify<R, T: Borrow<V>>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        let change = |found: Option<&[u8]>| match found {
            Some(bytes) => V::with_stored(bytes, |value| decide(Some(value))),
            None => decide(None),
        };
        let modified = self.hashed(key, |key| {
            self.core().modify(key, change, |value, put| value.borrow().with_bytes(put))
        })?;
        self.written(modified)
    }

    /// Removes all entries as one step, and returns how many there were. When it returns, the
    /// removal is safe, and so is everything before it; the pool has the space again.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the reserve of a full pool is used up.
    pub fn clear(&self) -> Result<u64> {
        let count = self.core().clear()?;
        self.written(count)
    }

    /// Number of entries.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn len(&self) -> Result<u64> {
        let count = self.core().count();
        self.core().log.heap().verify()?;
        Ok(count)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits about `limit` entries from `cursor` on. Returns the cursor for the next call, or 0
    /// after the last entry. An entry that is there throughout a scan from 0 to 0 is visited
    /// exactly once. `visit` must not use the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn scan(&self, cursor: u64, limit: usize, mut visit: impl FnMut(&K, &V)) -> Result<u64> {
        self.core().scan(cursor, limit, |key, value| {
            K::with_stored(key, |key| V::with_stored(value, |value| visit(key, value)));
        })
    }

    /// Copies of all entries, in no particular order.
    pub fn iter(&self) -> Iter<'_, K, V, Self> {
        Iter::new(self)
    }

    /// Waits until everything that was acknowledged before the call is safe.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: nothing more is known to be safe then.
    pub fn sync(&self) -> Result<()> {
        self.core().log.sync()
    }

    /// How many bytes are not safe yet.
    pub fn lag(&self) -> Lag {
        Lag { bytes: self.core().log.unsafe_bytes() }
    }

    /// The space of the map's segments, and how much of it is live.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::{BatchMap, BatchOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let map: BatchMap<u64, u64> = BatchMap::create(&pool, "map", BatchOptions::default())?;
    /// map.put(&1, &2)?;
    /// let space = map.space();
    /// assert_eq!(space.live, 24 + 8 + 8);
    /// assert!(space.segments <= space.bound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn space(&self) -> Space {
        self.core().log.segments.balance.space()
    }

    /// The options that the map uses.
    pub fn options(&self) -> BatchOptions {
        *self.background.options()
    }

    /// Empties segments of which less than half is live, until there is none. The thread does the
    /// same in the background.
    ///
    /// # Errors
    ///
    /// When the pool is full, a record has changed since it was written, or the medium met a fault.
    /// A segment with a changed record is left as it is.
    pub fn compact(&self) -> Result<()> {
        self.core().log.segments.forget_damaged();
        while self.core().compact_sparse()? {}
        Ok(())
    }

    /// Syncs and gives up this handle. Dropping the last handle syncs too, but cannot report a
    /// failure.
    ///
    /// # Errors
    ///
    /// As for [`sync`](BatchMap::sync).
    pub fn close(self) -> Result<()> {
        self.sync()
    }

    /// Proves that the map is consistent. Nobody may change it meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core().check()
    }
}

map_of!(BatchMap);

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Clone for BatchMap<K, V, M> {
    fn clone(&self) -> Self {
        BatchMap { background: Arc::clone(&self.background), root: Arc::clone(&self.root) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for BatchMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("BatchMap<{}, {}>", K::type_name(), V::type_name());
        f.debug_struct(&name).field("lag", &self.lag()).finish_non_exhaustive()
    }
}

impl<K, V, M> RootObject<M> for Root<K, V, M>
where
    K: Key + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    M: Medium,
{
    fn root_type() -> RootType {
        let name = format!("BatchMap<{}, {}>", K::type_name(), V::type_name());
        RootType { name, layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Core::create(heap, SEGMENT_LEN_MAX).map(Self::of)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        Core::open(heap, |bytes, seed| K::with_stored(bytes, |key| key.hash(seed))).map(Self::of)
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium> Root<K, V, M> {
    fn of(core: Core<M>) -> Self {
        Root { core: Arc::new(core), background: Mutex::new(Weak::new()), types: PhantomData }
    }
}

impl<M: Medium> Core<M> {
    fn new(log: Log<M>, seed: u64) -> Self {
        Core {
            log,
            seed,
            shards: (0..1 << SHARD_BITS).map(|_| Padded::default()).collect(),
            compacting: PauseMutex::new(()),
            relieved: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn medium(&self) -> &M {
        self.log.medium()
    }
}

impl<M: Medium> Batches for Core<M> {
    fn unsafe_bytes(&self) -> u64 {
        self.log.unsafe_bytes()
    }

    fn persist(&self) -> Result<()> {
        self.log.persist()
    }

    fn tidy(&self) -> Result<bool> {
        let is_full = |error: &Error| error.is_full();
        let prepared = {
            // `check` holds this lock: no segment may be added while it runs.
            let _compacting = lock_patiently(&self.compacting, self.log.heap().medium());
            self.log.prepare_ahead()
        };
        match prepared {
            Err(error) if !is_full(&error) => return Err(error),
            // The pool is full. The writer that needs the segment will see that, and make room.
            _ => {}
        }
        match self.compact_sparse() {
            Err(error) if is_full(&error) => Ok(false),
            // Damage is reported by reads of the record and by `check`. Other segments can still be
            // emptied.
            Err(error) if error.is_damage() => Ok(true),
            compacted => compacted,
        }
    }
}

impl<M: Medium> Drop for Core<M> {
    /// Makes everything safe. The heap is quiesced after this.
    fn drop(&mut self) {
        if self.medium().fault().is_none() && !std::thread::panicking() {
            // Nobody is left to tell; what is not safe is lost as by a crash.
            let _ = self.leave();
        }
    }
}
