//! Changes of the schema as statements of a transaction: there for it alone until it has committed,
//! gone if it is given up, and with it through a crash.

use std::ops::{Bound, ControlFlow};
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, Moment, NewColumn, NewForeignKey, NewIndex, Placement, Resumed,
    Table, TableSpec, Transaction, TransactionOptions, Type, Upserted, Value,
};

use crate::shop::{Shop, at_commit, shop};

fn spec(name: &str) -> TableSpec {
    TableSpec::new(name)
        .column("id", Type::U32)
        .column("item", Type::U32)
        .primary_key(["id"])
        .index("by_item", ["item"])
        .tile_rows(4)
}

fn ids(table: &Table, moment: &impl Moment<remanent_pmem::Mapped>) -> Result<Vec<u32>, Error> {
    let mut all = Vec::new();
    table.scan(moment, |row| {
        all.push(row.get::<u32>(0).unwrap());
        ControlFlow::<()>::Continue(())
    })?;
    all.sort_unstable();
    Ok(all)
}

fn is_gone<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoSuchTable { .. }))
}

fn is_busy<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::SchemaBusy { .. }))
}

/// Closes the database, and opens it again.
fn reopened(shop: Shop) -> Shop {
    let Shop { pool, database, items } = shop;
    drop((items, database));
    let database = Database::open(&pool, "shop").unwrap();
    let items = database.table("items").unwrap();
    Shop { pool, database, items }
}

fn assert_whole(shop: &Shop) {
    assert_eq!(shop.database.check().unwrap(), []);
}

const BOTH: [Durability; 2] = [Durability::EachStatement, Durability::AtCommit];

#[test]
fn a_table_is_there_for_its_transaction_alone_until_that_has_committed() {
    for how in BOTH {
        let shop = shop();
        let mut by = shop.begin(how);
        let orders = shop.database.create_table_in(&mut by, &spec("orders")).unwrap();
        orders.insert_in(&mut by, &[1.into(), 1.into()]).unwrap();
        assert_eq!(by.statement(), 2);
        assert_eq!(ids(&orders, &by).unwrap(), [1]);
        assert_eq!(shop.database.tables_in(&by).unwrap(), ["items", "orders"]);
        assert_eq!(shop.database.tables(), ["items"]);
        assert!(is_gone(shop.database.table("orders")));
        assert!(is_gone(orders.insert(&[2.into(), 1.into()])));
        assert!(is_gone(ids(&orders, &shop.database.snapshot())));
        let get = orders.prepare_get("primary").unwrap();
        assert!(is_gone(get.run(&shop.database.snapshot(), &[1.into()], |_| Ok(()))));
        let mut other = shop.begin(Durability::EachStatement);
        assert!(is_gone(orders.insert_in(&mut other, &[2.into(), 1.into()])));
        assert!(is_gone(shop.database.table_in(&other, "orders")));
        assert!(get.run(&by, &[1.into()], |_| Ok(())).unwrap().is_some());

        by.commit().unwrap();
        assert_eq!(shop.database.tables(), ["items", "orders"]);
        orders.insert(&[2.into(), 1.into()]).unwrap();
        assert_eq!(ids(&orders, &shop.database.snapshot()).unwrap(), [1, 2]);
        drop((get, orders, other));
        let shop = reopened(shop);
        assert_whole(&shop);
        let orders = shop.database.table("orders").unwrap();
        assert_eq!(ids(&orders, &shop.database.snapshot()).unwrap(), [1, 2]);
    }
}

#[test]
fn a_transaction_that_is_given_up_leaves_nothing_of_its_tables() {
    for how in BOTH {
        let shop = shop();
        let version = shop.database.schema_version();
        for round in 0..3 {
            let mut by = shop.begin(how);
            let orders = shop.database.create_table_in(&mut by, &spec("orders")).unwrap();
            for id in 0..20 {
                orders.insert_in(&mut by, &[id.into(), 1.into()]).unwrap();
            }
            match round {
                0 => by.abort().unwrap(),
                _ => drop(by),
            }
            assert!(is_gone(orders.insert(&[2.into(), 1.into()])));
        }
        assert_eq!(shop.database.tables(), ["items"]);
        assert_eq!(shop.database.schema_version(), version);
        shop.database.create_table(&spec("orders")).unwrap();
        shop.database.drop_table("orders").unwrap();
        shop.database.collect().unwrap();
        assert_whole(&shop);
    }
}

