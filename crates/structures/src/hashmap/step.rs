//! Operations that share fences with others; see [`Step`].

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::{LINE_LEN, Link, Medium, Word};

use super::entry::Found;
use super::layout::{GONE, Order, VALUE, in_place, redirect, tag_generation, target};
use super::list::{Edge, Place};
use super::ops::{Suspects, value_word, with_next_version};
use super::seal::seal_link;
use super::{Core, HashMap};
use crate::Result;
use crate::shared::{Operation, Progress, Scope, Step};
use crate::stored::{Key, Stored};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> HashMap<K, V, M> {
    /// Sets the value of `key` with the [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn put_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K, value: &'s V) -> Result<()> {
        step.add(Edit::new(&self.core, key, Some(value)))
    }

    /// Removes the entry of `key`, if there is one, with the [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the medium met a fault: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K) -> Result<()> {
        step.add(Edit::new(&self.core, key, None))
    }
}

/// A flushed node that no link leads to.
struct Node {
    block: Block,
    /// The node's successor.
    next: Word,
}

/// How far an operation has come.
enum State {
    /// The operation is not published, or changes nothing.
    Pending,
    /// The word at `at` is visible.
    Visible { at: u64, word: Word },
    /// The entry at `node` is marked. It and the marked nodes before it must still be unlinked.
    Marked { place: Place, word: Word, next: Word, node: u64 },
}

/// Putting an entry, or removing one.
pub(super) struct Edit<'s, K: ?Sized, V: ?Sized, M: Medium> {
    core: &'s Core<K, V, M, false>,
    key: &'s K,
    value: Option<&'s V>,
    order: Order,
    generation: u8,
    node: Option<Node>,
    suspects: Suspects,
    state: State,
    is_maintenance_due: bool,
    was_present: bool,
}

impl<'s, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Edit<'s, K, V, M> {
    pub(super) fn new(core: &'s Core<K, V, M, false>, key: &'s K, value: Option<&'s V>) -> Self {
        Edit {
            core,
            key,
            value,
            order: Order::of_hash(core.hash(key)),
            generation: core.generation(),
            node: None,
            suspects: Suspects::default(),
            state: State::Pending,
            is_maintenance_due: false,
            was_present: false,
        }
    }

    fn find(&self) -> Result<Place> {
        let Edit { core, key, order, generation, .. } = *self;
        core.told(core.find(order, Edge::Last, |node, tag| {
            Ok(Core::<K, V, M, false>::is_alive(tag_generation(tag), generation)
                && core.entry_of(node, tag, key)?.is_some())
        }))
    }

    /// Makes the node of this operation lead to the target of `next`. Allocates the node if there
    /// is none.
    fn lead_node_to(&mut self, scope: &mut Scope<'s, M>, next: Word) -> Result<()> {
        let Edit { core, key, order, generation, .. } = *self;
        let Some(value) = self.value else { return Ok(()) };
        let next = target(next);
        match &mut self.node {
            Some(node) if node.next == next => return Ok(()),
            Some(node) => {
                let offset = node.block.offset;
                core.medium().store(offset, seal_link(offset, next).raw());
                // Flush: fenced by `publish`, before a link leads to the node.
                core.medium().flush(offset, LINE_LEN);
                node.next = next;
            }
            None => {
                let lane = scope.lane(&core.heap);
                let node = core.new_node(lane, next, order, generation, key, value)?.flush();
                let len = node.len();
                // The type does not track the node from here on, because the fence that follows is
                // the step's.
                self.node = Some(Node { block: Block { offset: node.into_raw(), len }, next });
            }
        }
        scope.has_prepared();
        Ok(())
    }

    fn try_publish(&mut self, scope: &mut Scope<'s, M>, place: Place) -> Result<bool> {
        self.was_present = place.found.is_some();
        match (self.value, place.found) {
            (Some(value), Some(found)) if in_place::<V>() => {
                Ok(self.store_value(scope, found, value))
            }
            (Some(_), Some(found)) => {
                self.lead_node_to(scope, found.link)?;
                Ok(self.mark(scope, place, found))
            }
            (Some(_), None) => {
                self.lead_node_to(scope, place.next)?;
                Ok(self.link(scope, &place))
            }
            (None, Some(found)) => Ok(self.mark(scope, place, found)),
            (None, None) => Ok(true),
        }
    }

    /// Links the node at `place`. False when another thread changed the list first.
    fn link(&mut self, scope: &mut Scope<'s, M>, place: &Place) -> bool {
        let core = self.core;
        let Some(node) = &self.node else { return true };
        if place.run_len > 0 {
            self.suspects = core.suspect_run(scope.lane(&core.heap), place);
            scope.has_prepared();
        }
        // Fence: the node and the suspects, before a link can lead to the node and past the
        // suspects.
        scope.fence_prepared();
        let word = place.led_to(node.block.offset, self.order, K::BUCKET_BITS);
        let link = Link::at(core.medium(), place.link_at);
        let lane = scope.lane(&core.heap);
        if link.replace_unfenced(place.link, word).is_err() {
            self.suspects.cancel(lane);
            return false;
        }
        // Flush: fenced by the step.
        lane.flush_later(place.link_at);
        core.count_in(lane.index());
        self.node = None;
        self.state = State::Visible { at: place.link_at, word };
        true
    }

