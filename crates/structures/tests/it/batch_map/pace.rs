//! Compaction keeps pace with writers: at no moment do segments take more than the bound.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use remanent_pmem::Pool;
use remanent_structures::{BatchMap, BatchOptions, Space};

type Map = BatchMap<u64, [u8]>;

/// Options under which a thread compacts as well, and under which writers alone do.
const BACKGROUND: [bool; 2] = [true, false];

fn with_map(options: BatchOptions, test: impl FnOnce(&Map)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::options().size_max(2 << 30).create(dir.path().join("a.pool")).unwrap();
    let chunks = pool.check().unwrap().chunks_used;
    let map = Map::create(&pool, "map", options).unwrap();
    test(&map);
    assert_eq!(map.check().unwrap(), []);
    let segment_len = map.options().segment_len;
    let Space { segments, .. } = map.space();
    map.close().unwrap();
    // The counter has the chunks that the pool has given out. Besides segments, these are header
    // and directory. Until the map is closed, a thread may give segments back, and take one ahead.
    let taken = (pool.check().unwrap().chunks_used - chunks) << 16;
    let slack = 2 * segment_len + (512 << 10);
    assert!(taken <= segments + slack, "{segments} counted, {taken} taken");
    assert!(options.background || segments <= taken + slack, "{segments} counted, {taken} taken");
}

fn assert_bounded(map: &Map, what: &str) {
    let Space { live, segments, bound } = map.space();
    assert_eq!(bound, 2 * live + 16 * map.options().segment_len);
    assert!(segments <= bound, "{segments} bytes of segments for {live} live ones, {what}");
}

fn record_len(value_len: u64) -> u64 {
    24 + 8 + value_len.next_multiple_of(8)
}

#[test]
fn rewriting_takes_no_more_than_twice_what_is_live() {
    for background in BACKGROUND {
        for (keys, len, rounds) in [(20_000, 100, 30), (5_000, 3_000, 12), (40_000, 0, 10)] {
            let options = BatchOptions { background, ..BatchOptions::default() };
            with_map(options, |map| {
                let value = vec![7; len as usize];
                for round in 0..rounds {
                    for number in 0..keys {
                        let key = if round % 2 == 0 { number } else { number * 7919 % keys };
                        map.put(&key, &value).unwrap();
                        assert_bounded(map, "rewriting");
                    }
                }
                assert_eq!(map.space().live, keys * record_len(len));
            });
        }
    }
}

#[test]
fn removing_gives_room_back_as_fast_as_it_removes() {
    for background in BACKGROUND {
        for (keys, len) in [(300_000, 0), (100_000, 100), (5_000, 3_000), (100, 300_000)] {
            let options = BatchOptions { background, ..BatchOptions::default() };
            with_map(options, |map| {
                let value = vec![7; len as usize];
                (0..keys).for_each(|key| assert!(map.put(&key, &value).unwrap()));
                for number in 0..keys {
                    assert!(map.discard(&(number * 7919 % keys)).unwrap());
                    assert_bounded(map, "removing");
                }
                assert_eq!(map.space().live, 0);
            });
        }
    }
}

#[test]
fn long_values_that_replace_each_other_take_twice_what_is_live() {
    for background in BACKGROUND {
        let options = BatchOptions { background, ..BatchOptions::default() };
        with_map(options, |map| {
            let value = vec![7; 20 << 20];
            for round in 0..12 {
                // Shorter than a segment, and much longer than one.
                let len = if round % 3 == 0 { 200_000 } else { value.len() - round };
                for key in 0..3 {
                    map.put(&key, &value[..len]).unwrap();
                    assert_bounded(map, "replacing long values");
                }
            }
            for key in 0..3 {
                assert!(map.discard(&key).unwrap());
                assert_bounded(map, "removing long values");
            }
        });
    }
}

#[test]
fn clearing_gives_everything_back_before_it_returns() {
    for background in BACKGROUND {
        // Segments are short, because the reserve of a thirty-second of all segments would exceed
        // the bound in the end.
        let options = BatchOptions { background, segment_len: 64 << 10, ..BatchOptions::default() };
        with_map(options, |map| {
            for _ in 0..3 {
                for key in 0..30_000 {
                    map.put(&key, &[1; 1000]).unwrap();
                    assert_bounded(map, "filling");
                }
                assert_eq!(map.clear().unwrap(), 30_000);
                assert_bounded(map, "cleared");
            }
        });
    }
}

#[test]
fn any_number_of_threads_stays_within_the_bound() {
    const KEYS: u64 = 200;
    const LEN: u64 = 3_000;
    for background in BACKGROUND {
        for threads in [2, 8] {
            // A bound on what is unsafe that is never reached.
            let options = BatchOptions {
                background,
                lag_bytes: 1 << 30,
                segment_len: 64 << 10,
                ..BatchOptions::default()
            };
            with_map(options, |map| {
                let is_done = AtomicBool::new(false);
                let samples = AtomicU64::new(0);
                // What operations under way replace counts as live.
                let under_way = threads * 2 * record_len(LEN);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while !is_done.load(Ordering::Relaxed) {
                            let Space { live, segments, bound } = map.space();
                            assert!(segments <= bound + 2 * under_way, "{segments} for {live}");
                            samples.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(Duration::from_micros(100));
                        }
                    });
                    let writers: Vec<_> = (0..threads)
                        .map(|thread| {
                            scope.spawn(move || {
                                let value = [thread as u8; LEN as usize];
                                for number in 0..6_000 / threads {
                                    let key = (number * 7919 + thread * 31) % KEYS;
                                    if number % 11 == 0 {
                                        map.discard(&key).unwrap();
                                    } else {
                                        map.put(&key, &value[..(number * 7 % LEN) as usize])
                                            .unwrap();
                                    }
                                }
                            })
                        })
                        .collect();
                    writers.into_iter().for_each(|writer| writer.join().unwrap());
                    is_done.store(true, Ordering::Relaxed);
                });
                assert!(samples.load(Ordering::Relaxed) > 10);
                assert_bounded(map, "all threads are done");
            });
        }
    }
}

#[test]
fn short_segments_have_a_smaller_bound() {
    let options = BatchOptions { segment_len: 64 << 10, ..BatchOptions::without_thread() };
    with_map(options, |map| {
        for number in 0..60_000_u64 {
            map.put(&(number * 7919 % 500), &[1; 500][..(number % 500) as usize]).unwrap();
            assert_bounded(map, "rewriting");
        }
        assert!(map.space().segments < 2 << 20);
    });
}

#[test]
fn a_full_pool_is_no_reason_to_wait_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::options().size_max(40 << 20).create(dir.path().join("a.pool")).unwrap();
    let map = Map::create(&pool, "map", BatchOptions::without_thread()).unwrap();
    let mut count = 0_u64;
    while map.put(&count, &[7; 400]).is_ok() {
        count += 1;
    }
    for number in 0..100_000_u64 {
        let _ = map.put(&(number * 7919 % count), &[8; 400]);
        if number % 3 == 0 {
            map.discard(&(number * 31 % count)).unwrap();
        }
    }
    assert_eq!(map.check().unwrap(), []);
    assert_bounded(&map, "a full pool");
}
