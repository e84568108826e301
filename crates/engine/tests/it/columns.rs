//! Columns that are added to a table that is there.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_engine::{
    Database, Durability, Error, Moment, NewColumn, NewIndex, Order, Placement, Resumed, Row,
    Table, TableSpec, TransactionOptions, Type, Upserted, Value,
};
use remanent_pmem::{Medium, Pool};

struct Shop {
    pool: Pool,
    database: Database,
    /// A handle with the columns that the table was made with.
    items: Table,
}

/// Number and name.
fn shop() -> Shop {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "shop").unwrap();
    let spec = TableSpec::new("items")
        .column("number", Type::U32)
        .nullable("name", Type::Text { max: 10 })
        .primary_key(["number"])
        .tile_rows(7);
    let items = database.create_table(&spec).unwrap();
    Shop { pool, database, items }
}

impl Shop {
    fn insert_old(&self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.items.insert(&[number.into(), "old".into()]).unwrap();
        }
    }

    fn add(&self, column: &NewColumn) -> Table {
        self.database.add_column(&self.items, column).unwrap()
    }

    /// Sets a column of some rows.
    fn set<'v>(&self, column: &str, value: impl Into<Value<'v>>, numbers: &[u32]) {
        let table = self.fresh();
        let (update, column) =
            (table.prepare_update("primary").unwrap(), table.column(column).unwrap());
        let value = value.into();
        for &number in numbers {
            let done = update.run(&[number.into()], |_, row| row.set(column, value));
            assert_eq!(done.unwrap(), Some(()));
        }
    }

    fn fresh(&self) -> Table {
        self.database.table("items").unwrap()
    }

    /// What each row has in a column.
    fn values(&self, moment: &impl Moment, column: &str) -> BTreeMap<u32, String> {
        let table = self.fresh();
        let at = table.column(column).unwrap();
        let mut found: BTreeMap<u32, String> = BTreeMap::new();
        let visit = |row: &Row<'_>| {
            found.insert(row.get(0).unwrap(), row.value(at).unwrap().to_string());
            ControlFlow::<()>::Continue(())
        };
        table.scan(moment, visit).unwrap();
        let get = table.prepare_get("primary").unwrap();
        for (number, value) in &found {
            let got = get.run(moment, &[(*number).into()], |row| Ok(row.value(at)?.to_string()));
            assert_eq!(got.unwrap().as_ref(), Some(value), "row {number}");
        }
        found
    }

    fn now(&self, column: &str) -> BTreeMap<u32, String> {
        self.values(&self.database.snapshot(), column)
    }

    fn check(&self) {
        assert_eq!(self.database.check().unwrap(), []);
    }

    fn reopened(self) -> Shop {
        let Shop { pool, database, items } = self;
        drop((database, items));
        let database = Database::open(&pool, "shop").unwrap();
        let items = database.table("items").unwrap();
        Shop { pool, database, items }
    }
}

/// `default` in all rows of a range but for some.
fn but(
    numbers: std::ops::Range<u32>,
    default: &str,
    others: &[(&[u32], &str)],
) -> BTreeMap<u32, String> {
    let mut all: BTreeMap<u32, String> =
        numbers.map(|number| (number, default.to_owned())).collect();
    for (numbers, value) in others {
        all.extend(numbers.iter().map(|number| (*number, (*value).to_owned())));
    }
    all
}

fn stock() -> NewColumn {
    NewColumn::new("stock", Type::U16).default(10)
}

