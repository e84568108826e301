//! No fence on the critical path, one a batch, less than one a page.

use remanent_pmem::pool::Guarantee;
use remanent_pmem::{Medium, PAGE_LEN};
use remanent_structures::{BatchMap, BatchOptions};

use crate::support::{fences, sim_pool};

#[test]
fn writes_cost_no_fence_and_a_sync_costs_one() {
    let pool = sim_pool(Guarantee::default());
    let map: BatchMap<u64, u64, _> =
        BatchMap::create(&pool, "map", BatchOptions::without_thread()).unwrap();
    map.put(&0, &0).unwrap();
    map.sync().unwrap();
    let cost = fences(&pool, || {
        for key in 0..100 {
            assert!(map.insert(&(key + 1), &key).unwrap());
            assert!(map.update(&key, &7).unwrap());
            assert_eq!(map.get(&key).unwrap(), Some(7));
            assert_eq!(map.remove(&key).unwrap(), Some(7));
        }
    });
    assert_eq!(cost, 0);
    assert_eq!(fences(&pool, || map.sync().unwrap()), 1);
    assert_eq!(fences(&pool, || map.sync().unwrap()), 0, "nothing is unsafe");
}

#[test]
fn writing_much_costs_less_than_a_fence_a_page() {
    let pool = sim_pool(Guarantee::default());
    // Batches as the thread makes them.
    let options = BatchOptions { lag_bytes: 16 * PAGE_LEN, ..BatchOptions::without_thread() };
    let map: BatchMap<u64, [u8], _> = BatchMap::create(&pool, "map", options).unwrap();
    let written = 8_u64 << 20;
    let cost = fences(&pool, || {
        for key in 0..written / 136 {
            map.insert(&key, &[1; 100]).unwrap();
        }
        map.sync().unwrap();
    });
    let a_page = cost as f64 / (written / PAGE_LEN) as f64;
    assert!(a_page < 0.1, "{a_page} fences a page");
    assert!(pool.medium().needs_flush());
}
