//! Behaviour on mapped memory, against the standard library's map.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use remanent_pmem::heap::Usage;
use remanent_pmem::{Emulation, Pool};
use remanent_structures::papers::{BpMultiTree, BpTree};
use remanent_structures::{Change, Error, Map, OrderedKey, OrderedMap, Result, Stored};

use super::SmallNodes;
use crate::support::{options, scratch};

/// Copies of a range, in the order in which `visit_all` visits it.
fn collect<K: Stored, V: Stored>(
    visit_all: impl FnOnce(&mut dyn FnMut(&K, &V) -> ControlFlow<()>) -> Result<()>,
) -> Vec<(K::Owned, V::Owned)> {
    let mut entries = Vec::new();
    visit_all(&mut |key, value| {
        entries.push((key.to_owned(), value.to_owned()));
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

fn ascending<K: OrderedKey>(tree: &BpTree<K, u64>) -> Vec<(K::Owned, u64)> {
    collect(|visit| tree.ascend(.., visit))
}

#[test]
fn a_tree_holds_what_was_put_into_it_across_reopening() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let count = 50_000_u64;
    // An order in which neighbours are far apart.
    let keys = || (0..count).map(|n| n * 7919 % count);
    {
        let pool = options().create(&path).unwrap();
        let tree: BpTree<u64, u64> = BpTree::create(&pool, "tree").unwrap();
        for key in keys() {
            assert!(tree.insert(&key, &(key * 3)).unwrap());
        }
        assert_eq!(tree.len().unwrap(), count);
        assert!(!tree.insert(&5, &0).unwrap());
        for key in 0..count {
            assert_eq!(tree.get(&key).unwrap(), Some(key * 3), "key {key}");
        }
        assert_eq!(tree.check().unwrap(), []);
        for key in keys().filter(|key| key % 2 == 0) {
            assert_eq!(tree.remove(&key).unwrap(), Some(key * 3));
        }
        assert_eq!(tree.check().unwrap(), []);
    }
    let pool = options().open(&path).unwrap();
    assert!(pool.was_clean());
    let tree: BpTree<u64, u64> = BpTree::open(&pool, "tree").unwrap();
    assert_eq!(tree.len().unwrap(), count / 2);
    let odd: Vec<(u64, u64)> = (1..count).step_by(2).map(|key| (key, key * 3)).collect();
    assert_eq!(ascending(&tree), odd);
    assert_eq!(tree.get(&4).unwrap(), None);
    assert_eq!(tree.check().unwrap(), []);
    assert!(pool.check().unwrap().violations.is_empty());
}

#[test]
fn a_tree_that_is_emptied_gives_its_space_back() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BpTree<SmallNodes, u64> = BpTree::create(&pool, "tree").unwrap();
    let orders: [fn(u64) -> u64; 3] = [|n| n, |n| 1999 - n, |n| n * 7919 % 2000];
    for order in orders {
        for key in 0..2000 {
            tree.insert(&SmallNodes(order(key)), &key).unwrap();
        }
        assert_eq!(tree.check().unwrap(), []);
        let full = tree.usage().unwrap();
        for key in 0..2000 {
            assert!(tree.discard(&SmallNodes(order(key))).unwrap());
        }
        assert_eq!(tree.check().unwrap(), []);
        let left = tree.usage().unwrap();
        // The heap's own chunk is a block, too.
        let nodes_len = |usage: Usage| usage.block_bytes - (64 << 10);
        assert!(nodes_len(left) < nodes_len(full) / 20, "{left:?} is left of {full:?}");
    }
}

#[test]
fn ranges_go_both_ways_and_end_where_they_are_told_to() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BpTree<SmallNodes, u64> = BpTree::create(&pool, "tree").unwrap();
    let model: BTreeMap<SmallNodes, u64> = (0..100).map(|n| (SmallNodes(n * 10), n)).collect();
    for (key, value) in &model {
        tree.insert(key, value).unwrap();
    }
    let bounds = [0, 5, 10, 495, 500, 985, 990, 2000].map(SmallNodes);
    for low in bounds {
        for high in bounds.into_iter().filter(|high| low < *high) {
            for range in [
                (Bound::Included(low), Bound::Included(high)),
                (Bound::Included(low), Bound::Excluded(high)),
                (Bound::Excluded(low), Bound::Included(high)),
                (Bound::Excluded(low), Bound::Unbounded),
                (Bound::Unbounded, Bound::Excluded(high)),
            ] {
                let expected: Vec<_> = model.range(range).map(|(k, v)| (*k, *v)).collect();
                assert_eq!(collect(|visit| tree.ascend(range, visit)), expected, "{range:?}");
                let backwards: Vec<_> = expected.into_iter().rev().collect();
                assert_eq!(collect(|visit| tree.descend(range, visit)), backwards, "{range:?}");
            }
        }
    }
    assert_eq!(tree.first().unwrap(), Some((SmallNodes(0), 0)));
    assert_eq!(tree.last().unwrap(), Some((SmallNodes(990), 99)));
}

