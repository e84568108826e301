//! Indexes that are made, dropped and moved while others read and change their table.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_engine::{
    Database, Durability, Error, IndexKind, IndexSpec, LockMode, Moment, NewIndex, Order,
    Placement, Rebuild, Resumed, Row, RowId, Structure, Table, TableSpec, Transaction,
    TransactionOptions, Type, Value,
};
use remanent_pmem::Pool;

/// Only `id` is among the key columns of a row.
fn people() -> TableSpec {
    TableSpec::new("people")
        .column("id", Type::U32)
        .nullable("name", Type::Text { max: 20 })
        .column("year", Type::U16)
        .column("remark", Type::Text { max: 40 })
        .primary_key(["id"])
        .tile_rows(7)
}

fn fresh() -> (Pool, Database, Table) {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&people()).unwrap();
    (pool, database, table)
}

fn insert(table: &Table, id: u32, name: Option<&str>, year: u16) -> Result<RowId, Error> {
    table.insert(&[id.into(), Value::from(name), year.into(), "a remark".into()])
}

/// Rows of which some were changed, and some removed.
fn fill(table: &Table, count: u32) {
    for id in 0..count {
        let name = (id % 5 != 0).then(|| format!("name {id}"));
        insert(table, id, name.as_deref(), id as u16 % 11).unwrap();
    }
    let update = table.prepare_update("primary").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    for id in (0..count).step_by(3) {
        update.run(&[id.into()], |_, row| row.set(2, id as u16 % 7)).unwrap();
    }
    for id in (0..count).step_by(4) {
        assert!(delete.run(&[id.into()]).unwrap());
    }
}

/// The cells of a row, as text that can be compared and told.
fn cells(row: &Row<'_>, columns: &[usize]) -> Vec<String> {
    columns.iter().map(|&column| row.value(column).unwrap().to_string()).collect()
}

type ByKey = BTreeMap<Vec<String>, BTreeSet<RowId>>;

/// Compares what an index leads to with what a scan of the table finds.
fn require_exact(table: &Table, moment: &impl Moment<remanent_pmem::Mapped>, index: &IndexSpec) {
    let (mut expected, mut values) = (ByKey::new(), BTreeMap::new());
    let done = table.scan(moment, |row| {
        let of_row: Vec<Option<String>> = index
            .columns
            .iter()
            .map(|&column| (row.value(column).unwrap() != Value::Null).then(|| text(row, column)))
            .collect();
        let is_in = index.structure == Structure::Ordered || of_row.iter().all(Option::is_some);
        if is_in {
            let key = cells(row, &index.columns);
            expected.entry(key.clone()).or_default().insert(row.id());
            values.insert(key, of_row);
        }
        ControlFlow::<()>::Continue(())
    });
    done.unwrap();
    let find = table.prepare_find(&index.name).unwrap();
    for (key, rows) in &expected {
        let Some(of_key) = values[key].iter().cloned().collect::<Option<Vec<String>>>() else {
            continue;
        };
        let of_key: Vec<Value<'_>> =
            index.columns.iter().zip(&of_key).map(|(&column, text)| value(column, text)).collect();
        let mut found = BTreeSet::new();
        let visit = |row: &Row<'_>| {
            assert!(found.insert(row.id()), "twice: {row:?}");
            ControlFlow::<()>::Continue(())
        };
        find.run(moment, &of_key, visit).unwrap();
        assert_eq!(found, *rows, "{key:?} in {}", index.name);
        if index.kind.is_unique() {
            let get = table.prepare_get(&index.name).unwrap();
            let found = get.run(moment, &of_key, |row| Ok(row.id())).unwrap();
            assert_eq!(found, rows.first().copied(), "{key:?} in {}", index.name);
        }
    }
    if index.structure == Structure::Ordered {
        let mut found = ByKey::new();
        let range = table.prepare_range(&index.name).unwrap();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let visit = |row: &Row<'_>| {
            let is_new = found.entry(cells(row, &index.columns)).or_default().insert(row.id());
            assert!(is_new, "twice: {row:?}");
            ControlFlow::<()>::Continue(())
        };
        range.run(moment, all, Order::Ascending, visit).unwrap();
        assert_eq!(found, expected, "{}", index.name);
    }
}

