//! Rows that are inserted, or changed if their key is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Changes, Database, Durability, Error, Result, Row, Table, TableSpec, Token, Transaction,
    TransactionOptions, Type, Upserted, Value,
};
use remanent_pmem::{Mapped, Pool};

type M = Mapped;

fn counters(is_ordered: bool) -> TableSpec {
    let spec = TableSpec::new("counters")
        .column("id", Type::U32)
        .nullable("name", Type::Text { max: 20 })
        .column("count", Type::U8)
        .primary_key(["id"])
        .unique("by_name", ["name"]);
    if is_ordered { spec.ordered(["primary", "by_name"]) } else { spec }
}

fn database() -> Database<M> {
    Database::create(&Pool::options().create_in_memory().unwrap(), "db").unwrap()
}

fn add_one(_: &Row<'_, M>, row: &mut Changes<'_, M>) -> Result<u64> {
    row.add(2, 1)?;
    row.get(2)
}

fn count_of(table: &Table<M>, database: &Database<M>, id: u32) -> Option<u64> {
    let get = table.prepare_get("primary").unwrap();
    get.run(&database.snapshot(), &[id.into()], |row| row.get(2)).unwrap()
}

#[test]
fn a_row_is_inserted_and_then_changed_by_either_key() {
    for is_ordered in [false, true] {
        let database = database();
        let table = database.create_table(&counters(is_ordered)).unwrap();
        let by_id = table.prepare_upsert("primary").unwrap();
        let first = by_id.run(&[1.into(), "one".into(), 1.into()], add_one).unwrap();
        assert!(matches!(first, Upserted::Inserted(_)));
        let second = by_id.run(&[1.into(), "other".into(), 9.into()], add_one).unwrap();
        assert_eq!(second, Upserted::Changed(2));
        let by_name = table.prepare_upsert("by_name").unwrap();
        assert_eq!(
            by_name.run(&[7.into(), "one".into(), 9.into()], add_one).unwrap(),
            Upserted::Changed(3)
        );
        // NULL is nobody's key, in a tree either, where rows are found by it.
        for id in [2, 3] {
            let done = by_name.run(&[id.into(), Value::Null, 1.into()], add_one).unwrap();
            assert!(matches!(done, Upserted::Inserted(_)), "{done:?}");
        }
        // Another key than that by which the row is looked for.
        let refused = by_name.run(&[1.into(), "new".into(), 1.into()], add_one);
        assert!(
            matches!(&refused, Err(Error::Unique { index, .. }) if index == "primary"),
            "{refused:?}"
        );
        assert!(matches!(table.prepare_upsert("by_nothing"), Err(Error::NoSuchIndex { .. })));
        let refused = by_id.run(&[1.into(), "one".into(), 300.into()], add_one);
        assert!(
            matches!(refused, Err(Error::Value { .. })),
            "its values are looked at: {refused:?}"
        );
        assert_eq!(count_of(&table, &database, 1), Some(3));
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn a_change_that_is_refused_leaves_the_row() {
    let database = database();
    let table = database.create_table(&counters(false)).unwrap();
    table.insert(&[1.into(), Value::Null, 255.into()]).unwrap();
    let upsert = table.prepare_upsert("primary").unwrap();
    let refused = upsert.run(&[1.into(), Value::Null, 0.into()], add_one).unwrap_err();
    let Error::Overflow { table: of, column, index, key, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((of.as_str(), column.as_str()), ("counters", "count"));
    assert_eq!((index.as_str(), key.as_str()), ("primary", "1"));
    assert!(refused.to_string().contains("255 + 1 does not fit UINT of 1 bytes"), "{refused}");
    assert_eq!(count_of(&table, &database, 1), Some(255));
}

#[test]
fn a_transaction_upserts_what_it_sees() {
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let database = database();
        let table = database.create_table(&counters(false)).unwrap();
        let upsert = table.prepare_upsert("primary").unwrap();
        let options = TransactionOptions::new().durability(durability);
        let mut transaction = database.begin_with(&options).unwrap();
        let one = |transaction: &mut Transaction<'_, M>, id: u32| {
            upsert.run_in(transaction, &[id.into(), Value::Null, 1.into()], add_one)
        };
        assert!(matches!(one(&mut transaction, 1).unwrap(), Upserted::Inserted(_)));
        assert_eq!(one(&mut transaction, 1).unwrap(), Upserted::Changed(2));
        // Its own row, which it has removed, is inserted again.
        assert!(
            table.prepare_delete("primary").unwrap().run_in(&mut transaction, &[1.into()]).unwrap()
        );
        assert!(matches!(one(&mut transaction, 1).unwrap(), Upserted::Inserted(_)));
        transaction
            .batch(|batch| {
                assert_eq!(one(batch, 1)?, Upserted::Changed(2));
                assert!(matches!(one(batch, 2)?, Upserted::Inserted(_)));
                one(batch, 2).map(|done| assert_eq!(done, Upserted::Changed(2)))
            })
            .unwrap();
        // Others are inserting it; then a transaction has it that this one does not see.
        let refused = upsert.run(&[1.into(), Value::Null, 1.into()], add_one);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        table.insert(&[3.into(), Value::Null, 1.into()]).unwrap();
        let refused = one(&mut transaction, 3);
        assert!(matches!(refused, Err(Error::Overtaken { .. })), "{refused:?}");
        transaction.refresh().unwrap();
        assert_eq!(one(&mut transaction, 3).unwrap(), Upserted::Changed(2));
        transaction.commit().unwrap();
        for id in 1..=3 {
            assert_eq!(count_of(&table, &database, id), Some(2), "{id}");
        }
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn the_last_statement_of_a_transaction_may_be_one() {
    let database = database();
    let table = database.create_table(&counters(false)).unwrap();
    let upsert = table.prepare_upsert("primary").unwrap();
    for expected in 1..=2 {
        let mut transaction = database.begin().unwrap();
        let last = |last: &mut Transaction<'_, M>| {
            upsert.run_in(last, &[1.into(), Value::Null, 1.into()], add_one)
        };
        transaction.commit_with(last).unwrap();
        assert_eq!(count_of(&table, &database, 1), Some(expected));
    }
}

#[test]
fn an_upsert_waits_for_who_decides_the_key() {
    let database = database();
    let table = database.create_table(&counters(false)).unwrap();
    let upsert = table.prepare_upsert("primary").unwrap();
    database.set_wait(Duration::from_secs(60));
    let token_of = |error: &Error| -> Option<Token> {
        let Error::Conflict { holder, .. } = error else { panic!("{error}") };
        *holder
    };
    for (is_commit, is_removal) in [(true, false), (false, false), (true, true), (false, true)] {
        let before = count_of(&table, &database, 1);
        let mut other = database.begin().unwrap();
        let delete = table.prepare_delete("primary").unwrap();
        if is_removal {
            assert!(delete.run_in(&mut other, &[1.into()]).unwrap());
        } else {
            upsert.run_in(&mut other, &[1.into(), Value::Null, 1.into()], add_one).unwrap();
        }
        let mut impatient = database.begin().unwrap();
        let refused =
            upsert.run_in(&mut impatient, &[1.into(), Value::Null, 1.into()], add_one).unwrap_err();
        assert_eq!(token_of(&refused), Some(other.token()));
        thread::scope(|scope| {
            let waits = scope.spawn(|| upsert.run(&[1.into(), Value::Null, 1.into()], add_one));
            thread::sleep(Duration::from_millis(30));
            assert!(!waits.is_finished());
            match is_commit {
                true => other.commit().unwrap(),
                false => other.abort().unwrap(),
            }
            waits.join().unwrap().unwrap();
        });
        let expected = match (is_commit, is_removal) {
            (true, true) => 1,
            (true, false) => before.unwrap_or(0) + 2,
            (false, _) => before.unwrap_or(0) + 1,
        };
        assert_eq!(count_of(&table, &database, 1), Some(expected));
    }
}

#[test]
fn of_threads_that_upsert_one_key_one_inserts_and_the_others_change() {
    const ROUNDS: u32 = 40;
    const THREADS: u64 = 4;
    for durability in [None, Some(Durability::EachStatement), Some(Durability::AtCommit)] {
        let database = database();
        let table = database.create_table(&counters(false)).unwrap();
        let (inserted, changed) = (AtomicU64::new(0), AtomicU64::new(0));
        let add = |id: u32| -> Result<Upserted<u64>> {
            let upsert = table.prepare_upsert("primary")?;
            let values = [id.into(), Value::Null, 1.into()];
            let Some(durability) = durability else { return upsert.run(&values, add_one) };
            let options = TransactionOptions::new().durability(durability);
            let mut transaction = database.begin_with(&options)?;
            let done = upsert.run_in(&mut transaction, &values, add_one)?;
            transaction.commit()?;
            Ok(done)
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for id in 0..ROUNDS {
                        let done = loop {
                            match add(id) {
                                Err(Error::Conflict { .. } | Error::Overtaken { .. }) => {
                                    thread::yield_now();
                                }
                                done => break done.unwrap(),
                            }
                        };
                        let counter =
                            if let Upserted::Inserted(_) = done { &inserted } else { &changed };
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(inserted.into_inner(), u64::from(ROUNDS));
        assert_eq!(changed.into_inner(), u64::from(ROUNDS) * (THREADS - 1));
        for id in 0..ROUNDS {
            assert_eq!(count_of(&table, &database, id), Some(THREADS), "{id} {durability:?}");
        }
        assert_eq!(database.check().unwrap(), []);
    }
}