#[test]
fn keys_and_values_of_many_types() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let signed: BpTree<i32, u16> = BpTree::create(&pool, "signed").unwrap();
    for key in (-300..300).rev() {
        signed.insert(&key, &(key.unsigned_abs() as u16)).unwrap();
    }
    let keys: Vec<i32> = collect(|visit| signed.ascend(.., visit)).iter().map(|e| e.0).collect();
    assert_eq!(keys, (-300..300).collect::<Vec<_>>());
    let strings: BpTree<[u8; 40], u64> = BpTree::create(&pool, "strings").unwrap();
    let long: BpTree<[u8; 64], [u8; 64]> = BpTree::create(&pool, "long").unwrap();
    let odd: BpTree<[u8; 3], [u8; 5]> = BpTree::create(&pool, "odd").unwrap();
    let text = |n: u64| format!("{:0>64}", n * 7919 % 5000).into_bytes();
    for n in 0..5000 {
        let key = *text(n).last_chunk::<40>().unwrap();
        assert!(strings.insert(&key, &n).unwrap());
        let key = *text(n).first_chunk::<64>().unwrap();
        assert!(long.insert(&key, &key).unwrap());
        let odd_key = *(n as u32).to_be_bytes().last_chunk::<3>().unwrap();
        assert!(odd.insert(&odd_key, &[n as u8; 5]).unwrap());
    }
    for n in 0..5000 {
        let key = *text(n).last_chunk::<40>().unwrap();
        assert_eq!(strings.get(&key).unwrap(), Some(n));
        let key = *text(n).first_chunk::<64>().unwrap();
        assert_eq!(long.get(&key).unwrap(), Some(key));
        let odd_key = *(n as u32).to_be_bytes().last_chunk::<3>().unwrap();
        assert_eq!(odd.remove(&odd_key).unwrap(), Some([n as u8; 5]));
    }
    for violations in [strings.check(), long.check(), odd.check(), signed.check()] {
        assert_eq!(violations.unwrap(), []);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Put(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Range(u64, u64),
    Clear,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..60_u64;
    prop_oneof![
        6 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Op::Insert(key, value)),
        2 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Op::Put(key, value)),
        1 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Op::Update(key, value)),
        6 => key.clone().prop_map(Op::Remove),
        1 => (key.clone(), key).prop_map(|(a, b)| Op::Range(a.min(b), a.max(b))),
        1 => Just(Op::Clear),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_tree_is_an_ordered_map(ops in prop::collection::vec(op(), 1..600)) {
        let dir = scratch();
        let path = dir.path().join("a.pool");
        let mut pool = Some(options().create(&path).unwrap());
        let mut tree: BpTree<SmallNodes, u64> = BpTree::create(pool.as_ref().unwrap(), "tree").unwrap();
        let mut model: BTreeMap<SmallNodes, u64> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Insert(key, value) => {
                    let key = SmallNodes(key);
                    prop_assert_eq!(tree.insert(&key, &value).unwrap(), !model.contains_key(&key));
                    model.entry(key).or_insert(value);
                }
                Op::Put(key, value) => {
                    let key = SmallNodes(key);
                    prop_assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_none());
                }
                Op::Update(key, value) => {
                    let found = model.get_mut(&SmallNodes(key)).map(|old| *old = value);
                    prop_assert_eq!(tree.update(&SmallNodes(key), &value).unwrap(), found.is_some());
                }
                Op::Remove(key) => {
                    let key = SmallNodes(key);
                    prop_assert_eq!(tree.remove(&key).unwrap(), model.remove(&key));
                }
                Op::Range(first, last) => {
                    let range = SmallNodes(first)..=SmallNodes(last);
                    let expected: Vec<_> = model.range(range.clone()).map(|(k, v)| (*k, *v)).collect();
                    prop_assert_eq!(collect(|visit| tree.ascend(range, visit)), expected);
                }
                Op::Clear => {
                    prop_assert_eq!(tree.clear().unwrap(), model.len() as u64);
                    model.clear();
                }
                Op::Reopen => {
                    drop((tree, pool.take()));
                    pool = Some(options().open(&path).unwrap());
                    tree = BpTree::open(pool.as_ref().unwrap(), "tree").unwrap();
                }
            }
            prop_assert_eq!(tree.len().unwrap(), model.len() as u64);
        }
        let expected: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(ascending(&tree), expected);
        prop_assert_eq!(tree.check().unwrap(), []);
    }

    #[test]
    fn a_multi_tree_is_an_ordered_multi_map(ops in prop::collection::vec((0..4_u8, 0..8_u64, 0..4_u64), 1..400)) {
        let dir = scratch();
        let path = dir.path().join("a.pool");
        let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (part, ops) in ops.chunks(100).enumerate() {
            let pool = if part == 0 { options().create(&path) } else { options().open(&path) }.unwrap();
            let tree: BpMultiTree<SmallNodes, u64> = BpMultiTree::open_or_create(&pool, "tree").unwrap();
            for &(kind, key, value) in ops {
                let values = model.entry(key).or_default();
                if kind < 3 {
                    tree.insert(&SmallNodes(key), &value).unwrap();
                    values.push(value);
                } else if value < 3 {
                    let place = values.iter().position(|&found| found == value);
                    prop_assert_eq!(tree.remove_one(&SmallNodes(key), &value).unwrap(), place.is_some());
                    place.map(|place| values.remove(place));
                } else {
                    prop_assert_eq!(tree.remove_all(&SmallNodes(key)).unwrap(), values.len() as u64);
                    values.clear();
                }
            }
            for (&key, values) in &model {
                prop_assert_eq!(&tree.get_all(&SmallNodes(key)).unwrap(), values);
            }
            let mut all: Vec<_> =
                model.iter().flat_map(|(k, values)| values.iter().map(|v| (SmallNodes(*k), *v))).collect();
            prop_assert_eq!(tree.len().unwrap(), all.len() as u64);
            prop_assert_eq!(collect(|visit| tree.ascend(.., visit)), all.clone());
            all.reverse();
            prop_assert_eq!(collect(|visit| tree.descend(.., visit)), all);
            prop_assert_eq!(tree.check().unwrap(), []);
        }
    }
}