#[test]
fn rows_have_the_default_until_they_are_given_something_else() {
    let shop = shop();
    shop.insert_old(0..20);
    let items = shop.add(&stock());
    assert_eq!((shop.items.columns().len(), items.columns().len()), (2, 3));
    assert_eq!(shop.now("stock"), but(0..20, "10", &[]));
    for number in 20..30u32 {
        items.insert(&[number.into(), Value::Null, 7.into()]).unwrap();
    }
    shop.insert_old(30..40);
    let seven: Vec<u32> = (20..30).collect();
    let expected = but(0..40, "10", &[(&seven, "7")]);
    assert_eq!(shop.now("stock"), expected);
    shop.check();

    shop.set("stock", 3, &[1, 15, 25, 35]);
    let expected = but(0..40, "10", &[(&seven, "7"), (&[1, 15, 25, 35], "3")]);
    assert_eq!(shop.now("stock"), expected);
    shop.database.collect().unwrap();
    assert_eq!(shop.now("stock"), expected);
    // And back to the default.
    shop.set("stock", 10, &[1, 15, 25, 35]);
    shop.database.collect().unwrap();
    let expected = but(0..40, "10", &[(&seven, "7"), (&[25], "10")]);
    assert_eq!(shop.now("stock"), expected);
    shop.check();
    let shop = shop.reopened();
    assert_eq!(shop.now("stock"), expected);
    assert_eq!(shop.items.columns()[2].name, "stock");
    let scan = shop.items.prepare_scan(["stock", "number"]).unwrap();
    let even = scan.filter(|row| Ok(row.get::<u32>(1)? % 2 == 0));
    let now = shop.database.snapshot();
    assert_eq!(even.sum::<u64>(&now, 0).unwrap(), Some(15 * 10 + 5 * 7));
    assert_eq!(scan.min::<u16>(&now, 0).unwrap(), Some(7));
    drop(now);
    shop.check();
}

#[test]
fn rows_get_cells_of_columns_that_are_added_one_after_the_other() {
    let shop = shop();
    shop.insert_old(0..9);
    let mut expected = BTreeMap::new();
    for (at, of_type) in [Type::U8, Type::U64, Type::Bool, Type::Text { max: 9 }, Type::F64]
        .into_iter()
        .cycle()
        .take(25)
        .enumerate()
    {
        let name = format!("c{at}");
        let (default, other): (Value<'_>, Value<'_>) = match of_type {
            Type::Bool => (true.into(), false.into()),
            Type::F64 => ((-0.5).into(), 0.25.into()),
            Type::Text { .. } => ("ab".into(), "".into()),
            _ => (at.try_into().map(|at: u8| at.into()).unwrap(), 200.into()),
        };
        match at % 3 {
            0 => shop.add(&NewColumn::new(&name, of_type).default(default)),
            1 => shop.add(&NewColumn::nullable(&name, of_type).default(default)),
            _ => shop.add(&NewColumn::nullable(&name, of_type)),
        };
        let default = if at % 3 == 2 { Value::Null } else { default };
        let mut rows = but(0..9, &default.to_string(), &[]);
        if at % 2 == 0 {
            let changed = [at as u32 % 9, (at as u32 + 4) % 9];
            shop.set(&name, other, &changed);
            rows.extend(changed.map(|number| (number, other.to_string())));
        }
        expected.insert(name, rows);
        if at % 7 == 0 {
            shop.database.collect().unwrap();
        }
    }
    let compare = |shop: &Shop| {
        for (name, rows) in &expected {
            assert_eq!(shop.now(name), *rows, "{name}");
        }
        shop.check();
    };
    compare(&shop);
    shop.database.collect().unwrap();
    compare(&shop);
    compare(&shop.reopened());
}

#[test]
fn wrong_descriptions_are_refused_and_change_nothing() {
    let shop = shop();
    shop.insert_old(0..1);
    let add = |column: NewColumn| shop.database.add_column(&shop.items, &column).map(drop);
    let is_refused = |added: Result<(), Error>, told: &str| {
        let Err(error @ Error::Column { .. }) = &added else { panic!("{added:?}") };
        assert!(error.to_string().contains(told), "{error}");
    };
    is_refused(add(NewColumn::nullable("name", Type::U8)), "a column of this name is there");
    is_refused(add(NewColumn::new("stock", Type::U8)), "give it a default");
    is_refused(add(NewColumn::new("stock", Type::U8).default(-1)), "-1 does not fit");
    assert_eq!(shop.fresh().columns().len(), 2);
    add(stock()).unwrap();
    is_refused(add(stock()), "a column of this name is there");

    let error = shop.items.insert(&[1.into(), Value::Null, 1.into()]).unwrap_err();
    assert!(matches!(error, Error::Values { expected: 2, got: 3, .. }), "{error}");
    let fresh = shop.fresh();
    let error = fresh.insert(&[1.into(), Value::Null]).unwrap_err();
    assert!(matches!(error, Error::Values { expected: 3, got: 2, .. }), "{error}");
    let error = fresh.insert(&[1.into(), Value::Null, Value::Null]).unwrap_err();
    assert!(matches!(&error, Error::Value { column, .. } if column == "stock"), "{error}");
    let error = fresh.insert(&[1.into(), Value::Null, 65_536.into()]).unwrap_err();
    assert!(matches!(&error, Error::Value { column, .. } if column == "stock"), "{error}");
    assert!(matches!(shop.items.column("stock"), Err(Error::NoSuchColumn { .. })));
    let update = fresh.prepare_update("primary").unwrap();
    let overflow = update.run(&[0.into()], |_, row| row.add(2, 65_530)).unwrap_err();
    assert!(matches!(&overflow, Error::Overflow { column, .. } if column == "stock"));
    assert_eq!(shop.now("stock"), but(0..1, "10", &[]));

    let other = Database::create(&shop.pool, "other").unwrap();
    assert!(matches!(other.add_column(&fresh, &stock()), Err(Error::OtherDatabase)));
    shop.database.drop_table("items").unwrap();
    let gone = add(NewColumn::nullable("more", Type::U8)).unwrap_err();
    assert!(matches!(gone, Error::NoSuchTable { .. }), "{gone}");
}

