//! Fences are the currency: each operation costs what the documentation says, and no more.

use std::ops::ControlFlow;

use remanent_pmem::pool::Guarantee;
use remanent_structures::{BlinkTree, Change};

use crate::support::{fences, sim_pool};

#[test]
fn every_operation_on_words_costs_its_budget() {
    let pool = sim_pool(Guarantee::default());
    let tree = BlinkTree::<u64, u64, _>::create(&pool, "tree").unwrap();
    tree.insert(&1000, &0).unwrap();
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 0..8 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    cost("insert", 1, &mut |key| assert!(tree.insert(&key, &key).unwrap()));
    cost("insert of a present key", 0, &mut |key| assert!(!tree.insert(&key, &0).unwrap()));
    cost("get", 0, &mut |key| assert_eq!(tree.get(&key).unwrap(), Some(key)));
    cost("get of an absent key", 0, &mut |key| assert_eq!(tree.get(&(key + 50)).unwrap(), None));
    cost("update", 1, &mut |key| assert!(tree.update(&key, &(key + 1)).unwrap()));
    cost("modify", 1, &mut |key| {
        tree.modify(&key, |value| (Change::Put(value.unwrap() + 1), ())).unwrap();
    });
    cost("a range", 0, &mut |key| {
        tree.ascend(key.., |_, _| ControlFlow::Continue(())).unwrap();
        tree.descend(..key, |_, _| ControlFlow::Continue(())).unwrap();
    });
    cost("remove", 1, &mut |key| assert_eq!(tree.remove(&key).unwrap(), Some(key + 2)));
    cost("remove of an absent key", 0, &mut |key| assert_eq!(tree.remove(&key).unwrap(), None));
}

#[test]
fn every_operation_on_records_costs_its_budget() {
    let pool = sim_pool(Guarantee::default());
    let tree = BlinkTree::<str, [u8], _>::create(&pool, "tree").unwrap();
    let key = |number: u64| format!("a key of some length {number}");
    for number in 100..103 {
        tree.insert(&key(number), &[1; 50]).unwrap();
    }
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for number in 0..8 {
            assert_eq!(fences(&pool, || action(number)), expected, "{what} {number}");
        }
    };
    cost("insert", 2, &mut |number| assert!(tree.insert(&key(number), &[2; 50]).unwrap()));
    cost("get", 0, &mut |number| assert!(tree.contains(&key(number)).unwrap()));
    cost("update", 2, &mut |number| assert!(tree.update(&key(number), &[3; 50]).unwrap()));
    cost("swap", 2, &mut |number| assert!(tree.swap(&key(number), &[4; 50]).unwrap().is_some()));
    cost("remove", 2, &mut |number| assert!(tree.discard(&key(number)).unwrap()));
    for _ in 100..103 {
        assert_eq!(fences(&pool, || assert!(tree.pop_first().unwrap().is_some())), 2, "pop");
    }
}

