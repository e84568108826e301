//! Walking all entries, and clearing.

use std::sync::atomic::Ordering;

use remanent_pmem::{Link, Medium};

use super::Core;
use super::damage::Damage;
use super::entry::Found;
use super::layout::{DUMMY, GENERATION, ORDER_END, Order, SWEPT, tag_generation, tag_order};
use super::list::Edge;
use super::seal::{open_word, seal_word};
use super::walk::Progress;
use crate::nesting::Nesting;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// Entries that one call of `sweep_some` visits.
const SWEEP: usize = 64;

/// An entry met on a walk.
pub(super) struct Visited {
    pub(super) found: Found,
    pub(super) tag: u64,
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
        let next = self.walk_from(cursor, limit, |Visited { found, tag }| {
            if !Self::is_alive(tag_generation(tag), generation) {
                return Ok(());
            }
            let value = self.value(found)?;
            self.with_key(found.node, tag, |key| value.with(|value| visit(key, value)))
        });
        self.heap.verify()?;
        self.told(next)
    }

    /// Visits unmarked nodes from order `cursor` on: about `limit`, but always all of one order.
    /// Returns the order to continue at, or 0 at the end. All visited nodes are durable.
    pub(super) fn walk_from(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(Visited) -> Result<(), Damage>,
    ) -> Result<u64, Damage> {
        let medium = self.medium();
        let (from, bits) = (Order(cursor & (ORDER_END - 1)), self.bits());
        let (bucket, _, _) = self.start(from, bits)?;
        let mut progress = Progress::from_bucket::<K>(bucket, bits);
        let (mut at, mut link) = self.enter_slot(bucket, |link| link.load_durable())?;
        let mut visited = 0;
        let mut last = from;
        loop {
            if link.has(DUMMY) {
                let bucket = self.step_to_dummy(&mut progress, at, link)?;
                (at, link) = self.enter_slot(bucket, |link| link.load_durable())?;
                continue;
            }
            if link.is_null() {
                self.step_to_end(&progress, at)?;
                return Ok(0);
            }
            let (node, tag) = self.step_to_node(&mut progress, at, link)?;
            let order = tag_order(tag);
            if visited >= limit && order > last {
                return Ok(last.0 + 1);
            }
            (at, link) = (node, Link::at(medium, node).load_durable());
            if !self.is_gone(node, link)? && order >= from {
                visit(Visited { found: Found { node, link }, tag })?;
                visited += 1;
                last = last.max(order);
            }
        }
    }

    /// Makes every entry dead by one word, then frees the entries.
    pub(super) fn clear(&self) -> Result<u64> {
        self.gate.without_batches(self.medium(), || self.clear_all())
    }

    fn clear_all(&self) -> Result<u64> {
        let at = self.heap.header() + GENERATION;
        let medium = self.medium();
        loop {
            // An entry has only the low 8 bits of its generation, so none of an old generation may
            // remain.
            self.sweep_all()?;
            let before = self.len()?;
            let word = medium.load(at);
            let Some(generation) = open_word(GENERATION, word) else {
                let what = "the generation does not fit its check";
                return Err(Error::corrupt(&self.heap, at, what));
            };
            let next = seal_word(GENERATION, generation + 1);
            if medium.compare_exchange(at, word, next).is_ok() {
                // Flush and fence: the clear is durable before any thread acts on it. A crash in
                // between leaves the clear done or not done, as any crash before the call returns.
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
        // Acquire: pairs with the Release in `sweep_some`, and with that in `clear_all`.
        self.swept.load(Ordering::Acquire) == self.generation.load(Ordering::Acquire)
    }

    fn sweep_all(&self) -> Result<()> {
        if self.is_swept() {
            return Ok(());
        }
        // A lane of this thread's own would hold the sweep up.
        Nesting::refuse()?;
        while !self.is_swept() {
            self.sweep_some()?;
            self.heap.verify()?;
            self.medium().pause();
        }
        Ok(())
    }

    /// Sweeps out some dead entries, from where the last sweep ended, and notes when it reaches the
    /// end. May not be called inside a lane.
    pub(super) fn sweep_some(&self) -> Result<()> {
        // Another thread is sweeping: leave it to that one.
        let Ok(mut sweep) = self.sweep.try_lock() else { return Ok(()) };
        // Acquire: pairs with the Release in `clear_all`; entries of earlier generations are swept
        // out.
        let generation = self.generation.load(Ordering::Acquire);
        if sweep.generation != generation {
            *sweep = Sweep { generation, cursor: 0, epoch: self.heap.epoch() };
        }
        if !self.heap.has_passed(sweep.epoch) {
            // Operations that began before the clear may still link entries, which are dead then.
            return Ok(());
        }
        let mut dead = Vec::new();
        let pin = self.heap.pin();
        let next = self.walk_from(sweep.cursor, SWEEP, |Visited { tag, .. }| {
            if !Self::is_alive(tag_generation(tag), generation as u8) {
                dead.push(tag_order(tag));
            }
            Ok(())
        });
        drop(pin);
        let next = self.told(next)?;
        for order in dead {
            self.sweep_order(order)?;
        }
        sweep.cursor = next;
        if next == 0 {
            let at = self.heap.header() + SWEPT;
            self.medium().store(at, seal_word(SWEPT, generation));
            // Flush and fence: the next open need not sweep. The marks of swept entries are
            // durable.
            // Redundant: if this is lost, the next open sweeps again.
            self.medium().persist(at, 8);
            // Release: pairs with the Acquire in `is_swept`.
            self.swept.store(generation, Ordering::Release);
        }
        Ok(())
    }

    /// Unlinks the dead entries of one order, each in a lane of its own.
    pub(super) fn sweep_order(&self, order: Order) -> Result<()> {
        loop {
            let mut lane = self.heap.enter().prepare_to_write();
            let generation = self.generation();
            let place = self.find(order, Edge::Last, |_, tag| {
                Ok(!Self::is_alive(tag_generation(tag), generation))
            });
            let place = self.told(place)?;
            if place.overflow {
                self.unlink_run(&mut lane, &place);
                self.heap.verify()?;
                continue;
            }
            let Some(found) = place.found else { return Ok(()) };
            // Lost: another thread changed the list; search again.
            let _ = self.unlink(&mut lane, place, found, order);
            self.heap.verify()?;
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

    /// Counts the entries that were there when the map was opened, while no operation is in
    /// progress.
    #[cold]
    fn count_all(&self) -> Result<i64> {
        Nesting::refuse()?;
        self.heap.quiesced(|_, retired| {
            let known = self.base.load(Ordering::Acquire);
            if known != UNKNOWN {
                return Ok(known);
            }
            // Blocks tell the number of entries only where no line can be lost and the heap is the
            // map's own. Otherwise walk the list: a crash may have left an entry marked that no
            // suspect names, and other structures have blocks as well.
            let count = if self.medium().needs_flush() || !self.heap.is_alone() {
                let mut count = 0;
                let walked = self.walk_from(0, usize::MAX, |_| {
                    count += 1;
                    Ok(())
                });
                self.told(walked)?;
                count
            } else {
                let segments = u64::from(self.bits() - K::BUCKET_BITS) + 1;
                self.heap.count_blocks()?.saturating_sub(segments + retired)
            };
            let base = count as i64 - self.delta();
            // Release: pairs with the Acquire in `len`.
            self.base.store(base, Ordering::Release);
            // Relaxed: it only decides when the map grows.
            self.base_estimate.store(base, Ordering::Relaxed);
            Ok(base)
        })
    }
}

/// The value of `base` until the entries of an opened map are counted.
pub(super) const UNKNOWN: i64 = i64::MIN;

/// How far the sweep of dead entries has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    generation: u64,
    cursor: u64,
    /// Epoch of the heap when the sweep began.
    epoch: u64,
}
