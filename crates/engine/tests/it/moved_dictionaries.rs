//! Indexes of dictionaries that are moved while others read and change their table.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_engine::{
    Column, Database, Error, NewColumn, Placement, Rebuild, Row, Table, TableSpec, Type, WriteSet,
};
use remanent_pmem::Pool;

const PLACES: [Placement; 2] = [Placement::Pmem, Placement::Dram];

/// Two encoded columns, and one that is not.
fn towns(placement: Placement) -> TableSpec {
    TableSpec::new("towns")
        .column("id", Type::U32)
        .column("name", Type::Text { max: 40 })
        .nullable("country", Type::Text { max: 20 })
        .primary_key(["id"])
        .index("by_name", ["name"])
        .encoded(["name", "country"])
        .place_dictionaries(["name", "country"], placement)
        .tile_rows(64)
}

fn in_memory(placement: Placement) -> (Database, Table) {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&towns(placement)).unwrap();
    (database, table)
}

fn reopened(path: &Path, how: Rebuild) -> (Pool, Database, Table) {
    let pool = Pool::options().open(path).unwrap();
    let database = Database::options().rebuild(how).open(&pool, "db").unwrap();
    let table = database.table("towns").unwrap();
    (pool, database, table)
}

fn insert(table: &Table, id: u32, name: u32) -> Result<(), Error> {
    let (name, country) = (format!("town {name}"), format!("country {}", name % 7));
    table.insert(&[id.into(), name.as_str().into(), country.as_str().into()]).map(drop)
}

/// How many rows have each name.
fn names(database: &Database, table: &Table) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let visit = |row: &Row<'_>| {
        *found.entry(row.get::<&str>(1).unwrap().to_owned()).or_default() += 1;
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    found
}

/// Each of the names 0 to `count` is found by the index in as many rows, and `check` has found each
/// value once in its dictionary, and once in the index of that.
fn require(database: &Database, table: &Table, count: u32, rows: usize) {
    let all = names(database, table);
    assert_eq!(all.len(), count as usize);
    assert!(all.values().all(|of_name| *of_name == rows), "{all:?}");
    let find = table.prepare_find("by_name").unwrap();
    for name in all.keys() {
        let mut found = 0;
        let visit = |_: &Row<'_>| {
            found += 1;
            ControlFlow::<()>::Continue(())
        };
        find.run(&database.snapshot(), &[name.as_str().into()], visit).unwrap();
        assert_eq!(found, rows, "{name}");
    }
    assert_eq!(database.check().unwrap(), []);
}

fn values_of(database: &Database, column: &str) -> u64 {
    let uses = database.index_uses();
    let of_column = uses.iter().find(|used| used.is_dictionary && used.index == column);
    of_column.expect("the column is encoded").rows
}

#[test]
fn an_index_is_moved_and_leads_to_the_same_numbers() {
    for placement in PLACES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("towns.pool");
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&towns(placement)).unwrap();
        // More than are added at once.
        let count = 2_500;
        (0..count).for_each(|name| insert(&table, name, name).unwrap());
        let other = if placement == Placement::Pmem { Placement::Dram } else { Placement::Pmem };
        for to in [other, other, placement, other] {
            database.place_dictionary(&table, "name", to).unwrap();
            assert_eq!(table.dictionary_placement("name").unwrap(), to);
            assert_eq!(table.dictionary_placement("country").unwrap(), placement);
        }
        // Old handles have what was so.
        let dictionary = |table: &Table| table.columns()[1].dictionary;
        assert_eq!(dictionary(&table), Some(placement));
        assert_eq!(dictionary(&database.table("towns").unwrap()), Some(other));
        (0..count).for_each(|name| insert(&table, count + name, name).unwrap());
        assert_eq!(values_of(&database, "name"), count.into());
        insert(&table, 2 * count, count).unwrap();
        insert(&table, 2 * count + 1, count).unwrap();
        require(&database, &table, count + 1, 2);
        drop((table, database, pool));

        for how in [Rebuild::Wait, Rebuild::Steps] {
            let (_pool, database, table) = reopened(&path, how);
            assert_eq!(table.dictionary_placement("name").unwrap(), other);
            assert_eq!(dictionary(&table), Some(other));
            let delete = table.prepare_delete("primary").unwrap();
            assert!(delete.run(&[3.into()]).unwrap());
            insert(&table, 3, 3).unwrap();
            assert_eq!(values_of(&database, "name"), u64::from(count) + 1);
            require(&database, &table, count + 1, 2);
        }
    }
}

