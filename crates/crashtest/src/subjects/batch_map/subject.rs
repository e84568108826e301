//! The map whose writes become safe in batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_structures::{BatchMap, BatchOptions, Change, Result, Space};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::pools::{Open, must_be_empty};

/// A map with few keys, three of which have the same hash, and its preparation.
#[derive(Clone, Debug)]
pub(super) struct Batched {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Lengths of values.
    pub(super) lens: &'static [u64],
    /// Number of values of the longest length that are put over each other before the start.
    pub(super) churn: u64,
    /// Number of other keys with values of the longest length, which exist from the start and stay.
    pub(super) base: u64,
    /// Number of entries that an earlier map has left in the same memory, under the same root
    /// number.
    pub(super) inherited: u64,
    /// Maximal number of unsafe bytes.
    pub(super) lag_bytes: u64,
    /// The operations to draw from.
    pub(super) mix: Mix,
    /// Number of operations that run at the same time, if they must leave the log within its bound.
    pub(super) paced_by: Option<u64>,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All.
    All,
    /// Those whose answer does not depend on all keys: for threads.
    Entries,
    /// Many that empty segments.
    Compaction,
    /// Only puts, and making them safe.
    Batches,
}

/// First key of the values that exist from the start.
const BASE_FIRST: u64 = 1000;

/// Length and stamp of a value: every byte is the stamp.
pub(super) type Content = (u64, u8);

/// One operation of the map.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(u64, Content),
    Put(u64, Content),
    Update(u64, Content),
    Remove(u64),
    Discard(u64),
    /// Puts the value with the next stamp; removes it if that is a multiple of four.
    Count(u64),
    Get(u64),
    /// Finds a key by visiting all.
    Find(u64),
    Clear,
    Len,
    Sync,
    Compact,
}

type TestMap = BatchMap<TestKey, [u8], Arc<Sim>>;

impl Batched {
    /// Without a thread, because the simulator's threads are the only ones.
    fn options(&self) -> BatchOptions {
        BatchOptions {
            lag_bytes: self.lag_bytes,
            segment_len: 64 << 10,
            ..BatchOptions::without_thread()
        }
    }
}

fn bytes_of((len, stamp): Content) -> Vec<u8> {
    vec![stamp; len as usize]
}

/// The content of the bytes, if they are all equal.
fn content_of(bytes: &[u8]) -> Option<Content> {
    let stamp = bytes.first().copied().unwrap_or(0);
    bytes.iter().all(|&byte| byte == stamp).then_some((bytes.len() as u64, stamp))
}

fn found(content: Option<Option<Content>>) -> Answer<Content> {
    match content {
        None => Answer::None,
        Some(Some(content)) => Answer::Value(content),
        Some(None) => Answer::Failed("a value is not what was written".to_owned()),
    }
}

/// The content after [`Op::Count`].
fn counted((len, stamp): Content) -> Option<Content> {
    let next = stamp.wrapping_add(1);
    (!next.is_multiple_of(4)).then_some((len.max(1), next))
}

fn find(map: &TestMap, wanted: u64) -> Result<Option<Option<Content>>> {
    let mut content = None;
    let mut cursor = 0;
    loop {
        cursor = map.scan(cursor, 2, |key, value| {
            if key.0 == wanted {
                content = Some(content_of(value));
            }
        })?;
        if cursor == 0 {
            return Ok(content);
        }
    }
}

impl Batched {
    fn len_max(&self) -> u64 {
        self.lens.iter().copied().max().unwrap_or(0)
    }

    fn apply_to(&self, map: &TestMap, op: &Op) -> Answer<Content> {
        match *op {
            Op::Insert(key, content) => {
                answer(map.insert(&TestKey(key), &bytes_of(content)), Answer::Bool)
            }
            Op::Put(key, content) => {
                answer(map.put(&TestKey(key), &bytes_of(content)), Answer::Bool)
            }
            Op::Update(key, content) => {
                answer(map.update(&TestKey(key), &bytes_of(content)), Answer::Bool)
            }
            Op::Remove(key) => {
                let removed = map.remove(&TestKey(key));
                answer(removed, |value| found(value.map(|value| content_of(&value))))
            }
            Op::Discard(key) => answer(map.discard(&TestKey(key)), Answer::Bool),
            Op::Count(key) => {
                let decide = |value: Option<&[u8]>| {
                    let before = value.map(content_of);
                    let change = match before.flatten().map_or(Some((1, 1)), counted) {
                        Some(content) => Change::Put(bytes_of(content)),
                        None => Change::Remove,
                    };
                    (change, before)
                };
                answer(map.modify(&TestKey(key), decide), found)
            }
            Op::Get(key) => answer(map.get_with(&TestKey(key), content_of), found),
            Op::Find(key) => answer(find(map, key), found),
            Op::Clear => answer(map.clear(), |count| Answer::Value((count, 0))),
            Op::Len => answer(map.len(), |count| Answer::Value((count, 0))),
            Op::Sync => answer(map.sync(), |()| Answer::None),
            Op::Compact => answer(map.compact(), |()| Answer::None),
        }
    }
}

