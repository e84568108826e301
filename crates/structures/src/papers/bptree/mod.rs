//! A B+-tree that keeps versions to survive crashes, after the NVB+-Tree of HYRISE-NV.
//!
//! The NVB+-Tree (Schwalb et al., "NVC-Hashmap", IMDM 2015, section 4.2) is an STX B+-tree
//! (Bingmann) that was made persistent like the CDDS B-tree (Venkataraman et al., FAST 2011).
//! Everything that a change writes has a version, and one word, the *current version*, decides
//! which entries exist. The paper measures its hash map against this tree, and the tree is here for
//! the same comparison. `layout.rs` describes its layout.
//!
//! # How it works
//!
//! An entry has a *begin* and an *end*: it exists in the versions from begin up to end. A change
//! makes the version after the current one, in these steps:
//!
//! 1. If the leaf has room, the new entry is put there. The entry that it replaces, or that is
//!    removed, gets an end.
//! 2. If the leaf has no room, its live entries are copied to a new leaf, or to two when there are
//!    many. In the inner node above, the entry of the old leaf gets an end, and entries for the new
//!    leaves begin. If that node has no room either, it is copied in the same way, and so on up to
//!    the root.
//! 3. If few entries are left in a node, they are copied to a new node together with those of a
//!    neighbour.
//! 4. All of this is flushed, from the leaf up to the highest node that changed, and fenced.
//! 5. The version is stored, flushed and fenced. That word commits the change.
//!
//! The entries of a node are in key order, and are searched by quarters. A new entry moves those
//! behind it by one place, and each line that they cross is made durable before the next one
//! changes; see `shift.rs`.
//!
//! Readers take no lock. Each reads the version that was current and durable when it began: it does
//! not see entries that begin later, and still sees entries that end later. So a scan sees one
//! state of the whole tree, however long it takes. A reader of a node in which entries are moving
//! waits until they have moved. Copied nodes keep the old versions, and are freed when no reader
//! can see them any more.
//!
//! A crash loses the version that was being made, and no other. The next opening notes its number
//! as lost, for one fence, and the number is never used again; see `recover.rs`.
//!
//! # What follows the paper
//!
//! According to the paper, the NVB+-Tree is the STX B+-tree with "versioning similar to" that of
//! CDDS. Changes are flushed "starting with the updated leaf node and up to the highest changed
//! node" before the version. In a split, both new nodes, the node above and the version have to be
//! flushed. Therefore:
//!
//! - *The leaf changes in place* unless it is split. If every change copied the leaf, the node
//!   above would change with every insert, and the paper names that as the additional cost of a
//!   split. So entries have versions as in CDDS, and a node has the versions of the entry that
//!   leads to it.
//! - *Entries are in order*, as in both trees. The authors were "discussing to also remove the
//!   ordering of the nodes solely to decrease the number of flushes", so theirs was ordered. They
//!   do not say how moving entries is crash-safe. Here it takes one flush and one fence for each
//!   line, not for each entry.
//! - *Nodes have as many entries as in STX*: 256 bytes of keys with values or children, and at
//!   least eight entries. So a node has 16 entries if keys and values are words, of 32 bytes each
//!   with their versions, and 8 entries of one line each if keys have 40 bytes. Inner nodes have
//!   only keys, also in a multi-map.
//!
//! Where the paper leaves a choice, the cheaper way is taken. A search of a node has no
//! unpredictable branch, and only two of its loads depend on each other. All lines of the next node
//! are prefetched at once. There is no unnecessary fence. A change of a single leaf records no path
//! and enters no lane.
//!
//! # What holds
//!
//! - **Durable linearizability.** When a call returns, its effect is durable. No reader sees a
//!   version before it is durable.
//! - **One writer** at a time: other writers wait for it. A reader waits for it only at a node in
//!   which entries are moving.
//! - **Fences.** `get`, `ascend`, `descend` and `len` need none. A change needs 2, and 1 for each
//!   line that entries cross to make room. If keys and values are words, an insert needs 4.4 on
//!   average, including splits; 2 behind all other entries; 10 at the most. Copying nodes needs no
//!   further ones. If entries are longer than a line, each moved entry needs 2 more. The first
//!   change of a process needs one more, and each 64 nodes of a size need 3 more, to take and to
//!   free memory.
//! - **Recovery** looks only at what was in flight. The exception: after 128 crashes during a
//!   change, none of them followed by enough changes to sweep the tree, it sweeps the whole tree
//!   first.
//!
//! # Weak points
//!
//! Writers do not scale. Without flushes, an insert takes 1.2 to 3.3 times as long as into our hash
//! map, while the paper's tree is faster than its hash map. Most of that time is waiting for
//! memory: half of each entry is versions, and a search crosses more lines than in STX, which keeps
//! the keys of a node together. Here an entry has to lie in one line, so that it can be moved
//! safely. Ended entries keep their places until the node is copied, so inner nodes are copied more
//! often than STX splits its nodes. Changing either would be another design.
//!
//! A new value is a new entry, too, and moves others. Keys are written on every level. While a
//! reader is active, writers can copy about 190 nodes and then wait for it, so scans should be
//! short. Neighbours are joined when a quarter of one and half of a node in total is left, and
//! never share their entries evenly. A process that opened the tree after a crash looks at the
//! entries of a node one by one, and cleans the nodes that it changes, until the tree is opened
//! again. To find one of many entries of one key, the search looks at a child for each entry of
//! that key in an inner node.
//!
//! All keys have the same length, 1 to 64 bytes, and all values the same, at most 64. Programs with
//! other types, such as `BpTree<str, u64>`, do not compile.

