//! Indexes that are made, dropped and moved among other operations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use remanent_crashsim::{Outcome, Rng};
use remanent_engine::{
    Database, Error, Moment, NewIndex, Order, Placement, Row, Table, TableSpec, Type, Value,
};
use remanent_pmem::Medium;

use super::{columns, ordered};

/// Names of indexes, by their numbers.
const NAMES: [&str; 6] = ["primary", "by_code", "by_value", "by_pair", "by_both", "by_added"];
/// Columns that may be encoded, by their numbers.
const COLUMNS: [&str; 3] = ["id", "code", "value"];
/// The first number of an index that is made and dropped.
const FIRST: u64 = 2;
/// An index that is unique.
const UNIQUE: u64 = 4;
/// An index that has a column that is added.
const OF_ADDED: u64 = 5;

/// An operation on an index, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnIndex {
    /// It is made, in DRAM or in the pool.
    Create(u64, bool),
    /// It is moved to DRAM, or to the pool.
    Place(u64, bool),
    Drop(u64),
    /// The index of the dictionary of a column, by the column's number, is moved to DRAM, or to the
    /// pool.
    PlaceDictionary(u64, bool),
    /// All are moved to DRAM, or to the pool, by a plan; the columns are encoded or not.
    PlaceAll(bool, bool),
}

impl OnIndex {
    /// On one of the indexes, or on one that has no column that is added.
    pub(super) fn draw(rng: &mut Rng, with_added: bool) -> Self {
        let count = if with_added { NAMES.len() as u64 } else { OF_ADDED };
        let (number, is_dram) = (rng.below(count), rng.below(2) == 0);
        match (rng.below(3), number) {
            (0, _) | (_, 0..FIRST) => OnIndex::Place(number, is_dram),
            (1, _) => OnIndex::Create(number, is_dram),
            _ => OnIndex::Drop(number),
        }
    }

    /// On the index of a dictionary.
    pub(super) fn draw_dictionary(rng: &mut Rng) -> Self {
        OnIndex::PlaceDictionary(rng.below(COLUMNS.len() as u64), rng.below(2) == 0)
    }

    /// The steps of placing all: in the order of the names, those of dictionaries last. Those that
    /// are not there are none.
    pub(super) fn each_placed(is_dram: bool, is_encoded: bool) -> impl Iterator<Item = Self> {
        let indexes = [4, 1, 3, 2, 0].map(|number| OnIndex::Place(number, is_dram));
        let dictionaries = [1, 0, 2].map(|column| OnIndex::PlaceDictionary(column, is_dram));
        indexes.into_iter().chain(dictionaries.into_iter().filter(move |_| is_encoded))
    }

    /// Does it. False if there is such an index already, or none; `None` while a transaction is
    /// open that may decide whether the index is unique.
    pub(super) fn apply<M: Medium>(
        self,
        database: &Database<M>,
        table: &Table<M>,
    ) -> Result<Option<bool>, Error> {
        let done = match self {
            OnIndex::Create(UNIQUE, _) if !database.open_transactions().is_empty() => {
                return Ok(None);
            }
            OnIndex::Create(number, is_dram) => {
                let index = new_index(NAMES[number as usize]).place(placement(is_dram));
                database.create_index(table, &index)
            }
            OnIndex::Place(number, is_dram) => {
                database.place_index(table, NAMES[number as usize], placement(is_dram))
            }
            OnIndex::Drop(number) => database.drop_index(table, NAMES[number as usize]),
            OnIndex::PlaceDictionary(column, is_dram) => {
                let column = COLUMNS[column as usize];
                database.place_dictionary(table, column, placement(is_dram))
            }
            OnIndex::PlaceAll(is_dram, _) => {
                let plan = database.plan_placement(if is_dram { 0.0 } else { 1.0 });
                if plan.indexes.len() != database.index_uses().len() {
                    return Ok(None);
                }
                database.apply_placement(&plan)
            }
        };
        match done {
            Err(Error::Index { .. } | Error::NoSuchIndex { .. }) => Ok(Some(false)),
            done => done.map(|()| Some(true)),
        }
    }
}

fn placement(is_dram: bool) -> Placement {
    if is_dram { Placement::Dram } else { Placement::Pmem }
}

fn new_index(name: &str) -> NewIndex {
    match name {
        "by_value" => NewIndex::secondary(name, ["value"]),
        "by_pair" => NewIndex::secondary(name, ["value", "code"]).ordered(),
        "by_added" => NewIndex::secondary(name, [columns::FIRST]),
        _ => NewIndex::unique(name, ["code", "id"]),
    }
}

