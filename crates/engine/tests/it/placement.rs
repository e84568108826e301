//! Indexes in DRAM: they are empty when a database is opened, and rows are found all the same.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use remanent_engine::{
    Database, Error, Moment, Placement, Rebuild, RebuildProgress, Resumed, Row, Table, TableSpec,
    Type, Value,
};
use remanent_pmem::{Medium, Pool};

/// Indexes of all kinds, where they are told.
fn people(placement: Placement) -> TableSpec {
    TableSpec::new("people")
        .column("id", Type::U32)
        .nullable("name", Type::Text { max: 20 })
        .column("year", Type::U16)
        .column("remark", Type::Text { max: 40 })
        .primary_key(["id"])
        .unique("by_name", ["name"])
        .index("by_year", ["year"])
        .place(["primary", "by_name", "by_year"], placement)
        .tile_rows(7)
}

type Person = (Option<String>, u16);

/// The table, beside what it has to have.
struct People {
    pool: Pool,
    database: Database,
    table: Table,
    expected: BTreeMap<u32, Person>,
}

impl People {
    fn create(path: &Path, count: u32) -> Self {
        let pool = Pool::options().create(path).unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let table = database.create_table(&people(Placement::Dram)).unwrap();
        let mut people = People { pool, database, table, expected: BTreeMap::new() };
        for id in 0..count {
            assert!(people.insert(id, Some(id), id as u16 % 10));
        }
        people
    }

    /// The database is closed, and opened by the next process.
    fn reopened(self, how: Rebuild) -> Self {
        let People { pool, database, table, expected } = self;
        drop((database, table));
        let path = pool.path().to_owned();
        drop(pool);
        let pool = Pool::options().open(path).unwrap();
        let database = Database::options().rebuild(how).threads(2).open(&pool, "db").unwrap();
        let table = database.table("people").unwrap();
        People { pool, database, table, expected }
    }

    fn is_taken(&self, id: u32, name: Option<&String>) -> bool {
        let of_others = self.expected.iter().filter(|(other, _)| **other != id);
        name.is_some() && of_others.into_iter().any(|(_, (of, _))| of.as_ref() == name)
    }

    fn insert(&mut self, id: u32, name: Option<u32>, year: u16) -> bool {
        self.insert_as(id, name.map(|number| format!("name {number}")), year)
    }

    fn insert_as(&mut self, id: u32, name: Option<String>, year: u16) -> bool {
        let values = [id.into(), Value::from(name.as_ref()), year.into(), "x".into()];
        let is_taken = self.expected.contains_key(&id) || self.is_taken(id, name.as_ref());
        match self.table.insert(&values) {
            Ok(_) => assert!(!is_taken, "{id} {name:?} is taken"),
            Err(Error::Unique { .. }) => assert!(is_taken, "{id} {name:?} is free"),
            Err(error) => panic!("{error}"),
        }
        if !is_taken {
            self.expected.insert(id, (name, year));
        }
        !is_taken
    }

    fn update(&mut self, id: u32, name: Option<u32>, year: u16) {
        let name = name.map(|number| format!("name {number}"));
        let update = self.table.prepare_update("primary").unwrap();
        let done = update.run(&[id.into()], |_, row| {
            row.set(1, name.as_ref())?;
            row.set(2, year)
        });
        let is_taken = self.is_taken(id, name.as_ref());
        match (done, self.expected.get_mut(&id)) {
            (Ok(Some(())), Some(person)) => {
                assert!(!is_taken);
                *person = (name, year);
            }
            (Ok(None), None) => {}
            (Err(Error::Unique { .. }), Some(_)) => assert!(is_taken),
            (done, person) => panic!("{done:?} {person:?}"),
        }
    }

    fn delete(&mut self, id: u32) {
        let delete = self.table.prepare_delete("primary").unwrap();
        assert_eq!(delete.run(&[id.into()]).unwrap(), self.expected.remove(&id).is_some());
    }

