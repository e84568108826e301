//! Changes to several maps of a pool that a crash leaves done or not done as a whole.

mod gate;
pub(crate) mod intents;
mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::pool::layout::RootId;
use remanent_pmem::{Mapped, Medium, Pool};

pub(crate) use self::gate::Gate;
use self::intents::{Intents, Slot};
pub(crate) use self::layout::Entry;
use crate::shared::Step;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// Puts and removals in any [`HashMap`](crate::HashMap)s and [`BlinkTree`](crate::BlinkTree)s of one pool, as one atomic and
/// durable step.
///
/// After a crash all of a batch is there, or nothing of it. When [`commit`](Batch::commit) returns it is durable.
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
/// until it is done, and so do batches that have a key in common; batches never wait for each other
/// in a circle.
///
/// A batch has no conditions: what was read before may have changed by the time of the commit. If
/// an operation depends on a value, such as the removal of an index entry that the value names, hold
/// a lock of the program's from the read to the commit, in all threads that write these keys.
///
/// # Cost
///
/// At most two fences more than the operation of the batch that takes most: three for words, and three for longer keys and
/// values, however many operations there are. As in a [`Step`], operations that get into each other's way, and leaves that are
/// full, take more. Up to 128 operations share their fences; a longer batch takes two more for each further 128. Keys and
/// values are written twice.
///
/// # Recovery
///
/// The first batch of a pool makes the root `remanent batches`. It keeps what a batch is going to do, until that is done. A map
/// that a crash left in the middle of a batch is completed when it is opened, before its handle is returned.
pub struct Batch<M: Medium = Mapped> {
    pool: Pool<M>,
    intents: Arc<Intents<M>>,
    operations: Vec<Box<dyn Change<M>>>,
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
    /// Closes the key to other writers, or opens it again.
    #[doc(hidden)]
    fn gate(&self) -> GateOf<'_>;
    /// Keeps the pool's intents open as long as the map is.
    fn keep(&self, intents: IntentsOf<M>);
    /// The change, as it is written down.
    fn entry(&self) -> EntryOf;
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
        let (operations, index) = (Vec::new(), BTreeMap::new());
        Ok(Batch { pool: pool.clone(), intents, operations, index })
    }

    /// Sets the value of `key` in `map` with the batch. What the batch was to do with that key before does not happen.
    ///
    /// # Errors
    ///
    /// [`Error::OtherPool`] when the map lies in another pool.
    pub fn put<K, V>(&mut self, map: &impl Batched<K, V, M>, key: &K, value: &V) -> Result<()>
    where
        K: Key + ?Sized,
        V: Stored + ?Sized,
    {
        self.add(map.change(key.to_owned(), Some(value.to_owned()), Sealed(())))
    }

    /// Removes the entry of `key` from `map` with the batch, if there is one. What the batch was to do with that key before
    /// does not happen.
    ///
    /// # Errors
    ///
    /// [`Error::OtherPool`] when the map lies in another pool.
    pub fn remove<K, V>(&mut self, map: &impl Batched<K, V, M>, key: &K) -> Result<()>
    where
        K: Key + ?Sized,
        V: Stored + ?Sized,
    {
        self.add(map.change(key.to_owned(), None, Sealed(())))
    }

    fn add(&mut self, change: Box<dyn Change<M>>) -> Result<()> {
        if !std::ptr::eq(change.heap().medium(), self.pool.medium()) {
            return Err(Error::OtherPool);
        }
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

    /// Does everything, durably. Answers for each key, in the order in which they were first named, whether it had a value
    /// before.
    ///
    /// # Errors
    ///
    /// When the pool is full, an entry is too long, or the medium met a fault: nothing was changed. With
    /// [`Error::Unfinished`] the batch is committed, and is completed when its maps are opened next.
    pub fn commit(self) -> Result<Vec<bool>> {
        if self.operations.is_empty() {
            return Ok(Vec::new());
        }
        // Before anything is held that others may wait for.
        let slot = self.intents.take_slot()?;
        let closed = ClosedKeys::close(self.pool.medium(), &self.operations);
        for heap in self.heaps().into_values() {
            // Who wants to write to these keys and has not seen that they are closed.
            heap.wait_for_lanes();
        }
        let done = self.commit_closed(&slot);
        if matches!(done, Err(Error::Unfinished { .. })) {
            // Nobody may build on keys that the next opening changes.
            closed.keep_closed();
            slot.keep();
        }
        done
    }

    /// The heaps of all maps, by their roots: in the order in which every batch enters them.
    fn heaps(&self) -> BTreeMap<RootId, &Heap<M>> {
        self.operations.iter().map(|change| (change.heap().owner(), change.heap())).collect()
    }

    fn commit_closed(&self, slot: &Slot<'_, M>) -> Result<Vec<bool>> {
        let entries: Vec<Entry> = self.operations.iter().map(|change| change.entry().0).collect();
        let mut heaps = self.heaps();
        heaps.insert(self.intents.heap().owner(), self.intents.heap());
        let mut presence = Vec::with_capacity(entries.len());
        let mut parts = self.operations.chunks(Step::<M>::OPERATIONS_MAX);
        let mut step = Step::enter_all(heaps.values().copied());
        for change in parts.next().unwrap_or_default() {
            change.add_to(&mut step)?;
        }
        let lane = step.lane(self.intents.heap());
        let intent = self.intents.write(lane, slot, &entries)?;
        // From here on the batch is committed: it is done now, or when the maps are opened next.
        let unfinished = |error: Error| Error::Unfinished { source: Box::new(error) };
        loop {
            step.publish().map_err(unfinished)?;
            presence.extend(step.presence());
            let Some(part) = parts.next() else { break };
            step.leave().map_err(unfinished)?;
            step = Step::enter_all(heaps.values().copied());
            for change in part {
                change.add_to(&mut step).map_err(unfinished)?;
            }
        }
        self.intents.forget(step.lane(self.intents.heap()), intent);
        step.leave()?;
        Ok(presence)
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

/// Keys that a batch has closed to others. They are opened when this is dropped.
struct ClosedKeys<'b, M: Medium> {
    medium: &'b M,
    keys: Vec<GateOf<'b>>,
}

impl<'b, M: Medium> ClosedKeys<'b, M> {
    /// Closes the keys of all changes, in the order in which every batch does.
    fn close(medium: &'b M, changes: &'b [Box<dyn Change<M>>]) -> Self {
        let mut order = BTreeSet::new();
        let mut keys = Vec::new();
        for change in changes {
            let GateOf { gate, key } = change.gate();
            // Two keys of one hash are closed as one.
            if order.insert((change.heap().owner(), key)) {
                keys.push((change.heap().owner(), GateOf { gate, key }));
            }
        }
        keys.sort_by_key(|(root, of)| (*root, of.key));
        let keys: Vec<GateOf<'b>> = keys.into_iter().map(|(_, of)| of).collect();
        for GateOf { gate, key } in &keys {
            gate.close(medium, *key);
        }
        ClosedKeys { medium, keys }
    }

    fn keep_closed(mut self) {
        self.keys.clear();
    }
}

impl<M: Medium> Drop for ClosedKeys<'_, M> {
    fn drop(&mut self) {
        for GateOf { gate, key } in &self.keys {
            gate.open(self.medium, *key);
        }
    }
}

impl<M: Medium> fmt::Debug for Batch<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("keys", &self.operations.len()).finish_non_exhaustive()
    }
}