#[test]
fn a_table_that_a_transaction_drops_goes_on_for_others_until_it_commits() {
    for (how, commits) in BOTH.into_iter().flat_map(|how| [(how, true), (how, false)]) {
        let shop = shop();
        let mut by = shop.begin(how);
        shop.database.drop_table_in(&mut by, "items").unwrap();
        assert!(is_gone(shop.items.insert_in(&mut by, &[9.into(), 9.into(), 0.into()])));
        assert!(is_gone(ids(&shop.items, &by)));
        assert!(is_gone(shop.database.table_in(&by, "items")));
        assert!(is_gone(shop.database.drop_table_in(&mut by, "items")));
        shop.items.insert(&[4.into(), 4.into(), 0.into()]).unwrap();
        assert_eq!(ids(&shop.items, &shop.database.snapshot()).unwrap(), [1, 2, 3, 4]);
        // Another one may have its name, for the transaction.
        let new = shop.database.create_table_in(&mut by, &spec("items")).unwrap();
        new.insert_in(&mut by, &[7.into(), 7.into()]).unwrap();
        assert_eq!(shop.database.table("items").unwrap().columns().len(), 3);
        assert_eq!(shop.database.table_in(&by, "items").unwrap().columns().len(), 2);
        match commits {
            true => by.commit().unwrap(),
            false => by.abort().unwrap(),
        }
        assert_eq!(is_gone(shop.items.insert(&[5.into(), 5.into(), 0.into()])), commits);
        drop(new);
        let shop = reopened(shop);
        let expected = if commits { vec![7] } else { vec![1, 2, 3, 4, 5] };
        assert_eq!(ids(&shop.items, &shop.database.snapshot()).unwrap(), expected);
        assert_whole(&shop);
    }
}

#[test]
fn changes_are_taken_back_with_their_statements() {
    for how in BOTH {
        let shop = shop();
        let (database, items) = (&shop.database, &shop.items);
        let mut by = shop.begin(how);
        let kept = database.create_table_in(&mut by, &spec("kept")).unwrap();
        kept.insert_in(&mut by, &[1.into(), 1.into()]).unwrap();
        let to = by.statement();
        database.create_table_in(&mut by, &spec("gone")).unwrap();
        database.create_index_in(&mut by, items, &NewIndex::unique("new", ["number"])).unwrap();
        database.drop_index_in(&mut by, items, "by_price").unwrap();
        database.add_column_in(&mut by, items, &NewColumn::new("n", Type::U8).default(1)).unwrap();
        database.drop_table_in(&mut by, "kept").unwrap();
        database.drop_table_in(&mut by, "items").unwrap();
        assert_eq!(database.tables_in(&by).unwrap(), ["gone"]);
        by.take_back_to(to).unwrap();
        assert_eq!(database.tables_in(&by).unwrap(), ["items", "kept"]);
        let seen = database.table_in(&by, "items").unwrap();
        assert!(seen.prepare_get("new").is_err() && seen.prepare_find("by_price").is_ok());
        assert_eq!(seen.columns().len(), 3);
        assert_eq!(ids(&kept, &by).unwrap(), [1]);
        // What comes then is not taken back.
        database.drop_index_in(&mut by, items, "by_price").unwrap();
        by.commit().unwrap();
        assert_eq!(database.tables(), ["items", "kept"]);
        assert!(items.prepare_find("by_price").is_err());
        drop((kept, seen));
        let shop = reopened(shop);
        assert_eq!(shop.database.tables(), ["items", "kept"]);
        assert_eq!(shop.items.indexes().len(), 2);
        assert_eq!(shop.items.columns().len(), 3);
        assert_whole(&shop);
    }
}

