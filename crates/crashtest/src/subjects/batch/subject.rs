//! Two maps of one kind and two trees that batches change together.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_structures::shared::Step;
use remanent_structures::{Batch, BlinkTree, Error, Map, OrderedMap, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::maps::{Kind, SteppedMap, TestedMap, entries};
use crate::pools::{Open, must_be_empty};

type M = Arc<Sim>;

/// The maps, each under a root of its own.
pub(super) struct Maps<D: Kind> {
    words: D::Words,
    texts: D::Texts,
    tree: BlinkTree<TestKey, u64, M>,
    records: BlinkTree<[u8], [u8], M>,
    pool: Pool<M>,
    /// Length of the longer values.
    value_len: usize,
}

impl<D: Kind> Maps<D> {
    /// Makes those that are not there yet; the one with the name that is asked for comes last.
    fn create(pool: &Pool<M>, name: &str, value_len: usize) -> Result<Self> {
        Ok(Maps {
            words: SteppedMap::open_or_create(pool, "words")?,
            texts: SteppedMap::open_or_create(pool, "texts")?,
            tree: BlinkTree::open_or_create(pool, "tree")?,
            records: BlinkTree::open_or_create(pool, name)?,
            pool: pool.clone(),
            value_len,
        })
    }

    fn open(pool: &Pool<M>, name: &str, value_len: usize) -> Result<Self> {
        Ok(Maps {
            words: TestedMap::open(pool, "words")?,
            texts: TestedMap::open(pool, "texts")?,
            tree: BlinkTree::open(pool, "tree")?,
            records: BlinkTree::open(pool, name)?,
            pool: pool.clone(),
            value_len,
        })
    }
}

/// Reached when a batch has more changes than are done with one fence.
pub(super) const PARTS: &str = "parts";

/// A key that never has a value.
const NEVER: TestKey = TestKey(u64::MAX);

/// What is explored.
#[derive(Clone, Debug)]
pub(super) struct Batches<D> {
    /// Keys that operations are about.
    pub(super) keys: u64,
    /// Maps that operations are about.
    pub(super) targets: &'static [Target],
    /// Changes of a batch at most.
    pub(super) changes_max: u64,
    /// Length of the longer values in bytes, at least 16.
    pub(super) value_len: usize,
    /// Expectations about other keys behind the one that counts: the more there are, the longer
    /// between reading that and changing something.
    pub(super) expectations: usize,
    /// One in this many operations clears a map, if some operations are no batches.
    pub(super) clears_one_in: u64,
    /// Whether some operations are no batches.
    pub(super) is_mixed: bool,
    /// Length beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// The kind of the two maps.
    pub(super) kind: PhantomData<D>,
}

/// Which map a change is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    Words,
    Texts,
    Tree,
    Records,
}

/// A change of one entry; `None` removes it.
type Change = (Target, u64, Option<u64>);

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Batch(Vec<Change>),
    /// A batch that changes nothing unless a key has a value, or has none, as the first field says.
    If(bool, (Target, u64), Vec<Change>),
    Alone(Change),
    Clear(Target),
}

/// The entries of all maps.
pub(super) type Content = BTreeMap<(Target, u64), u64>;

/// A longer value: the number twice, at both ends of `len` bytes.
fn text(value: u64, len: usize) -> Vec<u8> {
    let mut text = vec![0; len];
    text[..8].copy_from_slice(&value.to_le_bytes());
    text[len - 8..].copy_from_slice(&value.to_be_bytes());
    text
}

fn number(text: &[u8]) -> Result<u64, String> {
    let value = text.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let is_whole = text.len() >= 16 && text == self::text(value, text.len());
    if is_whole { Ok(value) } else { Err(format!("{text:?} was never stored")) }
}

