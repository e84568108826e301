//! The values of a dictionary in DRAM, by their numbers. Each is read from the pool once.

use std::fmt;
use std::sync::OnceLock;

use smallvec::SmallVec;

/// The bytes of a value: those of a plain cell.
pub(crate) type Value = SmallVec<[u8; 16]>;

/// Numbers of the first run. Each further run has twice as many.
const FIRST: u64 = 16;
/// Runs of a dictionary.
pub(super) const RUN_COUNT: u32 = 28;
/// Numbers of values that a dictionary can give away.
pub(super) const IDS: u64 = FIRST * ((1 << RUN_COUNT) - 1);
const _: () = assert!(IDS <= u32::MAX as u64);

/// Where a number's entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) run: u32,
    /// Its place in the run.
    pub(super) at: u64,
}

impl Place {
    pub(super) fn of(id: u32) -> Self {
        let id = u64::from(id);
        let run = (id / FIRST + 1).ilog2();
        Place { run, at: id - run_first(run) }
    }
}

/// The first number of a run.
pub(super) fn run_first(run: u32) -> u64 {
    FIRST * ((1 << run) - 1)
}

/// Numbers of a run.
pub(super) fn run_ids(run: u32) -> u64 {
    FIRST << run
}

type Shelf = Box<[OnceLock<Value>]>;
type Load = dyn Fn(u32) -> Option<Value> + Send + Sync;

/// The values that somebody has asked for. A table has them without knowing its medium.
pub(crate) struct Values {
    /// One for each run.
    shelves: [OnceLock<Shelf>; RUN_COUNT as usize],
    /// Reads a value from the pool.
    load: Box<Load>,
}

impl Values {
    pub(super) fn new(load: impl Fn(u32) -> Option<Value> + Send + Sync + 'static) -> Self {
        Values { shelves: [const { OnceLock::new() }; RUN_COUNT as usize], load: Box::new(load) }
    }

    /// The value that has a number; `None` if none has.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        match self.known(id) {
            Some(value) => Some(value),
            None => self.load(id),
        }
    }

    /// The value that has a number, if it was read before.
    #[inline]
    pub(super) fn known(&self, id: u32) -> Option<&[u8]> {
        let Place { run, at } = Place::of(id);
        let shelf = self.shelves.get(run as usize)?.get()?;
        shelf[at as usize].get().map(|value| &value[..])
    }

    /// Damage is not remembered: a faulty medium may be read again.
    #[cold]
    fn load(&self, id: u32) -> Option<&[u8]> {
        if u64::from(id) >= IDS {
            return None;
        }
        let value = (self.load)(id)?;
        Some(self.put(id, value))
    }

    /// Remembers a value of the pool.
    pub(super) fn put(&self, id: u32, value: Value) -> &[u8] {
        let Place { run, at } = Place::of(id);
        let empty = || (0..run_ids(run)).map(|_| OnceLock::new()).collect();
        let shelf = self.shelves[run as usize].get_or_init(empty);
        shelf[at as usize].get_or_init(|| value)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_place() {
        let mut expected = Place { run: 0, at: 0 };
        for id in 0..10_000 {
            assert_eq!(Place::of(id), expected, "{id}");
            expected.at += 1;
            if expected.at == run_ids(expected.run) {
                expected = Place { run: expected.run + 1, at: 0 };
            }
        }
        assert_eq!(Place::of((IDS - 1) as u32).run, RUN_COUNT - 1);
        assert_eq!(Place::of(u32::MAX).run, RUN_COUNT);
    }

    #[test]
    fn values_are_read_once_and_damage_is_read_again() {
        let values = Values::new(|id| (id < 100).then(|| SmallVec::from_elem(id as u8, 2)));
        for _ in 0..2 {
            assert_eq!(values.get(0), Some(&[0, 0][..]));
            assert_eq!(values.get(99), Some(&[99, 99][..]));
            assert_eq!((values.get(100), values.get(u32::MAX)), (None, None));
        }
        values.put(100, SmallVec::from_elem(7, 1));
        assert_eq!(values.get(100), Some(&[7][..]));
        // As docs/engine.md says.
        assert!(size_of::<OnceLock<Value>>() <= 40);
    }
}