/// A value that is one, without quotes.
fn text(row: &Row<'_>, column: usize) -> String {
    match row.value(column).unwrap() {
        Value::Text(text) => text.to_owned(),
        value => value.to_string(),
    }
}

fn value(column: usize, text: &str) -> Value<'_> {
    match column {
        0 | 2 => text.parse::<u64>().unwrap().into(),
        _ => text.into(),
    }
}

fn require_all_exact(database: &Database, table: &Table) {
    for index in table.indexes() {
        require_exact(table, &database.snapshot(), &index);
    }
    assert_eq!(database.check().unwrap(), []);
}

/// One of each kind.
fn all_kinds() -> Vec<NewIndex> {
    let mut all = Vec::new();
    for placement in [Placement::Pmem, Placement::Dram] {
        let name = |what: &str| format!("{what} {placement:?}");
        all.push(NewIndex::unique(name("name"), ["name"]).place(placement));
        all.push(NewIndex::unique(name("id"), ["id", "year"]).place(placement).ordered());
        all.push(NewIndex::secondary(name("year"), ["year"]).place(placement));
        let columns = ["name", "year", "id"];
        all.push(NewIndex::secondary(name("ordered"), columns).place(placement).ordered());
    }
    all
}

#[test]
fn an_index_of_each_kind_is_made_moved_and_there_after_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&people()).unwrap();
    fill(&table, 100);
    let before = database.snapshot();
    let update = table.prepare_update("primary").unwrap();
    for id in [1u32, 2, 3, 5] {
        update.run(&[id.into()], |_, row| row.set(1, format!("new {id}").as_str())).unwrap();
    }
    for index in all_kinds() {
        database.create_index(&table, &index).unwrap();
        assert_eq!(table.indexes().last().unwrap().name, index.name());
    }
    for index in table.indexes() {
        require_exact(&table, &before, &index);
    }
    drop(before);
    require_all_exact(&database, &table);
    fill_more(&table, 200);
    require_all_exact(&database, &table);
    for index in table.indexes() {
        let other = match index.placement {
            Placement::Pmem => Placement::Dram,
            _ => Placement::Pmem,
        };
        database.place_index(&table, &index.name, other).unwrap();
        assert_eq!(table.placement(&index.name).unwrap(), other);
        database.place_index(&table, &index.name, other).unwrap();
    }
    require_all_exact(&database, &table);
    let indexes = table.indexes();
    drop((update, table, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::options().rebuild(Rebuild::Steps).open(&pool, "db").unwrap();
    let table = database.table("people").unwrap();
    assert_eq!(table.indexes(), indexes);
    // One is moved that was not rebuilt yet.
    database.place_index(&table, "year Pmem", Placement::Pmem).unwrap();
    fill_more(&table, 300);
    require_all_exact(&database, &table);
    for index in table.indexes().iter().filter(|index| index.kind != IndexKind::Primary) {
        database.drop_index(&table, &index.name).unwrap();
    }
    drop((table, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let table = database.table("people").unwrap();
    assert_eq!(table.indexes().len(), 1);
    // The columns lie where they did, though no index has them.
    require_all_exact(&database, &table);
}

fn fill_more(table: &Table, from: u32) {
    for id in from..from + 40 {
        insert(table, id, Some(&format!("name {id}")), 3).unwrap();
    }
    let update = table.prepare_update("primary").unwrap();
    for id in (from..from + 40).step_by(2) {
        update.run(&[id.into()], |_, row| row.set(2, 4u16)).unwrap();
    }
}

#[test]
fn wrong_descriptions_are_refused_and_change_nothing() {
    let (_pool, database, table) = fresh();
    fill(&table, 20);
    let indexes = table.indexes();
    let long = "n".repeat(200);
    for (index, told) in [
        (NewIndex::secondary("", ["id"]), "0 bytes"),
        (NewIndex::secondary(long, ["id"]), "200 bytes"),
        (NewIndex::secondary("i", []), "no columns"),
        (NewIndex::secondary("i", ["nobody"]), "no column \"nobody\""),
        (NewIndex::secondary("i", ["id", "id"]), "twice"),
        (NewIndex::unique("primary", ["name"]), "\"primary\""),
    ] {
        let refused = database.create_index(&table, &index).unwrap_err();
        assert!(matches!(refused, Error::Index { .. }), "{refused}");
        assert!(refused.to_string().contains(told), "{refused}");
    }
    database.create_index(&table, &NewIndex::secondary("i", ["year"])).unwrap();
    let twice = database.create_index(&table, &NewIndex::unique("i", ["name"])).unwrap_err();
    assert!(twice.to_string().contains("two indexes have the name \"i\""), "{twice}");
    database.drop_index(&table, "i").unwrap();
    assert_eq!(table.indexes(), indexes);

    let primary = database.drop_index(&table, "primary").unwrap_err();
    assert!(matches!(primary, Error::PrimaryKey { .. }), "{primary}");
    let none = database.drop_index(&table, "i").unwrap_err();
    assert!(matches!(none, Error::NoSuchIndex { .. }), "{none}");
    let none = database.place_index(&table, "i", Placement::Dram).unwrap_err();
    assert!(matches!(none, Error::NoSuchIndex { .. }), "{none}");
    let other = fresh();
    let refused = other.1.create_index(&table, &NewIndex::secondary("i", ["year"])).unwrap_err();
    assert!(matches!(refused, Error::OtherDatabase), "{refused}");

    for number in 1..64 {
        let index = NewIndex::secondary(format!("i {number}"), ["year"]).place(Placement::Dram);
        database.create_index(&table, &index).unwrap();
    }
    let refused = database.create_index(&table, &NewIndex::unique("i", ["id"])).unwrap_err();
    assert!(refused.to_string().contains("64 indexes"), "{refused}");
    require_all_exact(&database, &table);

    database.drop_table("people").unwrap();
    let gone = database.create_index(&table, &NewIndex::unique("i", ["id"])).unwrap_err();
    assert!(matches!(gone, Error::NoSuchTable { .. }), "{gone}");
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn an_index_is_not_unique_while_two_rows_have_a_key() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let (_pool, database, table) = fresh();
        fill(&table, 30);
        let one = insert(&table, 100, Some("same"), 1).unwrap();
        let other = insert(&table, 101, Some("same"), 1).unwrap();
        let by_name = NewIndex::unique("by_name", ["name"]).place(placement);
        let refused = database.create_index(&table, &by_name).unwrap_err();
        let Error::Duplicate { key, mut rows, .. } = refused else { panic!("{refused}") };
        rows.sort();
        assert_eq!((key.as_str(), rows), ("\"same\"", [one, other]));
        assert!(table.prepare_get("by_name").is_err());
        require_all_exact(&database, &table);

        // They have it for a reader of now alone.
        let before = database.snapshot();
        let mut older = database.begin().unwrap();
        let update = table.prepare_update("primary").unwrap();
        update.run(&[101.into()], |_, row| row.set(1, "another")).unwrap();
        let between = database.snapshot();
        insert(&table, 102, Some("latest"), 1).unwrap();
        database.create_index(&table, &by_name).unwrap();
        let get = table.prepare_get("by_name").unwrap();
        let id = |row: &Row<'_>| row.get::<u32>(0);
        let then = get.run(&before, &["same".into()], id).unwrap_err();
        assert!(matches!(then, Error::Ambiguous { .. }), "{then}");
        assert_eq!(get.run(&before, &["name 1".into()], id).unwrap(), Some(1));
        assert_eq!(get.run(&before, &["another".into()], id).unwrap(), None);
        assert_eq!(get.run(&between, &["same".into()], id).unwrap(), Some(100));
        assert_eq!(get.run(&database.snapshot(), &["same".into()], id).unwrap(), Some(100));
        assert!(matches!(insert(&table, 103, Some("same"), 1), Err(Error::Unique { .. })));
        require_changes_ambiguous(&table, &mut older);
        older.abort().unwrap();
        drop((before, between));
        require_all_exact(&database, &table);
    }
}

/// For a transaction at whose moment two rows had the key "same" of the index "by_name".
fn require_changes_ambiguous(table: &Table, older: &mut Transaction<'_>) {
    let key = ["same".into()];
    let update = table.prepare_update("by_name").unwrap();
    let delete = table.prepare_delete("by_name").unwrap();
    let upsert = table.prepare_upsert("by_name").unwrap();
    let get = table.prepare_get("by_name").unwrap();
    let row = [104.into(), "same".into(), 1.into(), "".into()];
    let refused = [
        update.run_in(older, &key, |_, row| row.set(2, 7)).map(drop),
        delete.run_in(older, &key).map(drop),
        upsert.run_in(older, &row, |_, row| row.set(2, 7)).map(drop),
        get.lock_in(older, &key, LockMode::Wait, |_| Ok(())).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Ambiguous { .. })), "{refused:?}");
    }
    assert_eq!(older.statement(), 0);
}

