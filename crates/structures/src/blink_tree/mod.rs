//! An ordered map: a B-link tree with fingerprinted leaves.
//!
//! Leaves hold entries in no order, and a byte of a hash for each, so that a search looks at one entry
//! (fingerprints; Oukid and others, *FPTree*, SIGMOD 2016). That byte also tells the line of the leaf where an entry
//! belongs if there is room, so that this line is fetched together with the leaf's head. Each leaf leads to the one on
//! its right, so that it can be divided before the nodes above know of it (Lehman and Yao, TODS 1981). An entry lies in
//! one cache line together with the bits that make it valid, which the line's order of stores makes safe by a single
//! flush and fence (as the logging inside of cache lines of Cohen and others, ASPLOS 2019). docs/ordered-maps.md says
//! why these.
//!
//! # What holds
//!
//! - **Fences.** None for a search. One for an insert, an update or a removal of keys and values of at most eight
//!   bytes. Two where there is a record: longer ones; but one for an update to a value of at most eight bytes. Dividing
//!   a leaf costs four more, five where there are records; joining two of them four; each once for about thirty
//!   entries. And one, at times two, for whoever touches a leaf first after opening, searches too.
//! - **Threads.** Any number read and write. Writers of one leaf take turns; readers wait for none of them, but for
//!   the one that is changing a value in their leaf, or the leaf's range, is clearing it, or touches it first after
//!   opening. What a closure is given is used under that right, so the closure must not use the map.
//! - **Order.** Of the keys' [ordered form](crate::OrderedKey): integers as numbers, bytes and strings byte by byte.
//!   Each leaf of a range is seen as it is at one moment.
//! - **Space.** A leaf that becomes nearly empty is joined to a neighbour, and so are nodes above.
//! - **Recovery.** Everything is persistent, so opening looks at what was in the middle of a change alone. What is
//!   volatile in a leaf, such as its fingerprints, is made anew when the leaf is touched first.
//! - **Lengths.** Keys to 64 KiB, values to 4 GiB. Keys of a leaf are compared behind what they have in common, and
//!   those of inner nodes by 24 bytes there: keys that differ further behind cost another miss.
//!
//! # Weak points
//!
//! The nodes above the leaves are changed by one thread at a time. A range that is read backwards looks its next leaf up
//! from the root. [`clear`](BlinkTree::clear) is not one step. The first `len` after a crash visits every leaf, and
//! holds up other operations meanwhile. Memory with write disturbance is refused.

mod batch;
mod bulk;
mod check;
mod clear;
mod count;
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

use self::count::Count;
use self::layout::Tags;
use crate::batch::Gate;
use crate::batch::intents::Intents;
use crate::key_range::KeyRange;
use crate::map::Map;
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

/// The part of a tree that exists once a process.
#[doc(hidden)]
pub struct Core<K: ?Sized, V: ?Sized, M: Medium> {
    heap: Site<M>,
    tags: Tags,
    /// Which opening of the pool this is; leaves that say so are ready to be used.
    epoch: u64,
    /// Whether records have checksums, by what the tree was created with.
    is_summed: bool,
    /// Held by whoever changes the inner nodes.
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
        BlinkTree { core: pool.open_root(name)? }.completed(pool)
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

    /// How many levels there are, that of the leaves included, and how many leaves: for tests. Nobody may change the
    /// tree meanwhile.
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
        decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.core.edit(key, decide)
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
