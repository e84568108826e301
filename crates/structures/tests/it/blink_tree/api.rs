//! What the tree offers beyond single reads and writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_pmem::Pool;
use remanent_structures::{BlinkTree, Change, Error, KeyRange, Result};

use crate::support::{options, scratch};

fn pool(dir: &tempfile::TempDir) -> Pool {
    options().create(dir.path().join("a.pool")).unwrap()
}

fn text_keys(tree: &BlinkTree<str, u64>, range: impl KeyRange<str>) -> Vec<String> {
    tree.range(range).map(|entry| entry.unwrap().0).collect()
}

#[test]
fn ranges_of_text_have_bounds_of_every_kind() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<str, u64> = BlinkTree::create(&pool, "tree").unwrap();
    tree.extend(["a", "b", "ba", "c", "d"].map(|key| (key, 0))).unwrap();
    let excluded = |key| Bound::Excluded(key);
    assert_eq!(text_keys(&tree, "b".."d"), ["b", "ba", "c"]);
    assert_eq!(text_keys(&tree, "b"..="d"), ["b", "ba", "c", "d"]);
    assert_eq!(text_keys(&tree, .."b"), ["a"]);
    assert_eq!(text_keys(&tree, ..="b"), ["a", "b"]);
    assert_eq!(text_keys(&tree, "c"..), ["c", "d"]);
    assert_eq!(text_keys(&tree, ..), ["a", "b", "ba", "c", "d"]);
    assert_eq!(text_keys(&tree, "c".to_owned()..), ["c", "d"]);
    assert_eq!(text_keys(&tree, (excluded("b"), Bound::Unbounded)), ["ba", "c", "d"]);
    let owned = (Bound::Unbounded, Bound::Excluded("b".to_owned()));
    assert_eq!(text_keys(&tree, owned), ["a"]);
}

#[test]
fn ranges_of_bytes_and_numbers_have_bounds_of_every_kind() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<[u8], u64> = BlinkTree::create(&pool, "bytes").unwrap();
    tree.extend([&b"a"[..], b"b", b"c\xff"].map(|key| (key, 0))).unwrap();
    assert_eq!(tree.range(&b"a"[..]..&b"c"[..]).count(), 2);
    assert_eq!(tree.range(*b"b"..).count(), 2);
    assert_eq!(tree.range(b"b".to_vec()..=b"c\xff".to_vec()).count(), 2);
    let (start, end) = ([0xff; 3], &b"z"[..]);
    assert_eq!(tree.range((Bound::Excluded(&start[..]), Bound::Included(end))).count(), 0);

    let numbers: BlinkTree<i32, str> = BlinkTree::create(&pool, "numbers").unwrap();
    numbers.extend((-5..5).map(|key| (key, "value"))).unwrap();
    assert_eq!(numbers.range(1..5).count(), 4);
    assert_eq!(numbers.range(-1..=1).count(), 3);
    assert_eq!(numbers.range(&0..).count(), 5);
    assert_eq!(numbers.range((Bound::Excluded(-3), Bound::Unbounded)).count(), 7);

    let owned: BlinkTree<String, u64> = BlinkTree::create(&pool, "owned").unwrap();
    owned.extend(["a", "b"].map(|key| (key.to_owned(), 0))).unwrap();
    assert_eq!(owned.range("b".to_owned()..).count(), 1);
    assert_eq!(owned.prefix("b").count(), 1);
}

#[test]
fn a_range_that_ends_before_it_starts_is_empty() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    let empty = |tree: &BlinkTree<u64, u64>| {
        let excluded = (Bound::Excluded(500), Bound::Excluded(500));
        #[expect(clippy::reversed_empty_ranges, reason = "that is what this is about")]
        let ranges = [(700..300), (300..300)].map(|range| (range.start, range.end));
        for (start, end) in ranges {
            assert_eq!(tree.range(start..end).count(), 0);
            assert_eq!(tree.range(start..end).rev().count(), 0);
            assert_eq!(tree.remove_range(start..end).unwrap(), 0);
        }
        assert_eq!(tree.range(excluded).count(), 0);
        assert_eq!(tree.range(excluded).rev().count(), 0);
        assert_eq!(tree.remove_range(excluded).unwrap(), 0);
        assert_eq!(tree.range((Bound::Excluded(u64::MAX), Bound::Included(0))).count(), 0);
    };
    empty(&tree);
    tree.bulk_load((0..1000).map(|key| (key, key))).unwrap();
    empty(&tree);
    assert_eq!(tree.len().unwrap(), 1000);
}

