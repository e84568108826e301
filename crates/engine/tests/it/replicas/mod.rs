//! Copies that follow a database by what its gate is told.

mod copies;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use remanent_engine::{
    Change, Database, Durability, Error, Gate, IndexKind, NewColumn, NewForeignKey, NewIndex,
    OwnedValue, Placement, Result, Resumed, Row, SequenceSpec, Table, TableSpec, Transaction,
    TransactionOptions, Type, Value, WriteSet,
};
use remanent_pmem::Pool;

/// A gate that keeps what it is told.
#[derive(Default)]
struct Told {
    all: Mutex<Vec<(u64, WriteSet)>>,
    last: AtomicU64,
    is_refusing: AtomicBool,
}

impl Gate for Told {
    fn take(&self, stamp: u64, write_set: Result<WriteSet>) {
        let mut all = self.all.lock().unwrap();
        let last = self.last.swap(stamp, Ordering::Relaxed);
        assert!(last < stamp, "{stamp} comes behind {last}");
        all.push((stamp, write_set.unwrap()));
    }

    fn wait(&self, stamp: u64) -> bool {
        assert!(self.last.load(Ordering::Relaxed) >= stamp, "{stamp} was not told");
        !self.is_refusing.load(Ordering::Relaxed)
    }
}

impl Told {
    /// Has a copy follow: each write set comes twice.
    fn follow(&self, copy: &Database) {
        for (stamp, write_set) in self.all.lock().unwrap().drain(..) {
            let applied = copy.apply(stamp, &write_set);
            assert!(applied.as_ref().is_ok_and(|done| *done), "{applied:?}: {write_set:?}");
            assert_eq!(copy.applied().unwrap(), stamp);
            assert!(!copy.apply(stamp, &write_set).unwrap());
        }
    }
}

fn in_memory() -> Database {
    Database::create(&Pool::options().create_in_memory().unwrap(), "db").unwrap()
}

fn followed() -> (Database, Arc<Told>) {
    let (database, told) = (in_memory(), Arc::new(Told::default()));
    let gate: Arc<dyn Gate> = told.clone();
    database.set_gate(Some(gate));
    (database, told)
}

/// Indexes by name, kind and columns; foreign keys; rows in the order of their primary keys.
type Dump = (String, Vec<(String, IndexKind, Vec<usize>)>, Vec<String>, Vec<String>);

fn dump(database: &Database) -> Vec<Dump> {
    let of_table = |name: String| {
        let table = database.table(&name).unwrap();
        let indexes = table.indexes().into_iter();
        let mut indexes: Vec<_> =
            indexes.map(|index| (index.name, index.kind, index.columns)).collect();
        indexes.sort_by(|one, other| one.0.cmp(&other.0));
        let keys = table.foreign_keys().into_iter().map(|key| format!("{key:?}")).collect();
        let mut rows = Vec::new();
        let visit = |row: &Row<'_>| {
            let columns = 0..table.columns().len();
            let values: Vec<_> = columns.map(|column| row.value(column).unwrap().into()).collect();
            rows.push(format!("{:?}", values as Vec<OwnedValue>));
            ControlFlow::<()>::Continue(())
        };
        table.scan(&database.snapshot(), visit).unwrap();
        rows.sort_unstable();
        (name, indexes, keys, rows)
    };
    let mut names = database.tables();
    names.sort_unstable();
    names.into_iter().map(of_table).collect()
}

