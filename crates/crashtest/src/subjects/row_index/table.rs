//! Rows in a map, and the index of their keys in the same heap: what an index of rows is for.
//!
//! A row and its word in the index become durable with one step. A word that a row has left behind
//! is removed by a step after that: if it goes first, a crash leaves a row that is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::shared::{Inspection, MemberId, Recovery, Shareable, Site, Step};
use remanent_structures::{ExtendibleMap, Result, RowId, RowIndex};

use crate::answer::{Answer, answer, is_refused};
use crate::keys::TestKey;
use crate::maps::entries;
use crate::pools::{Open, must_be_empty};

type M = Arc<Sim>;

/// Rows from this number on are there before the operations begin, and stay.
const PREPARED: u64 = 1_000;
/// Where the table remembers the block with the headers.
const HEADERS: u64 = 0;
/// Bytes for the header of each structure.
const HEADER_LEN: u64 = 2048;

/// The two structures.
pub(super) struct Table {
    heap: Arc<Heap<M>>,
    headers: u64,
    /// The key of each row.
    keys: ExtendibleMap<TestKey, u64, M>,
    index: RowIndex<M>,
}

/// A table of few rows. One thread changes it.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Rows of each key that are there before the operations begin.
    pub(super) prepared: u64,
    /// Whether rows that are found after a crash are put into the index again, as after the death
    /// of a process.
    pub(super) ensures: bool,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// Rows that operations use.
const ROWS: u64 = 6;

/// One operation on a row.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Gives a row this key, whether or not it is there.
    Put(u64, u64),
    Remove(u64),
    /// A step that ends before it is committed. It adds a row that is there once more.
    Dropped(u64, u64),
    /// Rows of a key.
    Find(u64),
}

fn site(heap: &Arc<Heap<M>>, headers: u64, index: u32) -> Site<M> {
    let member = MemberId::new(index + 1).expect("a number that fits");
    Site::shared(heap, headers + u64::from(index) * HEADER_LEN, member)
}

impl RootObject<M> for Table {
    fn root_type() -> RootType {
        RootType { name: "Table".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let medium = heap.medium();
        let headers = heap.enter().prepare_to_write().allocate(2 * HEADER_LEN)?.offset;
        medium.write_zeros(headers, 2 * HEADER_LEN);
        // Flush: fenced by what makes a structure of the first header.
        medium.flush(headers, 2 * HEADER_LEN);
        let keys = Shareable::create_in(site(&heap, headers, 0))?;
        // Segments of two lines, which a few rows fill.
        let index = RowIndex::create_small_in(site(&heap, headers, 1), 1)?;
        medium.store(heap.header() + HEADERS, headers);
        // Flush and fence: before the root is live.
        medium.persist(heap.header() + HEADERS, 8);
        Ok(Table { heap, headers, keys, index })
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let headers = heap.medium().load(heap.header() + HEADERS);
        let mut recovery = Recovery::new();
        let keys = recovery.find(site(&heap, headers, 0))?;
        let index = recovery.find(site(&heap, headers, 1))?;
        recovery.run(&heap, |block| block.offset == headers)?;
        Ok(Table { keys: keys.finish()?, index: index.finish()?, heap, headers })
    }
}

impl Table {
    fn put(&self, row: u64, key: u64) -> Result<()> {
        let (row_key, id) = (TestKey(row), id(row));
        let old = self.keys.get(&row_key)?;
        if old == Some(key) {
            return Ok(());
        }
        let mut step = Step::enter(&self.heap);
        self.index.insert_in(&mut step, key, id)?;
        self.keys.put_in(&mut step, &row_key, &key)?;
        step.commit()?;
        old.map_or(Ok(()), |old| self.forget(row, old))
    }

    fn remove(&self, row: u64) -> Result<bool> {
        let row_key = TestKey(row);
        let Some(old) = self.keys.get(&row_key)? else { return Ok(false) };
        let mut step = Step::enter(&self.heap);
        self.keys.remove_in(&mut step, &row_key)?;
        step.commit()?;
        self.forget(row, old)?;
        Ok(true)
    }

