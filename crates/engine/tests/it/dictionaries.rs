//! Columns that are encoded by dictionaries.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::thread;

use remanent_engine::{
    Database, Error, NewColumn, NewForeignKey, NewIndex, Order, POOL_DICTIONARIES_MAX, Placement,
    Rebuild, Row, RowId, Table, TableSpec, Transaction, Type, Value,
};
use remanent_pmem::{Emulation, Error as PoolError, Medium, Pool};

/// One column of each type, all of them encoded, and indexes of either structure.
fn things(dictionaries: Placement, indexes: Placement) -> TableSpec {
    let columns = ["id", "kind", "label", "weight", "is_new", "remark"];
    TableSpec::new("things")
        .column("id", Type::I32)
        .nullable("kind", Type::Uint { len: 1 })
        .nullable("label", Type::Text { max: 255 })
        .column("weight", Type::F64)
        .column("is_new", Type::Bool)
        .nullable("remark", Type::Bytes { max: 9 })
        .primary_key(["id"])
        .unique("by_label", ["label"])
        .index("by_kind", ["kind", "weight"])
        .index("by_weight", ["weight", "id"])
        .ordered(["by_weight"])
        .place(["primary", "by_label", "by_kind", "by_weight"], indexes)
        .all_encoded()
        .place_dictionaries(columns, dictionaries)
        .tile_rows(7)
}

fn label(id: i32) -> String {
    format!("{id}").repeat(1 + id as usize % 60)
}

fn insert(table: &Table, id: i32) -> Result<RowId, Error> {
    let (label, remark) = (label(id), [id as u8; 3]);
    table.insert(&[
        id.into(),
        (id % 5 != 0).then_some(id as u8 % 4).into(),
        (id % 3 != 0).then_some(&label[..]).into(),
        (f64::from(id % 7) - 3.0).into(),
        (id % 2 == 0).into(),
        (id % 4 != 0).then_some(&remark[..]).into(),
    ])
}

fn require(row: &Row<'_>) -> Result<i32, Error> {
    let id: i32 = row.get(0)?;
    assert_eq!(row.get::<Option<u8>>(1)?, (id % 5 != 0).then_some(id as u8 % 4));
    assert_eq!(row.get::<Option<&str>>(2)?, (id % 3 != 0).then_some(&label(id)[..]));
    assert_eq!(row.get::<f64>(3)?, f64::from(id % 7) - 3.0);
    assert_eq!(row.get::<bool>(4)?, id % 2 == 0);
    assert_eq!(row.get::<Option<&[u8]>>(5)?, (id % 4 != 0).then_some(&[id as u8; 3][..]));
    Ok(id)
}

/// Looks for rows in all ways that there are.
fn require_all(database: &Database, count: i32) {
    let table = database.table("things").unwrap();
    let now = database.snapshot();
    let (by_id, by_label) =
        (table.prepare_get("primary").unwrap(), table.prepare_get("by_label").unwrap());
    for id in 0..count {
        assert_eq!(by_id.run(&now, &[id.into()], require).unwrap(), Some(id));
        let found = by_label.run(&now, &[label(id).as_str().into()], require).unwrap();
        assert_eq!(found, (id % 3 != 0).then_some(id));
    }
    assert_eq!(by_id.run(&now, &[count.into()], require).unwrap(), None);
    let mut ids = Vec::new();
    let mut collect = |row: &Row<'_>| {
        ids.push((row.get::<f64>(3).unwrap() as i32, require(row).unwrap()));
        ControlFlow::<()>::Continue(())
    };
    let all = (Bound::Unbounded, Bound::Unbounded);
    let range = table.prepare_range("by_weight").unwrap();
    range.run(&now, all, Order::Ascending, &mut collect).unwrap();
    let mut expected: Vec<_> = (0..count).map(|id| (id % 7 - 3, id)).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let mut found = 0;
    let find = table.prepare_find("by_kind").unwrap();
    find.run(&now, &[2.into(), 1.0.into()], |row| {
        let id = require(row).unwrap();
        assert!(id % 7 == 4 && id % 4 == 2 && id % 5 != 0);
        found += 1;
        ControlFlow::<()>::Continue(())
    })
    .unwrap();
    let has = |id: &i32| id % 7 == 4 && id % 4 == 2 && id % 5 != 0;
    assert_eq!(found, (0..count).filter(has).count());
    let scan = table.prepare_scan(["weight", "id"]).unwrap();
    let heavy = scan.filter(|cells| Ok(cells.get::<f64>(0)? > 2.0));
    assert_eq!(heavy.count(&now).unwrap(), (0..count).filter(|id| id % 7 == 6).count() as u64);
    assert_eq!(scan.sum::<i64>(&now, 1).unwrap(), Some((0..i64::from(count)).sum()));
    assert_eq!(scan.max::<f64>(&now, 0).unwrap(), Some(3.0));
}

