//! Hash maps of words to words.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_structures::{Change, HashMap};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::{NumberedKey, TestKey};
use crate::maps::{TestedMap, entries};
use crate::pools::{Open, must_be_empty};

/// First key of the entries that exist from the start.
const BASE_FIRST: u64 = 1 << 32;

/// Values up to which [`Op::Limited`] adds.
const LIMIT: u64 = 2;

/// A map with few keys that collide, and its preparation.
#[derive(Clone, Debug)]
pub(in crate::subjects) struct Map<T = HashMap<TestKey, u64, Arc<Sim>>, K = TestKey> {
    /// Keys in operations.
    pub(in crate::subjects) keys: Range<u64>,
    /// Number of other keys with entries that exist from the start.
    pub(in crate::subjects) base: u64,
    /// Number of threads, and of the entries that each of them added and removed before the start:
    /// removed entries are freed in batches of 32, and this brings the next batch closer.
    pub(in crate::subjects) churn: (u64, u64),
    /// Number of other keys whose entries were added before the start, and removed in a batch: the
    /// map keeps the size that it had with them.
    pub(in crate::subjects) removed: u64,
    /// The operations to draw from.
    pub(in crate::subjects) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(in crate::subjects) size_max: u64,
    /// Whether the map is closed and opened before the start.
    pub(in crate::subjects) reopened: bool,
    /// Whether `clear` answers the number of entries; not while others add and remove.
    pub(in crate::subjects) counts: bool,
    pub(in crate::subjects) map: PhantomData<fn() -> (T, K)>,
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::subjects) enum Mix {
    /// All.
    All,
    /// All but `clear`.
    Entries,
    /// Mostly reads beside writes, so that the results of reads matter.
    Reads,
    /// Visits of all entries beside writes.
    Scans,
    /// As many removals as insertions: what has grown shrinks again.
    Shrinks,
    /// Many calls of `clear`, and reads.
    Clears,
    /// What reads a value and changes it by what it is, beside insertions and removals.
    Exchanges,
}

/// One operation of the map.
#[derive(Clone, Debug)]
pub(in crate::subjects) enum Op {
    Insert(u64, u64),
    Put(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Discard(u64),
    /// Adds one to the value, from zero on; removes it if the result is a multiple of four.
    Count(u64),
    Swap(u64, u64),
    /// Replaces the first, if it is that, by the second.
    Exchange(u64, Option<u64>, Option<u64>),
    GetOrInsert(u64, u64),
    /// Adds one, and fails at [`LIMIT`] and where there is nothing.
    Limited(u64),
    Get(u64),
    /// Finds a key by visiting all.
    Find(u64),
    Clear,
    Len,
}

/// The observable state of the map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::subjects) struct Entries {
    entries: BTreeMap<u64, u64>,
    /// The length that the map reports, less the entries from the start.
    len: i64,
    /// Whether `clear` has removed the entries from the start.
    base_is_gone: bool,
}

