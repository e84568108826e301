//! Two hash maps and two trees that batches change together.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_structures::{Batch, BlinkTree, Error, HashMap, OrderedMap, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::pools::{Open, must_be_empty};

type M = Arc<Sim>;

/// The maps, each under a root of its own.
pub(super) struct Maps {
    words: HashMap<TestKey, u64, M>,
    texts: HashMap<TestKey, [u8], M>,
    tree: BlinkTree<TestKey, u64, M>,
    records: BlinkTree<[u8], [u8], M>,
    pool: Pool<M>,
}

impl Maps {
    /// Makes those that are not there yet; the one with the name that is asked for comes last.
    fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(Maps {
            words: HashMap::open_or_create(pool, "words")?,
            texts: HashMap::open_or_create(pool, "texts")?,
            tree: BlinkTree::open_or_create(pool, "tree")?,
            records: BlinkTree::open_or_create(pool, name)?,
            pool: pool.clone(),
        })
    }

    fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(Maps {
            words: HashMap::open(pool, "words")?,
            texts: HashMap::open(pool, "texts")?,
            tree: BlinkTree::open(pool, "tree")?,
            records: BlinkTree::open(pool, name)?,
            pool: pool.clone(),
        })
    }
}

/// What is explored.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    /// Keys that operations are about.
    pub(super) keys: u64,
    /// Changes of a batch at most.
    pub(super) changes_max: u64,
    /// Whether some operations are no batches.
    pub(super) is_mixed: bool,
    /// Length beyond which the pool does not grow.
    pub(super) size_max: u64,
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
    /// A batch that changes nothing unless a key has no value.
    IfAbsent((Target, u64), Vec<Change>),
    Alone(Change),
    Clear(Target),
}

/// The entries of all maps.
pub(super) type Content = BTreeMap<(Target, u64), u64>;

/// The bytes of a longer value.
fn text(value: u64) -> [u8; 20] {
    let mut text = [0; 20];
    text[..8].copy_from_slice(&value.to_le_bytes());
    text[12..].copy_from_slice(&value.to_be_bytes());
    text
}

fn number(text: &[u8]) -> Result<u64, String> {
    let value = text.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if text == self::text(value) { Ok(value) } else { Err(format!("{text:?} was never stored")) }
}

fn collect(batch: &mut Batch<M>, maps: &Maps, (target, key, value): Change) -> Result<()> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    match (target, value) {
        (Target::Words, Some(value)) => batch.put(&maps.words, &test_key, &value),
        (Target::Words, None) => batch.remove(&maps.words, &test_key),
        (Target::Texts, Some(value)) => batch.put(&maps.texts, &test_key, &text(value)[..]),
        (Target::Texts, None) => batch.remove(&maps.texts, &test_key),
        (Target::Tree, Some(value)) => batch.put(&maps.tree, &test_key, &value),
        (Target::Tree, None) => batch.remove(&maps.tree, &test_key),
        (Target::Records, Some(value)) => batch.put(&maps.records, &name[..], &text(value)[..]),
        (Target::Records, None) => batch.remove(&maps.records, &name[..]),
    }
}

fn commit(maps: &Maps, changes: &[Change]) -> Result<Vec<bool>> {
    let mut batch = Batch::new(&maps.pool)?;
    for change in changes {
        collect(&mut batch, maps, *change)?;
    }
    batch.commit()
}

fn commit_if_absent(
    maps: &Maps,
    (target, key): (Target, u64),
    changes: &[Change],
) -> Result<Vec<bool>> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    let mut batch = Batch::new(&maps.pool)?;
    match target {
        Target::Words => batch.expect(&maps.words, &test_key, None)?,
        Target::Texts => batch.expect(&maps.texts, &test_key, None)?,
        Target::Tree => batch.expect(&maps.tree, &test_key, None)?,
        Target::Records => batch.expect(&maps.records, &name[..], None)?,
    }
    for change in changes {
        collect(&mut batch, maps, *change)?;
    }
    batch.commit()
}

fn alone(maps: &Maps, (target, key, value): Change) -> Result<bool> {
    let (test_key, name) = (TestKey(key), key.to_be_bytes());
    // Whether the key had a value before.
    match (target, value) {
        (Target::Words, Some(value)) => maps.words.put(&test_key, &value).map(|is_new| !is_new),
        (Target::Words, None) => maps.words.discard(&test_key),
        (Target::Texts, Some(value)) => {
            maps.texts.put(&test_key, &text(value)[..]).map(|is_new| !is_new)
        }
        (Target::Texts, None) => maps.texts.discard(&test_key),
        (Target::Tree, Some(value)) => maps.tree.put(&test_key, &value).map(|is_new| !is_new),
        (Target::Tree, None) => maps.tree.discard(&test_key),
        (Target::Records, Some(value)) => {
            maps.records.put(&name[..], &text(value)[..]).map(|is_new| !is_new)
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

impl Subject for Batches {
    type Op = Op;
    type Ret = Answer<Vec<bool>>;
    type State = Content;
    type Handle = Open<Maps>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, Maps::create)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, Maps::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<bool>> {
        let maps = &open.object;
        match op {
            Op::Batch(changes) => answer(commit(maps, changes), Answer::Value),
            Op::IfAbsent(key, changes) => match commit_if_absent(maps, *key, changes) {
                Err(Error::Conflict) => Answer::None,
                done => answer(done, Answer::Value),
            },
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
            Op::IfAbsent(key, _) if state.contains_key(key) => Answer::None,
            Op::IfAbsent(_, changes) => {
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
        for entry in maps.words.iter() {
            let (TestKey(key), value) = entry?;
            content.insert((Target::Words, key), value);
        }
        for entry in maps.texts.iter() {
            let (TestKey(key), value) = entry?;
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
        for _ in 0..=rng.below(self.changes_max) {
            let targets = [Target::Words, Target::Texts, Target::Tree, Target::Records];
            let key = (*rng.pick(&targets), rng.below(self.keys));
            changes.insert(key, (rng.below(3) > 0).then(|| rng.below(1 << 40)));
        }
        let changes: Vec<Change> =
            changes.into_iter().map(|((target, key), value)| (target, key, value)).collect();
        match changes[..] {
            [(target @ (Target::Words | Target::Texts), 0, None)] if self.is_mixed => {
                Op::Clear(target)
            }
            [one] if self.is_mixed => Op::Alone(one),
            _ if rng.below(3) == 0 => {
                let targets = [Target::Words, Target::Texts, Target::Tree, Target::Records];
                Op::IfAbsent((*rng.pick(&targets), rng.below(self.keys)), changes)
            }
            _ => Op::Batch(changes),
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