fn collect<D: Kind>(
    batch: &mut Batch<M>,
    maps: &Maps<D>,
    (target, key, value): Change,
) -> Result<()> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    match (target, value) {
        (Target::Words, Some(value)) => batch.put(&maps.words, &test_key, &value),
        (Target::Words, None) => batch.remove(&maps.words, &test_key),
        (Target::Texts, Some(value)) => {
            batch.put(&maps.texts, &test_key, &text(value, maps.value_len)[..])
        }
        (Target::Texts, None) => batch.remove(&maps.texts, &test_key),
        (Target::Tree, Some(value)) => batch.put(&maps.tree, &test_key, &value),
        (Target::Tree, None) => batch.remove(&maps.tree, &test_key),
        (Target::Records, Some(value)) => {
            batch.put(&maps.records, &name[..], &text(value, maps.value_len)[..])
        }
        (Target::Records, None) => batch.remove(&maps.records, &name[..]),
    }
}

fn commit<D: Kind>(maps: &Maps<D>, changes: &[Change]) -> Result<Vec<bool>> {
    let mut batch = Batch::new(&maps.pool)?;
    for change in changes {
        collect(&mut batch, maps, *change)?;
    }
    batch.commit()
}

/// Reads an entry, and makes a batch depend on it as it is.
fn expect_as_found<D: Kind>(
    batch: &mut Batch<M>,
    maps: &Maps<D>,
    (target, key): (Target, u64),
) -> Result<bool> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    macro_rules! expect {
        ($map:expr, $key:expr, $found:ident => $value:expr) => {{
            let $found = $map.get($key)?;
            batch.expect(&$map, $key, $value)?;
            Ok($found.is_some())
        }};
    }
    match target {
        Target::Words => expect!(maps.words, &test_key, found => found.as_ref()),
        Target::Texts => expect!(maps.texts, &test_key, found => found.as_deref()),
        Target::Tree => expect!(maps.tree, &test_key, found => found.as_ref()),
        Target::Records => expect!(maps.records, &name[..], found => found.as_deref()),
    }
}

/// `None` if the key has a value, or has none, as `is_present` says.
fn commit_if<D: Kind>(
    is_present: bool,
    maps: &Maps<D>,
    key: (Target, u64),
    changes: &[Change],
    expectations: usize,
) -> Result<Option<Vec<bool>>> {
    loop {
        let mut batch = Batch::new(&maps.pool)?;
        if expect_as_found(&mut batch, maps, key)? != is_present {
            return Ok(None);
        }
        for _ in 0..expectations {
            batch.expect(&maps.words, &NEVER, None)?;
        }
        for change in changes {
            collect(&mut batch, maps, *change)?;
        }
        match batch.commit() {
            Err(Error::Conflict) => {} // another thread was quicker
            done => return done.map(Some),
        }
    }
}

fn alone<D: Kind>(maps: &Maps<D>, (target, key, value): Change) -> Result<bool> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    // Whether the key had a value before.
    match (target, value) {
        (Target::Words, Some(value)) => maps.words.put(&test_key, &value).map(|is_new| !is_new),
        (Target::Words, None) => maps.words.discard(&test_key),
        (Target::Texts, Some(value)) => {
            maps.texts.put(&test_key, &text(value, maps.value_len)[..]).map(|is_new| !is_new)
        }
        (Target::Texts, None) => maps.texts.discard(&test_key),
        (Target::Tree, Some(value)) => maps.tree.put(&test_key, &value).map(|is_new| !is_new),
        (Target::Tree, None) => maps.tree.discard(&test_key),
        (Target::Records, Some(value)) => {
            maps.records.put(&name[..], &text(value, maps.value_len)[..]).map(|is_new| !is_new)
        }
        (Target::Records, None) => maps.records.discard(&name[..]),
    }
}

fn change(content: &mut Content, (target, key, value): Change) -> bool {
    match value {
        Some(value) => content.insert((target, key), value).is_some(),
        None => content.remove(&(target, key)).is_some(),
    }
}