    /// Removes a word of the index that leads to a row which has another key now.
    fn forget(&self, row: u64, old: u64) -> Result<()> {
        let mut step = Step::enter(&self.heap);
        self.index.remove_in(&mut step, old, id(row))?;
        step.commit()
    }

    fn drop_insertion(&self, row: u64, key: u64) -> Result<()> {
        let key = self.keys.get(&TestKey(row))?.unwrap_or(key);
        let mut step = Step::enter(&self.heap);
        self.index.insert_in(&mut step, key, id(row))
    }

    /// The rows of a key. Words that rows have left behind lead to rows with other keys, or twice
    /// to the same.
    fn find(&self, key: u64) -> Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        self.index.find(key, |row| {
            found.insert(row.get());
            ControlFlow::<()>::Continue(())
        })?;
        let mut rows = BTreeSet::new();
        for row in found {
            if self.keys.get(&TestKey(row))? == Some(key) {
                rows.insert(row);
            }
        }
        Ok(rows)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        let (mut violations, mut blocks) = (Vec::new(), vec![self.headers]);
        for inspection in [self.keys.inspect()?, self.index.inspect()?] {
            let Inspection { violations: found, blocks: reached } = inspection;
            violations.extend(found);
            blocks.extend(reached.into_iter().flatten());
        }
        violations.extend(self.heap.check(blocks.into_iter())?);
        Ok(violations)
    }
}

fn id(row: u64) -> RowId {
    RowId::new(row).expect("a small number")
}

impl Subject for Indexed {
    type Op = Op;
    type Ret = Answer<BTreeSet<u64>>;
    /// The key of each row, but of those that were there before.
    type State = BTreeMap<u64, u64>;
    type Handle = Open<Arc<Table>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool, name| pool.create_root(name))
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        for number in 0..self.keys * self.prepared {
            open.object.put(PREPARED + number, number % self.keys)?;
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let open: Self::Handle = Open::recover(medium, |pool, name| pool.open_root(name))?;
        if self.ensures {
            for (TestKey(row), key) in entries(&open.object.keys)? {
                open.object.index.ensure(key, id(row))?;
            }
            open.pool.medium().fence();
        }
        Ok(open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Self::Ret {
        let table = &*open.object;
        match *op {
            Op::Put(row, key) => answer(table.put(row, key), |()| Answer::None),
            Op::Remove(row) => answer(table.remove(row), Answer::Bool),
            Op::Dropped(row, key) => answer(table.drop_insertion(row, key), |()| Answer::None),
            Op::Find(key) => answer(table.find(key), |rows| {
                Answer::Value(rows.into_iter().filter(|&row| row < PREPARED).collect())
            }),
        }
    }

    fn model(&self, rows: &mut Self::State, op: &Op) -> Self::Ret {
        match *op {
            Op::Put(row, key) => {
                rows.insert(row, key);
                Answer::None
            }
            Op::Remove(row) => Answer::Bool(rows.remove(&row).is_some()),
            Op::Dropped(..) => Answer::None,
            Op::Find(key) => {
                let is_of_key = |(&row, &of)| (of == key).then_some(row);
                Answer::Value(rows.iter().filter_map(is_of_key).collect())
            }
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        let mut rows = BTreeMap::new();
        for (TestKey(row), key) in entries(&open.object.keys)? {
            rows.insert(row, key);
        }
        for key in 0..self.keys {
            let of_key: BTreeSet<u64> =
                rows.iter().filter_map(|(&row, &of)| (of == key).then_some(row)).collect();
            let found = open.object.find(key)?;
            if found != of_key {
                return Err(format!("key {key} leads to {found:?}, its rows are {of_key:?}").into());
            }
        }
        let prepared = rows.split_off(&PREPARED);
        if prepared.len() as u64 != self.keys * self.prepared {
            return Err(format!("of the first rows, {prepared:?} are there").into());
        }
        Ok(rows)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (row, key) = (rng.below(ROWS), rng.below(self.keys));
        match rng.below(10) {
            0..=4 => Op::Put(row, key),
            5..=7 => Op::Remove(row),
            8 => Op::Dropped(row, key),
            _ => Op::Find(key),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Self::Ret) -> bool {
        is_refused(answer)
    }
}
