//! Fences are the currency: each operation costs what the documentation says, and no more.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_pmem::pool::Guarantee;
use remanent_structures::papers::{BpMultiTree, BpTree};
use remanent_structures::{Map, OrderedMap};

use super::SmallNodes;
use crate::support::{fences, sim_pool};

fn pool() -> Pool<Arc<Sim>> {
    sim_pool(Guarantee::default())
}

#[test]
fn every_operation_costs_its_budget() {
    let pool = pool();
    let tree = BpTree::<u64, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    // The first change says that changes are under way.
    assert_eq!(fences(&pool, || assert!(tree.insert(&0, &0).unwrap())), 3);
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 1..5 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    cost("insert behind all others", 2, &mut |key| assert!(tree.insert(&key, &key).unwrap()));
    cost("insert of a present key", 0, &mut |key| assert!(!tree.insert(&key, &0).unwrap()));
    cost("get", 0, &mut |key| assert_eq!(tree.get(&key).unwrap(), Some(key)));
    cost("get of an absent key", 0, &mut |key| assert_eq!(tree.get(&(key + 50)).unwrap(), None));
    cost("len", 0, &mut |_| assert_eq!(tree.len().unwrap(), 5));
    cost("ascend", 0, &mut |_| tree.ascend(.., |_, _| ControlFlow::Continue(())).unwrap());
    cost("descend", 0, &mut |_| tree.descend(.., |_, _| ControlFlow::Continue(())).unwrap());
    cost("update of an absent key", 0, &mut |key| assert!(!tree.update(&(key + 50), &0).unwrap()));
    cost("update of the last key", 2, &mut |value| assert!(tree.update(&4, &value).unwrap()));
    cost("remove", 2, &mut |key| assert_eq!(tree.remove(&key).unwrap(), Some(key)));
    cost("remove of an absent key", 0, &mut |key| assert_eq!(tree.remove(&key).unwrap(), None));
}

/// The first entry of a leaf is in its first line, then two are in each.
#[test]
fn an_entry_costs_a_fence_for_each_line_that_others_cross_for_it() {
    let pool = pool();
    let tree = BpTree::<u64, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    tree.insert(&1000, &0).unwrap();
    for used in 1..15_u64 {
        let key = 1000 - used;
        let crossed = used.div_ceil(2);
        assert_eq!(
            fences(&pool, || assert!(tree.insert(&key, &0).unwrap())),
            2 + crossed,
            "{used}"
        );
    }
    // The new value comes behind the old one: all but one entry of fifteen make room.
    assert_eq!(fences(&pool, || assert!(tree.update(&986, &1).unwrap())), 2 + 7);
    // A leaf of sixteen is full, and copied.
    assert_eq!(fences(&pool, || assert!(tree.insert(&0, &0).unwrap())), 2);
    assert_eq!(tree.check().unwrap(), []);
}

/// Entries that are longer than a line are made invalid before they are overwritten, and are
/// written before they are made valid.
#[test]
fn long_entries_cost_two_fences_more_each() {
    type Long = [u8; 64];
    let pool = pool();
    let tree = BpTree::<Long, Long, Arc<Sim>>::create(&pool, "tree").unwrap();
    tree.insert(&[9; 64], &[9; 64]).unwrap();
    // Two are written, each in a line of its own to begin with; the place of one was never used.
    assert_eq!(fences(&pool, || assert!(tree.insert(&[8; 64], &[8; 64]).unwrap())), 2 + 1 + 3);
    assert_eq!(fences(&pool, || assert!(tree.insert(&[7; 64], &[7; 64]).unwrap())), 2 + 2 + 5);
    assert_eq!(fences(&pool, || assert!(tree.discard(&[9; 64]).unwrap())), 2);
}

#[test]
fn nodes_that_are_copied_cost_no_fence_of_their_own() {
    let pool = pool();
    let tree = BpTree::<SmallNodes, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    tree.insert(&SmallNodes(0), &0).unwrap();
    // Splits on three levels, and of the root. The node above gets two entries, in one line or two.
    for key in 1..100 {
        let fences = fences(&pool, || assert!(tree.insert(&SmallNodes(key), &key).unwrap()));
        assert!((2..=3).contains(&fences), "{fences} for {key}");
    }
    // Joins, until the root is a leaf again. The node above gets an entry. Nodes are freed in
    // batches.
    let mut all = 0;
    for key in 0..100 {
        let fences = fences(&pool, || assert!(tree.discard(&SmallNodes(key)).unwrap()));
        assert!((2..=7).contains(&fences), "{fences}");
        all += fences;
    }
    assert!(all <= 280, "{all}");
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn the_last_entry_of_a_key_that_is_last_costs_two_fences() {
    let pool = pool();
    let tree = BpMultiTree::<u64, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    tree.insert(&1, &0).unwrap();
    for value in 1..8 {
        assert_eq!(fences(&pool, || tree.insert(&1, &value).unwrap()), 2);
        assert_eq!(fences(&pool, || drop(tree.get_all(&1).unwrap())), 0);
    }
    for value in 1..8 {
        assert_eq!(fences(&pool, || assert!(tree.remove_one(&1, &value).unwrap())), 2);
    }
}

/// Includes rare events: chunks taken and given back, batches freed, the file grown.
#[test]
fn budgets_hold_over_many_operations() {
    const MANY: u64 = 50_000;
    let pool = pool();
    let tree = BpTree::<u64, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    let mean = |action: &mut dyn FnMut(u64)| {
        fences(&pool, || (0..MANY).map(|n| n * 7919 % MANY).for_each(action)) as f64 / MANY as f64
    };
    let insert = mean(&mut |key| assert!(tree.insert(&key, &key).unwrap()));
    assert!(insert <= 4.4, "{insert} fences an insert");
    let update = mean(&mut |key| assert!(tree.update(&key, &1).unwrap()));
    assert!(update <= 5.0, "{update} fences an update");
    let get = mean(&mut |key| assert!(tree.contains(&key).unwrap()));
    assert!(get == 0.0, "{get} fences a get");
    let remove = mean(&mut |key| assert!(tree.discard(&key).unwrap()));
    assert!(remove <= 2.5, "{remove} fences a remove");
    assert_eq!(tree.check().unwrap(), []);
}
