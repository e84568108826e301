//! Behaviour on mapped memory, against the standard library's map.

use std::collections::HashMap as Model;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use remanent_pmem::Durability;
use remanent_structures::{BatchMap, BatchOptions, Change, Error, HashMap};

use crate::support::{options, scratch};

#[test]
fn a_map_holds_what_was_put_into_it_across_reopening() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let count = 100_000_u64;
    {
        let pool = options().create(&path).unwrap();
        let map: BatchMap<u64, u64> =
            BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
        for key in 0..count {
            assert!(map.insert(&key, &(key * 3)).unwrap());
        }
        assert_eq!(map.len().unwrap(), count);
        assert!(!map.insert(&5, &0).unwrap());
        assert_eq!(map.get(&5).unwrap(), Some(15));
        for key in (0..count).step_by(2) {
            assert_eq!(map.remove(&key).unwrap(), Some(key * 3));
        }
        assert!(!map.discard(&0).unwrap());
        assert_eq!(map.check().unwrap(), []);
        map.close().unwrap();
    }
    for _ in 0..2 {
        let pool = options().open(&path).unwrap();
        let map: BatchMap<u64, u64> =
            BatchMap::open(&pool, "map", BatchOptions::default()).unwrap();
        assert_eq!(map.len().unwrap(), count / 2);
        for key in 0..count {
            assert_eq!(map.get(&key).unwrap(), (key % 2 == 1).then_some(key * 3));
        }
        assert_eq!(
            map.iter().map(|entry| entry.unwrap().1).sum::<u64>(),
            (1..count).step_by(2).map(|key| key * 3).sum()
        );
        assert_eq!(map.check().unwrap(), []);
        drop(map);
        assert!(pool.check().unwrap().violations.is_empty());
    }
}

