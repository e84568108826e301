//! The B-link tree, with nodes so small that a few operations divide and join them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};
use remanent_structures::{BlinkTree, Change, Key, Map, OrderedKey, Stored};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::OVERHEAD;

/// The keys and values of a tree, by their numbers.
pub(crate) trait Form: Sync + 'static {
    type K: OrderedKey;
    type V: Stored + ?Sized;
    /// Size of a pool that a tree of some dozens of entries fills.
    const SIZE_FULL: u64;

    fn key(number: u64) -> Self::K;
    fn key_number(key: &Self::K) -> u64;
    fn value(number: u64) -> <Self::V as ToOwned>::Owned;
    fn value_number(value: &Self::V) -> u64;
}

/// Words, which lie in the leaves.
#[derive(Clone, Debug)]
pub(crate) struct Words;

/// Keys with a common beginning, and values of several lengths, in records.
#[derive(Clone, Debug)]
pub(crate) struct Texts;

/// A key with few entries in a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WordKey(u64);

/// Like [`WordKey`], of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextKey(Vec<u8>);

const NODE_ENTRIES_MAX: usize = 4;
/// First number of the values that exist from the start.
const BASE_VALUE: u64 = 500;
/// The keys that are left in two leaves under the first node, after 25 keys were added and
/// [`THINNED`] removed.
const LONELY: [u64; 2] = [3, 9];
/// Keys beside the [`LONELY`] ones in their leaves.
pub(crate) const THINNED: [u64; 4] = [4, 5, 10, 11];
const TEXT_BEGINNING: &str = "a common beginning ";
const TEXT_END: &str = "/and more";

impl Stored for WordKey {
    const LEN: Option<u32> = Some(8);

    fn type_name() -> String {
        "WordKey".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(use_bytes)
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |key| use_value(&WordKey(*key)))
    }
}

impl Key for WordKey {}

impl OrderedKey for WordKey {
    const NODE_ENTRIES_MAX: usize = NODE_ENTRIES_MAX;

    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_ordered(use_bytes)
    }

    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        u64::from_ordered(bytes, |key| use_key(&WordKey(*key)))
    }
}

impl Stored for TextKey {
    const LEN: Option<u32> = None;

    fn type_name() -> String {
        "TextKey".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&TextKey(bytes.to_vec()))
    }
}

impl Key for TextKey {}

impl OrderedKey for TextKey {
    const NODE_ENTRIES_MAX: usize = NODE_ENTRIES_MAX;

    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }

    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        use_key(&TextKey(bytes.to_vec()))
    }
}

impl Form for Words {
    type K = WordKey;
    type V = u64;
    // The heap's header, leaves, nodes.
    const SIZE_FULL: u64 = (OVERHEAD + 3) << 16;

    fn key(number: u64) -> WordKey {
        WordKey(number)
    }

    fn key_number(key: &WordKey) -> u64 {
        key.0
    }

    fn value(number: u64) -> u64 {
        number
    }

    fn value_number(value: &u64) -> u64 {
        *value
    }
}

impl Form for Texts {
    type K = TextKey;
    type V = [u8];
    // Like words; plus separators, and records of several lengths.
    const SIZE_FULL: u64 = (OVERHEAD + 10) << 16;

    fn key(number: u64) -> TextKey {
        // Every third key is the beginning of others. Heads differ behind a common beginning, or
        // not at all.
        let end = if number.is_multiple_of(3) { "" } else { TEXT_END };
        TextKey(format!("{TEXT_BEGINNING}{:03}{end}{}", number / 4, number % 4).into_bytes())
    }

    fn key_number(key: &TextKey) -> u64 {
        let number = || {
            let text = str::from_utf8(&key.0).ok()?.strip_prefix(TEXT_BEGINNING)?;
            let (rest, last) = text.split_at_checked(text.len().checked_sub(1)?)?;
            let group: u64 = rest.strip_suffix(TEXT_END).unwrap_or(rest).parse().ok()?;
            Some(group * 4 + last.parse::<u64>().ok()?)
        };
        number().filter(|&number| Self::key(number) == *key).unwrap_or(u64::MAX)
    }

