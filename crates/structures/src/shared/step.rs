//! Several operations that share their fences.

use std::fmt;

use remanent_pmem::Medium;
use remanent_pmem::heap::layout::SUSPECT_COUNT;
use remanent_pmem::heap::{Heap, Lane};

use crate::nesting::Nesting;
use crate::{Error, Result};

/// Suspects for which a step finds room: one an operation, and some for what is in the way.
pub(crate) const SUSPECTS: usize = Step::<remanent_pmem::Mapped>::OPERATIONS_MAX + SPARE;
// Else a step would wait for room for ever.
const _: () = assert!(SUSPECTS <= SUSPECT_COUNT as usize);
/// Suspects that are left when an operation is prepared, besides those that were promised.
const SPARE: usize = 32;
/// Suspects that one operation takes at most when it is published: its own, what others have left
/// in its way, a large block or two, and chunks that a divided tree's nodes of each level leave
/// behind in a full pool.
const PUBLISHING: usize = 28;

/// Operations on structures of one heap that become durable with the same fences.
///
/// Each operation is *prepared* when it is called: what it adds is written and flushed, where
/// nothing leads to it yet. [`commit`](Step::commit) fences, *publishes* all operations, and fences
/// again. So any number of them takes the fences of the one that needs most:
///
/// | operation | fences alone |
/// |---|---|
/// | hash maps: put a new key; replace a value of more than 8 bytes | 2 |
/// | `ExtendibleMap`: put a new key and its value, of at most 8 bytes each | 1 |
/// | hash maps: replace a value of at most 8 bytes; remove | 1 |
/// | tree: put or remove words; with records | 1; 2 |
/// | index of rows: add or remove a row | 0 |
/// | vector: add elements of up to 64 KiB, replace one | 1 |
/// | log: add records | 1 |
/// | object of a line transaction: set | 1; 2 if it has more than 31 bytes |
///
/// Operations take more fences if they meet others, of this step or of another thread: on
/// neighbours in a hash map, for example. A leaf that is full is divided as in any other operation.
///
/// What a step does *not* give is atomicity: a crash during `commit` may leave any of its
/// operations done and others not, each as a whole, and other threads may see some before others.
/// [`Batch`](crate::Batch) is a step that is atomic in a crash.
///
/// No operation is visible, to this thread either, before `commit`, but for rows that are added to
/// a [`RowIndex`](crate::RowIndex). A step that is dropped does nothing. Until then it holds one of
/// the heap's lanes, so memory that others remove is not freed: a step should be short. While a
/// thread holds a step, it changes structures of that heap through the step alone, and no map that
/// a batch may be changing ([`Error::Nested`]).
///
/// It has 128 operations at most, fewer with values of more than 21 KiB, each of which takes two
/// fences more; and [`Error::TooMany`] says that it has no room for another. Smaller values take
/// two fences more for each 64 KiB of their memory, and for each of its pieces if the pool is
/// nearly full.
#[must_use = "a step that is not committed does nothing"]
pub struct Step<'s, M: Medium> {
    scope: Scope<'s, M>,
    operations: Vec<Box<dyn Operation<'s, M> + 's>>,
    /// Operations before this one are published.
    begun: usize,
    /// Operations before this one are published and ended: they cannot be given up any more.
    completed: usize,
    _nesting: Nesting,
}

impl<'s, M: Medium> Step<'s, M> {
    /// Operations that a step has at most: what they remove takes a lane's room for suspects.
    pub const OPERATIONS_MAX: usize = 128;

    /// A step on structures of `heap`. Waits for a lane, as any operation does.
    pub fn enter(heap: &'s Heap<M>) -> Self {
        Self::enter_all(std::iter::once(heap))
    }

