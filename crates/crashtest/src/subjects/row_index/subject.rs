//! An index of rows, each of which says its key.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Medium;
use remanent_structures::{Result, RowId, RowIndex};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// Rows of a key. Their numbers tell the key.
const ROWS: u64 = 1_000;
/// Rows of a key that operations use. Those that are there before have higher numbers.
const ROWS_USED: u64 = 4;

/// An index with few keys and rows, whose caller fences after each operation.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Rows of each key that are there before the operations begin.
    pub(super) prepared: u64,
    /// 2^n lines are a segment.
    pub(super) bits: u64,
    pub(super) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// Operations that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    All,
    /// What threads do that know nothing of each other: rows that others have added may be seen
    /// before they are durable, so no answer depends on them.
    Blind,
    /// Mostly what finds rows, of keys with one row each at most: `find` sees several rows at
    /// several moments.
    Reads,
    /// What a caller ensures again after it was killed.
    Additions,
    /// As `Blind`; mostly rows of partitions.
    Partitions,
}

/// One operation of the index.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(u64, u64),
    InsertAll(u64, u64),
    /// The same, as one of a partition of so many bits.
    InsertPartition(u64, u64, u32),
    Ensure(u64, u64),
    Remove(u64, u64),
    /// As `Remove`, with no answer.
    Discard(u64, u64),
    Find(u64),
}

/// Rows by key, in order, but those that were there before.
type Rows = BTreeMap<u64, Vec<u64>>;
type TestIndex = RowIndex<Arc<Sim>>;

fn row_of(key: u64, number: u64) -> RowId {
    RowId::new(key * ROWS + number).expect("a small number")
}

fn key_of(row: RowId) -> u64 {
    row.get() / ROWS
}

/// All rows of a key.
fn found(index: &TestIndex, key: u64) -> Result<Vec<u64>> {
    let mut rows = Vec::new();
    index.find(key, |row| {
        // As a caller does: others may be found, too.
        if key_of(row) == key {
            rows.push(row.get());
        }
        ControlFlow::<()>::Continue(())
    })?;
    rows.sort_unstable();
    Ok(rows)
}

impl Index {
    fn numbers_prepared(&self) -> std::ops::Range<u64> {
        ROWS - self.prepared..ROWS
    }

    fn is_prepared(&self, row: u64) -> bool {
        self.numbers_prepared().contains(&(row % ROWS))
    }

    fn apply_to(&self, index: &TestIndex, op: &Op) -> Answer<Vec<u64>> {
        match *op {
            Op::Insert(key, row) => answer(index.insert(key, row_of(key, row)), |()| Answer::None),
            Op::InsertAll(key, row) => {
                answer(index.insert_all([(key, row_of(key, row))]), |()| Answer::None)
            }
            Op::InsertPartition(key, row, bits) => {
                let rows = [(key, row_of(key, row))];
                answer(index.insert_partition(bits, &rows), |()| Answer::None)
            }
            Op::Ensure(key, row) => answer(index.ensure(key, row_of(key, row)), |()| Answer::None),
            Op::Remove(key, row) => answer(index.remove(key, row_of(key, row)), Answer::Bool),
            Op::Discard(key, row) => answer(index.remove(key, row_of(key, row)), |_| Answer::None),
            Op::Find(key) => answer(found(index, key), |rows| {
                let (prepared, rows): (Vec<u64>, Vec<u64>) =
                    rows.into_iter().partition(|row| self.is_prepared(*row));
                // Some are there twice if a crash has interrupted their preparation.
                let mut of_key = self.numbers_prepared().map(|number| row_of(key, number).get());
                match of_key.all(|row| prepared.contains(&row)) {
                    true => Answer::Value(rows),
                    // The model knows no such answer: rows that nobody removes were missed.
                    false => Answer::Bool(false),
                }
            }),
        }
    }
}

