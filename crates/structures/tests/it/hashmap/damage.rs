//! Hash maps in memory whose words were changed: each answer is right or an error, and comes after
//! a bounded number of steps, which are counted.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use remanent_crashsim::Rng;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::pool::{Format, RootObject, RootType};
use remanent_pmem::{Error as PoolError, Pool};
use remanent_structures::{Error, HashMap, HashMultiMap, Key, MapOptions, Stored};

use crate::support::memory::Memory;

const SIZE: u64 = 24 << 20;
/// Where the map's header lies, and what follows is of the map.
const FIRST: u64 = ChunkId(DATA_FIRST).offset();
/// Keys that are there.
const KEYS: u64 = 30;
/// Keys that are not there, beginning here.
const ABSENT: u64 = 1_000;
/// Words that one operation may read, whatever is damaged.
const STEPS: u64 = 4_000;
/// The same for what looks at the whole heap.
const STEPS_HEAP: u64 = 200_000;

/// A key of a map that grows early.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bytes(Vec<u8>);
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word(u64);

impl Stored for Bytes {
    fn type_name() -> String {
        "Bytes".to_owned()
    }
    const LEN: Option<u32> = None;
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0)
    }
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        use_value(&Bytes(bytes.to_vec()))
    }
}
impl Key for Bytes {
    const BUCKET_BITS: u32 = 2;
}

impl Stored for Word {
    fn type_name() -> String {
        "Word".to_owned()
    }
    const LEN: Option<u32> = Some(8);
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(use_bytes)
    }
    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |word| use_value(&Word(*word)))
    }
}
impl Key for Word {
    const BUCKET_BITS: u32 = 2;
    fn hash(&self, seed: u64) -> u64 {
        self.0.hash(seed)
    }
}

/// Maps whose keys and values are made of numbers.
trait Form: 'static {
    type K: Key<Owned = Self::K> + std::fmt::Debug + 'static;
    type V: Stored<Owned = Self::V> + PartialEq + std::fmt::Debug + 'static;

    fn key(number: u64) -> Self::K;
    fn value(number: u64) -> Self::V;
}

struct Words;
struct Records;
/// Keys of bytes with values that are words.
struct Counters;

impl Form for Words {
    type K = Word;
    type V = u64;
    fn key(number: u64) -> Word {
        Word(number)
    }
    fn value(number: u64) -> u64 {
        number * 7 + 1
    }
}

impl Form for Records {
    type K = Bytes;
    type V = Bytes;
    fn key(number: u64) -> Bytes {
        Bytes(format!("key {number:05}").into_bytes())
    }
    fn value(number: u64) -> Bytes {
        Bytes(vec![number as u8; 1 + number as usize % 60])
    }
}

impl Form for Counters {
    type K = Bytes;
    type V = u64;
    fn key(number: u64) -> Bytes {
        Records::key(number)
    }
    fn value(number: u64) -> u64 {
        Words::value(number)
    }
}

type Map<F> = HashMap<<F as Form>::K, <F as Form>::V, Arc<Memory>>;

fn pool(memory: &Arc<Memory>) -> Pool<Arc<Memory>> {
    Pool::format(Arc::clone(memory), &Format::new(SIZE)).unwrap()
}

/// A pool with a map of [`KEYS`] entries, some of which were removed and put again.
fn fill<F: Form>() -> (Arc<Memory>, Pool<Arc<Memory>>, Map<F>) {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = pool(&memory);
    let map = Map::<F>::create(&pool, "map").unwrap();
    for number in 0..KEYS {
        assert!(map.insert(&F::key(number), &F::value(number)).unwrap());
    }
    for number in (0..KEYS).step_by(3) {
        map.remove(&F::key(number)).unwrap();
        assert!(map.insert(&F::key(number), &F::value(number)).unwrap());
    }
    assert!(map.bucket_count() > 4, "the map has grown");
    assert_eq!(map.check().unwrap(), []);
    (memory, pool, map)
}

/// What readers are told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// Answers that are not right, and no errors.
    wrong: Vec<String>,
    errors: u64,
}

impl Told {
    fn note<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        answer: Result<T, Error>,
        right: &T,
    ) {
        match answer {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.errors += 1;
            }
            Ok(answer) if answer == *right => {}
            Ok(answer) => self.wrong.push(format!("{what}: {answer:?}")),
        }
    }
}

