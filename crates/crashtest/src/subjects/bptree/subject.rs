//! The versioned B+-tree, with one entry for each key and with several.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_structures::papers::{BpMultiTree, BpTree};
use remanent_structures::{Change, Map, OrderedMap, Stored};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::pools::{Open, must_be_empty};

/// Distance of the keys in operations; the middle between two belongs to an entry that exists from
/// the start.
const STRIDE: u64 = 16;

/// A tree with few keys, and its preparation.
#[derive(Clone, Debug)]
pub(crate) struct Tree<V = u64> {
    /// Number of keys in operations.
    pub(crate) keys: u64,
    /// Number of entries between these keys that exist from the start.
    pub(crate) base: u64,
    /// Number of times that an entry was added and removed before the start: nodes are freed in
    /// batches, and this brings the next batch closer.
    pub(crate) churn: u64,
    /// The operations to draw from.
    pub(crate) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(crate) size_max: u64,
    pub(crate) value: PhantomData<V>,
}

/// A value that represents a number.
pub(crate) trait Value: Stored<Owned = Self> + Clone + Send + Sync + 'static {
    fn of(number: u64) -> Self;

    /// The number; an impossible number if parts of several values were mixed.
    fn number(&self) -> u64;
}

impl Value for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// A value with which an entry lies in two lines.
pub(crate) type Wide = [u8; 64];

impl Value for Wide {
    fn of(number: u64) -> Self {
        let mut bytes = [0; 64];
        bytes.as_chunks_mut().0.fill(number.to_le_bytes());
        bytes
    }

    fn number(&self) -> u64 {
        let words = self.as_chunks().0;
        match words.iter().all(|word| *word == words[0]) {
            true => u64::from_le_bytes(words[0]),
            false => u64::MAX,
        }
    }
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All.
    All,
    /// Mostly additions.
    Growing,
    /// Mostly removals.
    Shrinking,
    /// Many calls of `clear`.
    Clears,
    /// Mostly reads beside writes.
    Reads,
}

/// One operation of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Insert(u64, u64),
    Put(u64, u64),
    Update(u64, u64),
    Remove(u64),
    /// Removes an entry that exists from the start.
    RemoveBase(u64),
    /// Adds one to the value, from zero on; removes it if the result is a multiple of four.
    Count(u64),
    Get(u64),
    /// The sum over the entries from this key up to the next but two.
    Sum(u64),
    /// The greatest key.
    Last,
    Clear,
    Len,
}

fn key_of(key: u64) -> TestKey {
    TestKey(key * STRIDE)
}

fn base_key_of(index: u64) -> TestKey {
    TestKey(index * STRIDE + STRIDE / 2)
}

/// Summand of an entry: the sum identifies the entries in it.
fn share(key: u64, value: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value
}

fn count<V: Value>(found: Option<&V>) -> (Change<V>, u64) {
    let next = found.map_or(0, |value| value.number() + 1);
    let is_last = found.is_some() && next.is_multiple_of(4);
    (if is_last { Change::Remove } else { Change::Put(V::of(next)) }, next)
}

/// The observable state of the tree, as the difference to its preparation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Entries that did not exist at the start.
    added: BTreeMap<u64, u64>,
    /// Keys that existed at the start and were removed.
    gone: BTreeSet<u64>,
    /// Difference of the tree's length.
    len: i64,
}

pub(crate) type TestTree<V> = BpTree<TestKey, V, Arc<Sim>>;

impl<V> Tree<V> {
    fn base(&self) -> BTreeMap<u64, u64> {
        (0..self.base).map(|index| (base_key_of(index).0, index)).collect()
    }

    fn entries_of(&self, state: &State) -> BTreeMap<u64, u64> {
        let mut entries = self.base();
        entries.retain(|key, _| !state.gone.contains(key));
        entries.extend(&state.added);
        entries
    }

    fn state_of(&self, mut entries: BTreeMap<u64, u64>, len: u64) -> State {
        let mut gone = BTreeSet::new();
        for (key, value) in self.base() {
            if entries.get(&key) == Some(&value) {
                entries.remove(&key);
            } else {
                gone.insert(key);
            }
        }
        State { added: entries, gone, len: len as i64 - self.base as i64 }
    }
}

