//! Behaviour on mapped memory, against the standard library's map.

use std::collections::{HashMap as Model, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::{Emulation, Pool};
use remanent_structures::{Change, HashMap, HashMultiMap};

use crate::support::{options, scratch};

#[test]
fn a_map_holds_what_was_put_into_it_across_reopening() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let count = 100_000_u64;
    {
        let pool = options().create(&path).unwrap();
        let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
        for key in 0..count {
            assert!(map.insert(&key, &(key * 3)).unwrap());
        }
        assert_eq!(map.len().unwrap(), count);
        assert!(!map.insert(&5, &0).unwrap());
        for key in 0..count {
            assert_eq!(map.get(&key).unwrap(), Some(key * 3), "key {key}");
        }
        for key in (0..count).step_by(2) {
            assert_eq!(map.remove(&key).unwrap(), Some(key * 3));
        }
        assert!(map.bucket_count() >= count / 2);
        assert_eq!(map.check().unwrap(), []);
    }
    let pool = options().open(&path).unwrap();
    assert!(pool.was_clean());
    let map: HashMap<u64, u64> = HashMap::open(&pool, "map").unwrap();
    assert_eq!(map.len().unwrap(), count / 2);
    for key in 0..count {
        assert_eq!(map.get(&key).unwrap(), (key % 2 == 1).then_some(key * 3));
    }
    assert_eq!(map.check().unwrap(), []);
    assert!(pool.check().unwrap().violations.is_empty());
}

#[test]
fn keys_and_values_of_every_length() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<[u8], [u8]> = HashMap::create(&pool, "map").unwrap();
    let lens =
        [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 100, 1000, 4096, 21_700, 21_900, 70_000, 3 << 20];
    for key_len in [1, 8, 40, 300, 5000] {
        for value_len in lens {
            let key = [key_len.to_string(), value_len.to_string(), "k".repeat(key_len)].join("/");
            let value = vec![value_len as u8; value_len];
            assert!(map.put(key.as_bytes(), &value).unwrap());
            assert_eq!(map.get(key.as_bytes()).unwrap().as_deref(), Some(&value[..]));
            let other = vec![1; lens[(value_len + 1) % lens.len()]];
            assert!(!map.put(key.as_bytes(), &other).unwrap());
            assert_eq!(map.get(key.as_bytes()).unwrap(), Some(other));
        }
    }
    assert_eq!(map.check().unwrap(), []);
    let before = map.len().unwrap();
    assert_eq!(before, 5 * lens.len() as u64);
    assert_eq!(map.clear().unwrap(), before);
    assert!(map.is_empty().unwrap());
    assert_eq!(map.iter().count(), 0);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn the_longest_value_fits_and_a_longer_one_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<str, [u8]> = HashMap::create(&pool, "map").unwrap();
    let len = (512 << 20) + 64;
    let mut value = vec![7; len];
    map.put("big", &value).unwrap();
    assert_eq!(map.get_with("big", <[u8]>::len).unwrap(), Some(len));
    value.push(0);
    let error = map.put("bigger", &value).unwrap_err().to_string();
    assert!(error.contains(&format!("{} bytes", len + 1)), "{error}");
    assert!(map.discard("big").unwrap());
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn small_integer_types_work_as_keys_and_values() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<i32, u16> = HashMap::create(&pool, "map").unwrap();
    for key in -300..300 {
        map.insert(&key, &(key.unsigned_abs() as u16)).unwrap();
    }
    for key in -300..300_i32 {
        assert_eq!(map.get(&key).unwrap(), Some(key.unsigned_abs() as u16));
        assert!(map.update(&key, &9).unwrap());
        assert_eq!(map.get(&key).unwrap(), Some(9));
    }
    assert!(!map.update(&1000, &9).unwrap());
    let names: HashMap<str, u64> = HashMap::create(&pool, "names").unwrap();
    names.put("a", &1).unwrap();
    names.put("ab", &2).unwrap();
    assert_eq!((names.get("a").unwrap(), names.get("ab").unwrap()), (Some(1), Some(2)));
    assert_eq!(names.check().unwrap(), []);
}

