//! Finding a place in the list.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::layout::{
    DUMMY, Hint, Order, READY, TAG, dummy_of, redirect, tag_generation, tag_order, target,
};
use crate::stored::{Key, Stored};

/// Marked nodes that one compare-exchange unlinks at most; bounds the suspects an operation needs.
pub(super) const RUN_MAX: usize = 16;

/// A place in the list: after the node or dummy whose link is at `link_at`.
#[derive(Debug)]
pub(super) struct Place {
    /// Offset of the link word of the last live node or dummy before the place.
    pub(super) link_at: u64,
    /// That word: clean and unmarked when it was read.
    pub(super) link: Word,
    /// The bucket whose slot the link is, if it is one.
    pub(super) bucket: Option<u64>,
    /// Marked nodes between that link and `next`; all of them are frozen.
    pub(super) run_len: usize,
    /// What follows the place: the first word that does not lead to a marked node.
    pub(super) next: Word,
    /// The node that was looked for, with its clean and unmarked link, when it was found at `next`.
    pub(super) found: Option<Found>,
    /// Whether the run has [`RUN_MAX`] nodes and more follow, so that the search could not go on.
    pub(super) overflow: bool,
}

impl Place {
    /// The link's word when a new node of this order is put here.
    #[inline(always)]
    pub(super) fn led_to(&self, node: u64, order: Order, bits_min: u32) -> Word {
        let word = redirect(self.link, Word::to(node));
        match self.bucket {
            None => word,
            Some(bucket) => {
                let bits = level(bucket, bits_min);
                let shares = order.shares(Order::of_bucket(bucket), bits);
                let hint = if shares { Hint::of(order, bits) } else { Hint::NONE };
                hint.put(word)
            }
        }
    }

    /// The link's word when it leads past what it led to, to something further on. A slot keeps its hint:
    /// a lower bound stays one.
    #[inline(always)]
    pub(super) fn led_past(&self, next: Word) -> Word {
        redirect(self.link, target(next))
    }

    /// What is known of the order of the node that the link leads to, when it is a slot's.
    pub(super) fn bound(&self, bits_min: u32) -> Option<Order> {
        let bucket = self.bucket?;
        Hint::in_slot(self.link).bound(Order::of_bucket(bucket), level(bucket, bits_min))
    }

    /// The marked nodes between the link and `next`, in list order.
    pub(super) fn run<M: Medium>(&self, medium: &M) -> impl Iterator<Item = u64> {
        let mut word = self.link;
        (0..self.run_len).map(move |_| {
            let node = word.offset();
            // Marked links never change: this is the run that the walk has seen.
            word = Link::at(medium, node).load();
            node
        })
    }
}

/// What a walk does at a live node.
enum Step {
    Pass,
    Stop,
    Match,
}

/// A node that was looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) node: u64,
    pub(super) link: Word,
}

