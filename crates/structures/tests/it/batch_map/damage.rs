//! Maps whose bytes were changed: each answer is right or an error, no entry is missing without an
//! error, and every call ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};
use remanent_structures::{BatchMap, BatchOptions, Error};

use crate::support::sim_pool;

type Map = BatchMap<u64, [u8], Arc<Sim>>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Where the map's header and its first segment lie.
const HEADER: u64 = ChunkId(DATA_FIRST).offset();
const SEGMENT: u64 = HEADER + CHUNK_LEN;
/// The directory in the header: tables of the levels, then slots.
const DIRECTORY: std::ops::Range<u64> = HEADER + 64..HEADER + 64 + 672;
/// Where the records of a segment begin.
const RECORDS: u64 = 64;
/// The most calls of the medium for opening a small map and reading all of it, including the
/// recovery of the pool.
const STEPS_MAX: u64 = 400_000;

fn options() -> BatchOptions {
    BatchOptions { segment_len: CHUNK_LEN, ..BatchOptions::without_thread() }
}

fn value(key: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (key * 31 + at * 7 + 1) as u8).collect()
}

/// How a map was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Closed properly.
    Closed,
    /// By a crash, when everything was safe.
    Crashed,
}

/// A map on a medium, and its content: entries of several lengths, some replaced and some removed.
fn left(end: End, lens: &[usize]) -> (Arc<Sim>, Model) {
    let pool = sim_pool(Guarantee::default());
    let map = Map::create(&pool, "map", options()).unwrap();
    let mut model = Model::new();
    for round in 0..3 {
        for key in 0..8 {
            let value = value(key + round, lens[(key + round) as usize % lens.len()]);
            map.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        map.sync().unwrap();
        assert!(map.discard(&round).unwrap());
        model.remove(&round);
    }
    map.sync().unwrap();
    let sim = Arc::clone(pool.medium());
    assert_ne!(sim.load(SEGMENT + RECORDS), 0, "records lie elsewhere");
    match end {
        End::Closed => drop((map, pool)),
        End::Crashed => {
            std::mem::forget(map);
            std::mem::forget(pool);
        }
    }
    (sim, model)
}

fn open(sim: &Arc<Sim>) -> Result<(Map, Pool<Arc<Sim>>), Error> {
    let pool = Pool::recover(Arc::clone(sim))?;
    let map = Map::open(&pool, "map", options())?;
    Ok((map, pool))
}

/// What was told of a map that was damaged.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// It does not open.
    refused: u64,
    /// It opens, and some answer is an error.
    errors: u64,
    /// All answers are right.
    right: u64,
    /// Entries are missing.
    missing: u64,
}

impl Told {
    /// Asks everything of a map, and compares with what it should hold.
    fn ask(&mut self, sim: &Arc<Sim>, model: &Model, what: &str) {
        let steps = sim.steps();
        let Ok((map, _pool)) = open(sim) else {
            self.refused += 1;
            return;
        };
        let mut errors = 0;
        let mut missing = 0;
        for key in 0..10 {
            match map.get(&key) {
                Ok(found) if found.as_ref() == model.get(&key) => {}
                Ok(None) => missing += 1,
                Ok(Some(found)) => panic!("{what}: key {key} has {found:?}"),
                Err(_) => errors += 1,
            }
        }
        let mut visited = 0;
        for entry in map.iter() {
            match entry {
                Ok((key, found)) => {
                    assert_eq!(model.get(&key), Some(&found), "{what}: key {key} is visited");
                    visited += 1;
                }
                Err(_) => {
                    errors += 1;
                    break;
                }
            }
        }
        if errors == 0 {
            assert_eq!(visited + missing, model.len(), "{what}");
            assert_eq!(map.len().unwrap(), visited as u64, "{what}");
        }
        let is_told = !map.check().is_ok_and(|violations| violations.is_empty());
        assert!(is_told || errors == 0, "{what}: {errors} errors that a check does not tell");
        // A slot that is empty is a word like any other: its segment was never there.
        assert!(missing == 0 || what.starts_with("directory"), "{what}: {missing} are missing");
        let _ = map.compact();
        drop(map);
        assert!(sim.steps() - steps < STEPS_MAX, "{what}: {} steps", sim.steps() - steps);
        match (errors, missing) {
            (0, 0) => self.right += 1,
            (0, _) => self.missing += 1,
            _ => self.errors += 1,
        }
    }
}

/// What a word becomes.
fn garbage(sim: &Sim, at: u64) -> Vec<u64> {
    let word = sim.load(at);
    let flipped = [0, 5, 8, 34, 40, 62].map(|bit| word ^ 1 << bit);
    let others =
        [0, u64::MAX, sim.load(at - 8), sim.load(at + 8), HEADER + 64, SEGMENT, SEGMENT | 1];
    flipped.into_iter().chain(others).filter(|&other| other != word).collect()
}

fn overwrite(end: End, lens: &[usize], words: impl Iterator<Item = u64>) -> Told {
    let (untouched, _) = left(end, lens);
    let mut told = Told::default();
    for at in words {
        for other in garbage(&untouched, at) {
            let place = if DIRECTORY.contains(&at) { "directory" } else { "word" };
            let (sim, model) = left(end, lens);
            sim.store(at, other);
            told.ask(&sim, &model, &format!("{place} {at:#x}, {end:?}: {other:#x}"));
        }
    }
    told
}