/// Reads everything, in every way. The map is as it was filled.
fn read<F: Form>(memory: &Memory, map: &Map<F>) -> Told {
    let mut told = Told::default();
    for number in 0..KEYS {
        memory.bound(STEPS);
        let right = Some(F::value(number));
        told.note(&format!("get {number}"), map.get(&F::key(number)), &right);
    }
    for number in ABSENT..ABSENT + 20 {
        memory.bound(STEPS);
        told.note(&format!("get {number}"), map.get(&F::key(number)), &None);
    }
    memory.bound(STEPS);
    let entries = map.iter().take(2 * KEYS as usize).collect::<Result<Vec<_>, _>>();
    told.note("iterate", entries.map(|entries| are_all::<F>(&entries)), &true);
    let (mut cursor, mut seen, mut calls) = (0, Vec::new(), 0);
    let scanned = loop {
        memory.bound(STEPS);
        let visit = |key: &F::K, value: &F::V| seen.push((key.to_owned(), value.to_owned()));
        match map.scan(cursor, 3, visit) {
            Ok(0) => break Ok(are_all::<F>(&seen)),
            Ok(next) => cursor = next,
            Err(error) => break Err(error),
        }
        calls += 1;
        assert!(calls <= 2 * KEYS, "scanning does not end");
    };
    told.note("scan", scanned, &true);
    told
}

fn are_all<F: Form>(entries: &[(F::K, F::V)]) -> bool {
    let is_entry = |number: u64| {
        let (key, value) = (F::key(number).to_owned(), F::value(number).to_owned());
        let same = |(found, of): &&(F::K, F::V)| {
            found.with_bytes(|found| key.with_bytes(|key| found == key)) && *of == value
        };
        entries.iter().filter(same).count() == 1
    };
    entries.len() as u64 == KEYS && (0..KEYS).all(is_entry)
}

/// Changes everything, in every way; what comes of it is not known.
fn change<F: Form>(memory: &Memory, map: &Map<F>) {
    let bounded = |action: &dyn Fn() -> Result<(), Error>, steps: u64| {
        memory.bound(steps);
        let _ = action();
    };
    for number in (0..KEYS).step_by(2).chain(ABSENT..ABSENT + 10) {
        let (key, value) = (F::key(number), F::value(number));
        bounded(&|| map.insert(&key, &value).map(drop), 10 * STEPS);
        bounded(&|| map.update(&key, &F::value(number + 1)).map(drop), 10 * STEPS);
        bounded(&|| map.put(&key, &F::value(number + 2)).map(drop), 10 * STEPS);
    }
    for number in (0..KEYS).step_by(3) {
        bounded(&|| map.remove(&F::key(number)).map(drop), 10 * STEPS);
    }
    bounded(&|| map.len().map(drop), STEPS_HEAP);
    bounded(&|| map.check().map(drop), 4 * STEPS_HEAP);
    bounded(&|| map.clear().map(drop), 4 * STEPS_HEAP);
}

fn check<F: Form>(memory: &Memory, map: &Map<F>) -> bool {
    memory.bound(STEPS_HEAP);
    map.check().map_or(true, |violations| !violations.is_empty())
}

/// The panic of `action`, if it panics.
fn panic_of(action: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(action)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
}

/// Flips every bit of an open map, one after the other. Returns the wrong answers that no error
/// announced.
fn flip_every_bit<F: Form>(is_excused: impl Fn(&Memory, u64) -> bool) -> Vec<String> {
    let (memory, _pool, map) = fill::<F>();
    assert_eq!(read::<F>(&memory, &map), Told::default());
    let mut failures = Vec::new();
    let (mut flips, mut noticed) = (0, 0);
    for at in memory.used(FIRST) {
        for bit in 0..64 {
            memory.mark();
            memory.damage(at, memory.word(at) ^ 1 << bit);
            let panic = panic_of(|| {
                let told = read::<F>(&memory, &map);
                noticed += u64::from(told.errors > 0);
                if !told.wrong.is_empty() && !is_excused(&memory, at) {
                    let unseen =
                        if check::<F>(&memory, &map) { "" } else { ", and check is content" };
                    failures.push(format!("{at:#x} bit {bit}: {:?}{unseen}", told.wrong));
                }
            });
            failures.extend(panic.map(|panic| format!("{at:#x} bit {bit}: {panic}")));
            memory.put_back();
            flips += 1;
        }
    }
    memory.bound(u64::MAX);
    // Not noticed: what is read only when a map is opened, versions of values, values of 8 bytes,
    // and free blocks.
    assert!(flips > 10_000 && noticed > flips / 3, "{noticed} of {flips} were noticed");
    assert_eq!(map.check().unwrap(), []);
    failures
}