    fn value(number: u64) -> Vec<u8> {
        // Values that exist from the start are long: some dozens fill a chunk.
        let len = 8 + number as usize % 4 * 20 + if number < BASE_VALUE { 0 } else { 1_000 };
        number.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    fn value_number(value: &[u8]) -> u64 {
        let number = value.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        if Self::value(number) == value { number } else { u64::MAX }
    }
}

/// A tree, and its preparation.
#[derive(Clone, Debug)]
pub(crate) struct Tree<F> {
    /// Keys in operations.
    pub(crate) keys: Range<u64>,
    /// Keys that exist from the start.
    pub(crate) base: Range<u64>,
    /// Whether an earlier tree has left its nodes in the same memory.
    pub(crate) inherited: bool,
    /// Keys of `base` that are removed again before the start.
    pub(crate) thinned: &'static [u64],
    /// Whether all of `base` are removed again.
    pub(crate) cleared: bool,
    /// Whether the tree is closed and opened before the start.
    pub(crate) reopened: bool,
    /// Whether the count was lost then, as in a crash.
    pub(crate) uncounted: bool,
    /// The operations to draw from.
    pub(crate) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(crate) size_max: u64,
    pub(crate) form: PhantomData<F>,
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All.
    All,
    /// Those on one entry: all that are atomic beside other threads.
    Entries,
    /// Mostly insertions.
    Growth,
    /// Mostly sorted entries, loaded behind the others. Nothing is removed, so each load is atomic.
    Loads,
    /// Mostly removals.
    Decay,
    /// Visits of ranges beside operations on one entry. Threads may run visits, but not as atomic
    /// steps.
    Visits,
    /// Many calls of `clear`.
    Clears,
    /// Sorted entries loaded behind the others, changes of the same leaves, and counts.
    Tail,
    /// New keys, and removals of [`LONELY`] ones: nearly each one changes the tree's shape.
    Shape,
    /// Entries taken from either end, ranges removed, and reads. Nothing is inserted: then what a
    /// thread takes was the first or the last at that moment.
    Pops,
}

/// One operation of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Insert(u64, u64),
    Put(u64, u64),
    Update(u64, u64),
    Remove(u64),
    /// Adds one to the value, from zero on; removes it if the result is a multiple of four.
    Count(u64),
    Get(u64),
    /// All entries of a range, forwards or backwards.
    Range(Range<u64>, bool),
    /// Loads two or three entries behind the last one, as one leaf, if there is one.
    Append(u64),
    /// Loads so many entries in order, beginning at this key.
    Load(u64, u64),
    Clear,
    /// Removes the first entry, or the last.
    Pop(bool),
    /// Removes the entries of a range, by that name or as what is not to be retained.
    RemoveRange(Range<u64>, bool),
    Len,
    /// Checks that entries can be counted. While others write, the count is not determined.
    Size,
    /// Checks that the entries visited in a range, forwards or backwards, are in order.
    Visit(Range<u64>, bool),
}

/// What can be observed of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entries {
    /// `None`: those that exist from the start.
    entries: Option<BTreeMap<u64, u64>>,
}

/// Offset of the count in a tree's header, and its value when it is lost.
const COUNT: (u64, u64) = (ChunkId(DATA_FIRST).offset() + 8, u64::MAX);

/// The value of a key at the start.
fn base_value(key: u64) -> u64 {
    BASE_VALUE + key
}

impl<F: Form> Tree<F> {
    fn base_entries(&self) -> BTreeMap<u64, u64> {
        let is_there = |key: &u64| !self.cleared && !self.thinned.contains(key);
        self.base.clone().filter(is_there).map(|key| (key, base_value(key))).collect()
    }