impl<V: Value> Subject for Tree<V> {
    type Op = Op;
    type Ret = Answer<u64>;
    type State = State;
    type Handle = Open<TestTree<V>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, TestTree::<V>::create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        for index in 0..self.base {
            open.object.insert(&base_key_of(index), &V::of(index))?;
        }
        for index in 0..self.churn {
            open.object.insert(&key_of(index % self.keys), &V::of(index))?;
            open.object.remove(&key_of(index % self.keys))?;
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TestTree::<V>::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<u64> {
        let tree = &open.object;
        let found =
            |value: Option<V>| value.map_or(Answer::None, |value| Answer::Value(value.number()));
        match *op {
            Op::Insert(key, value) => {
                answer(tree.insert(&key_of(key), &V::of(value)), Answer::Bool)
            }
            Op::Put(key, value) => answer(tree.put(&key_of(key), &V::of(value)), Answer::Bool),
            Op::Update(key, value) => {
                answer(tree.update(&key_of(key), &V::of(value)), Answer::Bool)
            }
            Op::Remove(key) => answer(tree.remove(&key_of(key)), found),
            Op::RemoveBase(index) => answer(tree.remove(&base_key_of(index)), found),
            Op::Count(key) => answer(tree.modify(&key_of(key), count), Answer::Value),
            Op::Get(key) => answer(tree.get(&key_of(key)), found),
            Op::Sum(key) => {
                let mut sum = 0_u64;
                let summed = tree.ascend(key_of(key)..key_of(key + 3), |key, value| {
                    sum = sum.wrapping_add(share(key.0, value.number()));
                    ControlFlow::Continue(())
                });
                answer(summed, |()| Answer::Value(sum))
            }
            Op::Last => answer(tree.last(), |last| {
                last.map_or(Answer::None, |(key, _)| Answer::Value(key.0))
            }),
            Op::Clear => answer(tree.clear(), Answer::Value),
            Op::Len => answer(tree.len(), Answer::Value),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<u64> {
        let mut entries = self.entries_of(state);
        let found = |value: Option<u64>| value.map_or(Answer::None, Answer::Value);
        let answer = match *op {
            Op::Insert(key, value) => {
                let is_new = !entries.contains_key(&key_of(key).0);
                entries.entry(key_of(key).0).or_insert(value);
                Answer::Bool(is_new)
            }
            Op::Put(key, value) => Answer::Bool(entries.insert(key_of(key).0, value).is_none()),
            Op::Update(key, value) => {
                let old = entries.get_mut(&key_of(key).0).map(|old| *old = value);
                Answer::Bool(old.is_some())
            }
            Op::Remove(key) => found(entries.remove(&key_of(key).0)),
            Op::RemoveBase(index) => found(entries.remove(&base_key_of(index).0)),
            Op::Count(key) => {
                let (change, value) = count(entries.get(&key_of(key).0));
                match change {
                    Change::Keep => {}
                    Change::Put(value) => drop(entries.insert(key_of(key).0, value)),
                    Change::Remove => drop(entries.remove(&key_of(key).0)),
                }
                Answer::Value(value)
            }
            Op::Get(key) => found(entries.get(&key_of(key).0).copied()),
            Op::Sum(key) => {
                let range = entries.range(key_of(key).0..key_of(key + 3).0);
                let shares = range.map(|(&key, &value)| share(key, value));
                Answer::Value(shares.fold(0, u64::wrapping_add))
            }
            Op::Last => found(entries.last_key_value().map(|(&key, _)| key)),
            Op::Clear => {
                let before = entries.len() as u64;
                entries.clear();
                Answer::Value(before)
            }
            Op::Len => Answer::Value(entries.len() as u64),
        };
        let len = entries.len() as u64;
        *state = self.state_of(entries, len);
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let mut entries = BTreeMap::new();
        let mut keys = Vec::new();
        open.object.for_each(|key, value| {
            entries.insert(key.0, value.number());
            keys.push(key.0);
            ControlFlow::Continue(())
        })?;
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(format!("keys come as {keys:?}").into());
        }
        for (&key, &value) in &entries {
            let found = open.object.get(&TestKey(key))?.map(|value| value.number());
            if found != Some(value) {
                return Err(format!("key {key} is visited but not found").into());
            }
        }
        let mut backwards = Vec::new();
        open.object.descend(.., |key, _| {
            backwards.push(key.0);
            ControlFlow::Continue(())
        })?;
        if !backwards.iter().rev().eq(&keys) {
            return Err(format!("backwards, keys come as {backwards:?}").into());
        }
        Ok(self.state_of(entries, open.object.len()?))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (key, value) = (rng.below(self.keys), rng.below(1000));
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8, 9, 10],
            Mix::Growing => &[0, 0, 0, 1, 1, 1, 5, 3],
            Mix::Shrinking => &[3, 3, 4, 4, 4, 4, 4, 4, 0],
            Mix::Clears => &[0, 0, 0, 3, 9, 9, 10],
            Mix::Reads => &[0, 1, 3, 5, 6, 6, 7, 7, 8, 10],
        };
        match kinds[rng.below(kinds.len() as u64) as usize] {
            0 => Op::Insert(key, value),
            1 => Op::Put(key, value),
            2 => Op::Update(key, value),
            3 => Op::Remove(key),
            4 if self.base > 0 => Op::RemoveBase(rng.below(self.base)),
            4 => Op::Remove(key),
            5 => Op::Count(key),
            6 => Op::Get(key),
            7 => Op::Sum(key),
            8 => Op::Last,
            9 => Op::Clear,
            _ => Op::Len,
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

/// A tree with few keys and values, and several entries for each key.
#[derive(Clone, Debug)]
pub(crate) struct MultiTree {
    /// Number of keys in operations.
    pub(crate) keys: u64,
    /// Size beyond which the pool does not grow.
    pub(crate) size_max: u64,
}

/// One operation of the tree. `remove_all` is not among them, because it removes one entry after
/// the other, as it documents.
#[derive(Clone, Debug)]
pub(crate) enum MultiOp {
    Insert(u64, u64),
    RemoveOne(u64, u64),
    GetAll(u64),
    Clear,
}

/// Values by key, oldest first, and the length that the tree reports.
type MultiState = (BTreeMap<u64, Vec<u64>>, u64);
type TestMultiTree = BpMultiTree<TestKey, u64, Arc<Sim>>;

impl Subject for MultiTree {
    type Op = MultiOp;
    type Ret = Answer<Vec<u64>>;
    type State = MultiState;
    type Handle = Open<TestMultiTree>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, TestMultiTree::create)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TestMultiTree::open)
    }

