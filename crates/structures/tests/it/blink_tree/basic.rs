//! Behaviour on mapped memory, against the standard library's ordered map.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use remanent_pmem::{Emulation, Medium};
use remanent_structures::{BlinkTree, Change, Error, Key, KeyRange, OrderedKey, Stored};

use crate::support::{options, scratch};

/// A permutation of the numbers below a power of two.
fn scatter(number: u64, bits: u32) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 1) & ((1 << bits) - 1)
}

/// What a visit of all entries of a range sees.
fn ascending<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium>(
    tree: &BlinkTree<K, V, M>,
    range: impl KeyRange<K>,
) -> Vec<(K::Owned, V::Owned)> {
    let mut found = Vec::new();
    tree.ascend(range, collect(&mut found)).unwrap();
    found
}

/// A visitor that keeps copies.
fn collect<K: ToOwned + ?Sized, V: ToOwned + ?Sized>(
    found: &mut Vec<(K::Owned, V::Owned)>,
) -> impl FnMut(&K, &V) -> ControlFlow<()> {
    |key, value| {
        found.push((key.to_owned(), value.to_owned()));
        ControlFlow::Continue(())
    }
}

/// As [`ascending`], the other way.
fn descending<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium>(
    tree: &BlinkTree<K, V, M>,
    range: impl KeyRange<K>,
) -> Vec<(K::Owned, V::Owned)> {
    let mut found = Vec::new();
    tree.descend(range, collect(&mut found)).unwrap();
    found
}

#[test]
fn a_tree_holds_what_was_put_into_it_across_reopening() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let bits = 17;
    let count = 1_u64 << bits;
    {
        let pool = options().create(&path).unwrap();
        let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
        for number in 0..count {
            let key = number.reverse_bits() >> (64 - bits);
            assert!(tree.insert(&key, &(key * 3)).unwrap());
        }
        assert_eq!(tree.len().unwrap(), count);
        assert!(!tree.insert(&5, &0).unwrap());
        for key in 0..count {
            assert_eq!(tree.get(&key).unwrap(), Some(key * 3), "key {key}");
        }
        assert_eq!(tree.check().unwrap(), []);
        for key in (0..count).step_by(2) {
            assert_eq!(tree.remove(&key).unwrap(), Some(key * 3));
        }
        assert_eq!(tree.check().unwrap(), []);
    }
    let pool = options().open(&path).unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::open(&pool, "tree").unwrap();
    assert_eq!(tree.len().unwrap(), count / 2);
    for key in 0..count {
        assert_eq!(tree.get(&key).unwrap(), (key % 2 == 1).then_some(key * 3));
    }
    assert_eq!(tree.check().unwrap(), []);
    assert!(pool.check().unwrap().violations.is_empty());
}

#[test]
fn removed_leaves_are_given_back() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    let value = [7; 100];
    for round in 0..3 {
        for key in 0..50_000_u64 {
            assert!(tree.insert(&key, &value).unwrap());
        }
        let full = tree.usage().unwrap();
        for key in 0..50_000_u64 {
            let key = if round == 1 { 49_999 - key } else { scatter(key, 16) };
            if round == 1 {
                assert!(tree.discard(&key).unwrap());
            } else {
                tree.discard(&key).unwrap();
            }
        }
        tree.clear().unwrap();
        assert!(tree.is_empty().unwrap());
        assert_eq!(tree.check().unwrap(), []);
        let empty = tree.usage().unwrap();
        assert!(empty.block_bytes < full.block_bytes / 50, "{empty:?} of {full:?}");
    }
}

#[test]
fn keys_and_values_of_every_length() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<[u8], [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    let mut model = BTreeMap::new();
    let lens = [0, 1, 7, 8, 9, 31, 64, 100, 4096, 21_900, 70_000, 3 << 20];
    for key_len in [0, 1, 8, 40, 300, 5000] {
        for value_len in lens {
            let key = [&b"k".repeat(key_len)[..], value_len.to_string().as_bytes()].concat();
            let value = vec![value_len as u8; value_len];
            assert!(tree.put(&key, &value).unwrap());
            assert_eq!(tree.get(&key).unwrap().as_deref(), Some(&value[..]));
            let other = vec![1; lens[(value_len + 1) % lens.len()]];
            assert!(!tree.put(&key, &other).unwrap());
            model.insert(key, other);
        }
    }
    assert_eq!(ascending(&tree, ..), model.clone().into_iter().collect::<Vec<_>>());
    assert_eq!(descending(&tree, ..), model.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(tree.check().unwrap(), []);
    let error = tree.insert(&[0; 70_000], &[]).unwrap_err();
    assert!(matches!(error, Error::TooLong { what: "key", .. }), "{error}");
}

#[test]
fn signed_keys_are_ordered_as_numbers() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<i16, u8> = BlinkTree::create(&pool, "tree").unwrap();
    for number in 0..2000_i16 {
        tree.insert(&(number * 7 % 2000 - 1000), &1).unwrap();
    }
    let keys: Vec<i16> = ascending(&tree, ..).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, (-1000..1000).collect::<Vec<_>>());
    let below: Vec<i16> = descending(&tree, -3..=3).into_iter().map(|(key, _)| key).collect();
    assert_eq!(below, [3, 2, 1, 0, -1, -2, -3]);
    assert_eq!(tree.first().unwrap(), Some((-1000, 1)));
    assert_eq!(tree.last().unwrap(), Some((999, 1)));
}