#[test]
fn rows_have_their_values_wherever_the_indexes_of_dictionaries_lie() {
    let places = [Placement::Pmem, Placement::Dram];
    for (dictionaries, indexes) in places.into_iter().flat_map(|d| places.map(|i| (d, i))) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("things.pool");
        let mut count = 0;
        for rebuild in [Rebuild::Wait, Rebuild::Steps, Rebuild::Background, Rebuild::Wait] {
            let pool = Pool::options().open_or_create(&path).unwrap();
            let options = Database::options().rebuild(rebuild);
            let database = options.open_or_create(&pool, "db").unwrap();
            let spec = things(dictionaries, indexes);
            let table = match count {
                0 => database.create_table(&spec).unwrap(),
                _ => database.table("things").unwrap(),
            };
            assert_eq!(table.columns()[..], spec.columns()[..]);
            for id in count..count + 60 {
                insert(&table, id).unwrap();
                assert!(matches!(insert(&table, id), Err(Error::Unique { .. })));
            }
            count += 60;
            require_all(&database, count);
            assert_eq!(database.check().unwrap(), []);
        }
    }
}

#[test]
fn a_value_that_changes_is_found_by_its_new_value_alone() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&things(Placement::Pmem, Placement::Pmem)).unwrap();
    for id in 0..30 {
        insert(&table, id).unwrap();
    }
    let before = database.snapshot();
    let update = table.prepare_update("by_label").unwrap();
    let changed = update.run(&[label(7).as_str().into()], |old, new| {
        new.set(2, "another")?;
        new.add(3, 0.5)?;
        assert_eq!((new.get::<&str>(2)?, old.get::<&str>(2)?), ("another", &label(7)[..]));
        Ok((old.get::<f64>(3)?, new.get::<f64>(3)?))
    });
    assert_eq!(changed.unwrap(), Some((-3.0, -2.5)));
    let get = table.prepare_get("by_label").unwrap();
    let id = |row: &Row<'_>| row.get::<i32>(0);
    for (now, old, new) in [(&before, Some(7), None), (&database.snapshot(), None, Some(7))] {
        assert_eq!(get.run(now, &[label(7).as_str().into()], id).unwrap(), old);
        assert_eq!(get.run(now, &["another".into()], id).unwrap(), new);
    }
    let taken = update.run(&["another".into()], |_, new| new.set(2, label(8).as_str()));
    assert!(matches!(taken, Err(Error::Unique { .. })), "{taken:?}");
    let long = update.run(&["another".into()], |_, new| new.set(1, 256));
    assert!(matches!(long, Err(Error::Value { .. })), "{long:?}");
    assert!(table.prepare_delete("by_label").unwrap().run(&["another".into()]).unwrap());
    drop(before);
    database.collect().unwrap();
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn transactions_are_taken_back_and_values_stay() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&things(Placement::Dram, Placement::Pmem)).unwrap();
    let mut transaction = database.begin().unwrap();
    let values = |id: i32| [id.into(), 1.into(), "a".into(), 1.0.into(), true.into(), Value::Null];
    table.insert_in(&mut transaction, &values(1)).unwrap();
    transaction.abort().unwrap();
    let mut transaction = database.begin().unwrap();
    transaction.batch(|batch| table.insert_in(batch, &values(2))).unwrap();
    transaction.commit().unwrap();
    let get = table.prepare_get("by_label").unwrap();
    let id = get.run(&database.snapshot(), &["a".into()], |row| row.get::<i32>(0)).unwrap();
    assert_eq!(id, Some(2));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn indexes_foreign_keys_and_columns_are_added_to_encoded_tables() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let parents = TableSpec::new("countries")
        .column("name", Type::Text { max: 40 })
        .primary_key(["name"])
        .encoded(["name"]);
    let parents = database.create_table(&parents).unwrap();
    let children = TableSpec::new("towns")
        .column("name", Type::Text { max: 40 })
        .column("country", Type::Text { max: 40 })
        .primary_key(["name"])
        .index("by_country", ["country"])
        .encoded(["name", "country"])
        .foreign_key("of_country", ["country"], "countries", ["name"]);
    let children = database.create_table(&children).unwrap();
    // The same values have other numbers there.
    for name in ["Chile", "Norway", "Ghana"] {
        parents.insert(&[name.into()]).unwrap();
    }
    children.insert(&["Bergen".into(), "Norway".into()]).unwrap();
    children.insert(&["Accra".into(), "Ghana".into()]).unwrap();
    let refused = children.insert(&["Lima".into(), "Peru".into()]);
    assert!(matches!(refused, Err(Error::NoParent { .. })), "{refused:?}");
    let delete = parents.prepare_delete("primary").unwrap();
    assert!(matches!(delete.run(&["Norway".into()]), Err(Error::HasChildren { .. })));
    assert!(delete.run(&["Chile".into()]).unwrap());

    let column = NewColumn::nullable("remark", Type::Text { max: 9 });
    let children = database.add_column(&children, &column).unwrap();
    children.insert(&["Oslo".into(), "Norway".into(), "x".into()]).unwrap();
    for index in [NewIndex::secondary("hash", ["country"]), {
        NewIndex::secondary("tree", ["country", "remark"]).ordered().place(Placement::Dram)
    }] {
        database.create_index(&children, &index).unwrap();
        let mut found = Vec::new();
        let find = children.prepare_find(index.name()).unwrap();
        let key: &[Value<'_>] = match index.name() {
            "hash" => &["Norway".into()],
            _ => &["Norway".into(), "x".into()],
        };
        find.run(&database.snapshot(), key, |row| {
            found.push(row.get::<&str>(0).unwrap().to_owned());
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
        found.sort();
        let expected: &[&str] = if key.len() == 1 { &["Bergen", "Oslo"] } else { &["Oslo"] };
        assert_eq!(found, expected);
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn threads_that_add_one_value_give_it_one_number() {
    const THREADS: u32 = 4;
    const VALUES: u32 = 700;
    for placement in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let options = Pool::options().emulation(Emulation::Nvram);
        let pool = options.create(directory.path().join("raced.pool")).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let spec = TableSpec::new("t")
            .column("id", Type::U32)
            .column("name", Type::Text { max: 40 })
            .primary_key(["id"])
            .index("by_name", ["name"])
            .encoded(["name"])
            .place_dictionaries(["name"], placement);
        let table = database.create_table(&spec).unwrap();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let table = table.clone();
                scope.spawn(move || {
                    for value in 0..VALUES {
                        let name = format!("the value {value}");
                        let id = value * THREADS + thread;
                        table.insert(&[id.into(), name.as_str().into()]).unwrap();
                    }
                });
            }
        });
        let mut names: BTreeMap<String, u32> = BTreeMap::new();
        let visit = |row: &Row<'_>| {
            let name = row.get::<&str>(1).unwrap().to_owned();
            assert_eq!(name, format!("the value {}", row.get::<u32>(0).unwrap() / THREADS));
            *names.entry(name).or_default() += 1;
            ControlFlow::<()>::Continue(())
        };
        table.scan(&database.snapshot(), visit).unwrap();
        assert!(names.len() == VALUES as usize && names.values().all(|rows| *rows == THREADS));
        // Also that no value is there twice.
        assert_eq!(database.check().unwrap(), []);
    }
}

