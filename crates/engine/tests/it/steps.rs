//! Background work in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remanent_engine::{Database, Resumed, TableSpec, TransactionOptions, Type};
use remanent_pmem::Pool;

const ROWS: u32 = 1_000;
const TILE: u32 = 50;

fn spec(name: &str) -> TableSpec {
    let spec = TableSpec::new(name).column("id", Type::U32).column("value", Type::U32);
    spec.primary_key(["id"]).index("by_value", ["value"]).tile_rows(TILE)
}

fn fill(database: &Database, name: &str) {
    let table = database.create_table(&spec(name)).unwrap();
    for id in 0..ROWS {
        table.insert(&[id.into(), 0_u32.into()]).unwrap();
    }
}

fn update_all(database: &Database, name: &str, value: u32) {
    let update = database.table(name).unwrap().prepare_update("primary").unwrap();
    for id in 0..ROWS {
        assert!(update.run(&[id.into()], |_, row| row.set(1, value)).unwrap().is_some());
    }
}

/// The number of steps until there is nothing more to do.
fn steps(database: &Database) -> u32 {
    let mut steps = 1;
    while database.collect_step().unwrap() {
        steps += 1;
    }
    steps
}

#[test]
fn steps_fold_what_waits_and_look_at_every_tile() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    fill(&database, "first");
    fill(&database, "second");
    let before = database.snapshot();
    update_all(&database, "first", 1);
    update_all(&database, "second", 2);
    drop(before);
    // A tile each, and a step from one table to the next.
    let tiles = 2 * ROWS / TILE;
    assert!((tiles..tiles + 10).contains(&steps(&database)));
    assert_eq!(database.collect().unwrap(), 0, "nothing is left to be folded");
    assert_eq!(database.check().unwrap(), []);
    assert!((tiles..tiles + 10).contains(&steps(&database)), "a pass that finds nothing");
}

#[test]
fn steps_end_although_a_snapshot_keeps_versions() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    fill(&database, "first");
    let before = database.snapshot();
    update_all(&database, "first", 1);
    (0..5).for_each(|_| assert!(steps(&database) < 100));
    let get = database.table("first").unwrap().prepare_get("primary").unwrap();
    let value = |id: u32| get.run(&before, &[id.into()], |row| row.get::<u32>(1)).unwrap();
    assert_eq!([value(0), value(999)], [Some(0), Some(0)]);
    drop(before);
    steps(&database);
    assert_eq!(database.collect().unwrap(), 0);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn steps_end_transactions_and_free_tables() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    fill(&database, "first");
    // Tiles of a chunk each.
    let gone = database.create_table(&spec("gone").tile_rows(u32::MAX)).unwrap();
    for id in 0..10_000_u32 {
        gone.insert(&[id.into(), id.into()]).unwrap();
    }
    let options = TransactionOptions::new().time_limit(Duration::from_secs(1));
    let mut open = database.begin_with(&options).unwrap();
    let update = database.table("first").unwrap().prepare_update("primary").unwrap();
    update.run_in(&mut open, &[7.into()], |_, row| row.set(1, 8)).unwrap();
    let token = open.suspend();
    drop((update, gone, database));
    let database = Database::open(&pool, "db").unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let now_ms = Arc::clone(&clock);
    database.set_clock(move || Duration::from_millis(now_ms.load(Ordering::Relaxed)));
    steps(&database);
    assert_eq!(database.open_transactions().len(), 1);
    let used = || pool.check().unwrap().chunks_used;
    let with_table = used();
    let gone = database.table("gone").unwrap();
    database.drop_table("gone").unwrap();
    drop(gone);
    clock.store(5_000, Ordering::Relaxed);
    steps(&database);
    assert!(used() + 3 < with_table, "the dropped table is freed");
    assert_eq!(database.open_transactions(), []);
    assert!(matches!(database.resume(token), Ok(Resumed::Aborted)));
    update_all(&database, "first", 3);
    assert_eq!(database.check().unwrap(), []);
}