#[test]
fn one_that_is_not_rebuilt_yet_is_moved() {
    for moved_at in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("towns.pool");
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&towns(Placement::Dram)).unwrap();
        (0..20_000).for_each(|name| insert(&table, name, name).unwrap());
        drop((table, database, pool));

        let (pool, database, table) = reopened(&path, Rebuild::Steps);
        for _ in 0..moved_at {
            assert!(database.rebuild_step().unwrap());
        }
        database.place_dictionary(&table, "name", Placement::Pmem).unwrap();
        insert(&table, 20_000, 7).unwrap();
        assert_eq!(values_of(&database, "name"), 20_000);
        while database.rebuild_step().unwrap() {}
        assert_eq!(database.check().unwrap(), []);
        drop((table, database, pool));

        // What was added to an index that was not whole is there, too.
        let (_pool, database, table) = reopened(&path, Rebuild::Steps);
        database.place_dictionary(&table, "name", Placement::Dram).unwrap();
        insert(&table, 20_001, 8).unwrap();
        assert_eq!(values_of(&database, "name"), 20_000);
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn what_cannot_be_moved_is_told_by_name() {
    let (database, table) = in_memory(Placement::Pmem);
    let place = |table: &Table, column: &str| {
        database.place_dictionary(table, column, Placement::Dram).unwrap_err()
    };
    let error = place(&table, "id");
    assert!(matches!(error, Error::NotEncoded { .. }), "{error}");
    assert!(error.to_string().contains("column \"id\" of table \"towns\""), "{error}");
    let error = place(&table, "nobody");
    assert!(matches!(error, Error::NoSuchColumn { .. }), "{error}");
    assert!(table.dictionary_placement("nobody").is_err());
    let added = NewColumn::nullable("added", Type::U8);
    let wider = database.add_column(&table, &added).unwrap();
    assert!(matches!(place(&wider, "added"), Error::NotEncoded { .. }));
    assert!(matches!(wider.dictionary_placement("added"), Err(Error::NotEncoded { .. })));
    let other = in_memory(Placement::Pmem);
    assert!(matches!(place(&other.1, "name"), Error::OtherDatabase));
    database.drop_table("towns").unwrap();
    assert!(matches!(place(&table, "name"), Error::NoSuchTable { .. }));
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_column_that_is_added_later_keeps_where_an_index_was_moved() {
    let (database, table) = in_memory(Placement::Pmem);
    database.place_dictionary(&table, "name", Placement::Dram).unwrap();
    database.add_column(&table, &NewColumn::nullable("added", Type::U8)).unwrap();
    database.place_dictionary(&table, "country", Placement::Dram).unwrap();
    let table = database.table("towns").unwrap();
    let placed = |column: &Column| column.dictionary;
    let placed: Vec<_> = table.columns().iter().map(placed).collect();
    assert_eq!(placed, [None, Some(Placement::Dram), Some(Placement::Dram), None]);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn threads_add_the_same_values_while_the_index_is_moved() {
    const THREADS: u32 = 3;
    const COUNT: u32 = 3_000;
    for placement in PLACES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("towns.pool");
        let pool = Pool::options().create(&path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&towns(placement)).unwrap();
        let is_done = AtomicBool::new(false);
        let moves = thread::scope(|scope| {
            let adding: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let table = &table;
                    scope.spawn(move || {
                        for name in 0..COUNT {
                            insert(table, thread * COUNT + name, name).unwrap();
                        }
                    })
                })
                .collect();
            let moving = scope.spawn(|| {
                let mut moves = 0;
                while !is_done.load(Ordering::Relaxed) || moves < 2 {
                    for to in PLACES {
                        database.place_dictionary(&table, "name", to).unwrap();
                        database.place_dictionary(&table, "country", to).unwrap();
                    }
                    moves += 1;
                }
                moves
            });
            adding.into_iter().for_each(|thread| thread.join().unwrap());
            is_done.store(true, Ordering::Relaxed);
            moving.join().unwrap()
        });
        assert!(moves >= 2);
        assert_eq!(values_of(&database, "name"), COUNT.into());
        assert_eq!(values_of(&database, "country"), 7);
        require(&database, &table, COUNT, THREADS as usize);
        database.place_dictionary(&table, "name", placement).unwrap();
        require(&database, &table, COUNT, THREADS as usize);
        drop((table, database, pool));
        let (_pool, database, table) = reopened(&path, Rebuild::Steps);
        insert(&table, THREADS * COUNT, COUNT).unwrap();
        (0..COUNT).for_each(|name| insert(&table, (THREADS + 1) * COUNT + name, name).unwrap());
        assert_eq!(values_of(&database, "name"), u64::from(COUNT) + 1);
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn the_space_of_old_indexes_comes_back() {
    let pool = Pool::options().size_max(40 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&towns(Placement::Dram)).unwrap();
    // An index of 600 KiB: together they would not fit.
    let count = 40_000;
    let mut all = database.begin().unwrap();
    let names: Vec<String> = (0..count).map(|name| format!("town {name}")).collect();
    all.batch(|batch| {
        (0..count).zip(&names).try_for_each(|(id, name)| {
            table.insert_in(batch, &[id.into(), name.as_str().into(), "x".into()]).map(drop)
        })
    })
    .unwrap();
    all.commit().unwrap();
    for round in 0..40 {
        for to in PLACES {
            let done = database.place_dictionary(&table, "name", to);
            assert!(done.is_ok(), "{round}: {done:?}");
        }
    }
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_full_pool_refuses_to_take_an_index_and_loses_nothing() {
    let pool = Pool::options().size_max(24 << 20).create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&towns(Placement::Dram)).unwrap();
    let refused = (0..).find_map(|name| insert(&table, name, name).err()).unwrap();
    assert!(refused.is_full(), "{refused}");
    let values = values_of(&database, "name");
    for _ in 0..3 {
        let refused = database.place_dictionary(&table, "name", Placement::Pmem).unwrap_err();
        assert!(refused.is_full(), "{refused}");
        assert_eq!(table.dictionary_placement("name").unwrap(), Placement::Dram);
    }
    assert_eq!(database.check().unwrap(), []);
    let delete = table.prepare_delete("primary").unwrap();
    for id in 0..200_u32 {
        assert!(delete.run(&[id.into()]).unwrap());
    }
    database.collect().unwrap();
    (0..200).for_each(|name| insert(&table, name, name).unwrap());
    assert_eq!(values_of(&database, "name"), values);
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_table_is_dropped_while_its_dictionary_is_moved() {
    for round in 0..20 {
        let (database, table) = in_memory(PLACES[round % 2]);
        (0..1_500).for_each(|name| insert(&table, name, name).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                for to in [PLACES[(round + 1) % 2], PLACES[round % 2]] {
                    match database.place_dictionary(&table, "name", to) {
                        Ok(()) | Err(Error::NoSuchTable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            thread::sleep(std::time::Duration::from_micros(200 * round as u64));
            database.drop_table("towns").unwrap();
        });
        drop(table);
        database.collect().unwrap();
        assert_eq!(database.check().unwrap(), []);
        database.create_table(&towns(Placement::Pmem)).unwrap();
    }
}

#[test]
fn more_indexes_are_moved_to_the_pool_than_a_table_is_made_with() {
    let columns = remanent_engine::POOL_DICTIONARIES_MAX + 2;
    let (database, _) = in_memory(Placement::Pmem);
    let name = |column: usize| format!("c{column}");
    let spec = TableSpec::new("wide").primary_key(["c0"]);
    let spec = (0..columns).fold(spec, |spec, column| spec.column(name(column), Type::U64));
    let spec = spec.all_encoded().place_dictionaries(["c0", "c1"], Placement::Dram);
    let table = database.create_table(&spec).unwrap();
    let row: Vec<_> = (0..columns as u64).map(remanent_engine::Value::from).collect();
    table.insert(&row).unwrap();
    for column in ["c0", "c1"] {
        database.place_dictionary(&table, column, Placement::Pmem).unwrap();
    }
    assert_eq!(database.check().unwrap(), []);
    // A copy is made with as many as possible.
    let copy = Database::create(&Pool::options().create_in_memory().unwrap(), "db").unwrap();
    let stamp = database.export(|part| copy.restore(&part)).unwrap();
    assert!(copy.apply(stamp, &WriteSet::default()).unwrap());
    let copied = copy.table("wide").unwrap();
    let last = |table: &Table| table.dictionary_placement(&name(columns - 1)).unwrap();
    assert_eq!((last(&table), last(&copied)), (Placement::Pmem, Placement::Dram));
    drop((table, copied));
    database.drop_table("wide").unwrap();
    assert_eq!(database.check().unwrap(), []);
}
