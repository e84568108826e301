//! Ranges, forwards and backwards.

use std::cmp::Ordering as Compared;
use std::ops::{Bound, ControlFlow, RangeBounds};

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use smallvec::SmallVec;

use super::Core;
use super::inner::Goal;
use super::key::{Probe, compare_bound, with_separator};
use super::layout::{
    HIGH, LEAF_LEN, LEAF_LOW, NEXT, ORDER, ORDERED, Record, SLOT_COUNT, Slot, USED, is_inline,
    is_word, is_word_value, slots_of,
};
use super::leaf::Leaf;
use super::ops::Payload;
use super::walk::BoundedWalk;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Leaves that a scan visits under one pin. A pin keeps removed blocks from being freed.
const LEAVES_A_PIN: usize = 64;

/// A copy of a leaf's state at one moment.
struct Snapshot {
    /// Head of the key, and the value or the offset of the record.
    entries: [(u64, u64); SLOT_COUNT],
    /// Values of one word that lie in records.
    values: [u64; SLOT_COUNT],
    slots: [Slot; SLOT_COUNT],
    len: usize,
    is_ordered: bool,
    next: Leaf,
    /// Least key of the next leaf.
    high: u64,
}

/// A key in its ordered form. Short ones need no allocation.
type KeyBytes = SmallVec<[u8; 64]>;

/// The position where a scan goes on, or ends.
type Position = Bound<KeyBytes>;

fn position<K: OrderedKey + ?Sized>(bound: Bound<&K>) -> Position {
    bound.map(|key| key.with_ordered(KeyBytes::from_slice))
}

