//! Scans of some columns, with filters, and what they count and sum up.

use std::ops::ControlFlow;

use remanent_engine::{
    Database, Durability, Error, Table, TableSpec, TransactionOptions, Type, Value,
};
use remanent_pmem::{Mapped, Pool};

type M = Mapped;

fn database() -> Database<M> {
    Database::create(&Pool::options().create_in_memory().unwrap(), "db").unwrap()
}

/// Rows with a key in the first group of cells, and numbers in the second one.
fn accounts(database: &Database<M>) -> Table<M> {
    let spec = TableSpec::new("accounts")
        .column("id", Type::U32)
        .nullable("balance", Type::I16)
        .column("rate", Type::F64)
        .column("owner", Type::Text { max: 200 })
        .primary_key(["id"])
        .tile_rows(3);
    database.create_table(&spec).unwrap()
}

fn fill(table: &Table<M>) {
    for id in 0..10u32 {
        let balance = if id == 4 { Value::Null } else { Value::Int(i64::from(id) * 100 - 300) };
        let rate = f64::from(id) / 4.0;
        table.insert(&[id.into(), balance, rate.into(), "Ada".into()]).unwrap();
    }
}

#[test]
fn numbers_are_summed_up_and_null_is_left_out() {
    let database = database();
    let table = accounts(&database);
    let scan = table.prepare_scan(["balance", "id", "rate"]).unwrap();
    let empty = database.snapshot();
    fill(&table);
    let now = database.snapshot();
    assert_eq!(scan.count(&now).unwrap(), 10);
    assert_eq!(scan.sum::<i64>(&now, 0).unwrap(), Some(1_500 - 100));
    assert_eq!((scan.min(&now, 0).unwrap(), scan.max(&now, 0).unwrap()), (Some(-300), Some(600)));
    assert_eq!(scan.sum::<u8>(&now, 1).unwrap(), Some(45));
    assert_eq!(scan.sum(&now, 2).unwrap(), Some(11.25));
    assert_eq!((scan.min(&now, 2).unwrap(), scan.max(&now, 2).unwrap()), (Some(0.0), Some(2.25)));
    // Before there were rows, and of NULL alone.
    assert_eq!(scan.count(&empty).unwrap(), 0);
    assert_eq!(scan.sum::<i64>(&empty, 0).unwrap(), None);
    let no_value = scan.filter(|row| Ok(row.value(0)? == Value::Null));
    assert_eq!(no_value.count(&now).unwrap(), 1);
    assert_eq!(no_value.sum::<i64>(&now, 0).unwrap(), None);
    assert_eq!(no_value.max::<i64>(&now, 0).unwrap(), None);
    let counts = table.prepare_scan([]).unwrap();
    assert_eq!(counts.count(&now).unwrap(), 10);
}

#[test]
fn a_filter_takes_rows_and_a_scan_ends_where_it_is_told() {
    let database = database();
    let table = accounts(&database);
    fill(&table);
    let now = database.snapshot();
    let scan = table.prepare_scan(["id", "owner"]).unwrap();
    let late = scan.filter(|row| Ok(row.get::<u32>(0)? >= 6 && row.get::<&str>(1)? == "Ada"));
    assert_eq!(late.count(&now).unwrap(), 4);
    assert_eq!(late.sum::<u64>(&now, 0).unwrap(), Some(6 + 7 + 8 + 9));
    let mut found = Vec::new();
    let third = late.run(&now, |row| {
        found.push(row.get::<u32>(0).unwrap());
        if found.len() == 3 { ControlFlow::Break(row.id()) } else { ControlFlow::Continue(()) }
    });
    assert!(third.unwrap().is_some());
    found.sort_unstable();
    found.dedup();
    assert_eq!((found.len(), found[0] >= 6), (3, true));
    // An error of the filter ends it, and is returned.
    let asked = std::cell::Cell::new(0);
    let failing = scan.filter(|row| {
        asked.set(asked.get() + 1);
        row.get::<u32>(1).map(|_| true)
    });
    assert!(matches!(failing.count(&now), Err(Error::Value { .. })));
    assert_eq!(asked.get(), 1);
}

#[test]
fn a_transaction_sums_up_what_it_has_changed_too() {
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let database = database();
        let table = accounts(&database);
        fill(&table);
        let scan = table.prepare_scan(["balance", "id"]).unwrap();
        let options = TransactionOptions::new().durability(durability);
        let mut transaction = database.begin_with(&options).unwrap();
        table
            .insert_in(&mut transaction, &[10.into(), 700.into(), 0.0.into(), "Bob".into()])
            .unwrap();
        let update = table.prepare_update("primary").unwrap();
        // Only the second group; both; and the first one of a row that has a version of the second.
        update.run_in(&mut transaction, &[0.into()], |_, row| row.add(1, 300)).unwrap();
        update.run_in(&mut transaction, &[0.into()], |_, row| row.set(0, 100)).unwrap();
        assert!(
            table.prepare_delete("primary").unwrap().run_in(&mut transaction, &[9.into()]).unwrap()
        );
        // Somebody else's, which it does not see.
        update.run(&[5.into()], |_, row| row.add(1, 1_000)).unwrap();
        assert_eq!(scan.sum::<i64>(&transaction, 0).unwrap(), Some(1_400 + 700 + 300 - 600));
        assert_eq!(scan.count(&transaction).unwrap(), 10);
        assert_eq!(scan.max::<u32>(&transaction, 1).unwrap(), Some(100));
        assert_eq!(scan.sum::<i64>(&database.snapshot(), 0).unwrap(), Some(2_400));
        transaction.commit().unwrap();
        assert_eq!(scan.sum::<i64>(&database.snapshot(), 0).unwrap(), Some(2_800));
        database.collect().unwrap();
        assert_eq!(scan.sum::<i64>(&database.snapshot(), 0).unwrap(), Some(2_800));
    }
}