#[test]
fn prepared_statements_go_on_with_the_columns_that_they_know() {
    let shop = shop();
    shop.insert_old(0..3);
    let get = shop.items.prepare_get("primary").unwrap();
    let update = shop.items.prepare_update("primary").unwrap();
    let upsert = shop.items.prepare_upsert("primary").unwrap();
    let scan = shop.items.prepare_scan(["number"]).unwrap();
    shop.add(&stock());
    shop.set("stock", 5, &[1]);
    update.run(&[1.into()], |_, row| row.set(1, "new")).unwrap();
    let upserted = |number: u32| {
        let values = [number.into(), "upserted".into()];
        upsert.run(&values, |_, row| row.set(1, "changed")).unwrap()
    };
    assert!(matches!(upserted(1), Upserted::Changed(())));
    assert!(matches!(upserted(3), Upserted::Inserted(_)));
    let now = shop.database.snapshot();
    let name = get.run(&now, &[1.into()], |row| Ok(row.get::<&str>(1)?.to_owned())).unwrap();
    assert_eq!(name.as_deref(), Some("changed"));
    assert_eq!(scan.count(&now).unwrap(), 4);
    assert_eq!(shop.now("stock"), but(0..4, "10", &[(&[1], "5")]));
    // A new statement inserts and changes all of them.
    let upsert = shop.fresh().prepare_upsert("primary").unwrap();
    for stock in [8u16, 9] {
        upsert.run(&[7.into(), Value::Null, stock.into()], |_, row| row.set(2, stock)).unwrap();
        assert_eq!(shop.now("stock")[&7], stock.to_string());
    }
    drop(now);
    shop.check();
}

#[test]
fn a_snapshot_sees_what_rows_had_before() {
    let shop = shop();
    shop.insert_old(0..8);
    let first = shop.database.snapshot();
    shop.add(&stock());
    shop.set("stock", 1, &[2, 3]);
    let second = shop.database.snapshot();
    shop.add(&NewColumn::nullable("remark", Type::Text { max: 20 }));
    shop.set("stock", 2, &[3, 4]);
    shop.set("remark", "cheap", &[3]);
    shop.set("stock", 10, &[2]);
    shop.database.collect().unwrap();
    assert_eq!(shop.values(&first, "stock"), but(0..8, "10", &[]));
    assert_eq!(shop.values(&second, "stock"), but(0..8, "10", &[(&[2, 3], "1")]));
    assert_eq!(shop.values(&second, "remark"), but(0..8, "NULL", &[]));
    drop((first, second));
    shop.database.collect().unwrap();
    assert_eq!(shop.now("stock"), but(0..8, "10", &[(&[3, 4], "2")]));
    assert_eq!(shop.now("remark"), but(0..8, "NULL", &[(&[3], "\"cheap\"")]));
    shop.check();
}

#[test]
fn a_row_does_not_have_what_another_one_has_left() {
    let shop = shop();
    shop.add(&stock());
    let delete = shop.items.prepare_delete("primary").unwrap();
    for round in 0..6 {
        shop.insert_old(0..7);
        assert_eq!(shop.now("stock"), but(0..7, "10", &[]), "round {round}");
        shop.set("stock", 100 + round, &[0, 1, 2, 3, 4, 5, 6]);
        shop.database.collect().unwrap();
        for number in 0..7 {
            assert!(delete.run(&[number.into()]).unwrap());
        }
        shop.database.collect().unwrap();
    }
    shop.check();
}

