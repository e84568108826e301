//! A database with any of its words changed: answers or clear errors, and soon.
//!
//! `cargo +nightly fuzz run tables_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::ops::ControlFlow;
use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_engine::{Database, Result, Row, Table, TableSpec, Type, Value};
use remanent_pmem::Pool;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Number of rows: some hundred fill several small tiles.
    count: u16,
    /// Number of rows that are changed afterwards, and so have versions.
    changed: u8,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

const ROWS_MAX: u32 = 2048;
/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 12;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(path)?;
    let database = Database::create(&pool, "tables")?;
    let spec = TableSpec::new("rows")
        .column("id", Type::U32)
        .nullable("name", Type::Text { max: 12 })
        .column("value", Type::U16)
        .primary_key(["id"])
        .unique("by_name", ["name"])
        .index("by_value", ["value"])
        .tile_rows(40);
    let table = database.create_table(&spec)?;
    for id in 0..u32::from(input.count) % ROWS_MAX {
        insert(&table, id)?;
    }
    // Versions are folded when the database is closed, unless a snapshot needs the states before.
    let before = database.snapshot();
    let update = table.prepare_update("primary")?;
    for id in 0..u32::from(input.changed) {
        update.run(&[id.into()], |_, row| row.set(2, id % 5 + 7))?;
    }
    change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
    drop(before);
    drop((update, table, database, pool));
    let pool = options().open(path)?;
    let database = Database::open(&pool, "tables")?;
    ask(&database, &database.table("rows")?, input.first)
}

fn insert(table: &Table, id: u32) -> Result<()> {
    let name = format!("name {id}");
    let name = if id.is_multiple_of(5) { Value::Null } else { name.as_str().into() };
    table.insert(&[id.into(), name, (id % 7).into()]).map(drop)
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
fn ask(database: &Database, table: &Table, first: u8) -> Result<()> {
    let visit = |row: &Row<'_>| {
        let _ = (row.value(0), row.value(1), row.value(2));
        ControlFlow::<()>::Continue(())
    };
    let get = table.prepare_get("by_name")?;
    let find = table.prepare_find("by_value")?;
    let update = table.prepare_update("primary")?;
    let delete = table.prepare_delete("primary")?;
    for question in (0..8).map(|number| (first % 8 + number) % 8) {
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
            _ => database.collect().map(drop),
        };
    }
    Ok(())
}
