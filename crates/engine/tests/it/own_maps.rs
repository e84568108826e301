//! Maps of a program's own in the place of hash indexes.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use remanent_engine::{
    Database, Error, NewIndex, Placement, Result, RowId, RowMap, Table, TableSpec, Type,
};
use remanent_pmem::Pool;

/// How often maps were used.
#[derive(Default)]
struct Calls {
    maps: AtomicU64,
    inserts: AtomicU64,
    removals: AtomicU64,
    looks: AtomicU64,
    /// Refuses what is inserted.
    is_full: AtomicBool,
}

impl Calls {
    fn count(of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
    }

    fn number(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }
}

/// Hashes and rows; a row may be there several times.
struct Counted {
    calls: Arc<Calls>,
    rows: Mutex<HashMap<u64, Vec<RowId>>>,
}

impl RowMap for Counted {
    fn insert(&self, hash: u64, row: RowId) -> Result<()> {
        if self.calls.is_full.load(Ordering::Relaxed) {
            return Err(Error::TooMuchAtOnce);
        }
        Calls::count(&self.calls.inserts);
        self.rows.lock().unwrap().entry(hash).or_default().push(row);
        Ok(())
    }

    fn remove(&self, hash: u64, row: RowId) -> Result<()> {
        Calls::count(&self.calls.removals);
        if let Some(rows) = self.rows.lock().unwrap().get_mut(&hash)
            && let Some(at) = rows.iter().position(|of| *of == row)
        {
            rows.swap_remove(at);
        }
        Ok(())
    }

    fn find(&self, hash: u64, visit: &mut dyn FnMut(RowId)) -> Result<()> {
        Calls::count(&self.calls.looks);
        let rows = self.rows.lock().unwrap().get(&hash).cloned().unwrap_or_default();
        rows.into_iter().for_each(visit);
        Ok(())
    }
}

fn set_counted(database: &Database) -> Arc<Calls> {
    let calls = Arc::new(Calls::default());
    let of_maps = Arc::clone(&calls);
    database.set_row_maps(Some(Arc::new(move || {
        Calls::count(&of_maps.maps);
        Box::new(Counted { calls: Arc::clone(&of_maps), rows: Mutex::default() })
    })));
    calls
}

fn spec() -> TableSpec {
    TableSpec::new("t")
        .column("id", Type::U32)
        .column("code", Type::U32)
        .column("group", Type::U16)
        .primary_key(["id"])
        .unique("by_code", ["code"])
        .index("by_group", ["group"])
        .tile_rows(50)
}

fn insert(table: &Table, id: u32) -> Result<RowId> {
    table.insert(&[id.into(), (id + 1_000_000).into(), (id % 7).into()])
}

/// The rows that each index leads to have to be those of a scan.
fn assert_found(database: &Database, table: &Table) {
    let (now, mut all) = (database.snapshot(), Vec::new());
    table
        .scan(&now, |row| {
            all.push((row.get::<u32>(0).unwrap(), row.get::<u32>(1).unwrap(), row.id()));
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
    let by_id = table.prepare_get("primary").unwrap();
    let by_code = table.prepare_get("by_code").unwrap();
    for (id, code, row) in &all {
        for (get, key) in [(&by_id, *id), (&by_code, *code)] {
            assert_eq!(get.run(&now, &[key.into()], |row| Ok(row.id())).unwrap(), Some(*row));
        }
    }
    let (find, mut found) = (table.prepare_find("by_group").unwrap(), BTreeSet::new());
    for group in 0..7_u32 {
        find.run(&now, &[group.into()], |row| {
            assert!(found.insert(row.id()), "a row comes twice");
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
    }
    assert_eq!(found, all.iter().map(|(.., row)| *row).collect());
}

#[test]
fn they_take_the_place_of_indexes_in_use_and_give_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.pool");
    let pool = Pool::options().create(&path).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&spec()).unwrap();
    for id in 0..400 {
        insert(&table, id).unwrap();
    }
    let calls = set_counted(&database);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (table, is_over) = (&table, &is_over);
            scope.spawn(move || {
                let update = table.prepare_update("primary").unwrap();
                let delete = table.prepare_delete("by_code").unwrap();
                for turn in (0_u32..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let id = turn * 2 % 400 + thread;
                    let changed = update
                        .run(&[id.into()], |_, row| {
                            row.set(1, turn * 2 + thread + 2_000_000)?;
                            row.set(2, turn % 7)
                        })
                        .unwrap();
                    if changed.is_some() && turn % 3 == 0 {
                        let code = turn * 2 + thread + 2_000_000;
                        assert!(delete.run(&[code.into()]).unwrap());
                        insert(table, id).unwrap();
                    }
                }
            });
        }
        for _ in 0..5 {
            for placement in [Placement::Dram, Placement::Pmem, Placement::Dram] {
                for index in ["primary", "by_code", "by_group"] {
                    database.place_index(&table, index, placement).unwrap();
                }
                assert_eq!(database.table("t").unwrap().placement("by_code").unwrap(), placement);
            }
        }
        while Calls::number(&calls.removals) < 500 {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_found(&database, &database.table("t").unwrap());
    assert_eq!(database.check().unwrap(), []);
    // Three indexes, six times: each round but the first one begins in DRAM.
    assert_eq!(Calls::number(&calls.maps), 18);
    for of in [&calls.inserts, &calls.removals, &calls.looks] {
        assert!(Calls::number(of) > 400);
    }

    let taken = insert(&database.table("t").unwrap(), 7);
    assert!(matches!(taken, Err(Error::Unique { .. })), "{taken:?}");
    database.set_row_maps(None);
    let inserts = Calls::number(&calls.inserts);
    let index = NewIndex::secondary("again", ["group"]).place(Placement::Dram);
    database.create_index(&table, &index).unwrap();
    assert_eq!(Calls::number(&calls.inserts), inserts, "that stands on a map of ours");
    drop((table, database, pool));

    let pool = Pool::options().open(&path).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    assert_found(&database, &database.table("t").unwrap());
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn what_they_refuse_is_refused_and_leaves_nothing() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let calls = set_counted(&database);
    let in_dram = spec().place(["primary", "by_group"], Placement::Dram);
    let table = database.create_table(&in_dram).unwrap();
    assert_eq!(Calls::number(&calls.maps), 2);
    for id in 0..10 {
        insert(&table, id).unwrap();
    }
    calls.is_full.store(true, Ordering::Relaxed);
    let refused = insert(&table, 10);
    assert!(matches!(refused, Err(Error::TooMuchAtOnce)), "{refused:?}");
    let moved = database.place_index(&table, "by_code", Placement::Dram);
    assert!(matches!(moved, Err(Error::TooMuchAtOnce)), "{moved:?}");
    calls.is_full.store(false, Ordering::Relaxed);
    assert_eq!(database.check().unwrap(), []);
    assert_eq!(table.placement("by_code").unwrap(), Placement::Pmem);
    insert(&table, 10).unwrap();
    assert_found(&database, &table);
    assert_eq!(database.check().unwrap(), []);
}