#[test]
fn sorted_entries_are_loaded_and_others_put() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<str, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    let key = |number: u64| format!("key {number:06}");
    let entry = |number: u64| (key(number), vec![number as u8; number as usize % 70]);
    assert_eq!(tree.bulk_load((0..10_000).map(entry)).unwrap(), 10_000);
    assert_eq!(tree.check().unwrap(), []);
    // Some are there, and what follows is not sorted.
    let more = (9_000..11_000).chain([20_000, 15_000, 16_000, 16_000]);
    assert_eq!(tree.bulk_load(more.map(entry)).unwrap(), 1_003);
    assert_eq!(tree.len().unwrap(), 11_003);
    let expected = (0..11_000).chain([15_000, 16_000, 20_000]).map(entry).collect::<Vec<_>>();
    assert_eq!(ascending(&tree, ..), expected);
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn a_leaf_stays_ordered_while_entries_go_and_come() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let words: BlinkTree<u64, u64> = BlinkTree::create(&pool, "words").unwrap();
    let texts: BlinkTree<str, u64> = BlinkTree::create(&pool, "texts").unwrap();
    let text = |key: u64| format!("a key of some length {key:04}");
    let mut model = BTreeMap::new();
    // Full leaves, and then ones that are joined, down to none.
    for round in 0..1_500_u64 {
        let key = scatter(round, 8);
        let is_put = round % 3 == 0 || (300..700).contains(&round);
        let key = if round % 5 == 0 { *model.keys().next().unwrap_or(&key) } else { key };
        if is_put && round < 1_000 {
            model.insert(key, round);
            words.put(&key, &round).unwrap();
            texts.put(&text(key), &round).unwrap();
        } else {
            let found = model.remove(&key);
            assert_eq!(words.remove(&key).unwrap(), found);
            assert_eq!(texts.remove(&text(key)).unwrap(), found);
        }
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(ascending(&words, ..), expected, "round {round}");
        let expected: Vec<_> = model.iter().map(|(key, value)| (text(*key), *value)).collect();
        assert_eq!(ascending(&texts, ..), expected, "round {round}");
    }
}

#[test]
fn a_range_is_taken_from_either_end() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    tree.bulk_load((0..1_000).map(|key| (key, key))).unwrap();
    for bounds in [0..0, 0..1_000, 5..6, 100..300, 900..2_000] {
        let mut model: std::collections::VecDeque<u64> =
            bounds.clone().filter(|&key| key < 1_000).collect();
        let mut range = tree.range(bounds).map(|entry| entry.unwrap().0);
        for step in 0.. {
            let (found, expected) = if step % 7 < 4 {
                (range.next(), model.pop_front())
            } else {
                (range.next_back(), model.pop_back())
            };
            assert_eq!(found, expected);
            if found.is_none() {
                break;
            }
        }
    }
}

#[test]
fn modify_decides_with_what_is_there() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<str, u64> = BlinkTree::create(&pool, "tree").unwrap();
    for round in 1..=5 {
        let count = tree
            .modify("key", |found| {
                let count = found.copied().unwrap_or(0) + 1;
                (Change::Put(count), count)
            })
            .unwrap();
        assert_eq!(count, round);
    }
    assert_eq!(tree.remove("key").unwrap(), Some(5));
    assert!(!tree.update("key", &1).unwrap());
    assert!(tree.is_empty().unwrap());
}

/// Keys of few entries a node, so that a short history has every shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Short(Vec<u8>);

impl Stored for Short {
    fn type_name() -> String {
        "Short".to_owned()
    }
    const LEN: Option<u32> = None;
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&Short(bytes.to_vec()))
    }
}
impl Key for Short {}
impl OrderedKey for Short {
    const NODE_ENTRIES_MAX: usize = 4;
    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }
    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        use_key(&Short(bytes.to_vec()))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Ascend(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Reopen,
    Clear,
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    // Long common beginnings, and zeros, are what heads of keys could confuse.
    (0..3_usize, prop::collection::vec(prop::sample::select(vec![0, 1, 255]), 0..5))
        .prop_map(|(beginning, end)| [&b"common beginning".repeat(beginning)[..], &end].concat())
}

