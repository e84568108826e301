//! Work in portions, each of which one thread takes and does.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which portions of some work are taken, and which are done.
#[derive(Debug)]
pub(crate) struct Portions {
    count: u64,
    /// A bit for each portion that somebody has begun with, or that is done.
    taken: Box<[AtomicU64]>,
    done: Box<[AtomicU64]>,
    /// Portions that are not done.
    left: AtomicU64,
}

impl Portions {
    /// So many portions, none of which is taken.
    pub(crate) fn of(count: u64) -> Self {
        let bits = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Portions { count, taken: bits(), done: bits(), left: count.into() }
    }

    /// All portions.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Portions that are not done.
    #[inline(always)]
    pub(crate) fn left(&self) -> u64 {
        // Acquire: before the results are used; partner of the subtraction in `finish`.
        self.left.load(Ordering::Acquire)
    }

    /// Whether a portion is done.
    #[inline]
    pub(crate) fn is_done(&self, portion: u64) -> bool {
        // Acquire: before the results are used; partner of the store in `finish`.
        self.done[(portion / 64) as usize].load(Ordering::Acquire) >> (portion % 64) & 1 != 0
    }

    /// A portion that nobody has taken.
    pub(crate) fn take_any(&self) -> Option<Taken<'_>> {
        for (word, bits) in (0..).zip(&self.taken) {
            loop {
                // Relaxed: who changes the bit has the portion.
                let free = (!bits.load(Ordering::Relaxed)).trailing_zeros();
                let portion = word * 64 + u64::from(free);
                if free == 64 || portion >= self.count {
                    break;
                }
                let taken = self.take(portion);
                if taken.is_some() {
                    return taken;
                }
            }
        }
        None
    }

    /// A portion, unless somebody has taken it.
    pub(crate) fn take(&self, portion: u64) -> Option<Taken<'_>> {
        let bit = 1 << (portion % 64);
        // Acquire: partner of the exchange in `give_back`.
        let before = self.taken[(portion / 64) as usize].fetch_or(bit, Ordering::Acquire);
        (before & bit == 0).then(|| Taken { portions: self, portion, is_kept: false })
    }

    fn give_back(&self, portion: u64) {
        // Release: after what was done of it; partner of the exchange in `take`.
        self.taken[(portion / 64) as usize].fetch_and(!(1 << (portion % 64)), Ordering::Release);
    }

    fn finish(&self, portion: u64) {
        // Release: the results are there; partner of the load in `is_done`.
        self.done[(portion / 64) as usize].fetch_or(1 << (portion % 64), Ordering::Release);
        // Release: likewise; partner of the load in `left`.
        self.left.fetch_sub(1, Ordering::Release);
    }
}

/// A portion that the caller is to do. Dropping it gives it back.
pub(crate) struct Taken<'p> {
    portions: &'p Portions,
    portion: u64,
    is_kept: bool,
}

impl Taken<'_> {
    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.portion
    }

    /// The portion is done. Nobody takes it again.
    pub(crate) fn finish(mut self) {
        self.is_kept = true;
        self.portions.finish(self.portion);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.portions.give_back(self.portion);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_portion_is_taken_once_and_those_that_were_given_back_again() {
        let portions = Portions::of(130);
        let all: Vec<Taken<'_>> = std::iter::from_fn(|| portions.take_any()).collect();
        let numbers: Vec<u64> = all.iter().map(Taken::number).collect();
        assert_eq!(numbers, (0..130).collect::<Vec<_>>());
        for taken in all {
            assert_ne!(portions.left(), 0);
            match taken.number() {
                // As if its thread had panicked.
                129 => drop(taken),
                _ => taken.finish(),
            }
        }
        assert_eq!((portions.left(), portions.is_done(128)), (1, true));
        assert!(!portions.is_done(129) && portions.take(128).is_none());
        portions.take_any().expect("it was given back").finish();
        assert!(portions.left() == 0 && portions.take_any().is_none());
    }
}