    /// Every row is found by each of its keys, and no other one.
    fn compare(&self) {
        let now = self.database.snapshot();
        assert_eq!(found(&self.table, &now), self.expected);
        let (by_id, by_name) =
            (self.table.prepare_get("primary"), self.table.prepare_get("by_name"));
        let (by_id, by_name) = (by_id.unwrap(), by_name.unwrap());
        for id in 0..60u32 {
            let of_id = by_id.run(&now, &[id.into()], person).unwrap();
            let expected = self.expected.get(&id).map(|person| (id, person.clone()));
            assert_eq!(of_id, expected);
            let name = format!("name {id}");
            let of_name = by_name.run(&now, &[(&name).into()], person).unwrap();
            let expected = self.expected.iter().find(|(_, (of, _))| *of == Some(name.clone()));
            assert_eq!(of_name, expected.map(|(id, person)| (*id, person.clone())));
        }
        let by_year = self.table.prepare_find("by_year").unwrap();
        for year in 0..10u16 {
            let mut of_year = BTreeMap::new();
            let visit = |row: &Row<'_>| {
                let (id, person) = person(row).unwrap();
                assert!(of_year.insert(id, person).is_none(), "{id} comes twice");
                ControlFlow::<()>::Continue(())
            };
            by_year.run(&now, &[year.into()], visit).unwrap();
            let expected = self.expected.iter().filter(|(_, (_, of))| *of == year);
            assert!(of_year.iter().eq(expected), "{of_year:?}");
        }
    }
}

fn person(row: &Row<'_>) -> Result<(u32, Person), Error> {
    Ok((row.get(0)?, (row.get::<Option<&str>>(1)?.map(str::to_owned), row.get(2)?)))
}

fn found(table: &Table, moment: &impl Moment) -> BTreeMap<u32, Person> {
    let mut all = BTreeMap::new();
    let visit = |row: &Row<'_>| {
        let (id, person) = person(row).unwrap();
        assert!(all.insert(id, person).is_none());
        ControlFlow::<()>::Continue(())
    };
    table.scan(moment, visit).unwrap();
    all
}

fn with_people(count: u32, run: impl FnOnce(People)) {
    let directory = tempfile::tempdir().unwrap();
    run(People::create(&directory.path().join("people.pool"), count));
}

#[test]
fn rows_are_found_before_their_indexes_are_rebuilt_and_while_they_are() {
    with_people(40, |people| {
        let mut people = people.reopened(Rebuild::Steps);
        let RebuildProgress { tiles, tiles_left } = people.database.rebuild_progress();
        assert_eq!((tiles, tiles_left), (6, 6)); // of 7 rows each
        // To find that something is not there, all tiles are read. Only the index by year, where
        // nobody has looked for anything, is not rebuilt then.
        assert!(!people.insert(50, Some(7), 1) && !people.insert(7, None, 1));
        assert_eq!(people.database.rebuild_progress().tiles_left, 1);
        people.compare();
        let mut people = people.reopened(Rebuild::Steps);
        people.delete(3);
        people.update(4, Some(3), 5);
        people.update(5, Some(4), 5);
        assert!(people.insert(3, Some(5), 9));
        while people.database.rebuild_step().unwrap() {
            people.compare();
        }
        assert_eq!(people.database.rebuild_progress().tiles_left, 0);
        people.compare();
        assert_eq!(people.database.check().unwrap(), []);
    });
}

#[test]
fn rows_of_other_tiles_are_found_beside_a_damaged_one() {
    const TILE: u64 = 0x7469_6c65;
    with_people(40, |people| {
        let medium = people.pool.medium();
        // By its tag and its number.
        let mut blocks = (0..medium.len()).step_by(32);
        let tile = blocks.find(|at| medium.load(*at) >> 32 == TILE && medium.load(at + 8) == 2);
        let tile = tile.expect("there are six");
        let tag = medium.load(tile);
        medium.store(tile, 7);
        let People { pool, database, table, expected } = people.reopened(Rebuild::Steps);
        let get = table.prepare_get("primary").unwrap();
        let now = database.snapshot();
        // More often than it takes for somebody to add what was read.
        for _ in 0..3 {
            for id in 0..40u32 {
                let found = get.run(&now, &[id.into()], |row| row.get::<u16>(2));
                match id / 7 {
                    2 => assert!(matches!(found, Err(Error::Pool(_))), "{id}: {found:?}"),
                    _ => assert_eq!(found.unwrap(), Some(expected[&id].1), "{id}"),
                }
            }
            while database.rebuild_step().unwrap() {}
        }
        drop(now);
        pool.medium().store(tile, tag);
        drop((get, table, database));
        let table = Database::open(&pool, "db").unwrap().table("people").unwrap();
        drop(table);
    });
}

