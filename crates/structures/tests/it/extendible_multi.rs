//! The extendible map with several values of a key.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_pmem::pool::Guarantee;
use remanent_structures::ExtendibleMultiMap;

use crate::support::{fences, options, scratch, sim_pool};

#[test]
fn adding_takes_two_fences_and_removing_one() {
    let pool = sim_pool(Guarantee::default());
    let map: ExtendibleMultiMap<u64, u64, Arc<Sim>> =
        ExtendibleMultiMap::create(&pool, "map").unwrap();
    map.insert(&0, &0).unwrap();
    assert_eq!(fences(&pool, || map.insert(&1, &0).unwrap()), 2);
    for value in 1..40 {
        assert_eq!(fences(&pool, || map.insert(&1, &value).unwrap()), 2);
        assert_eq!(fences(&pool, || drop(map.get_all(&1).unwrap())), 0);
    }
    // The newest, the oldest, and those in between.
    for value in [39, 0].into_iter().chain(1..39) {
        assert_eq!(fences(&pool, || assert!(map.remove_one(&1, &value).unwrap())), 1);
        assert_eq!(fences(&pool, || assert!(!map.remove_one(&1, &value).unwrap())), 0);
    }
    assert_eq!(map.remove_all(&0).unwrap(), 1);
    assert!(map.is_empty().unwrap());
    (0..10).for_each(|value| map.insert(&1, &value).unwrap());
    assert_eq!(fences(&pool, || assert_eq!(map.remove_all(&1).unwrap(), 10)), 10);
    // Those that free the values are shared by a hundred.
    for values in [10, 110, 210] {
        (0..values).for_each(|value| map.insert(&1, &value).unwrap());
        let fences = fences(&pool, || assert_eq!(map.clear().unwrap(), values));
        assert!(fences <= 5 + 4 * (values / 100), "{fences} for {values} values");
    }
}

/// Calls of the medium for opening a map after a crash, with so many values of one key in a chunk
/// that was being allocated from.
fn steps_to_open(values: u64) -> u64 {
    type Map = ExtendibleMultiMap<u64, u64, Arc<Sim>>;
    let pool = sim_pool(Guarantee::default());
    let sim = Arc::clone(pool.medium());
    let map = Map::create(&pool, "map").unwrap();
    (0..values).for_each(|value| map.insert(&1, &value).unwrap());
    std::mem::forget((map, pool));
    let before = sim.steps();
    let pool = Pool::recover(Arc::clone(&sim)).unwrap();
    let map = Map::open(&pool, "map").unwrap();
    let steps = sim.steps() - before;
    assert_eq!(map.len().unwrap(), values);
    steps
}

#[test]
fn recovery_walks_each_chain_once() {
    let [few, many] = [steps_to_open(100), steps_to_open(900)];
    // A walk for each value would take 20 steps or more for each of those before it.
    assert!(many < few + 800 * 200, "{few} for 100 values, {many} for 900");
}

/// Small numbers that look random.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_map_holds_what_a_model_holds() {
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let mut pool = options().create(&path).unwrap();
    let mut map: ExtendibleMultiMap<str, [u8]> = ExtendibleMultiMap::create(&pool, "map").unwrap();
    let mut model: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    let mut number = numbers(18);
    for round in 0..40_000_u64 {
        let key = format!("key {}", number(if round < 20_000 { 3_000 } else { 40 }));
        let value = vec![number(5) as u8; number(40) as usize];
        let values = model.entry(key.clone()).or_default();
        match number(10) {
            0..=4 => {
                map.insert(&key, &value).unwrap();
                values.insert(0, value);
            }
            5..=8 => {
                let chosen = values.get(number(4) as usize).cloned().unwrap_or(value);
                let place = values.iter().position(|found| *found == chosen);
                assert_eq!(map.remove_one(&key, &chosen).unwrap(), place.is_some());
                place.map(|place| values.remove(place));
            }
            _ if number(20) == 0 => {
                assert_eq!(map.remove_all(&key).unwrap(), values.len() as u64);
                values.clear();
            }
            _ => assert_eq!(map.get_all(&key).unwrap(), *values),
        }
        if round % 10_000 == 9_999 {
            drop((map, pool));
            pool = options().open(&path).unwrap();
            map = ExtendibleMultiMap::open(&pool, "map").unwrap();
        }
    }
    model.retain(|_, values| !values.is_empty());
    let mut found: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for entry in &map {
        let (key, value) = entry.unwrap();
        found.entry(key).or_default().push(value);
    }
    assert!(found == model, "what a walk finds differs");
    assert_eq!(map.len().unwrap(), model.values().map(|values| values.len() as u64).sum::<u64>());
    assert_eq!(map.check().unwrap(), []);
    assert_eq!(map.clear().unwrap(), found.values().flatten().count() as u64);
    assert_eq!((map.len().unwrap(), map.iter().count()), (0, 0));
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_clear_frees_chains_of_any_length() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    let map: ExtendibleMultiMap<u64, u64> = ExtendibleMultiMap::create(&pool, "map").unwrap();
    map.clear().unwrap();
    let mut filled = Vec::new();
    for _ in 0..8 {
        for value in 0..5_000 {
            map.insert(&(value % 3), &value).unwrap();
        }
        for key in 10..2_000 {
            map.insert(&key, &key).unwrap();
        }
        filled.push(map.usage().unwrap().chunk_bytes);
        assert_eq!(map.clear().unwrap(), 5_000 + 1_990);
        assert_eq!(map.check().unwrap(), []);
        assert_eq!(map.get_all(&1).unwrap(), []);
    }
    // What is freed is handed out again. Some waits to be freed, for the next batch of a lane.
    assert!(filled[7] <= filled[0] + filled[0] / 2, "{filled:?}");
}

#[test]
fn threads_lose_no_values_and_readers_miss_none_that_stays() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 4_000;
    let dir = scratch();
    let path = dir.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let map: ExtendibleMultiMap<u64, u64> = ExtendibleMultiMap::create(&pool, "map").unwrap();
    for key in 0..4 {
        map.insert(&key, &u64::MAX).unwrap();
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let value = thread * ROUNDS + round;
                        map.insert(&(round % 4), &value).unwrap();
                        // Keys of its own split segments meanwhile.
                        map.insert(&(1_000 + value), &value).unwrap();
                        if round % 8 != 0 {
                            assert!(map.remove_one(&(round % 4), &value).unwrap());
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                for key in 0..4 {
                    let mut stays = 0;
                    map.for_each(&key, |value| {
                        assert!(*value == u64::MAX || *value % 4 == key, "{value} of {key}");
                        stays += u64::from(*value == u64::MAX);
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                    assert_eq!(stays, 1);
                }
            }
        });
        let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // Before a failure is told, which waits for the reader.
        is_done.store(true, Ordering::Relaxed);
        joined.into_iter().for_each(Result::unwrap);
    });
    let left = THREADS * ROUNDS.div_ceil(8);
    assert_eq!(map.len().unwrap(), 4 + THREADS * ROUNDS + left);
    drop((map, pool));
    let pool = options().open(&path).unwrap();
    let map: ExtendibleMultiMap<u64, u64> = ExtendibleMultiMap::open(&pool, "map").unwrap();
    assert_eq!((0..4).map(|key| map.get_all(&key).unwrap().len() as u64).sum::<u64>(), 4 + left);
    assert_eq!(map.check().unwrap(), []);
}
