//! Counters that change together.

use crate::transactional;

/// A block of `N` counters, changed by one transaction. Up to 3 counters lie in one cache line; `N`
/// may be up to 128.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::Transactional;
/// use remanent_structures::line_tx::Counters;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut counters = Counters::<3>::new().create(&pool, "served")?;
/// counters.add(0, 1)?;
/// counters.move_between(0, 2, 1)?; // both or neither, whatever happens
/// assert_eq!(counters.all()?, [0, 0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[transactional]
#[derive(Debug, PartialEq, Eq)]
pub struct Counters<const N: usize> {
    values: [u64; N],
}

#[transactional]
impl<const N: usize> Counters<N> {
    /// Counters at zero.
    pub const fn new() -> Self {
        Counters { values: [0; N] }
    }

    /// Adds to a counter, wrapping, and returns its new value. Returns `None` when there is no such
    /// counter.
    pub fn add(&mut self, index: usize, amount: u64) -> Option<u64> {
        let value = self.values.get_mut(index)?;
        *value = value.wrapping_add(amount);
        Some(*value)
    }

    /// Subtracts `amount` from one counter and adds it to another, wrapping. Returns false when
    /// there is no such counter.
    pub fn move_between(&mut self, from: usize, to: usize, amount: u64) -> bool {
        if from >= N || to >= N {
            return false;
        }
        self.values[from] = self.values[from].wrapping_sub(amount);
        self.values[to] = self.values[to].wrapping_add(amount);
        true
    }

    /// Sets every counter to zero.
    pub fn reset(&mut self) {
        self.values = [0; N];
    }

    /// The value of a counter; `None` when there is no such counter.
    pub fn get_at(&self, index: usize) -> Option<u64> {
        self.values.get(index).copied()
    }

    /// The values of all counters at one moment.
    pub fn all(&self) -> [u64; N] {
        self.values
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self::new()
    }
}