#[test]
fn opening_waits_unless_it_is_told_not_to() {
    with_people(40, |people| {
        let people = people.reopened(Rebuild::Wait);
        assert_eq!(people.database.rebuild_progress(), RebuildProgress { tiles: 6, tiles_left: 0 });
        people.compare();
        let people = people.reopened(Rebuild::Background);
        people.compare();
        // Who opens again while threads rebuild, waits for them.
        let again = Database::open(&people.pool, "db").unwrap();
        assert_eq!(again.rebuild_progress().tiles_left, 0);
        people.compare();
        assert_eq!(people.database.check().unwrap(), []);
        assert_eq!(people.table.placement("by_year").unwrap(), Placement::Dram);
    });
}

#[test]
fn threads_stop_when_the_database_is_closed() {
    with_people(0, |people| {
        let People { database, table, .. } = &people;
        let spec = TableSpec::new("many").column("id", Type::U32).primary_key(["id"]);
        let many = database.create_table(&spec.place(["primary"], Placement::Dram)).unwrap();
        for id in 0..20_000u32 {
            many.insert(&[id.into()]).unwrap();
        }
        drop((many, table));
        let mut people = people;
        for _ in 0..5 {
            // The pool could not be opened again if a thread still had it.
            people = people.reopened(Rebuild::Background);
        }
        // They go on while anybody has a table.
        let many = people.database.table("many").unwrap();
        let database = people.database.clone();
        drop(people);
        let get = many.prepare_get("primary").unwrap();
        for id in (0..20_000u32).step_by(1_000) {
            assert!(get.run(&database.snapshot(), &[id.into()], |_| Ok(())).unwrap().is_some());
        }
    });
}

#[test]
fn a_transaction_goes_on_before_its_indexes_are_rebuilt() {
    with_people(20, |people| {
        let mut transaction = people.database.begin().unwrap();
        let update = people.table.prepare_update("primary").unwrap();
        let rename = |row: &mut remanent_engine::Changes<'_>| row.set(1, "other");
        update.run_in(&mut transaction, &[4.into()], |_, row| rename(row)).unwrap();
        let values = [30.into(), "new".into(), 3.into(), "x".into()];
        people.table.insert_in(&mut transaction, &values).unwrap();
        let token = transaction.suspend();
        drop(update);

        let mut people = people.reopened(Rebuild::Steps);
        people.compare();
        let Resumed::Open(mut transaction) = people.database.resume(token).unwrap() else {
            panic!("it was not ended")
        };
        let by_name = people.table.prepare_get("by_name").unwrap();
        for (name, id) in [("other", Some(4)), ("new", Some(30)), ("name 4", None)] {
            let found = by_name.run(&transaction, &[name.into()], |row| row.get::<u32>(0)).unwrap();
            assert_eq!(found, id, "{name}");
        }
        let taken = people.table.insert(&[31.into(), "new".into(), 3.into(), "x".into()]);
        assert!(matches!(taken, Err(Error::Conflict { .. })), "{taken:?}");
        let delete = people.table.prepare_delete("by_name").unwrap();
        assert!(delete.run_in(&mut transaction, &["other".into()]).unwrap());
        transaction.commit().unwrap();
        drop((by_name, delete));
        people.expected.remove(&4);
        people.expected.insert(30, (Some("new".to_owned()), 3));
        people.compare();
        while people.database.rebuild_step().unwrap() {}
        people.compare();
        assert_eq!(people.database.check().unwrap(), []);
    });
}