#[test]
fn a_transaction_goes_on_with_its_schema_when_the_database_is_opened() {
    for commits in [true, false] {
        let shop = shop();
        let database = &shop.database;
        let mut by = database.begin().unwrap();
        let orders = database.create_table_in(&mut by, &spec("orders")).unwrap();
        orders.insert_in(&mut by, &[1.into(), 1.into()]).unwrap();
        database
            .create_index_in(&mut by, &shop.items, &NewIndex::secondary("new", ["price"]))
            .unwrap();
        database.drop_index_in(&mut by, &shop.items, "by_price").unwrap();
        let column = NewColumn::new("n", Type::U8).default(5);
        let with_n = database.add_column_in(&mut by, &shop.items, &column).unwrap();
        with_n.insert_in(&mut by, &[9.into(), 9.into(), 0.into(), 6.into()]).unwrap();
        let token = by.suspend();
        drop((orders, with_n));

        let shop = reopened(shop);
        let database = &shop.database;
        assert_whole(&shop);
        assert_eq!(database.tables(), ["items"]);
        assert_eq!(shop.items.columns().len(), 3);
        assert_eq!(shop.items.indexes().len(), 3);
        assert!(shop.items.prepare_find("by_price").is_ok());
        assert!(is_busy(database.create_table(&spec("other"))));
        let Resumed::Open(mut by) = database.resume(token).unwrap() else { panic!("it is over") };
        assert_eq!(by.statement(), 6);
        let orders = database.table_in(&by, "orders").unwrap();
        assert_eq!(ids(&orders, &by).unwrap(), [1]);
        orders.insert_in(&mut by, &[2.into(), 1.into()]).unwrap();
        let items = database.table_in(&by, "items").unwrap();
        assert!(items.prepare_find("by_price").is_err());
        let mut found = Vec::new();
        let find = items.prepare_find("new").unwrap();
        for price in [0, 100] {
            find.run(&by, &[price.into()], |row| {
                found.push((row.get::<u32>(0).unwrap(), row.get::<u8>(3).unwrap()));
                ControlFlow::<()>::Continue(())
            })
            .unwrap();
        }
        assert_eq!(found, [(9, 6), (1, 5), (2, 5), (3, 5)]);
        match commits {
            true => by.commit().unwrap(),
            false => by.abort().unwrap(),
        }
        drop((orders, items, find));
        let shop = reopened(shop);
        assert_whole(&shop);
        let names: &[&str] = if commits { &["items", "orders"] } else { &["items"] };
        assert_eq!(shop.database.tables(), names);
        assert_eq!(shop.items.columns().len(), if commits { 4 } else { 3 });
        assert_eq!(shop.items.prepare_find("by_price").is_ok(), !commits);
        assert_eq!(shop.items.prepare_find("new").is_ok(), commits);
    }
}

