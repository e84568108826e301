//! Fences are the currency: each operation costs what the documentation says, and no more.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_pmem::pool::Guarantee;
use remanent_structures::{BpMultiTree, BpTree, Map, OrderedMap};

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
    assert_eq!(fences(&pool, || assert!(tree.insert(&1000, &0).unwrap())), 3);
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 0..4 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    cost("insert", 2, &mut |key| assert!(tree.insert(&key, &key).unwrap()));
    cost("insert of a present key", 0, &mut |key| assert!(!tree.insert(&key, &0).unwrap()));
    cost("get", 0, &mut |key| assert_eq!(tree.get(&key).unwrap(), Some(key)));
    cost("get of an absent key", 0, &mut |key| assert_eq!(tree.get(&(key + 50)).unwrap(), None));
    cost("len", 0, &mut |_| assert_eq!(tree.len().unwrap(), 5));
    cost("ascend", 0, &mut |_| tree.ascend(.., |_, _| ControlFlow::Continue(())).unwrap());
    cost("descend", 0, &mut |_| tree.descend(.., |_, _| ControlFlow::Continue(())).unwrap());
    cost("update", 2, &mut |key| assert!(tree.update(&key, &(key + 1)).unwrap()));
    cost("update of an absent key", 0, &mut |key| assert!(!tree.update(&(key + 50), &0).unwrap()));
    cost("remove", 2, &mut |key| assert_eq!(tree.remove(&key).unwrap(), Some(key + 1)));
    cost("remove of an absent key", 0, &mut |key| assert_eq!(tree.remove(&key).unwrap(), None));
}

#[test]
fn nodes_that_are_copied_cost_no_fence_of_their_own() {
    let pool = pool();
    let tree = BpTree::<SmallNodes, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    tree.insert(&SmallNodes(500), &0).unwrap();
    // Splits on three levels, and of the root.
    for key in 0..100 {
        assert_eq!(
            fences(&pool, || assert!(tree.insert(&SmallNodes(key), &key).unwrap())),
            2,
            "{key}"
        );
    }
    // Joins, until the root is a leaf again; nodes are freed in batches.
    let mut all = 0;
    for key in 0..100 {
        let fences = fences(&pool, || assert!(tree.discard(&SmallNodes(key)).unwrap()));
        assert!((2..=4).contains(&fences), "{fences}");
        all += fences;
    }
    assert!(all <= 206, "{all}");
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn a_multi_tree_costs_the_same() {
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

/// With everything that happens now and then: chunks taken and given back, batches freed, the file grown.
#[test]
fn budgets_hold_over_many_operations() {
    const MANY: u64 = 50_000;
    let pool = pool();
    let tree = BpTree::<u64, u64, Arc<Sim>>::create(&pool, "tree").unwrap();
    let mean = |action: &mut dyn FnMut(u64)| {
        fences(&pool, || (0..MANY).map(|n| n * 7919 % MANY).for_each(action)) as f64 / MANY as f64
    };
    let insert = mean(&mut |key| assert!(tree.insert(&key, &key).unwrap()));
    assert!(insert <= 2.02, "{insert} fences an insert");
    let update = mean(&mut |key| assert!(tree.update(&key, &1).unwrap()));
    assert!(update <= 2.02, "{update} fences an update");
    let get = mean(&mut |key| assert!(tree.contains(&key).unwrap()));
    assert!(get == 0.0, "{get} fences a get");
    let remove = mean(&mut |key| assert!(tree.discard(&key).unwrap()));
    assert!(remove <= 2.02, "{remove} fences a remove");
    assert_eq!(tree.check().unwrap(), []);
}
