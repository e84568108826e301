//! Where sequences are kept: each is a row of a table that no program sees.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::block::Block;
use super::spec::SequenceSpec;
use crate::database::Table as Handle;
use crate::query::{Changes, Delete, Row, Update};
use crate::root::Root;
use crate::schema::{NAME_LEN_MAX, PRIMARY, TableSpec};
use crate::table::Table;
use crate::transaction::Snapshot;
use crate::value::{Type, Value};
use crate::{Error, Result};

/// Name of the table that has them.
pub(crate) const TABLE: &str = "remanent.sequences";

// Columns of the table.
const NAME: usize = 0;
const NEXT: usize = 1;
const INCREMENT: usize = 2;
const LEAST: usize = 3;
const GREATEST: usize = 4;
const IS_CYCLING: usize = 5;
const BLOCK_LEN: usize = 6;

/// The table: a sequence that has no more numbers has no next one.
pub(crate) fn spec() -> TableSpec {
    TableSpec::new(TABLE)
        .column("name", Type::Text { max: NAME_LEN_MAX as u16 })
        .nullable("next", Type::I64)
        .column("increment", Type::I64)
        .column("least", Type::I64)
        .column("greatest", Type::I64)
        .column("is_cycling", Type::Bool)
        .column("block_len", Type::U32)
        .primary_key(["name"])
}

/// The table, which is made with the first sequence.
fn made_table<M: Medium>(engine: &Root<M>) -> Result<Arc<Table<M>>> {
    if let Some(table) = engine.table(TABLE, None) {
        return Ok(table);
    }
    match engine.create_table(&spec()) {
        // Another thread may have made it.
        Err(error @ Error::Schema { .. }) => engine.table(TABLE, None).ok_or(error),
        made => made,
    }
}

/// Does something again as long as another statement has the row: each has it for a moment alone.
pub(super) fn until_free<M: Medium, R>(
    engine: &Root<M>,
    mut statement: impl FnMut() -> Result<R>,
) -> Result<R> {
    loop {
        match statement() {
            Err(Error::Conflict { .. }) => engine.medium().pause(),
            done => return done,
        }
    }
}

/// Makes a sequence. Returns what changes its row.
pub(super) fn create<M: Medium>(engine: &Arc<Root<M>>, spec: &SequenceSpec) -> Result<Update<M>> {
    spec.require_right()?;
    let (table, bounds) = (made_table(engine)?, spec.bounds());
    let values = [
        spec.name.as_str().into(),
        spec.first().into(),
        spec.increment.into(),
        (*bounds.start()).into(),
        (*bounds.end()).into(),
        spec.is_cycling.into(),
        spec.block_len.into(),
    ];
    let insert =
        || engine.alone(|statement| engine.insert(statement, &table, values.len(), &values));
    match until_free(engine, insert) {
        Ok(_) => Update::new(Handle::of(engine, table).asked(), PRIMARY),
        Err(Error::Unique { .. }) => {
            let reason = "a sequence of this name is there".to_owned();
            Err(Error::Sequence { sequence: spec.name.clone(), reason })
        }
        Err(error) => Err(error),
    }
}

/// Drops a sequence.
pub(super) fn drop<M: Medium>(engine: &Arc<Root<M>>, name: &str) -> Result<()> {
    let dropped = match engine.table(TABLE, None) {
        Some(table) if name.len() <= NAME_LEN_MAX => {
            let delete = Delete::new(Handle::of(engine, table).asked(), PRIMARY)?;
            until_free(engine, || delete.run(&[name.into()]))?
        }
        _ => false,
    };
    if dropped { Ok(()) } else { Err(no_sequence(name)) }
}

/// The names of all sequences, in order.
pub(super) fn names<M: Medium>(engine: &Arc<Root<M>>) -> Result<Vec<String>> {
    let Some(table) = engine.table(TABLE, None) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    Handle::of(engine, table)
        .scan(&Snapshot::of(engine), |row| {
            match row.get::<&str>(NAME) {
                Ok(name) => names.push(name.to_owned()),
                Err(error) => return std::ops::ControlFlow::Break(error),
            }
            std::ops::ControlFlow::Continue(())
        })?
        .map_or(Ok(()), Err)?;
    names.sort_unstable();
    Ok(names)
}

/// What changes the row of a sequence that is there.
pub(super) fn find<M: Medium>(engine: &Arc<Root<M>>, name: &str) -> Result<Update<M>> {
    let table = engine.table(TABLE, None).filter(|_| name.len() <= NAME_LEN_MAX);
    let table = table.ok_or_else(|| no_sequence(name))?;
    let update = Update::new(Handle::of(engine, table).asked(), PRIMARY)?;
    let found = until_free(engine, || update.run(&[name.into()], |_, _| Ok(())))?;
    found.map(|()| update).ok_or_else(|| no_sequence(name))
}

#[cold]
pub(super) fn no_sequence(name: &str) -> Error {
    Error::NoSuchSequence { sequence: name.to_owned() }
}

/// The number with which the row of a sequence goes on.
pub(super) fn next_of<M: Medium>(row: &Row<'_, M>) -> Result<Option<i64>> {
    row.get(NEXT)
}

/// Reserves numbers: has the row of a sequence say which number comes behind them.
pub(super) fn reserve<M: Medium>(
    row: &Row<'_, M>,
    changes: &mut Changes<'_, M>,
    name: &str,
) -> Result<Block> {
    let increment = row.get::<i64>(INCREMENT)?;
    let bounds = row.get::<i64>(LEAST)?..=row.get::<i64>(GREATEST)?;
    let exhausted =
        || Error::SequenceExhausted { sequence: name.to_owned(), range: bounds.clone() };
    let first = next_of(row)?.ok_or_else(exhausted)?;
    let block_len = row.get::<u32>(BLOCK_LEN)?;
    let (block, behind) =
        Block::from(first, &bounds, increment, block_len).ok_or_else(exhausted)?;
    let is_cycling = row.get::<bool>(IS_CYCLING)?;
    let next = Block::behind_or_first(behind, &bounds, increment, is_cycling);
    changes.set(NEXT, Value::from(next))?;
    Ok(block)
}

/// Has a sequence go on with this number.
pub(super) fn restart<M: Medium>(
    row: &Row<'_, M>,
    changes: &mut Changes<'_, M>,
    (name, number): (&str, i64),
) -> Result<()> {
    let bounds = row.get::<i64>(LEAST)?..=row.get::<i64>(GREATEST)?;
    if !bounds.contains(&number) {
        let (least, greatest) = (bounds.start(), bounds.end());
        let reason = format!("{number} is not in its range {least}..={greatest}");
        return Err(Error::Sequence { sequence: name.to_owned(), reason });
    }
    changes.set(NEXT, number)
}
