//! Hash maps with values of many lengths: each change replaces the node, or the record.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_structures::{Change, HashMap, Key};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::maps::{self, TestedMap};
use crate::pools::{Open, must_be_empty};

/// Keys of a map of bytes, made of numbers.
pub(in crate::subjects) trait Numbered: ToOwned + 'static {
    fn with_number<R>(number: u64, use_key: impl FnOnce(&Self) -> R) -> R;
    fn number(owned: &Self::Owned) -> Option<u64>;
}

impl Numbered for TestKey {
    fn with_number<R>(number: u64, use_key: impl FnOnce(&Self) -> R) -> R {
        use_key(&TestKey(number))
    }

    fn number(owned: &TestKey) -> Option<u64> {
        Some(owned.0)
    }
}

impl Numbered for [u8] {
    fn with_number<R>(number: u64, use_key: impl FnOnce(&Self) -> R) -> R {
        // Keys of different lengths; some are the beginning of others.
        use_key(&b"key of a map of bytes"[..=number as usize])
    }

    fn number(owned: &Vec<u8>) -> Option<u64> {
        b"key of a map of bytes".starts_with(owned).then(|| owned.len() as u64 - 1)
    }
}

/// A map from `K` to bytes.
#[derive(Clone, Debug)]
pub(in crate::subjects) struct Records<K: Key + ?Sized, T = HashMap<K, [u8], Arc<Sim>>> {
    /// Number of keys in operations.
    pub(in crate::subjects) keys: u64,
    /// Number of other keys whose entries were added before the start, and removed in a batch.
    pub(in crate::subjects) removed: u64,
    /// Lengths of values.
    pub(in crate::subjects) lens: &'static [u64],
    /// Size beyond which the pool does not grow.
    pub(in crate::subjects) size_max: u64,
    pub(in crate::subjects) types: std::marker::PhantomData<fn(&K) -> T>,
}

/// Length and stamp of a value, which determine its bytes.
type Content = (u64, u64);

/// One operation of the map.
#[derive(Clone, Debug)]
pub(in crate::subjects) enum Op {
    Insert(u64, Content),
    Put(u64, Content),
    Update(u64, Content),
    Remove(u64),
    /// Makes a value 40 bytes longer; removes a long one.
    Append(u64),
    Get(u64),
    Clear,
}

/// The observable state: the entries, and the length that the map reports.
type Entries = (BTreeMap<u64, Content>, u64);

fn bytes((len, stamp): Content) -> Vec<u8> {
    (0..len).map(|at| (stamp.wrapping_add(at * 7) >> (at % 3 * 8)) as u8).collect()
}

/// The content of the bytes, if they are a value.
fn content(value: &[u8], stamps: u64) -> Result<Content, String> {
    let len = value.len() as u64;
    let found = (0..stamps).map(|stamp| (len, stamp)).find(|&content| bytes(content) == value);
    found.ok_or_else(|| format!("a value of {len} bytes is none that was ever put"))
}

/// Number of stamps, which distinguish values of one length.
const STAMPS: u64 = 4;
/// The first key of those whose entries are removed before the start.
const REMOVED_FIRST: u64 = 1000;
/// Bytes that `Append` adds, and the length from which on it removes.
const APPENDED: u64 = 40;
const LONG: u64 = 200;