#[test]
fn transactions_go_back_and_go_on_with_added_columns() {
    for durability in [Durability::EachStatement, Durability::AtCommit] {
        let shop = shop();
        shop.insert_old(0..6);
        let options = TransactionOptions::new().durability(durability);
        let mut before = shop.database.begin_with(&options).unwrap();
        let update = shop.items.prepare_update("primary").unwrap();
        update.run_in(&mut before, &[0.into()], |_, row| row.set(1, "begun")).unwrap();
        shop.add(&stock());
        // What it has written before has no cells of the column.
        assert_eq!(shop.values(&before, "stock"), but(0..6, "10", &[]));
        let set = |by: &mut _, number: u32, stock: u16| {
            let done = update.run_in(by, &[number.into()], |_, row| row.set(2, stock));
            assert_eq!(done.unwrap(), Some(()));
        };
        set(&mut before, 0, 1);
        set(&mut before, 1, 2);
        let savepoint = before.statement();
        set(&mut before, 1, 3);
        set(&mut before, 2, 4);
        let fresh = shop.fresh();
        fresh.insert_in(&mut before, &[6.into(), Value::Null, 5.into()]).unwrap();
        let seen = but(0..7, "10", &[(&[0], "1"), (&[1], "3"), (&[2], "4"), (&[6], "5")]);
        assert_eq!(shop.values(&before, "stock"), seen);
        before.take_back_to(savepoint).unwrap();
        before
            .batch(|batch| {
                set(batch, 3, 7);
                fresh.insert_in(batch, &[7.into(), Value::Null, 8.into()])?;
                shop.items.insert_in(batch, &[8.into(), Value::Null]).map(drop)
            })
            .unwrap();
        let _ = before.batch(|batch| {
            set(batch, 3, 70);
            set(batch, 7, 80);
            Err::<(), _>(Error::TransactionEnded)
        });
        let mut expected = but(0..6, "10", &[(&[0], "1"), (&[1], "2"), (&[3], "7"), (&[7], "8")]);
        expected.insert(8, "10".to_owned());
        assert_eq!(shop.values(&before, "stock"), expected);
        assert_eq!(shop.now("stock"), but(0..6, "10", &[]));
        before.commit().unwrap();
        assert_eq!(shop.now("stock"), expected);
        shop.database.collect().unwrap();
        assert_eq!(shop.now("stock"), expected);
        shop.check();
    }
}

#[test]
fn an_open_transaction_outlives_the_process_with_added_columns() {
    let shop = shop();
    shop.insert_old(0..3);
    let mut open = shop.database.begin().unwrap();
    shop.add(&stock());
    let table = shop.fresh();
    let update = table.prepare_update("primary").unwrap();
    update.run_in(&mut open, &[1.into()], |_, row| row.set(2, 9)).unwrap();
    table.insert_in(&mut open, &[3.into(), Value::Null, 8.into()]).unwrap();
    let token = open.suspend();
    drop((table, update));
    let shop = shop.reopened();
    assert_eq!(shop.now("stock"), but(0..3, "10", &[]));
    let Resumed::Open(open) = shop.database.resume(token).unwrap() else { panic!("it is open") };
    let expected = but(0..4, "10", &[(&[1], "9"), (&[3], "8")]);
    assert_eq!(shop.values(&open, "stock"), expected);
    open.commit().unwrap();
    assert_eq!(shop.now("stock"), expected);
    shop.check();
}