#[test]
fn keys_and_values_of_every_length() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let lens = [0, 1, 7, 8, 9, 100, 4096, 70_000, (1 << 20) - 200, 1 << 20, 3 << 20];
    let entry = |key_len: usize, len: usize| {
        let key = [key_len.to_string(), len.to_string(), "k".repeat(key_len)].join("/");
        (key.into_bytes(), (0..len).map(|at| (at * 7 + key_len) as u8).collect::<Vec<u8>>())
    };
    let entries: Vec<_> =
        [1, 8, 300].into_iter().flat_map(|key_len| lens.map(|len| entry(key_len, len))).collect();
    {
        let pool = options().create(&path).unwrap();
        let map: BatchMap<[u8], [u8]> =
            BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
        for (key, value) in &entries {
            assert!(map.put(key, b"short").unwrap());
            assert!(!map.put(key, value).unwrap());
            assert_eq!(map.get(key).unwrap().as_deref(), Some(value.as_slice()));
        }
    }
    let pool = options().open(&path).unwrap();
    let map: BatchMap<[u8], [u8]> = BatchMap::open(&pool, "map", BatchOptions::default()).unwrap();
    for (key, value) in &entries {
        assert_eq!(map.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
    assert_eq!(map.check().unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_map_is_a_map(ops in prop::collection::vec((0_u8..9, 0_u16..40, 0_usize..20_000), 1..400)) {
        let dir = scratch();
        let path = dir.path().join("a.pool");
        let mut pool = options().create(&path).unwrap();
        let batches = BatchOptions { segment_len: 64 << 10, lag_bytes: 100_000, ..BatchOptions::without_thread() };
        let mut map: BatchMap<str, [u8]> = BatchMap::create(&pool, "map", batches).unwrap();
        let mut model: Model<String, Vec<u8>> = Model::new();
        for (kind, key, len) in ops {
            let (key, value) = (format!("key {key}"), vec![len as u8; len]);
            match kind {
                0 => prop_assert_eq!(map.put(&key, &value).unwrap(), model.insert(key, value).is_none()),
                1 => {
                    prop_assert_eq!(map.insert(&key, &value).unwrap(), !model.contains_key(&key));
                    model.entry(key).or_insert(value);
                }
                2 => {
                    prop_assert_eq!(map.update(&key, &value).unwrap(), model.contains_key(&key));
                    model.entry(key).and_modify(|old| *old = value);
                }
                3 => prop_assert_eq!(map.remove(&key).unwrap(), model.remove(&key)),
                4 => prop_assert_eq!(map.get(&key).unwrap(), model.get(&key).cloned()),
                5 => {
                    let before = map.modify(&key, |value| {
                        let longer = value.map(|value| [value, b"+"].concat());
                        (longer.map_or(Change::Keep, Change::Put), value.map(<[u8]>::len))
                    });
                    prop_assert_eq!(before.unwrap(), model.get(&key).map(Vec::len));
                    model.entry(key).and_modify(|value| value.push(b'+'));
                }
                6 => map.compact().unwrap(),
                7 if len % 8 == 0 => {
                    prop_assert_eq!(map.clear().unwrap(), model.len() as u64);
                    model.clear();
                }
                _ if len % 4 == 0 => {
                    drop((map, pool));
                    pool = options().open(&path).unwrap();
                    map = BatchMap::open(&pool, "map", batches).unwrap();
                }
                _ => map.sync().unwrap(),
            }
        }
        prop_assert_eq!(map.len().unwrap(), model.len() as u64);
        let found: Model<String, Vec<u8>> = map.iter().map(Result::unwrap).collect();
        prop_assert_eq!(found, model);
        prop_assert_eq!(map.check().unwrap(), []);
    }
}

#[test]
fn a_scan_sees_what_is_there_throughout() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: BatchMap<u64, u64> = BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
    (0..10_000).for_each(|key| assert!(map.insert(&key, &0).unwrap()));
    let mut seen = vec![0; 10_000];
    let (mut cursor, mut next) = (0, 10_000);
    loop {
        cursor = map
            .scan(cursor, 10, |key, _| {
                if let Some(seen) = seen.get_mut(*key as usize) {
                    *seen += 1;
                }
            })
            .unwrap();
        // The index grows meanwhile, and records move.
        for _ in 0..20 {
            map.insert(&next, &0).unwrap();
            map.put(&(next % 10_000), &next).unwrap();
            next += 1;
        }
        if cursor == 0 {
            break;
        }
    }
    assert!(seen.iter().all(|&count| count == 1));
}

#[test]
fn threads_write_read_and_sync_at_once() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let batches = BatchOptions { lag_bytes: 64 << 10, ..BatchOptions::default() };
    let map: BatchMap<u64, [u8]> = BatchMap::create(&pool, "map", batches).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let map = map.clone();
            scope.spawn(move || {
                for number in 0..20_000_u64 {
                    let key = number % 500 * 4 + thread;
                    let value = vec![thread as u8; (number % 300) as usize];
                    map.put(&key, &value).unwrap();
                    if number % 3 == 0 {
                        map.remove(&key).unwrap();
                    }
                    if number % 4_000 == 0 {
                        map.sync().unwrap();
                    }
                    let other = number % 2_000;
                    map.get_with(&other, |value| {
                        assert!(value.iter().all(|&byte| u64::from(byte) == other % 4));
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn the_thread_makes_writes_safe_within_the_bound() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let batches = BatchOptions { lag_age: Duration::from_millis(5), ..BatchOptions::default() };
    let map: BatchMap<u64, u64> = BatchMap::create(&pool, "map", batches).unwrap();
    for key in 0..50 {
        map.put(&key, &key).unwrap();
        let start = Instant::now();
        while map.lag().bytes > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", map.lag());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_file_is_synced_in_batches() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let power = options().durability(Durability::Power);
    {
        let pool = power.create(&path).unwrap();
        let map: BatchMap<u64, [u8]> =
            BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
        (0..20_000).for_each(|key| assert!(map.put(&key, &[7; 100]).unwrap()));
        map.sync().unwrap();
        assert_eq!(map.lag().bytes, 0);
    }
    let pool = power.open(&path).unwrap();
    let map: BatchMap<u64, [u8]> = BatchMap::open(&pool, "map", BatchOptions::default()).unwrap();
    assert_eq!(map.len().unwrap(), 20_000);
}

#[test]
fn one_map_has_one_thread_and_one_core() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let first: BatchMap<u64, u64> =
        BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
    let second: BatchMap<u64, u64> =
        BatchMap::open(&pool, "map", BatchOptions::without_thread()).unwrap();
    assert_eq!(second.options(), first.options());
    first.put(&1, &2).unwrap();
    assert_eq!(second.get(&1).unwrap(), Some(2));
    drop(first);
    second.put(&3, &4).unwrap();
    drop(second);
    let third: BatchMap<u64, u64> =
        BatchMap::open(&pool, "map", BatchOptions::without_thread()).unwrap();
    assert_eq!((third.len().unwrap(), third.options().background), (2, false));
}

#[test]
fn another_type_of_map_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    drop(BatchMap::<u64, u64>::create(&pool, "map", BatchOptions::default()).unwrap());
    let refused = HashMap::<u64, u64>::open(&pool, "map").unwrap_err().to_string();
    assert!(
        refused.contains("BatchMap<u64, u64>") && refused.contains("HashMap<u64, u64>"),
        "{refused}"
    );
}

#[test]
fn what_is_too_long_is_refused() {
    let dir = scratch();
    let pool = options().create(dir.path().join("a.pool")).unwrap();
    let map: BatchMap<[u8], [u8]> =
        BatchMap::create(&pool, "map", BatchOptions::default()).unwrap();
    let key = vec![0; 1 << 28];
    assert!(matches!(map.put(&key, b""), Err(Error::TooLong { what: "key", .. })));
    assert_eq!(map.len().unwrap(), 0);
}