#[test]
fn an_open_transaction_that_decides_whether_a_key_is_unique_is_named() {
    let (_pool, database, table) = fresh();
    insert(&table, 1, Some("one"), 1).unwrap();
    let by_name = NewIndex::unique("by_name", ["name"]);
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let options = TransactionOptions::new().durability(durability);
        let mut open = database.begin_with(&options).unwrap();
        table.insert_in(&mut open, &[2.into(), "one".into(), 1.into(), "".into()]).unwrap();
        let refused = database.create_index(&table, &by_name).unwrap_err();
        let Error::Conflict { holder, .. } = refused else { panic!("{refused}") };
        assert_eq!(holder, Some(open.token()));
        open.abort().unwrap();
        assert_eq!(database.check().unwrap(), []);
    }
    database.create_index(&table, &by_name).unwrap();
    require_all_exact(&database, &table);
}

#[test]
fn handles_of_a_dropped_index_say_so_and_those_of_a_moved_one_go_on() {
    let (_pool, database, table) = fresh();
    fill(&table, 50);
    database.create_index(&table, &NewIndex::unique("by_name", ["name"]).ordered()).unwrap();
    let get = table.prepare_get("by_name").unwrap();
    let find = table.prepare_find("by_name").unwrap();
    let range = table.prepare_range("by_name").unwrap();
    let update = table.prepare_update("by_name").unwrap();
    let delete = table.prepare_delete("by_name").unwrap();
    let all = || (Bound::Unbounded, Bound::Unbounded);
    for placement in [Placement::Dram, Placement::Pmem, Placement::Dram] {
        database.place_index(&table, "by_name", placement).unwrap();
        // It has this in the newest index alone.
        let id = if placement == Placement::Pmem { 200u32 } else { 201 };
        let name = format!("{placement:?} {}", database.snapshot().stamp());
        insert(&table, id, Some(&name), 1).unwrap();
        let key = [name.as_str().into()];
        let now = database.snapshot();
        assert_eq!(get.run(&now, &key, |row| row.get(0)).unwrap(), Some(id));
        assert_eq!(get.clone().run(&now, &key, |row| row.get(0)).unwrap(), Some(id));
        let found = find.run(&now, &key, |row| ControlFlow::Break(row.get(0).unwrap())).unwrap();
        assert_eq!(found, Some(id));
        let mut count = 0;
        let visit = |_: &Row<'_>| {
            count += 1;
            ControlFlow::<()>::Continue(())
        };
        range.run(&now, all(), Order::Descending, visit).unwrap();
        let mut expected = 0;
        let visit = |_: &Row<'_>| {
            expected += 1;
            ControlFlow::<()>::Continue(())
        };
        table.scan(&now, visit).unwrap();
        assert_eq!(count, expected);
        assert!(update.run(&key, |_, row| row.set(2, 9u16)).unwrap().is_some());
        let mut open = database.begin().unwrap();
        assert!(get.lock_in(&mut open, &key, LockMode::NoWait, |_| Ok(())).unwrap().is_some());
        open.abort().unwrap();
        assert!(delete.run(&key).unwrap());
    }
    let upsert = table.prepare_upsert("by_name").unwrap();
    database.drop_index(&table, "by_name").unwrap();
    let key = ["name 1".into()];
    let is_told = |error: Error| {
        assert!(matches!(&error, Error::IndexDropped { index, .. } if index == "by_name"));
        assert!(error.to_string().contains("prepare it for another index"), "{error}");
    };
    let now = database.snapshot();
    is_told(get.run(&now, &key, |_| Ok(())).unwrap_err());
    is_told(find.run(&now, &key, |_| ControlFlow::<()>::Continue(())).unwrap_err());
    let visit = |_: &Row<'_>| ControlFlow::<()>::Continue(());
    is_told(range.run(&now, all(), Order::Ascending, visit).unwrap_err());
    is_told(update.run(&key, |_, _| Ok(())).unwrap_err());
    is_told(delete.run(&key).unwrap_err());
    for name in [Value::Null, "name 1".into()] {
        let row = [900.into(), name, 1.into(), "".into()];
        is_told(upsert.run(&row, |_, _| Ok(())).unwrap_err());
    }
    let mut open = database.begin().unwrap();
    is_told(get.lock_in(&mut open, &key, LockMode::Wait, |_| Ok(())).unwrap_err());
    // Another one of the name is another index.
    database.create_index(&table, &NewIndex::unique("by_name", ["name"])).unwrap();
    is_told(get.run(&now, &key, |_| Ok(())).unwrap_err());
    assert!(table.prepare_get("by_name").unwrap().run(&now, &key, |_| Ok(())).unwrap().is_some());
    drop((open, now, get, find, range, update, delete));
    require_all_exact(&database, &table);
}