impl<T: TestedMap<K, u64>, K: NumberedKey> Subject for Map<T, K> {
    type Op = Op;
    type Ret = Answer<u64>;
    type State = Entries;
    type Handle = Open<T>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, T::create)
    }

    fn prepare(&self, medium: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        for index in 0..self.base {
            open.object.insert(&K::new(BASE_FIRST + index), &index)?;
        }
        let (threads, entries) = self.churn;
        for thread in 0..threads {
            let churned = open.pool.medium().as_thread(thread, |_| -> Outcome {
                for index in 0..entries {
                    open.object.insert(&K::new(2 * BASE_FIRST + index), &index)?;
                    open.object.remove(&K::new(2 * BASE_FIRST + index))?;
                }
                Ok(())
            });
            churned?;
        }
        let removed: Vec<K> =
            (0..self.removed).map(|index| K::new(3 * BASE_FIRST + index)).collect();
        for key in &removed {
            open.object.insert(key, &0)?;
        }
        if !removed.is_empty() {
            open.object.remove_together(&open.pool, &removed.iter().collect::<Vec<_>>())?;
        }
        if self.reopened {
            drop(open);
            return self.open(Arc::clone(medium));
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, T::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<u64> {
        let map = &open.object;
        let found = |value: Option<u64>| value.map_or(Answer::None, Answer::Value);
        match *op {
            Op::Insert(key, value) => answer(map.insert(&K::new(key), &value), Answer::Bool),
            Op::Put(key, value) => answer(map.put(&K::new(key), &value), Answer::Bool),
            Op::Update(key, value) => answer(map.update(&K::new(key), &value), Answer::Bool),
            Op::Remove(key) => answer(map.remove(&K::new(key)), found),
            Op::Discard(key) => answer(map.discard(&K::new(key)), Answer::Bool),
            Op::Count(key) => answer(map.modify(&K::new(key), count), Answer::Value),
            Op::Swap(key, value) => answer(map.swap(&K::new(key), &value), found),
            Op::Exchange(key, expected, new) => {
                let exchanged = map.compare_exchange(&K::new(key), expected.as_ref(), new.as_ref());
                answer(exchanged, exchange_answer)
            }
            Op::GetOrInsert(key, value) => {
                answer(map.get_or_insert_with(&K::new(key), || value), Answer::Value)
            }
            Op::Limited(key) => answer(map.try_modify(&K::new(key), add_limited), limited_answer),
            Op::Get(key) => answer(map.get(&K::new(key)), found),
            Op::Find(key) => {
                let mut value = None;
                let scanned = map.for_each(|visited, word| {
                    if visited.number() == key {
                        value = Some(*word);
                    }
                    ControlFlow::Continue(())
                });
                answer(scanned, |()| found(value))
            }
            Op::Clear => {
                answer(map.clear(), |count| Answer::Value(if self.counts { count } else { 0 }))
            }
            Op::Len => answer(map.len(), Answer::Value),
        }
    }

    fn model(&self, state: &mut Entries, op: &Op) -> Answer<u64> {
        let Entries { entries, len, base_is_gone } = state;
        let found = |value: Option<u64>| value.map_or(Answer::None, Answer::Value);
        let base = if *base_is_gone { 0 } else { self.base };
        let answer = match *op {
            Op::Insert(key, _) if entries.contains_key(&key) => Answer::Bool(false),
            Op::Insert(key, value) | Op::Put(key, value) => {
                Answer::Bool(entries.insert(key, value).is_none())
            }
            Op::Update(key, value) => match entries.get_mut(&key) {
                Some(old) => {
                    *old = value;
                    Answer::Bool(true)
                }
                None => Answer::Bool(false),
            },
            Op::Remove(key) => found(entries.remove(&key)),
            Op::Discard(key) => Answer::Bool(entries.remove(&key).is_some()),
            Op::Count(key) => {
                let (change, value) = count(entries.get(&key));
                match change {
                    Change::Keep => {}
                    Change::Put(value) => drop(entries.insert(key, value)),
                    Change::Remove => drop(entries.remove(&key)),
                }
                Answer::Value(value)
            }
            Op::Swap(key, value) => found(entries.insert(key, value)),
            Op::Exchange(key, expected, new) => {
                exchange_answer(exchange(entries, key, expected, new))
            }
            Op::GetOrInsert(key, value) => Answer::Value(*entries.entry(key).or_insert(value)),
            Op::Limited(key) => limited_answer(add_limited(entries.get(&key)).map(|(_, next)| {
                entries.insert(key, next);
                next
            })),
            Op::Get(key) | Op::Find(key) => found(entries.get(&key).copied()),
            Op::Clear => {
                let count = entries.len() as u64 + base;
                entries.clear();
                *base_is_gone = self.base > 0;
                Answer::Value(if self.counts { count } else { 0 })
            }
            Op::Len => Answer::Value(entries.len() as u64 + base),
        };
        *len = entries.len() as i64;
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Entries> {
        let mut state = Entries { base_is_gone: self.base > 0, ..Entries::default() };
        let mut base = 0;
        for (key, value) in entries(&open.object)? {
            let key = key.borrow().number();
            if key >= BASE_FIRST {
                if key - BASE_FIRST != value || value >= self.base {
                    return Err(format!("entry {key} → {value} was never there").into());
                }
                base += 1;
            } else if state.entries.insert(key, value).is_some() {
                return Err(format!("key {key} is there twice").into());
            }
            if open.object.get(&K::new(key))? != Some(value) {
                return Err(format!("key {key} is visited but not found").into());
            }
        }
        if base != 0 {
            if base != self.base {
                return Err(format!("{base} of {} untouched entries are there", self.base).into());
            }
            state.base_is_gone = false;
        }
        state.len = open.object.len()? as i64 - base as i64;
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = self.keys.start + rng.below(self.keys.end - self.keys.start);
        let value = rng.below(1000);
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9],
            Mix::Entries => &[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
            Mix::Reads => &[0, 1, 2, 3, 5, 6, 6, 6, 6, 8, 8],
            Mix::Scans => &[0, 1, 3, 8, 8, 8],
            Mix::Shrinks => &[0, 0, 1, 3, 3, 4, 4, 6],
            Mix::Clears => &[0, 0, 1, 3, 5, 6, 6, 7, 7, 7],
            Mix::Exchanges => &[0, 3, 10, 10, 11, 11, 11, 12, 12, 13, 13],
        };
        match *rng.pick(kinds) {
            0 => Op::Insert(key, value),
            1 => Op::Put(key, value),
            2 => Op::Update(key, value),
            3 => Op::Remove(key),
            4 => Op::Discard(key),
            5 => Op::Count(key),
            6 => Op::Get(key),
            7 => Op::Clear,
            9 if self.counts => Op::Len,
            10 => Op::Swap(key, few(value)),
            11 => {
                // Nothing, or one of the few values that there are.
                let mut maybe = || rng.below(2 + LIMIT).checked_sub(1);
                Op::Exchange(key, maybe(), maybe())
            }
            12 => Op::GetOrInsert(key, few(value)),
            13 => Op::Limited(key),
            _ => Op::Find(key),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<u64>) -> bool {
        is_refused(answer)
    }
}

fn count(found: Option<&u64>) -> (Change<u64>, u64) {
    let next = found.map_or(0, |value| value + 1);
    let change =
        if found.is_some() && next.is_multiple_of(4) { Change::Remove } else { Change::Put(next) };
    (change, next)
}

/// One of the values that are often as expected.
fn few(value: u64) -> u64 {
    value % (LIMIT + 1)
}

fn add_limited(found: Option<&u64>) -> Result<(Change<u64>, u64), Option<u64>> {
    match found {
        Some(value) if *value < LIMIT => Ok((Change::Put(value + 1), value + 1)),
        found => Err(found.copied()),
    }
}

fn limited_answer(result: Result<u64, Option<u64>>) -> Answer<u64> {
    match result {
        Ok(value) => Answer::Value(value),
        Err(Some(_)) => Answer::Bool(false),
        Err(None) => Answer::None,
    }
}

/// What `compare_exchange` does, to the model.
fn exchange(
    entries: &mut BTreeMap<u64, u64>,
    key: u64,
    expected: Option<u64>,
    new: Option<u64>,
) -> Result<(), Option<u64>> {
    let found = entries.get(&key).copied();
    if found != expected {
        return Err(found);
    }
    match new {
        Some(new) => drop(entries.insert(key, new)),
        None => drop(entries.remove(&key)),
    }
    Ok(())
}

fn exchange_answer(result: Result<(), Option<u64>>) -> Answer<u64> {
    match result {
        Ok(()) => Answer::Bool(true),
        Err(Some(found)) => Answer::Value(found),
        Err(None) => Answer::None,
    }
}
