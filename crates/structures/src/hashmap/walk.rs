//! The rules that every walk follows, so that damage ends it.
//!
//! Orders never decrease along the list, and a dummy comes before the entries of its order. So a
//! link that leads backwards is detected at once. Only collisions and multi-maps have several
//! entries of one order. Among these, a walk in a circle meets an entry again, which Brent's
//! algorithm detects.
//!
//! All buckets except those of the last doubling are certain to be linked. So between two of them,
//! the list does not end, and leads to no entry beyond the second. A link that skips one of them is
//! detected, too.

use std::sync::atomic::Ordering;

use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::damage::Damage;
use super::layout::{
    DUMMY, Hint, ORDER_BITS, ORDER_END, Order, READY, TAG, dummy_of, level, parent, tag_order,
};
use crate::stored::{Key, Stored};

/// Bytes of the smallest block, which every node has at least.
const NODE_LEN_MIN: u64 = 32;

/// How far a walk has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Order of the last node or dummy.
    last: u64,
    /// Order of the next dummy that is certain to be linked.
    limit: u64,
    /// Distance between two such dummies.
    step: u64,
    /// How many entries had the same order as the one before them.
    equals: u64,
    /// One of those entries: the first, second, fourth, eighth and so on. A walk in a circle meets
    /// it again.
    mark: u64,
}

impl Progress {
    /// The progress at the dummy of `bucket`, in a map of `bits` bits.
    #[inline(always)]
    pub(super) fn from_bucket<K: Key + ?Sized>(bucket: u64, bits: u32) -> Self {
        Self::from_dummy::<K>(Order::of_bucket(bucket), bits)
    }

    /// The progress at the dummy of the bucket that `start` found for this order, whose first bits
    /// it has.
    #[inline(always)]
    pub(super) fn from_start<K: Key + ?Sized>(order: Order, bucket: u64, bits: u32) -> Self {
        let below = ORDER_BITS - level(bucket, K::BUCKET_BITS);
        Self::from_dummy::<K>(Order(order.0 >> below << below), bits)
    }

    #[inline(always)]
    fn from_dummy<K: Key + ?Sized>(dummy: Order, bits: u32) -> Self {
        let step = 1 << (ORDER_BITS - (bits - 1).max(K::BUCKET_BITS));
        let last = dummy.0;
        Progress { last, limit: (last & !(step - 1)) + step, step, equals: 0, mark: 0 }
    }