#[test]
fn a_unique_index_counts_the_rows_of_its_transaction_and_refuses_those_of_others() {
    for how in BOTH {
        let shop = shop();
        let (database, items) = (&shop.database, &shop.items);
        let mut by = shop.begin(how);
        shop.insert(&mut by, 4, 4).unwrap();
        let update = items.prepare_update("primary").unwrap();
        for number in 1..=4u32 {
            update
                .run_in(&mut by, &[number.into()], |_, row| row.set(2, i64::from(number)))
                .unwrap();
        }
        // All prices were the same before the transaction, and differ in it.
        let index = NewIndex::unique("prices", ["price"]);
        database.create_index_in(&mut by, items, &index).unwrap();
        let of_by = database.table_in(&by, "items").unwrap();
        let get = of_by.prepare_get("prices").unwrap();
        assert_eq!(get.run(&by, &[4.into()], |row| row.get::<u32>(0)).unwrap(), Some(4));
        assert!(items.prepare_get("prices").is_err());
        let refused = update.run_in(&mut by, &[4.into()], |_, row| row.set(2, 1));
        assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
        // Others may not get a key that the transaction may have.
        let refused = items.insert(&[9.into(), 9.into(), 4.into()]);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        items.insert(&[9.into(), 9.into(), 90.into()]).unwrap();
        let refused = items.insert(&[8.into(), 8.into(), 90.into()]);
        assert!(matches!(refused, Err(Error::Unique { .. })), "{refused:?}");
        // What others see has the same price twice, and is whole.
        assert_whole(&shop);
        by.abort().unwrap();
        items.insert(&[8.into(), 8.into(), 90.into()]).unwrap();
        assert_whole(&shop);
        // Now they do not differ.
        let mut by = shop.begin(how);
        let refused = database.create_index_in(&mut by, items, &index);
        assert!(matches!(refused, Err(Error::Duplicate { .. })), "{refused:?}");
        assert_eq!(by.statement(), 0);
        by.commit().unwrap();
        assert_whole(&shop);
    }
}

#[test]
fn the_place_of_a_column_that_was_taken_back_stays_empty() {
    let shop = shop();
    let database = &shop.database;
    let price =
        |number: u32| -> Vec<Value<'static>> { vec![number.into(), number.into(), 1.into()] };
    let mut columns = Vec::new();
    for round in 0..4u32 {
        let mut by = shop.begin(BOTH[round as usize % 2]);
        let column = NewColumn::new("n", Type::U16).default(7);
        let with_n = database.add_column_in(&mut by, &shop.items, &column).unwrap();
        let mut values: Vec<Value<'_>> = vec![(100 + round).into(), (100 + round).into(), 1.into()];
        values.resize(with_n.columns().len() - 1, "x".into());
        values.push(500.into());
        with_n.insert_in(&mut by, &values).unwrap();
        let update = with_n.prepare_update("primary").unwrap();
        let n = with_n.column("n").unwrap();
        update.run_in(&mut by, &[1.into()], |_, row| row.set(n, 600)).unwrap();
        // Others write to the same tile meanwhile, and do not know it.
        shop.items.insert(&price(50 + round)).unwrap();
        by.abort().unwrap();
        assert!(with_n.insert(&values).is_err());
        assert!(update.run(&[1.into()], |_, row| row.set(n, 1)).is_err());
        assert!(update.run(&[1.into()], |_, row| row.add(n, 1)).is_err());
        let scan = with_n.prepare_scan(["n"]).unwrap();
        assert!(scan.sum::<u64>(&database.snapshot(), 0).is_err());
        assert_eq!(scan.count(&database.snapshot()).unwrap(), 4 + u64::from(round));
        // Another column, of another type, with the number that it had.
        let name = format!("c{round}");
        let column = NewColumn::nullable(&*name, Type::Text { max: 9 }).default(&*name);
        let with_c = database.add_column(&shop.items, &column).unwrap();
        assert_eq!(with_c.column(&name).unwrap(), 3 + round as usize);
        let update = with_c.prepare_update("primary").unwrap();
        update.run(&[2.into()], |_, row| row.set(3 + round as usize, "set")).unwrap();
        columns.push(name);
    }
    let shop = reopened(shop);
    assert_whole(&shop);
    assert_eq!(shop.items.columns().len(), 7);
    let (get, now) = (shop.items.prepare_get("primary").unwrap(), shop.database.snapshot());
    for number in [1, 2, 3, 50, 51, 52, 53u32] {
        for (at, name) in columns.iter().enumerate() {
            let read = |row: &remanent_engine::Row<'_>| Ok(row.get::<&str>(3 + at)?.to_owned());
            let found = get.run(&now, &[number.into()], read).unwrap();
            let expected = if number == 2 { "set" } else { name };
            assert_eq!(found.as_deref(), Some(expected), "{number} {at}");
        }
    }
}

