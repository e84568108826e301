//! The map with several entries for each key.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_structures::HashMultiMap;

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::pools::{Open, must_be_empty};

/// A multi-map with few keys and values.
#[derive(Clone, Debug)]
pub(super) struct MultiMap {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Whether only one thread uses it. Operations that walk several entries then answer exactly.
    pub(super) alone: bool,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// One operation of the map. `remove_all` is not among them, because it removes one entry after the
/// other, as it documents.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(u64, u64),
    RemoveOne(u64, u64),
    GetAll(u64),
    Clear,
}

/// Values by key, newest first, and the length that the map reports.
type Entries = (BTreeMap<u64, Vec<u64>>, u64);
type TestMap = HashMultiMap<TestKey, u64, Arc<Sim>>;

impl Subject for MultiMap {
    type Op = Op;
    type Ret = Answer<Vec<u64>>;
    type State = Entries;
    type Handle = Open<TestMap>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, TestMap::create)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TestMap::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<u64>> {
        let map = &open.object;
        match *op {
            Op::Insert(key, value) => answer(map.insert(&TestKey(key), &value), |()| Answer::None),
            Op::RemoveOne(key, value) => {
                answer(map.remove_one(&TestKey(key), &value), Answer::Bool)
            }
            Op::GetAll(key) => answer(map.get_all(&TestKey(key)), Answer::Value),
            Op::Clear => answer(map.clear(), |_| Answer::None),
        }
    }

    fn model(&self, (entries, len): &mut Entries, op: &Op) -> Answer<Vec<u64>> {
        let answer = match *op {
            Op::Insert(key, value) => {
                entries.entry(key).or_default().insert(0, value);
                Answer::None
            }
            Op::RemoveOne(key, value) => {
                let values = entries.entry(key).or_default();
                let place = values.iter().position(|&found| found == value);
                place.map(|place| values.remove(place));
                Answer::Bool(place.is_some())
            }
            Op::GetAll(key) => Answer::Value(entries.get(&key).cloned().unwrap_or_default()),
            Op::Clear => {
                entries.clear();
                Answer::None
            }
        };
        entries.retain(|_, values| !values.is_empty());
        *len = entries.values().map(|values| values.len() as u64).sum();
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Entries> {
        let mut entries: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut cursor = 0;
        loop {
            cursor = open.object.scan(cursor, 2, |key, value| {
                entries.entry(key.0).or_default().push(*value);
            })?;
            if cursor == 0 {
                break;
            }
        }
        for (&key, values) in &entries {
            let found = open.object.get_all(&TestKey(key))?;
            if found != *values {
                return Err(format!("key {key} has {found:?}, a scan finds {values:?}").into());
            }
        }
        Ok((entries, open.object.len()?))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (key, value) = (rng.below(self.keys), rng.below(3));
        match rng.below(10) {
            0..=4 => Op::Insert(key, value),
            5..=7 => Op::RemoveOne(key, value),
            8 if self.alone => Op::GetAll(key),
            8 => Op::RemoveOne(key, value),
            _ => Op::Clear,
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
