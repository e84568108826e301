//! Vectors of words and of records.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::{Medium, Persistent, Pool};
use remanent_structures::{AppendVector, Result, Vector};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// A vector with few elements, behind others that stay as they are.
#[derive(Debug)]
pub(super) struct Vectors<T> {
    /// Number of elements that exist from the start and that no operation touches.
    pub(super) base: u64,
    /// Number of elements that are added at once.
    pub(super) counts: &'static [u64],
    /// The operations to draw from.
    pub(super) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    pub(super) element: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Vectors<T> {
    fn clone(&self) -> Self {
        Vectors { ..*self }
    }
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All.
    All,
    /// Those that threads can run on one vector.
    Shared,
    /// Mostly changes of elements.
    Sets,
    /// Mostly reads beside writes, so that the results of reads matter.
    Reads,
    /// Those of a vector with immutable elements.
    Appends,
}

/// An element that represents a number.
pub(super) trait Element: Persistent {
    fn of(number: u64) -> Self;

    /// The number; an error if parts of several elements are mixed.
    fn number(&self) -> Outcome<u64>;
}

impl Element for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&self) -> Outcome<u64> {
        Ok(*self)
    }
}

impl Element for [u64; 5] {
    fn of(number: u64) -> Self {
        [0, 1, 2, 3, 4].map(|word| number << 3 | word)
    }

    fn number(&self) -> Outcome<u64> {
        let number = self[0] >> 3;
        if *self == Self::of(number) { Ok(number) } else { Err(format!("{self:?} is torn").into()) }
    }
}

/// One operation; indices count from the end of the base.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Push(u64),
    /// So many elements, ascending from this number.
    Extend(u64, u64),
    Set(u64, u64),
    Truncate(u64),
    Get(u64),
    /// The last element behind the base, found by visiting all in two ways.
    Visit,
    Len,
}

/// A vector of either kind.
pub(super) enum Tested<T: Persistent> {
    Changing(Vector<T, Arc<Sim>>),
    Appending(AppendVector<T, Arc<Sim>>),
}

impl<T: Element> Tested<T> {
    fn create(pool: &Pool<Arc<Sim>>, name: &str, changes: bool) -> Result<Self> {
        Ok(match changes {
            true => Tested::Changing(Vector::create(pool, name)?),
            false => Tested::Appending(AppendVector::create(pool, name)?),
        })
    }

    fn open(pool: &Pool<Arc<Sim>>, name: &str, changes: bool) -> Result<Self> {
        Ok(match changes {
            true => Tested::Changing(Vector::open(pool, name)?),
            false => Tested::Appending(AppendVector::open(pool, name)?),
        })
    }

    fn extend(&self, elements: &[T]) -> Result<u64> {
        match self {
            Tested::Changing(vector) => vector.extend_from_slice(elements),
            Tested::Appending(vector) => vector.extend_from_slice(elements),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Tested::Changing(vector) => vector.len(),
            Tested::Appending(vector) => vector.len(),
        }
    }

    /// All elements, read in two ways.
    fn elements(&self) -> Outcome<Vec<u64>> {
        let mut elements: Vec<T> = Vec::new();
        let len = self.len();
        match self {
            Tested::Changing(vector) => {
                vector.for_each_slice(0, u64::MAX, |slice| elements.extend_from_slice(slice))?;
                let visited = vector.iter().collect::<Result<Vec<T>>>()?;
                compare(&elements, &visited)?;
            }
            Tested::Appending(vector) => {
                vector.for_each_slice(0, u64::MAX, |slice| elements.extend_from_slice(slice))?;
                let visited = vector.with_slice(0, len, <[T]>::to_vec)?.unwrap_or_default();
                compare(&elements, &visited)?;
            }
        }
        elements.iter().map(T::number).collect()
    }
}

fn compare<T: Element>(elements: &[T], visited: &[T]) -> Outcome {
    let numbers = |elements: &[T]| elements.iter().map(T::number).collect::<Outcome<Vec<_>>>();
    if numbers(elements)? == numbers(visited)? {
        return Ok(());
    }
    Err("two ways to read a vector find different elements".into())
}

impl<T: Element> Vectors<T> {
    /// The elements behind the base; the base must be unchanged.
    fn behind_base(&self, mut elements: Vec<u64>) -> Outcome<Vec<u64>> {
        if elements.iter().copied().take(self.base as usize).eq(0..self.base) {
            return Ok(elements.split_off(self.base as usize));
        }
        Err("elements have changed that nothing was done to".into())
    }
}

