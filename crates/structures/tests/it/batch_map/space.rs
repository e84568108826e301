//! Space is reclaimed, and a full pool can be emptied.

use remanent_pmem::Pool;
use remanent_structures::{BatchMap, BatchOptions};

/// An empty pool, and the step by which it grows.
const POOL_LEN: u64 = (17 << 20) + (16 << 20);

fn map(size_max: u64, options: BatchOptions) -> (tempfile::TempDir, Pool, BatchMap<u64, [u8]>) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::options().size_max(size_max).create(dir.path().join("a.pool")).unwrap();
    let map = BatchMap::create(&pool, "map", options).unwrap();
    (dir, pool, map)
}

#[test]
fn overwriting_takes_no_more_than_about_twice_what_is_live() {
    let (_dir, pool, map) = map(1 << 30, BatchOptions::without_thread());
    let live = 8_u64 << 20;
    let keys = live / 1000;
    for round in 0..20_u64 {
        for key in 0..keys {
            map.put(&(key * 7919 % keys), &[round as u8; 960]).unwrap();
        }
        map.sync().unwrap();
        map.compact().unwrap();
        let size = pool.info().unwrap().size;
        assert!(size < POOL_LEN + 3 * live, "{} MiB in round {round}", size >> 20);
    }
    assert_eq!(map.check().unwrap(), []);
    assert_eq!(map.len().unwrap(), keys);
}

#[test]
fn tombstones_go_when_nothing_is_left_that_they_hide() {
    let (_dir, pool, map) = map(1 << 30, BatchOptions::without_thread());
    for round in 0..60_u64 {
        for key in 0..20_000 {
            map.put(&(round << 32 | key), &[1; 40]).unwrap();
        }
        for key in 0..20_000 {
            assert!(map.discard(&(round << 32 | key)).unwrap());
        }
        map.sync().unwrap();
        map.compact().unwrap();
    }
    assert_eq!(map.len().unwrap(), 0);
    let size = pool.info().unwrap().size;
    assert!(size < POOL_LEN + (8 << 20), "{} MiB", size >> 20);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_full_pool_can_be_emptied_and_filled_again() {
    for background in [false, true] {
        let options = BatchOptions { background, ..BatchOptions::default() };
        let (_dir, _pool, map) = map(48 << 20, options);
        for round in 0..3 {
            let mut count = 0_u64;
            let error = loop {
                match map.put(&count, &[round; 500]) {
                    Ok(_) => count += 1,
                    Err(error) => break error,
                }
            };
            assert!(error.is_full(), "{error}");
            assert!(count > 30_000, "{count} entries in round {round}");
            assert_eq!(map.len().unwrap(), count);
            // Updates of a full map fail or succeed, and lose nothing.
            for key in 0..1000 {
                let _ = map.put(&key, &[round; 500]);
            }
            assert_eq!(map.len().unwrap(), count);
            for key in 0..count {
                assert_eq!(map.get(&key).unwrap().as_deref(), Some([round; 500].as_slice()));
                assert!(map.discard(&key).unwrap(), "{key} of {count} in round {round}");
            }
            assert_eq!(map.check().unwrap(), []);
        }
    }
}

#[test]
fn clearing_gives_everything_back() {
    let (_dir, pool, map) = map(1 << 30, BatchOptions::without_thread());
    for _ in 0..20 {
        for key in 0..10_000 {
            map.put(&key, &[1; 1000]).unwrap();
        }
        assert_eq!(map.clear().unwrap(), 10_000);
        map.compact().unwrap();
        assert!(map.is_empty().unwrap());
    }
    let size = pool.info().unwrap().size;
    assert!(size < POOL_LEN + (32 << 20), "{} MiB", size >> 20);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_full_pool_of_large_values_says_so() {
    // Three fit into a segment, and leave an eighth of it: nothing that could be gained.
    let (_dir, _pool, map) = map(48 << 20, BatchOptions::without_thread());
    let value = vec![3; 300 << 10];
    let full = (0..1000).find_map(|key| map.put(&key, &value).err()).unwrap();
    assert!(full.is_full(), "{full}");
    assert!(map.discard(&5).unwrap());
    assert!(map.len().unwrap() > 60);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_full_pool_can_be_emptied_in_any_order() {
    let (_dir, _pool, map) = map(40 << 20, BatchOptions::without_thread());
    let value = [5; 8];
    let mut count = 0_u64;
    while map.put(&count, &value).is_ok() {
        count += 1;
    }
    assert!(count > 300_000, "{count}");
    for number in 0..count {
        // A permutation: the step has no divisor in common with the count.
        let key = (number * 7_368_787) % count;
        assert!(map.discard(&key).unwrap(), "{number} of {count}");
    }
    assert!(map.is_empty().unwrap());
    assert_eq!(map.check().unwrap(), []);
}
