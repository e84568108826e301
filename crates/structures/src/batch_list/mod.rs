//! A persistent list whose writes become durable in batches, so that no operation waits for a
//! flush.
//!
//! After *BOPL*, the batch-optimized persistent list. An element is a key of 64 bits and a value.
//! Elements are written into pages, one behind the other, and linked. An operation flushes nothing.
//! A background thread flushes whole pages and then commits how far the list is *safe*, which means
//! durable.
//!
//! The list to use is [`LogList`]. The paper's other variants, for comparison, are
//! [`AppendList`](crate::papers::AppendList), [`TableList`](crate::papers::TableList) and
//! [`FlushAlwaysList`](crate::papers::FlushAlwaysList); `docs/batching.md` compares them.
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
//! - **A prefix survives.** After a crash the list has the state of some moment after the last
//!   [`sync`](BatchList::sync): all operations before that moment, and none after it (buffered
//!   durable linearizability). Readers may see elements that a crash can still undo. Call `sync`
//!   first if that matters.
//! - **The loss is bounded** in bytes and in time by [`BatchOptions`]; [`lag`](BatchList::lag)
//!   tells how much a crash would undo now. A writer that reaches the bound in bytes makes a batch
//!   safe itself. Without the thread ([`BatchOptions::without_thread`]), batches are made safe only
//!   by such writers, by `sync` and by [`Persister::persist`].
//! - **Fences.** Two a batch: one for pages and links, one for the line that commits end, last
//!   element and number of elements together (a [line transaction](crate::line_tx)). The thread
//!   takes segments of 1 MiB before the writer needs them.
//! - **Errors of the thread** are returned by the next operation, as [`Error::Persister`]. That
//!   operation was carried out, but is not safe unless a later [`sync`](BatchList::sync) or
//!   [`close`](BatchList::close) says so.
//! - **One writer.** A list has one handle at a time, and changing it takes `&mut`. Each change
//!   takes a short lock that only the thread contends for.
//! - **Values** may have any length below 4 GiB. An element that fits into a page does not cross
//!   pages. A longer one begins at a page, and one longer than a segment gets a segment of its own.
//!
//! # Weak points
//!
//! A search walks the list, as in the paper, and so does opening it. The space of removed and
//! replaced elements is not reused. An operation that changes a link which the current batch is
//! making safe waits for that batch. `recover.rs` says why one word replaces the paper's bitmap of
//! damaged pages, page protection and signal handler.

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

/// Operations that every list has.
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
    /// Adds an element at the end, and returns whether it did. A linked list always does, without
    /// looking for the key. An indexed structure does not if the key is present.
    ///
    /// # Errors
    ///
    /// When the value is too long or the pool is full; nothing was changed then. When the thread
    /// has failed ([`Error::Persister`]), or the medium met a fault.
    fn insert(&mut self, key: u64, value: &[u8]) -> Result<bool>;

    /// Passes the value of the first element with this key to `read`.
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

    /// Waits until all operations so far are safe.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn sync(&self) -> Result<()>;

    /// How much a crash would undo.
    fn lag(&self) -> Lag;

    /// As [`sync`](BatchList::sync), and ends the thread. Dropping a list does the same, but
    /// ignores errors.
    ///
    /// # Errors
    ///
    /// As for [`sync`](BatchList::sync).
    fn close(self) -> Result<()>;

    /// Checks that the list and its root are consistent.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the list is the result, not an error.
    fn check(&mut self) -> Result<Vec<Violation>>;
}

/// Operations of a list whose elements can be replaced and removed.
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
    /// Replaces the first element with this key by a new one (the paper's *shadow copy*). Returns
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn update(&mut self, key: u64, value: &[u8]) -> Result<bool>;

    /// Removes the first element with this key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn remove(&mut self, key: u64) -> Result<bool>;
}

/// Operations of a list whose order the caller chooses.
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
    /// Adds an element behind the first one with the key `left`, or at the front when `left` is
    /// `None`. Returns false, and adds nothing, when there is no such element.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchList::insert).
    fn insert_after(&mut self, left: Option<u64>, key: u64, value: &[u8]) -> Result<bool>;
}

/// The batched list: links are changed in place, and undone after a crash.
pub type LogList<M = Mapped> = List<Log, M>;

/// A list in persistent memory, and the right to change it; see the [module](self).
pub struct List<V: Variant, M: Medium = Mapped> {
    /// Dropped before `writer`: the thread has ended before another handle can be opened.
    background: Background,
    writer: Writer<V, M>,
}

/// The right to change a list. There is one for each list.
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

    /// Opens a list, recovering it after a crash.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type or variant, the list is open already, or
    /// it is damaged.
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

    /// A handle by which another thread makes batches safe.
    pub fn persister(&self) -> Persister<V, M> {
        Persister { core: Arc::clone(&self.writer.core) }
    }
}

impl<V: Variant, M: Medium> Drop for List<V, M> {
    fn drop(&mut self) {
        // Errors are ignored here; `close` returns them.
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
/// For a program with a thread of its own for such work, which opens the list [without
/// one](BatchOptions::without_thread).
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
    /// Makes all operations before the call safe, in one batch.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn persist(&self) -> Result<()> {
        self.core.persist()
    }

    /// How much a crash would undo.
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
