//! Changes to several maps of a pool that a crash leaves done or not done as a whole.

pub(crate) mod edit;
mod gate;
pub(crate) mod intents;
mod layout;
mod ops;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::pool::layout::RootId;
use remanent_pmem::{Mapped, Medium, Pool};

pub(crate) use self::gate::Gate;
use self::intents::Intents;
pub(crate) use self::layout::Entry;
use crate::shared::Step;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// Puts and removals in any [`ExtendibleMap`](crate::ExtendibleMap)s,
/// [`HashMap`](crate::HashMap)s and [`BlinkTree`](crate::BlinkTree)s of one pool, atomically and
/// durably.
///
/// After a crash all of a batch is there, or nothing of it. When [`commit`](Batch::commit) returns
/// it is durable. The maps are roots; those of a [shared heap](crate::shared) are refused.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{Batch, BlinkTree, HashMap, Map};
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let users: HashMap<u64, str> = HashMap::create(&pool, "users")?;
/// let by_name: BlinkTree<str, u64> = BlinkTree::create(&pool, "users by name")?;
///
/// let mut batch = Batch::new(&pool)?;
/// batch.put(&users, &7, "Ada")?;
/// batch.put(&by_name, "Ada", &7)?;
/// batch.commit()?;
/// assert_eq!(by_name.get("Ada")?, Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What other threads see
///
/// Readers see each key before or after the change, and may see one key of a batch changed and
/// another one not yet. They never see a change that a crash undoes. Writers of a batch's keys wait
/// until it is done, and so do batches that have a key in common. Batches never wait for each other
/// in a circle.
///
/// Another thread may change an entry between its reading and the commit.
/// [`expect`](Batch::expect) makes a batch depend on an entry.
///
/// # Cost
///
/// A batch of up to 128 operations takes three fences: at most two more than its longest operation.
/// Each further 128 take up to two more. Each value of more than 21 KiB takes two more, and so does
/// a batch with so much in its keys and values together, since keys and values are written twice.
/// Operations that meet, and leaves that are full, take more, as in a [`Step`].
///
/// A thread that holds a [`Step`], or runs inside a closure of `modify` or `try_modify`, cannot
/// commit a batch ([`Error::Nested`]): the batch waits for those who hold lanes. Do not commit one
/// inside of other closures of maps either, such as that of `get_with`: there it is not refused,
/// and may wait for ever.
///
/// # Recovery
///
/// The first batch of a pool makes the root `remanent batches`. It keeps what a batch is going to
/// do, until that is done. A map that a crash left in the middle of a batch is completed when it is
/// opened, before its handle is returned.
///
/// # A full pool
///
/// What 128 operations need is allocated before a batch is committed, but for leaves of trees and
/// segments of extendible maps that have to be divided. If the pool has no room for these, or for
/// the operations beyond 128, [`commit`](Batch::commit) returns [`Error::Unfinished`]: the batch is
/// committed, and a part of it is done. Its keys can be read, and not changed
/// ([`Error::Abandoned`]), until their map is opened again and has room for the rest: all handles
/// are dropped, or the pool is opened again.
pub struct Batch<M: Medium = Mapped> {
    pool: Pool<M>,
    intents: Arc<Intents<M>>,
    operations: Vec<Box<dyn Change<M>>>,
    /// Entries that must be as they are said to be, or nothing is changed.
    expected: Vec<Box<dyn Change<M>>>,
    /// Which operation is about which key: the last one counts.
    index: BTreeMap<(RootId, Vec<u8>), usize>,
}

/// A map that a [`Batch`] can change.
pub trait Batched<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> {
    /// A change of one entry, for `Batch` alone.
    #[doc(hidden)]
    fn change(&self, key: K::Owned, value: Option<V::Owned>, _: Sealed) -> Box<dyn Change<M>>;
}

/// What only this crate can make.
#[doc(hidden)]
#[derive(Debug)]
pub struct Sealed(());

/// A change of one entry that a batch has collected.
#[doc(hidden)]
pub trait Change<M: Medium>: Send {
    /// The heap of the map.
    fn heap(&self) -> &Heap<M>;
    /// Whether the map shares its heap with other structures.
    fn is_member(&self) -> bool;
    /// Closes the key to other writers, or opens it again.
    #[doc(hidden)]
    fn gate(&self) -> GateOf<'_>;
    /// Keeps the pool's intents open as long as the map is.
    fn keep(&self, intents: IntentsOf<M>);
    /// The change, as it is written down.
    fn entry(&self) -> EntryOf;
    /// Whether the map has the entry as the change leaves it.
    fn is_present(&self) -> Result<bool>;
    /// Has a step do it.
    fn add_to<'s>(&'s self, step: &mut Step<'s, M>) -> Result<()>;
}

/// The gate of a map, and the hash of a key.
#[doc(hidden)]
#[derive(Debug)]
pub struct GateOf<'g> {
    pub(crate) gate: &'g Gate,
    pub(crate) key: u64,
}

/// The intents of a pool.
#[doc(hidden)]
pub struct IntentsOf<M: Medium>(pub(crate) Arc<Intents<M>>);

