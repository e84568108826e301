//! What operations cost: fences leave the critical path.

use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::pool::{Format, Guarantee};
use remanent_pmem::{PAGE_LEN, Pool};
use remanent_structures::BatchOptions;
use remanent_structures::batch_list::{
    BatchList, ChangeList, Changeable, LinkList, List, Log, Variant,
};
use remanent_structures::papers::{Append, FlushAlways, Table};

use super::{create, open};
use crate::support::{fences, sim_pool};

fn pool() -> Pool<Arc<Sim>> {
    sim_pool(Guarantee::default())
}

#[test]
fn flushing_always_costs_two_fences() {
    let pool = pool();
    let mut list = create::<FlushAlways, _>(&pool);
    list.insert(0, b"").unwrap();
    let cost = |list: &mut List<FlushAlways, _>, action: fn(&mut List<FlushAlways, _>)| {
        fences(&pool, || action(list))
    };
    assert_eq!(cost(&mut list, |list| assert!(list.insert(1, &[1; 100]).unwrap())), 2);
    assert_eq!(cost(&mut list, |list| assert!(list.insert_after(Some(0), 2, b"").unwrap())), 2);
    assert_eq!(cost(&mut list, |list| assert!(list.update(2, &[3; 9_000]).unwrap())), 2);
    assert_eq!(cost(&mut list, |list| assert!(list.remove(1).unwrap())), 1);
    assert_eq!(cost(&mut list, |list| assert!(list.get(2).unwrap().is_some())), 0);
    assert_eq!(cost(&mut list, |list| list.sync().unwrap()), 0);
}

/// Fences per change. No thread makes batches safe, so these are the fences of the critical path,
/// which segments need.
fn fences_of_changes<V: Changeable>(count: u64) -> f64 {
    let pool = pool();
    let mut list = create::<V, _>(&pool);
    let all = fences(&pool, || {
        for key in 0..count {
            list.insert(key, &[1; 100]).unwrap();
        }
        for key in 0..100 {
            list.insert_after(None, key, &[2; 100]).unwrap();
            assert!(list.update(key, &[3; 100]).unwrap());
            assert!(list.remove(key).unwrap());
        }
        assert!(list.get(200).unwrap().is_some());
    });
    all as f64 / (count + 300) as f64
}

#[test]
fn batched_operations_cost_no_fence() {
    // A segment takes a few, once in thousands of operations.
    for cost in [fences_of_changes::<Log>(20_000), fences_of_changes::<Table>(20_000)] {
        assert!(cost < 0.001, "{cost} fences an operation");
    }
    let pool = pool();
    let mut list = create::<Append, _>(&pool);
    assert_eq!(
        fences(&pool, || (0..5_000).for_each(|key| assert!(list.insert(key, &[1; 100]).unwrap()))),
        0
    );
}

#[test]
fn insertion_costs_less_than_a_fence_a_page() {
    fn fences_a_page<V: Variant>() -> f64 {
        let size_max = 256 << 20;
        let options = remanent_crashsim::SimOptions { capacity: size_max, ..Default::default() };
        let pool = Pool::format(Arc::new(Sim::new(options)), &Format::new(size_max)).unwrap();
        // Batches as the thread makes them when it is not hurried: of 16 pages.
        let options = BatchOptions { lag_bytes: 16 * PAGE_LEN, ..BatchOptions::without_thread() };
        let mut list = List::<V, _>::create(&pool, "list", options).unwrap();
        let count = 200_000_u64;
        let all = fences(&pool, || {
            (0..count).for_each(|key| assert!(list.insert(key, &[1; 100]).unwrap()));
            list.sync().unwrap();
        });
        // Elements of 128 or, in the log, 160 bytes.
        all as f64 / (count * 128 / PAGE_LEN) as f64
    }
    for cost in [fences_a_page::<Append>(), fences_a_page::<Log>(), fences_a_page::<Table>()] {
        assert!(cost < 0.2, "{cost} fences a page");
    }
}

#[test]
fn a_batch_costs_two_fences() {
    fn batch<V: Changeable>() {
        let pool = pool();
        let mut list = create::<V, _>(&pool);
        (0..100).for_each(|key| assert!(list.insert(key, &[1; 100]).unwrap()));
        assert_eq!(fences(&pool, || list.sync().unwrap()), 2);
        assert_eq!(fences(&pool, || list.sync().unwrap()), 0, "nothing was written since");
        (0..100).for_each(|key| assert!(list.update(key, &[2; 100]).unwrap()));
        (0..50).for_each(|key| assert!(list.remove(key).unwrap()));
        let persister = list.persister();
        assert_eq!(fences(&pool, || persister.persist().unwrap()), 2);
        list.close().unwrap();
    }
    batch::<Log>();
    batch::<Table>();
}

#[test]
fn opening_an_append_list_looks_at_one_link() {
    let pool = pool();
    let mut list = create::<Append, _>(&pool);
    (0..10_000).for_each(|key| assert!(list.insert(key, &[1; 100]).unwrap()));
    drop(list);
    pool.medium().reset_counters();
    let list = open::<Append, _>(&pool);
    let counters = pool.medium().counters();
    assert!(counters.fences <= 3, "the directory and the header: {counters:?}");
    assert!(counters.stores <= 1, "{counters:?}");
    assert_eq!(list.len(), 10_000);
}
