//! Lists that become safe in batches.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_pmem::sync::PauseMutex;
use remanent_structures::batch_list::{
    BatchList, ChangeList, Changeable, LinkList, List, Log, Persister, Variant,
};
use remanent_structures::papers::{Append, FlushAlways, Table};
use remanent_structures::{BatchOptions, Error, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, ROOT, must_be_empty};

/// A list with a few keys.
#[derive(Debug)]
pub(super) struct Lists<V> {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Lengths of values.
    pub(super) lens: &'static [u64],
    /// Maximal number of unsafe bytes; a writer that reaches it makes them safe.
    pub(super) lag_bytes: u64,
    /// Whether batches are made safe often, while threads change the list.
    pub(super) hurried: bool,
    /// Bytes of an element from before, or 0 for none.
    pub(super) base_len: u64,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// The variant of the list.
    pub(super) variant: PhantomData<V>,
}

impl<V> Clone for Lists<V> {
    fn clone(&self) -> Self {
        Lists { ..*self }
    }
}

/// A variant with its operations.
pub(super) trait Tested: Variant {
    const CHANGES: bool = true;

    fn do_change(list: &mut List<Self, Arc<Sim>>, op: &Op) -> Result<bool>;
}

impl Tested for Append {
    const CHANGES: bool = false;

    fn do_change(list: &mut List<Self, Arc<Sim>>, op: &Op) -> Result<bool> {
        match op {
            Op::Insert(element) => list.insert(element.key, &element.value()),
            _ => unreachable!("nothing but insertions is drawn"),
        }
    }
}

impl Tested for FlushAlways {
    fn do_change(list: &mut List<Self, Arc<Sim>>, op: &Op) -> Result<bool> {
        change(list, op)
    }
}

impl Tested for Log {
    fn do_change(list: &mut List<Self, Arc<Sim>>, op: &Op) -> Result<bool> {
        change(list, op)
    }
}

impl Tested for Table {
    fn do_change(list: &mut List<Self, Arc<Sim>>, op: &Op) -> Result<bool> {
        change(list, op)
    }
}

fn change<V: Changeable>(list: &mut List<V, Arc<Sim>>, op: &Op) -> Result<bool> {
    match op {
        Op::Insert(element) => list.insert(element.key, &element.value()),
        Op::InsertAfter(left, element) => list.insert_after(*left, element.key, &element.value()),
        Op::Update(element) => list.update(element.key, &element.value()),
        Op::Remove(key) => list.remove(*key),
        Op::Get(_) | Op::Sync | Op::Persist => unreachable!("these change nothing"),
    }
}

/// An element whose value is a function of its length and a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Element {
    key: u64,
    len: u64,
    stamp: u8,
}

/// A key that no element of the model has.
const BASE_KEY: u64 = u64::MAX;

impl Element {
    fn value(&self) -> Vec<u8> {
        (0..self.len).map(|at| self.stamp.wrapping_add((at / 64) as u8)).collect()
    }

    fn read(key: u64, value: &[u8]) -> Outcome<Self> {
        let stamp = value.first().copied().unwrap_or_default();
        let element = Element { key, len: value.len() as u64, stamp };
        if element.value() == value { Ok(element) } else { Err("a value is torn".into()) }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(Element),
    InsertAfter(Option<u64>, Element),
    Update(Element),
    Remove(u64),
    Get(u64),
    /// By the writer.
    Sync,
    /// By another thread, while the writer continues.
    Persist,
}

/// A list that threads change in turn; each may make it safe meanwhile.
pub(super) struct Shared<V: Variant> {
    list: PauseMutex<List<V, Arc<Sim>>>,
    persister: Persister<V, Arc<Sim>>,
}

impl<V: Variant> Shared<V> {
    fn new(list: List<V, Arc<Sim>>) -> Self {
        Shared { persister: list.persister(), list: PauseMutex::new(list) }
    }
}

impl<V: Tested> Lists<V> {
    fn options(&self) -> BatchOptions {
        BatchOptions { lag_bytes: self.lag_bytes, ..BatchOptions::without_thread() }
    }
}

impl<V: Tested> Subject for Lists<V> {
    type Op = Op;
    type Ret = Answer<Element>;
    type State = Vec<Element>;
    type Handle = Open<Shared<V>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool: &Pool<_>, name| {
            let mut list = List::create(pool, name, self.options())?;
            if self.base_len > 0 {
                list.insert(BASE_KEY, &vec![0; self.base_len as usize])?;
                list.sync()?;
            }
            Ok::<_, Error>(Shared::new(list))
        })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool: &Pool<_>, name| {
            debug_assert_eq!(name, ROOT);
            List::open(pool, name, self.options()).map(Shared::new)
        })
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Element> {
        let Shared { list, persister } = &open.object;
        let lock = || list.lock(open.pool.medium());
        match op {
            Op::Persist => answer(persister.persist(), |()| Answer::None),
            Op::Sync => answer(lock().sync(), |()| Answer::None),
            Op::Get(key) => {
                let found = lock().get_with(*key, |value| Element::read(*key, value));
                answer(found, |found| match found {
                    None => Answer::None,
                    Some(Ok(element)) => Answer::Value(element),
                    Some(Err(torn)) => Answer::Failed(torn.to_string()),
                })
            }
            change => answer(V::do_change(&mut lock(), change), Answer::Bool),
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<Element> {
        let at = |state: &Self::State, key| state.iter().position(|element| element.key == key);
        match op {
            Op::Insert(element) => {
                state.push(*element);
                Answer::Bool(true)
            }
            Op::InsertAfter(None, element) => {
                state.insert(0, *element);
                Answer::Bool(true)
            }
            Op::InsertAfter(Some(left), element) => {
                let place = at(state, *left);
                place.into_iter().for_each(|place| state.insert(place + 1, *element));
                Answer::Bool(place.is_some())
            }
            Op::Update(element) => {
                let place = at(state, element.key);
                place.into_iter().for_each(|place| state[place] = *element);
                Answer::Bool(place.is_some())
            }
            Op::Remove(key) => {
                let place = at(state, *key);
                let removed = place.map(|place| state.remove(place));
                Answer::Bool(removed.is_some())
            }
            Op::Get(key) => {
                at(state, *key).map_or(Answer::None, |place| Answer::Value(state[place]))
            }
            Op::Sync | Op::Persist => Answer::None,
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        let mut elements = Vec::new();
        open.object.list.lock(open.pool.medium()).for_each(|key, value| {
            if key != BASE_KEY {
                elements.push(Element::read(key, value));
            }
        })?;
        elements.into_iter().collect()
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = rng.below(self.keys);
        let len = *rng.pick(self.lens);
        let stamp = if len == 0 { 0 } else { 1 + rng.below(255) as u8 };
        let element = Element { key, len, stamp };
        let left = rng.below(self.keys + 1).checked_sub(1);
        let drawn = rng.below(16);
        if self.hurried && drawn < 6 {
            return if drawn < 4 { Op::Persist } else { Op::Get(key) };
        }
        match drawn {
            0 => Op::Persist,
            1 => Op::Sync,
            2 => Op::Get(key),
            3..=6 if V::CHANGES => Op::InsertAfter(left, element),
            7..=10 if V::CHANGES => Op::Update(element),
            11..=12 if V::CHANGES => Op::Remove(key),
            _ => Op::Insert(element),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.list.lock(open.pool.medium()).check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Element>) -> bool {
        is_refused(answer)
    }

    fn is_sync(&self, op: &Op) -> bool {
        matches!(op, Op::Sync | Op::Persist)
    }
}
