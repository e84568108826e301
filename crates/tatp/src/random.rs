//! Numbers without a pattern, the same in every run.

/// Draws numbers. Seeds give sequences that have nothing in common.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// A bijection of words that leaves no pattern (splitmix64).
fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Random(mix(seed))
    }

    /// One of `low ..= high`.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        low + mix(self.0) % (high - low + 1)
    }

    /// Letters from A to Z.
    pub fn letters<const LEN: usize>(&mut self) -> [u8; LEN] {
        std::array::from_fn(|_| self.within(u64::from(b'A'), u64::from(b'Z')) as u8)
    }

    /// The first `count` of the items in an order without a pattern.
    pub fn some<T: Copy>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut order = items.to_vec();
        let count = count.min(order.len());
        for at in 0..count {
            let other = self.within(at as u64, order.len() as u64 - 1) as usize;
            order.swap(at, other);
        }
        order.truncate(count);
        order
    }
}