impl Subject for Batched {
    type Op = Op;
    type Ret = Answer<Content>;
    type State = BTreeMap<u64, Content>;
    type Handle = Open<TestMap>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let options = self.options();
        let create = |pool: &Pool<_>, name: &_| {
            if self.inherited > 0 {
                let before = TestMap::create(pool, "before", options)?;
                for number in 0..self.inherited {
                    before.put(&TestKey(number), &bytes_of((self.lens[0], u8::MAX)))?;
                }
                drop(before);
                pool.remove_root("before")?;
            }
            TestMap::create(pool, name, options)
        };
        Open::create(medium, self.size_max, create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        let len = self.len_max();
        for number in 0..self.base {
            let content = bytes_of((len, number as u8));
            open.object.put(&TestKey(BASE_FIRST + number), &content)?;
        }
        for number in 0..self.churn {
            let content = bytes_of((len, number as u8));
            open.object.put(&TestKey(number % 2), &content)?;
        }
        for key in 0..2.min(self.churn) {
            open.object.remove(&TestKey(key))?;
        }
        open.object.sync()?;
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let options = self.options();
        Open::recover(medium, |pool, name| TestMap::open(pool, name, options))
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Content> {
        let answer = self.apply_to(&open.object, op);
        let Space { live, segments, bound } = open.object.space();
        match self.paced_by {
            // Values that other operations are replacing count as live meanwhile.
            Some(threads) if segments > bound + 4 * (threads - 1) * self.len_max() => {
                Answer::Failed(format!("{segments} bytes of segments for {live} live ones"))
            }
            _ => answer,
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<Content> {
        let before = |content: Option<Content>| content.map_or(Answer::None, Answer::Value);
        match *op {
            Op::Insert(key, content) => {
                let is_new = !state.contains_key(&key);
                state.entry(key).or_insert(content);
                Answer::Bool(is_new)
            }
            Op::Put(key, content) => Answer::Bool(state.insert(key, content).is_none()),
            Op::Update(key, content) => match state.get_mut(&key) {
                Some(value) => {
                    *value = content;
                    Answer::Bool(true)
                }
                None => Answer::Bool(false),
            },
            Op::Remove(key) => before(state.remove(&key)),
            Op::Discard(key) => Answer::Bool(state.remove(&key).is_some()),
            Op::Count(key) => {
                let value = state.remove(&key);
                state.extend(value.map_or(Some((1, 1)), counted).map(|next| (key, next)));
                before(value)
            }
            Op::Get(key) | Op::Find(key) => before(state.get(&key).copied()),
            Op::Clear => {
                let count = state.len() as u64;
                state.clear();
                Answer::Value((count, 0))
            }
            Op::Len => Answer::Value((state.len() as u64, 0)),
            Op::Sync | Op::Compact => Answer::None,
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        let mut state = BTreeMap::new();
        let mut base = 0;
        for entry in open.object.iter() {
            let (TestKey(key), value) = entry?;
            let content = content_of(&value).ok_or(format!("the value of {key} is torn"))?;
            if let Some(number) = key.checked_sub(BASE_FIRST) {
                base += u64::from(content.1 == number as u8);
            } else if state.insert(key, content).is_some() {
                return Err(format!("key {key} is there twice").into());
            }
            if open.object.get(&TestKey(key))? != Some(value) {
                return Err(format!("key {key} is visited but not found").into());
            }
        }
        let len = open.object.len()?;
        if base != self.base || len != state.len() as u64 + base {
            return Err(format!("{len} keys are counted, {base} of {} stayed", self.base).into());
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = rng.below(self.keys);
        let len = *rng.pick(self.lens);
        let content = (len, if len == 0 { 0 } else { rng.below(200) as u8 });
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11],
            Mix::Entries => &[0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 9, 9, 10, 11],
            Mix::Compaction => &[1, 1, 1, 3, 3, 9, 10, 10, 10],
            Mix::Batches => &[1, 1, 9],
        };
        match *rng.pick(kinds) {
            0 => Op::Insert(key, content),
            1 => Op::Put(key, content),
            2 => Op::Update(key, content),
            3 => Op::Remove(key),
            4 => Op::Count(key),
            5 => Op::Get(key),
            6 => Op::Find(key),
            7 => Op::Clear,
            8 => Op::Len,
            9 => Op::Sync,
            11 => Op::Discard(key),
            _ => Op::Compact,
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Content>) -> bool {
        is_refused(answer)
    }

    fn is_sync(&self, op: &Op) -> bool {
        matches!(op, Op::Sync | Op::Clear)
    }
}
