//! Crash exploration of Remanent's own pool, allocator and structures.
//!
//! Each [`Scenario`] is a structure on a simulated medium with a way to explore it: what is done to it,
//! by how many threads, and what a crash may do. [`scenarios`] has them all. `remanent crash-test` runs
//! them at length, `tests/crash.rs` each time.

mod batch_list;
mod batch_map;
mod blink_tree;
mod bptree;
mod bytes;
mod cells;
mod disk;
mod file;
mod hashmap;
mod heap;
mod kinds;
mod lagging_sets;
mod line_tx;
mod multimap;
mod mutation;
mod nvramdisk;
mod pool;
mod scenarios;
mod scenarios_batch;
mod scenarios_batch_list;
mod scenarios_blink_tree;
mod scenarios_bptree;
mod scenarios_disk;
mod scenarios_file;
mod scenarios_nvramdisk;
mod scenarios_pool;
mod scenarios_sorted_sets;
#[cfg(test)]
mod shapes;
mod sorted_sets;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Config, Outcome, Report, Sim, Subject};
use remanent_pmem::heap::Violation;
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, ChunkState};
use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{Error, Key, OrderedKey, Stored};
use xxhash_rust::xxh3::xxh3_64;

pub use mutation::{Progress, Redundant, SOURCES, mutate};
pub use scenarios::scenarios;
pub use scenarios_nvramdisk::counterexamples;

/// A structure, and a way to explore it.
pub struct Scenario {
    /// Structure and aspect, such as `hashmap/threads`.
    pub name: &'static str,
    /// What is special about it, in a line.
    pub about: &'static str,
    /// Seeds that count as one: runs that are short, and of which many are needed.
    pub weight: u64,
    /// How it is explored; seeds, jobs and mutants are for the caller to set.
    pub config: Config,
    /// Events that the subject must have [come to](Sim::reach) when as many seeds as its weight were explored.
    pub reaches: &'static [&'static str],
    subject: Box<dyn Explorable>,
}

impl Scenario {
    fn new(
        name: &'static str,
        about: &'static str,
        subject: impl Subject<Handle: 'static> + 'static,
        mut config: Config,
    ) -> Self {
        config.command = format!("remanent crash-test --structure {name}");
        config.salt = xxh3_64(name.as_bytes());
        Scenario { name, about, weight: 1, config, reaches: &[], subject: Box::new(subject) }
    }

    /// States what it must have reached.
    fn reaching(self, reaches: &'static [&'static str]) -> Self {
        Scenario { reaches, ..self }
    }

    /// What it must have reached, and has not by this report.
    pub fn missed(&self, report: &Report) -> Vec<&'static str> {
        let is_missed = |event: &&&str| !report.reached.contains_key(**event);
        self.reaches.iter().filter(is_missed).copied().collect()
    }

    fn with_weight(self, weight: u64) -> Self {
        Scenario { weight, ..self }
    }

    /// Runs it with so many simulated threads, if it has several; the printed commands say so.
    pub fn set_threads(&mut self, threads: usize) {
        if self.config.threads > 1 {
            self.config.threads = threads;
            self.config.command += &format!(" --threads {threads}");
        }
    }

    /// Explores it under `config`; `observer` sees the report grow and may break off.
    pub fn explore(
        &self,
        config: &Config,
        observer: impl FnMut(&Report) -> ControlFlow<()> + Send,
    ) -> Report {
        let mut observer = observer;
        self.subject.explore(config, &mut observer)
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

type ReportObserver<'a> = &'a mut (dyn FnMut(&Report) -> ControlFlow<()> + Send);

/// A [`Subject`] whose types are forgotten.
trait Explorable: Sync {
    fn explore(&self, config: &Config, observer: ReportObserver<'_>) -> Report;

    /// Does the operations of a seed, those of threads one after the other, without a crash; `look` sees the structure
    /// before the first and after each.
    #[cfg(test)]
    fn run(&self, config: &Config, seed: u64, look: &mut dyn FnMut(&dyn std::any::Any));
}

impl<S: Subject<Handle: 'static>> Explorable for S {
    fn explore(&self, config: &Config, observer: ReportObserver<'_>) -> Report {
        remanent_crashsim::explore_with(self, config, observer)
    }

    #[cfg(test)]
    fn run(&self, config: &Config, seed: u64, look: &mut dyn FnMut(&dyn std::any::Any)) {
        let Config { setup, threads, ops, .. } = *config;
        let chance = config.chance(seed);
        let workload = remanent_crashsim::Workload::generate(self, chance, setup, threads, ops);
        let sim = Arc::new(Sim::new(config.sim.clone()));
        let handle = self.create(Arc::clone(&sim)).expect("a medium without faults");
        let handle = self.prepare(&sim, handle).expect("a medium without faults");
        look(&handle);
        for op in workload.setup.iter().chain(workload.threads.iter().flatten()) {
            self.apply(&handle, op);
            look(&handle);
        }
    }
}

/// A structure in a pool, both open. The structure is closed first.
pub(crate) struct Open<T> {
    object: T,
    pool: Pool<Arc<Sim>>,
}

/// Name of the root that a structure under test has.
const ROOT: &str = "tested";

impl<T> Open<T> {
    fn create<E>(
        medium: Arc<Sim>,
        size_max: u64,
        create: impl FnOnce(&Pool<Arc<Sim>>, &str) -> Result<T, E>,
    ) -> Outcome<Self>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        Self::create_in(medium, &Format::new(size_max), create)
    }

    /// Creates a pool, and the structure in it, or whatever of the two a crash has left out.
    fn create_in<E>(
        medium: Arc<Sim>,
        format: &Format,
        create: impl FnOnce(&Pool<Arc<Sim>>, &str) -> Result<T, E>,
    ) -> Outcome<Self>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let pool = create_pool(medium, format)?;
        let roots = pool.roots()?;
        if roots.iter().any(|root| root.name == ROOT) {
            return Err(format!("a structure that does not open is one of {roots:?}").into());
        }
        Ok(Open { object: create(&pool, ROOT)?, pool })
    }

    fn recover<E>(
        medium: Arc<Sim>,
        open: impl FnOnce(&Pool<Arc<Sim>>, &str) -> Result<T, E>,
    ) -> Outcome<Self>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let pool = Pool::recover(medium)?;
        let object = match open(&pool, ROOT) {
            Ok(object) => object,
            Err(error) => {
                // Nothing may be missing of a root that is there, not even while it was being created.
                let is_there = pool.roots()?.iter().any(|root| root.name == ROOT);
                assert!(
                    !is_there || pool.medium().fault().is_some(),
                    "a root does not open: {error}"
                );
                return Err(error.into());
            }
        };
        Ok(Open { object, pool })
    }

    fn check(&self) -> Outcome {
        check_pool(&self.pool)
    }
}

