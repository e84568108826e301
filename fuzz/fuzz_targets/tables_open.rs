//! A database with any of its words changed, closed or killed, perhaps with open transactions:
//! answers or clear errors, and soon.
//!
//! `cargo +nightly fuzz run tables_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_engine::{
    Database, Durability, NewColumn, Order, PRIMARY, Result, Resumed, Row, Table, TableSpec,
    Transaction, TransactionOptions, Type, Value,
};
use remanent_pmem::Pool;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Number of rows: some hundred fill several small tiles.
    count: u16,
    /// Number of rows that are changed afterwards, and so have versions.
    changed: u8,
    /// Number of rows that a transaction has changed that is open, in a batch and one by one.
    pending: [u8; 2],
    /// Whether the indexes are trees.
    is_ordered: bool,
    /// Whether the process is killed instead of closing the database.
    is_killed: bool,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

const ROWS_MAX: u32 = 2048;
const QUESTIONS: u8 = 11;
/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 12;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(dir.path(), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(dir: &Path, input: &Input) -> Result<()> {
    let (path, killed) = (dir.join("a.pool"), dir.join("killed.pool"));
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(&path)?;
    let database = Database::create(&pool, "tables")?;
    let spec = TableSpec::new("rows")
        .column("id", Type::U32)
        .nullable("name", Type::Text { max: 12 })
        .column("value", Type::U16)
        .primary_key(["id"])
        .unique("by_name", ["name"])
        .index("by_value", ["value"])
        .tile_rows(40);
    let spec =
        if input.is_ordered { spec.ordered([PRIMARY, "by_name", "by_value"]) } else { spec };
    let table = database.create_table(&spec)?;
    for id in 0..u32::from(input.count) % ROWS_MAX {
        insert(&table, id)?;
    }
    let added = NewColumn::nullable("added", Type::U64).default(7);
    let table = database.add_column(&table, &added)?;
    // Versions are folded when the database is closed, unless a snapshot needs the states before.
    let before = database.snapshot();
    let update = table.prepare_update("primary")?;
    for id in 0..u32::from(input.changed) {
        update.run(&[id.into()], |_, row| {
            row.set(2, id % 5 + 7)?;
            row.set(3, id % 3 + 6)
        })?;
    }
    leave_open(&database, &table, input.pending)?;
    change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
    if input.is_killed {
        std::fs::copy(&path, &killed).expect("room in memory");
    }
    drop(before);
    drop((update, table, database, pool));
    let pool = options().open(if input.is_killed { killed } else { path })?;
    let database = Database::open(&pool, "tables")?;
    ask(&database, &database.table("rows")?, input.first)
}

/// Leaves a transaction open that has changed so many rows in a batch, and so many one by one.
fn leave_open(database: &Database, table: &Table, [in_batch, alone]: [u8; 2]) -> Result<()> {
    let mut transaction = database.begin()?;
    transaction.batch(|batch| (0..in_batch).try_for_each(|id| change_in(table, batch, id.into())))?;
    for id in 0..alone {
        change_in(table, &mut transaction, 3 * u32::from(id))?;
    }
    transaction.suspend();
    Ok(())
}

/// Changes a row of a transaction: removes it, gives it another key, or inserts one.
fn change_in(table: &Table, transaction: &mut Transaction<'_>, id: u32) -> Result<()> {
    match id % 4 {
        0 => table.prepare_delete("primary")?.run_in(transaction, &[id.into()]).map(drop),
        1 => {
            let id = 2 * ROWS_MAX + id;
            let name = format!("name {id}");
            // It may be there by now.
            let values = [id.into(), name.as_str().into(), 3.into(), 9.into()];
            let _ = table.insert_in(transaction, &values);
            Ok(())
        }
        _ => {
            let update = table.prepare_update("primary")?;
            let name = format!("other {id}");
            update.run_in(transaction, &[id.into()], |_, row| row.set(1, name.as_str())).map(drop)
        }
    }
}

fn insert(table: &Table, id: u32) -> Result<()> {
    let name = format!("name {id}");
    let name = if id.is_multiple_of(5) { Value::Null } else { name.as_str().into() };
    let values = [id.into(), name, (id % 7).into(), (id % 9).into()];
    table.insert(&values[..table.columns().len()]).map(drop)
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
fn ask(database: &Database, table: &Table, first: u8) -> Result<()> {
    let visit = |row: &Row<'_>| {
        let _ = (row.value(0), row.value(1), row.value(2), row.value(3));
        ControlFlow::<()>::Continue(())
    };
    let get = table.prepare_get("by_name")?;
    let find = table.prepare_find("by_value")?;
    let update = table.prepare_update("primary")?;
    let delete = table.prepare_delete("primary")?;
    for question in (0..QUESTIONS).map(|number| (first % QUESTIONS + number) % QUESTIONS) {
        let now = database.snapshot();
        let _ = match question {
            0 => (0..90).try_for_each(|id: u32| {
                let name = format!("name {id}");
                get.run(&now, &[name.as_str().into()], |row| row.get::<u32>(0)).map(drop)
            }),
            1 => table.scan(&now, visit).map(drop),
            2 => (0..7).try_for_each(|value: u32| find.run(&now, &[value.into()], visit).map(drop)),
            3 => database.check().map(drop),
            4 => (0..300).try_for_each(|id| insert(table, id + ROWS_MAX)),
            5 => (0..90).try_for_each(|id: u32| {
                update.run(&[id.into()], |_, row| row.set(1, Value::Null)).map(drop)
            }),
            6 => (0..40).try_for_each(|id: u32| delete.run(&[(2 * id).into()]).map(drop)),
            7 => go_on(database, table, first),
            8 => at_commit(database, table),
            9 => [Order::Ascending, Order::Descending].into_iter().try_for_each(|order| {
                let all = (Bound::Unbounded, Bound::Unbounded);
                table.prepare_range("by_value")?.run(&now, all, order, visit).map(drop)
            }),
            _ => database.collect().map(drop),
        };
    }
    Ok(())
}

/// Goes on with the transactions that are open, and ends them.
fn go_on(database: &Database, table: &Table, chance: u8) -> Result<()> {
    for open in database.open_transactions() {
        let Resumed::Open(mut transaction) = database.resume(open.token)? else { continue };
        let _ = change_in(table, &mut transaction, 3);
        let _ = transaction.batch(|batch| (4..9).try_for_each(|id| change_in(table, batch, id)));
        match chance.is_multiple_of(2) {
            true => transaction.commit()?,
            false => transaction.abort()?,
        }
    }
    Ok(())
}

/// A transaction that is durable at its commit.
fn at_commit(database: &Database, table: &Table) -> Result<()> {
    let how = TransactionOptions::new().durability(Durability::AtCommit);
    let mut transaction = database.begin_with(&how)?;
    (20..60).try_for_each(|id| change_in(table, &mut transaction, id))?;
    transaction.commit()
}
