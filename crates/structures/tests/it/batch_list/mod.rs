//! Lists that are made safe in batches.

mod background;
mod basic;
mod damage;
mod fences;

use remanent_pmem::{Medium, Pool};
use remanent_structures::BatchOptions;
use remanent_structures::batch_list::{BatchList, List, Variant};

/// A list of a variant in a new pool on a file.
fn with_pool(test: impl FnOnce(&std::path::Path, Pool)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.pool");
    let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
    test(&path, pool);
}

fn create<V: Variant, M: Medium>(pool: &Pool<M>) -> List<V, M> {
    List::create(pool, "list", BatchOptions::without_thread()).unwrap()
}

fn open<V: Variant, M: Medium>(pool: &Pool<M>) -> List<V, M> {
    List::open(pool, "list", BatchOptions::without_thread()).unwrap()
}

/// All elements, in order.
fn content(list: &impl BatchList) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    list.for_each(|key, value| found.push((key, value.to_vec()))).unwrap();
    found
}

/// A value of `len` bytes that no other stamp gives.
fn value(stamp: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (stamp.wrapping_mul(31) + at * 7 + at / 256) as u8).collect()
}