    /// A step on structures of several heaps of one pool. Two steps that name the same heaps name
    /// them in the same order.
    pub(crate) fn enter_all(heaps: impl Iterator<Item = &'s Heap<M>>) -> Self {
        let enter = |heap: &'s Heap<M>| {
            let lane = heap.enter().prepare_for(SUSPECTS);
            Place { lane, promised: 0 }
        };
        let places = heaps.map(enter).collect();
        let scope = Scope { places, guards: Vec::new(), is_fenced: true, published: 0 };
        Step { scope, operations: Vec::new(), begun: 0, completed: 0, _nesting: Nesting::begin() }
    }

    /// Has an operation prepared, and takes it on.
    pub(crate) fn add<O: Operation<'s, M> + 's>(&mut self, mut operation: O) -> Result<()> {
        let place = self.scope.place(operation.heap());
        let is_full = place.lane.suspects_left() < place.promised + 1 + SPARE;
        if is_full || self.operations.len() == Self::OPERATIONS_MAX {
            return Err(Self::too_many());
        }
        match operation.prepare(&mut self.scope) {
            Ok(()) => {
                self.scope.place(operation.heap()).promised += operation.suspects();
                self.operations.push(Box::new(operation));
                Ok(())
            }
            Err(error) => {
                operation.give_up(&mut self.scope);
                Err(error)
            }
        }
    }

    #[cold]
    pub(crate) fn too_many() -> Error {
        Error::TooMany { limit: Self::OPERATIONS_MAX }
    }

    /// Operations that the step has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the step has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Makes the operations visible, and durable. See [`Step`] for the fences.
    ///
    /// # Errors
    ///
    /// When the pool is full (a tree had to divide a leaf, or another thread took the room that a
    /// vector or a log had made), when other threads have left too much in the way
    /// ([`Error::TooMany`]), or when the medium met a fault. Operations before the one that failed
    /// are done, in the order in which they were prepared; those behind it are not.
    pub fn commit(mut self) -> Result<()> {
        self.publish()?;
        self.leave()
    }

    /// Publishes and fences. [`leave`](Step::leave) does the rest, outside of the lanes.
    pub(crate) fn publish(&mut self) -> Result<()> {
        self.scope.fence_prepared();
        while self.begun < self.operations.len() {
            let index = self.begun;
            match self.publish_one(index) {
                Ok(Progress::Done) => self.begun += 1,
                // What it waits for may be ours: that is given free, and then it may wait.
                Ok(Progress::Busy) => {
                    debug_assert!(self.completed < index, "nothing is held that it could wait for");
                    self.complete()?;
                }
                Err(error) => {
                    self.complete()?;
                    return Err(error);
                }
            }
        }
        self.complete()
    }

    fn publish_one(&mut self, index: usize) -> Result<Progress> {
        let operation = &mut self.operations[index];
        if self.scope.lane(operation.heap()).suspects_left() < PUBLISHING {
            return Err(Self::too_many());
        }
        let promised = operation.suspects();
        let progress = operation.publish(&mut self.scope)?;
        if progress == Progress::Done {
            self.scope.place(operation.heap()).promised -= promised;
            self.scope.published += 1;
        }
        Ok(progress)
    }

    /// The lane in `heap`, for what is to share the step's fences.
    pub(crate) fn lane(&mut self, heap: &Heap<M>) -> &mut Lane<'s, M> {
        self.scope.has_prepared();
        self.scope.lane(heap)
    }

    /// Whether there was an entry, for each operation that was published.
    pub(crate) fn presence(&self) -> impl Iterator<Item = bool> {
        self.operations[..self.begun].iter().map(|operation| operation.was_present())
    }

    /// Fences what was published, and ends those operations.
    fn complete(&mut self) -> Result<()> {
        // Fence: partner of what the operations have flushed, or noted to be; before others build
        // on it.
        self.scope.fence();
        self.scope.verify()?;
        for operation in &mut self.operations[self.completed..self.begun] {
            operation.finish(&mut self.scope);
        }
        self.completed = self.begun;
        self.scope.guards.clear();
        self.scope.published = 0;
        Ok(())
    }

    /// Gives up what was not completed, leaves the lanes, and does what the operations have left
    /// over.
    pub(crate) fn leave(mut self) -> Result<()> {
        let mut operations = std::mem::take(&mut self.operations);
        for mut operation in operations.drain(self.completed..) {
            operation.give_up(&mut self.scope);
        }
        self.scope.places.clear();
        operations.into_iter().try_for_each(|operation| operation.after())
    }
}

impl<M: Medium> Drop for Step<'_, M> {
    fn drop(&mut self) {
        for operation in self.operations.iter_mut().skip(self.completed) {
            operation.give_up(&mut self.scope);
        }
    }
}

impl<M: Medium> fmt::Debug for Step<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("operations", &self.operations.len()).finish_non_exhaustive()
    }
}