#[test]
fn scan_visits_everything_once_while_the_map_grows() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    for key in 0..5_000 {
        map.insert(&key, &key).unwrap();
    }
    let mut seen = Model::new();
    let (mut cursor, mut next_key) = (0, 1_000_000);
    loop {
        cursor = map
            .scan(cursor, 10, |key, value| {
                assert_eq!(key, value);
                *seen.entry(*key).or_insert(0) += 1;
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
        for _ in 0..5 {
            map.insert(&next_key, &next_key).unwrap();
            next_key += 1;
        }
    }
    for key in 0..5_000 {
        assert_eq!(seen.get(&key), Some(&1), "key {key}");
    }
}

#[test]
fn several_threads_agree_with_a_model() {
    for emulation in [Emulation::None, Emulation::Nvram] {
        let dir = scratch();
        let pool = options().emulation(emulation).create(dir.path().join("a.pool")).unwrap();
        let map: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (map, total) = (&map, &total);
                scope.spawn(move || {
                    let mut own = HashSet::new();
                    let mut state = thread + 1;
                    for _ in 0..30_000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let key = (state >> 33) % 4_000 * 4 + thread;
                        match state >> 20 & 3 {
                            0 | 1 => assert_eq!(map.insert(&key, &key).unwrap(), own.insert(key)),
                            2 => assert_eq!(map.remove(&key).unwrap().is_some(), own.remove(&key)),
                            _ => assert_eq!(map.get(&key).unwrap().is_some(), own.contains(&key)),
                        }
                        map.modify(&u64::MAX, |found| {
                            (Change::Put(found.copied().unwrap_or(0) + 1), ())
                        })
                        .unwrap();
                    }
                    total.fetch_add(own.len() as u64, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(map.get(&u64::MAX).unwrap(), Some(4 * 30_000));
        assert_eq!(map.len().unwrap(), total.load(Ordering::Relaxed) + 1);
        assert_eq!(map.check().unwrap(), []);
    }
}

#[test]
fn threads_that_fight_over_few_keys_of_changing_length_lose_nothing() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: Arc<HashMap<[u8], [u8]>> = Arc::new(HashMap::create(&pool, "map").unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20_000_u32 {
                    let key = [round as u8 % 7];
                    match round % 5 {
                        0 => drop(map.discard(&key).unwrap()),
                        1 => drop(map.insert(&key, &[thread; 9]).unwrap()),
                        _ => map
                            .modify(&key, |found| {
                                let mut value = found.unwrap_or_default().to_vec();
                                assert!(value.iter().all(|&byte| byte < 4));
                                value.push(thread);
                                value.truncate(90);
                                (Change::Put(value), ())
                            })
                            .unwrap(),
                    }
                }
            });
        }
    });
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_multi_map_holds_several_entries_for_a_key() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: HashMultiMap<[u8; 40], u64> = HashMultiMap::create(&pool, "map").unwrap();
    let key = |n: u64| {
        let mut key = [b'x'; 40];
        key[..8].copy_from_slice(&n.to_le_bytes());
        key
    };
    for value in 0..10_000 {
        map.insert(&key(value / 10), &value).unwrap();
    }
    assert_eq!(map.len().unwrap(), 10_000);
    let mut values = map.get_all(&key(77)).unwrap();
    values.sort_unstable();
    assert_eq!(values, (770..780).collect::<Vec<_>>());
    assert!(map.remove_one(&key(77), &775).unwrap());
    assert!(!map.remove_one(&key(77), &775).unwrap());
    assert_eq!(map.remove_all(&key(77)).unwrap(), 9);
    assert_eq!(map.get_all(&key(77)).unwrap(), []);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn roots_are_opened_by_type_and_shared() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let one: HashMap<u64, u64> = HashMap::create(&pool, "map").unwrap();
    let two: HashMap<u64, u64> = HashMap::open(&pool, "map").unwrap();
    one.insert(&1, &2).unwrap();
    assert_eq!(two.get(&1).unwrap(), Some(2));
    let error = HashMap::<u64, [u8]>::open(&pool, "map").unwrap_err().to_string();
    assert!(error.contains("HashMap<u64, u64>") && error.contains("HashMap<u64, [u8]>"), "{error}");
    let error = HashMap::<u64, u64>::create(&pool, "map").unwrap_err().to_string();
    assert!(error.contains("already has a root named \"map\""), "{error}");
    let error = HashMap::<u64, u64>::open(&pool, "mop").unwrap_err().to_string();
    assert!(error.contains("it has: map"), "{error}");
    drop((one, two));
    pool.remove_root("map").unwrap();
    assert!(pool.check().unwrap().violations.is_empty());
    HashMap::<u64, [u8]>::create(&pool, "map").unwrap();
}

#[test]
fn a_full_pool_refuses_and_loses_nothing() {
    let dir = scratch();
    let pool = Pool::options().size_max(24 << 20).create(dir.path().join("a.pool")).unwrap();
    let map: HashMap<u64, [u8]> = HashMap::create(&pool, "map").unwrap();
    let value = [5; 1000];
    let mut stored = 0;
    let error = loop {
        match map.insert(&stored, &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert!(stored > 4_000, "{stored}");
    for key in 0..stored {
        assert_eq!(map.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    assert_eq!(map.check().unwrap(), []);
    for key in 0..stored {
        map.discard(&key).unwrap();
    }
    // Blocks retired by the last operations are freed by later ones: all but those come back.
    for key in 0..stored - 64 {
        assert!(map.insert(&key, &value).unwrap(), "space comes back");
    }
    assert_eq!(map.check().unwrap(), []);
}
