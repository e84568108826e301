//! Walking all entries, and clearing.

use std::sync::atomic::Ordering;

use remanent_pmem::{Link, Medium};

use super::Core;
use super::layout::{
    DUMMY, GENERATION, Order, SWEPT, Shape, TAG, dummy_of, tag_generation, tag_order,
};
use super::list::{Edge, Found};
use crate::Result;
use crate::stored::{Key, Stored};

/// Entries that a writer sweeps out in passing after an interrupted clear.
const SWEEP: usize = 64;

/// An entry met on a walk.
pub(super) struct Visited {
    pub(super) found: Found,
    pub(super) order: Order,
    pub(super) generation: u16,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    pub(super) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&K, &V),
    ) -> Result<u64> {
        let _pin = self.heap.pin();
        let generation = self.generation();
        let next = self.walk_from(cursor, limit, |visited| {
            if Self::is_alive(visited.generation, generation) {
                self.with_key(visited.found.node, |key| {
                    self.value(visited.found).with(|value| visit(key, value));
                });
            }
        });
        self.heap.verify()?;
        Ok(next)
    }

    /// Visits unmarked nodes from order `cursor` on: about `limit`, but always all of one order. Returns
    /// the order to go on at, 0 at the end. What is visited is durable.
    pub(super) fn walk_from(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(Visited),
    ) -> u64 {
        let medium = self.medium();
        let from = Order(cursor);
        let (_, at, _) = self.start(from);
        let mut link = Link::at(medium, at).load_durable();
        let mut visited = 0;
        let mut last = from;
        loop {
            if link.has(DUMMY) {
                link = Link::at(medium, self.slot(dummy_of(link))).load_durable();
                continue;
            }
            if link.is_null() {
                return 0;
            }
            let node = link.offset();
            let tag = medium.load(node + TAG);
            let order = tag_order(tag);
            if visited >= limit && order > last {
                return last.0 + 1;
            }
            link = Link::at(medium, node).load_durable();
            if !link.is_marked() && order >= from {
                let found = Found { node, link };
                visit(Visited { found, order, generation: tag_generation(tag) });
                visited += 1;
                last = last.max(order);
            }
        }
    }

    pub(super) fn with_key<R>(&self, node: u64, use_key: impl FnOnce(&K) -> R) -> R {
        let shape = Shape::read::<K, V, M>(self.medium(), node);
        // SAFETY: a published node's key never changes, and the caller's lane keeps the node.
        let range = unsafe { remanent_pmem::Frozen::new(node + shape.key_at, shape.key_len) };
        K::with_stored(&self.medium().view(range), use_key)
    }

    /// Makes every entry dead by one word, then frees them.
    pub(super) fn clear(&self) -> Result<u64> {
        let at = self.heap.header() + GENERATION;
        let medium = self.medium();
        loop {
            // Generations are told apart by their low 16 bits: none may linger.
            self.sweep_all()?;
            let before = self.len()?;
            let generation = medium.load(at);
            if medium.compare_exchange(at, generation, generation + 1).is_ok() {
                // Flush and fence: the clearing is durable before any thread answers as if it were. A
                // crash in between counts it as done, which it may be: it was asked for.
                medium.persist(at, 8);
                // Release: pairs with the Acquire in `generation`.
                self.generation.fetch_max(generation + 1, Ordering::Release);
                self.sweep_all()?;
                return Ok(before);
            }
        }
    }

    /// Whether no dead entry is left.
    pub(super) fn is_swept(&self) -> bool {
        // Acquire: pairs with the Release in `sweep_some`, and with that in `clear`.
        self.swept.load(Ordering::Acquire) == self.generation.load(Ordering::Acquire)
    }

    fn sweep_all(&self) -> Result<()> {
        while !self.is_swept() {
            self.sweep_some();
            self.heap.verify()?;
            self.medium().pause();
        }
        Ok(())
    }

    /// Sweeps some dead entries out, where the last sweep ended; notes when it reaches the end. Not to
    /// be called inside a lane.
    pub(super) fn sweep_some(&self) {
        // A thread that finds another one sweeping leaves it to that.
        let Ok(mut sweep) = self.sweep.try_lock() else { return };
        // Acquire: entries of earlier generations are to go.
        let generation = self.generation.load(Ordering::Acquire);
        if sweep.generation != generation {
            *sweep = Sweep { generation, cursor: 0, epoch: self.heap.epoch() };
        }
        if !self.heap.has_passed(sweep.epoch) {
            // Operations that began before the clearing may still link entries, which are dead then.
            return;
        }
        let mut dead = Vec::new();
        let pin = self.heap.pin();
        let next = self.walk_from(sweep.cursor, SWEEP, |visited| {
            if !Self::is_alive(visited.generation, generation as u16) {
                dead.push(visited.order);
            }
        });
        drop(pin);
        for order in dead {
            self.sweep_order(order);
        }
        sweep.cursor = next;
        if next == 0 {
            let at = self.heap.header() + SWEPT;
            self.medium().store(at, generation);
            // Flush and fence: the next open need not sweep. What was swept is durably marked.
            // Redundant: if this is lost, the next open sweeps again.
            self.medium().persist(at, 8);
            // Release: pairs with the Acquire in `is_swept`.
            self.swept.store(generation, Ordering::Release);
        }
    }

    /// Unlinks the dead entries of one order, each in a lane of its own.
    pub(super) fn sweep_order(&self, order: Order) {
        loop {
            let mut lane = self.heap.enter().prepare_to_write();
            let generation = self.generation();
            let place = self.find(order, Edge::Last, |_, node_generation| {
                !Self::is_alive(node_generation, generation)
            });
            if place.overflow {
                self.unlink_run(&mut lane, &place);
                continue;
            }
            let Some(found) = place.found else { return };
            // Lost: another thread was here; look again.
            let _ = self.unlink(&mut lane, place, found, order);
        }
    }

    pub(super) fn len(&self) -> Result<u64> {
        // Dead entries are counted until they are swept out.
        self.sweep_all()?;
        // Acquire: pairs with the Release below.
        let mut base = self.base.load(Ordering::Acquire);
        if base == UNKNOWN {
            base = self.count_all()?;
        }
        self.heap.verify()?;
        Ok((base + self.delta()).max(0) as u64)
    }

    /// Counts what was there when the map was opened, while no operation is in progress.
    #[cold]
    fn count_all(&self) -> Result<i64> {
        self.heap.quiesced(|retired| {
            let known = self.base.load(Ordering::Acquire);
            if known != UNKNOWN {
                return Ok(known);
            }
            // Where lines can be lost, an entry may be marked without anyone knowing: walk the list.
            let count = if self.medium().needs_flush() {
                let mut count = 0;
                self.walk_from(0, usize::MAX, |_| count += 1);
                count
            } else {
                let segments = u64::from(self.bits() - K::BUCKET_BITS) + 1;
                self.heap.count_blocks()? - segments - retired
            };
            let base = count as i64 - self.delta();
            // Release: pairs with the Acquire in `len`.
            self.base.store(base, Ordering::Release);
            Ok(base)
        })
    }
}

/// Entries when the map was opened, before anybody has counted.
pub(super) const UNKNOWN: i64 = i64::MIN;

/// How far the sweep of dead entries has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    generation: u64,
    cursor: u64,
    /// Epoch of the heap when the sweep was called for.
    epoch: u64,
}
