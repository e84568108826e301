//! A list that is made safe in batches: flushes leave the critical path.
//!
//! After *BOPL*, the batch-optimized persistent list. Elements, a key of 64 bits and a value each, are written one
//! behind the other into pages, and linked. What an operation writes is not flushed by it: a thread flushes
//! whole pages behind the writer's back and then commits how far the list is *safe*.
//!
//! The list to use is [`LogList`]. The paper's other variants are [`AppendList`](crate::papers::AppendList),
//! [`TableList`](crate::papers::TableList) and [`FlushAlwaysList`](crate::papers::FlushAlwaysList); `docs/batching.md`
//! compares them.
//!
//! ```
//! use remanent_pmem::Pool;
//! use remanent_structures::BatchOptions;
//! use remanent_structures::batch_list::{BatchList, ChangeList, LinkList, LogList};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("example.pool");
//! let pool = Pool::options().create(&path)?;
//! let mut list = LogList::create(&pool, "queue", BatchOptions::default())?;
//! list.insert(1, b"one")?;
//! list.insert(3, b"three")?;
//! list.sync()?; // safe from here on, whatever happens
//! list.insert_after(Some(1), 2, b"two")?; // safe within 20 ms
//! list.update(3, b"drei")?;
//! list.close()?; // safe, and no thread any more
//! # drop(pool);
//!
//! # let pool = Pool::options().open(&path)?;
//! let list = LogList::open(&pool, "queue", BatchOptions::default())?;
//! let mut keys = Vec::new();
//! list.for_each(|key, _| keys.push(key))?;
//! assert_eq!(keys, [1, 2, 3]);
//! assert_eq!(list.get(3)?.as_deref(), Some(&b"drei"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **A prefix survives.** After a crash the list is as it was at some moment since the last
//!   [`sync`](BatchList::sync): with every operation up to then, and none after it (buffered durable linearizability).
//!   A reader may see what a crash still takes away; who must not, syncs first.
//! - **How much may be lost** is bounded: in bytes and in time by [`BatchOptions`], and told by
//!   [`lag`](BatchList::lag). The bound in bytes is kept by the writer, which makes a batch safe itself when it is
//!   reached. Without the thread ([`BatchOptions::without_thread`]) that, `sync` and [`Persister::persist`] do all of
//!   it.
//! - **Fences.** Two a batch: the pages and links, then the line that commits the end, the last element and the number
//!   of elements together (a [line transaction](crate::line_tx)). Segments of 1 MiB are taken ahead by the thread.
//! - **Errors of the thread** reach the next operation, as [`Error::Persister`]. That operation was done, and is
//!   not safe unless a later [`sync`](BatchList::sync) or [`close`](BatchList::close) says so.
//! - **One writer.** A list has one handle at a time, and changing it takes `&mut`. It takes a lock in passing, for
//!   which only the thread contends.
//! - **Values** have any length below 4 GiB. An element that fits into a page lies in one; a longer one
//!   begins at a page; one longer than a segment gets a segment of its own length.
//!
//! # Weak points
//!
//! A search walks the list: this is the paper's structure, made safe. What removed and replaced elements take is
//! not used again. Opening walks the list, too. An operation waits for the batch that is under way when it changes a
//! link that this batch is to make safe. The paper keeps a bitmap of damaged pages, protects them and catches signals; see `recover.rs`
//! for why one word does.

mod check;
mod core;
pub(crate) mod layout;
mod log;
mod ops;
mod recover;
pub(crate) mod stream;
mod variant;

use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

pub use self::log::Log;
pub use self::variant::{Changeable, Variant};

use self::core::Core;
use self::stream::End;
use crate::background::{Background, Batches};
use crate::{BatchOptions, Error, Lag, Result};

/// What every list can do.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::{BatchList, LogList};
///
/// fn fill(list: &mut impl BatchList) -> remanent_structures::Result<u64> {
///     for key in 0..1000 {
///         list.insert(key, &[7; 100])?; // no flush, no fence
///     }
///     let lag = list.lag(); // what a crash would take away
///     list.sync()?;
///     assert_eq!(list.lag().bytes, 0);
///     Ok(lag.bytes)
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = LogList::create(&pool, "list", BatchOptions::without_thread())?;
/// assert!(fill(&mut list)? >= 100_000);
/// assert_eq!(list.get_with(999, <[u8]>::len)?, Some(100));
/// assert_eq!(list.get(1000)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BatchList {
    /// Adds an element at the end. Whether it did: a linked list always does and does not look for the
    /// key, an indexed structure leaves a key alone that is there.
    ///
    /// # Errors
    ///
    /// When the value is too long or the pool is full: then nothing was changed. When no thread makes batches safe any
    /// more ([`Error::Persister`]), or the medium met a fault.
    fn insert(&mut self, key: u64, value: &[u8]) -> Result<bool>;

    /// Searches for the first element with this key, and has `read` look at its value.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the list is damaged.
    fn get_with<R>(&self, key: u64, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// The value of the first element with this key.
    ///
    /// # Errors
    ///
    /// As for [`get_with`](BatchList::get_with).
    fn get(&self, key: u64) -> Result<Option<Vec<u8>>> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Visits every element, in the list's order.
    ///
    /// # Errors
    ///
    /// As for [`get_with`](BatchList::get_with).
    fn for_each(&self, visit: impl FnMut(u64, &[u8])) -> Result<()>;

    /// Number of elements.
    fn len(&self) -> u64;

    /// Whether there is no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes everything safe that was done so far, and waits for that.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn sync(&self) -> Result<()>;

    /// How much a crash would take away.
    fn lag(&self) -> Lag;

    /// As [`sync`](BatchList::sync), and ends the thread. Dropping a list does the same and keeps the error to
    /// itself.
    ///
    /// # Errors
    ///
    /// As for [`sync`](BatchList::sync).
    fn close(self) -> Result<()>;

    /// Proves that the list and its root are whole.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the list is the result, not an error.
    fn check(&mut self) -> Result<Vec<Violation>>;
}