#[test]
fn sums_that_do_not_fit_are_refused() {
    let database = database();
    let spec = TableSpec::new("numbers")
        .column("int", Type::I64)
        .column("uint", Type::U64)
        .column("float", Type::F64);
    let table = database.create_table(&spec).unwrap();
    let row = |int: i64| [int.into(), u64::MAX.into(), f64::MAX.into()];
    table.insert(&row(i64::MAX)).unwrap();
    let scan = table.prepare_scan(["int", "uint", "float"]).unwrap();
    let now = database.snapshot();
    assert_eq!(scan.sum::<i64>(&now, 0).unwrap(), Some(i64::MAX));
    assert_eq!(scan.sum::<u64>(&now, 1).unwrap(), Some(u64::MAX));
    let refused = scan.sum::<i64>(&now, 1).unwrap_err();
    assert!(matches!(&refused, Error::SumOverflow { column, .. } if column == "uint"), "{refused}");
    assert!(refused.to_string().contains("18446744073709551615 does not fit i64"), "{refused}");
    table.insert(&row(i64::MAX)).unwrap();
    let now = database.snapshot();
    assert!(matches!(scan.sum::<i64>(&now, 0), Err(Error::SumOverflow { .. })));
    assert!(matches!(scan.sum::<u64>(&now, 1), Err(Error::SumOverflow { .. })));
    assert!(matches!(scan.sum::<f64>(&now, 2), Err(Error::SumOverflow { .. })));
    // What is too much on the way is no error if it is none in the end.
    table.insert(&row(i64::MIN)).unwrap();
    let now = database.snapshot();
    assert_eq!(scan.sum::<i64>(&now, 0).unwrap(), Some(i64::MAX - 1));
}

#[test]
fn numbers_of_another_kind_and_columns_that_are_not_there_are_refused() {
    let database = database();
    let table = accounts(&database);
    fill(&table);
    let now = database.snapshot();
    let refused = table.prepare_scan(["id", "age"]);
    assert!(matches!(&refused, Err(Error::NoSuchColumn { column, .. }) if column == "age"));
    let scan = table.prepare_scan(["id", "rate", "owner"]).unwrap();
    let told = [
        scan.sum::<f64>(&now, 0).unwrap_err(),
        scan.sum::<i64>(&now, 1).unwrap_err(),
        scan.min::<u8>(&now, 2).unwrap_err(),
        scan.max::<bool>(&now, 0).unwrap_err(),
    ];
    for error in told {
        assert!(matches!(error, Error::Value { .. }), "{error}");
    }
    assert!(matches!(scan.sum::<i64>(&now, 3), Err(Error::NoSuchColumn { .. })));
    let wrong = scan.filter(|row| row.value(7).map(|_| true));
    assert!(matches!(wrong.count(&now), Err(Error::NoSuchColumn { .. })));
    database.drop_table("accounts").unwrap();
    assert!(matches!(scan.count(&now), Err(Error::NoSuchTable { .. })));
}

#[test]
fn adding_keeps_the_value_when_it_is_refused() {
    let database = database();
    let table = accounts(&database);
    fill(&table);
    let update = table.prepare_update("primary").unwrap();
    let done = update
        .run(&[1.into()], |old, new| {
            for (column, amount) in [(1, Value::Int(-32_600)), (0, Value::Int(-2))] {
                assert!(matches!(new.add(column, amount), Err(Error::Overflow { .. })));
            }
            for (column, amount) in
                [(1, Value::Float(1.0)), (2, Value::Int(1)), (3, Value::Int(1)), (1, Value::Null)]
            {
                assert!(matches!(new.add(column, amount), Err(Error::Value { .. })));
            }
            assert!(matches!(new.add(4, 1), Err(Error::NoSuchColumn { .. })));
            assert!(matches!(new.set(1, 40_000), Err(Error::Value { .. })));
            assert!(matches!(new.set(3, Value::Null), Err(Error::Value { .. })));
            new.add(2, 0.5)?;
            Ok((old.get::<f64>(2)?, new.get::<f64>(2)?))
        })
        .unwrap();
    assert_eq!(done, Some((0.25, 0.75)));
    let get = table.prepare_get("primary").unwrap();
    let row = get.run(&database.snapshot(), &[1.into()], |row| {
        Ok((row.get::<u32>(0)?, row.get::<i16>(1)?, row.get::<f64>(2)?, row.get::<&str>(3)?.len()))
    });
    assert_eq!(row.unwrap(), Some((1, -200, 0.75, 3)));
    // NULL stays NULL.
    update.run(&[4.into()], |_, new| new.add(1, 5)).unwrap();
    let row = get.run(&database.snapshot(), &[4.into()], |row| row.get::<Option<i16>>(1));
    assert_eq!(row.unwrap(), Some(None));
}

#[test]
fn what_is_removed_can_be_returned() {
    let database = database();
    let table = accounts(&database);
    fill(&table);
    let delete = table.prepare_delete("primary").unwrap();
    assert_eq!(delete.take(&[6.into()], |row| row.get::<i16>(1)).unwrap(), Some(300));
    assert_eq!(delete.take(&[6.into()], |row| row.get::<i16>(1)).unwrap(), None);
    assert!(delete.take(&[7.into()], |row| row.get::<bool>(1)).is_err());
    let mut transaction = database.begin().unwrap();
    let taken = delete.take_in(&mut transaction, &[7.into()], |row| row.get::<u32>(0));
    assert_eq!(taken.unwrap(), Some(7));
    transaction.commit().unwrap();
    let scan = table.prepare_scan([]).unwrap();
    assert_eq!(scan.count(&database.snapshot()).unwrap(), 8);
}