/// Opens the pool that a crash has left, which must be whole, or creates one where there is none: the superblock comes
/// last, so what was left before is no pool, or one whose only superblock is torn.
fn create_pool(medium: Arc<Sim>, format: &Format) -> Outcome<Pool<Arc<Sim>>> {
    match Pool::recover(Arc::clone(&medium)) {
        Ok(pool) => {
            must_be_empty(pool.check()?.violations)?;
            Ok(pool)
        }
        Err(PoolError::NotAPool { .. } | PoolError::Corrupt { offset: 0, .. }) => {
            Ok(Pool::format(medium, format)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks the pool's own part, and that chunks that are to hold zeros do.
fn check_pool(pool: &Pool<Arc<Sim>>) -> Outcome {
    must_be_empty(pool.check()?.violations)?;
    let medium = pool.medium();
    let end = (medium.len() / CHUNK_LEN) as u32;
    for chunk in (0..end).map(ChunkId).filter(|chunk| chunk.is_data()) {
        let is_free = medium.load(chunk.state()) == ChunkState::FREE.encode();
        if is_free && !medium.is_zero(chunk.offset(), CHUNK_LEN) {
            return Err(format!("chunk {} is to hold zeros, and does not", chunk.0).into());
        }
    }
    Ok(())
}

fn must_be_empty(violations: Vec<Violation>) -> Outcome {
    let told: Vec<String> = violations.iter().map(Violation::to_string).collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("; ").into()) }
}

/// What an operation answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    Bool(bool),
    Value(T),
    /// There was nothing.
    None,
    /// The pool was full or the medium faulty: nothing was changed.
    Refused(String),
    /// Any other error, which no model answers.
    Failed(String),
}

fn answer<T, V, E: Into<Error>>(
    result: Result<T, E>,
    map: impl FnOnce(T) -> Answer<V>,
) -> Answer<V> {
    match result.map_err(Into::into) {
        Ok(value) => map(value),
        Err(error) if error.is_full() => Answer::Refused(error.to_string()),
        Err(error @ Error::Pool(PoolError::Medium(_))) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn is_refused<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Answer::Refused(_))
}

/// A key of a map that begins with eight buckets, and whose hash makes small keys collide; and of trees whose nodes
/// have four entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestKey(u64);

/// Low bits are the bucket. Three keys have one hash, in the very first bucket, and two another; the
/// others begin in bucket 1 and are told apart as the map grows, two of them exactly where a bucket
/// begins, or will begin.
const HASHES: [u64; 8] = [0x18, 0x18, 0x18, 0x11, 0x01, 0x09, 0x3d, 0x3d];

impl Stored for TestKey {
    const LEN: Option<u32> = Some(8);

    fn type_name() -> String {
        "TestKey".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0.to_le_bytes())
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |key| use_value(&TestKey(*key)))
    }
}

impl Key for TestKey {
    const BUCKET_BITS: u32 = 3;

    fn hash(&self, _seed: u64) -> u64 {
        match HASHES.get(self.0 as usize) {
            // The bucket is the low bits of the hash reversed.
            Some(&hash) => hash.reverse_bits(),
            None => self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20),
        }
    }

    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        medium.load(offset) == self.0
    }
}

impl OrderedKey for TestKey {
    const NODE_ENTRIES_MAX: usize = 4;

    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_ordered(use_bytes)
    }

    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        u64::from_ordered(bytes, |key| use_key(&TestKey(*key)))
    }
}
