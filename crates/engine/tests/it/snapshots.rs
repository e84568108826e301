//! Snapshots that are kept for too long.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remanent_engine::{Database, Error, Moment, Table, Value};
use remanent_pmem::Pool;

use crate::subscribers;

struct Clocked {
    database: Database,
    table: Table,
    now_ms: Arc<AtomicU64>,
}

fn clocked() -> Clocked {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let now_ms = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now_ms);
    database.set_clock(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
    database.set_snapshot_limit(Duration::from_secs(10));
    let table = database.create_table(&subscribers()).unwrap();
    for id in 0..50u32 {
        table.insert(&[id.into(), id.to_string().as_str().into(), Value::Null]).unwrap();
    }
    Clocked { database, table, now_ms }
}

impl Clocked {
    fn update_all(&self, location: u32) {
        let update = self.table.prepare_update("primary").unwrap();
        for id in 0..50u32 {
            update.run(&[id.into()], |_, row| row.set(2, location)).unwrap();
        }
    }

    fn wait_s(&self, seconds: u64) {
        self.now_ms.fetch_add(seconds * 1_000, Ordering::SeqCst);
    }

    fn location(&self, moment: &impl Moment, id: u32) -> Result<Option<u32>, Error> {
        let get = self.table.prepare_get("primary").unwrap();
        get.run(moment, &[id.into()], |row| row.get(2)).map(Option::flatten)
    }
}

fn is_too_old<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::SnapshotTooOld { limit } if limit.as_secs() == 10), "{error}");
    assert!(error.to_string().contains("older than 10s"), "{error}");
}

#[test]
fn a_snapshot_is_kept_for_its_time_and_then_says_so() {
    let clocked = clocked();
    let Clocked { database, table, .. } = &clocked;
    let old = database.snapshot();
    clocked.update_all(1);
    clocked.wait_s(9);
    let young = database.snapshot();
    clocked.update_all(2);
    assert_eq!(clocked.location(&old, 7).unwrap(), None);
    assert_eq!(clocked.location(&young, 7).unwrap(), Some(1));
    clocked.wait_s(5);
    database.collect().unwrap();
    is_too_old(clocked.location(&old, 7));
    is_too_old(clocked.location(&old, 700)); // it may have been there
    is_too_old(table.scan(&old, |_| ControlFlow::<()>::Continue(())));
    let find = table.prepare_find("by_number").unwrap();
    is_too_old(find.run(&old, &["7".into()], |_| ControlFlow::<()>::Continue(())));
    // The other one is as old as it was when it was first seen.
    assert_eq!(clocked.location(&young, 7).unwrap(), Some(1));
    assert_eq!(clocked.location(&database.snapshot(), 7).unwrap(), Some(2));
    drop(old);
    clocked.wait_s(20);
    database.collect().unwrap();
    is_too_old(clocked.location(&young, 7));
    // Places are used again.
    for _ in 0..3_000 {
        assert_eq!(clocked.location(&database.snapshot(), 7).unwrap(), Some(2));
    }
    drop(young);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn nothing_is_too_old_that_keeps_nothing() {
    let clocked = clocked();
    let now = clocked.database.snapshot();
    clocked.wait_s(1_000);
    clocked.database.collect().unwrap();
    clocked.wait_s(1_000);
    clocked.database.collect().unwrap();
    assert_eq!(clocked.location(&now, 7).unwrap(), None);
}

#[test]
fn what_a_transaction_sees_is_kept_until_its_end() {
    let clocked = clocked();
    let database = &clocked.database;
    let mut transaction = database.begin().unwrap();
    clocked.update_all(1);
    clocked.wait_s(100);
    database.collect().unwrap();
    clocked.wait_s(100);
    database.collect().unwrap();
    assert_eq!(clocked.location(&transaction, 7).unwrap(), None);
    transaction.refresh().unwrap();
    assert_eq!(clocked.location(&transaction, 7).unwrap(), Some(1));
    clocked.update_all(2);
    clocked.wait_s(100);
    database.collect().unwrap();
    assert_eq!(clocked.location(&transaction, 7).unwrap(), Some(1));
}