#[test]
fn a_foreign_key_comes_and_goes_with_its_transaction() {
    for (how, commits) in BOTH.into_iter().flat_map(|how| [(how, true), (how, false)]) {
        let shop = shop();
        let database = &shop.database;
        let orders = database.create_table(&spec("orders")).unwrap();
        orders.insert(&[1.into(), 1.into()]).unwrap();
        orders.insert(&[2.into(), 9.into()]).unwrap();
        let key = NewForeignKey::new("of_item", ["item"], "items", ["number"]);
        let mut by = shop.begin(how);
        let refused = database.add_foreign_key_in(&mut by, &orders, &key);
        assert!(matches!(refused, Err(Error::NoParent { .. })), "{refused:?}");
        // The row that has no parent is changed by the transaction itself.
        let update = orders.prepare_update("primary").unwrap();
        update.run_in(&mut by, &[2.into()], |_, row| row.set(1, 2)).unwrap();
        database.add_foreign_key_in(&mut by, &orders, &key).unwrap();
        assert!(orders.foreign_keys().is_empty());
        // What others see has an order without an item, and is whole.
        assert_whole(&shop);
        assert_eq!(database.table_in(&by, "orders").unwrap().foreign_keys().len(), 1);
        let refused = orders.insert(&[3.into(), 77.into()]);
        assert!(matches!(refused, Err(Error::NoParent { .. })), "{refused:?}");
        match commits {
            true => by.commit().unwrap(),
            false => by.abort().unwrap(),
        }
        let inserted = orders.insert(&[3.into(), 77.into()]);
        assert_eq!(inserted.is_err(), commits, "{inserted:?}");
        assert_whole(&shop);
        if !commits {
            continue;
        }
        // It is dropped: the transaction does not check it any more, and others do.
        let mut by = shop.begin(how);
        database.drop_foreign_key_in(&mut by, &orders, "of_item").unwrap();
        let refused = database.drop_foreign_key_in(&mut by, &orders, "of_item");
        assert!(matches!(refused, Err(Error::NoSuchForeignKey { .. })), "{refused:?}");
        let delete = shop.items.prepare_delete("primary").unwrap();
        assert!(delete.run_in(&mut by, &[1.into()]).unwrap());
        assert!(orders.insert(&[4.into(), 77.into()]).is_err());
        by.abort().unwrap();
        assert!(delete.run(&[1.into()]).is_err());
        let mut by = shop.begin(how);
        database.drop_table_in(&mut by, "orders").unwrap();
        assert!(delete.run_in(&mut by, &[1.into()]).unwrap());
        database.drop_table_in(&mut by, "items").unwrap();
        by.commit().unwrap();
        assert!(database.tables().is_empty());
        drop((delete, update, orders));
        let Shop { pool, database, items } = shop;
        drop((items, database));
        assert_eq!(Database::open(&pool, "shop").unwrap().check().unwrap(), []);
    }
}

#[test]
fn a_table_that_refers_to_others_is_given_up() {
    let shop = shop();
    let database = &shop.database;
    let mut by = database.begin().unwrap();
    let of_items = spec("orders").foreign_key("of_item", ["item"], "items", ["number"]);
    let orders = database.create_table_in(&mut by, &of_items).unwrap();
    orders.insert_in(&mut by, &[1.into(), 1.into()]).unwrap();
    let delete = shop.items.prepare_delete("primary").unwrap();
    assert!(delete.run(&[1.into()]).is_err());
    let refused = database.drop_table_in(&mut by, "items");
    assert!(matches!(refused, Err(Error::Referenced { .. })), "{refused:?}");
    by.abort().unwrap();
    assert!(delete.run(&[1.into()]).unwrap());
    drop(orders);
    database.drop_table("items").unwrap();
    assert_whole(&shop);
}

