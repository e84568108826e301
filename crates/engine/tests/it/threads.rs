//! Threads that insert and read together.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use remanent_engine::{Database, Error, Row};
use remanent_pmem::{Emulation, Pool};

use crate::subscribers;

#[test]
fn each_key_is_inserted_by_one_thread_alone() {
    const KEYS: u32 = 3_000;
    let directory = tempfile::tempdir().unwrap();
    let options = Pool::options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("raced.pool")).unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (table, inserted) = (table.clone(), &inserted);
            scope.spawn(move || {
                for id in 0..KEYS {
                    let number = format!("{id:015}");
                    loop {
                        match table.insert(&[id.into(), number.as_str().into(), thread.into()]) {
                            Ok(_) => {
                                inserted.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(Error::Unique { .. }) => break,
                            Err(error) if error.is_conflict() => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(inserted.into_inner(), u64::from(KEYS));
    let mut ids = BTreeSet::new();
    let visit = |row: &Row<'_>| {
        assert!(ids.insert(row.get::<u32>(0).unwrap()));
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    assert_eq!(ids, (0..KEYS).collect());
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_snapshot_sees_no_gap() {
    // Each thread's rows are inserted in order. So whoever sees one of them sees those before it,
    // in whatever order the table is read.
    const THREADS: u32 = 2;
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = |thread: u32| {
            let table = table.clone();
            move || {
                for at in 0..4_000 {
                    let id = at * THREADS + thread;
                    let number = format!("{id}");
                    table.insert(&[id.into(), number.as_str().into(), at.into()]).unwrap();
                }
            }
        };
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(write(thread))).collect();
        let reader = scope.spawn(|| {
            let mut reads = 0;
            // Once more after the writers have ended, so that something was read.
            let mut is_last = false;
            while !is_last {
                is_last = is_done.load(Ordering::Relaxed);
                let mut seen: [Vec<u32>; THREADS as usize] = Default::default();
                let visit = |row: &Row<'_>| {
                    let (id, at) = (row.get::<u32>(0).unwrap(), row.get::<u32>(2).unwrap());
                    seen[(id % THREADS) as usize].push(at);
                    ControlFlow::<()>::Continue(())
                };
                let now = database.snapshot();
                table.scan(&now, visit).unwrap();
                let count: usize = seen.iter().map(Vec::len).sum();
                assert_eq!(count as u64, now.stamp(), "a row is missed");
                for mut seen in seen {
                    seen.sort_unstable();
                    assert!(seen.iter().copied().eq(0..seen.len() as u32), "{seen:?}");
                }
                reads += 1;
            }
            reads
        });
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(written.iter().all(Result::is_ok));
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn more_threads_than_there_are_slots_all_have_their_turn() {
    const SLOTS: u32 = 256;
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let table = database.create_table(&subscribers()).unwrap();
    let insert = |id: u32| {
        let number = format!("{id}");
        table.insert(&[id.into(), number.as_str().into(), id.into()]).unwrap();
    };
    let mut open: Vec<_> = (0..SLOTS).map(|_| database.begin().unwrap()).collect();
    thread::scope(|scope| {
        for thread in 0..12 {
            let insert = &insert;
            scope.spawn(move || (0..50).for_each(|at| insert(thread * 50 + at)));
        }
        // All but the last one take a slot away again, for a while.
        for _ in 0..20 {
            drop(open.pop());
            thread::yield_now();
            open.push(database.begin().unwrap());
        }
        open.clear();
    });
    let mut count = 0;
    let visit = |_: &Row<'_>| {
        count += 1;
        ControlFlow::<()>::Continue(())
    };
    table.scan(&database.snapshot(), visit).unwrap();
    assert_eq!(count, 600);
    assert_eq!(database.check().unwrap(), []);
}
