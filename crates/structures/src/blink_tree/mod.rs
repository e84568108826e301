//! An ordered map: a B-link tree with fingerprinted leaves.
//!
//! A leaf holds its entries in no order, with one byte of a hash (a *fingerprint*) for each, so
//! that a search compares one key (Oukid and others, *FPTree*, SIGMOD 2016). The fingerprint also
//! selects two preferred lines for the entry in the leaf, so that a search can fetch these together
//! with the leaf's head. Each leaf links to its right neighbour, so that a leaf can be split before
//! the nodes above know of the new one (Lehman and Yao, TODS 1981). An entry shares a cache line
//! with the bits that make it valid. Stores to one line become durable in order, so one flush and
//! one fence make the entry safe (in-cache-line logging, Cohen and others, ASPLOS 2019).
//! docs/ordered-maps.md explains these choices.
//!
//! # What holds
//!
//! - **Fences.** A search needs none. If keys and values have at most eight bytes, an insert, an
//!   update or a removal needs one. Longer entries lie in records and need two; an update to a
//!   value of at most eight bytes needs one all the same. Splitting a leaf costs four more, five
//!   with records. Joining two leaves costs four. Both happen once in about thirty entries. After
//!   opening, the first thread that touches a leaf, even in a search, needs one more, at times two.
//! - **Threads.** Any number read and write. Writers of one leaf take turns. A reader waits for a
//!   writer only while that writer changes a value in the reader's leaf, changes the leaf's range,
//!   clears the leaf, or touches it first after opening. `modify` calls its closure while it holds
//!   the leaf, so that closure must not use the map. Closures of reads must not change the map.
//! - **Order.** Keys are ordered by their [ordered form](crate::OrderedKey): integers as numbers,
//!   bytes and strings byte by byte. A range sees each leaf as it is at one moment.
//! - **Space.** A leaf that becomes nearly empty is joined to a neighbour. Inner nodes are, too.
//! - **Recovery.** All of the structure is persistent, so opening looks only at interrupted
//!   changes. Volatile fields of a leaf, such as its fingerprints, are rebuilt when the leaf is
//!   touched first.
//! - **Lengths.** Keys to 64 KiB, values to 4 GiB. Leaves compare keys by eight bytes behind the
//!   prefix that the leaf's keys share, inner nodes by 24. Keys that differ only further behind
//!   cost another cache miss.
//!
//! # Weak points
//!
//! One thread at a time changes the inner nodes. A backward scan looks each leaf up from the root.
//! [`clear`](BlinkTree::clear) is not atomic. The first `len` after a crash visits every leaf, and
//! blocks other operations meanwhile. Memory with write disturbance is refused.

mod batch;
mod bulk;
mod check;
mod clear;

mod inner;
mod key;
mod layout;
mod leaf;
mod member;
mod methods;
mod ops;
mod ranges;
mod recover;
mod scan;
mod shape;
mod step;
mod walk;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use remanent_pmem::heap::{Usage, Violation};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

use self::layout::Tags;
use crate::batch::Gate;
use crate::batch::edit::completed;
use crate::batch::intents::Intents;
use crate::count::Count;
use crate::key_range::KeyRange;
use crate::map::Map;
use crate::nesting::Nesting;
use crate::options::MapOptions;
use crate::ordered_map::OrderedMap;
use crate::shared::Site;
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Error, Result};

/// An ordered map in persistent memory, shared by any number of threads.
///
/// Clones are handles to one map.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use remanent_pmem::Pool;
/// use remanent_structures::BlinkTree;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let years: BlinkTree<u32, str> = BlinkTree::create(&pool, "years")?;
/// years.insert(&1945, "von Neumann")?;
/// years.insert(&1936, "Turing")?;
/// years.insert(&1843, "Lovelace")?;
/// drop((years, pool)); // or be killed: it makes no difference
///
/// let pool = Pool::options().open(&path)?;
/// let years: BlinkTree<u32, str> = BlinkTree::open(&pool, "years")?;
/// let mut names = Vec::new();
/// years.ascend(1900.., |_, name| {
///     names.push(name.to_owned());
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(names, ["Turing", "von Neumann"]);
/// assert_eq!(years.first()?, Some((1843, "Lovelace".to_owned())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlinkTree<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    core: Arc<Core<K, V, M>>,
}

/// The state of a tree that all handles of a process share.
#[doc(hidden)]
pub struct Core<K: ?Sized, V: ?Sized, M: Medium> {
    heap: Site<M>,
    tags: Tags,
    /// Number of this opening of the pool. A leaf whose lock word has it is ready to be used.
    epoch: u64,
    /// Whether records have checksums. Chosen when the tree is created.
    is_summed: bool,
    /// Held by the thread that changes inner nodes.
    shape: PauseMutex<()>,
    count: Count,
    /// Keys that batches are changing.
    gate: Gate,
    /// Keeps the pool's intents open.
    intents: OnceLock<Arc<Intents<M>>>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// Longest key in bytes, in its ordered form: 65,535. Longer ones are refused with
    /// [`TooLong`](Error::TooLong).
    pub const KEY_LEN_MAX: usize = layout::KEY_LEN_MAX as usize;

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
        Ok(BlinkTree { core: pool.create_root(name)? })
    }

    /// As [`create`](BlinkTree::create), with options that the map keeps.
    ///
    /// # Errors
    ///
    /// As for [`create`](BlinkTree::create).
    pub fn create_with(pool: &Pool<M>, name: &str, options: &MapOptions) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), options))?;
        Ok(BlinkTree { core })
    }

    /// Opens an existing map, in any state that a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        completed(BlinkTree { core: pool.open_root(name)? }, pool)
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](BlinkTree::open) and [`create`](BlinkTree::create).
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

    /// Space that the map takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    /// The number of levels, including that of the leaves, and the number of leaves. For tests;
    /// nobody may change the tree meanwhile.
    #[doc(hidden)]
    pub fn levels_and_leaves(&self) -> Result<(u64, u64)> {
        self.core.levels_and_leaves()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Map<K, V> for BlinkTree<K, V, M> {
    #[inline]
    fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        self.core.get_with(key, use_value)
    }

    #[inline]
    fn modify<R, T: Borrow<V>>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.core.edit(key, |found| {
            let _nesting = Nesting::begin();
            decide(found)
        })
    }

    fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    fn len(&self) -> Result<u64> {
        self.core.len()
    }

    fn is_empty(&self) -> Result<bool> {
        let mut is_empty = true;
        self.core.ascend(.., |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    fn for_each(&self, visit: impl FnMut(&K, &V) -> ControlFlow<()>) -> Result<()> {
        self.core.ascend(.., visit)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> OrderedMap<K, V>
    for BlinkTree<K, V, M>
{
    #[inline]
    fn ascend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.ascend(range.key_bounds(), visit)
    }

    #[inline]
    fn descend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.descend(range.key_bounds(), visit)
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Clone for BlinkTree<K, V, M> {
    fn clone(&self) -> Self {
        BlinkTree { core: Arc::clone(&self.core) }
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for BlinkTree<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("BlinkTree<{}, {}>", K::type_name(), V::type_name());
        f.debug_struct(&name).finish_non_exhaustive()
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium> Core<K, V, M> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }
}