#[test]
fn nobody_else_changes_the_schema_meanwhile() {
    let shop = shop();
    let (database, items) = (&shop.database, &shop.items);
    let mut by = database.begin().unwrap();
    let token = by.token();
    database.create_table_in(&mut by, &spec("orders")).unwrap();
    let refused = database.create_table(&spec("other"));
    assert!(matches!(refused, Err(Error::SchemaBusy { holder: Some(of) }) if of == token));
    assert!(refused.unwrap_err().is_conflict());
    assert!(is_busy(database.drop_table("items")));
    assert!(is_busy(database.create_index(items, &NewIndex::secondary("new", ["name"]))));
    assert!(is_busy(database.place_index(items, "primary", Placement::Dram)));
    assert!(is_busy(database.drop_index(items, "by_price")));
    assert!(is_busy(database.add_column(items, &NewColumn::nullable("n", Type::U8))));
    let key = NewForeignKey::new("self", ["number"], "items", ["number"]);
    assert!(is_busy(database.add_foreign_key(items, &key)));
    let mut other = database.begin().unwrap();
    assert!(is_busy(database.drop_index_in(&mut other, items, "by_price")));
    assert_eq!(other.statement(), 0);
    // A refused change has left nothing, and rows go on.
    shop.insert(&mut other, 4, 4).unwrap();
    other.commit().unwrap();
    by.commit().unwrap();
    database.drop_table("orders").unwrap();
    assert_whole(&shop);
}

#[test]
fn who_may_wait_gets_the_schema_when_it_is_free() {
    let shop = shop();
    let database = &shop.database;
    database.set_wait(Duration::from_secs(60));
    let mut by = database.begin().unwrap();
    database.create_table_in(&mut by, &spec("orders")).unwrap();
    thread::scope(|scope| {
        let alone = scope.spawn(|| database.drop_table("orders"));
        let in_another = scope.spawn(|| {
            let options = TransactionOptions::new().wait(Duration::from_secs(60));
            let mut other = database.begin_with(&options)?;
            database.create_table_in(&mut other, &spec("other"))?;
            other.commit()
        });
        thread::sleep(Duration::from_millis(20));
        by.commit().unwrap();
        alone.join().unwrap().unwrap();
        in_another.join().unwrap().unwrap();
    });
    assert_eq!(database.tables(), ["items", "other"]);
    // Two that wait for each other.
    let options = TransactionOptions::new().wait(Duration::from_secs(60));
    let (mut one, mut other) =
        (database.begin_with(&options).unwrap(), database.begin_with(&options).unwrap());
    database.drop_table_in(&mut one, "other").unwrap();
    shop.set(&mut other, 1, 5);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let update = shop.items.prepare_update("primary").unwrap();
            let done = update.run_in(&mut one, &[1.into()], |_, row| row.set(2, 6));
            drop(one);
            done
        });
        let refused = database.create_table_in(&mut other, &spec("third"));
        drop(other);
        let waited = waiting.join().unwrap();
        let is_deadlock =
            |error: &Error| matches!(error, Error::Deadlock { .. } | Error::SchemaDeadlock { .. });
        assert!(
            refused.as_ref().is_err_and(is_deadlock) != waited.as_ref().is_err_and(is_deadlock),
            "{refused:?} {waited:?}"
        );
    });
    assert_whole(&shop);
}

#[test]
fn a_transaction_whose_time_is_over_gives_the_schema_back() {
    let shop = shop();
    let database = &shop.database;
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let of_clock = std::sync::Arc::clone(&clock);
    database.set_clock(move || {
        Duration::from_millis(of_clock.load(std::sync::atomic::Ordering::Relaxed))
    });
    let mut by = database.begin().unwrap();
    let index = NewIndex::unique("names", ["price", "name"]);
    database.create_index_in(&mut by, &shop.items, &index).unwrap();
    shop.set(&mut by, 1, 7);
    let token = by.suspend();
    clock.store(120_000, std::sync::atomic::Ordering::Relaxed);
    // A statement in whose way it is finds that out, in the midst of its work.
    let update = shop.items.prepare_update("primary").unwrap();
    update.run(&[1.into()], |_, row| row.set(2, 8)).unwrap();
    assert!(matches!(database.resume(token).unwrap(), Resumed::Aborted));
    database.create_index(&shop.items, &index).unwrap();
    assert_whole(&shop);
    // And so does who changes the schema.
    let mut by = database.begin().unwrap();
    database.drop_table_in(&mut by, "items").unwrap();
    by.suspend();
    clock.store(240_000, std::sync::atomic::Ordering::Relaxed);
    database.create_table(&spec("orders")).unwrap();
    assert_eq!(database.tables(), ["items", "orders"]);
    assert_whole(&shop);
}