#[test]
fn indexes_have_added_columns() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let shop = shop();
        shop.insert_old(0..30);
        shop.add(&stock());
        shop.add(&NewColumn::nullable("code", Type::Text { max: 8 }));
        shop.set("stock", 7, &[3, 4]);
        shop.set("code", "x", &[5]);
        let create =
            |index: NewIndex| shop.database.create_index(&shop.items, &index.place(placement));
        create(NewIndex::secondary("by_stock", ["stock"])).unwrap();
        create(NewIndex::secondary("in_order", ["code", "stock"]).ordered()).unwrap();
        create(NewIndex::unique("by_code", ["code"])).unwrap();
        let duplicate = create(NewIndex::unique("unique_stock", ["stock"])).unwrap_err();
        assert!(matches!(duplicate, Error::Duplicate { .. }), "{duplicate}");
        shop.set("stock", 8, &[4, 6]);
        let taken = shop.fresh().insert(&[90.into(), Value::Null, 1.into(), "x".into()]);
        assert!(matches!(taken, Err(Error::Unique { index, .. }) if index == "by_code"));
        let compare = |shop: &Shop| {
            let (now, table) = (shop.database.snapshot(), shop.fresh());
            let find = table.prepare_find("by_stock").unwrap();
            for (stock, count) in [(7, 1), (8, 2), (10, 27), (11, 0)] {
                let mut found = 0;
                let visit = |_: &Row<'_>| {
                    found += 1;
                    ControlFlow::<()>::Continue(())
                };
                find.run(&now, &[stock.into()], visit).unwrap();
                assert_eq!(found, count, "{stock}");
            }
            let get = table.prepare_get("by_code").unwrap();
            let found = get.run(&now, &["x".into()], |row| row.get::<u32>(0)).unwrap();
            assert_eq!(found, Some(5));
            let mut found = Vec::new();
            let visit = |row: &Row<'_>| {
                found.push((row.get::<u16>(2).unwrap(), row.get::<u32>(0).unwrap()));
                ControlFlow::<()>::Continue(())
            };
            let all = (Bound::Unbounded, Bound::Unbounded);
            table
                .prepare_range("in_order")
                .unwrap()
                .run(&now, all, Order::Ascending, visit)
                .unwrap();
            assert_eq!((found.len(), found[0], found[29]), (30, (7, 3), (10, 5)));
            drop(now);
            shop.check();
        };
        compare(&shop);
        shop.database.collect().unwrap();
        compare(&shop);
        let shop = shop.reopened();
        compare(&shop);
        let other = if placement == Placement::Pmem { Placement::Dram } else { Placement::Pmem };
        shop.database.place_index(&shop.items, "by_stock", other).unwrap();
        compare(&shop);
        for index in ["by_stock", "by_code", "in_order"] {
            shop.database.drop_index(&shop.items, index).unwrap();
        }
        shop.check();
    }
}

#[test]
fn a_dropped_table_gives_its_extensions_back() {
    let Shop { pool, database, .. } = shop();
    let mut chunks = Vec::new();
    for _ in 0..4 {
        chunks.push(pool.check().unwrap().chunks_used);
        let spec = TableSpec::new("others").column("id", Type::U32).primary_key(["id"]);
        let table = database.create_table(&spec).unwrap();
        let text = NewColumn::new("text", Type::Text { max: 200 }).default("");
        let table = database.add_column(&table, &text).unwrap();
        for id in 0..4_000u32 {
            table.insert(&[id.into(), "some".into()]).unwrap();
        }
        assert!(pool.check().unwrap().chunks_used > chunks[0] + 10);
        drop(table);
        database.drop_table("others").unwrap();
        assert_eq!(database.check().unwrap(), []);
    }
    assert!(chunks[3] <= chunks[1] + 2, "{chunks:?}");
}

/// Changes rows of its own, and inserts and removes another one, until all columns are added.
/// Returns what it has set last in each row: in how many columns, and to what.
fn write(shop: &Shop, writer: u32, is_over: &AtomicBool) -> BTreeMap<u32, (usize, u64)> {
    let mut acknowledged = BTreeMap::new();
    for turn in 1u32.. {
        // Relaxed: a flag.
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let table = shop.fresh();
        let (number, count) = (writer + 2 * (turn % 20), table.columns().len());
        let value = u64::from(turn % 3 * 100);
        let update = table.prepare_update("primary").unwrap();
        let set = |number: u32| {
            let done = update.run(&[number.into()], |_, row| {
                (2..count).try_for_each(|column| row.set(column, value))
            });
            assert_eq!(done.unwrap(), Some(()), "row {number}");
        };
        set(number);
        acknowledged.insert(number, (count, value));
        let extra = 1_000 + writer;
        shop.items.insert(&[extra.into(), "extra".into()]).unwrap();
        set(extra);
        assert!(table.prepare_delete("primary").unwrap().run(&[extra.into()]).unwrap());
    }
    acknowledged
}

