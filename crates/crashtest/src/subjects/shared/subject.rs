//! Steps over several structures of one heap. Each operation is atomic, in any order.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_structures::shared::Step;
use remanent_structures::{Map, Result};

use super::owner::Owner;
use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::maps::{Kind, SteppedMap, entries};
use crate::pools::{Open, must_be_empty};

/// Entries that the trees and maps have from the start, with keys that no operation has.
#[derive(Clone, Debug)]
pub(super) struct Shared<D> {
    /// Keys that operations are about.
    pub(super) keys: u64,
    /// Changes of a step at most.
    pub(super) changes_max: u64,
    /// What changes are drawn from.
    pub(super) targets: &'static [Target],
    /// Whether some operations are no steps, and get in the way of those that are.
    pub(super) is_mixed: bool,
    /// Length beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// The kind of the maps that are not ordered.
    pub(super) kind: PhantomData<D>,
}

/// A structure that an operation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Words,
    Others,
    Texts,
    Tree,
    Records,
    Vector,
    Log,
    Object,
}

/// A change to one structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    target: Target,
    key: u64,
    /// `None` removes the entry; what has none is not changed.
    value: Option<u64>,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Changes that share fences.
    Together(Vec<Change>),
    /// A change by itself.
    Alone(Change),
    /// All but the first element of the vector are removed, or all records of the log.
    Cut(Target),
}

/// What can be observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Content {
    words: BTreeMap<u64, u64>,
    others: BTreeMap<u64, u64>,
    texts: BTreeMap<u64, u64>,
    tree: BTreeMap<u64, u64>,
    records: BTreeMap<u64, u64>,
    vector: Vec<u64>,
    log: Vec<u64>,
    object: u64,
}

/// The bytes of a longer value, and what they stand for.
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

/// Arguments that a step borrows.
struct Arguments {
    key: TestKey,
    name: [u8; 8],
    value: u64,
    text: [u8; 20],
}

impl Arguments {
    fn of(change: &Change) -> Self {
        let value = change.value.unwrap_or_default();
        let name = change.key.to_be_bytes();
        Arguments { key: TestKey(change.key), name, value, text: text(value) }
    }
}

fn prepare<'s, D: Kind>(
    owner: &'s Owner<D>,
    step: &mut Step<'s, Arc<Sim>>,
    change: &Change,
    arguments: &'s Arguments,
    records: &'s [&'s [u8]],
) -> Result<()> {
    let Arguments { key, name, value, text } = arguments;
    match (change.target, change.value) {
        (Target::Words, Some(_)) => owner.words.put_in(step, key, value),
        (Target::Words, None) => owner.words.remove_in(step, key),
        (Target::Others, Some(_)) => owner.others.put_in(step, key, value),
        (Target::Others, None) => owner.others.remove_in(step, key),
        (Target::Texts, Some(_)) => owner.texts.put_in(step, key, &text[..]),
        (Target::Texts, None) => owner.texts.remove_in(step, key),
        (Target::Tree, Some(_)) => owner.tree.put_in(step, key, value),
        (Target::Tree, None) => owner.tree.remove_in(step, key),
        (Target::Records, Some(_)) => owner.records.put_in(step, &name[..], &text[..]),
        (Target::Records, None) => owner.records.remove_in(step, &name[..]),
        (Target::Vector, Some(_)) => owner.vector.extend_in(step, std::slice::from_ref(value)),
        (Target::Vector, None) => owner.vector.set_in(step, change.key, change.key),
        (Target::Log, _) => owner.log.append_in(step, records),
        (Target::Object, _) => owner.object.set_in(step, [*value; 5]),
    }
}

fn together<D: Kind>(owner: &Owner<D>, changes: &[Change]) -> Result<()> {
    let arguments: Vec<Arguments> = changes.iter().map(Arguments::of).collect();
    let records: Vec<[&[u8]; 1]> =
        arguments.iter().map(|arguments| [&arguments.text[..]]).collect();
    let mut step = Step::enter(owner.heap());
    for ((change, arguments), records) in changes.iter().zip(&arguments).zip(&records) {
        prepare(owner, &mut step, change, arguments, records)?;
    }
    step.commit()
}

fn alone<D: Kind>(owner: &Owner<D>, change: &Change) -> Result<()> {
    let Arguments { key, name, value, text } = Arguments::of(change);
    match (change.target, change.value) {
        (Target::Words, Some(_)) => owner.words.put(&key, &value).map(drop),
        (Target::Words, None) => owner.words.discard(&key).map(drop),
        (Target::Others, Some(_)) => owner.others.put(&key, &value).map(drop),
        (Target::Others, None) => owner.others.discard(&key).map(drop),
        (Target::Texts, Some(_)) => owner.texts.put(&key, &text[..]).map(drop),
        (Target::Texts, None) => owner.texts.discard(&key).map(drop),
        (Target::Tree, Some(_)) => owner.tree.put(&key, &value).map(drop),
        (Target::Tree, None) => owner.tree.discard(&key).map(drop),
        (Target::Records, Some(_)) => owner.records.put(&name[..], &text[..]).map(drop),
        (Target::Records, None) => owner.records.discard(&name[..]).map(drop),
        (Target::Vector, Some(_)) => owner.vector.push(&value).map(drop),
        (Target::Vector, None) => owner.vector.set(change.key, &change.key).map(drop),
        (Target::Log, _) => owner.log.append(&text[..]).map(drop),
        (Target::Object, _) => owner.object.set([value; 5]),
    }
}