/// A change, as it is written down.
#[doc(hidden)]
#[derive(Debug)]
pub struct EntryOf(pub(crate) Entry);

impl<M: Medium> Batch<M> {
    /// An empty batch. The first one of a pool makes the root that batches are written down in.
    ///
    /// # Errors
    ///
    /// When the pool is full, or has a root of another type under the name `remanent batches`.
    pub fn new(pool: &Pool<M>) -> Result<Self> {
        let intents = Intents::of(pool)?;
        let (operations, expected, index) = (Vec::new(), Vec::new(), BTreeMap::new());
        Ok(Batch { pool: pool.clone(), intents, operations, expected, index })
    }

    /// Sets the value of `key` in `map` with the batch. What the batch was to do with that key
    /// before does not happen.
    ///
    /// # Errors
    ///
    /// [`Error::OtherPool`] when the map lies in another pool. [`Error::SharedHeap`] when it shares
    /// a heap with other structures.
    pub fn put<K, V>(&mut self, map: &impl Batched<K, V, M>, key: &K, value: &V) -> Result<()>
    where
        K: Key + ?Sized,
        V: Stored + ?Sized,
    {
        self.add(map.change(key.to_owned(), Some(value.to_owned()), Sealed(())))
    }

    /// Removes the entry of `key` from `map` with the batch, if there is one. What the batch was to
    /// do with that key before does not happen.
    ///
    /// # Errors
    ///
    /// [`Error::OtherPool`] when the map lies in another pool. [`Error::SharedHeap`] when it shares
    /// a heap with other structures.
    pub fn remove<K, V>(&mut self, map: &impl Batched<K, V, M>, key: &K) -> Result<()>
    where
        K: Key + ?Sized,
        V: Stored + ?Sized,
    {
        self.add(map.change(key.to_owned(), None, Sealed(())))
    }

    /// Makes the batch depend on an entry: unless `key` has exactly this value when the batch is
    /// committed, or has none where `value` is `None`, the batch changes nothing, and
    /// [`commit`](Batch::commit) returns [`Error::Conflict`]. Read the entry again then, and make a
    /// new batch. Values are equal when their stored forms are.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::{Batch, BlinkTree, Error, HashMap, Result};
    ///
    /// /// Gives a user another name, and has the index follow, whatever other threads do.
    /// fn rename(
    ///     pool: &Pool,
    ///     users: &HashMap<u64, str>,
    ///     by_name: &BlinkTree<str, u64>,
    ///     (user, name): (u64, &str),
    /// ) -> Result<bool> {
    ///     loop {
    ///         let Some(former) = users.get(&user)? else { return Ok(false) };
    ///         let mut batch = Batch::new(pool)?;
    ///         batch.expect(users, &user, Some(&*former))?;
    ///         batch.put(users, &user, name)?;
    ///         batch.remove(by_name, &*former)?;
    ///         batch.put(by_name, name, &user)?;
    ///         match batch.commit() {
    ///             Err(Error::Conflict) => {} // another thread was quicker
    ///             done => return done.map(|_| true),
    ///         }
    ///     }
    /// }
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let users: HashMap<u64, str> = HashMap::create(&pool, "users")?;
    /// let by_name: BlinkTree<str, u64> = BlinkTree::create(&pool, "users by name")?;
    /// users.insert(&7, "Ada")?;
    /// by_name.insert("Ada", &7)?;
    /// assert!(rename(&pool, &users, &by_name, (7, "Augusta"))?);
    /// assert_eq!((by_name.get("Ada")?, by_name.get("Augusta")?), (None, Some(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`put`](Batch::put).
    pub fn expect<K, V>(
        &mut self,
        map: &impl Batched<K, V, M>,
        key: &K,
        value: Option<&V>,
    ) -> Result<()>
    where
        K: Key + ?Sized,
        V: Stored + ?Sized,
    {
        let expected = map.change(key.to_owned(), value.map(V::to_owned), Sealed(()));
        self.accept(&*expected)?;
        self.expected.push(expected);
        Ok(())
    }

    /// Whether a map can be part of the batch.
    fn accept(&self, change: &dyn Change<M>) -> Result<()> {
        if !std::ptr::eq(change.heap().medium(), self.pool.medium()) {
            return Err(Error::OtherPool);
        }
        if change.is_member() { Err(Error::SharedHeap) } else { Ok(()) }
    }

    fn add(&mut self, change: Box<dyn Change<M>>) -> Result<()> {
        self.accept(&*change)?;
        change.keep(IntentsOf(Arc::clone(&self.intents)));
        let EntryOf(entry) = change.entry();
        match self.index.get(&(entry.root, entry.key.clone())) {
            Some(&at) => self.operations[at] = change,
            None => {
                self.index.insert((entry.root, entry.key), self.operations.len());
                self.operations.push(change);
            }
        }
        Ok(())
    }

    /// Keys that the batch changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the batch changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Checks that the root of batches is consistent. No batch may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.intents.check()
    }
}

impl<M: Medium> fmt::Debug for Batch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("keys", &self.operations.len()).finish_non_exhaustive()
    }
}
