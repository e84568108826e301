//! The rules that every walk keeps to, so that damage ends it.
//!
//! Orders never decrease along the list, and a dummy comes before the entries of its order. So a link that leads
//! backwards is damage that shows at once. Among entries of one order, which only collisions and multi-maps have, a walk
//! that goes in a circle meets an entry again (Brent's algorithm).
//!
//! All buckets but those of the last doubling are certain to be linked. So between two of them the list leads to no
//! entry beyond, and does not end: a link that skips one of them is damage too.

use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::layout::{
    DUMMY, GONE, ORDER_BITS, ORDER_END, Order, READY, Shape, TAG, dummy_of, tag_order,
};
use super::list::{level, parent};
use super::seal::{entry_sum, is_link, is_tag};
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// Smallest block, and what every node has at least.
const NODE_LEN_MIN: u64 = 32;

/// What a walk met that nobody has written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Damage {
    /// A word that cannot be there.
    Word { at: u64, what: &'static str },
    /// An entry whose bytes do not give its checksum.
    Sum { node: u64, stored: u32, computed: u32 },
}

impl Damage {
    #[cold]
    fn at(at: u64, what: &'static str) -> Self {
        Damage::Word { at, what }
    }
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Order of the last node or dummy.
    last: u64,
    /// Order of the next dummy that is certain to be linked.
    limit: u64,
    /// From one of those to the next.
    step: u64,
    /// Entries that had the order of the one before.
    equals: u64,
    /// One of those: the first, second, fourth, eighth and so on. Who goes in a circle meets one again.
    mark: u64,
}

impl Course {
    /// From the dummy of `bucket` on, in a map of `bits` bits.
    #[inline(always)]
    pub(super) fn from_bucket<K: Key + ?Sized>(bucket: u64, bits: u32) -> Self {
        Self::from_dummy::<K>(Order::of_bucket(bucket), bits)
    }

    /// The same from the dummy of a bucket that `start` found for this order: it has the order's first bits.
    #[inline(always)]
    pub(super) fn from_start<K: Key + ?Sized>(order: Order, bucket: u64, bits: u32) -> Self {
        let below = ORDER_BITS - level(bucket, K::BUCKET_BITS);
        Self::from_dummy::<K>(Order(order.0 >> below << below), bits)
    }

    #[inline(always)]
    fn from_dummy<K: Key + ?Sized>(dummy: Order, bits: u32) -> Self {
        let step = 1 << (ORDER_BITS - (bits - 1).max(K::BUCKET_BITS));
        let last = dummy.0;
        Course { last, limit: (last & !(step - 1)) + step, step, equals: 0, mark: 0 }
    }

    /// The list leads to the node at `node` of this order.
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

    /// The list leads to the dummy of this order.
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

    /// The list ends.
    #[inline(always)]
    fn end(&self) -> Result<(), &'static str> {
        if self.limit < ORDER_END { Err("the list ends before its last bucket") } else { Ok(()) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// What to tell of damage.
    #[cold]
    pub(super) fn report(&self, damage: Damage) -> Error {
        match damage {
            Damage::Word { at, what } => Error::corrupt(&self.heap, at, what),
            Damage::Sum { node, stored, computed } => {
                Error::checksum(&self.heap, node, stored, computed)
            }
        }
    }

    #[inline(always)]
    pub(super) fn told<T>(&self, result: Result<T, Damage>) -> Result<T> {
        result.map_err(|damage| self.report(damage))
    }

    /// The bucket to begin at for this order in a map of `bits` bits, and its slot: the order's own, or the nearest
    /// parent that is linked already.
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

    #[inline(always)]
    pub(super) fn check_link(&self, at: u64, link: Word) -> Result<(), Damage> {
        if is_link(at, link) {
            Ok(())
        } else {
            Err(Damage::at(at, "a link does not fit its check"))
        }
    }

    /// Goes on to the dummy that `link`, found at `at`, leads to: its bucket.
    #[inline(always)]
    pub(super) fn step_to_dummy(
        &self,
        course: &mut Course,
        at: u64,
        link: Word,
    ) -> Result<u64, Damage> {
        debug_assert!(link.has(DUMMY), "{link:?} leads to no dummy");
        let bucket = dummy_of(link);
        // The map may have grown since the walk began.
        if bucket >> self.bits() != 0 {
            return Err(Damage::at(at, "a link leads to a bucket that does not exist"));
        }
        course.pass_dummy(Order::of_bucket(bucket)).map_err(|what| Damage::at(at, what))?;
        Ok(bucket)
    }

    /// The slot of a bucket that a link leads to: where it is, and its word as `load` finds it.
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

    /// Goes on to the node that `link`, found at `at`, leads to: its offset, and its tag.
    #[inline(always)]
    pub(super) fn step_to_node(
        &self,
        course: &mut Course,
        at: u64,
        link: Word,
    ) -> Result<(u64, u64), Damage> {
        let node = link.offset();
        if !node.is_multiple_of(NODE_LEN_MIN) || !self.is_inside(node, NODE_LEN_MIN) {
            return Err(Damage::at(at, "a link leads to where no entry can be"));
        }
        let tag = self.medium().load(node + TAG);
        if !is_tag(node, tag) {
            return Err(Damage::at(node, "the tag of an entry does not fit its check"));
        }
        course.pass_node(node, tag_order(tag)).map_err(|what| Damage::at(at, what))?;
        Ok((node, tag))
    }

    /// The link at `at` leads nowhere: whether the list may end there.
    #[inline(always)]
    pub(super) fn step_to_end(&self, course: &Course, at: u64) -> Result<(), Damage> {
        course.end().map_err(|what| Damage::at(at, what))
    }

    /// Whether the entry at `node`, whose own link this is, is there: no matter what else the link holds.
    #[inline(always)]
    pub(super) fn is_there(&self, node: u64, own: Word) -> Result<bool, Damage> {
        Ok(own.raw() & GONE == 0 || !self.is_gone(node, own)?)
    }

    /// Whether the entry at `node`, whose own link this is, was removed.
    #[inline(always)]
    pub(super) fn is_gone(&self, node: u64, own: Word) -> Result<bool, Damage> {
        self.check_link(node, own)?;
        match own.raw() & GONE {
            0 => Ok(false),
            GONE => Ok(true),
            _ => Err(Damage::at(node, "half of an entry's mark is there")),
        }
    }

    #[inline(always)]
    pub(super) fn is_inside(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.medium().len())
    }

