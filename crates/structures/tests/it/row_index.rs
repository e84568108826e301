//! Rows by the hash of a key.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::{Medium, Pool};
use remanent_structures::{RowId, RowIndex};

use crate::support::{fences, options, scratch, sim_pool};

type M = Arc<Sim>;

fn row(number: u64) -> RowId {
    RowId::new(number).unwrap()
}

/// The rows that are found under a key.
fn rows<N: Medium>(index: &RowIndex<N>, key: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = |row: RowId| {
        found.push(row.get());
        ControlFlow::<()>::Continue(())
    };
    assert_eq!(index.find(key, visit).unwrap(), None);
    found.sort_unstable();
    found
}

fn count<N: Medium>(index: &RowIndex<N>) -> usize {
    let mut count = 0;
    index.for_each(|_| count += 1).unwrap();
    count
}

#[test]
fn rows_take_no_fence_and_growth_takes_few() {
    const COUNT: u64 = 40_000;
    let pool = sim_pool(Guarantee::default());
    let index: RowIndex<M> = RowIndex::create(&pool, "index").unwrap();
    assert_eq!(fences(&pool, || index.insert(1, row(1)).unwrap()), 0);
    assert_eq!(fences(&pool, || assert!(index.remove(1, row(1)).unwrap())), 0);
    assert_eq!(fences(&pool, || assert!(!index.remove(1, row(1)).unwrap())), 0);
    assert_eq!(fences(&pool, || assert_eq!(rows(&index, 1), [])), 0);
    let found = fences(&pool, || {
        (0..COUNT).for_each(|number| index.insert(number, row(number)).unwrap());
    });
    assert!(found < COUNT / 200, "{found} fences for {COUNT} rows");
    let bytes = index.usage().unwrap().chunk_bytes as f64 / COUNT as f64;
    assert!(bytes < 24.0, "{bytes} bytes a row");
}

#[test]
fn every_row_of_a_key_is_found_until_it_is_removed() {
    const COUNT: u64 = 5_000;
    let directory = scratch();
    let path = directory.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    // Keys with 1, 2, 4, … rows, among others.
    for number in 0..COUNT {
        index.insert(u64::from(number.leading_zeros()), row(number)).unwrap();
        index.insert(1_000 + number, row(COUNT + number)).unwrap();
    }
    drop((index, pool));
    let pool = options().open(&path).unwrap();
    let index = RowIndex::open(&pool, "index").unwrap();
    assert_eq!(index.check().unwrap(), []);
    assert_eq!(count(&index), 2 * COUNT as usize);
    for number in (0..COUNT).rev().step_by(3) {
        let key = u64::from(number.leading_zeros());
        assert!(rows(&index, key).contains(&number));
        assert!(index.remove(key, row(number)).unwrap(), "{number}");
        assert!(!index.remove(key, row(number)).unwrap(), "{number}");
        assert!(rows(&index, 1_000 + number).contains(&(COUNT + number)));
    }
    assert_eq!(index.check().unwrap(), []);
    let removed = index.retain(|row| row.get() < COUNT).unwrap();
    assert_eq!(removed, COUNT);
    let left = (0..COUNT).filter(|number| (COUNT - 1 - number) % 3 != 0).count();
    assert_eq!(count(&index), left);
    assert_eq!(index.retain(|_| false).unwrap(), left as u64);
    assert_eq!(count(&index), 0);
    assert_eq!(index.check().unwrap(), []);
}

/// Rows are added at one end and removed at the other, as in a queue.
#[test]
fn a_chain_that_is_used_as_a_queue_does_not_grow() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    let mut most = 0;
    for number in 0..30_000_u64 {
        index.insert(7, row(number)).unwrap();
        if let Some(old) = number.checked_sub(100) {
            assert!(index.remove(7, row(old)).unwrap());
        }
        if number == 3_000 {
            most = index.usage().unwrap().chunk_bytes;
        }
    }
    assert!(index.usage().unwrap().chunk_bytes <= most + (64 << 10));
    assert_eq!(rows(&index, 7), (29_900..30_000).collect::<Vec<_>>());
    assert_eq!(index.check().unwrap(), []);
}

#[test]
fn many_rows_are_added_at_once_and_ensured_once() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    index.insert_all((0..50_000).map(|number| (number / 3, row(number)))).unwrap();
    for number in (0..50_000).step_by(7) {
        index.ensure(number / 3, row(number)).unwrap();
    }
    index.ensure(1, row(RowId::MAX.get())).unwrap();
    assert_eq!(count(&index), 50_001);
    assert_eq!(rows(&index, 1), [3, 4, 5, RowId::MAX.get()]);
    assert_eq!(index.check().unwrap(), []);
    assert_eq!(RowId::new(RowId::MAX.get() + 1), None);
}

#[test]
fn threads_lose_no_row_while_segments_are_split() {
    const EACH: u64 = 30_000;
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let index = index.clone();
            scope.spawn(move || {
                for number in (0..EACH).map(|number| number * 4 + thread) {
                    // Some keys have many rows, of all threads.
                    let key = if number % 10 == 0 { number % 70 } else { number };
                    index.insert(key, row(number)).unwrap();
                    assert!(rows(&index, key).contains(&number));
                    if number % 3 == 0 {
                        assert!(index.remove(key, row(number)).unwrap());
                    }
                }
            });
        }
    });
    let mut found = HashSet::new();
    index.for_each(|row| assert!(found.insert(row.get()))).unwrap();
    let expected = (0..4 * EACH).filter(|number| number % 3 != 0).collect();
    assert_eq!(found, expected);
    assert_eq!(index.check().unwrap(), []);
}