#[test]
fn a_prefix_finds_the_keys_that_begin_with_it() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<[u8], u64> = BlinkTree::create(&pool, "bytes").unwrap();
    let bytes = [0, 1, b'a', 0xfe, 0xff];
    let mut keys = vec![vec![]];
    for len in 0..3 {
        let longest: Vec<_> = keys.iter().filter(|key| key.len() == len).cloned().collect();
        keys.extend(longest.iter().flat_map(|key| bytes.map(|byte| [&key[..], &[byte]].concat())));
    }
    keys.sort();
    tree.extend(keys.iter().map(|key| (&key[..], 0))).unwrap();
    for prefix in keys.iter().map(|key| &key[..]).chain([&b"b"[..], &[0xff; 4], &[0; 4]]) {
        let found: Vec<_> = tree.prefix(prefix).map(|entry| entry.unwrap().0).collect();
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(found, expected, "{prefix:?}");
        let backwards: Vec<_> = tree.prefix(prefix).rev().map(|entry| entry.unwrap().0).collect();
        assert!(backwards.iter().eq(expected.iter().rev()), "{prefix:?}");
    }

    let tree: BlinkTree<str, u64> = BlinkTree::create(&pool, "text").unwrap();
    let keys = ["", "a", "a\u{d7ff}", "a\u{d7ff}x", "a\u{e000}", "a\u{10ffff}z", "b", "\u{10ffff}"];
    tree.extend(keys.map(|key| (key, 0))).unwrap();
    for prefix in keys.into_iter().chain(["a\u{10ffff}", "c", "a\u{10ffff}zz"]) {
        let found: Vec<_> = tree.prefix(prefix).map(|entry| entry.unwrap().0).collect();
        let expected = keys.iter().filter(|key| key.starts_with(prefix));
        assert!(found.iter().eq(expected), "{prefix:?}: {found:?}");
    }
}

#[test]
fn a_tree_is_iterated_by_entries_keys_and_values_from_either_end() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<str, u64> = BlinkTree::create(&pool, "tree").unwrap();
    assert_eq!((tree.iter().count(), tree.keys().count(), tree.values().count()), (0, 0, 0));
    let model: BTreeMap<String, u64> = (0..1000).map(|n| (format!("key {n:04}"), n)).collect();
    assert_eq!(tree.extend(model.clone()).unwrap(), 1000);
    let mut expected = model.iter();
    for entry in &tree {
        let (key, value) = entry.unwrap();
        assert_eq!(Some((&key, &value)), expected.next());
    }
    assert!(tree.keys().map(Result::unwrap).eq(model.keys().cloned()));
    assert!(tree.values().map(Result::unwrap).eq(0..1000));
    assert!(tree.values().rev().map(Result::unwrap).eq((0..1000).rev()));
    // Both ends meet, wherever they do.
    for from_front in [0, 1, 63, 64, 65, 500, 936, 999, 1000] {
        let mut keys = tree.keys();
        let mut found: Vec<_> = keys.by_ref().take(from_front).map(Result::unwrap).collect();
        let mut back: Vec<_> = keys.rev().map(Result::unwrap).collect();
        back.reverse();
        found.append(&mut back);
        assert!(found.iter().eq(model.keys()), "{from_front} from the front");
    }
}

#[test]
fn entries_are_read_and_changed_without_a_trait() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<str, str> = BlinkTree::create(&pool, "tree").unwrap();
    assert!(tree.insert("a", "1").unwrap());
    assert!(!tree.put("a", "2").unwrap());
    assert!(tree.update("a", "3").unwrap());
    assert!(tree.contains("a").unwrap());
    assert_eq!(tree.get_with("a", str::len).unwrap(), Some(1));
    assert!(!tree.modify("b", |found| (Change::Put("4"), found.is_some())).unwrap());
    assert_eq!(tree.first().unwrap(), Some(("a".to_owned(), "3".to_owned())));
    assert_eq!(tree.last().unwrap(), Some(("b".to_owned(), "4".to_owned())));
    assert_eq!(tree.remove("a").unwrap().as_deref(), Some("3"));
    assert!(tree.discard("b").unwrap());
    assert!(tree.is_empty().unwrap());
    assert_eq!((tree.clear().unwrap(), tree.check().unwrap()), (0, vec![]));
}

#[test]
fn an_error_of_try_modify_leaves_the_entry_as_it_was() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    let withdraw = |amount: u64| {
        tree.try_modify(&1, |found| {
            let rest = found.ok_or("nothing")?.checked_sub(amount).ok_or("too little")?;
            Ok::<_, &str>((Change::Put(rest), rest))
        })
        .unwrap()
    };
    assert_eq!(withdraw(1), Err("nothing"));
    assert!(tree.is_empty().unwrap());
    tree.put(&1, &10).unwrap();
    assert_eq!(withdraw(11), Err("too little"));
    assert_eq!(tree.get(&1).unwrap(), Some(10));
    assert_eq!(withdraw(4), Ok(6));
    assert_eq!(tree.get(&1).unwrap(), Some(6));
}