impl<K, T> Subject for Records<K, T>
where
    K: Key + Numbered + ?Sized,
    T: TestedMap<K, [u8]>,
    K::Owned: Send + Sync,
{
    type Op = Op;
    type Ret = Answer<Content>;
    type State = Entries;
    type Handle = Open<T>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, T::create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        let removed = REMOVED_FIRST..REMOVED_FIRST + self.removed;
        let removed: Vec<K::Owned> =
            removed.map(|number| K::with_number(number, K::to_owned)).collect();
        for key in &removed {
            open.object.insert(key.borrow(), b"removed")?;
        }
        if !removed.is_empty() {
            let keys: Vec<&K> = removed.iter().map(K::Owned::borrow).collect();
            open.object.remove_together(&open.pool, &keys)?;
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, T::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Content> {
        let map = &open.object;
        let found = |value: Option<Vec<u8>>| match value.map(|value| content(&value, STAMPS)) {
            None => Answer::None,
            Some(Ok(content)) => Answer::Value(content),
            Some(Err(what)) => Answer::Failed(what),
        };
        match *op {
            Op::Insert(key, value) => {
                answer(K::with_number(key, |key| map.insert(key, &bytes(value))), Answer::Bool)
            }
            Op::Put(key, value) => {
                answer(K::with_number(key, |key| map.put(key, &bytes(value))), Answer::Bool)
            }
            Op::Update(key, value) => {
                answer(K::with_number(key, |key| map.update(key, &bytes(value))), Answer::Bool)
            }
            Op::Remove(key) => answer(K::with_number(key, |key| map.remove(key)), found),
            Op::Append(key) => {
                let append = |value: Option<&[u8]>| {
                    let old = value.map_or(Ok((0, 0)), |value| content(value, STAMPS));
                    let new = old.clone().map_or((0, 0), |(len, stamp)| (len + APPENDED, stamp));
                    match old {
                        Ok((len, _)) if len < LONG => (Change::Put(bytes(new)), Ok(new)),
                        Ok(_) => (Change::Remove, Ok(new)),
                        Err(what) => (Change::Keep, Err(what)),
                    }
                };
                let appended = K::with_number(key, |key| map.modify(key, append));
                answer(appended, |value: Result<_, String>| {
                    value.map_or_else(Answer::Failed, Answer::Value)
                })
            }
            Op::Get(key) => answer(K::with_number(key, |key| map.get(key)), found),
            Op::Clear => answer(map.clear(), |count| Answer::Bool(count > 0)),
        }
    }

    fn model(&self, (entries, len): &mut Entries, op: &Op) -> Answer<Content> {
        let found = |value: Option<Content>| value.map_or(Answer::None, Answer::Value);
        let answer = match *op {
            Op::Insert(key, _) if entries.contains_key(&key) => Answer::Bool(false),
            Op::Insert(key, value) | Op::Put(key, value) => {
                Answer::Bool(entries.insert(key, value).is_none())
            }
            Op::Update(key, value) if entries.contains_key(&key) => {
                entries.insert(key, value);
                Answer::Bool(true)
            }
            Op::Update(..) => Answer::Bool(false),
            Op::Remove(key) => found(entries.remove(&key)),
            Op::Append(key) => {
                let (old, stamp) = entries.get(&key).copied().unwrap_or_default();
                let new = (old + APPENDED, stamp);
                match old < LONG {
                    true => entries.insert(key, new),
                    false => entries.remove(&key),
                };
                Answer::Value(new)
            }
            Op::Get(key) => found(entries.get(&key).copied()),
            Op::Clear => {
                let any = !entries.is_empty();
                entries.clear();
                Answer::Bool(any)
            }
        };
        *len = entries.len() as u64;
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Entries> {
        let mut entries = BTreeMap::new();
        for (key, value) in maps::entries(&open.object)? {
            let number = K::number(&key).ok_or("a key was never there")?;
            if entries.insert(number, content(&value, STAMPS)?).is_some() {
                return Err(format!("key {number} is there twice").into());
            }
        }
        Ok((entries, open.object.len()?))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = rng.below(self.keys);
        let len = *rng.pick(self.lens);
        // Two empty values cannot be distinguished.
        let value = (len, if len == 0 { 0 } else { rng.below(STAMPS) });
        match rng.below(12) {
            0..=1 => Op::Insert(key, value),
            2..=5 => Op::Put(key, value),
            6 => Op::Update(key, value),
            7..=8 => Op::Remove(key),
            9 => Op::Append(key),
            10 => Op::Get(key),
            _ => Op::Clear,
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Content>) -> bool {
        is_refused(answer)
    }
}