/// Damages a closed map in many ways, opens it, reads and changes everything. Returns the calls
/// that did not end or panicked, and the wrong answers that `check` does not explain.
fn survey<F: Form>(seeds: std::ops::Range<u64>) -> Vec<String> {
    let (memory, pool, map) = fill::<F>();
    drop((map, pool));
    let used = memory.used(FIRST);
    let mut failures = Vec::new();
    for seed in seeds {
        let mut rng = Rng::from_parts(&[seed, 0xda]);
        memory.mark();
        for _ in 0..=rng.below(2) {
            damage(&memory, &used, &mut rng);
        }
        let panic = panic_of(|| {
            memory.bound(STEPS_HEAP);
            let Ok(pool) = Pool::recover(Arc::clone(&memory)) else { return };
            let Ok(map) = Map::<F>::open(&pool, "map") else { return };
            let told = read::<F>(&memory, &map);
            // A value of eight bytes is whatever it is.
            let is_word = F::V::LEN.is_some();
            if !told.wrong.is_empty() && !check::<F>(&memory, &map) && !is_word {
                failures.push(format!("seed {seed}: check is content with {:?}", told.wrong));
            }
            change::<F>(&memory, &map);
            memory.bound(u64::MAX);
        });
        failures.extend(panic.map(|panic| format!("seed {seed}: {panic}")));
        memory.bound(u64::MAX);
        memory.put_back();
    }
    failures
}

/// Overwrites a word of a map: most of all by what leads elsewhere, or is somewhere else.
fn damage(memory: &Memory, used: &[u64], rng: &mut Rng) {
    let at = *rng.pick(used);
    let word = memory.word(at);
    let other = *rng.pick(used);
    let garbage = match rng.below(8) {
        0 => 0,
        1 => rng.next_u64(),
        2 => word ^ 1 << rng.below(64),
        3 => word.wrapping_add(8 << rng.below(12)),
        4 => FIRST + rng.below(1 << 18) / 8 * 8,
        // A link to itself, or to its line.
        5 => at & !31,
        6 => memory.word(other),
        _ => {
            memory.damage(other, word);
            memory.word(other)
        }
    };
    memory.damage(at, garbage);
}

/// What is damaged: these, or as many as `REMANENT_DAMAGE` says.
fn seeds() -> std::ops::Range<u64> {
    let named = std::env::var("REMANENT_DAMAGE").ok();
    let range = named.as_deref().and_then(|named| named.split_once(".."));
    let number = |text: &str| text.parse().expect("a number");
    range.map_or(0..1_000, |(start, end)| number(start)..number(end))
}

/// Whether the word at `at` is a value of eight bytes: the second of an entry.
fn is_value(_: &Memory, at: u64) -> bool {
    at % 32 == 8
}

#[test]
fn a_flipped_bit_in_a_map_of_records_is_never_silent() {
    assert_eq!(flip_every_bit::<Records>(|_, _| false), [""; 0]);
}

#[test]
fn a_flipped_bit_in_a_map_of_words_is_silent_in_values_alone() {
    assert_eq!(flip_every_bit::<Words>(is_value), [""; 0]);
}

#[test]
fn a_flipped_bit_in_a_map_of_counters_is_silent_in_values_alone() {
    assert_eq!(flip_every_bit::<Counters>(is_value), [""; 0]);
}

#[test]
fn every_walk_over_damaged_records_ends() {
    assert_eq!(survey::<Records>(seeds()), [""; 0]);
}

#[test]
fn every_walk_over_damaged_words_ends() {
    assert_eq!(survey::<Words>(seeds()), [""; 0]);
}

#[test]
fn a_link_to_itself_ends_every_walk() {
    let (memory, _pool, map) = fill::<Records>();
    let links: Vec<u64> = memory
        .used(FIRST)
        .into_iter()
        .filter(|&at| {
            // Nodes: what their first word leads to is not themselves yet.
            at % 32 == 0 && at > FIRST + (64 << 10)
        })
        .collect();
    assert!(links.len() as u64 >= KEYS);
    for at in links {
        memory.mark();
        memory.damage(at, at);
        let panic = panic_of(|| {
            read::<Records>(&memory, &map);
        });
        memory.bound(u64::MAX);
        assert_eq!(panic, None, "a link at {at:#x}");
        memory.put_back();
    }
}