/// A table of one encoded column, with the values 0 to 9.
fn numbers(database: &Database, indexes: Placement) -> Table {
    let spec = TableSpec::new("numbers")
        .column("number", Type::Text { max: 20 })
        .primary_key(["number"])
        .place(["primary"], indexes)
        .encoded(["number"])
        .place_dictionaries(["number"], Placement::Dram);
    let table = database.create_table(&spec).unwrap();
    for number in 0..10 {
        table.insert(&[number.to_string().as_str().into()]).unwrap();
    }
    table
}

/// Offset of the only run of entries in a pool, and the bytes of an entry.
fn entries(medium: &impl Medium) -> (u64, u64) {
    let is_run = |at: &u64| medium.load(*at) >> 32 == 0x656e_7472;
    let runs: Vec<u64> = (0..medium.len()).step_by(8).filter(is_run).collect();
    assert_eq!(runs.len(), 1);
    (runs[0] + 64, 8 + 24)
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Pool(PoolError::Corrupt { .. }))
}

#[test]
fn a_row_that_names_no_value_is_told_as_damage() {
    for indexes in [Placement::Pmem, Placement::Dram] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.pool");
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        numbers(&database, indexes);
        // The value of number 3 has another byte.
        let (first, len) = entries(pool.medium());
        let at = first + 3 * len + 8;
        pool.medium().store(at, pool.medium().load(at) ^ 1 << 9);
        // It was read before.
        let table = database.table("numbers").unwrap();
        let get = table.prepare_get("primary").unwrap();
        let text = |row: &Row<'_>| row.get::<&str>(0).map(str::to_owned);
        assert_eq!(
            get.run(&database.snapshot(), &["3".into()], text).unwrap().as_deref(),
            Some("3")
        );
        assert!(!database.check().unwrap().is_empty());
        drop((get, table, database, pool));

        let pool = Pool::options().open(&path).unwrap();
        let options = Database::options().rebuild(Rebuild::Steps);
        let database = options.open(&pool, "db").unwrap();
        let table = database.table("numbers").unwrap();
        let get = table.prepare_get("primary").unwrap();
        let now = database.snapshot();
        for number in ["0", "2", "4", "9"] {
            assert_eq!(get.run(&now, &[number.into()], text).unwrap().as_deref(), Some(number));
        }
        let error = get.run(&now, &["3".into()], text).unwrap_err();
        assert!(is_damage(&error), "{error}");
        let mut damaged = 0;
        let visit = |row: &Row<'_>| {
            damaged += u32::from(text(row).is_err_and(|error| is_damage(&error)));
            ControlFlow::<()>::Continue(())
        };
        table.scan(&now, visit).unwrap();
        assert_eq!(damaged, 1);
        assert!(!database.check().unwrap().is_empty());
        // The row may have any key: an index that was to be rebuilt from it says so.
        match table.insert(&["10".into()]) {
            Ok(_) => assert_eq!(indexes, Placement::Pmem),
            Err(error) => assert!(indexes == Placement::Dram && is_damage(&error), "{error}"),
        }
    }
}

