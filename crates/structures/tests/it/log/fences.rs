//! What operations cost.

use remanent_pmem::pool::Guarantee;
use remanent_structures::Log;

use crate::support::{fences, sim_pool};

#[test]
fn appending_costs_one_fence() {
    let pool = sim_pool(Guarantee::default());
    let log: Log<[u8], _> = Log::create(&pool, "log").unwrap();
    let second = log.append(&[1; 10]).unwrap(); // takes the first segment
    let cost = |action: &dyn Fn()| fences(&pool, action);
    assert_eq!(cost(&|| assert!(log.append(&[1; 10]).unwrap() > second)), 1);
    assert_eq!(cost(&|| assert!(log.append(&[1; 100_000]).unwrap() > second)), 1);
    assert_eq!(cost(&|| assert_eq!(log.append_many(&[&[2; 100][..]; 50]).unwrap().len(), 50)), 1);
    assert_eq!(cost(&|| assert!(log.append_many(&[]).unwrap().is_empty())), 0);
    assert_eq!(cost(&|| assert_eq!(log.iter().rev().count(), 53)), 0);
    assert_eq!(cost(&|| assert!(log.read(second).unwrap().is_some())), 0);
    assert_eq!(cost(&|| log.truncate_front(log.end()).unwrap()), 1);
}

#[test]
fn segments_cost_little() {
    let pool = sim_pool(Guarantee::default());
    let log: Log<[u8], _> = Log::create(&pool, "log").unwrap();
    let count = 100_000;
    let all = fences(&pool, || {
        for _ in 0..count {
            log.append(&[1; 100]).unwrap();
        }
    });
    assert!(all < count + 150, "{all} fences for {count} records");
}