/// The first key of a range, and whether it is left out.
fn beginning(start: &Position) -> (&[u8], bool) {
    match start {
        Bound::Unbounded => (&[], false),
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// The used slots, divided by their keys: first the `count` slots of the least keys, then all
    /// others, beginning with the least of these. `count` is less than the number of entries. The
    /// leaf is held.
    pub(super) fn divided_slots(&self, leaf: Leaf, count: usize) -> Vec<Slot> {
        let mut entries: Vec<_> =
            slots_of(self.used(leaf)).map(|slot| (self.entry_of(leaf, slot), slot)).collect();
        if Self::has_records() {
            // Prefetch all records at once: sorting, and computing new heads, would fetch them one
            // by one.
            for &((_, record), _) in &entries {
                Record::prefetch(self.medium(), record);
            }
        }
        entries.select_nth_unstable_by(count, |&(one, _), &(other, _)| self.compare(one, other));
        entries.into_iter().map(|(_, slot)| slot).collect()
    }

    /// The slot with the greatest key among `slots`. The leaf is held.
    pub(super) fn last_slot(
        &self,
        leaf: Leaf,
        slots: impl IntoIterator<Item = Slot>,
    ) -> Option<Slot> {
        slots.into_iter().max_by(|one, other| self.compare_slots(leaf, *one, *other))
    }

    /// Compares the keys of two slots.
    pub(super) fn compare_slots(&self, leaf: Leaf, one: Slot, other: Slot) -> Compared {
        self.compare(self.entry_of(leaf, one), self.entry_of(leaf, other))
    }

    /// A slot's head, and the offset of its record if it has one.
    #[inline(always)]
    fn entry_of(&self, leaf: Leaf, slot: Slot) -> (u64, u64) {
        let medium = self.medium();
        (medium.load(leaf.0 + slot.key()), medium.load(leaf.0 + slot.value()))
    }

    /// Compares heads. If they are equal, compares the keys in the records.
    #[inline(always)]
    fn compare(&self, one: (u64, u64), other: (u64, u64)) -> Compared {
        let by_head = one.0.cmp(&other.0);
        if is_word::<K>() || by_head != Compared::Equal {
            return by_head;
        }
        self.with_record_key(one.1, |one| self.with_record_key(other.1, |other| one.cmp(other)))
    }

    /// Compares the key of a slot with a probe.
    pub(super) fn compare_slot(&self, leaf: Leaf, slot: Slot, probe: &Probe<'_>) -> Compared {
        self.compare_entry(self.entry_of(leaf, slot), probe)
    }

    /// Compares the key of an entry with a probe.
    #[inline(always)]
    fn compare_entry(&self, (head, record): (u64, u64), probe: &Probe<'_>) -> Compared {
        if is_word::<K>() {
            return head.cmp(&probe.word);
        }
        self.with_record_key(record, |key| key.cmp(probe.bytes))
    }

    /// Copies a leaf's entries in key order. Returns false when the leaf is dead.
    #[inline]
    fn snapshot(&self, leaf: Leaf, snapshot: &mut Snapshot) -> Result<bool> {
        let medium = self.medium();
        let Some(lock) = self.stable_at(leaf, || self.copy(leaf, snapshot))? else {
            return Ok(false);
        };
        // A damaged key would be sorted to a wrong place.
        self.certain_miss(leaf)?;
        if !snapshot.is_ordered {
            let Snapshot { entries, values, slots, len, .. } = snapshot;
            let mut order: [u8; SLOT_COUNT] = std::array::from_fn(|index| index as u8);
            order[..*len].sort_unstable_by(|&one, &other| {
                self.compare(entries[one as usize], entries[other as usize])
            });
            let (unordered, unordered_slots) = (*entries, *slots);
            for (to, &from) in order[..*len].iter().enumerate() {
                entries[to] = unordered[from as usize];
                slots[to] = unordered_slots[from as usize];
            }
            if Self::has_word_records() {
                let unordered = *values;
                for (to, &from) in order[..*len].iter().enumerate() {
                    values[to] = unordered[from as usize];
                }
            }
            // Stores the order for the next reader, unless a writer is at work here.
            if let Some(held) = self.try_hold(leaf)
                && held.is_at(lock)
            {
                for (index, slots) in slots[..*len].chunks(8).enumerate() {
                    let word =
                        slots.iter().rev().fold(0, |word, slot| word << 8 | u64::from(slot.0));
                    medium.store(leaf.0 + ORDER + index as u64 * 8, word);
                }
                // Release: a reader that sees this flag sees the order. Partner of the load in
                // `copy`.
                medium.store(leaf.0 + ORDERED, 1);
            }
        }
        Ok(true)
    }

    /// Takes a slot out of a leaf's order, if it is known. The caller holds the leaf, and readers
    /// wait.
    #[inline]
    pub(super) fn remove_from_order(&self, leaf: Leaf, slot: Slot) {
        let medium = self.medium();
        if medium.load(leaf.0 + ORDERED) == 0 {
            return;
        }
        let word_at = |index: usize| leaf.0 + ORDER + index as u64 * WORD_LEN;
        let mut order = [0; SLOT_COUNT + 1];
        for (index, slots) in order.chunks_exact_mut(8).enumerate() {
            slots.copy_from_slice(&medium.load(word_at(index)).to_le_bytes());
        }
        let Some(at) = order.iter().position(|other| u32::from(*other) == slot.0) else {
            return medium.store(leaf.0 + ORDERED, 0);
        };
        order.copy_within(at + 1.., at);
        for (index, slots) in order.chunks_exact(8).enumerate().skip(at / 8) {
            let word = slots.iter().rev().fold(0, |word, slot| word << 8 | u64::from(*slot));
            medium.store(word_at(index), word);
        }
    }

    #[inline(always)]
    fn copy(&self, leaf: Leaf, snapshot: &mut Snapshot) {
        let Some(load) = self.medium().window(leaf.0, LEAF_LEN) else {
            snapshot.len = 0;
            return;
        };
        let used = load(USED);
        snapshot.len = used.count_ones() as usize;
        snapshot.next = Leaf::linked(load(NEXT));
        snapshot.high = load(HIGH);
        // Acquire: the order is loaded after the flag. Partner of the Release in `snapshot`.
        snapshot.is_ordered = load(ORDERED) != 0;
        if snapshot.is_ordered {
            let len = snapshot.len.min(SLOT_COUNT);
            for start in (0..len).step_by(8) {
                let mut word = load(ORDER + start as u64);
                for index in start..len.min(start + 8) {
                    let slot = Slot((word as u32 & 0xff).min(SLOT_COUNT as u32 - 1));
                    // If the leaf changes meanwhile, `stable_at` reads it again. But the order may
                    // already be newer than `used`. A slot that `used` does not contain may lead to
                    // a record that was freed before this thread entered the heap, so it is
                    // skipped.
                    if used & 1 << slot.0 != 0 {
                        self.copy_entry(leaf, &load, slot, index, snapshot);
                    }
                    word >>= 8;
                }
            }
        } else {
            for (index, slot) in slots_of(used).enumerate() {
                self.copy_entry(leaf, &load, slot, index, snapshot);
                snapshot.slots[index] = slot;
            }
        }
    }

    #[inline(always)]
    fn copy_entry(
        &self,
        leaf: Leaf,
        load: &impl Fn(u64) -> u64,
        slot: Slot,
        index: usize,
        snapshot: &mut Snapshot,
    ) {
        let head = load(slot.key());
        if Self::has_word_records() {
            let payload = self.payload(leaf, slot);
            snapshot.entries[index] = (head, payload.word);
            snapshot.values[index] = payload.value;
        } else {
            snapshot.entries[index] = (head, load(slot.value()));
        }
    }

    /// Whether values are words that lie in records.
    const fn has_word_records() -> bool {
        !is_inline::<K, V>() && is_word_value::<V>()
    }

    /// Prefetches all lines of a leaf at once, since its entries are read in key order and not line
    /// by line.
    #[inline(always)]
    fn prefetch_leaf(&self, leaf: Leaf) {
        if leaf.0 != 0 {
            (0..LEAF_LEN / LINE_LEN)
                .for_each(|line| self.medium().prefetch(leaf.0.wrapping_add(line * LINE_LEN)));
        }
    }

    pub(super) fn ascend(
        &self,
        range: impl RangeBounds<K>,
        mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = position(range.end_bound());
        let mut start = position(range.start_bound());
        let mut snapshot = Snapshot::empty();
        let mut walk = BoundedWalk::default();
        'pinned: loop {
            let _pin = self.heap.pin();
            let (bytes, is_excluded) = beginning(&start);
            let probe = Probe::new::<K>(bytes);
            let mut leaf = self.first_leaf(&probe)?;
            // Whether the range may begin in this leaf.
            let mut is_first = true;
            // Lower bound of this leaf, once an earlier leaf was visited.
            let mut low: Option<u64> = None;
            for seen in 0.. {
                // Everything from this key on is still to be visited, if the range has begun.
                let rest = low.filter(|_| !is_first);
                if let Some(low) = rest.filter(|_| seen > LEAVES_A_PIN) {
                    start = Bound::Included(self.bound_bytes(low));
                    continue 'pinned;
                }
                // If the range certainly goes on, both leaves are fetched at the same time.
                let goes_on = self.goes_on_behind(leaf, &end);
                if goes_on {
                    self.prefetch_leaf(Leaf::linked(self.medium().load(leaf.0 + NEXT)));
                }
                if !self.snapshot(leaf, &mut snapshot)? {
                    match rest.map(|low| self.bound_bytes(low)) {
                        // A restart counts as vain unless the scan came nearer to the end of the
                        // range.
                        Some(low) if low[..] > *bytes => {
                            walk = BoundedWalk::default();
                            start = Bound::Included(low);
                        }
                        _ => self.count_restart(&mut walk, leaf)?,
                    }
                    continue 'pinned;
                }
                let entries = &snapshot.entries[..snapshot.len];
                let from = if is_first { self.start_in(entries, &probe, is_excluded) } else { 0 };
                let to = self.end_in(entries, &end);
                if to == entries.len() && !goes_on {
                    self.prefetch_leaf(snapshot.next);
                }
                let is_ended = to < entries.len() || snapshot.next.0 == 0;
                if self.visit_entries(&snapshot, from..to, &mut visit)?.is_break() || is_ended {
                    return Ok(self.heap.verify()?);
                }
                if low.is_some_and(|low| !self.is_ascending(low, snapshot.high)) {
                    return Err(self.circle(leaf));
                }
                low = Some(snapshot.high);
                // The next leaf begins at this key, and all of its entries are in the range or
                // behind it. The exception is a first leaf that lies completely before the range.
                is_first =
                    is_first && compare_bound::<K, M>(self.medium(), &probe, snapshot.high).is_ge();
                leaf = snapshot.next;
            }
        }
    }

    /// Passes entries of a leaf to `visit`, until that breaks.
    #[inline(always)]
    fn visit_entries(
        &self,
        snapshot: &Snapshot,
        indices: std::ops::Range<usize>,
        visit: &mut impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        for index in indices {
            let (head, payload) = snapshot.entry(index);
            if self.visit_entry(head, payload, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    #[inline(always)]
    fn visit_entry(
        &self,
        head: u64,
        payload: Payload,
        visit: &mut impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (mut flow, mut failure) = (ControlFlow::Continue(()), None);
        // Not returned through `with_key`: to copy a `Result` within a `Result` takes as long as
        // the rest of a visit, because its loads are wider than the stores of an `Ok`.
        self.with_key(head, payload, |key| {
            match self.with_value(payload, |value| visit(key, value)) {
                Ok(visited) => flow = visited,
                Err(error) => failure = Some(error),
            }
        })?;
        failure.map_or(Ok(flow), Err)
    }

    /// Whether a range with this end certainly goes on behind a leaf. Only a hint, as the leaf may
    /// change. Does not fetch a separator to find out.
    #[inline(always)]
    fn goes_on_behind(&self, leaf: Leaf, end: &Position) -> bool {
        match end {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => {
                is_word::<K>() && Probe::new::<K>(key).word > self.medium().load(leaf.0 + HIGH)
            }
        }
    }

    /// The number of a leaf's entries before the beginning of a range.
    #[inline(always)]
    fn start_in(&self, entries: &[(u64, u64)], probe: &Probe<'_>, is_excluded: bool) -> usize {
        let is_before = |&entry: &(u64, u64)| match self.compare_entry(entry, probe) {
            Compared::Less => true,
            Compared::Equal => is_excluded,
            Compared::Greater => false,
        };
        // Many ranges begin before the first entry of a leaf.
        match entries.first() {
            Some(first) if is_before(first) => entries.partition_point(is_before),
            _ => 0,
        }
    }

    /// The number of a leaf's entries before the end of a range.
    #[inline(always)]
    fn end_in(&self, entries: &[(u64, u64)], end: &Position) -> usize {
        let (bytes, is_excluded) = match end {
            Bound::Unbounded => return entries.len(),
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        let probe = Probe::new::<K>(bytes);
        let is_inside = |&entry: &(u64, u64)| match self.compare_entry(entry, &probe) {
            Compared::Less => true,
            Compared::Equal => !is_excluded,
            Compared::Greater => false,
        };
        match entries.last() {
            Some(last) if !is_inside(last) => entries.partition_point(is_inside),
            _ => entries.len(),
        }
    }

    pub(super) fn descend(
        &self,
        range: impl RangeBounds<K>,
        mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        let start = position(range.start_bound());
        let mut end = position(range.end_bound());
        let mut snapshot = Snapshot::empty();
        let mut walk = BoundedWalk::default();
        loop {
            let _pin = self.heap.pin();
            let Some(leaf) = self.last_leaf_of(&end, &mut snapshot)? else {
                self.count_restart(&mut walk, Leaf(0))?;
                continue;
            };
            walk = BoundedWalk::default();
            let entries = &snapshot.entries[..snapshot.len];
            let to = self.end_in(entries, &end);
            for index in (0..to).rev() {
                let (head, payload) = snapshot.entry(index);
                let is_before = match &start {
                    Bound::Unbounded => false,
                    Bound::Included(key) => {
                        self.compare_entry((head, payload.word), &Probe::new::<K>(key)).is_lt()
                    }
                    Bound::Excluded(key) => {
                        self.compare_entry((head, payload.word), &Probe::new::<K>(key)).is_le()
                    }
                };
                if is_before {
                    return Ok(self.heap.verify()?);
                }
                if self.visit_entry(head, payload, &mut visit)?.is_break() {
                    return Ok(self.heap.verify()?);
                }
            }
            let low = self.medium().load(leaf.0 + LEAF_LOW);
            if low == 0 {
                // This is the leftmost leaf.
                return Ok(self.heap.verify()?);
            }
            let low = self.bound_bytes(low);
            if matches!(&start, Bound::Included(key) | Bound::Excluded(key) if low <= *key) {
                return Ok(self.heap.verify()?);
            }
            // If damage makes leaves lead in a circle, this leaf's bound is not below the keys that
            // were visited.
            let is_behind = match &end {
                Bound::Included(key) => low > *key,
                Bound::Excluded(key) => low >= *key,
                Bound::Unbounded => false,
            };
            if is_behind {
                return Err(self.circle(leaf));
            }
            end = Bound::Excluded(low);
        }
    }

    /// The first leaf in which a range that begins at this key may have entries.
    fn first_leaf(&self, probe: &Probe<'_>) -> Result<Leaf> {
        let leaf = self.leaf_at(Goal::At(*probe))?;
        self.prefetch_leaf(leaf);
        self.require_begun(leaf, probe)?;
        Ok(leaf)
    }

    /// Copies the leaf where the greatest key of a range with this end belongs. Returns `None` when
    /// that leaf died meanwhile.
    fn last_leaf_of(&self, end: &Position, snapshot: &mut Snapshot) -> Result<Option<Leaf>> {
        let (goal, is_excluded) = match end {
            Bound::Unbounded => (Goal::Last, false),
            Bound::Included(key) => (Goal::At(Probe::new::<K>(key)), false),
            Bound::Excluded(key) => (Goal::Before(Probe::new::<K>(key)), true),
        };
        let mut walk = BoundedWalk::default();
        let mut leaf = self.leaf_at(goal)?;
        if let Goal::At(probe) | Goal::Before(probe) = &goal {
            self.require_begun(leaf, probe)?;
        }
        loop {
            if !self.snapshot(leaf, snapshot)? {
                return Ok(None);
            }
            let is_left_of = match goal {
                Goal::Last => true,
                Goal::At(probe) | Goal::Before(probe) => {
                    let compared = compare_bound::<K, M>(self.medium(), &probe, snapshot.high);
                    compared == Compared::Greater || compared == Compared::Equal && !is_excluded
                }
            };
            if snapshot.next.0 == 0 || !is_left_of {
                return Ok(Some(leaf));
            }
            leaf = snapshot.next;
            self.count_step(&mut walk, leaf)?;
        }
    }

    /// The lower bound of a leaf, in its ordered form.
    fn bound_bytes(&self, bound: u64) -> KeyBytes {
        if is_word::<K>() {
            return self.with_bound(bound, |probe| KeyBytes::from_slice(probe.bytes));
        }
        with_separator(self.medium(), bound, KeyBytes::from_slice)
    }
}

impl Snapshot {
    /// The head of an entry's key, and the entry's value part.
    #[inline(always)]
    fn entry(&self, index: usize) -> (u64, Payload) {
        let (head, word) = self.entries[index];
        (head, Payload { word, value: self.values[index] })
    }

    fn empty() -> Snapshot {
        Snapshot {
            entries: [(0, 0); SLOT_COUNT],
            values: [0; SLOT_COUNT],
            slots: [Slot(0); SLOT_COUNT],
            len: 0,
            is_ordered: false,
            next: Leaf(0),
            high: 0,
        }
    }
}
