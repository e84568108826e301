//! Reading and changing entries.

use std::borrow::{Borrow, Cow};

use remanent_pmem::heap::{Block, Lane, Suspect};
use remanent_pmem::{Dirty, Durable, Fresh, Frozen, Link, Medium, Word};

use super::layout::{
    DUMMY, LEN_MAX, Order, Shape, TAG, VALUE, dummy_of, has_key, in_place, redirect, tag,
    tag_generation, tag_order, target,
};
use super::list::{Edge, Found, Place};
use super::{Change, Core};
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// How an attempt to change an entry ended.
pub(super) enum Attempt {
    Done,
    /// Another thread was quicker: search again.
    Lost,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    #[inline]
    pub(super) fn get_with<R>(
        &self,
        key: &K,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let order = Order::of_hash(self.hash(key));
        let _pin = self.heap.pin();
        let result = self.search(order, key).map(|found| {
            let value = self.value(found);
            value.with(use_value)
        });
        self.heap.verify()?;
        Ok(result)
    }

    /// Finds a live entry for reading. Only what decides the answer is made durable: a link to the
    /// entry, its own link (which shares a line with its value), or the mark that says it is gone.
    #[inline]
    fn search(&self, order: Order, key: &K) -> Option<Found> {
        let medium = self.medium();
        let generation = self.generation();
        let (bucket, mut at, mut link) = self.start(order);
        if Self::is_behind(bucket, link, order) {
            return None;
        }
        loop {
            if link.has(DUMMY) {
                if Order::of_bucket(dummy_of(link)) > order {
                    return None;
                }
                at = self.slot(dummy_of(link));
                link = Link::at(medium, at).load();
                continue;
            }
            if link.is_null() {
                return None;
            }
            let node = link.offset();
            let node_tag = medium.load(node + TAG);
            if tag_order(node_tag) > order {
                return None;
            }
            let own = Link::at(medium, node).load();
            if tag_order(node_tag) == order
                && Self::is_alive(tag_generation(node_tag), generation)
                && has_key::<K, V, M>(medium, node, key)
            {
                let own = if own.is_dirty() { Link::at(medium, node).load_durable() } else { own };
                if !own.is_marked() {
                    if link.is_dirty() {
                        Link::at(medium, at).load_durable();
                    }
                    return Some(Found { node, link: own });
                }
            }
            (at, link) = (node, own);
        }
    }

