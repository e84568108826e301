//! A hash map, or an index of rows, with any of its words changed: answers or clear errors, and
//! soon.
//!
//! `cargo +nightly fuzz run maps_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::ops::ControlFlow;
use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_pmem::Pool;
use remanent_pmem::pool::Options;
use remanent_structures::{
    ExtendibleMap, ExtendibleMultiMap, HashMap, Key, Map, Result, RowId, RowIndex, Stored,
};

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    ExtendibleWords,
    ExtendibleRecords,
    HashWords,
    HashRecords,
    Values,
    Rows,
    ChainsOfRows,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kind: Kind,
    /// Number of entries: some thousand fill several segments.
    count: u16,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

/// The most entries: the slowest question visits each.
const ENTRIES_MAX: u64 = 4096;
/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 12;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let bytes = |number: u64| format!("a common beginning {number:06}").into_bytes();
    macro_rules! exercise {
        ($map:ty, $key:expr, $value:expr) => {{
            let pool = options().create(path)?;
            let map = <$map>::create(&pool, "map")?;
            for number in 0..u64::from(input.count) % ENTRIES_MAX {
                map.insert($key(number).as_ref(), $value(number).as_ref())?;
            }
            drop(map);
            change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
            drop(pool);
            let pool = options().open(path)?;
            ask(&<$map>::open(&pool, "map")?, input.first, $key, $value);
            Ok(())
        }};
    }
    match input.kind {
        Kind::ExtendibleWords => exercise!(ExtendibleMap<u64, u64>, Word, Word),
        Kind::ExtendibleRecords => exercise!(ExtendibleMap<[u8], [u8]>, bytes, bytes),
        Kind::HashWords => exercise!(HashMap<u64, u64>, Word, Word),
        Kind::HashRecords => exercise!(HashMap<[u8], [u8]>, bytes, bytes),
        Kind::Values => exercise_values(options, path, input),
        Kind::Rows => exercise_rows(options, path, input, u64::MAX),
        Kind::ChainsOfRows => exercise_rows(options, path, input, 30),
    }
}

/// As `exercise!`, for a map with many values for each of some keys.
fn exercise_values(options: impl Fn() -> Options, path: &Path, input: &Input) -> Result<()> {
    const KEYS: u64 = 30;
    let pool = options().create(path)?;
    let map: ExtendibleMultiMap<u64, [u8]> = ExtendibleMultiMap::create(&pool, "values")?;
    let value = |number: u64| format!("a value {number}").into_bytes();
    for number in 0..u64::from(input.count) % ENTRIES_MAX {
        map.insert(&(number % KEYS), &value(number))?;
    }
    drop(map);
    change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
    drop(pool);
    let pool = options().open(path)?;
    let map: ExtendibleMultiMap<u64, [u8]> = ExtendibleMultiMap::open(&pool, "values")?;
    for question in (0..7).map(|number| (input.first % 7 + number) % 7) {
        let _ = match question {
            0 => (0..KEYS).try_for_each(|key| map.get_all(&key).map(drop)),
            1 => map.scan(0, usize::MAX, |_, _| ()).map(drop),
            2 => map.len().map(drop),
            3 => map.check().map(drop),
            4 => (0..900).try_for_each(|n| map.insert(&(n % KEYS), &value(n))),
            5 => (0..40).try_for_each(|n| map.remove_one(&(n % KEYS), &value(n)).map(drop)),
            _ => map.remove_all(&3).and_then(|_| map.clear()).map(drop),
        };
    }
    Ok(())
}

/// As `exercise!`, for an index of rows with at most so many keys.
fn exercise_rows(
    options: impl Fn() -> Options,
    path: &Path,
    input: &Input,
    keys: u64,
) -> Result<()> {
    let pool = options().create(path)?;
    let row = |number| RowId::new(number).expect("a small number");
    let index = RowIndex::create(&pool, "rows")?;
    let rows = 0..u64::from(input.count) % ENTRIES_MAX;
    index.insert_all(rows.map(|number| (number % keys, row(number))))?;
    drop(index);
    change(pool.medium(), CHUNKS, &input.changes, |_, _| ());
    drop(pool);
    let pool = options().open(path)?;
    let index = RowIndex::open(&pool, "rows")?;
    for question in (0..6).map(|number| (input.first % 6 + number) % 6) {
        let _ = match question {
            0 => (0..90)
                .try_for_each(|key| index.find(key, |_| ControlFlow::<()>::Continue(())).map(drop)),
            1 => index.for_each(|_| ()),
            2 => index.usage().map(drop),
            3 => index.check().map(drop),
            4 => (0..900).try_for_each(|n| index.insert(n % keys, row(n + ENTRIES_MAX))),
            _ => (0..40).try_for_each(|n| index.remove(2 * n % keys, row(2 * n)).map(drop)),
        };
    }
    Ok(())
}

/// A number that has `AsRef`, as bytes have.
#[derive(Clone, Copy)]
struct Word(u64);

impl AsRef<u64> for Word {
    fn as_ref(&self) -> &u64 {
        &self.0
    }
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
fn ask<K, V, BK, BV>(
    map: &impl Map<K, V>,
    first: u8,
    key: impl Fn(u64) -> BK,
    value: impl Fn(u64) -> BV,
) where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    BK: AsRef<K>,
    BV: AsRef<V>,
{
    for question in (0..7).map(|number| (first % 7 + number) % 7) {
        let _ = match question {
            0 => (0..90).try_for_each(|n| map.get_with(key(n).as_ref(), |_| ()).map(drop)),
            1 => map.for_each(|_, _| ControlFlow::Continue(())),
            2 => map.len().map(drop),
            3 => map.check().map(drop),
            4 => {
                (0..900).try_for_each(|n| map.put(key(n).as_ref(), value(n + 1).as_ref()).map(drop))
            }
            5 => (0..40).try_for_each(|n| map.discard(key(2 * n).as_ref()).map(drop)),
            _ => map.clear().map(drop),
        };
    }
}