fn cut<D: Kind>(owner: &Owner<D>, target: Target) -> Result<()> {
    match target {
        Target::Log => owner.log.truncate_front(owner.log.end()),
        _ => owner.vector.truncate(1),
    }
}

fn change(content: &mut Content, change: &Change) {
    let edit = |entries: &mut BTreeMap<u64, u64>| match change.value {
        Some(value) => drop(entries.insert(change.key, value)),
        None => drop(entries.remove(&change.key)),
    };
    match (change.target, change.value) {
        (Target::Words, _) => edit(&mut content.words),
        (Target::Others, _) => edit(&mut content.others),
        (Target::Texts, _) => edit(&mut content.texts),
        (Target::Tree, _) => edit(&mut content.tree),
        (Target::Records, _) => edit(&mut content.records),
        (Target::Vector, Some(value)) => content.vector.push(value),
        (Target::Vector, None) => {
            if let Some(element) = content.vector.get_mut(change.key as usize) {
                *element = change.key;
            }
        }
        (Target::Log, value) => content.log.push(value.unwrap_or_default()),
        (Target::Object, value) => content.object = value.unwrap_or_default(),
    }
}

impl<D: Kind> Subject for Shared<D> {
    type Op = Op;
    type Ret = Answer<()>;
    type State = Content;
    type Handle = Open<Arc<Owner<D>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool, name| pool.create_root(name))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool, name| pool.open_root(name))
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<()> {
        let done = match op {
            Op::Together(changes) => together(&open.object, changes),
            Op::Alone(change) => alone(&open.object, change),
            Op::Cut(target) => cut(&open.object, *target),
        };
        answer(done, |()| Answer::None)
    }

    fn model(&self, state: &mut Content, op: &Op) -> Answer<()> {
        match op {
            Op::Together(changes) => changes.iter().for_each(|one| change(state, one)),
            Op::Alone(one) => change(state, one),
            Op::Cut(Target::Log) => state.log.clear(),
            Op::Cut(_) => state.vector.truncate(1),
        }
        Answer::None
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        match op {
            Op::Together(changes) => {
                Steps::OnceEach(changes.iter().map(|change| Op::Alone(*change)).collect())
            }
            Op::Alone(_) | Op::Cut(_) => Steps::One,
        }
    }

    fn answer_for_effects(&self, _: &Op, _: u64) -> Option<Answer<()>> {
        Some(Answer::None)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Content> {
        let owner = &*open.object;
        let mut content = Content { object: owner.object.get()?[0], ..Content::default() };
        for (map, entries) in
            [(&owner.words, &mut content.words), (&owner.others, &mut content.others)]
        {
            for (TestKey(key), value) in self::entries(map)? {
                entries.insert(key, value);
            }
            if map.len()? != entries.len() as u64 {
                return Err(format!("a map counts {} entries of {entries:?}", map.len()?).into());
            }
        }
        for (TestKey(key), value) in entries(&owner.texts)? {
            content.texts.insert(key, number(&value)?);
        }
        for entry in remanent_structures::OrderedMap::range(&owner.tree, ..) {
            let (TestKey(key), value) = entry?;
            content.tree.insert(key, value);
        }
        for entry in remanent_structures::OrderedMap::range(&owner.records, ..) {
            let (name, value): (Vec<u8>, Vec<u8>) = entry?;
            let key = name.first_chunk().map_or(u64::MAX, |name| u64::from_be_bytes(*name));
            content.records.insert(key, number(&value)?);
        }
        content.vector = owner.vector.iter().collect::<Result<_>>()?;
        for record in &owner.log {
            content.log.push(number(&record?.1)?);
        }
        if owner.object.get()? != [content.object; 5] {
            return Err("the object is of two transactions".into());
        }
        Ok(content)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..=rng.below(self.changes_max) {
            let target = *rng.pick(self.targets);
            let key = rng.below(self.keys);
            let value = (rng.below(3) > 0).then(|| rng.below(1 << 40));
            // Of two changes to one place, which one comes last is for the step to say.
            let is_single = matches!(target, Target::Vector | Target::Log | Target::Object);
            let is_new = |other: &Change| other.target != target || !is_single && other.key != key;
            if changes.iter().all(is_new) {
                changes.push(Change { target, key, value });
            }
        }
        match changes[..] {
            [Change { target: target @ (Target::Vector | Target::Log), key: 0, .. }]
                if self.is_mixed =>
            {
                Op::Cut(target)
            }
            [one] if self.is_mixed => Op::Alone(one),
            _ => Op::Together(changes),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<()>) -> bool {
        is_refused(answer)
    }
}