#[test]
fn entries_are_exchanged() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<str, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    assert_eq!(tree.swap("a", b"one").unwrap(), None);
    assert_eq!(tree.swap("a", b"two").unwrap(), Some(b"one".to_vec()));
    let refused = Err(Some(b"two".to_vec()));
    assert_eq!(tree.compare_exchange("a", Some(b"one"), Some(b"x")).unwrap(), refused);
    assert_eq!(tree.compare_exchange("a", None, Some(b"x")).unwrap(), refused);
    assert_eq!(tree.compare_exchange("a", Some(b"two"), Some(b"three")).unwrap(), Ok(()));
    assert_eq!(tree.compare_exchange("a", Some(b"three"), None).unwrap(), Ok(()));
    assert_eq!(tree.compare_exchange("a", Some(b"three"), None).unwrap(), Err(None));
    assert_eq!(tree.get_or_insert_with("a", || b"four".to_vec()).unwrap(), b"four");
    assert_eq!(tree.get_or_insert_with("a", || unreachable!()).unwrap(), b"four");
    assert_eq!((tree.len().unwrap(), tree.check().unwrap()), (1, vec![]));
}

/// Each thread counts up by compare-exchange: a count that is lost, or done twice, is missing in
/// the end.
#[test]
fn threads_that_exchange_one_value_lose_none() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    let rounds = 10_000;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut expected = tree.get(&1).unwrap();
                    loop {
                        let next = expected.map_or(0, |count| count + 1);
                        match tree.compare_exchange(&1, expected.as_ref(), Some(&next)).unwrap() {
                            Ok(()) => break,
                            Err(found) => expected = found,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(tree.get(&1).unwrap(), Some(2 * rounds - 1));
}

#[test]
fn what_is_popped_is_first_or_last_and_gone() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, str> = BlinkTree::create(&pool, "tree").unwrap();
    assert_eq!(tree.pop_first().unwrap(), None);
    assert_eq!(tree.pop_last().unwrap(), None);
    let value = |key: u64| format!("value {key}");
    tree.extend((0..500).map(|key| (key, value(key)))).unwrap();
    for key in 0..250 {
        assert_eq!(tree.pop_first().unwrap(), Some((key, value(key))));
        assert_eq!(tree.pop_last().unwrap(), Some((499 - key, value(499 - key))));
    }
    assert_eq!((tree.pop_first().unwrap(), tree.pop_last().unwrap()), (None, None));
    assert_eq!((tree.len().unwrap(), tree.check().unwrap()), (0, vec![]));
}

/// Two threads pop while a third one inserts: each entry comes out once, with its own value.
#[test]
fn threads_that_pop_share_the_entries() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, [u8]> = BlinkTree::create(&pool, "tree").unwrap();
    let count = 20_000_u64;
    let (first_half, is_filled) = (count / 2, AtomicBool::new(false));
    let value = |key: u64| format!("what is to be done: {key}").into_bytes();
    tree.extend((0..first_half).map(|key| (key, value(key)))).unwrap();
    let popped = thread::scope(|scope| {
        let threads = [true, false].map(|from_front| {
            let (tree, is_filled) = (&tree, &is_filled);
            scope.spawn(move || {
                let mut popped = Vec::new();
                loop {
                    // Acquire: partner of the Release below; an empty tree is empty for good then.
                    let is_last = is_filled.load(Ordering::Acquire);
                    let entry = if from_front { tree.pop_first() } else { tree.pop_last() };
                    match entry.unwrap() {
                        Some(entry) => popped.push(entry),
                        None if is_last => return popped,
                        None => {}
                    }
                }
            })
        });
        for key in first_half..count {
            assert!(tree.insert(&key, &value(key)).unwrap());
        }
        // Release: behind the inserts.
        is_filled.store(true, Ordering::Release);
        threads.map(|thread| thread.join().unwrap())
    });
    let [one, other] = popped;
    assert!(!one.is_empty() && !other.is_empty(), "one thread had all");
    let mut all = [one, other].concat();
    all.sort();
    assert!(all.into_iter().eq((0..count).map(|key| (key, value(key)))));
    assert_eq!((tree.len().unwrap(), tree.check().unwrap()), (0, vec![]));
}

