//! Transactional objects, from one byte to a kibibyte.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Persistent;
use remanent_pmem::persistent::bytes_of;
use remanent_pmem::pool::{Format, Guarantee};
use remanent_structures::TxArray;

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// Objects under one root.
#[derive(Clone, Debug)]
pub(super) struct Objects<T> {
    /// Number of objects.
    pub(super) count: u64,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// Whether the medium is declared to have write disturbance.
    pub(super) disturbed: bool,
    /// Bytes in operations; all if empty.
    pub(super) hot: &'static [usize],
    /// The type of an object.
    pub(super) types: PhantomData<T>,
}

/// An object whose bytes can be set one by one.
pub(super) trait Bytes: Persistent {
    fn zeros() -> Self;
    fn set(&mut self, at: usize, byte: u8);
}

impl<const LEN: usize> Bytes for [u8; LEN] {
    fn zeros() -> Self {
        [0; LEN]
    }

    fn set(&mut self, at: usize, byte: u8) {
        self[at] = byte;
    }
}

/// Objects made of words are read by other instructions than objects made of bytes.
impl<const LEN: usize> Bytes for [u64; LEN] {
    fn zeros() -> Self {
        [0; LEN]
    }

    fn set(&mut self, at: usize, byte: u8) {
        let mut word = self[at / 8].to_ne_bytes();
        word[at % 8] = byte;
        self[at / 8] = u64::from_ne_bytes(word);
    }
}

/// Bytes of an object to be set.
type Bytemap = Vec<(usize, u8)>;

/// One operation on an object.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Changes some bytes; answers the object before.
    Change(u64, Bytemap),
    /// Changes some bytes and then aborts.
    Abort(u64, Bytemap),
    /// Runs a transaction without a change.
    Touch(u64),
    Get(u64),
}

fn content<T: Bytes>(value: T) -> Answer<Vec<u8>> {
    Answer::Value(bytes_of(&value).to_vec())
}

impl<T: Bytes> Subject for Objects<T> {
    type Op = Op;
    type Ret = Answer<Vec<u8>>;
    /// Objects that are not all zeros.
    type State = BTreeMap<u64, Vec<u8>>;
    type Handle = Open<TxArray<T, Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let guarantee = Guarantee { write_disturbance: self.disturbed, ..Guarantee::default() };
        let format = Format { guarantee, ..Format::new(self.size_max) };
        Open::create_in(medium, &format, |pool, name| {
            TxArray::create(pool, name, self.count, |_| T::zeros())
        })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TxArray::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<u8>> {
        let (Op::Change(index, _) | Op::Abort(index, _) | Op::Touch(index) | Op::Get(index)) = op;
        let object = open.object.at(*index).expect("operations are about objects that exist");
        let change = |object: &mut T, bytes: &Bytemap| {
            let before = *object;
            bytes.iter().for_each(|&(at, byte)| object.set(at, byte));
            before
        };
        match op {
            Op::Change(_, bytes) => {
                answer(object.transact(|object| change(object, bytes)), content)
            }
            Op::Abort(_, bytes) => {
                let aborted = object.try_transact(|object| Err::<(), T>(change(object, bytes)));
                answer(aborted, |aborted| content(aborted.expect_err("it always aborts")))
            }
            Op::Touch(_) => answer(object.transact(|object| *object), content),
            Op::Get(_) => answer(object.get(), content),
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<Vec<u8>> {
        let (Op::Change(index, _) | Op::Abort(index, _) | Op::Touch(index) | Op::Get(index)) = op;
        let before = state.get(index).cloned();
        let before = before.unwrap_or_else(|| bytes_of(&T::zeros()).to_vec());
        if let Op::Change(_, bytes) = op {
            let mut after = before.clone();
            bytes.iter().for_each(|&(at, byte)| after[at] = byte);
            state.insert(*index, after);
            state.retain(|_, content| content.iter().any(|&byte| byte != 0));
        }
        Answer::Value(before)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        let mut contents = BTreeMap::new();
        for index in 0..self.count {
            let object = open.object.at(index).ok_or("an object is missing")?;
            contents.insert(index, bytes_of(&object.get()?).to_vec());
        }
        contents.retain(|_, content: &mut Vec<u8>| content.iter().any(|&byte| byte != 0));
        Ok(contents)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let index = rng.below(self.count);
        let len = size_of::<T>() as u64;
        let count = *rng.pick(&[1, 2, 4]);
        let at = |rng: &mut Rng| match self.hot {
            [] => rng.below(len) as usize,
            hot => *rng.pick(hot),
        };
        let bytes = (0..count).map(|_| (at(rng), rng.below(4) as u8)).collect();
        match rng.below(10) {
            0..=5 => Op::Change(index, bytes),
            6 => Op::Abort(index, bytes),
            7 => Op::Touch(index),
            _ => Op::Get(index),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Vec<u8>>) -> bool {
        is_refused(answer)
    }
}