    /// The shape of the node at `node`, whose parts lie in the pool.
    #[inline(always)]
    pub(super) fn shape(&self, node: u64) -> Result<Shape, Damage> {
        match Shape::read::<K, V, M>(self.medium(), node) {
            Some(shape) if self.is_inside(node, shape.len) => Ok(shape),
            _ => Err(Damage::at(node, "no entry can have these lengths")),
        }
    }

    /// Lets `use_key` see the key of the entry at `node`, if it is the one that the entry's tag is for.
    pub(super) fn with_key<R>(
        &self,
        node: u64,
        tag: u64,
        use_key: impl FnOnce(&K) -> R,
    ) -> Result<R, Damage> {
        let shape = self.shape(node)?;
        // SAFETY: a published node's key never changes, and the caller's lane keeps the node.
        let range = unsafe { remanent_pmem::Frozen::new(node + shape.key_at, shape.key_len) };
        K::with_stored(&self.medium().view(range), |key| {
            if Order::of_hash(self.hash(key)) != tag_order(tag) {
                return Err(Damage::at(
                    node,
                    "the key of an entry has changed: it belongs elsewhere",
                ));
            }
            Ok(use_key(key))
        })
    }

    /// The shape of the entry at `node`, which has the order of `key`, if it is the one of that key.
    #[inline(always)]
    pub(super) fn entry_of(&self, node: u64, tag: u64, key: &K) -> Result<Option<Shape>, Damage> {
        let shape = self.shape(node)?;
        let has_len = K::LEN.is_some() || shape.key_len == key.stored_len();
        if has_len && key.matches(self.medium(), node + shape.key_at) {
            return Ok(Some(shape));
        }
        // Another key of the same order, which is rare: or the same one, damaged.
        self.with_key(node, tag, |_| None)
    }

    /// Compares the checksum of the entry at `node` with its value's bytes.
    #[inline(always)]
    pub(super) fn check_sum(
        &self,
        node: u64,
        tag: u64,
        shape: &Shape,
        value: &[u8],
    ) -> Result<(), Damage> {
        if !self.is_summed {
            return Ok(());
        }
        let computed = entry_sum(tag, value);
        if computed == shape.sum {
            return Ok(());
        }
        Err(Damage::Sum { node, stored: shape.sum, computed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(bits: u32) -> Course {
        Course::from_bucket::<u64>(0, bits)
    }

    fn order(bucket: u64) -> Order {
        Order::of_bucket(bucket)
    }

    #[test]
    fn a_course_leads_from_one_certain_bucket_to_the_next() {
        let last = (1 << 13) - 1_u64;
        let mut course = course(14);
        assert!(course.pass_node(32, Order(7)).is_ok());
        assert!(course.pass_node(64, Order(6)).is_err());
        // A bucket of the last doubling need not be there, but may.
        let mut with = course;
        assert!(with.pass_dummy(order(1 << 13)).is_ok());
        assert!(with.pass_dummy(order(1 << 12)).is_ok());
        assert!(course.pass_dummy(order(1 << 12)).is_ok());
        assert!(course.pass_dummy(order(1 << 13)).is_err());
        assert!(course.pass_dummy(order(1 << 10)).is_err());
        assert!(course.end().is_err());
        assert!(Course::from_bucket::<u64>(last, 14).end().is_ok());
        assert!(Course::from_bucket::<u64>(last | 1 << 13, 14).end().is_ok());
    }

    #[test]
    fn entries_of_one_order_are_met_once() {
        let mut course = course(13);
        let nodes: Vec<u64> = (1..1_000).map(|node| node * 32).collect();
        assert!(nodes.iter().all(|&node| course.pass_node(node, Order(5)).is_ok()));
        let again = nodes.iter().cycle().take(3_000);
        let ended = again.map(|&node| course.pass_node(node, Order(5))).any(|met| met.is_err());
        assert!(ended);
    }
}
