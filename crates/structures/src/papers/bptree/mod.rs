//! A B+-tree that survives crashes by versions, after the NVB+-Tree of HYRISE-NV.
//!
//! The NVB+-Tree (Schwalb et al., "NVC-Hashmap", IMDM 2015, section 4.2) is an STX B+-tree (Bingmann) that was made
//! persistent as the CDDS B-tree was (Venkataraman et al., FAST 2011): whatever a change writes bears a version, and
//! one word, the *current version*, decides what is there. It is the structure that the paper's hash map is measured
//! against, and is here for that; its layout is described in `layout.rs`.
//!
//! # How it works
//!
//! An entry has a *begin* and an *end*: it is there at the versions from the one to the other. A change works at the
//! version after the current one. It puts a new entry in its place in a leaf that has room, and gives the one that it
//! replaces or removes an end. A leaf that has no room left is copied: the live entries go to one new leaf, or to two
//! when they are many, and the entry of the inner node that led to the old one gets an end, while others begin that
//! lead to the new ones. Should that node have no room either, the same happens to it, and so on up to the root. When
//! few entries are left in a node they are copied to a new one together with those of a neighbour. All of it is
//! flushed, from the leaf up to the highest node that changed, and fenced; then the version is stored, flushed and
//! fenced. That word commits.
//!
//! Within a node the entries are in the order of their keys, and are searched by quarters. A new one moves those behind
//! it one place on, and each line that they cross is made durable before the next one changes; see `shift.rs`.
//!
//! Readers lock nothing. Each works at the version that is current and durable when it begins: what begins later it
//! does not see, and what ends later it still does. So a scan sees one state of the whole tree, however long it takes.
//! A reader that meets a node in which entries are moved waits until they are there. Nodes that were copied, with all
//! old versions in them, are freed when nobody can see them any more.
//!
//! A crash takes away the version that was under way, and no other. Its number is noted as lost when the tree is
//! opened next, for one fence, and never used again; see `recover.rs`.
//!
//! # What is taken from where
//!
//! The paper says that the NVB+-Tree is the STX B+-tree with "versioning similar to" that of CDDS; that what changed is
//! flushed "starting with the updated leaf node and up to the highest changed node" before the version; and that in a
//! split both new nodes, the node above and the version have to be. From this follows:
//!
//! - *The leaf changes in its place* unless it is split: were it copied, the node above would change with every
//!   insert, and the paper names that as what a split adds. So entries bear versions as those of CDDS do, and nodes
//!   have theirs from the entry that leads to them.
//! - *Entries are in order*, as in both trees; the authors were "discussing to also remove the ordering of the nodes
//!   solely to decrease the number of flushes", which is to say that theirs had it. How they made the moves safe they
//!   do not say. Here it takes one flush and one fence for each line, not for each entry.
//! - *Nodes have as many entries as those of STX*: 256 bytes of keys with values or children, eight at the least. So
//!   16 words with words, of 32 bytes each with their versions, and 8 with keys of 40 bytes, of a line each. Inner
//!   nodes hold keys alone, also in a multi-map.
//!
//! What the paper leaves open is meant to cost little: nodes are searched without guesses for the processor to get
//! wrong and with two loads that wait for each other, all lines of the next node are fetched at once, nothing is fenced
//! that need not be. A change that one leaf bears notes no path and enters no lane.
//!
//! # What holds
//!
//! - **Durable linearizability.** When a call returns, its effect survives. No reader sees a version before it is
//!   durable.
//! - **One writer** at a time: the others wait for it. Readers wait for it only in a node in which it moves entries.
//! - **Fences.** `get`, `ascend`, `descend`, `len` 0. A change takes 2, and 1 for each line that entries cross to make
//!   room: with words for keys and values, an insert 4.4 on average, splits included, 2 behind all others, and 10 at
//!   the most. Copies of nodes take none of their own. Entries of more than a line take 2 more each that is moved. The
//!   first change of a process takes one more; and 64 nodes of a size 3 more, to take memory and to free it.
//! - **Recovery** looks at what was in flight and at nothing else; but after 128 crashes in the middle of a change,
//!   none of them followed by enough changes to sweep the tree, it sweeps the whole tree first.
//!
//! # Weak points
//!
//! Writers do not scale. Without flushes an insert takes 1.2 to 3.3 times as long as into our hash map; the paper's tree
//! is faster there than its hash map. Most of that is waiting for memory: half of each entry is versions, and a search
//! crosses more lines than in STX, which keeps the keys of a node together. Here an entry has to lie in one line to be
//! moved safely. Entries that have ended keep their places until the node is copied, so inner nodes are copied more
//! often than theirs are split. To change either would be another design.
//!
//! A new value is a new entry, too, and makes others move. Keys are written on every level. Writers wait for a reader
//! that does not end when about 190 nodes have been copied meanwhile, so a scan should not take its time. Neighbours
//! are joined when a quarter of the one and half of a node together is left, and never share their entries evenly. A
//! process that opened the tree after a crash looks at the entries of a node one by one, and cleans the nodes that it
//! changes, until the tree is opened anew. Searching for one of many
//! entries of one key looks at a child for each entry of that key in an inner node.
//!
//! Keys have one length of 1 to 64 bytes, values one of at most 64. A program with others, such as `BpTree<str, u64>`,
//! does not compile.

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

/// A B+-tree in persistent memory: an [`OrderedMap`] for one writer at a time and any number of readers.
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

/// The part of a tree that exists once a process.
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

    /// Opens an existing tree, whatever state a crash left it in.
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

    /// How many levels there are, that of the leaves included, and how many leaves: for tests.
    #[doc(hidden)]
    pub fn levels_and_leaves(&self) -> Result<(u64, u64)> {
        self.core.levels_and_leaves()
    }
}

/// Everything but [`clear`](Map::clear) is one version, so a visit of many entries sees them as they are at one
/// moment. What is visited is not freed meanwhile, so visits should be quick.
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