#[test]
fn remove_range_removes_what_is_in_the_range() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    assert_eq!(tree.remove_range(..).unwrap(), 0);
    let mut model: BTreeMap<u64, u64> = (0..2000).map(|key| (2 * key, key)).collect();
    tree.bulk_load(model.clone()).unwrap();
    let ranges = [
        (Bound::Included(100), Bound::Excluded(300)),
        (Bound::Excluded(300), Bound::Included(302)),
        (Bound::Included(301), Bound::Included(301)),
        (Bound::Unbounded, Bound::Included(4)),
        (Bound::Included(3001), Bound::Unbounded),
    ];
    for range in ranges {
        let before = model.len();
        let inside: Vec<u64> = model.range(range).map(|(&key, _)| key).collect();
        model.retain(|key, _| !inside.contains(key));
        assert_eq!(tree.remove_range(range).unwrap(), (before - model.len()) as u64, "{range:?}");
        assert!(tree.keys().map(Result::unwrap).eq(model.keys().copied()), "{range:?}");
    }
    assert_eq!(tree.check().unwrap(), []);
}

/// What is there when it begins goes; what others insert outside of the range stays; and it ends,
/// though another thread goes on and on inserting behind it.
#[test]
fn remove_range_while_another_thread_inserts() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<(u8, u64), u64> = BlinkTree::create(&pool, "tree").unwrap();
    let is_done = AtomicBool::new(false);
    for key in 0..5_000 {
        tree.insert(&(1, key), &key).unwrap();
    }
    let (removed, inserted) = thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            let mut inserted = 0;
            // Relaxed: sooner or later it is seen.
            while !is_done.load(Ordering::Relaxed) {
                for group in 0..3 {
                    assert!(tree.insert(&(group, 10_000 + inserted), &0).unwrap());
                }
                inserted += 1;
            }
            inserted
        });
        let removed = tree.remove_range((1, 0)..(2, 0)).unwrap();
        // Relaxed: as above.
        is_done.store(true, Ordering::Relaxed);
        (removed, inserting.join().unwrap())
    });
    assert!(removed >= 5_000, "{removed}");
    assert_eq!(tree.range((1, 0)..(1, 10_000)).count(), 0);
    assert_eq!(tree.range(..(1, 0)).count() as u64, inserted);
    assert_eq!(tree.range((2, 0)..).count() as u64, inserted);
    assert_eq!(tree.range((1, 0)..(2, 0)).count() as u64, 5_000 + inserted - removed);
    assert_eq!(tree.check().unwrap(), []);
}

#[test]
fn retain_keeps_what_is_wanted() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    assert_eq!(tree.retain(|_, _| false).unwrap(), 0);
    tree.bulk_load((0..1000).map(|key| (key, key % 7))).unwrap();
    assert_eq!(tree.retain(|_, _| true).unwrap(), 0);
    let removed = tree.retain(|key, value| key % 7 == *value && *value != 3).unwrap();
    assert_eq!((removed, tree.len().unwrap()), (143, 857));
    assert!((0..1000).all(|key| tree.contains(&key).unwrap() == (key % 7 != 3)));
    assert_eq!(tree.retain(|_, _| false).unwrap(), 857);
    assert_eq!((tree.len().unwrap(), tree.check().unwrap()), (0, vec![]));
}

/// A thread makes entries wanted while another drops what is not: none that is wanted may go.
#[test]
fn retain_removes_no_entry_that_has_become_wanted() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<u64, u64> = BlinkTree::create(&pool, "tree").unwrap();
    let keys = 500;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..40 {
                for key in 0..keys {
                    tree.put(&key, &(2 * round)).unwrap();
                    tree.put(&key, &(2 * round + 1)).unwrap();
                    // Odd values are wanted.
                    assert_eq!(tree.get(&key).unwrap(), Some(2 * round + 1));
                }
            }
        });
        while !writer.is_finished() {
            tree.retain(|_, value| value % 2 == 1).unwrap();
        }
    });
    assert_eq!((tree.len().unwrap(), tree.check().unwrap()), (keys, vec![]));
}

#[test]
fn extend_stops_at_an_error_and_keeps_what_it_has_put() {
    let dir = scratch();
    let pool = pool(&dir);
    let tree: BlinkTree<[u8], u64> = BlinkTree::create(&pool, "tree").unwrap();
    let long = vec![0; BlinkTree::<[u8], u64>::KEY_LEN_MAX + 1];
    let error = tree.extend([(&b"a"[..], 1), (b"a", 2), (&long, 3), (b"b", 4)]).unwrap_err();
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
    let entries = tree.iter().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(entries, [(b"a".to_vec(), 2)]);
}