    /// The greatest number among the keys in the tree.
    fn last_number(&self, tree: &TestTree<F>) -> remanent_structures::Result<Option<u64>> {
        let mut last = None;
        tree.for_each(|key, _| {
            last = last.max(Some(F::key_number(key)));
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }

    fn model_entries(entries: &mut BTreeMap<u64, u64>, op: &Op) -> Answer<u64> {
        let found = |value: Option<u64>| value.map_or(Answer::None, Answer::Value);
        match op.clone() {
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
            Op::Count(key) => {
                let (change, value) = count(entries.get(&key).copied());
                match change {
                    Change::Keep => {}
                    Change::Put(value) => drop(entries.insert(key, value)),
                    Change::Remove => drop(entries.remove(&key)),
                }
                Answer::Value(value)
            }
            Op::Get(key) => found(entries.get(&key).copied()),
            Op::Range(range, backwards) => {
                let mut inside: Vec<(u64, u64)> = entries
                    .iter()
                    .map(|(&key, &value)| (key, value))
                    .filter(|&(key, _)| is_inside::<F>(&range, key))
                    .collect();
                inside.sort_by_key(|&(key, _)| ordered::<F>(key));
                if backwards {
                    inside.reverse();
                }
                Answer::Value(digest(inside.into_iter()))
            }
            Op::Append(len) => match entries.keys().max().copied() {
                None => Answer::Value(0),
                Some(last) => {
                    let new = appended::<F>(last, len).into_iter();
                    entries.extend(new.map(|key| (key, base_value(key))));
                    Answer::Value(len)
                }
            },
            Op::Load(first, len) => {
                let before = entries.len();
                entries.extend(loaded::<F>(first, len).map(|key| (key, base_value(key))));
                Answer::Value((entries.len() - before) as u64)
            }
            Op::Clear => Answer::Value(std::mem::take(entries).len() as u64),
            Op::Pop(is_first) => {
                let by_order = |key: &&u64| ordered::<F>(**key);
                let key = match is_first {
                    true => entries.keys().min_by_key(by_order),
                    false => entries.keys().max_by_key(by_order),
                };
                let popped = key.copied().and_then(|key| Some((key, entries.remove(&key)?)));
                popped.map_or(Answer::None, |entry| Answer::Value(digest([entry].into_iter())))
            }
            Op::RemoveRange(range, _) => {
                let before = entries.len();
                entries.retain(|&key, _| !is_inside::<F>(&range, key));
                Answer::Value((before - entries.len()) as u64)
            }
            Op::Len => Answer::Value(entries.len() as u64),
            Op::Visit(..) | Op::Size => Answer::Bool(true),
        }
    }

    /// The numbers of the entries visited in a range.
    fn visited(
        tree: &TestTree<F>,
        range: Range<u64>,
        backwards: bool,
    ) -> remanent_structures::Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        let bounds = F::key(range.start)..F::key(range.end);
        let visit = |key: &F::K, value: &F::V| {
            entries.push((F::key_number(key), F::value_number(value)));
            ControlFlow::Continue(())
        };
        if backwards { tree.descend(bounds, visit) } else { tree.ascend(bounds, visit) }?;
        Ok(entries)
    }

    /// The numbers of the entry that is removed.
    fn pop(tree: &TestTree<F>, is_first: bool) -> remanent_structures::Result<Option<(u64, u64)>> {
        let popped = if is_first { tree.pop_first() } else { tree.pop_last() }?;
        let numbers = |(key, value): (<F::K as ToOwned>::Owned, <F::V as ToOwned>::Owned)| {
            (F::key_number(key.borrow()), F::value_number(value.borrow()))
        };
        Ok(popped.map(numbers))
    }

    fn remove_range(
        tree: &TestTree<F>,
        range: Range<u64>,
        is_retained: bool,
    ) -> remanent_structures::Result<u64> {
        match is_retained {
            true => tree.retain(|key, _| !is_inside::<F>(&range, F::key_number(key))),
            false => tree.remove_range(F::key(range.start)..F::key(range.end)),
        }
    }
}

/// The ordered form of the key of that number.
fn ordered<F: Form>(key: u64) -> Vec<u8> {
    F::key(key).with_ordered(<[u8]>::to_vec)
}

/// Whether a key lies between two others, by its order.
fn is_inside<F: Form>(range: &Range<u64>, key: u64) -> bool {
    (ordered::<F>(range.start)..ordered::<F>(range.end)).contains(&ordered::<F>(key))
}

/// Consecutive keys behind the key of this number.
fn appended<F: Form>(last: u64, len: u64) -> Vec<u64> {
    loaded::<F>((last / 4 + 1) * 4, len).collect()
}

/// So many consecutive keys, beginning with this number.
fn loaded<F: Form>(first: u64, len: u64) -> impl Iterator<Item = u64> {
    let mut keys: Vec<u64> = (first..first + len).collect();
    keys.sort_by_key(|&key| ordered::<F>(key));
    keys.into_iter()
}

/// Loads the entries of these keys.
fn load<F: Form>(
    tree: &TestTree<F>,
    keys: impl Iterator<Item = u64>,
) -> remanent_structures::Result<u64> {
    tree.bulk_load(keys.map(|key| (F::key(key), F::value(base_value(key)))))
}

fn digest(entries: impl Iterator<Item = (u64, u64)>) -> u64 {
    entries.fold(1, |digest: u64, (key, value)| {
        digest.wrapping_mul(31).wrapping_add(key * 1000 + value)
    })
}

pub(crate) type TestTree<F> = BlinkTree<<F as Form>::K, <F as Form>::V, Arc<Sim>>;

impl<F: Form> Subject for Tree<F>
where
    TestTree<F>: Send + Sync,
{
    type Op = Op;
    type Ret = Answer<u64>;
    type State = Entries;
    type Handle = Open<TestTree<F>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let create = |pool: &Pool<_>, name: &_| {
            if self.inherited {
                let before = TestTree::<F>::create(pool, "before")?;
                for key in 0..40 {
                    before.insert(&F::key(key), F::value(base_value(key)).borrow())?;
                }
                drop(before);
                pool.remove_root("before")?;
            }
            TestTree::<F>::create(pool, name)
        };
        Open::create(medium, self.size_max, create)
    }