    fn apply(&self, open: &Self::Handle, op: &MultiOp) -> Answer<Vec<u64>> {
        let tree = &open.object;
        match *op {
            MultiOp::Insert(key, value) => {
                answer(tree.insert(&TestKey(key), &value), |()| Answer::None)
            }
            MultiOp::RemoveOne(key, value) => {
                answer(tree.remove_one(&TestKey(key), &value), Answer::Bool)
            }
            MultiOp::GetAll(key) => answer(tree.get_all(&TestKey(key)), Answer::Value),
            MultiOp::Clear => answer(tree.clear(), |_| Answer::None),
        }
    }

    fn model(&self, (entries, len): &mut MultiState, op: &MultiOp) -> Answer<Vec<u64>> {
        let answer = match *op {
            MultiOp::Insert(key, value) => {
                entries.entry(key).or_default().push(value);
                Answer::None
            }
            MultiOp::RemoveOne(key, value) => {
                let values = entries.entry(key).or_default();
                let place = values.iter().position(|&found| found == value);
                place.map(|place| values.remove(place));
                Answer::Bool(place.is_some())
            }
            MultiOp::GetAll(key) => Answer::Value(entries.get(&key).cloned().unwrap_or_default()),
            MultiOp::Clear => {
                entries.clear();
                Answer::None
            }
        };
        entries.retain(|_, values| !values.is_empty());
        *len = entries.values().map(|values| values.len() as u64).sum();
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<MultiState> {
        let mut entries: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        open.object.ascend(.., |key, value| {
            entries.entry(key.0).or_default().push(*value);
            ControlFlow::Continue(())
        })?;
        for (&key, values) in &entries {
            let found = open.object.get_all(&TestKey(key))?;
            if found != *values {
                return Err(format!("key {key} has {found:?}, a visit finds {values:?}").into());
            }
        }
        Ok((entries, open.object.len()?))
    }

    fn op(&self, rng: &mut Rng) -> MultiOp {
        let (key, value) = (rng.below(self.keys), rng.below(3));
        match rng.below(12) {
            0..=6 => MultiOp::Insert(key, value),
            7..=9 => MultiOp::RemoveOne(key, value),
            10 => MultiOp::GetAll(key),
            _ => MultiOp::Clear,
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