    /// Reads the value of an entry that was found.
    #[inline(always)]
    pub(super) fn value(&self, found: Found) -> Value<'_> {
        let medium = self.medium();
        if !in_place::<V>() {
            let shape = Shape::read::<K, V, M>(medium, found.node);
            // SAFETY: the value of a published node never changes, and the node is not freed while
            // the lane that every caller holds is held; the view does not outlive it.
            let range = unsafe { Frozen::new(found.node + shape.value_at, shape.value_len) };
            return Value::Bytes(medium.view(range));
        }
        let mut own = found.link;
        loop {
            let word = medium.load(found.node + VALUE);
            // A value and its link's tag change together: an equal tag on both sides of the read means
            // that the value belongs to the clean link, and so is durable.
            let after = Link::at(medium, found.node).load_durable();
            if after.tag() == own.tag() {
                return Value::Word(word.to_le_bytes());
            }
            own = after;
        }
    }

    /// Changes the entry of `key` as `decide` says, as one step.
    #[inline]
    pub(super) fn edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.twice_when_full(|| self.try_edit(key, &mut decide))
    }

    /// Tries again when the pool was full: other lanes may hold what was removed but not freed.
    #[inline]
    pub(super) fn twice_when_full<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        match attempt() {
            Err(error) if error.is_full() => {
                self.heap.relieve();
                attempt()
            }
            done => done,
        }
    }

    #[inline(always)]
    fn try_edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        decide: &mut impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        let order = Order::of_hash(self.hash(key));
        // The bucket is on its way into the cache while the lane is being entered.
        self.prefetch(order);
        let mut lane = self.heap.enter().prepare_to_write();
        let generation = self.generation();
        let result = loop {
            let place = self.find(order, Edge::Last, |node, node_generation| {
                Self::is_alive(node_generation, generation)
                    && has_key::<K, V, M>(self.medium(), node, key)
            });
            if place.overflow {
                self.unlink_run(&mut lane, &place);
                continue;
            }
            let (change, result) = match place.found {
                None => decide(None),
                Some(found) => self.value(found).with(|value| decide(Some(value))),
            };
            let attempt = match (change, place.found) {
                (Change::Put(value), None) => {
                    self.link(&mut lane, place, order, generation, key, value.borrow())?
                }
                (Change::Put(value), Some(found)) if in_place::<V>() => {
                    self.store_value(found, value.borrow())
                }
                (Change::Put(value), Some(found)) => {
                    self.replace(&mut lane, place, found, order, generation, key, value.borrow())?
                }
                (Change::Remove, Some(found)) => self.unlink(&mut lane, place, found, order),
                (Change::Keep, _) | (Change::Remove, None) => Attempt::Done,
            };
            if matches!(attempt, Attempt::Done) {
                break result;
            }
        };
        self.finish(lane)?;
        Ok(result)
    }

    /// What every change ends with.
    #[inline(always)]
    pub(super) fn finish(&self, lane: Lane<'_, M>) -> Result<()> {
        self.heap.verify()?;
        let is_due = self.is_maintenance_due(&lane);
        drop(lane);
        if is_due {
            self.maintain();
        }
        Ok(())
    }

    /// Links a new entry at `place`. Two fences.
    #[inline]
    pub(super) fn link(
        &self,
        lane: &mut Lane<'_, M>,
        place: Place,
        order: Order,
        generation: u16,
        key: &K,
        value: &V,
    ) -> Result<Attempt> {
        let node = self.new_node(lane, target(place.next), tag(order, generation), key, value)?;
        let mut suspects = self.suspect_run(lane, &place);
        // Flush: the node. Fence: the node and the suspects, before a link can lead to the one and past
        // the others.
        let node = lane.fence_with(node.flush());
        let new = place.led_to(node.offset(), order, K::BUCKET_BITS);
        match Link::at(self.medium(), place.link_at).publish_as(place.link, node, new) {
            Ok(_) => {
                suspects.retire(lane);
                self.count_in(lane.index());
                Ok(Attempt::Done)
            }
            Err((_, node)) => {
                suspects.cancel(lane);
                give_back(lane, node);
                Ok(Attempt::Lost)
            }
        }
    }

    /// Stores a value of at most 8 bytes in place. One fence.
    #[inline]
    fn store_value(&self, found: Found, value: &V) -> Attempt {
        let medium = self.medium();
        let old = medium.load(found.node + VALUE);
        let new_link = found.link.with_next_tag();
        let dirty = if medium.needs_flush() { Word::DIRTY } else { 0 };
        let exchanged = medium.compare_exchange_pair(
            found.node,
            [found.link.raw(), old],
            [new_link.with(dirty).raw(), value_word(value)],
        );
        match exchanged {
            Ok(_) => {
                if dirty != 0 {
                    Link::at(medium, found.node).settle(new_link.with(dirty));
                }
                Attempt::Done
            }
            Err(_) => Attempt::Lost,
        }
    }

    /// Puts a new node in an entry's place: one word marks the old node and leads to the new one. Two
    /// fences.
    #[allow(clippy::too_many_arguments, reason = "they are what was found and what is to be")]
    fn replace(
        &self,
        lane: &mut Lane<'_, M>,
        place: Place,
        found: Found,
        order: Order,
        generation: u16,
        key: &K,
        value: &V,
    ) -> Result<Attempt> {
        let node = self.new_node(lane, target(found.link), tag(order, generation), key, value)?;
        let mut suspects = self.suspect_run(lane, &place).with_own(lane, found.node);
        // Flush: the node. Fence: the node and the suspects, as in `link`.
        let node = lane.fence_with(node.flush());
        let offset = node.offset();
        let new = redirect(found.link, Word::to(offset)).with_mark();
        match Link::at(self.medium(), found.node).publish_as(found.link, node, new) {
            Ok(_) => {
                self.finish_unlinking(lane, place, suspects, Word::to(offset), found.node, order);
                Ok(Attempt::Done)
            }
            Err((_, node)) => {
                suspects.cancel(lane);
                give_back(lane, node);
                Ok(Attempt::Lost)
            }
        }
    }

    /// Marks an entry as gone and unlinks it. One fence.
    #[inline]
    pub(super) fn unlink(
        &self,
        lane: &mut Lane<'_, M>,
        place: Place,
        found: Found,
        order: Order,
    ) -> Attempt {
        let medium = self.medium();
        let mut suspects = self.suspect_run(lane, &place).with_own(lane, found.node);
        // Flush: the suspects. The fence that makes the mark durable makes them so, before unlinking.
        let link = Link::at(medium, found.node);
        match link.replace_with(found.link, found.link.with_mark(), || lane.flush_noted()) {
            Ok(_) => {
                self.count_out(lane.index());
                self.finish_unlinking(lane, place, suspects, found.link, found.node, order);
                Attempt::Done
            }
            Err(_) => {
                suspects.cancel(lane);
                Attempt::Lost
            }
        }
    }

    /// Takes a marked node, and the run before it, out of the list. The node is durably marked, so the
    /// list means the same whether the new link survives a crash or not: no fence.
    #[inline]
    fn finish_unlinking(
        &self,
        lane: &mut Lane<'_, M>,
        place: Place,
        mut suspects: Suspects,
        next: Word,
        node: u64,
        order: Order,
    ) {
        let new = place.led_past(next);
        let medium = self.medium();
        if medium.compare_exchange(place.link_at, place.link.raw(), new.raw()).is_ok() {
            lane.flush_later(place.link_at);
            suspects.retire(lane);
            return;
        }
        // The surroundings changed: the node may be part of another run by now, or another thread has
        // unlinked it and retires it.
        suspects.cancel_run(lane);
        while let Some(place) = self.find_marked(order, node) {
            self.unlink_run(lane, &place);
        }
        suspects.cancel(lane);
    }

    /// Unlinks the run of marked nodes before a place. One fence.
    #[cold]
    pub(super) fn unlink_run(&self, lane: &mut Lane<'_, M>, place: &Place) {
        let mut suspects = self.suspect_run(lane, place);
        // Flush and fence: the suspects, before the list leads past them.
        // Redundant: for nodes that were marked in this life, which who marked them suspects; not for one that
        // a crash left marked in the way of growth, where no test brings it.
        lane.fence();
        let new = place.led_past(place.next);
        let medium = self.medium();
        if medium.compare_exchange(place.link_at, place.link.raw(), new.raw()).is_ok() {
            lane.flush_later(place.link_at);
            suspects.retire(lane);
        } else {
            suspects.cancel(lane);
        }
    }

    /// Notes that the marked nodes before a place are about to be unlinked.
    #[inline(always)]
    fn suspect_run(&self, lane: &mut Lane<'_, M>, place: &Place) -> Suspects {
        let mut suspects = Suspects::default();
        if place.run_len > 0 {
            suspects.run = place.run(self.medium()).map(|node| lane.suspect(node)).collect();
        }
        suspects
    }

    /// Fills a node that nobody can reach yet.
    #[inline]
    fn new_node(
        &self,
        lane: &mut Lane<'_, M>,
        next: Word,
        tag: u64,
        key: &K,
        value: &V,
    ) -> Result<Fresh<'_, u64, Dirty, M>> {
        let shape = Shape::new::<K, V>(key.stored_len(), value.stored_len());
        for (what, len) in [("key", shape.key_len), ("value", shape.value_len)] {
            if len > LEN_MAX {
                return Err(Error::TooLong { what, len, limit: LEN_MAX });
            }
        }
        let block = lane.allocate(shape.len)?;
        // SAFETY: the block was just allocated: no link leads to it, and only this thread knows it.
        let mut node =
            unsafe { Fresh::<u64, Dirty, M>::from_raw(self.medium(), block.offset, block.len) };
        node.write_word(0, next.raw());
        if in_place::<V>() {
            node.write_word(VALUE, value_word(value));
        }
        if let Some((at, lengths)) = shape.lengths::<K, V>() {
            node.write_word(at, lengths);
        }
        node.write_word(TAG, tag);
        key.with_bytes(|bytes| match K::LEN {
            Some(len) if len <= 8 => node.write_word(shape.key_at, padded(bytes)),
            _ => node.write_bytes(shape.key_at, bytes),
        });
        if !in_place::<V>() {
            value.with_bytes(|bytes| node.write_bytes(shape.value_at, bytes));
        }
        Ok(node)
    }

    #[inline(always)]
    fn prefetch(&self, order: Order) {
        let bucket = order.bucket_bits() & ((1 << self.bits()) - 1);
        self.medium().prefetch(self.slot(bucket));
    }
}