#[test]
fn no_changed_word_of_a_record_is_read_as_a_value() {
    for end in [End::Closed, End::Crashed] {
        // The segment's header, and records of which some are live.
        let words = (SEGMENT..SEGMENT + 160).chain(SEGMENT + 1_104..SEGMENT + 1_904).step_by(8);
        let told = overwrite(end, &[0, 40, 90], words);
        assert!(told.errors > 50 && told.refused > 100, "{told:?}");
        assert_eq!(told.missing, 0, "{told:?}");
    }
}

#[test]
fn no_changed_word_of_the_header_loses_entries_without_a_word() {
    for end in [End::Closed, End::Crashed] {
        let slots = DIRECTORY.start + 160;
        let words = (HEADER..HEADER + 96).chain(slots..slots + 48).step_by(8);
        let told = overwrite(end, &[40], words);
        assert!(told.refused > 50, "{told:?}");
    }
}

#[test]
fn a_changed_value_is_told_by_name_and_everything_else_is_there() {
    for end in [End::Closed, End::Crashed] {
        let (sim, model) = left(end, &[5_000]);
        // The last value of key 5 in the log: the third byte.
        let wanted = &model[&5];
        let at = (SEGMENT..SEGMENT + 4 * CHUNK_LEN)
            .step_by(8)
            .filter(|&at| sim.equals(at, wanted))
            .last()
            .expect("the value lies in a segment");
        sim.store(at + 16, !sim.load(at + 16));
        let (map, _pool) = open(&sim).unwrap();
        let error = map.get(&5).unwrap_err();
        assert!(matches!(error, Error::Checksum { offset, .. } if offset == at - 32), "{error}");
        for part in ["\"map\"", &format!("{:#x}", at - 32), "checksum"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        for key in [3, 4, 6, 7] {
            assert_eq!(map.get(&key).unwrap().as_ref(), model.get(&key));
        }
        assert!(map.contains(&5).unwrap());
        assert!(map.modify(&5, |_| (remanent_structures::Change::<&[u8]>::Keep, ())).is_err());
        assert!(map.remove(&5).is_err());
        assert!(map.iter().any(|entry| entry.is_err()));
        assert_ne!(map.check().unwrap(), []);
        // A new value, or removing it unseen, cures it.
        assert!(!map.put(&5, b"new").unwrap());
        assert_eq!(map.get(&5).unwrap().as_deref(), Some(&b"new"[..]));
        assert!(map.discard(&5).unwrap());
        assert_eq!(map.len().unwrap(), model.len() as u64 - 1);
    }
}

#[test]
fn compaction_leaves_a_changed_record_where_it_is() {
    let pool = sim_pool(Guarantee::default());
    let map = Map::create(&pool, "map", options()).unwrap();
    let sim = Arc::clone(pool.medium());
    // Twelve to a segment.
    (0..60).for_each(|key| assert!(map.put(&key, &value(key, 5_000)).unwrap()));
    let at = (SEGMENT..SEGMENT + CHUNK_LEN)
        .step_by(8)
        .find(|&at| sim.equals(at, &value(3, 5_000)))
        .expect("the value lies in the first segment");
    sim.store(at + 800, 0);
    for key in (0..60).filter(|key| key % 6 != 3) {
        assert!(map.discard(&key).unwrap());
    }
    map.sync().unwrap();
    let error = map.compact().unwrap_err();
    assert!(matches!(error, Error::Checksum { offset, .. } if offset == at - 32), "{error}");
    // The others are emptied.
    let error = map.compact().unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert!(map.space().segments <= map.space().bound);
    assert!(map.get(&3).is_err());
    for key in [9, 15, 33, 57] {
        assert_eq!(map.get(&key).unwrap(), Some(value(key, 5_000)));
    }
    assert_eq!(map.len().unwrap(), 10);
    assert!(map.check().unwrap().iter().any(|it| it.offset == at - 32));
}

#[test]
fn what_a_crash_tears_at_the_end_is_no_damage() {
    let (sim, model) = left(End::Crashed, &[40]);
    {
        let (map, pool) = open(&sim).unwrap();
        map.sync().unwrap();
        assert!(map.put(&100, &value(100, 40)).unwrap());
        std::mem::forget((map, pool));
    }
    let at = (SEGMENT..SEGMENT + 4 * CHUNK_LEN)
        .step_by(8)
        .find(|&at| sim.equals(at, &value(100, 40)))
        .expect("the value lies in a segment");
    sim.store(at, 0);
    let (map, _pool) = open(&sim).unwrap();
    assert_eq!(map.get(&100).unwrap(), None);
    assert_eq!(map.len().unwrap(), model.len() as u64);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn tables_of_a_directory_that_cannot_be_are_refused() {
    for end in [End::Closed, End::Crashed] {
        let (sim, _) = left(end, &[40]);
        let directory = DIRECTORY.start;
        for level in 1..20 {
            let word = directory + level * 8;
            // The directory itself, a segment, far outside, no place of a word, and the end of the
            // pool.
            for table in
                [directory, directory + 160, 8, 1 << 40, u64::MAX, SEGMENT + 1, sim.len() - 8]
            {
                sim.store(word, table);
                let steps = sim.steps();
                let opened = open(&sim).map(drop);
                assert!(opened.is_err(), "level {level} at {table:#x}");
                assert!(sim.steps() - steps < STEPS_MAX, "level {level} at {table:#x}");
                sim.store(word, 0);
            }
        }
        open(&sim).unwrap();
    }
}
