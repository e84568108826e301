//! Finding a place in the list.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::layout::{DUMMY, Order, READY, TAG, dummy_of, tag_generation, tag_order};
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
    /// Marked nodes between that link and `next`, in list order; all of them are frozen.
    pub(super) run: Run,
    /// What follows the place: the first word that does not lead to a marked node.
    pub(super) next: Word,
    /// The node that was looked for, with its clean and unmarked link, when it was found at `next`.
    pub(super) found: Option<Found>,
    /// Whether `run` is full and more marked nodes follow, so that the search could not go on.
    pub(super) overflow: bool,
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

/// Up to [`RUN_MAX`] marked nodes.
#[derive(Debug, Default)]
pub(super) struct Run {
    nodes: [u64; RUN_MAX],
    len: usize,
}

impl Run {
    /// Adds a node; false when there is no room.
    fn push(&mut self, node: u64) -> bool {
        let room = self.len < RUN_MAX;
        if room {
            self.nodes[self.len] = node;
            self.len += 1;
        }
        room
    }

    pub(super) fn nodes(&self) -> &[u64] {
        &self.nodes[..self.len]
    }
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
        use super::layout::BITS_MIN;
        let (segment, index) = if bucket < 1 << BITS_MIN {
            (0, bucket)
        } else {
            let top = 63 - bucket.leading_zeros();
            (top - BITS_MIN + 1, bucket - (1 << top))
        };
        // Relaxed: stored before the number of bits that led to this bucket (Acquire in `bits`), or
        // before the dummy link that names it.
        self.segments[segment as usize].load(Ordering::Relaxed) + index * 8
    }

    /// The slot to begin at for hashes that end in `hash_bits`: of their bucket, or of the nearest
    /// parent that is linked already.
    #[inline(always)]
    pub(super) fn start(&self, hash_bits: u64) -> (u64, Word) {
        let mut bucket = hash_bits & ((1 << self.bits()) - 1);
        loop {
            let at = self.slot(bucket);
            let link = Link::at(self.medium(), at).load();
            if link.has(READY) {
                return (at, link);
            }
            bucket = parent(bucket);
        }
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
    #[track_caller]
    pub(super) fn find(
        &self,
        order: Order,
        edge: Edge,
        mut is_match: impl FnMut(u64, u16) -> bool,
    ) -> Place {
        self.walk(order, |_, node, tag| {
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
    #[track_caller]
    pub(super) fn find_marked(&self, order: Order, node: u64) -> Option<Place> {
        let place = self.walk(order, |run, _, tag| {
            let stop = run.nodes().contains(&node) || tag_order(tag) > order;
            if stop { Step::Stop } else { Step::Pass }
        });
        (place.overflow || place.run.nodes().contains(&node)).then_some(place)
    }

    /// Passes the unmarked nodes of `order` to `visit`, with their generation, until it breaks.
    #[track_caller]
    pub(super) fn visit_order(
        &self,
        order: Order,
        mut visit: impl FnMut(Found, u16) -> ControlFlow<()>,
    ) {
        let medium = self.medium();
        let (at, _) = self.start(order.hash_bits());
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
    /// with the marked nodes before it. Ends in any case before the first dummy behind `order`.
    #[inline(always)]
    #[track_caller]
    fn walk(&self, order: Order, mut decide: impl FnMut(&Run, u64, u64) -> Step) -> Place {
        let medium = self.medium();
        let (mut link_at, _) = self.start(order.hash_bits());
        let mut link = Link::at(medium, link_at).load_durable();
        let mut run = Run::default();
        let mut next = link;
        let mut found = None;
        let mut overflow = false;
        loop {
            if next.has(DUMMY) {
                if Order::of_bucket(dummy_of(next)) > order {
                    break;
                }
                link_at = self.slot(dummy_of(next));
                link = Link::at(medium, link_at).load_durable();
                (run.len, next) = (0, link);
                continue;
            }
            if next.is_null() {
                break;
            }
            let node = next.offset();
            let tag = medium.load(node + TAG);
            let own = Link::at(medium, node).load_durable();
            if own.is_marked() {
                if tag_order(tag) > order {
                    break;
                }
                overflow = !run.push(node);
                if overflow {
                    break;
                }
                next = own;
                continue;
            }
            match decide(&run, node, tag) {
                Step::Pass => {}
                Step::Stop => break,
                Step::Match => {
                    found = Some(Found { node, link: own });
                    break;
                }
            }
            (link_at, link) = (node, own);
            (run.len, next) = (0, own);
        }
        Place { link_at, link, run, next, found, overflow }
    }
}

/// The bucket that `bucket` is split off from: its number without the highest bit.
#[inline(always)]
pub(super) fn parent(bucket: u64) -> u64 {
    debug_assert!(bucket > 0, "bucket 0 is always linked");
    bucket & !(1 << (63 - bucket.leading_zeros()))
}