mod check;
mod layout;
mod maintain;
mod multi;
mod node;
mod ops;
mod path;
mod rebuild;
mod recover;
mod scan;
mod shift;
mod version;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::{Heap, Usage, Violation};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Mapped, Medium, Pool};

pub use multi::BpMultiTree;

use self::layout::Layout;
use self::node::Lost;
use self::scan::Range;
use self::shift::Moves;
use self::version::{Published, Writer};
use crate::key_range::KeyRange;
use crate::map::Map;
use crate::ordered_map::OrderedMap;
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Error, Result};

/// A B+-tree in persistent memory: an [`OrderedMap`] for one writer at a time and any number of
/// readers.
///
/// Clones are handles to one tree.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use remanent_pmem::Pool;
/// use remanent_structures::papers::BpTree;
/// use remanent_structures::{Map, OrderedMap};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let rivers: BpTree<u32, u64> = BpTree::create(&pool, "rivers by length")?;
/// rivers.insert(&2857, &1)?;
/// assert!(!rivers.insert(&2857, &2)?); // present: unchanged
/// rivers.put(&1233, &3)?;
/// drop((rivers, pool)); // or be killed: it makes no difference
///
/// let pool = Pool::options().open(&path)?;
/// let rivers: BpTree<u32, u64> = BpTree::open(&pool, "rivers by length")?;
/// assert_eq!(rivers.get(&2857)?, Some(1));
/// assert_eq!(rivers.first()?, Some((1233, 3)));
/// let mut long = Vec::new();
/// rivers.ascend(2000.., |&length, _| {
///     long.push(length);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(long, [2857]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BpTree<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    core: Arc<Core<K, V, M, false>>,
}

/// The state of a tree that all handles of a process share.
pub(crate) struct Core<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> {
    heap: Heap<M>,
    published: Published,
    moves: Moves,
    lost: Lost,
    writer: PauseMutex<Writer>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BpTree<K, V, M> {
    /// Creates an empty tree under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let () = Layout::<K, V, false>::FITS;
        Ok(BpTree { core: pool.create_root(name)? })
    }

    /// Opens an existing tree, in any state that a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let () = Layout::<K, V, false>::FITS;
        Ok(BpTree { core: pool.open_root(name)? })
    }

    /// Opens a tree, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](BpTree::open) and [`create`](BpTree::create).
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

    /// Space that the tree takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    /// The number of levels, including that of the leaves, and the number of leaves; for tests.
    #[doc(hidden)]
    pub fn levels_and_leaves(&self) -> Result<(u64, u64)> {
        self.core.levels_and_leaves()
    }
}

/// Each operation except [`clear`](Map::clear) uses one version, so a visit of many entries sees
/// them as they are at one moment. Nodes are not freed during a visit, so visits should be quick.
impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Map<K, V> for BpTree<K, V, M> {
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

    fn for_each(&self, visit: impl FnMut(&K, &V) -> ControlFlow<()>) -> Result<()> {
        self.core.ascend(&Range::ALL, visit)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> OrderedMap<K, V> for BpTree<K, V, M> {
    fn ascend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.ascend(&Range::of(&range), visit)
    }

    fn descend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.descend_range(&Range::of(&range), visit)
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Clone for BpTree<K, V, M> {
    fn clone(&self) -> Self {
        BpTree { core: Arc::clone(&self.core) }
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for BpTree<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpTree")
            .field("type", &format_args!("{}, {}", K::type_name(), V::type_name()))
            .finish_non_exhaustive()
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }
}
