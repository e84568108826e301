//! What the map offers beyond single reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use remanent_structures::{Change, Error, HashMap, HashMultiMap, Result};

use crate::support::{options, scratch};

/// Rounds in which threads contend.
const ROUNDS: u64 = 20_000;

#[test]
fn an_error_of_try_modify_leaves_the_entry_as_it_was() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<str, str> = HashMap::create(&pool, "map").unwrap();
    let refuse = |found: Option<&str>| Err::<(Change<&str>, ()), _>(found.map(str::to_owned));
    assert_eq!(map.try_modify("key", refuse).unwrap(), Err(None));
    assert_eq!(map.get("key").unwrap(), None);
    map.put("key", "a value that is no word").unwrap();
    let found = map.try_modify("key", refuse).unwrap();
    assert_eq!(found, Err(Some("a value that is no word".to_owned())));
    assert_eq!(map.get("key").unwrap().as_deref(), Some("a value that is no word"));
    let accept = |found: Option<&str>| Ok::<_, ()>((Change::Put("new"), found.is_some()));
    assert_eq!(map.try_modify("key", accept).unwrap(), Ok(true));
    assert_eq!(map.get("key").unwrap().as_deref(), Some("new"));
    let remove = |_: Option<&str>| Ok::<_, ()>((Change::<&str>::Remove, 7));
    assert_eq!(map.try_modify("key", remove).unwrap(), Ok(7));
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (0, vec![]));
}

#[test]
fn swap_returns_what_was_replaced() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, [u8]> = HashMap::create(&pool, "map").unwrap();
    assert_eq!(map.swap(&1, &[1; 40]).unwrap(), None);
    assert_eq!(map.swap(&1, &[2; 5]).unwrap(), Some(vec![1; 40]));
    assert_eq!(map.swap(&1, &[]).unwrap(), Some(vec![2; 5]));
    assert_eq!(map.get(&1).unwrap(), Some(vec![]));
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (1, vec![]));
}

#[test]
fn compare_exchange_changes_what_is_as_expected_and_nothing_else() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<str, u64> = HashMap::create(&pool, "map").unwrap();
    let exchange = |expected: Option<u64>, new: Option<u64>| {
        map.compare_exchange("key", expected.as_ref(), new.as_ref()).unwrap()
    };
    assert_eq!(exchange(None, None), Ok(()));
    assert_eq!(exchange(Some(1), Some(2)), Err(None));
    assert_eq!(exchange(Some(1), None), Err(None));
    assert_eq!(map.len().unwrap(), 0);
    assert_eq!(exchange(None, Some(1)), Ok(()));
    assert_eq!(exchange(None, Some(2)), Err(Some(1)));
    assert_eq!(exchange(None, None), Err(Some(1)));
    assert_eq!(exchange(Some(2), None), Err(Some(1)));
    assert_eq!(exchange(Some(1), Some(1)), Ok(()));
    assert_eq!(exchange(Some(1), Some(3)), Ok(()));
    assert_eq!(map.get("key").unwrap(), Some(3));
    assert_eq!(exchange(Some(3), None), Ok(()));
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (0, vec![]));
}

#[test]
fn values_are_compared_by_their_stored_form() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, f64> = HashMap::create(&pool, "map").unwrap();
    map.put(&1, &0.0).unwrap();
    assert_eq!(map.compare_exchange(&1, Some(&-0.0), None).unwrap(), Err(Some(0.0)));
    map.put(&1, &f64::NAN).unwrap();
    assert_eq!(map.compare_exchange(&1, Some(&f64::NAN), Some(&1.5)).unwrap(), Ok(()));
    assert_eq!(map.get(&1).unwrap(), Some(1.5));
}