/// Where a search stops among nodes of the order it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Before the first.
    First,
    /// After the last.
    Last,
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

    /// The bucket to begin at for this order, and its slot: the order's own, or the nearest parent that
    /// is linked already.
    #[inline(always)]
    pub(super) fn start(&self, order: Order) -> (u64, u64, Word) {
        let mut bucket = order.bucket_bits() & ((1 << self.bits()) - 1);
        loop {
            let at = self.slot(bucket);
            let link = Link::at(self.medium(), at).load();
            // Bucket 0 is always ready, unless its line cannot be read: then `verify` tells.
            if link.has(READY) || bucket == 0 {
                return (bucket, at, link);
            }
            bucket = parent(bucket);
        }
    }

    /// Whether the first entry behind the slot of `bucket`, which is one of the order's buckets, lies
    /// behind `order` for certain.
    #[inline(always)]
    pub(super) fn is_behind(bucket: u64, slot: Word, order: Order) -> bool {
        Hint::in_slot(slot) > Hint::of(order, level(bucket, K::BUCKET_BITS)) && !slot.has(DUMMY)
    }

    /// Whether entries of this generation are still there.
    #[inline(always)]
    pub(super) fn is_alive(generation: u16, now: u16) -> bool {
        // Wrapping: sweeping keeps all generations in the list within half the range.
        generation.wrapping_sub(now) < 1 << 15
    }

    #[inline(always)]
    pub(super) fn generation(&self) -> u16 {
        // Acquire: pairs with the Release in `clear`, which follows the durable word.
        self.generation.load(Ordering::Acquire) as u16
    }

    /// Walks to the place of `order` for writing: every link on the way is durable when it is passed,
    /// so that what is linked there cannot be cut off by a crash.
    ///
    /// `is_match` is asked about unmarked nodes of exactly this order, with their generation; the first
    /// one it accepts ends the search. A place that [overflows](Place::overflow) ends it early: it is to be cleared first.
    #[inline]
    pub(super) fn find(
        &self,
        order: Order,
        edge: Edge,
        mut is_match: impl FnMut(u64, u16) -> bool,
    ) -> Place {
        self.walk(order, |node, tag| {
            let node_order = tag_order(tag);
            if node_order == order && is_match(node, tag_generation(tag)) {
                return Step::Match;
            }
            match edge {
                Edge::First if node_order >= order => Step::Stop,
                Edge::Last if node_order > order => Step::Stop,
                _ => Step::Pass,
            }
        })
    }

    /// The place whose run holds the marked node `node` of this order, if it is still in the list.
    #[cold]
    pub(super) fn find_marked(&self, order: Order, node: u64) -> Option<Place> {
        let holds =
            |place: &Place| place.overflow || place.run(self.medium()).any(|marked| marked == node);
        // Each walk stops at a later live node of this order than the one before.
        for passed in 0.. {
            let mut seen = 0;
            let mut ended = true;
            let place = self.walk(order, |_, tag| {
                if tag_order(tag) < order {
                    return Step::Pass;
                }
                ended = tag_order(tag) > order;
                seen += 1;
                if ended || seen > passed { Step::Stop } else { Step::Pass }
            });
            if holds(&place) {
                return Some(place);
            }
            if ended || seen <= passed {
                return None;
            }
        }
        None
    }

    /// Passes the unmarked nodes of `order` to `visit`, with their generation, until it breaks.
    pub(super) fn visit_order(
        &self,
        order: Order,
        mut visit: impl FnMut(Found, u16) -> ControlFlow<()>,
    ) {
        let medium = self.medium();
        let (_, at, _) = self.start(order);
        let mut link = Link::at(medium, at).load_durable();
        loop {
            if link.has(DUMMY) {
                if Order::of_bucket(dummy_of(link)) > order {
                    return;
                }
                link = Link::at(medium, self.slot(dummy_of(link))).load_durable();
                continue;
            }
            let node = link.offset();
            if link.is_null() {
                return;
            }
            let tag = medium.load(node + TAG);
            if tag_order(tag) > order {
                return;
            }
            link = Link::at(medium, node).load_durable();
            if tag_order(tag) == order
                && !link.is_marked()
                && visit(Found { node, link }, tag_generation(tag)).is_break()
            {
                return;
            }
        }
    }

    /// Walks the list from the bucket of `order`, and asks `decide` at every node that is not marked,
    /// with its tag. Ends in any case before the first dummy behind `order`.
    #[inline(always)]
    fn walk(&self, order: Order, mut decide: impl FnMut(u64, u64) -> Step) -> Place {
        let medium = self.medium();
        let (start, mut link_at, _) = self.start(order);
        let mut bucket = Some(start);
        let mut link = Link::at(medium, link_at).load_durable();
        let mut run_len = 0;
        let mut next = link;
        let mut found = None;
        let mut overflow = false;
        loop {
            if next.has(DUMMY) {
                if Order::of_bucket(dummy_of(next)) > order {
                    break;
                }
                bucket = Some(dummy_of(next));
                link_at = self.slot(dummy_of(next));
                link = Link::at(medium, link_at).load_durable();
                (run_len, next) = (0, link);
                continue;
            }
            // The hint of a slot that was met on the way may be about other orders.
            let is_first = bucket == Some(start) && run_len == 0;
            if next.is_null() || is_first && Self::is_behind(start, link, order) {
                break;
            }
            let node = next.offset();
            let tag = medium.load(node + TAG);
            let own = Link::at(medium, node).load_durable();
            if own.is_marked() {
                if tag_order(tag) > order {
                    break;
                }
                overflow = run_len == RUN_MAX;
                if overflow {
                    break;
                }
                run_len += 1;
                next = own;
                continue;
            }
            match decide(node, tag) {
                Step::Pass => {}
                Step::Stop => break,
                Step::Match => {
                    found = Some(Found { node, link: own });
                    break;
                }
            }
            (bucket, link_at, link) = (None, node, own);
            (run_len, next) = (0, own);
        }
        Place { link_at, link, bucket, run_len, next, found, overflow }
    }
}

/// Bits of a bucket's number when it was made: all entries behind its slot share them.
#[inline(always)]
pub(super) fn level(bucket: u64, bits_min: u32) -> u32 {
    bits_min.max(64 - bucket.leading_zeros())
}

/// The bucket that `bucket` is split off from: its number without the highest bit.
#[inline(always)]
pub(super) fn parent(bucket: u64) -> u64 {
    debug_assert!(bucket > 0, "bucket 0 is always linked");
    bucket & !(1 << (63 - bucket.leading_zeros()))
}