#[test]
fn a_multi_tree_of_one_key_grows() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BpMultiTree<[u8; 40], u64> = BpMultiTree::create(&pool, "tree").unwrap();
    for value in 0..3_000 {
        tree.insert(&[b'x'; 40], &value).unwrap();
        tree.insert(&[b'y'; 40], &value).unwrap();
    }
    assert_eq!(tree.get_all(&[b'x'; 40]).unwrap(), (0..3_000).collect::<Vec<_>>());
    assert_eq!(tree.remove_all(&[b'x'; 40]).unwrap(), 3_000);
    assert_eq!(tree.get_all(&[b'y'; 40]).unwrap().len(), 3_000);
    assert_eq!(tree.clear().unwrap(), 3_000);
    assert!(tree.is_empty().unwrap());
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn readers_see_whole_versions_while_one_writes() {
    for emulation in [Emulation::None, Emulation::Nvram] {
        let dir = scratch();
        let pool = options().emulation(emulation).create(dir.path().join("a.pool")).unwrap();
        let tree: BpTree<SmallNodes, u64> = BpTree::create(&pool, "tree").unwrap();
        let (done, scans) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        // The writer keeps keys together that differ by one, so all keys of a kind
                        // are there, or none.
                        let keys: Vec<u64> = ascending(&tree).iter().map(|e| e.0.0).collect();
                        assert!(keys.is_sorted());
                        let lonely = keys.chunk_by(|a, b| a + 1 == *b).filter(|run| run.len() < 3);
                        assert!(lonely.count() <= 1, "{keys:?}");
                        assert!(tree.get(&SmallNodes(u64::MAX)).unwrap().is_none());
                        scans.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut rounds = 0;
            while rounds < 200 || scans.load(Ordering::Relaxed) < 20 {
                let first = rounds * 7919 % 50 * 4;
                for key in first..first + 3 {
                    if rounds / 50 % 2 == 0 {
                        tree.insert(&SmallNodes(key), &key).unwrap();
                    } else {
                        tree.discard(&SmallNodes(key)).unwrap();
                    }
                }
                rounds += 1;
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(tree.check().unwrap(), []);
    }
}

#[test]
fn several_writers_take_turns() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BpTree<u64, u64> = BpTree::create(&pool, "tree").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let tree = &tree;
            scope.spawn(move || {
                for key in (0..5_000).map(|n| n * 4 + thread) {
                    assert!(tree.insert(&key, &key).unwrap());
                    tree.modify(&u64::MAX, |found| {
                        (Change::Put(found.copied().unwrap_or(0) + 1), ())
                    })
                    .unwrap();
                    if key % 3 == 0 {
                        assert_eq!(tree.remove(&key).unwrap(), Some(key));
                    }
                }
            });
        }
    });
    assert_eq!(tree.get(&u64::MAX).unwrap(), Some(20_000));
    assert_eq!(tree.len().unwrap(), (0..20_000).filter(|key| key % 3 != 0).count() as u64 + 1);
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn roots_are_opened_by_type_and_shared() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let one: BpTree<u64, u64> = BpTree::create(&pool, "tree").unwrap();
    let two: BpTree<u64, u64> = BpTree::open(&pool, "tree").unwrap();
    one.insert(&1, &2).unwrap();
    assert_eq!(two.get(&1).unwrap(), Some(2));
    let error = BpMultiTree::<u64, u64>::open(&pool, "tree").unwrap_err().to_string();
    assert!(
        error.contains("BpTree<u64, u64>") && error.contains("BpMultiTree<u64, u64>"),
        "{error}"
    );
    drop((one, two));
    pool.remove_root("tree").unwrap();
    assert!(pool.check().unwrap().violations.is_empty());

    let disturbed = options().write_disturbance(true).create(dir.path().join("b.pool")).unwrap();
    let error = BpTree::<u64, u64>::create(&disturbed, "tree").unwrap_err();
    assert!(matches!(error, Error::Pool(remanent_pmem::Error::Disturbed { .. })), "{error}");
}

#[test]
fn a_full_pool_refuses_and_loses_nothing() {
    let dir = scratch();
    let pool = Pool::options().size_max(24 << 20).create(dir.path().join("a.pool")).unwrap();
    let tree: BpTree<u64, u64> = BpTree::create(&pool, "tree").unwrap();
    let key_of = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut stored = 0;
    let error = loop {
        match tree.insert(&key_of(stored), &stored) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert!(stored > 50_000, "{stored}");
    assert_eq!(tree.len().unwrap(), stored);
    for n in 0..stored {
        assert_eq!(tree.get(&key_of(n)).unwrap(), Some(n));
    }
    assert_eq!(tree.check().unwrap(), []);
    for n in 0..stored {
        assert!(tree.discard(&key_of(n)).unwrap());
    }
    assert_eq!(tree.check().unwrap(), []);
    for n in 0..stored * 9 / 10 {
        assert!(tree.insert(&key_of(n), &n).unwrap(), "space comes back");
    }
    assert_eq!(tree.check().unwrap(), []);
}