fn spec(name: &str) -> TableSpec {
    TableSpec::new(name)
        .column("a", Type::U16)
        .column("b", Type::Text { max: 9 })
        .nullable("code", Type::U32)
        .column("sum", Type::I64)
        .primary_key(["a", "b"])
        .unique("by_code", ["code"])
        .index("by_sum", ["sum"])
        .encoded(["b"])
        .tile_rows(8)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A refusal is one of the outcomes of a statement; other errors are none.
fn allow_refusals<T>(done: Result<T>) {
    match done {
        Ok(_)
        | Err(
            Error::Unique { .. }
            | Error::Conflict { .. }
            | Error::Overtaken { .. }
            | Error::NoParent { .. }
            | Error::HasChildren { .. }
            | Error::NoSuchTable { .. }
            | Error::IndexDropped { .. }
            | Error::Index { .. }
            | Error::Column { .. }
            | Error::Schema { .. },
        ) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Changes one row of a table, of which there are few.
fn change(random: &mut Random, table: &Table, transaction: &mut Transaction<'_>) -> Result<()> {
    let letters = ["x", "y", "z"];
    let mut key = || (random.below(6) as u16, letters[random.below(3) as usize]);
    let ((a, b), (other_a, other_b)) = (key(), key());
    let code = Some(random.below(12) as u32).filter(|code| *code < 8);
    let sum = random.below(5) as i64;
    let row: Vec<Value<'_>> = vec![a.into(), b.into(), code.into(), sum.into()];
    let row: Vec<Value<'_>> =
        row.into_iter().chain((4..table.columns().len()).map(|_| Value::Uint(3))).collect();
    let by = &[a.into(), b.into()];
    match random.below(6) {
        0 | 1 => table.insert_in(transaction, &row).map(drop),
        2 => table.prepare_delete("primary")?.run_in(transaction, by).map(drop),
        3 => {
            let update = table.prepare_update("primary")?;
            let update = update.run_in(transaction, by, |_, new| {
                new.set(0, other_a)?;
                new.set(1, other_b)
            });
            update.map(drop)
        }
        4 => {
            let update = table.prepare_update("primary")?;
            let update = update.run_in(transaction, by, |_, new| {
                new.set(2, code)?;
                new.add(3, sum)
            });
            update.map(drop)
        }
        _ => {
            let upsert = table.prepare_upsert("primary")?;
            upsert.run_in(transaction, &row, |_, new| new.set(2, code)).map(drop)
        }
    }
}

/// Makes a transaction of some kind, which ends in some way.
fn transact(random: &mut Random, database: &Database, table: &Table) {
    let durability =
        if random.one_in(3) { Durability::AtCommit } else { Durability::EachStatement };
    let options = TransactionOptions::new().durability(durability);
    let mut transaction = database.begin_with(&options).unwrap();
    for _ in 0..=random.below(5) {
        match random.below(8) {
            0 => {
                let statement = random.below(4) as u32;
                transaction.take_back_to(statement).unwrap();
            }
            1 | 2 => {
                let count = random.below(6);
                allow_refusals(
                    transaction
                        .batch(|batch| (0..count).try_for_each(|_| change(random, table, batch))),
                );
            }
            3 if durability == Durability::EachStatement => {
                let token = transaction.suspend();
                let Resumed::Open(resumed) = database.resume(token).unwrap() else {
                    panic!("it was not ended")
                };
                transaction = resumed;
            }
            _ => allow_refusals(change(random, table, &mut transaction)),
        }
    }
    let told = transaction.write_set().unwrap();
    match random.below(5) {
        0 => transaction.abort().unwrap(),
        1 => {
            allow_refusals(transaction.commit_with(|last| change(random, table, last)));
        }
        _ => {
            transaction.commit().unwrap();
            assert!(told.schema_version > 0);
        }
    }
}

fn alter(random: &mut Random, database: &Database, name: &str) {
    let table = database.table(name);
    match (random.below(8), table) {
        (0, _) | (_, Err(_)) => allow_refusals(database.create_table(&spec(name))),
        (1, Ok(_)) => allow_refusals(database.drop_table(name)),
        (2, Ok(table)) => {
            let column = NewColumn::new(format!("c{}", random.below(4)), Type::U16).default(7);
            allow_refusals(database.add_column(&table, &column));
        }
        (3, Ok(table)) => {
            let index = NewIndex::secondary("more", ["sum", "code"]).ordered();
            allow_refusals(database.create_index(&table, &index));
        }
        (4, Ok(table)) => match database.drop_index(&table, "more") {
            Err(Error::NoSuchIndex { .. }) => {}
            done => allow_refusals(done),
        },
        (5, Ok(table)) => {
            let key = NewForeignKey::new("up", ["code"], name, ["code"]);
            match database.add_foreign_key(&table, &key) {
                Err(Error::ForeignKey { .. }) => {}
                done => allow_refusals(done),
            }
        }
        (6, Ok(table)) => {
            let places = [Placement::Pmem, Placement::Dram];
            let place = places[random.below(2) as usize];
            allow_refusals(database.place_dictionary(&table, "b", place));
        }
        (_, Ok(table)) => match database.drop_foreign_key(&table, "up") {
            Err(Error::NoSuchForeignKey { .. }) => {}
            done => allow_refusals(done),
        },
    }
}

#[test]
fn a_copy_follows_whatever_is_done() {
    for seed in 1..=30 {
        let (database, told) = followed();
        let copy = in_memory();
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let numbers = database.create_sequence(&SequenceSpec::new("numbers").block_len(2)).unwrap();
        for _ in 0..120 {
            let name = if random.one_in(3) { "t" } else { "u" };
            match database.table(name) {
                Ok(table) if !random.one_in(8) => {
                    if random.one_in(2) {
                        transact(&mut random, &database, &table);
                    } else {
                        let row = [
                            (random.below(6) as u16).into(),
                            "x".into(),
                            Value::Null,
                            (random.below(4) as i64).into(),
                        ];
                        let more = (4..table.columns().len()).map(|_| Value::Uint(2));
                        let row: Vec<_> = row.into_iter().chain(more).collect();
                        allow_refusals(table.insert(&row));
                        numbers.next().unwrap();
                    }
                }
                _ => alter(&mut random, &database, name),
            }
            if random.one_in(10) {
                told.follow(&copy);
                assert_eq!(dump(&copy), dump(&database), "{seed}");
            }
        }
        told.follow(&copy);
        assert_eq!(dump(&copy), dump(&database), "{seed}");
        assert_eq!(copy.check().unwrap(), []);
        let unreserved = numbers.unreserved().unwrap();
        assert_eq!(copy.sequence("numbers").unwrap().unreserved().unwrap(), unreserved);
    }
}

#[test]
fn a_copy_follows_threads_that_change_rows_and_the_schema() {
    let (database, told) = followed();
    let copy = in_memory();
    database.create_table(&spec("t")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..=3 {
            let (database, is_over) = (&database, &is_over);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(table) = database.table("t") else { continue };
                    let mut transaction = database.begin().unwrap();
                    for _ in 0..random.below(3) {
                        allow_refusals(change(&mut random, &table, &mut transaction));
                    }
                    let last = transaction.commit_with(|last| change(&mut random, &table, last));
                    allow_refusals(last);
                }
            });
        }
        let mut random = Random(77);
        for _ in 0..150 {
            alter(&mut random, &database, "t");
            told.follow(&copy);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
    assert_eq!(copy.check().unwrap(), []);
}

#[test]
fn rows_that_exchange_their_unique_keys_are_applied() {
    let (database, told) = followed();
    let copy = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    let row = |a: u16, code: u32| [a.into(), "x".into(), code.into(), 0.into()];
    table.insert(&row(1, 1)).unwrap();
    table.insert(&row(2, 2)).unwrap();
    told.follow(&copy);
    let update = table.prepare_update("primary").unwrap();
    let mut exchange = database.begin().unwrap();
    for (a, code) in [(1, Value::Null), (2, 1_u32.into()), (1, 2_u32.into())] {
        let key: [Value<'_>; 2] = [Value::Uint(a), "x".into()];
        update.run_in(&mut exchange, &key, |_, new| new.set(2, code)).unwrap().unwrap();
    }
    exchange.commit().unwrap();
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
}

#[test]
fn a_commit_that_is_not_confirmed_counts() {
    let (database, told) = followed();
    let table = database.create_table(&spec("t")).unwrap();
    told.is_refusing.store(true, Ordering::Relaxed);
    let row = [1.into(), "x".into(), 1.into(), 0.into()];
    let unconfirmed = |done: Result<()>| assert!(matches!(done, Err(Error::Unconfirmed { .. })));
    unconfirmed(table.insert(&row).map(drop));
    let options = TransactionOptions::new().durability(Durability::AtCommit);
    for options in [TransactionOptions::new(), options] {
        let mut transaction = database.begin_with(&options).unwrap();
        let update = table.prepare_update("primary").unwrap();
        let add = |_: &Row<'_>, new: &mut remanent_engine::Changes<'_>| new.add(3, 1);
        update.run_in(&mut transaction, &row[..2], add).unwrap().unwrap();
        unconfirmed(transaction.commit());
    }
    unconfirmed(database.create_table(&spec("u")).map(drop));
    assert_eq!(database.tables(), ["t", "u"]);
    database.set_gate(None);
    let get = table.prepare_get("primary").unwrap();
    let sum = get.run(&database.snapshot(), &row[..2], |row| row.get::<i64>(3)).unwrap();
    assert_eq!(sum, Some(2));
    assert!(table.insert(&row).is_err());
    assert_eq!(told.all.lock().unwrap().len(), 1 + 1 + 2 + 1);
}

#[test]
fn a_transaction_is_agreed_on_before_it_commits_whatever_crashes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("example.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let (copy, told) = (in_memory(), Arc::new(Told::default()));
    database.set_gate(Some(told.clone()));
    let table = database.create_table(&spec("t")).unwrap();
    for a in 0..20_u16 {
        table.insert(&[a.into(), "x".into(), Value::Null, 0.into()]).unwrap();
    }
    told.follow(&copy);
    let mut transaction = database.begin().unwrap();
    let (update, delete) =
        (table.prepare_update("primary").unwrap(), table.prepare_delete("primary").unwrap());
    update.run_in(&mut transaction, &[3.into(), "x".into()], |_, new| new.set(0, 30)).unwrap();
    update.run_in(&mut transaction, &[4.into(), "x".into()], |_, new| new.add(3, 1)).unwrap();
    delete.run_in(&mut transaction, &[5.into(), "x".into()]).unwrap();
    table.insert_in(&mut transaction, &[6.into(), "y".into(), Value::Null, 0.into()]).unwrap();
    let agreed = transaction.write_set().unwrap();
    let count = |is_it: fn(&Change) -> bool| agreed.changes.iter().filter(|of| is_it(of)).count();
    assert_eq!(count(|change| matches!(change, Change::Remove { .. })), 2);
    assert_eq!(count(|change| matches!(change, Change::Put { .. })), 3);
    let token = transaction.suspend();
    let version = database.schema_version();
    drop((update, delete, table, database, pool));

    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.schema_version(), version);
    assert!(database.set_gate(Some(told.clone())) >= copy.applied().unwrap());
    let Resumed::Open(transaction) = database.resume(token).unwrap() else { panic!() };
    assert_eq!(transaction.write_set().unwrap(), agreed);
    transaction.commit().unwrap();
    assert_eq!(told.all.lock().unwrap()[0].1, agreed);
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&database));
}