fn any_op() -> impl Strategy<Value = Op> {
    let bound = || {
        prop_oneof![
            Just(Bound::Unbounded),
            any_key().prop_map(Bound::Included),
            any_key().prop_map(Bound::Excluded)
        ]
    };
    prop_oneof![
        30 => (any_key(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(k, v)| Op::Put(k, v)),
        20 => any_key().prop_map(Op::Remove),
        5 => (bound(), bound()).prop_map(|(start, end)| Op::Ascend(start, end)),
        1 => Just(Op::Reopen),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_of_small_nodes_agrees_with_a_model(ops in prop::collection::vec(any_op(), 1..400)) {
        let dir = scratch();
        let path = dir.path().join("a.pool");
        let mut pool = options().create(&path).unwrap();
        let mut tree: BlinkTree<Short, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
        let mut model = BTreeMap::<Short, Vec<u8>>::new();
        for op in ops {
            match op {
                Op::Put(key, value) => {
                    let is_new = tree.put(&Short(key.clone()), &value).unwrap();
                    prop_assert_eq!(is_new, model.insert(Short(key), value).is_none());
                }
                Op::Remove(key) => {
                    let key = Short(key);
                    prop_assert_eq!(tree.remove(&key).unwrap(), model.remove(&key));
                }
                Op::Ascend(start, end) => {
                    let range = (start.map(Short), end.map(Short));
                    let all = || model.iter().filter(|(key, _)| range.contains(*key));
                    let expected: Vec<_> = all().map(|(k, v)| (k.clone(), v.clone())).collect();
                    prop_assert_eq!(ascending(&tree, range.clone()), expected.clone());
                    let backwards: Vec<_> = expected.into_iter().rev().collect();
                    prop_assert_eq!(descending(&tree, range.clone()), backwards);
                }
                Op::Reopen => {
                    drop((tree, pool));
                    pool = options().open(&path).unwrap();
                    tree = BlinkTree::open(&pool, "tree").unwrap();
                }
                Op::Clear => {
                    prop_assert_eq!(tree.clear().unwrap(), model.len() as u64);
                    model.clear();
                }
            }
            prop_assert_eq!(tree.len().unwrap(), model.len() as u64);
        }
        prop_assert_eq!(ascending(&tree, ..), model.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(tree.check().unwrap(), vec![]);
    }
}

#[test]
fn threads_lose_nothing_while_leaves_divide_and_join() {
    for emulation in [Emulation::None, Emulation::Nvram] {
        let dir = scratch();
        let pool = options().emulation(emulation).create(dir.path().join("a.pool")).unwrap();
        let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
        let (threads, rounds, span) = (4, 6, 4_000);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let tree = tree.clone();
                scope.spawn(move || {
                    for round in 0..rounds {
                        for number in 0..span {
                            let key = scatter(number, 12) % span * threads + thread;
                            tree.put(&key, &(round * 10 + thread)).unwrap();
                        }
                        for number in 0..span {
                            let key = number * threads + thread;
                            let expected = tree.get(&key).unwrap();
                            assert!(expected.is_none_or(|found| found == round * 10 + thread));
                            assert_eq!(tree.remove(&key).unwrap(), expected, "key {key}");
                        }
                    }
                });
            }
        });
        assert_eq!(tree.len().unwrap(), 0);
        assert_eq!(ascending(&tree, ..), []);
        assert_eq!(tree.check().unwrap(), []);
    }
}

#[test]
fn a_range_shows_everything_that_stays_exactly_once_while_others_come_and_go() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    for key in 0..5_000 {
        tree.insert(&(key * 10), &key).unwrap();
    }
    let (is_done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: any moment will do.
            for number in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                let key = scatter(number, 15) * 10 % 50_000 + 1 + number % 9;
                tree.put(&key, &0).unwrap();
                tree.remove(&(scatter(number / 2, 15) * 10 % 50_000 + 1 + number / 2 % 9)).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..40 {
            let seen = if round % 2 == 0 {
                ascending(&tree, ..)
            } else {
                let mut seen = descending(&tree, ..);
                seen.reverse();
                seen
            };
            assert!(seen.is_sorted_by(|one, other| one.0 < other.0));
            let stays: Vec<u64> =
                seen.iter().map(|seen| seen.0).filter(|key| key % 10 == 0).collect();
            assert_eq!(stays, (0..5_000).map(|key| key * 10).collect::<Vec<_>>());
        }
        while written.load(Ordering::Relaxed) < 1_000 {
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(tree.check().unwrap(), []);
}
