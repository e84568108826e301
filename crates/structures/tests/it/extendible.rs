//! The extendible map.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::{Emulation, Pool};
use remanent_structures::extendible::Changed;
use remanent_structures::{Batch, Change, ExtendibleMap, Map, Stored};

use crate::support::{fences, options, scratch, sim_pool};

type M = Arc<Sim>;

/// Numbers that look random.
fn number(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

#[test]
fn words_take_one_fence_and_new_records_two() {
    let pool = sim_pool(Guarantee::default());
    let words: ExtendibleMap<u64, u64, M> = ExtendibleMap::create(&pool, "words").unwrap();
    let texts: ExtendibleMap<str, str, M> = ExtendibleMap::create(&pool, "texts").unwrap();
    let counts: ExtendibleMap<str, u64, M> = ExtendibleMap::create(&pool, "counts").unwrap();
    let text = "a value of more than eight bytes";
    texts.put("first", text).unwrap();
    counts.put("first", &1).unwrap();
    let of = |action: &dyn Fn()| fences(&pool, action);
    for key in 0..40 {
        assert_eq!(of(&|| _ = words.insert(&key, &1).unwrap()), 1);
        assert_eq!(of(&|| _ = words.put(&key, &2).unwrap()), 1);
        assert_eq!(of(&|| _ = words.get(&key).unwrap()), 0);
        assert_eq!(of(&|| _ = words.get(&(key + 1_000)).unwrap()), 0);
    }
    assert_eq!(of(&|| _ = words.remove(&7).unwrap()), 1);
    assert_eq!(of(&|| _ = words.remove(&7).unwrap()), 0);
    assert_eq!(of(&|| _ = texts.insert("key", text).unwrap()), 2);
    assert_eq!(of(&|| _ = texts.put("key", text).unwrap()), 2);
    assert_eq!(of(&|| _ = texts.get("key").unwrap()), 0);
    assert_eq!(of(&|| _ = texts.remove("key").unwrap()), 1);
    assert_eq!(of(&|| _ = counts.insert("key", &1).unwrap()), 2);
    assert_eq!(of(&|| _ = counts.put("key", &2).unwrap()), 1);
    assert_eq!(words.len().unwrap(), 39);
}

#[test]
fn growth_takes_few_fences() {
    const COUNT: u64 = 40_000;
    let pool = sim_pool(Guarantee::default());
    let map: ExtendibleMap<u64, u64, M> = ExtendibleMap::create(&pool, "map").unwrap();
    let found = fences(&pool, || {
        for key in 0..COUNT {
            map.insert(&key, &key).unwrap();
        }
    });
    let growth = found - COUNT;
    println!("{growth} fences more than entries, of which there are {COUNT}");
    assert!(growth * 100 <= COUNT * 2, "{growth} fences for growth");
    assert_eq!(map.check().unwrap(), []);
}

fn model<V>(rounds: u64, keys: u64, value: impl Fn(u64) -> V, map: &impl Map<u64, V>)
where
    V: Stored + ToOwned<Owned = V> + Clone + PartialEq + fmt::Debug,
{
    let mut model = BTreeMap::new();
    for round in 0..rounds {
        let (key, new) = (number(round) % keys, value(round));
        match number(round + rounds) % 6 {
            0 => assert_eq!(map.remove(&key).unwrap(), model.remove(&key)),
            1 => assert_eq!(map.get(&key).unwrap(), model.get(&key).cloned()),
            2 => {
                let is_there = model.contains_key(&key);
                assert_eq!(map.update(&key, &new).unwrap(), is_there);
                model.entry(key).and_modify(|value| *value = new.clone());
            }
            3 => {
                assert_eq!(map.insert(&key, &new).unwrap(), !model.contains_key(&key));
                model.entry(key).or_insert(new);
            }
            _ => assert_eq!(map.put(&key, &new).unwrap(), model.insert(key, new).is_none()),
        }
    }
    assert_eq!(map.len().unwrap(), model.len() as u64);
    let mut visited = BTreeMap::new();
    map.for_each(|key, value| {
        assert_eq!(visited.insert(*key, value.clone()), None);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(visited, model);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_map_of_words_does_what_a_map_does() {
    const KEYS: u64 = 50_000;
    let directory = scratch();
    let pool = options().create(directory.path().join("words.pool")).unwrap();
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "map").unwrap();
    // What is cleared is as good as new.
    for _ in 0..2 {
        model(300_000, KEYS, |round| round, &map);
        let len = map.len().unwrap();
        assert_eq!((map.clear().unwrap(), map.len().unwrap()), (len, 0));
        assert_eq!(map.check().unwrap(), []);
    }
}

#[test]
fn a_map_of_records_does_what_a_map_does() {
    let directory = scratch();
    let path = directory.path().join("records.pool");
    let pool = options().create(&path).unwrap();
    let map: ExtendibleMap<u64, String> = ExtendibleMap::create(&pool, "map").unwrap();
    model(60_000, 10_000, |round| "x".repeat((round % 60) as usize), &map);
    let entries: BTreeMap<u64, String> = map.iter().collect::<Result<_, _>>().unwrap();
    drop((map, pool));
    let pool = options().open(&path).unwrap();
    let map: ExtendibleMap<u64, String> = ExtendibleMap::open(&pool, "map").unwrap();
    for (key, value) in &entries {
        assert_eq!(map.get(key).unwrap().as_ref(), Some(value));
    }
    assert_eq!(map.len().unwrap(), entries.len() as u64);
    assert_eq!(map.check().unwrap(), []);
    map.clear().unwrap();
    assert_eq!((map.len().unwrap(), map.check().unwrap()), (0, vec![]));
}

#[test]
fn a_scan_visits_what_is_there_throughout_exactly_once_while_the_map_grows() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "map").unwrap();
    for key in 0..5_000 {
        map.insert(&key, &key).unwrap();
    }
    let (mut cursor, mut next) = (0, 5_000);
    let mut seen = BTreeMap::new();
    loop {
        cursor = map.scan(cursor, 10, |key, _| *seen.entry(*key).or_insert(0) += 1).unwrap();
        if cursor == 0 {
            break;
        }
        for _ in 0..30 {
            map.insert(&next, &next).unwrap();
            next += 1;
        }
    }
    assert!((0..5_000).all(|key| seen.get(&key) == Some(&1)));
    assert!(seen.values().all(|&count| count == 1));
}

#[test]
fn threads_lose_nothing_and_readers_see_no_torn_values() {
    const KEYS: u64 = 40_000;
    let directory = scratch();
    let pool = options().create(directory.path().join("threads.pool")).unwrap();
    let map: ExtendibleMap<u64, [u8; 24]> = ExtendibleMap::create(&pool, "map").unwrap();
    let words: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "words").unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut round = 0;
                while !is_done.load(Ordering::Relaxed) {
                    round += 1;
                    let key = number(round) % KEYS;
                    if let Some(value) = map.get(&key).unwrap() {
                        assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
                    }
                    if let Some(value) = words.get(&key).unwrap() {
                        assert_eq!(value % KEYS, key);
                    }
                }
            });
        }
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let (map, words) = (&map, &words);
                scope.spawn(move || {
                    for key in (writer..KEYS).step_by(3) {
                        map.put(&key, &[writer as u8; 24]).unwrap();
                        words.put(&key, &(key + KEYS * writer)).unwrap();
                        let other = number(key) % (key + 1);
                        map.modify(&other, |found| match found {
                            Some(_) => (Change::Put([key as u8; 24]), ()),
                            None => (Change::Keep, ()),
                        })
                        .unwrap();
                        words
                            .modify(&other, |found| match found {
                                Some(value) => (Change::Put(value + KEYS), ()),
                                None => (Change::Keep, ()),
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!((map.len().unwrap(), words.len().unwrap()), (KEYS, KEYS));
    assert_eq!((map.check().unwrap(), words.check().unwrap()), (vec![], vec![]));
}

#[test]
fn a_hot_key_counts_every_addition() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "map").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let count =
                        |found: Option<&u64>| (Change::Put(found.copied().unwrap_or(0) + 1), ());
                    map.modify(&(round % 2), count).unwrap();
                }
            });
        }
    });
    assert_eq!((map.get(&0).unwrap(), map.get(&1).unwrap()), (Some(40_000), Some(40_000)));
}