    /// Marks the entry that was found. Its link then leads to the node that replaces it, if there
    /// is one.
    fn mark(&mut self, scope: &mut Scope<'s, M>, place: Place, found: Found) -> bool {
        let core = self.core;
        // Fence: the node, before a link can lead to it.
        scope.fence_prepared();
        let next = match &self.node {
            Some(node) => Word::to(node.block.offset),
            None => target(found.link),
        };
        let word = seal_link(found.node, redirect(found.link, next).with(GONE));
        let lane = scope.lane(&core.heap);
        // The suspects come before the mark: after a crash, recovery unlinks a marked node only if
        // it is a suspect.
        let mut suspects = core.suspect_run(lane, &place).with_own(lane, found.node);
        if Link::at(core.medium(), found.node).replace_unfenced(found.link, word).is_err() {
            suspects.cancel(lane);
            return false;
        }
        self.suspects = suspects;
        // Flush: fenced by the step, together with the suspects, before the entry is unlinked.
        lane.flush_later(found.node);
        if self.value.is_none() {
            core.count_out(lane.index());
        }
        self.node = None;
        self.state = State::Marked { place, word, next, node: found.node };
        true
    }

    /// Stores a value of at most 8 bytes in place of the present one.
    fn store_value(&mut self, scope: &mut Scope<'s, M>, found: Found, value: &V) -> bool {
        let core = self.core;
        let medium = core.medium();
        let word = seal_link(found.node, with_next_version(found.link));
        let dirty = if medium.needs_flush() { Word::DIRTY } else { 0 };
        let old = medium.load(found.node + VALUE);
        let exchanged = medium.compare_exchange_pair(
            found.node,
            [found.link.raw(), old],
            [word.with(dirty).raw(), value_word(value)],
        );
        if exchanged.is_err() {
            return false;
        }
        // Flush: fenced by the step; link and value share a line.
        scope.lane(&core.heap).flush_later(found.node);
        self.state = State::Visible { at: found.node, word };
        true
    }

    /// Gives back a node that nothing leads to.
    fn give_node_back(&mut self, scope: &mut Scope<'s, M>) {
        if let Some(node) = self.node.take() {
            scope.lane(&self.core.heap).give_back(node.block);
        }
    }
}

impl<'s, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Operation<'s, M> for Edit<'s, K, V, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.core.heap
    }

    fn suspects(&self) -> usize {
        // That of the entry that it removes, or whose node it replaces.
        1
    }

    /// Makes the node that is needed if nothing changes until `publish`.
    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        if self.value.is_none() {
            return Ok(());
        }
        let place = self.find()?;
        match place.found {
            Some(_) if in_place::<V>() => Ok(()),
            Some(found) => self.lead_node_to(scope, found.link),
            None => self.lead_node_to(scope, place.next),
        }
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let core = self.core;
        loop {
            let place = self.find()?;
            if place.run_len > 0 && scope.has_published() {
                // The step itself may have marked them, and has noted them as suspects.
                return Ok(Progress::Busy);
            }
            if scope.lane(&core.heap).suspects_left() <= place.run_len {
                return Err(Step::<M>::too_many());
            }
            if place.overflow {
                core.unlink_run(scope.lane(&core.heap), &place);
            } else if self.try_publish(scope, place)? {
                self.give_node_back(scope);
                return Ok(Progress::Done);
            }
            // Without this, the loop would never end on a medium with a fault, where each exchange
            // fails.
            core.heap.verify()?;
        }
    }

    fn finish(&mut self, scope: &mut Scope<'s, M>) {
        let core = self.core;
        let medium = core.medium();
        let lane = scope.lane(&core.heap);
        match std::mem::replace(&mut self.state, State::Pending) {
            State::Pending => {}
            State::Visible { at, word } => {
                Link::at(medium, at).confirm(word);
                self.suspects.retire(lane);
            }
            State::Marked { place, word, next, node } => {
                Link::at(medium, node).confirm(word);
                let suspects = std::mem::take(&mut self.suspects);
                core.finish_unlinking(lane, place, suspects, next, node, self.order);
            }
        }
        self.is_maintenance_due = core.is_maintenance_due(lane);
    }

    fn was_present(&self) -> bool {
        self.was_present
    }

    fn after(self: Box<Self>) -> Result<()> {
        if self.is_maintenance_due {
            self.core.maintain();
        }
        Ok(())
    }

    fn give_up(&mut self, scope: &mut Scope<'s, M>) {
        self.suspects.cancel(scope.lane(&self.core.heap));
        self.give_node_back(scope);
    }
}
