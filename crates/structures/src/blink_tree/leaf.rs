//! Leaves: the lock of a leaf, and consistent reads of its fields.
//!
//! A leaf's lock word has four parts:
//!
//! - *Held*: a writer is at work. Readers go on, since nothing that they see changes.
//! - *Changing*: readers have to wait.
//! - *Version*: each change increments it. A reader that finds the same version again knows that
//!   nothing changed meanwhile.
//! - *Epoch*: the opening of the pool in which the leaf was last touched. If that was an earlier
//!   one, all volatile fields have to be rebuilt first.

use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::key::{
    Probe, check_of_bytes, common, compare_bound, fingerprint_of_bytes, fingerprint_of_word, head,
    with_bytes, with_separator,
};
use super::layout::{
    DOUBTFUL, FAR, FINGERPRINTS, HIGH, HOME_SLOTS, LEAF_LEN, LEAF_LOW, LOCK, NEXT, ORDERED, PREFIX,
    Record, Slot, USED, home, is_word, lines_of, slots_of, valid_at, valid_slots,
};
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Offset of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf(pub(super) u64);

impl Leaf {
    /// The leaf that a word of the medium leads to. The word may be damaged: an offset outside of
    /// all pools becomes [`FAR`], where no leaf is.
    #[inline(always)]
    pub(super) fn linked(word: u64) -> Self {
        Leaf(word.min(FAR))
    }
}

/// A leaf that a search was led to, with the end of its range.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafRange {
    pub(super) leaf: Leaf,
    /// The leaf's upper bound according to the node above: the separator behind the leaf, which is
    /// greater than the wanted key. 0 where there is none, and for keys that are words.
    pub(super) high: u64,
}

/// A leaf's lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock(u64);

const HELD: u64 = 1;
const CHANGING: u64 = 2;
/// The leaf's entries have moved to the leaf on its left.
const DEAD: u64 = 4;
const VERSION: u64 = 8;
const EPOCH_SHIFT: u32 = 40;
/// The part of the number of openings that a lock word keeps.
pub(super) const EPOCH_MASK: u64 = (1 << (64 - EPOCH_SHIFT)) - 1;
const VERSION_MASK: u64 = (1 << EPOCH_SHIFT) - VERSION;

impl Lock {
    /// The lock of a leaf that nobody else knows yet.
    pub(super) fn fresh(epoch: u64) -> Lock {
        Lock(epoch << EPOCH_SHIFT)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn is_of(self, epoch: u64) -> bool {
        self.0 >> EPOCH_SHIFT == epoch
    }

    #[inline(always)]
    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    /// Whether nothing changed between the two, so that reads in between saw one moment.
    #[inline(always)]
    fn is_same_as(self, other: Lock) -> bool {
        (self.0 | HELD) == (other.0 | HELD)
    }

    fn released(self, is_changed: bool) -> Lock {
        let version = self.0 & VERSION_MASK;
        let version = if is_changed { (version + VERSION) & VERSION_MASK } else { version };
        Lock(self.0 & !(VERSION_MASK | HELD | CHANGING) | version)
    }
}

/// The right to change a leaf. Dropping it lets others go on.
pub(super) struct Held<'t, M: Medium> {
    medium: &'t M,
    pub(super) leaf: Leaf,
    lock: Lock,
    is_changed: bool,
}

impl<M: Medium> Held<'_, M> {
    /// Makes readers wait from here on.
    #[inline]
    pub(super) fn begin_change(&mut self) {
        self.is_changed = true;
        // Release: before the stores to the leaf that follow, which are releases themselves.
        // Partner of the two loads in `stable_at`.
        self.medium.store(self.leaf.0 + LOCK, self.lock.0 | HELD | CHANGING);
    }

    /// Whether the leaf has not changed since its lock word was `lock`.
    pub(super) fn is_at(&self, lock: Lock) -> bool {
        self.lock.is_same_as(lock)
    }

    /// Marks the leaf as dead: from now on, everybody who comes here goes back to the root.
    pub(super) fn bury(mut self) {
        self.is_changed = true;
        self.lock = Lock(self.lock.0 | DEAD);
    }
}

impl<M: Medium> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: the changes are visible to everybody who loads the new version or takes the
        // lock. Partner of the loads in `stable_at` and the exchange in `hold`.
        self.medium.store(self.leaf.0 + LOCK, self.lock.released(self.is_changed).0);
    }
}