#[test]
fn open_transactions_and_batches_go_on_across_each_change() {
    for placement in [Placement::Pmem, Placement::Dram] {
        for durability in [Durability::EachStatement, Durability::AtCommit] {
            for is_commit in [true, false] {
                across(placement, durability, is_commit);
            }
        }
    }
}

/// A transaction has changed rows before an index is made, dropped or moved, and ends behind it.
fn across(placement: Placement, durability: Durability, is_commit: bool) {
    let (_pool, database, table) = fresh();
    fill(&table, 40);
    database.create_index(&table, &NewIndex::secondary("dropped", ["year"])).unwrap();
    database.create_index(&table, &NewIndex::unique("moved", ["name"]).place(placement)).unwrap();
    let other = if placement == Placement::Pmem { Placement::Dram } else { Placement::Pmem };
    let before = database.snapshot();
    let update = table.prepare_update("primary").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    let set = |name: &'static str, year: u16| {
        move |_: &Row<'_>, row: &mut remanent_engine::Changes<'_>| {
            row.set(1, name)?;
            row.set(2, year)
        }
    };
    let options = TransactionOptions::new().durability(durability);
    let mut open = database.begin_with(&options).unwrap();
    table.insert_in(&mut open, &[100.into(), "hundred".into(), 50.into(), "".into()]).unwrap();
    update.run_in(&mut open, &[1.into()], set("first", 51)).unwrap();
    update.run_in(&mut open, &[1.into()], set("second", 52)).unwrap();
    assert!(delete.run_in(&mut open, &[2.into()]).unwrap());
    let refused = open.batch(|batch| -> Result<(), Error> {
        update.run_in(batch, &[1.into()], set("in a batch", 53))?;
        update.run_in(batch, &[5.into()], set("fifth", 54))?;
        table.insert_in(batch, &[101.into(), "of a batch".into(), 55.into(), "".into()])?;
        let inner = batch.batch(|inner| -> Result<(), Error> {
            update.run_in(inner, &[5.into()], set("deeper", 56))?;
            database
                .create_index(&table, &NewIndex::secondary("year", ["year"]).place(placement))?;
            let ordered = NewIndex::secondary("ordered", ["year", "name"]).ordered();
            database.create_index(&table, &ordered.place(placement))?;
            database.place_index(&table, "moved", other)?;
            database.drop_index(&table, "dropped")?;
            for index in table.indexes() {
                require_exact(&table, inner, &index);
                require_exact(&table, &before, &index);
            }
            update.run_in(inner, &[6.into()], set("deepest", 57))?;
            Err(Error::TransactionEnded)
        });
        assert!(inner.is_err());
        for index in table.indexes() {
            require_exact(&table, batch, &index);
        }
        match is_commit {
            true => Ok(()),
            false => Err(Error::TransactionEnded),
        }
    });
    assert_eq!(refused.is_ok(), is_commit);
    for index in table.indexes() {
        require_exact(&table, &open, &index);
        require_exact(&table, &database.snapshot(), &index);
    }
    let token = open.suspend();
    let Resumed::Open(open) = database.resume(token).unwrap() else { panic!("it is open") };
    match is_commit {
        true => open.commit().unwrap(),
        false => open.abort().unwrap(),
    }
    for index in table.indexes() {
        require_exact(&table, &before, &index);
    }
    drop(before);
    database.collect().unwrap();
    require_all_exact(&database, &table);
}

