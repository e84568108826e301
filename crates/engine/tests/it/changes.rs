//! Updates and removals, and the versions that they leave.

use std::ops::ControlFlow;
use std::thread;

use remanent_engine::{Database, Error, Row, Table, TableSpec, Type, Value};
use remanent_pmem::{Emulation, Mapped, Pool};

/// Accounts with a number, an owner that no two have, and a balance.
fn accounts(pool: &Pool<Mapped>) -> (Database, Table) {
    let database = Database::create(pool, "bank").unwrap();
    let spec = TableSpec::new("accounts")
        .column("number", Type::U32)
        .nullable("owner", Type::Text { max: 10 })
        .column("balance", Type::I64)
        .primary_key(["number"])
        .unique("by_owner", ["owner"])
        .index("by_balance", ["balance"]);
    let table = database.create_table(&spec).unwrap();
    (database, table)
}

fn balance(row: &Row<'_>) -> remanent_engine::Result<i64> {
    row.get(2)
}

#[test]
fn a_snapshot_sees_every_row_as_it_was() {
    let pool = Pool::options().create_in_memory().unwrap();
    let (database, table) = accounts(&pool);
    let update = table.prepare_update("primary").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    let get = table.prepare_get("primary").unwrap();
    let find = table.prepare_find("by_balance").unwrap();
    table.insert(&[1.into(), "ada".into(), 0.into()]).unwrap();
    let mut snapshots = vec![database.snapshot()];
    for step in 1..=100i64 {
        let before = update.run(&[1.into()], |row, account| {
            account.set(2, step)?;
            balance(row)
        });
        assert_eq!(before.unwrap(), Some(step - 1));
        snapshots.push(database.snapshot());
    }
    assert!(delete.run(&[1.into()]).unwrap());
    for (step, snapshot) in (0..).zip(&snapshots) {
        assert_eq!(get.run(snapshot, &[1.into()], balance).unwrap(), Some(step));
        let is_there = |_: &Row<'_>| ControlFlow::Break(());
        for (value, found) in [(step, Some(())), (step + 1, None), (step - 1, None)] {
            assert_eq!(find.run(snapshot, &[value.into()], is_there).unwrap(), found);
        }
        let scanned = table.scan(snapshot, |row| ControlFlow::Break(balance(row).unwrap()));
        assert_eq!(scanned.unwrap(), Some(step));
    }
    let now = database.snapshot();
    assert_eq!(get.run(&now, &[1.into()], balance).unwrap(), None);
    assert_eq!(database.check().unwrap(), []);
    drop(snapshots);
    drop(now);
    database.collect().unwrap();
    assert_eq!(database.check().unwrap(), []);
    // The keys are used again.
    table.insert(&[1.into(), "ada".into(), 7.into()]).unwrap();
    assert_eq!(get.run(&database.snapshot(), &[1.into()], balance).unwrap(), Some(7));
    // So is its place, once those are used that this thread has taken before.
    let numbers = 2..30u32;
    let rows = numbers.map(|number| table.insert(&[number.into(), Value::Null, 7.into()]).unwrap());
    assert!(rows.into_iter().any(|row| row.get() == 0));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn updates_of_the_same_rows_take_no_more_space_in_the_end() {
    const ROWS: u32 = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::options().create(directory.path().join("same.pool")).unwrap();
    let (database, table) = accounts(&pool);
    for number in 0..ROWS {
        table.insert(&[number.into(), Value::Null, 0.into()]).unwrap();
    }
    let update = table.prepare_update("primary").unwrap();
    let churn = |rounds: i64| {
        for round in 0..rounds {
            for number in 0..ROWS {
                update.run(&[number.into()], |_, account| account.set(2, round)).unwrap().unwrap();
            }
        }
        pool.check().unwrap().chunks_used
    };
    let (few, many) = (churn(3), churn(60));
    assert!(many <= few, "{few} chunks after 3 updates of each row, {many} after 63");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn keys_move_from_row_to_row() {
    let pool = Pool::options().create_in_memory().unwrap();
    let (database, table) = accounts(&pool);
    let update = table.prepare_update("primary").unwrap();
    let by_owner = table.prepare_get("by_owner").unwrap();
    let owner_of = |owner: &str| {
        by_owner.run(&database.snapshot(), &[owner.into()], |row| row.get::<u32>(0)).unwrap()
    };
    table.insert(&[1.into(), "ada".into(), 0.into()]).unwrap();
    table.insert(&[2.into(), "bob".into(), 0.into()]).unwrap();
    let set_owner = |number: u32, owner: Option<&str>| {
        update.run(&[number.into()], |_, account| account.set(1, owner))
    };
    assert!(matches!(set_owner(1, Some("bob")), Err(Error::Unique { .. })));
    assert_eq!((owner_of("ada"), owner_of("bob")), (Some(1), Some(2)));
    set_owner(2, None).unwrap();
    set_owner(1, Some("bob")).unwrap();
    assert_eq!((owner_of("ada"), owner_of("bob")), (None, Some(1)));
    table.insert(&[3.into(), "ada".into(), 0.into()]).unwrap();
    assert!(table.insert(&[4.into(), "bob".into(), 0.into()]).is_err());
    database.collect().unwrap();
    assert_eq!((owner_of("ada"), owner_of("bob")), (Some(3), Some(1)));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn what_a_closure_refuses_changes_nothing() {
    let pool = Pool::options().create_in_memory().unwrap();
    let (database, table) = accounts(&pool);
    table.insert(&[1.into(), "ada".into(), 10.into()]).unwrap();
    let update = table.prepare_update("primary").unwrap();
    let told = update.run(&[1.into()], |_, account| {
        account.set(2, 99)?;
        account.set(1, "a name that is too long")
    });
    assert!(told.unwrap_err().to_string().contains("more than TEXT(10)"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        update.run(&[1.into()], |_, _| -> remanent_engine::Result<()> { panic!("as a user may") })
    }));
    assert!(panicked.is_err());
    let nested = update.run(&[1.into()], |_, _| {
        let inner = update.run(&[1.into()], |_, account| account.set(2, 5));
        assert!(matches!(inner, Err(Error::Conflict { .. })));
        Ok(())
    });
    assert_eq!(nested.unwrap(), Some(()));
    assert_eq!(update.run(&[1.into()], |row, _| balance(row)).unwrap(), Some(10));
    let delete = table.prepare_delete("primary").unwrap();
    assert_eq!(delete.run_if(&[1.into()], |row| Ok(balance(row)? < 0)).unwrap(), Some(false));
    assert_eq!(delete.run_if(&[1.into()], |row| Ok(balance(row)? > 0)).unwrap(), Some(true));
    assert_eq!(delete.run_if(&[1.into()], |_| Ok(true)).unwrap(), None);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn threads_lose_no_update_and_no_snapshot_sees_half_of_two() {
    const ACCOUNTS: u32 = 8;
    const EACH: i64 = 3_000;
    let directory = tempfile::tempdir().unwrap();
    let options = Pool::options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("threads.pool")).unwrap();
    let (database, table) = accounts(&pool);
    for number in 0..ACCOUNTS {
        table.insert(&[number.into(), Value::Null, 0.into()]).unwrap();
    }
    thread::scope(|scope| {
        for thread in 0..3u32 {
            let (table, database) = (&table, &database);
            scope.spawn(move || {
                let update = table.prepare_update("primary").unwrap();
                let get = table.prepare_get("primary").unwrap();
                for turn in 0..EACH {
                    let key = [((turn as u32 + thread) % ACCOUNTS).into()];
                    loop {
                        match update.run(&key, |row, account| account.set(2, balance(row)? + 1)) {
                            Ok(found) => break assert!(found.is_some()),
                            Err(error) if error.is_conflict() => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    if turn % 64 == 0 {
                        let now = database.snapshot();
                        let read = || get.run(&now, &key, balance).unwrap();
                        assert_eq!(read(), read(), "a snapshot stays as it is");
                    }
                }
            });
        }
    });
    let mut sum = 0;
    let visit = |row: &Row<'_>| {
        sum += balance(row).unwrap();
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    assert_eq!(sum, 3 * EACH);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn changes_are_there_after_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("again.pool");
    for round in 0..4i64 {
        let pool = Pool::options().open_or_create(&path).unwrap();
        let (database, table) = match Database::open(&pool, "bank") {
            Ok(database) => {
                let table = database.table("accounts").unwrap();
                (database, table)
            }
            Err(_) => {
                let (database, table) = accounts(&pool);
                for number in 0..50 {
                    table.insert(&[number.into(), Value::Null, 0.into()]).unwrap();
                }
                (database, table)
            }
        };
        assert_eq!(database.check().unwrap(), []);
        let update = table.prepare_update("primary").unwrap();
        for number in 0..50 {
            let seen = update.run(&[number.into()], |row, account| {
                account.set(2, round + 1)?;
                balance(row)
            });
            assert_eq!(seen.unwrap(), Some(round));
        }
    }
}

#[test]
fn a_row_that_is_updated_often_behind_a_snapshot_is_folded_in_the_end() {
    const TIMES: i64 = 1_000;
    let pool = Pool::options().create_in_memory().unwrap();
    let (database, table) = accounts(&pool);
    table.insert(&[1.into(), "ada".into(), 0.into()]).unwrap();
    let update = table.prepare_update("primary").unwrap();
    let get = table.prepare_get("primary").unwrap();
    let before = database.snapshot();
    for step in 1..=TIMES {
        // The key of an index, too, which comes back again and again.
        update.run(&[1.into()], |_, account| account.set(2, step % 2)).unwrap().unwrap();
    }
    assert_eq!(get.run(&before, &[1.into()], balance).unwrap(), Some(0));
    assert_eq!(database.check().unwrap(), []);
    drop(before);
    let middle = database.snapshot();
    for step in 1..=TIMES {
        update.run(&[1.into()], |_, account| account.set(2, step % 2)).unwrap().unwrap();
    }
    database.collect().unwrap();
    assert_eq!(get.run(&middle, &[1.into()], balance).unwrap(), Some(0));
    assert_eq!(database.check().unwrap(), []);
    drop(middle);
    assert!(database.collect().unwrap() > 5, "folded in portions");
    assert_eq!(database.collect().unwrap(), 0);
    assert_eq!(get.run(&database.snapshot(), &[1.into()], balance).unwrap(), Some(0));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn rows_that_are_removed_after_opening_are_used_again_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("removed.pool");
    {
        let pool = Pool::options().create(&path).unwrap();
        let (_database, table) = accounts(&pool);
        for number in 0..200 {
            table.insert(&[number.into(), Value::Null, 0.into()]).unwrap();
        }
    }
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "bank").unwrap();
    let table = database.table("accounts").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    thread::scope(|scope| {
        for thread in 0..3u32 {
            let (table, delete) = (&table, &delete);
            scope.spawn(move || {
                for turn in 0..1_500 {
                    let (old, new) = (thread + 3 * turn, thread + 3 * (turn + 60));
                    loop {
                        match delete.run(&[old.into()]) {
                            Ok(_) => break,
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                    }
                    let row = [new.into(), Value::Null, new.into()];
                    let inserted = table.insert(&row);
                    assert!(matches!(inserted, Ok(_) | Err(Error::Unique { .. })), "{inserted:?}");
                }
            });
        }
    });
    let mut numbers = Vec::new();
    let visit = |row: &Row<'_>| {
        numbers.push(row.get::<u32>(0).unwrap());
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, (4_500..4_680).collect::<Vec<u32>>());
    assert_eq!(database.check().unwrap(), []);
}