#[test]
fn readers_of_values_that_are_being_replaced_get_values_of_their_keys() {
    const KEYS: u64 = 64;
    let directory = scratch();
    let options = options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("replaced.pool")).unwrap();
    let words: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "words").unwrap();
    let texts: ExtendibleMap<u64, [u8; 24]> = ExtendibleMap::create(&pool, "texts").unwrap();
    for key in 0..KEYS {
        words.put(&key, &key).unwrap();
        texts.put(&key, &[key as u8; 24]).unwrap();
    }
    let writers_left = AtomicU64::new(2);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (words, texts, writers_left) = (&words, &texts, &writers_left);
            scope.spawn(move || {
                for round in 0..100_000_u64 {
                    let key = number(round * 2 + writer) % KEYS;
                    words.update(&key, &(key + KEYS * round)).unwrap();
                    if round.is_multiple_of(4) {
                        texts.update(&key, &[key as u8; 24]).unwrap();
                    }
                }
                writers_left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for reader in 0..2 {
            let (words, texts, writers_left) = (&words, &texts, &writers_left);
            scope.spawn(move || {
                for round in (reader..).step_by(2) {
                    let key = number(round) % KEYS;
                    assert_eq!(words.get(&key).unwrap().map(|value| value % KEYS), Some(key));
                    assert_eq!(texts.get(&key).unwrap(), Some([key as u8; 24]));
                    if writers_left.load(Ordering::Relaxed) == 0 {
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn a_scan_beside_a_growing_map_misses_nothing() {
    const BASE: u64 = 3_000;
    for _ in 0..20 {
        let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
        let map: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, "map").unwrap();
        (0..BASE).for_each(|key| assert!(map.insert(&key, &key).unwrap()));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                (BASE..30 * BASE).for_each(|key| assert!(map.insert(&key, &key).unwrap()));
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                let mut seen = BTreeMap::new();
                for entry in &map {
                    *seen.entry(entry.unwrap().0).or_insert(0) += 1;
                }
                let missed = (0..BASE).filter(|key| !seen.contains_key(key)).count();
                assert_eq!((missed, seen.values().max()), (0, Some(&1)));
            }
        });
    }
}

#[test]
fn what_is_removed_in_a_full_pool_does_not_come_back() {
    const KEYS: u64 = 4_000;
    let directory = scratch();
    let path = directory.path().join("full.pool");
    let pool = Pool::options().size_max(24 << 20).create(&path).unwrap();
    let map: ExtendibleMap<u64, [u8]> = ExtendibleMap::create(&pool, "map").unwrap();
    let filler: ExtendibleMap<u64, [u8]> = ExtendibleMap::create(&pool, "filler").unwrap();
    (0..KEYS / 2).for_each(|key| _ = map.insert(&key, &[1; 40]).unwrap());
    let mut filled = 0;
    while filler.insert(&filled, &[2; 1_000]).is_ok() {
        filled += 1;
    }
    let mut model: BTreeMap<u64, Vec<u8>> = (0..KEYS / 2).map(|key| (key, vec![1; 40])).collect();
    let mut refused = 0;
    for round in 0..200_000 {
        let (key, len) = (number(round) % KEYS, 20 + number(round + 7) % 60);
        if number(round + 13).is_multiple_of(3) {
            assert_eq!(map.discard(&key).unwrap(), model.remove(&key).is_some());
            continue;
        }
        let value = vec![round as u8; len as usize];
        match map.put(&key, &value) {
            Ok(is_new) => assert_eq!(is_new, model.insert(key, value).is_none()),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} of 200000 changes were refused");
    drop((map, filler, pool));
    let pool = Pool::options().open(&path).unwrap();
    let map: ExtendibleMap<u64, [u8]> = ExtendibleMap::open(&pool, "map").unwrap();
    assert_eq!(map.check().unwrap(), []);
    let found: BTreeMap<u64, Vec<u8>> = map.iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(found, model);
}

#[test]
fn clears_of_several_threads_leak_nothing() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: ExtendibleMap<u64, [u8]> = ExtendibleMap::create(&pool, "map").unwrap();
    thread::scope(|scope| {
        for writer in 0..3_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20_000 {
                    let key = number(round * 3 + writer) % 5_000;
                    map.put(&key, &[key as u8; 30]).unwrap();
                    let read = map.get(&(key + 1)).unwrap();
                    assert!(read.is_none_or(|value| value == [(key + 1) as u8; 30]));
                    if round % 400 == writer {
                        map.clear().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(map.check().unwrap(), []);
}

/// Recovery tells blocks apart by their tags. A key or a value lies where a segment has its tag,
/// and may have the same bytes.
#[test]
fn records_that_look_like_segments_survive_a_crash() {
    let directory = scratch();
    let (path, copy) = (directory.path().join("a.pool"), directory.path().join("copy.pool"));
    let pool = options().create(&path).unwrap();
    let texts: ExtendibleMap<str, str> = ExtendibleMap::create(&pool, "texts").unwrap();
    let counts: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "counts").unwrap();
    let keys: Vec<String> = ["TNMG", "xyzG", "TNME", "RTNE", "DOND"]
        .into_iter()
        .flat_map(|tag| (0..5).map(move |number| format!("key:{tag}{number}")))
        .collect();
    for key in &keys {
        texts.insert(key, key).unwrap();
        let word = u64::from_le_bytes(key.as_bytes()[..8].try_into().unwrap());
        counts.insert(key, &word).unwrap();
    }
    // As a process leaves it that is killed now.
    std::fs::copy(&path, &copy).unwrap();
    drop((texts, counts, pool));
    let pool = options().open(&copy).unwrap();
    let texts: ExtendibleMap<str, str> = ExtendibleMap::open(&pool, "texts").unwrap();
    let counts: ExtendibleMap<str, u64> = ExtendibleMap::open(&pool, "counts").unwrap();
    assert_eq!((texts.check().unwrap(), counts.check().unwrap()), (vec![], vec![]));
    for key in &keys {
        assert_eq!(texts.get(key).unwrap().as_ref(), Some(key));
        assert!(counts.contains(key).unwrap());
    }
}

/// What an observer was told: keys with their new values, or none.
type Told = Vec<(u64, Option<String>)>;

/// A copy that is made of what an observer was told.
fn copy_of(changes: &[(u64, Option<String>)]) -> BTreeMap<u64, String> {
    let mut copy = BTreeMap::new();
    for (key, value) in changes {
        match value {
            Some(value) => drop(copy.insert(*key, value.clone())),
            None => drop(copy.remove(key)),
        }
    }
    copy
}

#[test]
fn an_observer_learns_every_change_in_its_order() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let map: ExtendibleMap<u64, str> = ExtendibleMap::create(&pool, "map").unwrap();
    map.put(&1, "not told").unwrap();
    let told: Arc<Mutex<Told>> = Arc::default();
    let log = Arc::clone(&told);
    assert!(map.observe(move |change| {
        let mut log = log.lock().unwrap();
        match change {
            Changed::Put(key, value) => log.push((*key, Some(value.to_owned()))),
            Changed::Removed(key) => log.push((*key, None)),
            Changed::Cleared => log.clear(),
        }
    }));
    assert!(!map.observe(|_| ()), "there is one");
    assert_eq!(map.clear().unwrap(), 1);
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let map = &map;
            scope.spawn(move || {
                // The same keys in all threads, and enough of them to split segments.
                for turn in 0..6_000 {
                    let key = number(turn * 3 + thread) % 2_000;
                    match turn % 5 {
                        0 => drop(map.remove(&key).unwrap()),
                        1 => drop(map.insert(&key, "inserted").unwrap()),
                        2 => map
                            .modify(&key, |found| match found {
                                Some("inserted") => (Change::Put("modified"), ()),
                                Some(_) => (Change::Remove, ()),
                                None => (Change::Keep, ()),
                            })
                            .unwrap(),
                        _ => drop(map.put(&key, &format!("{thread} {turn}")).unwrap()),
                    }
                }
            });
        }
    });
    let mut batch = Batch::new(&pool).unwrap();
    batch.put(&map, &5_000, "by a batch").unwrap();
    batch.remove(&map, &5_001).unwrap();
    batch.commit().unwrap();
    let found: BTreeMap<u64, String> = map.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(copy_of(&told.lock().unwrap()), found);
    assert_eq!(found[&5_000], "by a batch");
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn an_observer_takes_no_fence() {
    let pool = sim_pool(Guarantee::default());
    let map: ExtendibleMap<u64, u64, M> = ExtendibleMap::create(&pool, "map").unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    map.observe(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    assert_eq!(fences(&pool, || _ = map.put(&1, &1).unwrap()), 1);
    assert_eq!(fences(&pool, || _ = map.put(&1, &2).unwrap()), 1);
    assert_eq!(fences(&pool, || _ = map.remove(&1).unwrap()), 1);
    assert_eq!(fences(&pool, || _ = map.remove(&1).unwrap()), 0);
    assert_eq!(told.load(Ordering::Relaxed), 3);
}

/// Removes all but one of `KEPT` keys, which leaves a small part of the segments.
fn shrinks<V: Stored + ?Sized + 'static>(name: &str, value: impl Fn(u64) -> V::Owned)
where
    V::Owned: PartialEq + fmt::Debug,
{
    const COUNT: u64 = 30_000;
    const KEPT: u64 = 100;
    let directory = scratch();
    let path = directory.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let map: ExtendibleMap<u64, V> = ExtendibleMap::create(&pool, name).unwrap();
    let bytes = |map: &ExtendibleMap<u64, V>| map.usage().unwrap().block_bytes;
    let mut filled = 0;
    // Again and again: what is freed is used again.
    for round in 0..3 {
        for key in 0..COUNT {
            map.put(&key, value(key + round).borrow()).unwrap();
        }
        filled = bytes(&map).max(filled);
        for key in (0..COUNT).filter(|key| !key.is_multiple_of(KEPT)) {
            assert!(map.discard(&key).unwrap());
        }
        assert_eq!(map.len().unwrap(), COUNT / KEPT);
        // Frees what no thread can see any more.
        assert_eq!(map.check().unwrap(), []);
        assert!(bytes(&map) < filled / 4, "{} of {filled} bytes", bytes(&map));
    }
    drop((map, pool));
    let pool = options().open(&path).unwrap();
    let map: ExtendibleMap<u64, V> = ExtendibleMap::open(&pool, name).unwrap();
    assert_eq!(map.iter().count() as u64, COUNT / KEPT);
    for key in 0..COUNT {
        let expected = key.is_multiple_of(KEPT).then(|| value(key + 2));
        assert_eq!(map.get(&key).unwrap(), expected);
    }
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn segments_with_few_entries_are_joined() {
    shrinks::<u64>("words", |number| number);
    shrinks::<str>("texts", |number| format!("a value of some length {number}"));
}
