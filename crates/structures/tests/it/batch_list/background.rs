//! The thread that makes lists safe.

use std::thread;
use std::time::{Duration, Instant};

use remanent_pmem::Emulation;
use remanent_pmem::Pool;
use remanent_structures::BatchOptions;
use remanent_structures::batch_list::{BatchList, ChangeList, Changeable, List, Log, Variant};
use remanent_structures::papers::{Append, Table};

use super::{content, value};

/// A list whose batches are real flushes.
fn with_list<V: Variant>(options: BatchOptions, test: impl FnOnce(&Pool, List<V>)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::options()
        .size_max(1 << 30)
        .emulation(Emulation::Nvram)
        .create(dir.path().join("test.pool"))
        .unwrap();
    let list = List::create(&pool, "list", options).unwrap();
    test(&pool, list);
}

fn wait_until_safe(list: &impl BatchList) -> Duration {
    let start = Instant::now();
    while list.lag().bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "not safe: {:?}", list.lag());
        thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

#[test]
fn what_is_written_becomes_safe_in_time() {
    fn wait<V: Variant>() {
        let options =
            BatchOptions { lag_age: Duration::from_millis(40), ..BatchOptions::default() };
        with_list::<V>(options, |_, mut list| {
            let mut waits = Vec::new();
            for round in 0..10 {
                list.insert(round, &[1; 100]).unwrap();
                waits.push(wait_until_safe(&list));
                // Long enough for the thread to rest.
                thread::sleep(Duration::from_millis(5 * (round % 3)));
            }
            waits.sort();
            // Other work on the machine may delay a few.
            assert!(waits[5] < Duration::from_millis(60), "{waits:?}");
        });
    }
    wait::<Append>();
    wait::<Log>();
    wait::<Table>();
}

#[test]
fn a_writer_and_the_thread_keep_out_of_each_others_way() {
    fn work<V: Changeable>(count: u64) {
        let options = BatchOptions {
            lag_bytes: 1 << 20,
            lag_age: Duration::from_millis(1),
            ..BatchOptions::default()
        };
        with_list::<V>(options, |pool, mut list| {
            for key in 0..count {
                list.insert(key, &value(key, 100)).unwrap();
                if key % 3 == 0 {
                    // Near the front, so that links change again while their batch is made safe.
                    assert!(list.update(key % 100, &value(key, 50)).unwrap());
                }
                if key % 1000 == 999 {
                    assert!(list.remove(key - 800).unwrap());
                }
                assert!(list.lag().bytes < (1 << 20) + 1000, "{:?}", list.lag());
            }
            let expected = content(&list);
            assert_eq!(list.check().unwrap(), []);
            list.close().unwrap();
            let mut list: List<V> = List::open(pool, "list", options).unwrap();
            assert!(content(&list) == expected);
            assert_eq!(list.check().unwrap(), []);
        });
    }
    work::<Log>(30_000);
    work::<Table>(30_000);
}

#[test]
fn many_insertions_are_made_safe_behind_the_writer() {
    let options = BatchOptions { lag_age: Duration::from_millis(1), ..BatchOptions::default() };
    with_list::<Append>(options, |pool, mut list| {
        for key in 0..300_000 {
            list.insert(key, &[key as u8; 100]).unwrap();
        }
        wait_until_safe(&list);
        assert_eq!(list.check().unwrap(), []);
        list.close().unwrap();
        let list: List<Append> = List::open(pool, "list", options).unwrap();
        let mut keys = 0..300_000;
        list.for_each(|key, value| {
            assert_eq!((Some(key), value), (keys.next(), &[key as u8; 100][..]));
        })
        .unwrap();
    });
}

#[test]
fn several_threads_may_make_a_list_safe() {
    with_list::<Log>(BatchOptions::default(), |_, mut list| {
        let persisters = [list.persister(), list.persister()];
        thread::scope(|scope| {
            for persister in &persisters {
                scope.spawn(|| (0..2_000).for_each(|_| persister.persist().unwrap()));
            }
            for key in 0..20_000 {
                list.insert(key, &value(key, 30)).unwrap();
            }
        });
        list.sync().unwrap();
        assert_eq!((list.lag().bytes, list.len()), (0, 20_000));
        assert_eq!(list.check().unwrap(), []);
    });
}