/// What a list can do whose elements can be changed.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::{BatchList, ChangeList, LogList};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = LogList::create(&pool, "list", BatchOptions::default())?;
/// list.insert(1, b"a value")?;
/// assert!(list.update(1, b"another, of any length")?);
/// assert!(list.remove(1)?);
/// assert!(!list.update(1, b"too late")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ChangeList: BatchList {
    /// Puts a new element into the place of the first one with this key (the paper's *shadow copy*). Whether there
    /// was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn update(&mut self, key: u64, value: &[u8]) -> Result<bool>;

    /// Takes the first element with this key out of the list. Whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn remove(&mut self, key: u64) -> Result<bool>;
}

/// What a list can do whose order is the caller's.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::{BatchList, LinkList, LogList};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = LogList::create(&pool, "list", BatchOptions::default())?;
/// list.insert(5, b"first")?;
/// assert!(list.insert_after(Some(5), 6, b"behind it")?);
/// assert!(list.insert_after(None, 4, b"before all")?);
/// assert!(!list.insert_after(Some(9), 7, b"there is no 9")?);
/// let mut keys = Vec::new();
/// list.for_each(|key, _| keys.push(key))?;
/// assert_eq!(keys, [4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait LinkList: ChangeList {
    /// Adds an element behind the first one with the key `left`, or before all others when there is no `left`.
    /// Whether it did: not when there is no such element.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn insert_after(&mut self, left: Option<u64>, key: u64, value: &[u8]) -> Result<bool>;
}

/// A list with all operations, in batches: links are changed in place, and undone after a crash.
pub type LogList<M = Mapped> = List<Log, M>;

/// A list in persistent memory, and the right to change it; see the [module](self).
pub struct List<V: Variant, M: Medium = Mapped> {
    /// Dropped first: the thread has ended before somebody else gets the right to change the list.
    background: Background,
    writer: Writer<V, M>,
}

/// The right to change a list, of which there is one.
struct Writer<V: Variant, M: Medium> {
    core: Arc<Core<V, M>>,
    end: End,
}

impl<V: Variant, M: Medium> List<V, M> {
    /// Creates an empty list under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full, or no thread can be started.
    pub fn create(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        Self::take(pool.create_root(name)?, name, options)
    }

    /// Opens a list, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type or variant, somebody has the right to change it, or it is
    /// damaged.
    pub fn open(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        Self::take(pool.open_root(name)?, name, options)
    }

    /// Opens a list, or creates an empty one when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](List::open) and [`create`](List::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str, options: BatchOptions) -> Result<Self> {
        match Self::open(pool, name, options) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name, options),
            opened => opened,
        }
    }

    fn take(core: Arc<Core<V, M>>, name: &str, options: BatchOptions) -> Result<Self> {
        let end = core.end.lock(core.stream.medium()).take();
        let end = end.ok_or_else(|| PoolError::RootInUse { name: name.to_owned() })?;
        let writer = Writer { core: Arc::clone(&core), end };
        let options = BatchOptions { background: options.background && V::IS_BATCHED, ..options };
        Ok(List { background: Background::start(core, options)?, writer })
    }

    /// A handle that makes batches safe, for another thread than the writer's.
    pub fn persister(&self) -> Persister<V, M> {
        Persister { core: Arc::clone(&self.writer.core) }
    }
}

impl<V: Variant, M: Medium> Drop for List<V, M> {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        let _ = self.writer.core.close();
    }
}

impl<V: Variant, M: Medium> Drop for Writer<V, M> {
    fn drop(&mut self) {
        *self.core.end.lock(self.core.stream.medium()) = Some(self.end);
    }
}

impl<V: Variant, M: Medium> fmt::Debug for List<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_struct(V::TYPE_NAME);
        list.field("len", &self.len()).field("lag", &self.lag()).finish_non_exhaustive()
    }
}

/// Makes a list's batches safe, from any thread.
///
/// A program that has a thread for such work opens the list [without one](BatchOptions::without_thread).
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::{BatchList, LogList};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = LogList::create(&pool, "list", BatchOptions::without_thread())?;
/// let persister = list.persister();
/// list.insert(1, b"one")?;
/// std::thread::spawn(move || persister.persist()).join().expect("no panic")?;
/// assert_eq!(list.lag().bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Persister<V: Variant, M: Medium = Mapped> {
    core: Arc<Core<V, M>>,
}

impl<V: Variant, M: Medium> Persister<V, M> {
    /// Makes everything safe that was done before the call, in one batch.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn persist(&self) -> Result<()> {
        self.core.persist()
    }

    /// How much a crash would take away.
    pub fn lag(&self) -> Lag {
        Lag { bytes: self.core.unsafe_bytes() }
    }
}

impl<V: Variant, M: Medium> Clone for Persister<V, M> {
    fn clone(&self) -> Self {
        Persister { core: Arc::clone(&self.core) }
    }
}

impl<V: Variant, M: Medium> fmt::Debug for Persister<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persister").field("lag", &self.lag()).finish_non_exhaustive()
    }
}