/// Each thread counts up by compare-exchange: a count that is lost, or done twice, is missing in
/// the end.
#[test]
fn threads_that_exchange_one_value_lose_none() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let words: HashMap<str, u64> = HashMap::create(&pool, "words").unwrap();
    let texts: HashMap<str, str> = HashMap::create(&pool, "texts").unwrap();
    let count = |expected: &Option<u64>| expected.map_or(0, |count| count + 1);
    let text = |count: u64| format!("a number of some length {count}");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut expected = words.get("count").unwrap();
                    while let Err(found) = words
                        .compare_exchange("count", expected.as_ref(), Some(&count(&expected)))
                        .unwrap()
                    {
                        expected = found;
                    }
                }
                for _ in 0..ROUNDS / 10 {
                    let mut expected = texts.get("count").unwrap();
                    loop {
                        let number = expected
                            .as_ref()
                            .map(|text| text.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
                        let new = text(count(&number));
                        match texts.compare_exchange("count", expected.as_deref(), Some(&new)) {
                            Ok(Ok(())) => break,
                            Ok(Err(found)) => expected = found,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(words.get("count").unwrap(), Some(2 * ROUNDS - 1));
    assert_eq!(texts.get("count").unwrap(), Some(text(2 * (ROUNDS / 10) - 1)));
}

#[test]
fn get_or_insert_with_gives_all_threads_one_value() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    let made = AtomicU64::new(1);
    let keys = ROUNDS / 10;
    let get = |key| {
        map.get_or_insert_with(&key, || {
            // The map may be used here.
            assert!(map.len().unwrap() <= keys);
            // Relaxed: a number that nobody else has.
            made.fetch_add(1, Ordering::Relaxed)
        })
        .unwrap()
    };
    let [one, other] = thread::scope(|scope| {
        let threads = [0, 1].map(|_| scope.spawn(|| (0..keys).map(get).collect::<Vec<_>>()));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(one, other);
    assert_eq!(map.len().unwrap(), keys);
    assert_eq!((0..keys).map(get).collect::<Vec<_>>(), one);
}

#[test]
fn get_or_insert_with_does_not_make_what_is_there() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, str> = HashMap::create(&pool, "map").unwrap();
    assert_eq!(map.get_or_insert_with(&1, || "made".to_owned()).unwrap(), "made");
    assert_eq!(map.get_or_insert_with(&1, || panic!("it is there")).unwrap(), "made");
    // Another thread, so to say, is quicker.
    let late = map.get_or_insert_with(&2, || {
        map.put(&2, "earlier").unwrap();
        "late".to_owned()
    });
    assert_eq!(late.unwrap(), "earlier");
    assert_eq!(map.get(&2).unwrap().as_deref(), Some("earlier"));
}

#[test]
fn extend_counts_new_keys_and_stops_at_an_error() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<str, [u8]> = HashMap::create(&pool, "map").unwrap();
    let entries = [("a", vec![1]), ("b", vec![2]), ("a", vec![3])];
    assert_eq!(map.extend(entries).unwrap(), 2);
    assert_eq!(map.extend(vec![("b".to_owned(), [4; 8]), ("c".to_owned(), [5; 8])]).unwrap(), 1);
    assert_eq!(map.get("a").unwrap(), Some(vec![3]));
    assert_eq!(map.get("b").unwrap(), Some(vec![4; 8]));
    let long = vec![0; (512 << 20) + 65];
    let error = map.extend([("d", &[1][..]), ("e", &long), ("f", &[1])]).unwrap_err();
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
    assert!(map.contains("d").unwrap());
    assert!(!map.contains("e").unwrap() && !map.contains("f").unwrap());
}

#[test]
fn a_map_is_iterated_by_entries_keys_and_values() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<str, u64> = HashMap::create(&pool, "map").unwrap();
    assert_eq!((map.keys().count(), map.values().count()), (0, 0));
    let model: BTreeMap<String, u64> = (0..1000).map(|n| (format!("key {n}"), n)).collect();
    map.extend(model.clone()).unwrap();
    let mut found = BTreeMap::new();
    for entry in &map {
        let (key, value) = entry.unwrap();
        assert_eq!(found.insert(key, value), None);
    }
    assert_eq!(found, model);
    let keys: BTreeSet<String> = map.keys().collect::<Result<_>>().unwrap();
    assert!(keys.iter().eq(model.keys()));
    let values: BTreeSet<u64> = map.values().collect::<Result<_>>().unwrap();
    assert!(values.into_iter().eq(0..1000));
}

#[test]
fn retain_keeps_what_is_wanted() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    assert_eq!(map.retain(|_, _| false).unwrap(), 0);
    map.extend((0..1000).map(|key| (key, key % 7))).unwrap();
    assert_eq!(map.retain(|_, _| true).unwrap(), 0);
    let removed = map.retain(|key, value| key % 7 == *value && *value != 3).unwrap();
    assert_eq!((removed, map.len().unwrap()), (143, 857));
    assert!((0..1000).all(|key| map.contains(&key).unwrap() == (key % 7 != 3)));
    assert_eq!(map.retain(|_, _| false).unwrap(), 857);
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (0, vec![]));
}

/// A thread makes entries wanted while another drops what is not: none that is wanted may go.
#[test]
fn retain_removes_no_entry_that_has_become_wanted() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    let keys = 500;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..40 {
                for key in 0..keys {
                    map.put(&key, &(2 * round)).unwrap();
                    map.put(&key, &(2 * round + 1)).unwrap();
                    // Odd values are wanted.
                    assert_eq!(map.get(&key).unwrap(), Some(2 * round + 1));
                }
            }
        });
        while !writer.is_finished() {
            map.retain(|_, value| value % 2 == 1).unwrap();
        }
    });
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (keys, vec![]));
}

#[test]
fn a_multi_map_is_filled_and_iterated() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMultiMap<str, u64> = HashMultiMap::create(&pool, "map").unwrap();
    map.extend([("a", 1), ("b", 2), ("a", 3)]).unwrap();
    let mut entries = (&map).into_iter().collect::<Result<Vec<_>>>().unwrap();
    entries.sort();
    assert_eq!(entries, [("a".to_owned(), 1), ("a".to_owned(), 3), ("b".to_owned(), 2)]);
}