#[test]
fn a_changed_value_is_told_with_structure_and_offset_and_can_be_replaced() {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = pool(&memory);
    let map: HashMap<str, [u8], _> = HashMap::create(&pool, "names").unwrap();
    map.insert("key", b"a value of some length").unwrap();
    // Behind the last bytes of the key.
    let at = find(&memory, b"keya val");
    memory.damage(at, memory.word(at) ^ 1 << 40);
    let error = map.get("key").unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("\"names\"") && told.contains("offset 0x"), "{told}");
    assert!(map.iter().any(|entry| entry.is_err()));
    assert_eq!(map.check().unwrap().len(), 1);
    assert!(map.remove("key").is_err(), "the value would be handed out");
    assert!(!map.put("key", b"another").unwrap());
    assert_eq!(map.get("key").unwrap().as_deref(), Some(&b"another"[..]));
}

/// Where the map has these eight bytes.
fn find(memory: &Memory, bytes: &[u8; 8]) -> u64 {
    let is_found = |at: &u64| memory.word(*at).to_le_bytes() == *bytes;
    memory.used(FIRST).into_iter().find(is_found).unwrap()
}

#[test]
fn a_map_without_checksums_stays_one() {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = pool(&memory);
    let options = MapOptions::new().checksums(false);
    let map: HashMap<str, [u8], _> = HashMap::create_with(&pool, "names", &options).unwrap();
    map.insert("key", b"a value of some length").unwrap();
    drop(map);
    let map: HashMap<str, [u8], _> = HashMap::open(&pool, "names").unwrap();
    map.insert("key 2", b"another one").unwrap();
    let at = find(&memory, b"key 2ano");
    memory.damage(at, memory.word(at) ^ 1 << 40);
    let changed = map
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, value)| value != b"a value of some length" && value != b"another one");
    assert_eq!(changed.count(), 1);
    assert_eq!(map.check().unwrap(), []);
}

#[test]
fn a_multi_map_in_a_circle_ends() {
    let memory = Arc::new(Memory::new(SIZE));
    let pool = pool(&memory);
    let map: HashMultiMap<Word, u64, _> = HashMultiMap::create(&pool, "rows").unwrap();
    let before = memory.used(FIRST);
    for value in 0..50 {
        map.insert(&Word(7), &value).unwrap();
    }
    assert_eq!(map.get_all(&Word(7)).unwrap().len(), 50);
    // All entries of one key have one order. The first that was made comes last, and is led back to
    // each of the others.
    let mut nodes: Vec<u64> = memory.used(FIRST);
    nodes.retain(|at| at % 32 == 0 && !before.contains(at) && memory.word(at + 24) == 7);
    assert!(nodes.len() >= 49);
    let last = nodes.iter().copied().min().unwrap();
    for &node in &nodes {
        memory.mark();
        memory.damage(last, node);
        memory.bound(STEPS);
        let mut visited = 0;
        let walked = map.for_each(&Word(7), |_| {
            visited += 1;
            ControlFlow::Continue(())
        });
        assert!(matches!(walked, Err(Error::Corrupt { .. })), "{walked:?}");
        assert!(visited < 200, "{visited} entries of 50");
        memory.bound(STEPS);
        assert!(map.scan(0, 10, |_, _| {}).is_err());
        memory.bound(STEPS);
        assert!(map.remove_one(&Word(7), &1_000).is_err());
        memory.bound(STEPS_HEAP);
        assert!(!map.check().unwrap().is_empty());
        memory.put_back();
    }
    memory.bound(u64::MAX);
    assert_eq!(map.check().unwrap(), []);
}

/// A root as maps had it whose words had no checks.
struct Earlier;

impl RootObject<Arc<Memory>> for Earlier {
    fn root_type() -> RootType {
        RootType { name: "HashMap<u64, u64>".to_owned(), layout: 1 }
    }

    fn create(_: Heap<Arc<Memory>>) -> Result<Self, PoolError> {
        Ok(Earlier)
    }

    fn open(_: Heap<Arc<Memory>>) -> Result<Self, PoolError> {
        Ok(Earlier)
    }
}

#[test]
fn a_map_of_an_earlier_layout_is_refused() {
    let pool = pool(&Arc::new(Memory::new(SIZE)));
    pool.create_root::<Earlier>("map").unwrap();
    let refused = HashMap::<u64, u64, _>::open(&pool, "map").unwrap_err();
    assert!(matches!(&refused, Error::Pool(PoolError::WrongType { .. })), "{refused}");
    assert!(refused.to_string().contains("layout"), "{refused}");
}