/// What publishing an operation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It takes effect with the next fence.
    Done,
    /// Nothing was changed: it would have to wait while the step holds something. Not answered when
    /// it holds nothing.
    Busy,
}

/// An operation of a step, from its preparation on.
pub(crate) trait Operation<'s, M: Medium> {
    /// The heap of its structure.
    fn heap(&self) -> &'s Heap<M>;

    /// Suspects that it has not taken yet, and will take when it is published: 1 at most, besides
    /// what others have left in its way.
    fn suspects(&self) -> usize {
        0
    }

    /// Writes and flushes what nothing leads to yet.
    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()>;

    /// Decides, with what was prepared being durable: makes the change, and flushes it or notes it
    /// to be flushed.
    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress>;

    /// Ends what was published, once it is durable.
    fn finish(&mut self, scope: &mut Scope<'s, M>);

    /// Whether the key of the operation had an entry when it was published.
    fn was_present(&self) -> bool {
        false
    }

    /// Does what needs lanes of its own, at the end of the step.
    fn after(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    /// Gives back what was prepared and not published. If the medium met a fault, or there was a
    /// panic, it may have been published: then it lets go of what it holds in the lane.
    fn give_up(&mut self, scope: &mut Scope<'s, M>);
}

/// What the operations of a step share.
pub(crate) struct Scope<'s, M: Medium> {
    places: Vec<Place<'s, M>>,
    /// What is held until the operations are durable, by pool offset: leaves, objects.
    guards: Vec<(u64, Box<dyn Guard + 's>)>,
    /// Whether nothing was prepared since the last fence.
    is_fenced: bool,
    /// Operations that are published, and not durable yet.
    published: usize,
}

/// A lane of a step.
struct Place<'s, M: Medium> {
    lane: Lane<'s, M>,
    /// Suspects that its operations will take.
    promised: usize,
}

/// Anything that gives something free when it is dropped.
pub(crate) trait Guard {}
impl<T> Guard for T {}

impl<'s, M: Medium> Scope<'s, M> {
    /// The lane in `heap`.
    ///
    /// # Panics
    ///
    /// When the step is on structures of other heaps.
    pub(crate) fn lane(&mut self, heap: &Heap<M>) -> &mut Lane<'s, M> {
        &mut self.place(heap).lane
    }

    fn place(&mut self, heap: &Heap<M>) -> &mut Place<'s, M> {
        let place = self.places.iter_mut().find(|place| std::ptr::eq(place.lane.heap(), heap));
        place.expect("an operation belongs to the step of its structure's heap")
    }

    /// Whether operations are published and not durable yet. What they have marked is in the way
    /// of others.
    pub(crate) fn has_published(&self) -> bool {
        self.published > 0
    }

    /// Number of operations that are published and not durable yet.
    pub(crate) fn published(&self) -> usize {
        self.published
    }

    /// Says that something was flushed, or noted to be flushed, which has to be durable before
    /// anything is published.
    pub(crate) fn has_prepared(&mut self) {
        self.is_fenced = false;
    }

    /// Whether the step holds what belongs to that offset.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        self.guards.iter().any(|(held, _)| *held == offset)
    }

    /// Whether the step holds nothing, and so may wait for others.
    pub(crate) fn may_wait(&self) -> bool {
        self.guards.is_empty()
    }

    /// Holds `guard` until what is published is durable.
    pub(crate) fn hold(&mut self, offset: u64, guard: Box<dyn Guard + 's>) {
        self.guards.push((offset, guard));
    }

    /// Fences, if anything was prepared since the last fence.
    #[track_caller]
    pub(crate) fn fence_prepared(&mut self) {
        if !self.is_fenced {
            // Fence: what the operations have prepared, before anything leads to it.
            self.fence();
        }
    }

    /// Flushes what all lanes have noted, and fences everything this thread has flushed.
    #[track_caller]
    pub(crate) fn fence(&mut self) {
        let Some((first, others)) = self.places.split_first_mut() else { return };
        for place in others {
            // Flush: fenced together, below.
            place.lane.flush_noted();
        }
        first.lane.fence();
        self.is_fenced = true;
    }

    fn verify(&self) -> Result<()> {
        Ok(self.places.first().map_or(Ok(()), |place| place.lane.heap().verify())?)
    }
}