impl<T: Element> Subject for Vectors<T> {
    type Op = Op;
    type Ret = Answer<u64>;
    type State = Vec<u64>;
    type Handle = Open<Tested<T>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool: &Pool<_>, name| {
            Tested::create(pool, name, self.mix != Mix::Appends)
        })
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        let base: Vec<T> = (0..self.base).map(T::of).collect();
        open.object.extend(&base)?;
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool: &Pool<_>, name| {
            Tested::open(pool, name, self.mix != Mix::Appends)
        })
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<u64> {
        let vector = &open.object;
        let number = |found: Option<T>| match found.map(|element| element.number()) {
            None => Answer::None,
            Some(Ok(number)) => Answer::Value(number),
            Some(Err(torn)) => Answer::Failed(torn.to_string()),
        };
        match (op, vector) {
            (Op::Push(number), Tested::Changing(vector)) => {
                answer(vector.push(&T::of(*number)), Answer::Value)
            }
            (Op::Push(number), Tested::Appending(vector)) => {
                answer(vector.push(&T::of(*number)), Answer::Value)
            }
            (Op::Extend(count, number), _) => {
                let elements: Vec<T> = (*number..number + count).map(T::of).collect();
                answer(vector.extend(&elements), Answer::Value)
            }
            (Op::Set(index, number), Tested::Changing(vector)) => {
                answer(vector.set(self.base + index, &T::of(*number)), Answer::Bool)
            }
            (Op::Truncate(len), Tested::Changing(vector)) => {
                answer(vector.truncate(self.base + len), |()| Answer::None)
            }
            (Op::Set(..) | Op::Truncate(_), Tested::Appending(_)) => {
                unreachable!("a vector whose elements stay is not changed")
            }
            (Op::Get(index), Tested::Changing(vector)) => {
                answer(vector.get(self.base + index), number)
            }
            (Op::Get(index), Tested::Appending(vector)) => {
                answer(vector.get(self.base + index), number)
            }
            (Op::Visit, _) => {
                match vector.elements().and_then(|elements| self.behind_base(elements)) {
                    Ok(elements) => last(&elements),
                    Err(error) if open.pool.medium().fault().is_some() => {
                        Answer::Refused(error.to_string())
                    }
                    Err(error) => Answer::Failed(error.to_string()),
                }
            }
            (Op::Len, _) => Answer::Value(vector.len()),
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<u64> {
        let len = self.base + state.len() as u64;
        match *op {
            Op::Push(number) => {
                state.push(number);
                Answer::Value(len)
            }
            Op::Extend(count, number) => {
                state.extend(number..number + count);
                Answer::Value(len)
            }
            Op::Set(index, number) => {
                let found = state.get_mut(index as usize);
                Answer::Bool(found.map(|element| *element = number).is_some())
            }
            Op::Truncate(len) => {
                state.truncate(len as usize);
                Answer::None
            }
            Op::Get(index) => {
                state.get(index as usize).map_or(Answer::None, |&number| Answer::Value(number))
            }
            Op::Visit => last(state),
            Op::Len => Answer::Value(len),
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        let elements = open.object.elements()?;
        if elements.len() as u64 != open.object.len() {
            return Err("a vector does not have as many elements as it says".into());
        }
        self.behind_base(elements)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let index = rng.below(8);
        let number = rng.below(1000);
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6],
            Mix::Shared => &[0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 6],
            Mix::Sets => &[0, 0, 1, 2, 2, 2, 2, 2, 3],
            Mix::Reads => &[0, 0, 2, 2, 3, 4, 4, 4, 4, 4],
            Mix::Appends => &[0, 0, 0, 1, 1, 4, 4, 6],
        };
        match *rng.pick(kinds) {
            0 => Op::Push(number),
            1 => Op::Extend(*rng.pick(self.counts), number),
            2 => Op::Set(index, number),
            3 => Op::Truncate(index),
            4 => Op::Get(index),
            5 => Op::Visit,
            _ => Op::Len,
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(match &open.object {
            Tested::Changing(vector) => vector.check()?,
            Tested::Appending(vector) => vector.check()?,
        })?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<u64>) -> bool {
        is_refused(answer)
    }
}

fn last(elements: &[u64]) -> Answer<u64> {
    elements.last().map_or(Answer::None, |&number| Answer::Value(number))
}