/// What a thread does to ids of its own, of which it knows everything.
fn change_own(people: &People, own: u32, rounds: u64) -> BTreeMap<u32, Person> {
    let ids: Vec<u32> = (0..MANY).filter(|id| id % 3 == own).collect();
    let mut expected: BTreeMap<u32, Person> = people
        .expected
        .iter()
        .filter(|(id, _)| *id % 3 == own)
        .map(|(id, person)| (*id, person.clone()))
        .collect();
    let mut seed = rounds << 8 | u64::from(own);
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let table = &people.table;
    let (get, by_name) = (table.prepare_get("primary"), table.prepare_get("by_name"));
    let (update, delete) = (table.prepare_update("primary"), table.prepare_delete("primary"));
    let (get, by_name, update) = (get.unwrap(), by_name.unwrap(), update.unwrap());
    let delete = delete.unwrap();
    for round in 0..rounds {
        let id = ids[below(ids.len() as u64) as usize];
        let name = format!("{id} {}", below(3));
        let year = (round % 10) as u16;
        let now = people.database.snapshot();
        match below(5) {
            0 => {
                let values = [id.into(), name.as_str().into(), year.into(), "x".into()];
                match table.insert(&values) {
                    Ok(_) => {
                        let before = expected.insert(id, (Some(name), year));
                        assert_eq!(before, None, "{id} was there");
                    }
                    Err(Error::Unique { .. }) => assert!(expected.contains_key(&id), "{id}"),
                    Err(error) => panic!("{error}"),
                }
            }
            1 => {
                let set = |row: &mut remanent_engine::Changes<'_>| {
                    row.set(1, name.as_str())?;
                    row.set(2, year)
                };
                let found = update.run(&[id.into()], |_, row| set(row)).unwrap();
                assert_eq!(found.is_some(), expected.contains_key(&id), "{id}");
                expected.entry(id).and_modify(|person| *person = (Some(name), year));
            }
            2 => {
                let removed = delete.run(&[id.into()]).unwrap();
                assert_eq!(removed, expected.remove(&id).is_some(), "{id}");
            }
            3 => {
                let found = get.run(&now, &[id.into()], person).unwrap();
                assert_eq!(found.map(|(_, person)| person), expected.get(&id).cloned(), "{id}");
            }
            _ => {
                let found = by_name.run(&now, &[name.as_str().into()], person).unwrap();
                let has_it = expected.get(&id).is_some_and(|(of, _)| of.as_ref() == Some(&name));
                assert_eq!(found.is_some(), has_it, "{id} by {name:?}");
            }
        }
    }
    expected
}

const MANY: u32 = 3_000;

#[test]
fn threads_change_rows_while_others_rebuild_their_indexes() {
    with_people(0, |mut people| {
        for id in 0..MANY {
            assert!(people.insert_as(id, Some(format!("{id} 0")), 0));
        }
        for round in 0..6u64 {
            let how = if round % 2 == 0 { Rebuild::Background } else { Rebuild::Steps };
            people = people.reopened(how);
            let people_now = &people;
            let changed: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|own| scope.spawn(move || change_own(people_now, own, 300 + round * 40)))
                    .collect();
                if how == Rebuild::Steps {
                    while people_now.database.rebuild_step().unwrap() {
                        std::thread::yield_now();
                    }
                }
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            people.expected = changed.into_iter().flatten().collect();
            // Whoever of them has read the last tiles, the threads beside them go on.
            let began = Instant::now();
            while people.database.rebuild_progress().tiles_left > 0 {
                assert!(began.elapsed() < Duration::from_secs(60), "nobody rebuilds the rest");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(found(&people.table, &people.database.snapshot()), people.expected);
            assert_eq!(people.database.check().unwrap(), []);
        }
    });
}

#[test]
fn a_table_that_was_dropped_before_its_indexes_were_rebuilt_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let people = People::create(&directory.path().join("db.pool"), 60).reopened(Rebuild::Steps);
    people.database.drop_table("people").unwrap();
    assert_eq!(people.database.check().unwrap(), []);
    drop(people.table);
    assert_eq!(people.database.check().unwrap(), []);
}

/// One thing that is done to the table.
#[derive(Clone, Debug)]
enum Op {
    Insert(u32, Option<u32>, u16),
    Update(u32, Option<u32>, u16),
    Delete(u32),
    Rebuild,
    Collect,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let row = || (0..60u32, proptest::option::of(0..60u32), 0..10u16);
    prop_oneof![
        4 => row().prop_map(|(id, name, year)| Op::Insert(id, name, year)),
        4 => row().prop_map(|(id, name, year)| Op::Update(id, name, year)),
        2 => (0..60u32).prop_map(Op::Delete),
        2 => Just(Op::Rebuild),
        1 => Just(Op::Collect),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_done_while_indexes_are_rebuilt_is_found(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        with_people(30, |people| {
            let mut people = people.reopened(Rebuild::Steps);
            for op in ops {
                match op {
                    Op::Insert(id, name, year) => drop(people.insert(id, name, year)),
                    Op::Update(id, name, year) => people.update(id, name, year),
                    Op::Delete(id) => people.delete(id),
                    Op::Rebuild => drop(people.database.rebuild_step().unwrap()),
                    Op::Collect => drop(people.database.collect().unwrap()),
                    Op::Reopen => people = people.reopened(Rebuild::Steps),
                }
            }
            people.compare();
            assert_eq!(people.database.check().unwrap(), []);
            people.compare();
        });
    }
}