#[test]
fn columns_are_added_while_threads_write_and_read() {
    const COLUMNS: usize = 12;
    let shop = shop();
    shop.insert_old(0..40);
    let is_over = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let (shop, is_over) = (&shop, &is_over);
        let writers = [0, 1].map(|writer| scope.spawn(move || write(shop, writer, is_over)));
        scope.spawn(move || {
            // Relaxed: a flag.
            while !is_over.load(Ordering::Relaxed) {
                let table = shop.fresh();
                let count = table.columns().len();
                let visit = |row: &Row<'_>| {
                    let values: Vec<u64> =
                        (2..count).map(|column| row.get(column).unwrap()).collect();
                    // Columns that a writer did not know have the default behind the others.
                    let last = values.iter().rposition(|value| *value != 0).map_or(0, |at| at + 1);
                    assert!(values[..last].iter().all(|value| *value == values[0]), "{values:?}");
                    ControlFlow::<()>::Continue(())
                };
                table.scan(&shop.database.snapshot(), visit).unwrap();
            }
        });
        for column in 0..COLUMNS {
            shop.add(&NewColumn::new(format!("c{column}"), Type::U64).default(0));
            thread::sleep(std::time::Duration::from_millis(20));
        }
        // Relaxed: a flag.
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap()).into_iter().flatten().collect()
    });
    let acknowledged: BTreeMap<u32, (usize, u64)> = acknowledged;
    let compare = |shop: &Shop| {
        shop.check();
        for column in 0..COLUMNS {
            let mut expected = but(0..40, "0", &[]);
            for (number, (count, value)) in &acknowledged {
                let value = if column + 2 < *count { *value } else { 0 };
                expected.insert(*number, value.to_string());
            }
            assert_eq!(shop.now(&format!("c{column}")), expected, "c{column}");
        }
    };
    compare(&shop);
    let shop = shop.reopened();
    compare(&shop);
    shop.database.collect().unwrap();
    compare(&shop);
}

