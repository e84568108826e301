//! Who waits for whom, so that those are found who wait for each other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::layout::SLOT_COUNT;

/// Who waits for whom.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Of each slot that waits, one more than the slot that it waits for; or 0.
    holders: Box<[AtomicU32]>,
    /// How long statements wait that are a transaction, in ms.
    limit_ms: AtomicU64,
}

impl Waits {
    pub(crate) fn new() -> Self {
        let holders = (0..SLOT_COUNT).map(|_| AtomicU32::new(0)).collect();
        Waits { holders, limit_ms: AtomicU64::new(0) }
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

    /// Says for whom a slot waits.
    pub(super) fn set(&self, slot: u32, holder: Option<u32>) {
        // SeqCst: of those who wait for each other, the last one to say so sees all others.
        let word = holder.map_or(0, |holder| holder + 1);
        self.holders[slot as usize].store(word, Ordering::SeqCst);
    }

    /// Whether a slot waits for itself, and is the one of those between that gives up: the one with
    /// the greatest number.
    pub(super) fn gives_up(&self, slot: u32) -> bool {
        let mut at = slot;
        for _ in 0..SLOT_COUNT {
            // SeqCst: partner of the store in `set`.
            match self.holders[at as usize].load(Ordering::SeqCst).checked_sub(1) {
                Some(next) if next == slot => return true,
                Some(next) if next < slot => at = next,
                // Nobody, or one that gives up instead.
                _ => return false,
            }
        }
        // Others wait for each other.
        false
    }
}

/// A duration in ms.
pub(super) fn ms(duration: Duration) -> u64 {
    duration.as_millis().min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_those_who_wait_for_each_other_gives_up() {
        let waits = Waits::new();
        waits.set(3, Some(7));
        waits.set(7, Some(5));
        assert!([3, 5, 7].iter().all(|slot| !waits.gives_up(*slot)));
        waits.set(5, Some(3));
        assert!(waits.gives_up(7) && !waits.gives_up(3) && !waits.gives_up(5));
        // Who waits for them waits for nobody who waits for it.
        waits.set(9, Some(3));
        assert!(!waits.gives_up(9));
        waits.set(7, None);
        assert!([3, 5, 7, 9].iter().all(|slot| !waits.gives_up(*slot)));
    }
}