#[test]
fn a_full_pool_refuses_new_values_and_takes_known_ones() {
    let pool = Pool::options().size_max(24 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("t")
        .column("id", Type::U64)
        .column("text", Type::Text { max: 250 })
        .primary_key(["id"])
        .encoded(["text"]);
    let table = database.create_table(&spec).unwrap();
    let insert = |id: u64| table.insert(&[id.into(), format!("{id:0250}").as_str().into()]);
    let refused = (0..).find_map(|id| insert(id).err()).unwrap();
    assert!(refused.is_full(), "{refused}");
    assert!(insert(1 << 40).is_err_and(|error| error.is_full()));
    // Rows and versions get room, dictionaries none.
    let delete = table.prepare_delete("primary").unwrap();
    for id in 0_u64..64 {
        assert!(delete.run(&[id.into()]).unwrap());
    }
    database.collect().unwrap();
    let update = table.prepare_update("primary").unwrap();
    let known = format!("{:0250}", 5);
    let changed = update.run(&[70.into()], |_, row| row.set(1, known.as_str()));
    assert_eq!(changed.unwrap(), Some(()));
    for id in 0_u64..32 {
        table.insert(&[id.into(), known.as_str().into()]).unwrap();
    }
    assert!(insert(1 << 41).is_err_and(|error| error.is_full()));
    assert_eq!(database.check().unwrap(), []);
    database.drop_table("t").unwrap();
}

#[test]
fn a_dropped_table_leaves_nothing_of_its_dictionaries() {
    let pool = Pool::options().size_max(48 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    // Together they would not fit.
    for round in 0..12 {
        let placement = if round % 2 == 0 { Placement::Pmem } else { Placement::Dram };
        let spec = TableSpec::new("t")
            .column("text", Type::Text { max: 250 })
            .primary_key(["text"])
            .encoded(["text"])
            .place_dictionaries(["text"], placement);
        let table = database.create_table(&spec).unwrap();
        for number in 0..10_000 {
            let inserted = table.insert(&[format!("{number:0250}").as_str().into()]);
            assert!(inserted.is_ok(), "{round}, {number}: {inserted:?}");
        }
        database.drop_table("t").unwrap();
        drop(table);
        database.collect().unwrap();
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn a_table_has_as_many_dictionaries_as_stated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wide.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = |columns: usize, in_dram: usize| {
        let spec = TableSpec::new("wide").primary_key(["c0"]);
        let name = |column: usize| format!("c{column}");
        let columns_of =
            (0..columns).fold(spec, |spec, column| spec.column(name(column), Type::U64));
        let in_dram: Vec<String> = (0..in_dram).map(name).collect();
        let in_dram = in_dram.iter().map(|name| &**name);
        columns_of.all_encoded().place_dictionaries(in_dram, Placement::Dram)
    };
    // Blocks that the lane has still to free.
    let others = database.create_table(&spec(3, 0)).unwrap();
    for number in 0_u64..300 {
        others.insert(&[number.into(), 1.into(), 2.into()]).unwrap();
        let update = others.prepare_update("primary").unwrap();
        update.run(&[number.into()], |_, row| row.set(1, number)).unwrap().unwrap();
    }
    database.drop_table("wide").unwrap();
    drop(others);

    let refused = database.create_table(&spec(POOL_DICTIONARIES_MAX + 1, 0));
    assert!(refused.is_err_and(|error| matches!(error, Error::Schema { .. })));
    let count = POOL_DICTIONARIES_MAX + 2;
    let table = database.create_table(&spec(count, 2)).unwrap();
    let values: Vec<Value<'_>> = (0..count as u64).map(Value::from).collect();
    table.insert(&values).unwrap();
    drop((table, database, pool));
    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_eq!(database.check().unwrap(), []);
    database.drop_table("wide").unwrap();
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_dictionary_that_is_damaged_is_told_at_opening() {
    const STATE: u64 = 0x6469_6374;
    const RUN: u64 = 0x656e_7472;
    let flip: fn(u64) -> u64 = |word| word ^ 1 << 40;
    let fewer: fn(u64) -> u64 = |count| count - 2;
    let zero: fn(u64) -> u64 = |_| 0;
    let (first, len) = (64, 8 + 24);
    // The heads of the state and of a run; how many numbers there are; what leads to a run; the
    // last entry but one.
    for (tag, word, damage) in [
        (STATE, 0, flip),
        (STATE, 8, flip),
        (RUN, 0, flip),
        (RUN, 8, flip),
        (STATE, 16, flip),
        (STATE, 16, fewer),
        (STATE, 16, zero),
        (STATE, 64, zero),
        (RUN, first + 8 * len, zero),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.pool");
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        drop(numbers(&database, Placement::Pmem));
        drop(database);
        let medium = pool.medium();
        let is_it = |at: &u64| medium.load(*at) >> 32 == tag;
        let at = (0..medium.len()).step_by(8).find(is_it).unwrap();
        medium.store(at + word, damage(medium.load(at + word)));
        drop(pool);
        let pool = Pool::options().open(&path).unwrap();
        let error = Database::open(&pool, "db").err().unwrap();
        assert!(is_damage(&error), "{error}");
    }
}

#[test]
fn a_number_whose_entry_was_taken_away_is_not_given_away_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    drop(numbers(&database, Placement::Pmem));
    drop(database);
    // As a crash leaves it, or damage of the last entry.
    let (first, len) = entries(pool.medium());
    pool.medium().store(first + 9 * len, 0);
    drop(pool);
    for number in [20, 21, 22] {
        let pool = Pool::options().open(&path).unwrap();
        let database = Database::open(&pool, "db").unwrap();
        let table = database.table("numbers").unwrap();
        let get = table.prepare_get("primary").unwrap();
        let text = |row: &Row<'_>| row.get::<&str>(0).map(str::to_owned);
        for number in number..number + 5 {
            table.insert(&[number.to_string().as_str().into()]).unwrap();
        }
        let now = database.snapshot();
        let mut wrong = 0;
        let visit = |row: &Row<'_>| {
            wrong += u32::from(text(row).is_err_and(|error| is_damage(&error)));
            ControlFlow::<()>::Continue(())
        };
        table.scan(&now, visit).unwrap();
        // The row that had it.
        assert_eq!(wrong, 1);
        assert_eq!(get.run(&now, &["8".into()], text).unwrap().as_deref(), Some("8"));
        for number in number..number + 5 {
            let delete = table.prepare_delete("primary").unwrap();
            assert!(delete.run(&[number.to_string().as_str().into()]).unwrap());
        }
    }
}

#[test]
fn foreign_keys_tell_of_values_that_are_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("towns.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let countries = TableSpec::new("countries")
        .column("name", Type::Text { max: 7 })
        .primary_key(["name"])
        .encoded(["name"])
        .place_dictionaries(["name"], Placement::Dram);
    let towns = TableSpec::new("towns")
        .column("id", Type::U32)
        .column("country", Type::Text { max: 7 })
        .column("people", Type::U32)
        .primary_key(["id"])
        .index("by_country", ["country"])
        .encoded(["country"])
        .foreign_key("of_country", ["country"], "countries", ["name"]);
    let (countries, towns) =
        (database.create_table(&countries).unwrap(), database.create_table(&towns).unwrap());
    for (id, name) in (0_u32..).zip(["Norway", "Chile", "Peru"]) {
        countries.insert(&[name.into()]).unwrap();
        towns.insert(&[id.into(), name.into(), 1.into()]).unwrap();
    }
    drop((countries, towns, database));
    // Chile, in both dictionaries.
    let medium = pool.medium();
    let chile = u64::from_le_bytes(*b"\x05Chile\0\0");
    let found: Vec<u64> =
        (0..medium.len()).step_by(8).filter(|at| medium.load(*at) == chile).collect();
    assert_eq!(found.len(), 2);
    for at in found {
        medium.store(at, chile ^ 1 << 9);
    }
    drop(pool);

    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let (countries, towns) =
        (database.table("countries").unwrap(), database.table("towns").unwrap());
    assert!(!database.check().unwrap().is_empty());
    let update = towns.prepare_update("primary").unwrap();
    let moved = |id: u32, to: &str| update.run(&[id.into()], |_, town| town.set(1, to));
    assert_eq!(moved(0, "Peru").unwrap(), Some(()));
    let delete = countries.prepare_delete("primary").unwrap();
    assert!(delete.run(&["Peru".into()]).is_err());
    let again = NewForeignKey::new("again", ["country"], "countries", ["name"]);
    let added = database.add_foreign_key(&towns, &again);
    assert!(added.is_err_and(|error| is_damage(&error)));
    // What does not need the value goes on, and mends it.
    assert_eq!(update.run(&[1.into()], |_, town| town.set(2, 7)).unwrap(), Some(()));
    assert_eq!(moved(1, "Peru").unwrap(), Some(()));
    database.add_foreign_key(&towns, &again).unwrap();
}

#[test]
fn indexes_of_dictionaries_are_rebuilt_in_the_background_although_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let spec = TableSpec::new("numbers")
        .column("id", Type::U32)
        .column("text", Type::Text { max: 12 })
        .primary_key(["id"])
        .encoded(["text"])
        .place_dictionaries(["text"], Placement::Dram);
    let table = database.create_table(&spec).unwrap();
    let mut all = database.begin().unwrap();
    let insert = |batch: &mut Transaction<'_>| {
        (0..40_000_u32).try_for_each(|id| {
            table.insert_in(batch, &[id.into(), id.to_string().as_str().into()]).map(drop)
        })
    };
    all.batch(insert).unwrap();
    all.commit().unwrap();
    drop((table, database, pool));

    let pool = Pool::options().open(&path).unwrap();
    let options = Database::options().rebuild(Rebuild::Steps);
    let database = options.open(&pool, "db").unwrap();
    let steps = std::iter::repeat_with(|| database.rebuild_step().unwrap());
    assert_eq!(steps.take_while(|is_left| *is_left).count(), 3);
    drop(database);
    let options = Database::options().rebuild(Rebuild::Background);
    let database = options.open(&pool, "db").unwrap();
    while database.rebuild_step().unwrap() {}
    let table = database.table("numbers").unwrap();
    table.insert(&[40_000.into(), "7".into()]).unwrap();
    table.insert(&[40_001.into(), "new".into()]).unwrap();
    assert_eq!(database.check().unwrap(), []);
}