#[test]
fn more_threads_read_added_columns_than_can_pin_at_once() {
    const THREADS: u32 = 200;
    let shop = shop();
    shop.insert_old(0..50);
    shop.add(&stock());
    shop.set("stock", 3, &[7]);
    shop.database.collect().unwrap();
    let all_here = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shop, all_here) = (&shop, &all_here);
            scope.spawn(move || {
                let table = shop.fresh();
                let get = table.prepare_get("primary").unwrap();
                let update = table.prepare_update("primary").unwrap();
                let find = |number: u32| {
                    let now = shop.database.snapshot();
                    get.run(&now, &[number.into()], |row| row.get::<u16>(2)).unwrap()
                };
                // Each thread has its place among those that pin before the others come.
                find(7);
                all_here.wait();
                for number in 0..50 {
                    assert_eq!(find(number), Some(if number == 7 { 3 } else { 10 }));
                }
                all_here.wait();
                match update.run(&[(thread % 50).into()], |_, row| row.set(2, 4)) {
                    Ok(Some(())) | Err(Error::Conflict { .. }) => {}
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    shop.check();
}

/// Offsets of words that lead to extensions, by the tags of tiles.
fn extension_words(pool: &Pool) -> Vec<u64> {
    const TILE: u64 = 0x7469_6c65;
    let medium = pool.medium();
    let tiles = (0..medium.len()).step_by(32).filter(|at| medium.load(*at) >> 32 == TILE);
    tiles.map(|at| at + 16).filter(|at| medium.load(*at) != 0).collect()
}

/// What an extension says if a row has so many bytes of cells there.
fn len_word(len: u32) -> u64 {
    u64::from(!len) << 32 | u64::from(len)
}

#[test]
fn a_bit_that_changes_does_not_shift_the_cells_of_added_columns() {
    let shop = shop();
    shop.insert_old(0..3);
    for column in ["a", "b", "c"] {
        shop.add(&NewColumn::new(column, Type::U16).default(10));
    }
    shop.set("c", 3, &[1]);
    shop.database.collect().unwrap();
    let medium = shop.pool.medium();
    let words = extension_words(&shop.pool);
    let [word] = words[..] else { panic!("{words:?}") };
    let at = medium.load(word) + 16;
    assert_eq!(medium.load(at), len_word(6));
    let get = shop.fresh().prepare_get("primary").unwrap();
    for bit in 0..64 {
        medium.store(at, len_word(6) ^ 1 << bit);
        let read = get.run(&shop.database.snapshot(), &[1.into()], |_| Ok(()));
        assert!(matches!(read, Err(Error::Pool(_))), "bit {bit}: {read:?}");
        assert_ne!(shop.database.check().unwrap(), [], "bit {bit}");
    }
    medium.store(at, len_word(6));
    shop.check();
}

#[test]
fn versions_that_do_not_fit_their_tile_are_told() {
    let shop = shop();
    shop.insert_old(0..3);
    for column in ["a", "b"] {
        shop.add(&NewColumn::new(column, Type::U64).default(10));
    }
    let before = shop.database.snapshot();
    shop.set("b", 3, &[1]);
    const VERSION: u64 = 0x7665_7273;
    let medium = shop.pool.medium();
    let blocks = (0..medium.len()).step_by(32);
    let versions: Vec<u64> = blocks.filter(|at| medium.load(*at) >> 32 == VERSION).collect();
    let [version] = versions[..] else { panic!("{versions:?}") };
    let (added_len, at) = (medium.load(version + 40), version + 40);
    assert_eq!(added_len, 16);
    for wrong in [0, 1, 7, 9, 15, 24, 1 << 40, u64::MAX] {
        medium.store(at, wrong);
        let get = shop.fresh().prepare_get("primary").unwrap();
        let read = get.run(&shop.database.snapshot(), &[1.into()], |_| Ok(()));
        assert!(matches!(read, Err(Error::Pool(_))), "{wrong}: {read:?}");
        assert_ne!(shop.database.check().unwrap(), [], "{wrong}");
    }
    medium.store(at, added_len);
    // Its tile has lost the room.
    let words = extension_words(&shop.pool);
    let extension = medium.load(words[0]);
    medium.store(words[0], 0);
    let violations = shop.database.check().unwrap();
    assert!(violations.iter().any(|of| of.offset == version), "{violations:?}");
    medium.store(words[0], extension);
    shop.check();
    drop(before);
}

#[test]
fn damage_of_extensions_is_told_with_its_offset() {
    let shop = shop();
    shop.insert_old(0..3);
    shop.add(&stock());
    shop.set("stock", 3, &[1]);
    shop.database.collect().unwrap();
    let medium = shop.pool.medium();
    let words = extension_words(&shop.pool);
    let [word] = words[..] else { panic!("{words:?}") };
    let extension = medium.load(word);
    let table = shop.fresh();
    let get = table.prepare_get("primary").unwrap();
    let update = table.prepare_update("primary").unwrap();
    for (at, value) in [
        (word, extension + 8),
        (word, extension + 1),
        (word, u64::MAX - 7),
        (word, word),
        (extension, 7),
        (extension + 8, 1),
        (extension + 16, 0),
        (extension + 16, 2),
        (extension + 16, len_word(0)),
        (extension + 16, len_word(3)),
    ] {
        let before = medium.load(at);
        medium.store(at, value);
        let told = |error: Error| {
            let Error::Pool(remanent_pmem::Error::Corrupt { offset, .. }) = error else {
                panic!("{error}")
            };
            assert_eq!(offset, word);
        };
        told(get.run(&shop.database.snapshot(), &[1.into()], |_| Ok(())).unwrap_err());
        told(update.run(&[1.into()], |_, row| row.set(2, 4)).unwrap_err());
        told(table.insert(&[9.into(), Value::Null, 4.into()]).unwrap_err());
        told(shop.items.insert(&[9.into(), Value::Null]).unwrap_err());
        let violations = shop.database.check().unwrap();
        assert!(violations.iter().any(|of| of.offset == word), "{violations:?}");
        medium.store(at, before);
    }
    // Within a cell.
    medium.store(extension + 16, len_word(1));
    let violations = shop.database.check().unwrap();
    assert!(violations.iter().any(|of| of.offset == extension + 16), "{violations:?}");
    medium.store(extension + 16, len_word(2));
    medium.store(word, 0);
    // As if it had never been there: the rows have the default.
    assert_eq!(shop.now("stock"), but(0..3, "10", &[]));
    assert_ne!(shop.database.check().unwrap(), []);
    medium.store(word, extension);
    shop.check();
}