    fn prepare(&self, medium: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        for key in self.base.clone() {
            open.object.insert(&F::key(key), F::value(base_value(key)).borrow())?;
        }
        for &key in self.thinned {
            open.object.discard(&F::key(key))?;
        }
        if self.cleared {
            open.object.clear()?;
        }
        if self.reopened {
            drop(open);
            if self.uncounted {
                medium.store(COUNT.0, COUNT.1);
                medium.persist(COUNT.0, 8);
            }
            return self.open(Arc::clone(medium));
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TestTree::<F>::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<u64> {
        let tree = &open.object;
        let found = |value: Option<u64>| value.map_or(Answer::None, Answer::Value);
        let value_of = |number: u64| F::value(number);
        match op.clone() {
            Op::Insert(key, value) => {
                answer(tree.insert(&F::key(key), Borrow::borrow(&value_of(value))), Answer::Bool)
            }
            Op::Put(key, value) => {
                answer(tree.put(&F::key(key), Borrow::borrow(&value_of(value))), Answer::Bool)
            }
            Op::Update(key, value) => {
                answer(tree.update(&F::key(key), Borrow::borrow(&value_of(value))), Answer::Bool)
            }
            Op::Remove(key) => answer(tree.remove(&F::key(key)), |removed| {
                found(removed.map(|value| F::value_number(Borrow::borrow(&value))))
            }),
            Op::Count(key) => answer(
                tree.modify(&F::key(key), |value| {
                    let (change, value) = count(value.map(F::value_number));
                    let change = match change {
                        Change::Keep => Change::Keep,
                        Change::Put(number) => Change::Put(F::value(number)),
                        Change::Remove => Change::Remove,
                    };
                    (change, value)
                }),
                Answer::Value,
            ),
            Op::Get(key) => answer(tree.get_with(&F::key(key), F::value_number), found),
            Op::Range(range, backwards) => {
                answer(Self::visited(tree, range, backwards), |entries| {
                    Answer::Value(digest(entries.into_iter()))
                })
            }
            Op::Visit(range, backwards) => {
                answer(Self::visited(tree, range, backwards), |mut entries| {
                    if backwards {
                        entries.reverse();
                    }
                    let keys = entries.iter().map(|&(key, _)| ordered::<F>(key));
                    Answer::Bool(keys.is_sorted_by(|one, other| one < other))
                })
            }
            Op::Append(len) => {
                let appended = self.last_number(tree).and_then(|last| match last {
                    None => Ok(0),
                    Some(last) => load::<F>(tree, appended::<F>(last, len).into_iter()),
                });
                answer(appended, Answer::Value)
            }
            Op::Load(first, len) => answer(load::<F>(tree, loaded::<F>(first, len)), Answer::Value),
            Op::Clear => answer(tree.clear(), Answer::Value),
            Op::Pop(is_first) => answer(Self::pop(tree, is_first), |popped| {
                popped.map_or(Answer::None, |entry| Answer::Value(digest([entry].into_iter())))
            }),
            Op::RemoveRange(range, is_retained) => {
                answer(Self::remove_range(tree, range, is_retained), Answer::Value)
            }
            Op::Len => answer(tree.len(), Answer::Value),
            Op::Size => answer(tree.len(), |_| Answer::Bool(true)),
        }
    }

    /// Clearing removes each entry on its own, in any order; removing a range does so in the order
    /// of the keys. Loading puts one after the other; in fact fewer states occur, because a leaf
    /// behind the last one is filled at once.
    fn steps(&self, op: &Op) -> Steps<Op> {
        let keys = || self.base.start.min(self.keys.start)..self.base.end.max(self.keys.end);
        match *op {
            Op::Clear => Steps::AnyOrder(keys().map(Op::Remove).collect()),
            Op::RemoveRange(ref range, _) => {
                let mut inside: Vec<u64> =
                    keys().filter(|&key| is_inside::<F>(range, key)).collect();
                inside.sort_by_key(|&key| ordered::<F>(key));
                Steps::InOrder(inside.into_iter().map(Op::Remove).collect())
            }
            Op::Load(first, len) => Steps::InOrder(
                loaded::<F>(first, len).map(|key| Op::Put(key, base_value(key))).collect(),
            ),
            _ => Steps::One,
        }
    }

    /// Both count: entries that existed, or entries that did not.
    fn step_effects(&self, answer: &Answer<u64>) -> u64 {
        u64::from(matches!(answer, Answer::Value(_) | Answer::Bool(true)))
    }

    fn answer_for_effects(&self, _: &Op, effects: u64) -> Option<Answer<u64>> {
        Some(Answer::Value(effects))
    }

    fn model(&self, state: &mut Entries, op: &Op) -> Answer<u64> {
        let mut entries = state.entries.take().unwrap_or_else(|| self.base_entries());
        let answer = Self::model_entries(&mut entries, op);
        state.entries = (entries != self.base_entries()).then_some(entries);
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Entries> {
        let tree = &open.object;
        let mut forwards = Vec::new();
        tree.ascend(.., |key, value| {
            forwards.push((F::key_number(key), F::value_number(value)));
            ControlFlow::Continue(())
        })?;
        let mut backwards = Vec::new();
        tree.descend(.., |key, value| {
            backwards.push((F::key_number(key), F::value_number(value)));
            ControlFlow::Continue(())
        })?;
        backwards.reverse();
        if forwards != backwards {
            return Err(format!("forwards {forwards:?}, backwards {backwards:?}").into());
        }
        let mut entries = BTreeMap::new();
        for &(key, value) in &forwards {
            if entries.insert(key, value).is_some() {
                return Err(format!("key {key} is there twice").into());
            }
            if tree.get_with(&F::key(key), F::value_number)? != Some(value) {
                return Err(format!("key {key} is visited but not found").into());
            }
        }
        let len = tree.len()?;
        if len != entries.len() as u64 {
            return Err(format!("{len} entries by count, {} by visit", entries.len()).into());
        }
        let is_base = entries == self.base_entries();
        Ok(Entries { entries: (!is_base).then_some(entries) })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let mut key = || self.keys.start + rng.below(self.keys.end - self.keys.start);
        let (key, other) = (key(), key());
        let value = rng.below(400);
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8],
            Mix::Entries => &[0, 0, 1, 1, 2, 3, 3, 3, 4, 5],
            Mix::Growth => &[0, 0, 0, 0, 0, 1, 1, 3, 6],
            Mix::Loads => &[0, 1, 6, 9, 9, 9],
            Mix::Decay => &[0, 1, 3, 3, 3, 3, 3, 3, 3],
            Mix::Visits => &[0, 1, 3, 3, 11, 11],
            Mix::Clears => &[0, 1, 3, 12, 12, 12],
            Mix::Tail => &[0, 3, 3, 3, 13, 13, 14],
            Mix::Shape => &[0, 10],
            Mix::Pops => &[3, 5, 15, 15, 16, 16, 17, 17],
        };
        match *rng.pick(kinds) {
            0 => Op::Insert(key, value),
            1 => Op::Put(key, value),
            2 => Op::Update(key, value),
            3 => Op::Remove(key),
            4 => Op::Count(key),
            5 => Op::Get(key),
            6 => Op::Range(key.min(other)..key.max(other), false),
            7 => Op::Range(key.min(other)..key.max(other), true),
            9 => Op::Append(2 + rng.below(2)),
            11 => Op::Visit(key.min(other)..key.max(other) + 1, rng.below(2) == 0),
            10 => Op::Remove(*rng.pick(&LONELY)),
            12 => Op::Clear,
            // More than one leaf's worth, or less.
            13 => Op::Load(key / 4 * 4, 2 + rng.below(3)),
            14 => Op::Size,
            15 => Op::Pop(true),
            16 => Op::Pop(false),
            17 => Op::RemoveRange(key.min(other)..key.max(other) + 1, rng.below(2) == 0),
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

fn count(found: Option<u64>) -> (Change<u64>, u64) {
    let next = found.map_or(0, |value| value + 1);
    let change =
        if found.is_some() && next.is_multiple_of(4) { Change::Remove } else { Change::Put(next) };
    (change, next)
}
