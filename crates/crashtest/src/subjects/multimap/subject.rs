//! The maps with several entries for each key.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_pmem::heap::Violation;
use remanent_structures::{ExtendibleMultiMap, HashMultiMap, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::NumberedKey;
use crate::pools::{Open, must_be_empty};

/// A multi-map with few keys and values.
#[derive(Clone, Debug)]
pub(super) struct MultiMap<T> {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Values of some keys that are there before the operations begin. Operations leave them, but
    /// for a clear and those of [`Mix::Removals`].
    pub(super) prepared: u64,
    /// The first so many keys have them.
    pub(super) keys_prepared: u64,
    pub(super) mix: Mix,
    /// Whether only one thread uses it. Operations that walk several entries then answer exactly.
    /// Those of several threads see them at several moments.
    pub(super) alone: bool,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    pub(super) map: PhantomData<fn() -> T>,
}

/// Operations that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    All,
    /// All but what removes the prepared values.
    Values,
    /// Mostly what visits values.
    Reads,
    /// Adding values and visiting them. Threads see them as they are at one moment.
    Additions,
    /// Removing prepared values and visiting them, of which each key has one.
    Removals,
    /// Clearing the map and visiting values, all of which are prepared.
    Clears,
}

/// One operation of the map. `remove_all` is not among them, because it removes one entry after the
/// other, as it documents.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(u64, u64),
    RemoveOne(u64, u64),
    GetAll(u64),
    /// Visits all entries.
    Scan,
    Clear,
}

