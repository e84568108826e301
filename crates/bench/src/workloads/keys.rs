//! Distinct random keys, the same in every run.

/// A key that a map under test may have: plain bytes, the first eight of which name its value.
pub(crate) trait BenchKey: Copy + Send + Sync + 'static {
    /// Name of the key type in rows.
    const NAME: &'static str;

    /// The key made from a number; different numbers give different keys.
    fn from_number(number: u64) -> Self;

    /// The first eight bytes: what a map stores as the value of this key.
    fn value(self) -> u64;
}

impl BenchKey for u64 {
    const NAME: &'static str = "u64";

    fn from_number(number: u64) -> Self {
        mix(number)
    }

    fn value(self) -> u64 {
        self
    }
}

/// The paper's key of a multi-column index.
pub(crate) type Key40 = [u8; 40];

impl BenchKey for Key40 {
    const NAME: &'static str = "key40";

    fn from_number(number: u64) -> Self {
        let mut key = [0; 40];
        let mut word = mix(number);
        for chunk in key.chunks_exact_mut(8) {
            chunk.copy_from_slice(&word.to_le_bytes());
            word = mix(word);
        }
        key
    }

    fn value(self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self[at]))
    }
}

/// A bijection of 64-bit numbers that leaves no pattern (the finaliser of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The keys numbered `first .. first + count`.
pub(crate) fn distinct<K: BenchKey>(first: u64, count: usize) -> Vec<K> {
    (first..).take(count).map(K::from_number).collect()
}

/// `count` of the items, in an order that has nothing to do with the one they came in.
pub(crate) fn shuffled<T: Copy>(items: &[T], count: usize, seed: u64) -> Vec<T> {
    let mut order = items.to_vec();
    let count = count.min(order.len());
    for at in 0..count {
        let span = (order.len() - at) as u64;
        order.swap(at, at + (mix(seed.wrapping_add(at as u64)) % span) as usize);
    }
    order.truncate(count);
    order
}

/// A single cycle through all of `0 .. count`: following it visits every place once (Sattolo).
pub(crate) fn cycle(count: usize, seed: u64) -> Vec<u32> {
    let count = u32::try_from(count).expect("working sets stay below 2^32 lines");
    let mut next: Vec<u32> = (0..count).collect();
    for at in (1..next.len()).rev() {
        next.swap(at, (mix(seed.wrapping_add(at as u64)) % at as u64) as usize);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_reproducible() {
        let keys = distinct::<Key40>(7, 10_000);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(keys, distinct::<Key40>(7, 10_000));
        assert_eq!(keys[0].value(), u64::from_number(7));
    }

    #[test]
    fn a_shuffle_keeps_the_items_and_loses_their_order() {
        let items: Vec<u64> = (0..1000).collect();
        let mut order = shuffled(&items, 1000, 1);
        assert_ne!(order, items);
        order.sort_unstable();
        assert_eq!(order, items);
        let few = shuffled(&items, 10, 1);
        assert_eq!(few.iter().collect::<HashSet<_>>().len(), 10);
    }

    #[test]
    fn a_cycle_visits_every_place_before_it_closes() {
        let next = cycle(1000, 3);
        let mut at = 0;
        for _ in 0..999 {
            at = next[at] as usize;
            assert_ne!(at, 0);
        }
        assert_eq!(next[at], 0);
    }
}
