//! Random numbers that are determined by a seed.

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// An independent generator for each sequence of `words`, such as a seed, a round and an index.
    pub(crate) fn of(words: &[u64]) -> Random {
        let state = words.iter().fold(0, |state, word| Random(state ^ word).next());
        Random(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number in a range.
    pub(crate) fn within(&mut self, range: &std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_words_has_numbers_of_its_own() {
        let first = |words: &[u64]| Random::of(words).next();
        assert_eq!(first(&[1, 2, 3]), first(&[1, 2, 3]));
        let rows: [&[u64]; 5] = [&[1, 2, 3], &[1, 3, 2], &[2, 2, 3], &[1, 2], &[1, 2, 4]];
        let firsts: std::collections::BTreeSet<u64> = rows.iter().map(|row| first(row)).collect();
        assert_eq!(firsts.len(), rows.len());
    }
}