/// What the scenarios call.
pub(super) trait Several: Sized + Send + Sync + 'static {
    fn create(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self>;
    fn open(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self>;
    fn insert(&self, key: u64, value: u64) -> Result<()>;
    fn remove_one(&self, key: u64, value: u64) -> Result<bool>;
    fn get_all(&self, key: u64) -> Result<Vec<u64>>;
    fn for_each_entry(&self, visit: impl FnMut(u64, u64)) -> Result<()>;
    fn clear(&self) -> Result<u64>;
    fn len(&self) -> Result<u64>;
    fn check(&self) -> Result<Vec<Violation>>;
}

macro_rules! several {
    ($map:ident) => {
        impl<K: NumberedKey> Several for $map<K, u64, Arc<Sim>> {
            fn create(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self> {
                $map::create(pool, name)
            }

            fn open(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self> {
                $map::open(pool, name)
            }

            fn insert(&self, key: u64, value: u64) -> Result<()> {
                self.insert(&K::new(key), &value)
            }

            fn remove_one(&self, key: u64, value: u64) -> Result<bool> {
                self.remove_one(&K::new(key), &value)
            }

            fn get_all(&self, key: u64) -> Result<Vec<u64>> {
                self.get_all(&K::new(key))
            }

            fn for_each_entry(&self, mut visit: impl FnMut(u64, u64)) -> Result<()> {
                let mut cursor = 0;
                loop {
                    cursor = self.scan(cursor, 2, |key, value| visit(key.number(), *value))?;
                    if cursor == 0 {
                        return Ok(());
                    }
                }
            }

            fn clear(&self) -> Result<u64> {
                self.clear()
            }

            fn len(&self) -> Result<u64> {
                self.len()
            }

            fn check(&self) -> Result<Vec<Violation>> {
                self.check()
            }
        }
    };
}

several!(HashMultiMap);
several!(ExtendibleMultiMap);

/// The state of a map, but for the prepared values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Values by key, newest first.
    entries: BTreeMap<u64, Vec<u64>>,
    /// The length that the map reports, without them.
    len: u64,
    /// Keys whose prepared values are gone.
    gone: BTreeSet<u64>,
}

/// Numbers of values that operations use; those that are prepared come behind.
const VALUES: u64 = 3;

fn is_prepared(value: &u64) -> bool {
    *value >= VALUES
}

impl<T> MultiMap<T> {
    /// The prepared values of a key, newest first.
    fn prepared_of(&self, key: u64) -> Vec<u64> {
        let count = if self.keys_prepared().contains(&key) { self.prepared } else { 0 };
        (VALUES..VALUES + count).rev().collect()
    }

    /// Keys that have prepared values.
    fn keys_prepared(&self) -> std::ops::Range<u64> {
        0..if self.prepared == 0 { 0 } else { self.keys_prepared.min(self.keys) }
    }

    fn is_exact(&self) -> bool {
        self.alone || [Mix::Additions, Mix::Removals, Mix::Clears].contains(&self.mix)
    }

    /// The answer for these values of a key. If it is not exact, nothing is said of what others
    /// remove, but what nobody removes must be there, once and in order.
    fn answer_for(&self, key: u64, values: Vec<u64>) -> Answer<Vec<u64>> {
        if self.is_exact() {
            return Answer::Value(values);
        }
        let prepared: Vec<u64> = values.into_iter().filter(is_prepared).collect();
        // The model has no other answer.
        match prepared == self.prepared_of(key) {
            true => Answer::None,
            false => Answer::Value(prepared),
        }
    }
}

impl<T: Several> MultiMap<T> {
    /// Values by key, in the order of a visit of all entries.
    fn visited(map: &T) -> Result<BTreeMap<u64, Vec<u64>>> {
        let mut entries: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        map.for_each_entry(|key, value| entries.entry(key).or_default().push(value))?;
        Ok(entries)
    }

    /// The answer to a visit of all entries: that of the first key that has a wrong one.
    fn answer_scan(&self, mut entries: BTreeMap<u64, Vec<u64>>) -> Answer<Vec<u64>> {
        let all = |key| self.answer_for(key, entries.remove(&key).unwrap_or_default());
        (0..self.keys).map(all).find(|answer| *answer != Answer::None).unwrap_or(Answer::None)
    }
}

impl<T: Several> Subject for MultiMap<T> {
    type Op = Op;
    type Ret = Answer<Vec<u64>>;
    type State = State;
    type Handle = Open<T>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, T::create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        for key in self.keys_prepared() {
            // A crash while this ran has left some.
            let found = open.object.get_all(key)?;
            for value in
                self.prepared_of(key).into_iter().rev().filter(|value| !found.contains(value))
            {
                open.object.insert(key, value)?;
            }
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, T::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<u64>> {
        let map = &open.object;
        match *op {
            Op::Insert(key, value) => answer(map.insert(key, value), |()| Answer::None),
            Op::RemoveOne(key, value) => answer(map.remove_one(key, value), Answer::Bool),
            Op::GetAll(key) => answer(map.get_all(key), |values| self.answer_for(key, values)),
            Op::Scan => answer(Self::visited(map), |entries| self.answer_scan(entries)),
            Op::Clear => answer(map.clear(), |_| Answer::None),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Vec<u64>> {
        let entries = &mut state.entries;
        let answer = match *op {
            Op::Insert(key, value) => {
                entries.entry(key).or_default().insert(0, value);
                Answer::None
            }
            Op::RemoveOne(key, value) if is_prepared(&value) => {
                Answer::Bool(state.gone.insert(key))
            }
            Op::RemoveOne(key, value) => {
                let values = entries.entry(key).or_default();
                let place = values.iter().position(|&found| found == value);
                place.map(|place| values.remove(place));
                Answer::Bool(place.is_some())
            }
            Op::GetAll(key) if self.is_exact() => {
                let mut values = entries.get(&key).cloned().unwrap_or_default();
                if !state.gone.contains(&key) {
                    values.append(&mut self.prepared_of(key));
                }
                Answer::Value(values)
            }
            Op::GetAll(_) | Op::Scan => Answer::None,
            Op::Clear => {
                entries.clear();
                state.gone = self.keys_prepared().collect();
                Answer::None
            }
        };
        entries.retain(|_, values| !values.is_empty());
        state.len = entries.values().map(|values| values.len() as u64).sum();
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let mut entries = Self::visited(&open.object)?;
        for key in 0..self.keys {
            let values = entries.entry(key).or_default();
            let found = open.object.get_all(key)?;
            if found != *values {
                return Err(format!("key {key} has {found:?}, a scan finds {values:?}").into());
            }
        }
        let mut gone = BTreeSet::new();
        for key in 0..self.keys {
            let values = entries.entry(key).or_default();
            let first = values.iter().position(is_prepared).unwrap_or(values.len());
            let prepared = values.split_off(first);
            if prepared.is_empty() && self.keys_prepared().contains(&key) {
                gone.insert(key);
            } else if prepared != self.prepared_of(key) {
                let what = format!("of what nobody removes, key {key} has {prepared:?}");
                return Err(what.into());
            }
        }
        entries.retain(|_, values| !values.is_empty());
        let prepared = (self.keys_prepared().count() - gone.len()) as u64 * self.prepared;
        let len = open.object.len()?.wrapping_sub(prepared);
        Ok(State { entries, len, gone })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (key, value) = (rng.below(self.keys), rng.below(VALUES));
        match (self.mix, rng.below(10)) {
            (Mix::Additions, 5..) | (Mix::Removals, 7..) => Op::GetAll(key),
            (Mix::Additions, _) => Op::Insert(key, value),
            (Mix::Removals, _) => Op::RemoveOne(key, VALUES),
            (Mix::Clears, 0..=2) => Op::Clear,
            (Mix::Clears, _) => Op::GetAll(key),
            (Mix::Reads, 0..=2) | (Mix::All | Mix::Values, 0..=4) => Op::Insert(key, value),
            (Mix::Reads, 3..=4) | (Mix::All | Mix::Values, 5..=7) => Op::RemoveOne(key, value),
            (Mix::Reads, 5..=6) => Op::Scan,
            (Mix::Reads, _) => Op::GetAll(key),
            (_, 8) if self.alone => Op::GetAll(key),
            (Mix::All, 9..) => Op::Clear,
            _ => Op::RemoveOne(key, value),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Vec<u64>>) -> bool {
        is_refused(answer)
    }
}