/// The table: its values are in no index, and so not in the first group of a row's cells.
pub(super) fn spec(name: String, tile_rows: u32) -> TableSpec {
    TableSpec::new(name)
        .column("id", Type::U32)
        .nullable("code", Type::Text { max: 40 })
        .column("value", Type::U16)
        .primary_key(["id"])
        .unique("by_code", ["code"])
        .tile_rows(tile_rows)
}

/// The model of the indexes: whether those lie in DRAM that are made and dropped; of those that are
/// always there, it has those that do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Indexes {
    of_rows: BTreeMap<u64, bool>,
    /// Columns whose dictionary has its index in DRAM, if these are moved.
    of_dictionaries: BTreeSet<u64>,
}

impl Indexes {
    /// What an operation makes of them, while a transaction is open or not, and with so many
    /// columns that were added.
    pub(super) fn apply(&mut self, is_open: bool, columns: u64, op: OnIndex) -> Option<bool> {
        let Indexes { of_rows: indexes, of_dictionaries } = self;
        Some(match op {
            OnIndex::PlaceDictionary(column, true) => {
                of_dictionaries.insert(column);
                true
            }
            OnIndex::PlaceDictionary(column, false) => {
                of_dictionaries.remove(&column);
                true
            }
            OnIndex::PlaceAll(is_dram, is_encoded) => {
                for step in OnIndex::each_placed(is_dram, is_encoded) {
                    self.apply(is_open, columns, step);
                }
                true
            }
            OnIndex::Create(UNIQUE, _) if is_open => return None,
            OnIndex::Create(OF_ADDED, _) if columns == 0 => false,
            OnIndex::Create(number, is_dram) => {
                let is_new = !indexes.contains_key(&number);
                if is_new {
                    indexes.insert(number, is_dram);
                }
                is_new
            }
            OnIndex::Place(number, is_dram) if number < FIRST => {
                match is_dram {
                    true => indexes.insert(number, true),
                    false => indexes.remove(&number),
                };
                true
            }
            OnIndex::Place(number, is_dram) => {
                let found = indexes.get_mut(&number);
                found.map(|placed| *placed = is_dram).is_some()
            }
            OnIndex::Drop(number) => indexes.remove(&number).is_some(),
        })
    }

    /// Whether rows are found by their values.
    pub(super) fn has_values(&self) -> bool {
        self.of_rows.contains_key(&FIRST)
    }

    /// Those that a table has, and where the indexes of dictionaries lie, if these are moved.
    pub(super) fn observe<M: Medium>(table: &Table<M>, dictionaries: bool) -> Outcome<Self> {
        let mut found = BTreeMap::new();
        for index in table.indexes() {
            let number = NAMES.iter().position(|name| *name == index.name);
            let number = number.ok_or_else(|| format!("nobody has made {:?}", index.name))? as u64;
            let is_dram = index.placement == Placement::Dram;
            if number >= FIRST || is_dram {
                found.insert(number, is_dram);
            }
        }
        let mut of_dictionaries = BTreeSet::new();
        for (number, column) in (0..).zip(COLUMNS).filter(|_| dictionaries) {
            if table.dictionary_placement(column)? == Placement::Dram {
                of_dictionaries.insert(number);
            }
        }
        Ok(Indexes { of_rows: found, of_dictionaries })
    }
}

/// Passes all rows that an index leads to by its keys, as of one moment. `rows` are those that it
/// is to lead to: first keys, and texts of second ones. Values are less than `values`.
pub(super) fn visit_all<M: Medium>(
    table: &Table<M>,
    moment: &impl Moment<M>,
    index: &str,
    (rows, values): (&[(u64, Option<String>)], u64),
    mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<Error>,
) -> Result<(), Error> {
    let mut failed = None;
    if index == "by_pair" {
        let all = (Bound::Unbounded, Bound::Unbounded);
        ordered::range(table, moment, (index, &[2, 1]), all, Order::Descending, |_| {
            ControlFlow::Continue(())
        })?;
        failed = table.prepare_range(index)?.run(moment, all, Order::Ascending, visit)?;
    } else if index == "by_value" {
        let find = table.prepare_find(index)?;
        for value in 0..values {
            failed = failed.or(find.run(moment, &[value.into()], &mut visit)?);
        }
    } else if index == "by_added" {
        let find = table.prepare_find(index)?;
        for value in columns::FIRST_VALUES {
            failed = failed.or(find.run(moment, &[value], &mut visit)?);
        }
    } else {
        let find = table.prepare_find(index)?;
        for (id, code) in rows {
            let code = Value::from(code.as_deref());
            let keys = match index {
                "primary" => vec![(*id).into()],
                "by_code" => vec![code],
                _ => vec![code, (*id).into()],
            };
            failed = failed.or(find.run(moment, &keys, &mut visit)?);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Whether an index has only rows with a second key.
pub(super) fn needs_code(index: &str) -> bool {
    matches!(index, "by_code" | "by_both")
}