impl<D: Kind> Subject for Batches<D> {
    type Op = Op;
    type Ret = Answer<Vec<bool>>;
    type State = Content;
    type Handle = Open<Maps<D>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool, name| Maps::create(pool, name, self.value_len))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool, name| Maps::open(pool, name, self.value_len))
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<bool>> {
        let maps = &open.object;
        match op {
            Op::Batch(changes) => {
                if changes.len() > Step::<M>::OPERATIONS_MAX {
                    maps.pool.medium().reach(PARTS);
                }
                answer(commit(maps, changes), Answer::Value)
            }
            Op::If(is_present, key, changes) => {
                let done = commit_if(*is_present, maps, *key, changes, self.expectations);
                answer(done, |done| done.map_or(Answer::None, Answer::Value))
            }
            Op::Alone(change) => answer(alone(maps, *change), |had| Answer::Value(vec![had])),
            Op::Clear(Target::Words) => answer(maps.words.clear(), |_| Answer::None),
            Op::Clear(_) => answer(maps.texts.clear(), |_| Answer::None),
        }
    }

    fn model(&self, state: &mut Content, op: &Op) -> Answer<Vec<bool>> {
        match op {
            Op::Batch(changes) => {
                Answer::Value(changes.iter().map(|&one| change(state, one)).collect())
            }
            Op::If(is_present, key, _) if state.contains_key(key) != *is_present => Answer::None,
            Op::If(_, _, changes) => {
                Answer::Value(changes.iter().map(|&one| change(state, one)).collect())
            }
            Op::Alone(one) => Answer::Value(vec![change(state, *one)]),
            Op::Clear(cleared) => {
                state.retain(|(target, _), _| target != cleared);
                Answer::None
            }
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Content> {
        let maps = &open.object;
        let mut content = Content::new();
        for (TestKey(key), value) in entries(&maps.words)? {
            content.insert((Target::Words, key), value);
        }
        for (TestKey(key), value) in entries(&maps.texts)? {
            content.insert((Target::Texts, key), number(&value)?);
        }
        for entry in OrderedMap::range(&maps.tree, ..) {
            let (TestKey(key), value) = entry?;
            content.insert((Target::Tree, key), value);
        }
        for entry in OrderedMap::range(&maps.records, ..) {
            let (name, value): (Vec<u8>, Vec<u8>) = entry?;
            let key = name.first_chunk().map_or(u64::MAX, |name| u64::from_be_bytes(*name));
            content.insert((Target::Records, key), number(&value)?);
        }
        Ok(content)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let mut changes: BTreeMap<(Target, u64), Option<u64>> = BTreeMap::new();
        let mut named = (Target::Words, 0);
        for _ in 0..=rng.below(self.changes_max) {
            named = (*rng.pick(self.targets), rng.below(self.keys));
            changes.insert(named, (rng.below(3) > 0).then(|| rng.below(1 << 40)));
        }
        let changes: Vec<Change> =
            changes.into_iter().map(|((target, key), value)| (target, key, value)).collect();
        let clears = self.is_mixed && rng.one_in(self.clears_one_in);
        match changes[..] {
            [(target @ (Target::Words | Target::Texts), ..), ..] if clears => Op::Clear(target),
            // Its answers say whether the key was as expected until it was changed.
            _ if self.expectations > 0 && rng.below(4) > 0 => {
                Op::If(rng.below(2) == 0, named, changes)
            }
            [one] if self.is_mixed => Op::Alone(one),
            _ => {
                let key = (*rng.pick(self.targets), rng.below(self.keys));
                match rng.below(4) {
                    0 => Op::If(false, key, changes),
                    1 => Op::If(true, key, changes),
                    _ => Op::Batch(changes),
                }
            }
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        let maps = &open.object;
        must_be_empty(maps.words.check()?)?;
        must_be_empty(maps.texts.check()?)?;
        must_be_empty(maps.tree.check()?)?;
        must_be_empty(maps.records.check()?)?;
        if maps.pool.has_root("remanent batches")? {
            must_be_empty(Batch::new(&maps.pool)?.check()?)?;
        }
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Vec<bool>>) -> bool {
        is_refused(answer)
    }
}
