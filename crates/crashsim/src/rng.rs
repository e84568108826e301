//! Pseudo-random numbers from a seed, the same on every machine.

/// A seeded generator of pseudo-random numbers (SplitMix64).
///
/// Everything random in this crate comes from such a generator, so a seed alone repeats a run.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that only depends on `seed`.
    pub fn new(seed: u64) -> Self {
        Rng { state: mix(seed) }
    }

    /// A generator that depends on all `parts` and their order.
    pub fn from_parts(parts: &[u64]) -> Self {
        Rng { state: parts.iter().fold(0, |state, &part| mix(state ^ mix(part))) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number from 0 up to but not including `end`.
    ///
    /// # Panics
    ///
    /// When `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        // The bias of this multiplication and shift is below 2^-32 for every range in use.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True with probability 1 / `n`; never if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// One of the elements.
    ///
    /// # Panics
    ///
    /// When `elements` is empty.
    pub fn pick<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.below(elements.len() as u64) as usize]
    }
}

/// Mixes every bit of `value` into the whole word; a bijection.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GOLDEN);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// 2^64 divided by the golden ratio: SplitMix64's increment.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(Rng::from_parts(&[1, 2]).next_u64(), Rng::from_parts(&[2, 1]).next_u64());
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[rng.below(5) as usize] += 1);
        assert!(seen.iter().all(|&count| count > 120), "{seen:?}");
    }
}