impl Subject for Index {
    type Op = Op;
    type Ret = Answer<Vec<u64>>;
    type State = Rows;
    type Handle = Open<TestIndex>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool, name| {
            TestIndex::create_small(pool, name, self.bits)
        })
    }

    fn prepare(&self, medium: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        let rows_of = |key| self.numbers_prepared().map(move |row| (key, row_of(key, row)));
        let rows: Vec<(u64, RowId)> = (0..self.keys).flat_map(rows_of).collect();
        open.object.insert_partition(0, &rows)?;
        medium.fence();
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let open: Self::Handle = Open::recover(medium, TestIndex::open)?;
        if self.mix == Mix::Additions {
            // What a caller does that finds rows of which it does not know whether they are
            // durable.
            let mut rows = Vec::new();
            open.object.for_each(|row| rows.push(row))?;
            for row in rows {
                open.object.ensure(key_of(row), row)?;
            }
            open.pool.medium().fence();
        }
        Ok(open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Vec<u64>> {
        let answer = self.apply_to(&open.object, op);
        // The caller's fence, for its row and the index together.
        open.pool.medium().fence();
        answer
    }

    fn model(&self, rows: &mut Rows, op: &Op) -> Answer<Vec<u64>> {
        let number_of = |key, row| row_of(key, row).get();
        let answer = match *op {
            Op::Insert(key, row) | Op::InsertAll(key, row) | Op::InsertPartition(key, row, _) => {
                rows.entry(key).or_default().push(number_of(key, row));
                Answer::None
            }
            Op::Ensure(key, row) => {
                let of_key = rows.entry(key).or_default();
                if !of_key.contains(&number_of(key, row)) {
                    of_key.push(number_of(key, row));
                }
                Answer::None
            }
            Op::Remove(key, row) | Op::Discard(key, row) => {
                let of_key = rows.entry(key).or_default();
                let place = of_key.iter().position(|&found| found == number_of(key, row));
                place.map(|place| of_key.remove(place));
                match op {
                    Op::Remove(..) => Answer::Bool(place.is_some()),
                    _ => Answer::None,
                }
            }
            Op::Find(key) => Answer::Value(rows.get(&key).cloned().unwrap_or_default()),
        };
        rows.values_mut().for_each(|rows| rows.sort_unstable());
        rows.retain(|_, rows| !rows.is_empty());
        answer
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Rows> {
        let mut rows = Rows::new();
        open.object.for_each(|row| rows.entry(key_of(row)).or_default().push(row.get()))?;
        for (&key, rows) in &mut rows {
            rows.sort_unstable();
            let found = found(&open.object, key)?;
            if found != *rows {
                return Err(format!("key {key} has {found:?}, a walk finds {rows:?}").into());
            }
        }
        for key in 0..self.keys {
            let of_key = rows.entry(key).or_default();
            for row in self.numbers_prepared().map(|number| row_of(key, number).get()) {
                if !of_key.contains(&row) {
                    return Err(format!("row {row}, which nobody removes, is lost").into());
                }
            }
            of_key.retain(|row| !self.is_prepared(*row));
        }
        rows.retain(|_, rows| !rows.is_empty());
        Ok(rows)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (key, row) = (rng.below(self.keys), rng.below(ROWS_USED));
        match (self.mix, rng.below(12)) {
            (Mix::Reads, 0..=4) => Op::Ensure(key, 0),
            (Mix::Reads, 5..=9) => Op::Find(key),
            (Mix::Reads, _) => Op::Remove(key, 0),
            (Mix::Partitions, 0..=8) => Op::InsertPartition(key, row, row as u32),
            (_, 0..=4) => Op::Insert(key, row),
            (_, 5) if row % 2 == 0 => Op::InsertAll(key, row),
            (_, 5) => Op::InsertPartition(key, row, row as u32),
            (Mix::Additions, _) => Op::Ensure(key, row),
            (Mix::All, 6) => Op::Ensure(key, row),
            (Mix::All, 7) => Op::Find(key),
            (Mix::All, _) => Op::Remove(key, row),
            (Mix::Blind | Mix::Partitions, _) => Op::Discard(key, row),
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