/// What a search found in one leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sight<T> {
    Here(T),
    /// The key belongs to this leaf, or to one further right.
    Right(Leaf),
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// The result of `read` on a consistent state of a leaf; `None` when the leaf is dead. `read`
    /// may run more than once.
    #[inline(always)]
    pub(super) fn stable<R>(&self, leaf: Leaf, mut read: impl FnMut() -> R) -> Result<Option<R>> {
        let mut result = None;
        let lock = self.stable_at(leaf, || result = Some(read()))?;
        Ok(lock.and(result))
    }

    /// As [`stable`](Core::stable), but returns the lock word of that moment.
    #[inline(always)]
    pub(super) fn stable_at(&self, leaf: Leaf, mut read: impl FnMut()) -> Result<Option<Lock>> {
        let medium = self.medium();
        loop {
            let before = Lock(medium.load(leaf.0 + LOCK));
            if before.is_of(self.epoch) && !before.has(CHANGING) {
                if before.has(DEAD) {
                    return Ok(None);
                }
                read();
                // Acquire: loads are not reordered, so the loads of `read` precede this one.
                // Partner of the Release stores in `begin_change` and in `Held`'s `drop`.
                if before.is_same_as(Lock(medium.load(leaf.0 + LOCK))) {
                    return Ok(Some(before));
                }
                continue;
            }
            self.wait_for_leaf(leaf, before)?;
        }
    }

    /// Whether there is a leaf at `offset`.
    #[inline(always)]
    pub(super) fn is_leaf(&self, offset: u64) -> bool {
        self.tags.is_leaf(self.medium(), offset)
    }

    /// Takes the right to change a leaf. Returns `None` when the leaf is dead.
    #[inline(always)]
    pub(super) fn hold(&self, leaf: Leaf) -> Result<Option<Held<'_, M>>> {
        let medium = self.medium();
        loop {
            let lock = Lock(medium.load(leaf.0 + LOCK));
            if lock.is_of(self.epoch) && !lock.has(HELD) {
                if lock.has(DEAD) {
                    return Ok(None);
                }
                if medium.compare_exchange(leaf.0 + LOCK, lock.0, lock.0 | HELD).is_ok() {
                    return Ok(Some(Held { medium, leaf, lock, is_changed: false }));
                }
                continue;
            }
            self.wait_for_leaf(leaf, lock)?;
        }
    }

    /// As [`hold`](Core::hold), but does not wait: `None` when another thread holds the leaf, too.
    pub(super) fn try_hold(&self, leaf: Leaf) -> Option<Held<'_, M>> {
        let medium = self.medium();
        let lock = Lock(medium.load(leaf.0 + LOCK));
        let is_free = lock.is_of(self.epoch) && !lock.has(HELD | DEAD);
        let taken = || medium.compare_exchange(leaf.0 + LOCK, lock.0, lock.0 | HELD).is_ok();
        // `Held` is made only after the lock was taken, because dropping it releases the lock.
        (is_free && taken()).then(|| Held { medium, leaf, lock, is_changed: false })
    }

    #[cold]
    fn wait_for_leaf(&self, leaf: Leaf, lock: Lock) -> Result<()> {
        // A faulty medium reads as zeros, and waiting for those would never end.
        self.heap.verify()?;
        if lock.is_of(self.epoch) {
            self.medium().pause();
            return Ok(());
        }
        if !self.is_leaf(leaf.0) {
            return Err(PoolError::corrupt(leaf.0, "no leaf is where one was linked").into());
        }
        let ours = Lock::fresh(self.epoch).0 | HELD | CHANGING;
        if self.medium().compare_exchange(leaf.0 + LOCK, lock.0, ours).is_ok() {
            let held = Held {
                medium: self.medium(),
                leaf,
                lock: Lock::fresh(self.epoch),
                is_changed: true,
            };
            self.revive(&held);
        }
        Ok(())
    }

    /// Rebuilds the volatile fields of a leaf that this opening of the pool has not touched yet.
    fn revive(&self, held: &Held<'_, M>) {
        let (medium, leaf) = (self.medium(), held.leaf);
        // Flush: what a killed process left only in the caches, before anything is built on it.
        // Redundant: unless a process was killed before and the power fails later.
        medium.flush(leaf.0, LEAF_LEN);
        // Fence: for this flush.
        // Redundant: for the same reason as the flush.
        medium.fence();
        let next = Leaf::linked(medium.load(leaf.0 + NEXT));
        let high = if next.0 == 0 { 0 } else { medium.load(next.0 + LEAF_LOW) };
        medium.store(leaf.0 + HIGH, high);
        let valid = valid_slots(medium, leaf.0);
        // An interrupted split or merge can leave entries beyond the leaf's range. They belong to
        // the right neighbour.
        let is_behind = |slot: &Slot| next.0 != 0 && self.is_slot_behind(leaf, *slot, high);
        let behind = slots_of(valid).filter(is_behind).fold(0, |slots, slot| slots | 1 << slot.0);
        let used = valid & !behind;
        self.clear_slots(leaf, behind);
        medium.store(leaf.0 + USED, used);
        medium.store(leaf.0 + ORDERED, 0);
        self.refresh_heads(leaf);
        for slot in slots_of(used) {
            let fingerprint = self.fingerprint_of_slot(leaf, slot);
            self.store_fingerprint(leaf, slot, fingerprint);
        }
    }

    /// Makes slots invalid, in memory only. The caller holds the leaf.
    pub(super) fn void_slots(&self, leaf: Leaf, slots: u64) {
        for (line, bits) in lines_of(slots) {
            let at = leaf.0 + valid_at(line);
            self.medium().store(at, self.medium().load(at) & !bits);
        }
    }

    /// Makes slots invalid, durably. The caller holds the leaf.
    pub(super) fn clear_slots(&self, leaf: Leaf, slots: u64) {
        self.void_slots(leaf, slots);
        for (line, _) in lines_of(slots) {
            // Flush: fenced below.
            self.medium().flush(leaf.0 + valid_at(line), WORD_LEN);
        }
        if slots != 0 {
            // Fence: before `clear` reports the entries as removed, and before another owner of one
            // of their records may free it.
            self.medium().fence();
        }
    }

    fn is_slot_behind(&self, leaf: Leaf, slot: Slot, high: u64) -> bool {
        let medium = self.medium();
        if is_word::<K>() {
            return medium.load(leaf.0 + slot.key()) >= high;
        }
        with_separator(medium, high, |high| {
            self.with_record_key(medium.load(leaf.0 + slot.value()), |key| key >= high)
        })
    }

    fn fingerprint_of_slot(&self, leaf: Leaf, slot: Slot) -> u8 {
        let medium = self.medium();
        if is_word::<K>() {
            return fingerprint_of_word(medium.load(leaf.0 + slot.key()));
        }
        self.with_record_key(medium.load(leaf.0 + slot.value()), fingerprint_of_bytes)
    }

    /// Computes the prefix that all keys of a leaf share, and stores the head of each key. The
    /// caller holds the leaf, and readers wait.
    pub(super) fn refresh_heads(&self, leaf: Leaf) {
        if is_word::<K>() {
            return;
        }
        let medium = self.medium();
        let prefix = match medium.load(leaf.0 + NEXT) {
            0 => 0,
            _ => with_separator(medium, medium.load(leaf.0 + LEAF_LOW), |low| {
                with_separator(medium, medium.load(leaf.0 + HIGH), |high| common(low, high))
            }),
        };
        for slot in slots_of(self.used(leaf)) {
            // All at once: the loop below would fetch them one by one.
            Record::prefetch(medium, medium.load(leaf.0 + slot.value()));
        }
        let mut is_doubtful = false;
        for slot in slots_of(self.used(leaf)) {
            let record = medium.load(leaf.0 + slot.value());
            is_doubtful |= !self.is_key_whole(record);
            let head = self.with_record_key(record, |key| head(key, prefix));
            medium.store(leaf.0 + slot.key(), head);
        }
        let doubt = if is_doubtful { DOUBTFUL } else { 0 };
        medium.store(leaf.0 + PREFIX, prefix as u64 | doubt);
    }

    /// Whether the key of a record is unchanged since it was written.
    pub(super) fn is_key_whole(&self, record: u64) -> bool {
        let medium = self.medium();
        self.record_at(record).is_some_and(|record| {
            !self.is_summed
                || with_bytes(medium, record.key_at(), record.key_len, check_of_bytes)
                    == record.key_check
        })
    }

    /// To be called when a key was not found in the leaf, or before its entries are sorted. An
    /// error if some key of the leaf has changed.
    #[inline(always)]
    pub(super) fn certain_miss(&self, leaf: Leaf) -> Result<()> {
        if is_word::<K>() || self.medium().load(leaf.0 + PREFIX) & DOUBTFUL == 0 {
            return Ok(());
        }
        Err(self.doubtful_miss(leaf))
    }

    /// Checks the leaf that the way from the root led to. An error when it is no leaf, or begins
    /// behind the key. Searches never go to the left, so such damage would hide entries.
    #[inline(always)]
    pub(super) fn require_begun(&self, leaf: Leaf, probe: &Probe<'_>) -> Result<()> {
        if !self.is_leaf(leaf.0) {
            return Err(self.no_leaf(leaf));
        }
        let low = self.medium().load(leaf.0 + LEAF_LOW);
        if compare_bound::<K, M>(self.medium(), probe, low).is_lt() {
            return Err(self.begins_behind(leaf));
        }
        Ok(())
    }

    /// As [`require_begun`](Core::require_begun), for a leaf that is held and is about to get the
    /// entry. The leaf must not end before the key either, or the key could exist twice.
    #[inline(always)]
    pub(super) fn require_home(&self, leaf: Leaf, probe: &Probe<'_>) -> Result<()> {
        self.require_begun(leaf, probe)?;
        match self.right_of(leaf, probe) {
            None => Ok(()),
            Some(_) => Err(self.ends_before(leaf)),
        }
    }

    #[cold]
    fn ends_before(&self, leaf: Leaf) -> Error {
        Error::corrupt(
            &self.heap,
            leaf.0,
            "the way from the root leads a key to this leaf, which ends before it",
        )
    }

    #[cold]
    fn no_leaf(&self, leaf: Leaf) -> Error {
        Error::corrupt(&self.heap, leaf.0, "no leaf is where the way from the root leads")
    }

    #[cold]
    fn begins_behind(&self, leaf: Leaf) -> Error {
        Error::corrupt(&self.heap, leaf.0, "the way from the root leads past a key, to this leaf")
    }

    #[cold]
    fn doubtful_miss(&self, leaf: Leaf) -> Error {
        let medium = self.medium();
        let records = slots_of(self.used(leaf)).map(|slot| medium.load(leaf.0 + slot.value()));
        let at = records.into_iter().find(|&record| !self.is_key_whole(record)).unwrap_or(leaf.0);
        Error::corrupt(
            &self.heap,
            at,
            "the key of an entry has changed: it may be the one asked for",
        )
    }

    /// Slots that hold an entry, as bits.
    #[inline(always)]
    pub(super) fn used(&self, leaf: Leaf) -> u64 {
        self.medium().load(leaf.0 + USED)
    }

    /// The word that slots of this leaf have for the key of `probe`.
    #[inline(always)]
    pub(super) fn head_in(&self, leaf: Leaf, probe: &Probe<'_>) -> u64 {
        if is_word::<K>() {
            return probe.word;
        }
        probe.head::<K>((self.medium().load(leaf.0 + PREFIX) & !DOUBTFUL) as usize)
    }

    /// Sets or clears a slot's valid bit, in memory only. The caller holds the leaf.
    #[inline(always)]
    pub(super) fn store_valid(&self, leaf: Leaf, slot: Slot, is_valid: bool) {
        let medium = self.medium();
        let at = leaf.0 + slot.valid();
        let others = medium.load(at) & !slot.valid_bit();
        medium.store(at, if is_valid { others | slot.valid_bit() } else { others });
    }

    /// The caller holds the leaf, and readers wait.
    #[inline(always)]
    pub(super) fn store_fingerprint(&self, leaf: Leaf, slot: Slot, fingerprint: u8) {
        let at = leaf.0 + FINGERPRINTS + u64::from(slot.0 & !7);
        let shift = slot.0 % 8 * 8;
        let others = self.medium().load(at) & !(0xff << shift);
        self.medium().store(at, others | u64::from(fingerprint) << shift);
    }

    /// The fingerprint of a used slot.
    pub(super) fn fingerprint(&self, leaf: Leaf, slot: Slot) -> u8 {
        let word = self.medium().load(leaf.0 + FINGERPRINTS + u64::from(slot.0 & !7));
        (word >> (slot.0 % 8 * 8)) as u8
    }

    /// The right neighbour, if the key does not belong to this leaf.
    #[inline(always)]
    pub(super) fn right_of(&self, leaf: Leaf, probe: &Probe<'_>) -> Option<Leaf> {
        self.right_of_range(LeafRange { leaf, high: 0 }, probe)
    }

    /// As [`right_of`](Core::right_of), for a leaf that a search was led to. The leaf's separator
    /// is not fetched if it is still the one that the node above has. Comparing offsets suffices:
    /// while the search is inside the heap, no separator is freed and its block used again.
    #[inline(always)]
    pub(super) fn right_of_range(&self, range: LeafRange, probe: &Probe<'_>) -> Option<Leaf> {
        let (medium, leaf) = (self.medium(), range.leaf);
        let next = medium.load(leaf.0 + NEXT);
        let high = medium.load(leaf.0 + HIGH);
        let is_known = !is_word::<K>() && high == range.high;
        let is_behind = || !is_known && compare_bound::<K, M>(medium, probe, high).is_ge();
        (next != 0 && is_behind()).then(|| Leaf::linked(next))
    }

    /// The slot of a key. The leaf is held, or read by [`stable`](Core::stable).
    #[inline(always)]
    pub(super) fn find_slot(&self, leaf: Leaf, probe: &Probe<'_>) -> Option<Slot> {
        let load = self.medium().window(leaf.0, LEAF_LEN)?;
        let used = load(USED);
        if is_word::<K>()
            && let Some(slot) = self.find_at_home(leaf, used, probe)
        {
            return Some(slot);
        }
        let mut candidates = candidates(&load, probe.fingerprint);
        while candidates != 0 {
            let bit = candidates.trailing_zeros();
            let slot = Slot(bit % 8 * 8 + bit / 8);
            if used & 1 << slot.0 != 0 && self.is_key_of(leaf, slot, probe) {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// The slot of a key that is a word, if it lies in its home. Most entries do, and comparing
    /// these keys takes less than comparing all fingerprints.
    #[inline(always)]
    fn find_at_home(&self, leaf: Leaf, used: u64, probe: &Probe<'_>) -> Option<Slot> {
        let first = home(probe.fingerprint, Self::leaf_max());
        let load = self.medium().window(leaf.0 + first.line(), 2 * LINE_LEN)?;
        let mut equal = 0;
        for index in 0..HOME_SLOTS as u32 {
            let at = Slot(index).key() - Slot(0).line();
            equal |= u64::from(load(at) == probe.word) << index;
        }
        let found = equal & used >> first.0;
        (found != 0).then(|| Slot(first.0 + found.trailing_zeros()))
    }

    #[inline(always)]
    fn is_key_of(&self, leaf: Leaf, slot: Slot, probe: &Probe<'_>) -> bool {
        let medium = self.medium();
        if medium.load(leaf.0 + slot.key()) != self.head_in(leaf, probe) {
            return false;
        }
        if is_word::<K>() {
            return true;
        }
        self.record_at(medium.load(leaf.0 + slot.value())).is_some_and(|record| {
            let len = probe.bytes.len() as u64;
            let is_inside = record.key_at().checked_add(len).is_some_and(|end| end <= medium.len());
            // If damage turned this key into another one, the check is still that of the original
            // key.
            record.key_len == len
                && record.key_check == probe.check
                && is_inside
                && medium.equals(record.key_at(), probe.bytes)
        })
    }
}

/// The slots of a leaf that may have this fingerprint. Some are not used, and a few have another
/// one. `load` loads the leaf's words. The bit 8·b + w stands for byte b of word w, which is slot
/// 8·w + b.
#[inline(always)]
fn candidates(load: &impl Fn(u64) -> u64, fingerprint: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let pattern = ONES * u64::from(fingerprint);
    let mut slots = 0;
    for word in 0..8 {
        let differ = load(FINGERPRINTS + word * 8) ^ pattern;
        // The top bit of each byte that is zero. A byte of 1 above such a byte may get it, too.
        let zeros = differ.wrapping_sub(ONES) & !differ & HIGH_BITS;
        slots |= zeros >> (7 - word);
    }
    slots
}