/// Gives back the block of a node that could not be published.
fn give_back<M: Medium>(lane: &mut Lane<'_, M>, node: Fresh<'_, u64, Durable, M>) {
    let len = node.len();
    lane.give_back(Block { offset: node.into_raw(), len });
}

/// A value read from an entry.
pub(super) enum Value<'m> {
    Word([u8; 8]),
    Bytes(Cow<'m, [u8]>),
}

impl Value<'_> {
    #[inline(always)]
    pub(super) fn with<V: Stored + ?Sized, R>(&self, use_value: impl FnOnce(&V) -> R) -> R {
        match self {
            Value::Word(bytes) => {
                let len = V::LEN.map_or(8, |len| len as usize).min(8);
                V::with_stored(&bytes[..len], use_value)
            }
            Value::Bytes(bytes) => V::with_stored(bytes, use_value),
        }
    }
}

#[inline(always)]
fn value_word<V: Stored + ?Sized>(value: &V) -> u64 {
    value.with_bytes(padded)
}

/// At most 8 bytes as a word, zeros above.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// What an operation unlinks: a run that was in its way, mostly empty, and a node of its own.
#[derive(Default)]
struct Suspects {
    run: Vec<Suspect>,
    own: Option<Suspect>,
}

impl Suspects {
    #[inline]
    fn with_own<M: Medium>(mut self, lane: &mut Lane<'_, M>, node: u64) -> Self {
        self.own = Some(lane.suspect(node));
        self
    }

    #[inline]
    fn retire<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        for suspect in self.run.drain(..).chain(self.own.take()) {
            lane.retire(suspect);
        }
    }

    fn cancel_run<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        for suspect in self.run.drain(..) {
            lane.cancel(suspect);
        }
    }

    fn cancel<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        self.cancel_run(lane);
        if let Some(own) = self.own.take() {
            lane.cancel(own);
        }
    }
}