#[test]
fn a_change_is_a_statement() {
    let shop = shop();
    let database = &shop.database;
    let mut by = database.begin().unwrap();
    let refused = by.batch(|batch| database.create_table_in(batch, &spec("orders")).map(drop));
    assert!(matches!(refused, Err(Error::InBatch)), "{refused:?}");
    by.commit_with(|last| database.create_table_in(last, &spec("orders")).map(drop)).unwrap();
    assert_eq!(database.tables(), ["items", "orders"]);
    assert!(matches!(database.create_table_in(&mut by, &spec("x")), Err(Error::TransactionEnded)));
    let mut by = database.begin().unwrap();
    let orders = database.create_table_in(&mut by, &spec("more")).unwrap();
    by.commit_with(|last| orders.insert_in(last, &[1.into(), 1.into()])).unwrap();
    assert_eq!(ids(&orders, &database.snapshot()).unwrap(), [1]);
    // Of another database.
    let other = crate::shop::shop();
    let mut by = other.database.begin().unwrap();
    let refused = database.create_table_in(&mut by, &spec("x"));
    assert!(matches!(refused, Err(Error::OtherDatabase)), "{refused:?}");
    let refused = database.create_table_in(&mut database.begin().unwrap(), &spec("remanent.x"));
    assert!(matches!(refused, Err(Error::Schema { .. })), "{refused:?}");
    drop(orders);
    assert_whole(&shop);
}

#[test]
fn upserts_and_ranges_work_in_a_table_that_is_not_there_for_others() {
    let shop = shop();
    let database = &shop.database;
    let mut by = database.begin_with(&at_commit()).unwrap();
    let ordered = spec("orders").ordered(["by_item"]);
    let orders = database.create_table_in(&mut by, &ordered).unwrap();
    let upsert = orders.prepare_upsert("primary").unwrap();
    for id in [1, 2, 1u32] {
        let done = upsert.run_in(&mut by, &[id.into(), 1.into()], |_, row| row.add(1, 1)).unwrap();
        assert!(matches!(done, Upserted::Inserted(_) | Upserted::Changed(())));
    }
    let range = orders.prepare_range("by_item").unwrap();
    let mut found = Vec::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let visit = |row: &remanent_engine::Row<'_>| {
        found.push(row.get::<u32>(0).unwrap());
        ControlFlow::<()>::Continue(())
    };
    range.run(&by, all, remanent_engine::Order::Ascending, visit).unwrap();
    assert_eq!(found, [2, 1]);
    let now = database.snapshot();
    let none = range
        .run(&now, all, remanent_engine::Order::Ascending, |_| ControlFlow::<()>::Continue(()));
    assert!(is_gone(none));
    assert!(is_gone(upsert.run(&[1.into(), 1.into()], |_, _| Ok(()))));
    by.commit().unwrap();
    assert_whole(&shop);
}

fn set(by: &mut Transaction<'_>, table: &Table, number: u32, price: i64) {
    let update = table.prepare_update("primary").unwrap();
    update.run_in(by, &[number.into()], |_, row| row.set(2, price)).unwrap();
}

impl Shop {
    fn set(&self, by: &mut Transaction<'_>, number: u32, price: i64) {
        set(by, &self.items, number, price);
    }
}

