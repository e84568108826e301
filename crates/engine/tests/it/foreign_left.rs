//! Foreign keys behind a crash, in indexes that are not rebuilt, and among threads.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use remanent_crashsim::{Sim, SimOptions};
use remanent_engine::{
    Database, Durability, Error, NewForeignKey, Placement, Rebuild, Resumed, Row, Table, TableSpec,
    Type, Value,
};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

use crate::foreign::{Shop, shop};

/// Parents by number, and children by number and parent, with an index of more than the parent.
fn families(placement: Placement) -> [TableSpec; 2] {
    let parents = TableSpec::new("parents")
        .column("number", Type::U32)
        .primary_key(["number"])
        .place(["primary"], placement)
        .tile_rows(5);
    let children = TableSpec::new("children")
        .column("number", Type::U32)
        .nullable("parent", Type::U32)
        .primary_key(["number"])
        .index("by_parent", ["parent", "number"])
        .ordered(["by_parent"])
        .place(["primary", "by_parent"], placement)
        .foreign_key("of_parent", ["parent"], "parents", ["number"])
        .tile_rows(5);
    [parents, children]
}

#[test]
fn what_an_open_transaction_has_changed_outlives_a_kill() {
    let size_max = 32 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    let pool = Pool::format(Arc::new(sim), &Format::new(size_max)).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let [parents, children] =
        families(Placement::Pmem).map(|spec| database.create_table(&spec).unwrap());
    for number in 1..=4u32 {
        parents.insert(&[number.into()]).unwrap();
    }
    children.insert(&[1.into(), 1.into()]).unwrap();
    let mut open = database.begin().unwrap();
    children.insert_in(&mut open, &[2.into(), 2.into()]).unwrap();
    assert!(parents.prepare_delete("primary").unwrap().run_in(&mut open, &[3.into()]).unwrap());
    open.batch(|batch| {
        children.insert_in(batch, &[5.into(), 5.into()])?;
        parents.insert_in(batch, &[5.into()])
    })
    .unwrap();
    let token = open.token();
    let medium = Arc::clone(pool.medium());
    std::mem::forget(open);
    std::mem::forget((pool, database, parents, children));

    let pool = Pool::recover(medium).unwrap();
    let database = Database::open(&pool, "db").unwrap();
    let (parents, children) =
        (database.table("parents").unwrap(), database.table("children").unwrap());
    let delete = parents.prepare_delete("primary").unwrap();
    assert!(matches!(delete.run(&[1.into()]), Err(Error::HasChildren { .. })));
    assert!(matches!(delete.run(&[2.into()]), Err(Error::Conflict { .. })));
    for parent in [3, 5] {
        let child = children.insert(&[6.into(), parent.into()]);
        assert!(matches!(child, Err(Error::Conflict { .. })), "{parent}");
    }
    let Resumed::Open(mut open) = database.resume(token).unwrap() else { panic!("it is open") };
    assert!(matches!(
        children.insert_in(&mut open, &[6.into(), 3.into()]),
        Err(Error::NoParent { .. })
    ));
    open.take_back_to(1).unwrap();
    children.insert_in(&mut open, &[6.into(), 3.into()]).unwrap();
    open.commit().unwrap();
    assert!(matches!(delete.run(&[2.into()]), Err(Error::HasChildren { .. })));
    assert!(matches!(delete.run(&[3.into()]), Err(Error::HasChildren { .. })));
    assert!(delete.run(&[4.into()]).unwrap());
    assert_eq!(database.check().unwrap().len(), 0);
}

#[test]
fn parents_and_children_are_found_before_indexes_are_rebuilt() {
    for is_child in [true, false] {
        let pool = Pool::options().create_in_memory().unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let [parents, children] =
            families(Placement::Dram).map(|spec| database.create_table(&spec).unwrap());
        for number in 0..40u32 {
            parents.insert(&[number.into()]).unwrap();
            let parent = if number % 2 == 0 { Value::from(number) } else { Value::Null };
            children.insert(&[number.into(), parent]).unwrap();
        }
        drop((database, parents, children));
        let database = Database::options().rebuild(Rebuild::Steps).open(&pool, "db").unwrap();
        let (parents, children) =
            (database.table("parents").unwrap(), database.table("children").unwrap());
        assert!(database.rebuild_progress().tiles_left > 0);
        if is_child {
            children.insert(&[90.into(), 33.into()]).unwrap();
            let orphan = children.insert(&[91.into(), 99.into()]);
            assert!(matches!(orphan, Err(Error::NoParent { .. })));
        }
        let delete = parents.prepare_delete("primary").unwrap();
        assert!(matches!(delete.run(&[34.into()]), Err(Error::HasChildren { .. })));
        assert!(delete.run(&[35.into()]).unwrap());
        assert_eq!(database.check().unwrap(), []);
    }
}