#[test]
fn a_stamp_is_not_given_away_again_behind_a_change_of_the_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("example.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let told = Arc::new(Told::default());
    database.set_gate(Some(told.clone()));
    for name in ["t", "u", "v"] {
        let version = database.schema_version();
        database.create_table(&spec(name)).unwrap();
        assert!(database.schema_version() > version);
    }
    drop((database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    database.set_gate(Some(told.clone()));
    // It asserts that its stamp is greater.
    database.drop_table("u").unwrap();
    assert_eq!(told.all.lock().unwrap().len(), 4);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let copy = in_memory();
    copy.create_table(&spec("t")).unwrap();
    let put =
        |table: &str, row: &[OwnedValue]| Change::Put { table: table.into(), row: row.into() };
    let row = |a| {
        [OwnedValue::Uint(a), OwnedValue::Text("x".into()), OwnedValue::Uint(a), OwnedValue::Int(0)]
    };
    let of = |changes: &[Change]| WriteSet { schema_version: 1, changes: changes.into() };
    assert!(copy.apply(1, &of(&[put("t", &row(1))])).unwrap());
    let long: Vec<_> = row(2).into_iter().chain([OwnedValue::Null]).collect();
    for wrong in [
        put("nowhere", &row(2)),
        put("t", &long),
        put("t", &row(2)[..2]),
        put("t", &[]),
        put("t", &[OwnedValue::Null, OwnedValue::Null]),
        put(
            "t",
            &[
                row(1)[0].clone(),
                OwnedValue::Text("y".into()),
                row(1)[2].clone(),
                OwnedValue::Int(0),
            ],
        ),
        Change::Remove { table: "t".into(), key: Vec::new() },
        Change::Remove { table: "t".into(), key: vec![OwnedValue::Bool(true); 2] },
    ] {
        let refused = copy.apply(2, &of(&[put("t", &row(3)), wrong.clone()]));
        assert!(refused.is_err(), "{wrong:?}: {refused:?}");
        assert_eq!((copy.applied().unwrap(), dump(&copy)[0].3.len()), (1, 1));
    }
    assert_eq!(copy.check().unwrap(), []);
}

#[cfg(feature = "serde")]
#[test]
fn write_sets_travel_in_formats_of_serde() {
    let (database, told) = followed();
    let copy = in_memory();
    let table = database.create_table(&spec("t")).unwrap();
    table.insert(&[1.into(), "x".into(), Value::Null, (-1).into()]).unwrap();
    let column = NewColumn::nullable("more", Type::Bytes { max: 3 }).default(&b"abc"[..]);
    database.add_column(&table, &column).unwrap();
    for (stamp, write_set) in told.all.lock().unwrap().drain(..) {
        let bytes = postcard::to_allocvec(&write_set).unwrap();
        let read: WriteSet = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, write_set);
        copy.apply(stamp, &read).unwrap();
    }
    assert_eq!(dump(&copy), dump(&database));
}

#[test]
fn a_transaction_that_changes_the_schema_is_told_as_one() {
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let ((main, told), copy) = (followed(), in_memory());
        let first = main.create_table(&spec("first")).unwrap();
        let gone = main.create_table(&spec("gone")).unwrap();
        let row = |a: u16| -> [Value<'static>; 4] { [a.into(), "b".into(), a.into(), 1.into()] };
        for a in 0..5 {
            first.insert(&row(a)).unwrap();
            gone.insert(&row(a)).unwrap();
        }
        told.follow(&copy);
        let version = main.schema_version();
        let mut by = main.begin_with(&TransactionOptions::new().durability(how)).unwrap();
        gone.insert_in(&mut by, &row(7)).unwrap();
        main.drop_table_in(&mut by, "gone").unwrap();
        let column = NewColumn::new("added", Type::U8).default(3);
        let first = main.add_column_in(&mut by, &first, &column).unwrap();
        let with_added = [&row(8)[..], &[9.into()]].concat();
        first.insert_in(&mut by, &with_added).unwrap();
        main.create_index_in(&mut by, &first, &NewIndex::unique("new", ["sum", "a"])).unwrap();
        main.drop_index_in(&mut by, &first, "by_sum").unwrap();
        // Another one with the name of one that is dropped, and one that comes and goes.
        let again = main.create_table_in(&mut by, &spec("gone")).unwrap();
        again.insert_in(&mut by, &row(9)).unwrap();
        main.create_table_in(&mut by, &spec("short")).unwrap();
        main.drop_table_in(&mut by, "short").unwrap();
        let key = NewForeignKey::new("to_first", ["code"], "first", ["code"]);
        let refused = main.add_foreign_key_in(&mut by, &again, &key);
        assert!(matches!(refused, Err(Error::NoParent { .. })), "{refused:?}");
        first.insert_in(&mut by, &[&row(9)[..], &[1.into()]].concat()).unwrap();
        main.add_foreign_key_in(&mut by, &again, &key).unwrap();
        // Others go on meanwhile, and are told by the schema that they know.
        let handle = main.table("first").unwrap();
        handle.insert(&row(20)).unwrap();
        main.table("gone").unwrap().insert(&row(21)).unwrap();
        let exported = in_memory();
        main.export(|part| exported.restore(&part)).unwrap();
        assert_eq!(dump(&exported), dump(&main));
        let agreed = by.write_set().unwrap();
        assert_eq!(agreed.schema_version, version + 1);
        assert!(told.all.lock().unwrap().iter().all(|(_, of)| of.schema_version == version));
        told.follow(&copy);
        by.commit().unwrap();
        {
            let all = told.all.lock().unwrap();
            let [(_, write_set)] = &all[..] else { panic!("{all:?}") };
            assert_eq!(*write_set, agreed);
            assert_eq!(main.schema_version(), version + 1);
        }
        handle.insert(&row(22)).unwrap();
        told.follow(&copy);
        assert_eq!(dump(&copy), dump(&main));
        assert_eq!(dump(&main).iter().map(|of| of.3.len()).collect::<Vec<_>>(), [9, 1]);
        assert_eq!([main.check().unwrap(), copy.check().unwrap()], [[], []]);
        // Nobody is told of what is given up.
        let mut by = main.begin_with(&TransactionOptions::new().durability(how)).unwrap();
        main.drop_table_in(&mut by, "gone").unwrap();
        main.add_column_in(&mut by, &first, &NewColumn::nullable("more", Type::U8)).unwrap();
        by.abort().unwrap();
        handle.insert(&row(23)).unwrap();
        assert_eq!(told.all.lock().unwrap().len(), 1);
        told.follow(&copy);
        assert_eq!(dump(&copy), dump(&main));
    }
}

#[test]
fn a_copy_follows_transactions_whose_rows_make_their_schema_possible() {
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let ((main, told), copy) = (followed(), in_memory());
        let first = main.create_table(&spec("first")).unwrap();
        let row = |a: u16, code: u32, sum: i64| -> [Value<'static>; 4] {
            [a.into(), "b".into(), code.into(), sum.into()]
        };
        for a in 0..4 {
            first.insert(&row(a, u32::from(a), 7)).unwrap();
        }
        told.follow(&copy);
        let begin = || main.begin_with(&TransactionOptions::new().durability(how)).unwrap();
        let follow = |by: Transaction<'_>| {
            let agreed = by.write_set().unwrap();
            by.commit().unwrap();
            assert_eq!(told.all.lock().unwrap().last().unwrap().1, agreed);
            told.follow(&copy);
            assert_eq!(dump(&copy), dump(&main));
        };
        // Rows with the same key are changed, and then the key is unique.
        let mut by = begin();
        let update = first.prepare_update("by_code").unwrap();
        for code in 0..4u32 {
            update.run_in(&mut by, &[code.into()], |_, row| row.set(3, i64::from(code))).unwrap();
        }
        main.create_index_in(&mut by, &first, &NewIndex::unique("sums", ["sum"])).unwrap();
        follow(by);
        // A child comes before its parent, and rows before the foreign key that they fit.
        let mut by = begin();
        let child = main.create_table_in(&mut by, &spec("child")).unwrap();
        let parent = main.create_table_in(&mut by, &spec("parent")).unwrap();
        child.insert_in(&mut by, &row(1, 1, 1)).unwrap();
        parent.insert_in(&mut by, &row(1, 1, 1)).unwrap();
        let key = NewForeignKey::new("to_parent", ["code"], "parent", ["code"]);
        main.add_foreign_key_in(&mut by, &child, &key).unwrap();
        follow(by);
        let mut by = begin();
        first.insert_in(&mut by, &row(9, 9, 9)).unwrap();
        parent.insert_in(&mut by, &row(9, 9, 9)).unwrap();
        let key = NewForeignKey::new("to_parent", ["code"], "parent", ["code"]);
        for code in 0..4u32 {
            first.prepare_delete("by_code").unwrap().run_in(&mut by, &[code.into()]).unwrap();
        }
        main.add_foreign_key_in(&mut by, &first, &key).unwrap();
        follow(by);
        // An index goes, and another one has its name; so does a column of a table that goes.
        let mut by = begin();
        let made = main.create_table_in(&mut by, &spec("made")).unwrap();
        main.drop_index_in(&mut by, &made, "by_sum").unwrap();
        main.create_index_in(&mut by, &made, &NewIndex::secondary("by_sum", ["sum", "a"])).unwrap();
        main.drop_index_in(&mut by, &parent, "by_sum").unwrap();
        main.create_index_in(&mut by, &parent, &NewIndex::unique("by_sum", ["sum"])).unwrap();
        main.add_column_in(&mut by, &child, &NewColumn::new("added", Type::U8).default(1)).unwrap();
        main.drop_table_in(&mut by, "child").unwrap();
        let again = main.create_table_in(&mut by, &spec("child")).unwrap();
        let text = NewColumn::nullable("added", Type::Text { max: 3 });
        main.add_column_in(&mut by, &again, &text).unwrap();
        follow(by);
        // All goes, children and parents.
        let mut by = begin();
        for name in ["first", "child", "parent"] {
            main.drop_table_in(&mut by, name).unwrap();
        }
        follow(by);
        assert_eq!([main.check().unwrap(), copy.check().unwrap()], [[], []]);
    }
}

