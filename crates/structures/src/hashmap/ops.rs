//! Reading and changing entries.

use std::borrow::Borrow;

use remanent_pmem::heap::{Block, Lane, Suspect};
use remanent_pmem::{Dirty, Durable, Fresh, Link, Medium, Word};

use super::Core;
use super::damage::Damage;
use super::entry::Found;
use super::layout::{
    DUMMY, GONE, LEN_MAX, Order, Shape, TAG, VALUE, VERSION, in_place, redirect, tag,
    tag_generation, tag_order, target,
};
use super::list::{Edge, Place, RUN_MAX};
use super::seal::{entry_sum, seal_link, seal_tag};
use super::walk::Progress;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// How often a thread tries to unlink an entry that it has removed, when others change its
/// surroundings. The limit ends the loop where there is damage. If no try succeeds, a later
/// operation unlinks the entry.
const UNLINKINGS_MAX: u32 = 1 << 10;

/// The change to an entry and the result of the call, with the value of at most 8 bytes that they
/// were decided by.
type Decision<T, R> = ((Change<T>, R), Option<u64>);

/// How an attempt to change an entry ended.
pub(super) enum Attempt {
    Done,
    /// Another thread changed the list first: search again.
    Lost,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline]
    pub(super) fn get_with<R>(
        &self,
        key: &K,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let order = Order::of_hash(self.hash(key));
        let _pin = self.heap.pin();
        let read = self.search(order, key).and_then(|found| match found {
            None => Ok(None),
            Some((found, tag, shape)) => {
                Ok(Some(self.value_in(found, tag, &shape)?.with(use_value)))
            }
        });
        // Bytes that cannot be read are shown as zeros. So a fault is reported before the damage
        // that the zeros look like.
        self.heap.verify()?;
        self.told(read)
    }

    /// Finds a live entry for reading. Only words that decide the answer are made durable: the link
    /// to the entry, its own link (which shares a line with its value), or the mark that says it is
    /// gone.
    #[inline(always)]
    fn search(&self, order: Order, key: &K) -> Result<Option<(Found, u64, Shape)>, Damage> {
        let medium = self.medium();
        let generation = self.generation();
        let bits = self.bits();
        let (bucket, mut at, mut link) = self.start(order, bits)?;
        if Self::is_behind(bucket, link, order) {
            return Ok(None);
        }
        let mut progress = Progress::from_start::<K>(order, bucket, bits);
        loop {
            if link.has(DUMMY) {
                let bucket = self.step_to_dummy(&mut progress, at, link)?;
                if Order::of_bucket(bucket) > order {
                    return Ok(None);
                }
                (at, link) = self.enter_slot(bucket, |link| link.load())?;
                continue;
            }
            if link.is_null() {
                self.step_to_end(&progress, at)?;
                return Ok(None);
            }
            let (node, tag) = self.step_to_node(&mut progress, at, link)?;
            if tag_order(tag) > order {
                return Ok(None);
            }
            let own = Link::at(medium, node).load();
            if tag_order(tag) == order
                && Self::is_alive(tag_generation(tag), generation)
                && let Some(shape) = self.entry_of(node, tag, key)?
            {
                let own = if own.is_dirty() { Link::at(medium, node).load_durable() } else { own };
                if self.is_there(node, own)? {
                    if link.is_dirty() {
                        Link::at(medium, at).load_durable();
                    }
                    return Ok(Some((Found { node, link: own }, tag, shape)));
                }
            }
            self.check_link(node, own)?;
            (at, link) = (node, own);
        }
    }

    /// Changes the entry of `key` as `decide` says, as one step.
    #[inline]
    pub(super) fn edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.edit_found(key, |found| {
            let Some(found) = found else { return Ok((decide(None), None)) };
            let value = self.value(found)?;
            Ok((value.with(|value| decide(Some(value))), value.word()))
        })
    }

    /// As `edit`, for changes that depend on whether there is an entry, and not on its value. The
    /// value is not read, so that a damaged one can be replaced or removed.
    #[inline]
    pub(super) fn edit_unread<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(bool) -> (Change<T>, R),
    ) -> Result<R> {
        self.edit_found(key, |found| Ok((decide(found.is_some()), None)))
    }

    #[inline(always)]
    fn edit_found<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<Found>) -> Result<Decision<T, R>, Damage>,
    ) -> Result<R> {
        self.twice_when_full(|| self.try_edit(key, &mut decide))
    }

    /// Tries again when the pool was full, because other lanes may hold removed entries that are
    /// not freed yet.
    #[inline]
    pub(super) fn twice_when_full<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        match attempt() {
            // Spelled out, because copying a whole `Result` waits for the fence; see `BlinkTree`.
            Ok(done) => Ok(done),
            Err(error) if error.is_full() => {
                self.heap.relieve();
                attempt()
            }
            Err(error) => Err(error),
        }
    }

    #[inline(always)]
    fn try_edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        decide: &mut impl FnMut(Option<Found>) -> Result<Decision<T, R>, Damage>,
    ) -> Result<R> {
        let order = Order::of_hash(self.hash(key));
        // The bucket's line is fetched while the lane is entered.
        self.prefetch(order);
        let mut lane = self.gate.enter(&self.heap, || order.0)?;
        let result = loop {
            // Read again after another lane was entered: all entries may be cleared in between.
            let generation = self.generation();
            let place = self.find(order, Edge::Last, |node, tag| {
                Ok(Self::is_alive(tag_generation(tag), generation)
                    && self.entry_of(node, tag, key)?.is_some())
            });
            let place = self.told(place)?;
            if place.overflow {
                lane = self.clear_run(lane, &place, order)?;
                continue;
            }
            let ((change, result), seen) = self.told(decide(place.found))?;
            let attempt = match (change, place.found) {
                (Change::Put(value), None) => {
                    self.link(&mut lane, place, order, generation, key, value.borrow())?
                }
                (Change::Put(value), Some(found)) if in_place::<V>() => {
                    self.store_value(found, seen, value.borrow())
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
            // Without this, the loop would never end on a medium with a fault, where each exchange
            // fails.
            self.heap.verify()?;
        };
        self.finish(lane)?;
        Ok(result)
    }

    /// Ends a change: releases the lane, and does a share of the map's maintenance if that is due.
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
        generation: u8,
        key: &K,
        value: &V,
    ) -> Result<Attempt> {
        let node = self.new_node(lane, target(place.next), order, generation, key, value)?;
        let mut suspects = self.suspect_run(lane, &place);
        // Flush: the node.
        // Fence: the node and the suspects, before a link can lead to the node and past the
        // suspects.
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

    /// Stores a value of at most 8 bytes in place of `seen`, or of any value if `seen` is `None`.
    /// One fence.
    #[inline]
    fn store_value(&self, found: Found, seen: Option<u64>, value: &V) -> Attempt {
        let medium = self.medium();
        // The old value is compared, too, because the version alone has few bits and soon repeats.
        let old = seen.unwrap_or_else(|| medium.load(found.node + VALUE));
        let new_link = seal_link(found.node, with_next_version(found.link));
        let dirty = if medium.needs_flush() { Word::DIRTY } else { 0 };
        let exchanged = medium.compare_exchange_pair(
            found.node,
            [found.link.raw(), old],
            [new_link.with(dirty).raw(), value_word(value)],
        );
        match exchanged {
            Ok(_) => {
                if dirty != 0 {
                    Link::at(medium, found.node).help(new_link.with(dirty));
                }
                Attempt::Done
            }
            Err(_) => Attempt::Lost,
        }
    }

    /// Replaces an entry's node by a new one. One word marks the old node and leads to the new one.
    /// Two fences.
    #[allow(clippy::too_many_arguments, reason = "they are what was found and what is to be")]
    fn replace(
        &self,
        lane: &mut Lane<'_, M>,
        place: Place,
        found: Found,
        order: Order,
        generation: u8,
        key: &K,
        value: &V,
    ) -> Result<Attempt> {
        let node = self.new_node(lane, target(found.link), order, generation, key, value)?;
        let mut suspects = self.suspect_run(lane, &place).with_own(lane, found.node);
        // Flush: the node.
        // Fence: the node and the suspects, as in `link`.
        let node = lane.fence_with(node.flush());
        let offset = node.offset();
        let new = seal_link(found.node, redirect(found.link, Word::to(offset)).with(GONE));
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
        // Flush: the suspects. The fence that makes the mark durable makes them durable, too,
        // before the entry is unlinked.
        let link = Link::at(medium, found.node);
        let gone = seal_link(found.node, found.link.with(GONE));
        match link.replace_with(found.link, gone, || lane.flush_noted()) {
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

    /// Unlinks a marked node and the run before it. The node is durably marked, so the list means
    /// the same whether the new link survives a crash or not. Hence no fence.
    #[inline]
    pub(super) fn finish_unlinking(
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
        // The surroundings changed: the node may belong to another run by now, or another thread
        // has unlinked it and retires it.
        suspects.cancel_run(lane);
        // Damage may prevent unlinking. The entry is gone all the same.
        for _ in 0..UNLINKINGS_MAX {
            let Ok(Some(place)) = self.find_marked(order, node) else { break };
            if lane.suspects_left() < RUN_MAX {
                break;
            }
            self.unlink_run(lane, &place);
        }
        suspects.cancel(lane);
    }

    /// Clears a place that overflows, and enters the heap again to have room for suspects: through
    /// the gate, because a batch may have closed the key meanwhile. One fence.
    #[cold]
    pub(super) fn clear_run<'h>(
        &'h self,
        mut lane: Lane<'h, M>,
        place: &Place,
        order: Order,
    ) -> Result<Lane<'h, M>> {
        self.unlink_run(&mut lane, place);
        drop(lane);
        self.heap.verify()?;
        self.gate.enter(&self.heap, || order.0)
    }

    /// Unlinks the run of marked nodes before a place. One fence.
    #[cold]
    pub(super) fn unlink_run(&self, lane: &mut Lane<'_, M>, place: &Place) {
        let mut suspects = self.suspect_run(lane, place);
        // Flush and fence: the suspects, before the list leads past them.
        // Redundant: for nodes that were marked since the map was opened, because the thread that
        // marked them noted them as suspects. Not for a node that a crash left marked where growth
        // meets it, which no test produces.
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
    pub(super) fn suspect_run(&self, lane: &mut Lane<'_, M>, place: &Place) -> Suspects {
        let mut suspects = Suspects::default();
        if place.run_len > 0 {
            suspects.run = place.run(self.medium()).map(|node| lane.suspect(node)).collect();
        }
        suspects
    }

    /// Fills a node that no link leads to yet.
    #[inline]
    pub(super) fn new_node(
        &self,
        lane: &mut Lane<'_, M>,
        next: Word,
        order: Order,
        generation: u8,
        key: &K,
        value: &V,
    ) -> Result<Fresh<'_, u64, Dirty, M>> {
        let mut shape = Shape::new::<K, V>(key.stored_len(), value.stored_len());
        for (what, len) in [("key", shape.key_len), ("value", shape.value_len)] {
            if len > LEN_MAX {
                return Err(Error::TooLong { what, len, limit: LEN_MAX });
            }
        }
        let block = lane.allocate(shape.len)?;
        // SAFETY: the block was just allocated: no link leads to it, and only this thread knows it.
        let mut node =
            unsafe { Fresh::<u64, Dirty, M>::from_raw(self.medium(), block.offset, block.len) };
        node.write_word(0, seal_link(block.offset, next).raw());
        if in_place::<V>() {
            node.write_word(VALUE, value_word(value));
        }
        let tag = seal_tag(self.heap.member(), block.offset, tag(order, generation));
        if !in_place::<V>() && self.is_summed {
            shape.sum = value.with_bytes(|bytes| entry_sum(tag, bytes));
        }
        for (at, word) in shape.words::<K, V>() {
            node.write_word(at, word);
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

/// The link of an entry whose value changes, without its check.
#[inline(always)]
pub(super) fn with_next_version(link: Word) -> Word {
    link.with_tag(link.tag().wrapping_add(VERSION))
}

/// Gives back the block of a node that could not be published.
fn give_back<M: Medium>(lane: &mut Lane<'_, M>, node: Fresh<'_, u64, Durable, M>) {
    let len = node.len();
    lane.give_back(Block { offset: node.into_raw(), len });
}

#[inline(always)]
pub(super) fn value_word<V: Stored + ?Sized>(value: &V) -> u64 {
    value.with_bytes(padded)
}

/// At most 8 bytes as a word, padded with zeros.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The nodes that an operation unlinks: the run that was in its way, which is mostly empty, and a
/// node of its own.
#[derive(Default)]
pub(super) struct Suspects {
    run: Vec<Suspect>,
    own: Option<Suspect>,
}

impl Suspects {
    #[inline]
    pub(super) fn with_own<M: Medium>(mut self, lane: &mut Lane<'_, M>, node: u64) -> Self {
        self.own = Some(lane.suspect(node));
        self
    }

    #[inline]
    pub(super) fn retire<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        for suspect in self.run.drain(..).chain(self.own.take()) {
            lane.retire(suspect);
        }
    }

    fn cancel_run<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        for suspect in self.run.drain(..) {
            lane.cancel(suspect);
        }
    }

    pub(super) fn cancel<M: Medium>(&mut self, lane: &mut Lane<'_, M>) {
        self.cancel_run(lane);
        if let Some(own) = self.own.take() {
            lane.cancel(own);
        }
    }
}
