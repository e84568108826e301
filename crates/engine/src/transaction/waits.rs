//! Who waits for whom, so that those are found who wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::layout::SLOT_COUNT;

/// Who waits for whom.
#[derive(Debug)]
pub(crate) struct Waits {
    /// A [`Word`] of each slot.
    words: Box<[AtomicU64]>,
    /// How long statements wait that are a transaction, in ms.
    limit_ms: AtomicU64,
}

/// For whom a slot waits.
///
/// ```text
/// bits 40..64  number of the wait
///      16..40  looks in it
///       0..16  one more than the slot that it waits for; 0 if it does not wait
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const LOOKS_SHIFT: u32 = 16;
    const LOOKS: u64 = (1 << 24) - 1;
    const WAIT_SHIFT: u32 = 40;

    /// The word after the next look.
    fn after_look(self, holder: Option<u32>) -> Self {
        let looks = (self.looks() + 1) & Self::LOOKS;
        let holder = holder.map_or(0, |holder| u64::from(holder) + 1);
        Word(self.wait() << Self::WAIT_SHIFT | looks << Self::LOOKS_SHIFT | holder)
    }

    /// The word when the wait is over.
    fn after_wait(self) -> Self {
        Word(self.wait().wrapping_add(1) << Self::WAIT_SHIFT)
    }

    fn holder(self) -> Option<u32> {
        u32::from(self.0 as u16).checked_sub(1)
    }

    fn looks(self) -> u64 {
        self.0 >> Self::LOOKS_SHIFT & Self::LOOKS
    }

    fn wait(self) -> u64 {
        self.0 >> Self::WAIT_SHIFT
    }

    /// Whether two words of a slot are of one wait for the same other slot.
    fn is_same_wait(self, other: Word) -> bool {
        (self.wait(), self.holder()) == (other.wait(), other.holder())
    }
}

/// Slots of which each seems to wait for the next, and the last one for the first.
#[derive(Debug)]
pub(super) struct Circle(SmallVec<[Word; 4]>);

impl Circle {
    /// Whether it is the circle that was seen `before`, with the same waits.
    pub(super) fn is_same(&self, before: &Circle) -> bool {
        let mut both = self.0.iter().zip(&before.0);
        self.0.len() == before.0.len() && both.all(|(now, then)| now.is_same_wait(*then))
    }

    /// Whether the slots do wait for each other, if it is the circle that was seen `before`.
    ///
    /// A word may name a slot that was given to another transaction since. So each slot has to
    /// have looked twice since then, and the second look has begun when all of these waits had.
    pub(super) fn confirms(&self, before: &Circle) -> bool {
        let mut others = self.0.iter().zip(&before.0).skip(1);
        let looks = |now: Word, then: Word| now.looks().wrapping_sub(then.looks()) & Word::LOOKS;
        self.is_same(before) && others.all(|(now, then)| looks(*now, *then) >= 2)
    }
}

impl Waits {
    pub(crate) fn new() -> Self {
        let words = (0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect();
        Waits { words, limit_ms: AtomicU64::new(0) }
    }

    /// Says how long statements wait that are a transaction.
    pub(crate) fn set_limit(&self, limit: Duration) {
        // Relaxed: a number.
        self.limit_ms.store(ms(limit), Ordering::Relaxed);
    }

    /// How long statements wait that are a transaction, in ms.
    pub(super) fn limit_ms(&self) -> u64 {
        // Relaxed: a number.
        self.limit_ms.load(Ordering::Relaxed)
    }

    /// Says for whom a slot waits, as it has just found; `None` for one who is done in a moment.
    pub(super) fn set(&self, slot: u32, holder: Option<u32>) {
        self.change(slot, |word| word.after_look(holder));
    }

    /// Says that a slot does not wait any more.
    pub(super) fn end(&self, slot: u32) {
        self.change(slot, Word::after_wait);
    }

    fn change(&self, slot: u32, change: impl FnOnce(Word) -> Word) {
        let word = &self.words[slot as usize];
        // Relaxed: who has the slot alone changes it.
        let next = change(Word(word.load(Ordering::Relaxed)));
        // SeqCst: of those who wait for each other, the last one to say so sees all others.
        word.store(next.0, Ordering::SeqCst);
    }

    /// The circle of a slot that seems to wait for itself, if it is the one of those between that
    /// gives up: the one with the greatest number.
    pub(super) fn circle(&self, slot: u32) -> Option<Circle> {
        let mut circle = Circle(SmallVec::new());
        let mut at = slot;
        for _ in 0..SLOT_COUNT {
            // SeqCst: partner of the store in `change`.
            let word = Word(self.words[at as usize].load(Ordering::SeqCst));
            circle.0.push(word);
            match word.holder() {
                Some(next) if next == slot => return Some(circle),
                Some(next) if next < slot => at = next,
                // Nobody, or one that gives up instead.
                _ => return None,
            }
        }
        // Others wait for each other.
        None
    }
}

/// A duration in ms.
pub(super) fn ms(duration: Duration) -> u64 {
    duration.as_millis().min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gives_up(waits: &Waits, slot: u32) -> bool {
        waits.circle(slot).is_some()
    }

    #[test]
    fn one_of_those_who_wait_for_each_other_gives_up() {
        let waits = Waits::new();
        waits.set(3, Some(7));
        waits.set(7, Some(5));
        assert!([3, 5, 7].iter().all(|slot| !gives_up(&waits, *slot)));
        waits.set(5, Some(3));
        assert!(gives_up(&waits, 7) && !gives_up(&waits, 3) && !gives_up(&waits, 5));
        // Who waits for them waits for nobody who waits for it.
        waits.set(9, Some(3));
        assert!(!gives_up(&waits, 9));
        waits.end(7);
        assert!([3, 5, 7, 9].iter().all(|slot| !gives_up(&waits, *slot)));
        // Who is done in a moment is no part of a circle.
        waits.set(7, None);
        assert!(!gives_up(&waits, 7));
    }

    #[test]
    fn a_circle_counts_once_the_others_have_looked_again() {
        let waits = Waits::new();
        let look = |slot, holder| waits.set(slot, Some(holder));
        look(3, 7);
        look(7, 3);
        let first = waits.circle(7).unwrap();
        for _ in 0..9 {
            look(7, 3);
        }
        assert!(!waits.circle(7).unwrap().confirms(&first));
        look(3, 7);
        // It may have seen before that 7 has what it wants, and said so only now.
        assert!(!waits.circle(7).unwrap().confirms(&first));
        look(3, 7);
        assert!(waits.circle(7).unwrap().confirms(&first));
        // It goes on, and another wait begins: that is another circle.
        waits.end(3);
        for _ in 0..9 {
            look(3, 7);
        }
        let second = waits.circle(7).unwrap();
        assert!(!second.is_same(&first) && !second.confirms(&first));
    }

    #[test]
    fn words_keep_their_parts_apart() {
        let mut word = Word::default().after_wait();
        for _ in 0..Word::LOOKS + 3 {
            word = word.after_look(Some(SLOT_COUNT - 1));
        }
        assert_eq!((word.wait(), word.looks(), word.holder()), (1, 2, Some(SLOT_COUNT - 1)));
        let last = Word(u64::MAX).after_wait();
        assert_eq!(last, Word::default());
    }
}