#[test]
fn an_index_is_whole_for_a_transaction_that_an_earlier_process_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&people()).unwrap();
    fill(&table, 40);
    let mut open = database.begin().unwrap();
    let update = table.prepare_update("primary").unwrap();
    update.run_in(&mut open, &[1.into()], |_, row| row.set(2, 77u16)).unwrap();
    table.insert_in(&mut open, &[100.into(), "new".into(), 78.into(), "".into()]).unwrap();
    let token = open.suspend();
    drop((update, table, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let table = database.table("people").unwrap();
    let year = NewIndex::secondary("year", ["year"]);
    database.create_index(&table, &year).unwrap();
    let Resumed::Open(open) = database.resume(token).unwrap() else { panic!("it is open") };
    require_exact(&table, &open, table.indexes().last().unwrap());
    open.commit().unwrap();
    require_all_exact(&database, &table);
}

/// Others change rows meanwhile: they insert, update, remove, in transactions and alone.
fn churn(database: &Database, table: &Table, thread: u32, is_done: &AtomicBool) -> u32 {
    let update = table.prepare_update("primary").unwrap();
    let delete = table.prepare_delete("primary").unwrap();
    let (mut turn, mut random) = (0u32, thread.wrapping_mul(0x9e37_79b9) | 1);
    let mut next = |below: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % below
    };
    while !is_done.load(Ordering::Relaxed) || turn < 300 {
        turn += 1;
        let id = 1_000 * thread + next(60);
        let name = format!("{thread} {}", next(40));
        let year = next(9) as u16;
        let done = match next(6) {
            0 | 1 => insert(table, id, Some(&name), year).map(drop),
            2 => update
                .run(&[id.into()], |_, row| {
                    row.set(1, name.as_str())?;
                    row.set(2, year)
                })
                .map(drop),
            3 => delete.run(&[id.into()]).map(drop),
            kind => {
                let at_commit = kind == 4;
                let how = if at_commit { Durability::AtCommit } else { Durability::EachStatement };
                let options = TransactionOptions::new().durability(how);
                let mut open = database.begin_with(&options).unwrap();
                let done = update
                    .run_in(&mut open, &[id.into()], |_, row| row.set(1, name.as_str()))
                    .and_then(|_| {
                        open.batch(|batch| {
                            update.run_in(batch, &[(id + 1).into()], |_, row| row.set(2, year))?;
                            update.run_in(batch, &[id.into()], |_, row| row.set(2, year))
                        })
                    });
                let ended = if next(3) == 0 { open.abort() } else { open.commit() };
                done.map(drop).and(ended)
            }
        };
        match done {
            Ok(())
            | Err(Error::Unique { .. } | Error::Conflict { .. } | Error::Overtaken { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    turn
}

#[test]
fn threads_change_rows_while_indexes_are_made_moved_and_dropped() {
    let (_pool, database, table) = fresh();
    fill(&table, 300);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..=3 {
            let (database, table, is_done) = (&database, &table, &is_done);
            scope.spawn(move || churn(database, table, thread, is_done));
        }
        for round in 0..6 {
            let placements = [Placement::Pmem, Placement::Dram];
            let placement = placements[round % 2];
            let year = NewIndex::secondary("year", ["year"]).place(placement);
            database.create_index(&table, &year).unwrap();
            let ordered = NewIndex::secondary("ordered", ["name", "year"]).ordered();
            database.create_index(&table, &ordered.place(placement)).unwrap();
            require_all_exact_now(&database, &table);
            for index in ["year", "ordered", "primary"] {
                database.place_index(&table, index, placements[(round + 1) % 2]).unwrap();
                require_all_exact_now(&database, &table);
            }
            for index in ["year", "ordered"] {
                database.drop_index(&table, index).unwrap();
            }
        }
        let year = NewIndex::secondary("year", ["year"]);
        database.create_index(&table, &year).unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
    database.collect().unwrap();
    require_all_exact(&database, &table);
}

/// As of one moment, while others go on.
fn require_all_exact_now(database: &Database, table: &Table) {
    let now = database.snapshot();
    for index in table.indexes() {
        require_exact(table, &now, &index);
    }
}

#[test]
fn a_unique_index_is_made_or_refused_while_threads_insert_its_keys() {
    let mut made = 0;
    for round in 0..30u32 {
        let (_pool, database, table) = fresh();
        fill(&table, 20);
        let placement = if round % 2 == 0 { Placement::Pmem } else { Placement::Dram };
        let is_made = thread::scope(|scope| {
            for thread in 1..=2u32 {
                let table = &table;
                scope.spawn(move || {
                    for turn in 0..60 {
                        // Both insert the same name, sooner or later.
                        let name = format!("x {}", (turn * 7 + thread * round) % 60);
                        match insert(table, 1_000 * thread + turn, Some(&name), 1) {
                            Ok(_) | Err(Error::Unique { .. } | Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            match database
                .create_index(&table, &NewIndex::unique("name", ["name"]).place(placement))
            {
                Ok(()) => true,
                Err(Error::Duplicate { .. } | Error::Conflict { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        });
        made += u32::from(is_made);
        assert_eq!(table.indexes().len(), 1 + usize::from(is_made));
        require_all_exact(&database, &table);
    }
    assert!(made > 0, "none was made");
}

#[test]
fn a_unique_index_is_unique_while_it_is_moved() {
    let (_pool, database, table) = fresh();
    database.create_index(&table, &NewIndex::unique("name", ["name"])).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..=2u32 {
            let (table, is_done) = (&table, &is_done);
            scope.spawn(move || {
                let delete = table.prepare_delete("name").unwrap();
                let mut turn = 0u32;
                while !is_done.load(Ordering::Relaxed) {
                    turn += 1;
                    let name = format!("x {}", turn % 5);
                    let inserted = insert(table, 1_000_000 * thread + turn, Some(&name), 1);
                    match inserted {
                        Ok(_) | Err(Error::Unique { .. } | Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    match delete.run(&[name.as_str().into()]) {
                        Ok(_) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for round in 0..60 {
            let placement = if round % 2 == 0 { Placement::Dram } else { Placement::Pmem };
            database.place_index(&table, "name", placement).unwrap();
            require_all_exact_now(&database, &table);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    require_all_exact(&database, &table);
}

#[test]
fn an_index_that_finds_no_room_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db.pool");
    let pool = Pool::options().size_max(20 << 20).create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&people().tile_rows(10_000)).unwrap();
    let ballast = Database::create(&pool, "ballast").unwrap();
    let room = ballast.create_table(&people()).unwrap();
    fill(&room, 100);
    drop((room, ballast));
    let mut count = 0u32;
    while insert(&table, count, Some(&format!("name {count}")), 1).is_ok() {
        count += 1;
    }
    for index in [
        NewIndex::unique("name", ["name"]),
        NewIndex::secondary("ordered", ["name", "id"]).ordered(),
    ] {
        let full = database.create_index(&table, &index).unwrap_err();
        assert!(full.is_full(), "{full}");
        assert_eq!(table.indexes().len(), 1);
        assert_eq!(database.check().unwrap(), []);
    }
    // DRAM has room, and the pool has some for other catalogs.
    pool.remove_root("ballast").unwrap();
    database
        .create_index(&table, &NewIndex::unique("name", ["name"]).place(Placement::Dram))
        .unwrap();
    let chunks = pool.check().unwrap().chunks_used;
    database.place_index(&table, "primary", Placement::Dram).unwrap();
    assert!(pool.check().unwrap().chunks_used < chunks);
    require_all_exact(&database, &table);
    drop((table, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    require_all_exact(&database, &database.table("people").unwrap());
}

#[test]
fn dropping_and_moving_give_space_back() {
    let (pool, database, table) = fresh();
    for id in 0..20_000u32 {
        insert(&table, id, None, id as u16 % 1_000).unwrap();
    }
    let used = || pool.check().unwrap().chunks_used;
    let before = used();
    let mut left = BTreeSet::new();
    for _ in 0..3 {
        let year = NewIndex::secondary("year", ["year", "id"]).ordered();
        database.create_index(&table, &year).unwrap();
        let there = used();
        assert!(there > before + 16);
        database.place_index(&table, "year", Placement::Dram).unwrap();
        // The allocator keeps a few chunks for what comes.
        assert!(used() < before + 12, "{before}, {there}, {}", used());
        database.place_index(&table, "year", Placement::Pmem).unwrap();
        assert!(used() > before + 8);
        let find = table.prepare_find("year").unwrap();
        database.drop_index(&table, "year").unwrap();
        // A handle keeps it.
        assert!(used() > before + 8);
        assert_eq!(database.check().unwrap(), []);
        drop(find);
        database.collect().unwrap();
        assert!(used() < before + 12, "{before}, {there}, {}", used());
        left.insert(used());
    }
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(database.check().unwrap(), []);
}