    /// Passes on to the node at `node` of this order. The error says why the list cannot lead
    /// there.
    #[inline(always)]
    fn pass_node(&mut self, node: u64, order: Order) -> Result<(), &'static str> {
        if order.0 <= self.last {
            return self.pass_equal(node, order);
        }
        if order.0 >= self.limit {
            return Err("a link skips a bucket");
        }
        self.last = order.0;
        Ok(())
    }

    #[cold]
    fn pass_equal(&mut self, node: u64, order: Order) -> Result<(), &'static str> {
        if order.0 < self.last {
            return Err("a link leads backwards in the list");
        }
        if self.mark == node {
            return Err("links lead in a circle");
        }
        self.equals += 1;
        if self.equals.is_power_of_two() {
            self.mark = node;
        }
        Ok(())
    }

    /// Passes on to the dummy of this order. The error says why the list cannot lead there.
    #[inline(always)]
    fn pass_dummy(&mut self, order: Order) -> Result<(), &'static str> {
        if order.0 <= self.last {
            return Err("a link leads backwards to a bucket");
        }
        if order.0 >= self.limit {
            if order.0 > self.limit {
                return Err("a link skips a bucket");
            }
            self.limit += self.step;
        }
        self.last = order.0;
        Ok(())
    }

    /// Ends the walk. The error says why the list cannot end here.
    #[inline(always)]
    fn end(&self) -> Result<(), &'static str> {
        if self.limit < ORDER_END { Err("the list ends before its last bucket") } else { Ok(()) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Offset of the slot of `bucket`, which is its dummy.
    #[inline(always)]
    pub(super) fn slot(&self, bucket: u64) -> u64 {
        let (segment, index) = if bucket < 1 << K::BUCKET_BITS {
            (0, bucket)
        } else {
            let top = 63 - bucket.leading_zeros();
            (top - K::BUCKET_BITS + 1, bucket - (1 << top))
        };
        // Relaxed: stored before the number of bits that led to this bucket (Acquire in `bits`), or
        // before the dummy link that names it.
        self.segments[segment as usize].load(Ordering::Relaxed) + index * 8
    }

    /// Whether the first entry behind the slot of `bucket` certainly lies behind `order`. `bucket`
    /// must be one of the order's buckets.
    #[inline(always)]
    pub(super) fn is_behind(bucket: u64, slot: Word, order: Order) -> bool {
        Hint::in_slot(slot) > Hint::of(order, level(bucket, K::BUCKET_BITS)) && !slot.has(DUMMY)
    }

    /// The bucket to begin at for this order in a map of `bits` bits, and its slot. It is the
    /// order's own bucket, or the nearest parent that is linked already.
    #[inline(always)]
    pub(super) fn start(&self, order: Order, bits: u32) -> Result<(u64, u64, Word), Damage> {
        let mut bucket = order.bucket_bits() & ((1 << bits) - 1);
        loop {
            let at = self.slot(bucket);
            let link = Link::at(self.medium(), at).load();
            if link.has(READY) {
                self.check_link(at, link)?;
                return Ok((bucket, at, link));
            }
            if bucket < 1 << K::BUCKET_BITS {
                return Err(Damage::at(at, "a bucket that is always linked is not ready"));
            }
            bucket = parent(bucket);
        }
    }

    /// Follows `link`, found at `at`, to a dummy. Returns the dummy's bucket.
    #[inline(always)]
    pub(super) fn step_to_dummy(
        &self,
        progress: &mut Progress,
        at: u64,
        link: Word,
    ) -> Result<u64, Damage> {
        debug_assert!(link.has(DUMMY), "{link:?} leads to no dummy");
        let bucket = dummy_of(link);
        // The map may have grown since the walk began.
        if bucket >> self.bits() != 0 {
            return Err(Damage::at(at, "a link leads to a bucket that does not exist"));
        }
        progress.pass_dummy(Order::of_bucket(bucket)).map_err(|what| Damage::at(at, what))?;
        Ok(bucket)
    }

    /// The slot of a bucket that a link leads to: its offset, and its word as `load` reads it.
    #[inline(always)]
    pub(super) fn enter_slot(
        &self,
        bucket: u64,
        load: impl FnOnce(Link<'_, M>) -> Word,
    ) -> Result<(u64, Word), Damage> {
        let at = self.slot(bucket);
        let link = load(Link::at(self.medium(), at));
        self.check_link(at, link)?;
        Ok((at, link))
    }

    /// Follows `link`, found at `at`, to a node. Returns the node's offset and its tag.
    #[inline(always)]
    pub(super) fn step_to_node(
        &self,
        progress: &mut Progress,
        at: u64,
        link: Word,
    ) -> Result<(u64, u64), Damage> {
        let node = link.offset();
        if !node.is_multiple_of(NODE_LEN_MIN) || !self.is_inside(node, NODE_LEN_MIN) {
            return Err(Damage::at(at, "a link leads to where no entry can be"));
        }
        let tag = self.medium().load(node + TAG);
        if !self.is_tag(node, tag) {
            return Err(Damage::at(node, "the tag of an entry does not fit its check"));
        }
        progress.pass_node(node, tag_order(tag)).map_err(|what| Damage::at(at, what))?;
        Ok((node, tag))
    }

    /// Checks that the list may end at the null link at `at`.
    #[inline(always)]
    pub(super) fn step_to_end(&self, progress: &Progress, at: u64) -> Result<(), Damage> {
        progress.end().map_err(|what| Damage::at(at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(bits: u32) -> Progress {
        Progress::from_bucket::<u64>(0, bits)
    }

    fn order(bucket: u64) -> Order {
        Order::of_bucket(bucket)
    }

    #[test]
    fn progress_leads_from_one_certain_bucket_to_the_next() {
        let last = (1 << 13) - 1_u64;
        let mut progress = progress(14);
        assert!(progress.pass_node(32, Order(7)).is_ok());
        assert!(progress.pass_node(64, Order(6)).is_err());
        // A bucket of the last doubling may be linked or not.
        let mut with = progress;
        assert!(with.pass_dummy(order(1 << 13)).is_ok());
        assert!(with.pass_dummy(order(1 << 12)).is_ok());
        assert!(progress.pass_dummy(order(1 << 12)).is_ok());
        assert!(progress.pass_dummy(order(1 << 13)).is_err());
        assert!(progress.pass_dummy(order(1 << 10)).is_err());
        assert!(progress.end().is_err());
        assert!(Progress::from_bucket::<u64>(last, 14).end().is_ok());
        assert!(Progress::from_bucket::<u64>(last | 1 << 13, 14).end().is_ok());
    }

    #[test]
    fn entries_of_one_order_are_met_once() {
        let mut progress = progress(13);
        let nodes: Vec<u64> = (1..1_000).map(|node| node * 32).collect();
        assert!(nodes.iter().all(|&node| progress.pass_node(node, Order(5)).is_ok()));
        let again = nodes.iter().cycle().take(3_000);
        let ended = again.map(|&node| progress.pass_node(node, Order(5))).any(|met| met.is_err());
        assert!(ended);
    }
}
