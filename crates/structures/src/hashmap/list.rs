//! Finding a place in the list.

use std::ops::ControlFlow;

use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::damage::Damage;
use super::entry::Found;
use super::layout::{DUMMY, Hint, Order, level, redirect, tag_order, target};
use super::seal::seal_link;
use super::walk::Progress;
use crate::stored::{Key, Stored};

/// The most marked nodes that one compare-exchange unlinks. It bounds the suspects that an
/// operation needs.
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
    /// The link that follows the run: the first that does not lead to a marked node.
    pub(super) next: Word,
    /// The node that was searched for, with its clean and unmarked link, if it was found at `next`.
    pub(super) found: Option<Found>,
    /// Whether the run has [`RUN_MAX`] nodes and more follow, which ended the search early.
    pub(super) overflow: bool,
}

impl Place {
    /// The link's word that leads to a new node of this order.
    #[inline(always)]
    pub(super) fn led_to(&self, node: u64, order: Order, bits_min: u32) -> Word {
        let word = redirect(self.link, Word::to(node));
        let word = self.bucket.map_or(word, |bucket| {
            let bits = level(bucket, bits_min);
            let shares = order.shares(Order::of_bucket(bucket), bits);
            let hint = if shares { Hint::of(order, bits) } else { Hint::NONE };
            hint.put(word)
        });
        seal_link(self.link_at, word)
    }

    /// The link's word that leads to `next`, past its former target. A slot keeps its hint: a lower
    /// bound stays one.
    #[inline(always)]
    pub(super) fn led_past(&self, next: Word) -> Word {
        seal_link(self.link_at, redirect(self.link, target(next)))
    }

    /// The known lower bound of the order of the node that the link leads to, if the link is a
    /// slot's.
    pub(super) fn bound(&self, bits_min: u32) -> Option<Order> {
        let bucket = self.bucket?;
        Hint::in_slot(self.link).bound(Order::of_bucket(bucket), level(bucket, bits_min))
    }

    /// The marked nodes between the link and `next`, in list order.
    pub(super) fn run<M: Medium>(&self, medium: &M) -> impl Iterator<Item = u64> {
        let mut word = self.link;
        (0..self.run_len).map(move |_| {
            let node = word.offset();
            // Marked links never change, so this is the run that the walk has seen.
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

/// Where a search stops among the nodes of its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Before the first.
    First,
    /// After the last.
    Last,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Walks to the place of `order` for writing. Every link on the way is durable when it is
    /// passed, so that a crash cannot cut off what is linked there.
    ///
    /// `is_match` is called with each unmarked node of exactly this order, and with its tag. The
    /// first node that it accepts ends the search. A place that [overflows](Place::overflow) ends
    /// the search early, and must be cleared first.
    #[inline]
    pub(super) fn find(
        &self,
        order: Order,
        edge: Edge,
        mut is_match: impl FnMut(u64, u64) -> Result<bool, Damage>,
    ) -> Result<Place, Damage> {
        self.walk(order, |node, tag| {
            let node_order = tag_order(tag);
            if node_order == order && is_match(node, tag)? {
                return Ok(Step::Match);
            }
            Ok(match edge {
                Edge::First if node_order >= order => Step::Stop,
                Edge::Last if node_order > order => Step::Stop,
                _ => Step::Pass,
            })
        })
    }

    /// The place whose run holds the marked node `node` of this order, if it is still in the list.
    #[cold]
    pub(super) fn find_marked(&self, order: Order, node: u64) -> Result<Option<Place>, Damage> {
        let holds =
            |place: &Place| place.overflow || place.run(self.medium()).any(|marked| marked == node);
        // Each walk stops at a later live node of this order than the one before.
        for passed in 0.. {
            let mut seen = 0;
            let mut ended = true;
            let place = self.walk(order, |_, tag| {
                if tag_order(tag) < order {
                    return Ok(Step::Pass);
                }
                ended = tag_order(tag) > order;
                seen += 1;
                Ok(if ended || seen > passed { Step::Stop } else { Step::Pass })
            })?;
            if holds(&place) {
                return Ok(Some(place));
            }
            if ended || seen <= passed {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Passes the unmarked nodes of `order` to `visit`, with their tag, until it breaks.
    pub(super) fn visit_order(
        &self,
        order: Order,
        mut visit: impl FnMut(Found, u64) -> Result<ControlFlow<()>, Damage>,
    ) -> Result<(), Damage> {
        let bits = self.bits();
        let (bucket, _, _) = self.start(order, bits)?;
        let mut progress = Progress::from_start::<K>(order, bucket, bits);
        let (mut at, mut link) = self.enter_slot(bucket, |link| link.load_durable())?;
        loop {
            if link.has(DUMMY) {
                let bucket = self.step_to_dummy(&mut progress, at, link)?;
                if Order::of_bucket(bucket) > order {
                    return Ok(());
                }
                (at, link) = self.enter_slot(bucket, |link| link.load_durable())?;
                continue;
            }
            if link.is_null() {
                return self.step_to_end(&progress, at);
            }
            let (node, tag) = self.step_to_node(&mut progress, at, link)?;
            if tag_order(tag) > order {
                return Ok(());
            }
            (at, link) = (node, Link::at(self.medium(), node).load_durable());
            if tag_order(tag) == order
                && !self.is_gone(node, link)?
                && visit(Found { node, link }, tag)?.is_break()
            {
                return Ok(());
            }
        }
    }

    /// Walks the list from the bucket of `order`, and calls `decide` at every unmarked node, with
    /// its tag. Ends at the latest before the first dummy behind `order`.
    #[inline(always)]
    fn walk(
        &self,
        order: Order,
        mut decide: impl FnMut(u64, u64) -> Result<Step, Damage>,
    ) -> Result<Place, Damage> {
        let bits = self.bits();
        let (start, _, _) = self.start(order, bits)?;
        let mut progress = Progress::from_start::<K>(order, start, bits);
        let (mut link_at, mut link) = self.enter_slot(start, |link| link.load_durable())?;
        let mut bucket = Some(start);
        // Place of the link `next`, behind the run.
        let (mut next_at, mut next) = (link_at, link);
        let mut run_len = 0;
        let mut found = None;
        let mut overflow = false;
        loop {
            if next.has(DUMMY) {
                let dummy = self.step_to_dummy(&mut progress, next_at, next)?;
                if Order::of_bucket(dummy) > order {
                    break;
                }
                bucket = Some(dummy);
                (link_at, link) = self.enter_slot(dummy, |link| link.load_durable())?;
                (run_len, next_at, next) = (0, link_at, link);
                continue;
            }
            // A slot that was met on the way may have a hint about other orders.
            let is_first = bucket == Some(start) && run_len == 0;
            if is_first && Self::is_behind(start, link, order) {
                break;
            }
            if next.is_null() {
                self.step_to_end(&progress, next_at)?;
                break;
            }
            let (node, tag) = self.step_to_node(&mut progress, next_at, next)?;
            let own = Link::at(self.medium(), node).load_durable();
            if self.is_gone(node, own)? {
                if tag_order(tag) > order {
                    break;
                }
                overflow = run_len == RUN_MAX;
                if overflow {
                    break;
                }
                run_len += 1;
                (next_at, next) = (node, own);
                continue;
            }
            match decide(node, tag)? {
                Step::Pass => {}
                Step::Stop => break,
                Step::Match => {
                    found = Some(Found { node, link: own });
                    break;
                }
            }
            (bucket, link_at, link) = (None, node, own);
            (run_len, next_at, next) = (0, node, own);
        }
        Ok(Place { link_at, link, bucket, run_len, next, found, overflow })
    }
}
