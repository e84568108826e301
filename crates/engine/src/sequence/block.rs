//! Arithmetic of the numbers that a handle reserves at once.

use std::ops::RangeInclusive;

use super::spec::first_of;

/// Numbers that nobody else gets: `left` of them, from `next` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    next: i64,
    left: u32,
    increment: i64,
}

impl Block {
    /// Up to `len` numbers from `first` on that are in `bounds`, and the number behind them; `None`
    /// if that is not in `bounds`. `None` if `first` is not.
    pub(super) fn from(
        first: i64,
        bounds: &RangeInclusive<i64>,
        increment: i64,
        len: u32,
    ) -> Option<(Self, Option<i64>)> {
        if !bounds.contains(&first) || increment == 0 || len == 0 {
            return None;
        }
        let end = if increment > 0 { *bounds.end() } else { *bounds.start() };
        // Integers of 128 bits: the distance of two of 64 bits does not fit these.
        let distance = (i128::from(end) - i128::from(first)) / i128::from(increment);
        let left = distance.saturating_add(1).min(len.into());
        let behind = i128::from(first) + left * i128::from(increment);
        let behind = i64::try_from(behind).ok().filter(|behind| bounds.contains(behind));
        Some((Block { next: first, left: left as u32, increment }, behind))
    }

    /// Where the numbers go on behind a block: at the beginning, if they are cycling.
    pub(super) fn behind_or_first(
        behind: Option<i64>,
        bounds: &RangeInclusive<i64>,
        increment: i64,
        is_cycling: bool,
    ) -> Option<i64> {
        behind.or_else(|| is_cycling.then(|| first_of(bounds, increment)))
    }

    /// Takes a number.
    pub(super) fn take(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        let taken = self.next;
        // Behind the last one, it may be no number at all.
        self.next = self.next.wrapping_add(self.increment);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(first: i64, bounds: RangeInclusive<i64>, increment: i64) -> Vec<i64> {
        let (mut block, _) = Block::from(first, &bounds, increment, 4).unwrap();
        std::iter::from_fn(|| block.take()).collect()
    }

    #[test]
    fn a_block_ends_where_the_range_does() {
        let all = i64::MIN..=i64::MAX;
        assert_eq!(numbers(1, 1..=9, 1), [1, 2, 3, 4]);
        assert_eq!(numbers(8, 1..=9, 1), [8, 9]);
        assert_eq!(numbers(2, 1..=9, 4), [2, 6]);
        assert_eq!(numbers(2, 1..=9, -1), [2, 1]);
        assert_eq!(numbers(i64::MIN, all.clone(), i64::MAX), [i64::MIN, -1, i64::MAX - 1]);
        assert_eq!(numbers(i64::MAX, all.clone(), i64::MIN), [i64::MAX, -1]);
        assert_eq!(numbers(i64::MAX - 1, all.clone(), 1), [i64::MAX - 1, i64::MAX]);
        assert_eq!(Block::from(0, &(1..=9), 1, 4), None);
    }

    #[test]
    fn the_number_behind_a_block_is_in_the_range_or_there_is_none() {
        let behind = |first, len| Block::from(first, &(1..=9), 3, len).unwrap().1;
        assert_eq!((behind(1, 2), behind(1, 3), behind(1, 9)), (Some(7), None, None));
        let last = Block::from(i64::MAX, &(0..=i64::MAX), 1, 1).unwrap().1;
        assert_eq!(last, None);
        assert_eq!(Block::behind_or_first(None, &(1..=9), -3, true), Some(9));
        assert_eq!(Block::behind_or_first(None, &(1..=9), 3, false), None);
    }
}