#[test]
fn what_is_built_on_modify_costs_what_it_comes_to() {
    let pool = sim_pool(Guarantee::default());
    let tree = BlinkTree::<u64, u64, _>::create(&pool, "tree").unwrap();
    tree.insert(&1000, &0).unwrap();
    let cost = |what: &str, expected: u64, action: &mut dyn FnMut(u64)| {
        for key in 0..8 {
            assert_eq!(fences(&pool, || action(key)), expected, "{what} {key}");
        }
    };
    let exchange = |key: u64, expected: Option<u64>, new: Option<u64>| {
        tree.compare_exchange(&key, expected.as_ref(), new.as_ref()).unwrap()
    };
    cost("get or insert", 1, &mut |key| {
        assert_eq!(tree.get_or_insert_with(&key, || 1).unwrap(), 1);
    });
    cost("get or insert of a present key", 0, &mut |key| {
        assert_eq!(tree.get_or_insert_with(&key, || unreachable!()).unwrap(), 1);
    });
    cost("swap", 1, &mut |key| assert_eq!(tree.swap(&key, &2).unwrap(), Some(1)));
    cost("exchange", 1, &mut |key| assert_eq!(exchange(key, Some(2), Some(3)), Ok(())));
    cost("exchange that fails", 0, &mut |key| {
        assert_eq!(exchange(key, Some(2), Some(4)), Err(Some(3)));
        assert_eq!(exchange(key + 50, Some(2), Some(4)), Err(None));
    });
    cost("change that fails", 0, &mut |key| {
        let refuse = |_: Option<&u64>| Err::<(Change<u64>, ()), _>("no");
        assert_eq!(tree.try_modify(&key, refuse).unwrap(), Err("no"));
    });
    cost("pop", 1, &mut |key| {
        let entry = if key < 4 { tree.pop_first() } else { tree.pop_last() };
        assert!(entry.unwrap().is_some());
    });
    let extend = fences(&pool, || assert_eq!(tree.extend((0..9).map(|n| (n, n))).unwrap(), 8));
    assert_eq!(extend, 9);
    assert_eq!(fences(&pool, || assert_eq!(tree.remove_range(1..=4).unwrap(), 4)), 4);
    let retain = fences(&pool, || assert_eq!(tree.retain(|key, _| *key < 7).unwrap(), 2));
    assert_eq!(retain, 2, "an entry that is removed costs one, one that is kept none");
    cost("iterators", 0, &mut |_| {
        assert_eq!((tree.iter().count(), tree.keys().count(), tree.values().count()), (3, 3, 3));
    });
}

/// With all that dividing leaves and nodes takes.
#[test]
fn an_insert_costs_less_than_three_fences_on_average() {
    let pool = sim_pool(Guarantee::default());
    let tree = BlinkTree::<u64, u64, _>::create(&pool, "tree").unwrap();
    let count = 20_000;
    let total = fences(&pool, || {
        for number in 0..count {
            tree.insert(&u64::reverse_bits(number), &number).unwrap();
        }
    });
    let mean = total as f64 / count as f64;
    assert!((1.0..1.5).contains(&mean), "{mean} fences an insert");
}

/// Inserts as many entries as two leaves hold, and removes them: one insert divides the leaf, and
/// one removal joins the two.
#[test]
fn dividing_a_leaf_and_joining_two_cost_their_budget() {
    let pool = sim_pool(Guarantee::default());
    let words = BlinkTree::<u64, u64, _>::create(&pool, "words").unwrap();
    let records = BlinkTree::<str, [u8], _>::create(&pool, "records").unwrap();
    let long = |key: u64| format!("a key of some length {key}");
    type Action<'a> = &'a dyn Fn(u64);
    let cases: [(&str, Action<'_>, [u64; 2]); 4] = [
        ("insert of words", &|key| assert!(words.insert(&key, &key).unwrap()), [1, 1 + 4]),
        ("removal of words", &|key| assert!(words.discard(&key).unwrap()), [1, 1 + 4]),
        (
            "insert of records",
            &|key| assert!(records.insert(&long(key), &[2; 50]).unwrap()),
            [2, 2 + 5],
        ),
        ("removal of records", &|key| assert!(records.discard(&long(key)).unwrap()), [2, 2 + 4]),
    ];
    let turns = || (0..64).map(|turn| turn * 37 % 64);
    // Taking chunks from the pool costs fences of its own: once.
    for (_, action, _) in &cases {
        turns().for_each(action);
    }
    for (what, action, [usual, most]) in cases {
        let costs: Vec<u64> = turns().map(|key| fences(&pool, || action(key))).collect();
        // One more now and then: what was removed before is freed.
        let unusual: Vec<_> = costs.iter().filter(|cost| **cost > usual + 1).collect();
        assert_eq!((costs.iter().min(), &unusual[..]), (Some(&usual), &[&most][..]), "{what}");
    }
}