#[test]
fn a_table_has_no_more_indexes_than_can_be_read() {
    let shop = shop();
    let (database, items) = (&shop.database, &shop.items);
    let count = items.indexes().len();
    for number in count..64 {
        let index = NewIndex::secondary(format!("i{number}"), ["name"]).place(Placement::Dram);
        database.create_index(items, &index).unwrap();
    }
    let mut by = database.begin().unwrap();
    database.drop_index_in(&mut by, items, "i9").unwrap();
    let refused = database.create_index_in(&mut by, items, &NewIndex::secondary("new", ["name"]));
    assert!(matches!(refused, Err(Error::Index { .. })), "{refused:?}");
    by.commit().unwrap();
    database.create_index(items, &NewIndex::secondary("new", ["name"])).unwrap();
    let shop = reopened(shop);
    assert_eq!(shop.items.indexes().len(), 64);
    assert_whole(&shop);
}

#[test]
fn an_index_is_unique_from_the_commit_of_its_transaction_on() {
    let shop = shop();
    let (database, items) = (&shop.database, &shop.items);
    let mut by = database.begin().unwrap();
    for number in 1..=3 {
        shop.set(&mut by, number, i64::from(number));
    }
    database.create_index_in(&mut by, items, &NewIndex::unique("prices", ["price"])).unwrap();
    items.insert(&[9.into(), 9.into(), 90.into()]).unwrap();
    let before = database.snapshot();
    by.commit().unwrap();
    let get = items.prepare_get("prices").unwrap();
    let found = get.run(&before, &[100.into()], |row| row.get::<u32>(0));
    assert!(matches!(found, Err(Error::Ambiguous { .. })), "{found:?}");
    let now = database.snapshot();
    assert_eq!(get.run(&now, &[2.into()], |row| row.get::<u32>(0)).unwrap(), Some(2));
    assert_whole(&shop);
}

#[test]
fn a_foreign_key_goes_by_an_index_that_stays() {
    for how in BOTH {
        let shop = shop();
        let (database, items) = (&shop.database, &shop.items);
        let orders = database.create_table(&spec("orders")).unwrap();
        orders.insert(&[1.into(), 1.into()]).unwrap();
        let mut by = shop.begin(how);
        let add = |by: &mut Transaction<'_>, table: &Table, name: &str, columns: [&str; 1]| {
            database.create_index_in(by, table, &NewIndex::secondary(name, columns))
        };
        add(&mut by, &orders, "b", ["item"]).unwrap();
        database.drop_index_in(&mut by, &orders, "by_item").unwrap();
        let key = NewForeignKey::new("of_item", ["item"], "items", ["number"]);
        database.add_foreign_key_in(&mut by, &orders, &key).unwrap();
        let refused = database.drop_index_in(&mut by, &orders, "b");
        assert!(matches!(refused, Err(Error::IndexNeeded { .. })), "{refused:?}");
        by.commit().unwrap();
        let delete = items.prepare_delete("primary").unwrap();
        let refused = delete.run(&[1.into()]);
        assert!(matches!(refused, Err(Error::HasChildren { .. })), "{refused:?}");
        drop((delete, orders));
        let shop = reopened(shop);
        let delete = shop.items.prepare_delete("primary").unwrap();
        assert!(matches!(delete.run(&[1.into()]), Err(Error::HasChildren { .. })));
        assert_whole(&shop);
    }
}

#[test]
fn others_reach_no_column_that_is_promised_by_a_handle_of_its_transaction() {
    let shop = shop();
    let mut by = shop.database.begin().unwrap();
    let column = NewColumn::nullable("n", Type::U8);
    let with_n = shop.database.add_column_in(&mut by, &shop.items, &column).unwrap();
    let row =
        |number: u32| -> [Value<'static>; 4] { [number.into(), number.into(), 1.into(), 5.into()] };
    assert!(matches!(with_n.insert(&row(7)), Err(Error::Values { expected: 3, .. })));
    with_n.insert_in(&mut by, &row(8)).unwrap();
    by.commit().unwrap();
    with_n.insert(&row(7)).unwrap();
    assert_whole(&shop);
}