/// What threads do with a few customers and their orders, each in its own way.
fn trade(shop: &Shop, thread: u32, done: &AtomicU64) {
    let mut chance = 0x9e37_79b9_u32.wrapping_mul(thread + 1);
    let mut draw = |below: u32| {
        chance ^= chance << 13;
        chance ^= chance >> 17;
        chance ^= chance << 5;
        chance % below
    };
    let number = |at: u32| 100 + at * 4 + thread;
    for at in 0..300 {
        let customer = 1 + draw(3);
        let how = [Durability::EachStatement, Durability::AtCommit][draw(2) as usize];
        let changed: Result<bool, Error> = match draw(6) {
            0 => shop.order(number(at), customer).map(|()| true),
            1 => shop.remove(customer),
            2 => shop.customers.insert(&[customer.into(), 0.into()]).map(|_| true),
            3 => shop
                .orders
                .prepare_delete("primary")
                .and_then(|delete| delete.run(&[number(draw(at + 1)).into()])),
            4 => (|| {
                let mut by = shop.begin(how);
                by.batch(|batch| {
                    shop.order_in(batch, number(at), customer)?;
                    shop.order_in(batch, number(at + 1_000), 1 + customer % 3)
                })?;
                by.commit().map(|()| true)
            })(),
            _ => (|| {
                let mut by = shop.begin(how);
                shop.order_in(&mut by, number(at), customer)?;
                shop.remove_in(&mut by, 1 + customer % 3)?;
                by.commit().map(|()| true)
            })(),
        };
        match changed {
            Ok(is_done) => drop(done.fetch_add(is_done.into(), Ordering::Relaxed)),
            Err(
                Error::Conflict { .. }
                | Error::Overtaken { .. }
                | Error::NoParent { .. }
                | Error::HasChildren { .. }
                | Error::Unique { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn count(table: &Table, database: &Database) -> u64 {
    table.prepare_scan(["number"]).unwrap().count(&database.snapshot()).unwrap()
}

#[test]
fn no_child_is_left_behind_by_threads() {
    for round in 0..3 {
        let shop = shop();
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (shop, done) = (&shop, &done);
                scope.spawn(move || trade(shop, thread, done));
            }
            // Beside them, the foreign key comes and goes, if nobody needs it to be there.
            let Shop { database, orders, customers, .. } = &shop;
            scope.spawn(move || {
                for at in 0..20 {
                    let placement = [Placement::Dram, Placement::Pmem][at % 2];
                    database.place_index(orders, "by_customer", placement).unwrap();
                    database.place_index(customers, "primary", placement).unwrap();
                    let again = NewForeignKey::new("again", ["customer"], "customers", ["number"]);
                    match database.add_foreign_key(orders, &again) {
                        Ok(()) => database.drop_foreign_key(orders, "again").unwrap(),
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        });
        assert!(done.into_inner() > 100, "round {round}");
        shop.check();
        let shop = shop.reopened();
        shop.check();
        assert!(count(&shop.customers, &shop.database) <= 3);
    }
}

/// At one moment, each child has its parent, whatever other threads do.
fn require_no_orphan(database: &Database, parents: &Table, children: &Table) {
    let now = database.snapshot();
    let numbers = |table: &Table, column| {
        let mut numbers = BTreeSet::new();
        let visit = |row: &Row<'_>| {
            numbers.insert(row.get::<u32>(column).unwrap());
            ControlFlow::<()>::Continue(())
        };
        table.scan(&now, visit).unwrap();
        numbers
    };
    let (parents, referred_to) = (numbers(parents, 0), numbers(children, 1));
    let orphans: Vec<&u32> = referred_to.difference(&parents).collect();
    assert!(orphans.is_empty(), "children of {orphans:?} are there, and these are not");
}

/// Tells others when it is dropped.
struct Over<'f>(&'f AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Relaxed: a flag.
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_foreign_key_that_is_added_beside_threads_leaves_no_orphan() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let [parents, children] =
        families(Placement::Pmem).map(|spec| database.create_table(&spec).unwrap());
    database.drop_foreign_key(&children, "of_parent").unwrap();
    let key = NewForeignKey::new("of_parent", ["parent"], "parents", ["number"]);
    // How often it succeeds depends on who runs when: they go on until it has a few times.
    const TIMES: u64 = 5;
    let (added, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 0..3u32 {
            let (parents, children, is_over) = (&parents, &children, &is_over);
            scope.spawn(move || {
                let (of_parent, of_child) = (
                    parents.prepare_delete("primary").unwrap(),
                    children.prepare_delete("primary").unwrap(),
                );
                // Relaxed: a flag.
                for at in (0..1_000_000u32).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let (number, parent) = (at * 3 + thread, at % 4);
                    // Each may be refused, or leave a child without a parent while it is allowed.
                    let _ = parents.insert(&[parent.into()]);
                    let _ = children.insert(&[number.into(), parent.into()]);
                    let _ = of_parent.run(&[((parent + thread) % 4).into()]);
                    let _ = of_child.run(&[number.into()]);
                }
            });
        }
        scope.spawn(|| {
            // Also if this thread panics.
            let _over = Over(&is_over);
            // Relaxed: a count of this thread.
            while added.load(Ordering::Relaxed) < TIMES && began.elapsed().as_secs() < 60 {
                match database.add_foreign_key(&children, &key) {
                    Ok(()) => {
                        added.fetch_add(1, Ordering::Relaxed);
                        require_no_orphan(&database, &parents, &children);
                        thread::yield_now();
                        require_no_orphan(&database, &parents, &children);
                        database.drop_foreign_key(&children, "of_parent").unwrap();
                    }
                    Err(Error::Conflict { .. } | Error::NoParent { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
    assert!(added.into_inner() > 0, "it was never added beside the threads");
    // All children are gone by now.
    database.add_foreign_key(&children, &key).unwrap();
    assert_eq!(database.check().unwrap(), []);
}