#[test]
fn columns_that_are_promised_over_an_opening_are_told_with_their_transaction() {
    let pool = Pool::options().create_in_memory().unwrap();
    let main = Database::create(&pool, "db").unwrap();
    let first = main.create_table(&spec("first")).unwrap();
    let row = |a: u16| -> [Value<'static>; 4] { [a.into(), "b".into(), a.into(), 1.into()] };
    first.insert(&row(1)).unwrap();
    let mut by = main.begin().unwrap();
    for name in ["one", "two"] {
        main.add_column_in(&mut by, &first, &NewColumn::new(name, Type::U8).default(3)).unwrap();
    }
    let token = by.suspend();
    drop((first, main));
    let (main, told, copy) =
        (Database::open(&pool, "db").unwrap(), Arc::<Told>::default(), in_memory());
    let gate: Arc<dyn Gate> = told.clone();
    let told_from = main.set_gate(Some(gate));
    let stamp = main.export(|part| copy.restore(&part)).unwrap();
    assert!(told_from <= stamp);
    copy.apply(stamp, &WriteSet::default()).unwrap();
    let Resumed::Open(mut by) = main.resume(token).unwrap() else { panic!("it is over") };
    let first = main.table_in(&by, "first").unwrap();
    let all = [&row(2)[..], &[4.into(), 5.into()]].concat();
    first.insert_in(&mut by, &all).unwrap();
    main.table("first").unwrap().insert(&row(3)).unwrap();
    by.commit().unwrap();
    first.insert(&[&row(4)[..], &[6.into(), 7.into()]].concat()).unwrap();
    told.follow(&copy);
    assert_eq!(dump(&copy), dump(&main));
    let mut by = main.begin().unwrap();
    main.set_applied_in(&mut by, 1).unwrap();
    by.commit().unwrap();
    // The position is set by who changes the schema for the first time.
    let other = in_memory();
    let mut by = other.begin().unwrap();
    other.create_table_in(&mut by, &spec("first")).unwrap();
    other.set_applied_in(&mut by, 7).unwrap();
    by.commit().unwrap();
    assert_eq!(other.applied().unwrap(), 7);
    assert_eq!([main.check().unwrap(), other.check().unwrap()], [[], []]);
}
