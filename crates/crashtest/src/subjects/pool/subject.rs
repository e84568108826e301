//! The pool: roots that are created and removed, and the file that grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Error, Pool, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{check_pool, create_pool};
use crate::subjects::heap::subject::{Content, Table};

/// Roots with a table each, opened and closed by every operation.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    /// Number of names in operations.
    pub(super) names: u64,
    /// Lengths of blocks.
    pub(super) lens: &'static [u64],
    /// Whether reused chunks are watched. This is for one thread, because it opens roots.
    pub(super) is_watched: bool,
    /// Bytes that are taken from the start, so that the rest of the file is soon full.
    pub(super) ballast: u64,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// Number of further roots that exist from the start: so many that the next root needs a
    /// directory chunk.
    pub(super) fillers: u16,
    /// Free bytes that do not go back to the file system.
    pub(super) reserve_bytes: u64,
}

/// A pool, and those of its chunks that belonged to roots removed since it was opened.
pub(super) struct Watched {
    pool: Pool<Arc<Sim>>,
    dropped: Mutex<BTreeSet<u64>>,
}

impl Watched {
    fn new(pool: Pool<Arc<Sim>>) -> Self {
        Watched { pool, dropped: Mutex::default() }
    }

    /// The chunk of a root's block, if it has one.
    fn chunk_of(&self, number: u64) -> Result<Option<u64>> {
        match self.pool.open_root::<Table>(&name(number)) {
            Ok(table) => Ok(table.block_at(0).map(|offset| offset / CHUNK_LEN)),
            Err(Error::NoSuchRoot { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn note_dropped(&self, chunk: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk);
    }

    fn note_used(&self, chunk: u64) {
        if self.dropped.lock().unwrap_or_else(PoisonError::into_inner).remove(&chunk) {
            self.pool.medium().reach(REUSED);
        }
    }
}

/// Small blocks are allocated in a chunk of a root that was removed.
pub(super) const REUSED: &str = "a removed root's chunk is reused for small blocks";

/// One operation of the pool.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(u64),
    Remove(u64),
    Put(u64, Content),
    /// Tries to remove an open root.
    RemoveOpen(u64),
    Check,
}

/// Name of the ballast's root.
const BALLAST: &str = "ballast";

fn name(number: u64) -> String {
    format!("table {number}")
}

impl Roots {
    fn put(pool: &Pool<Arc<Sim>>, number: u64, content: Content) -> Result<Answer<bool>> {
        match pool.open_root::<Table>(&name(number)) {
            Ok(table) => table.put(0, content).map(|_| Answer::Bool(true)),
            Err(Error::NoSuchRoot { .. }) => Ok(Answer::Bool(false)),
            Err(error) => Err(error),
        }
    }

    fn create_root(pool: &Pool<Arc<Sim>>, number: u64) -> Result<bool> {
        match pool.create_root::<Table>(&name(number)) {
            Ok(_) => Ok(true),
            Err(Error::RootExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the root existed, and stayed.
    fn remove_open(pool: &Pool<Arc<Sim>>, number: u64) -> Result<bool> {
        let table = match pool.open_root::<Table>(&name(number)) {
            Err(Error::NoSuchRoot { .. }) => return Ok(false),
            opened => opened?,
        };
        let removed = pool.remove_root(&name(number));
        drop(table);
        match removed {
            Err(Error::RootInUse { .. }) => Ok(true),
            Ok(()) => Err(Error::Corrupt {
                offset: 0,
                what: "a root that is open was removed".to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    fn remove_root(pool: &Pool<Arc<Sim>>, number: u64) -> Result<Answer<bool>> {
        match pool.remove_root(&name(number)) {
            Ok(()) => Ok(Answer::Bool(true)),
            Err(Error::NoSuchRoot { .. }) => Ok(Answer::Bool(false)),
            Err(error @ Error::RootInUse { .. }) => Ok(Answer::Refused(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

impl Subject for Roots {
    type Op = Op;
    type Ret = Answer<bool>;
    /// Roots by number, with the content of their first slot.
    type State = BTreeMap<u64, Option<Content>>;
    type Handle = Watched;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let pool = create_pool(medium, &Format::new(self.size_max))?;
        pool.set_reserve_bytes(self.reserve_bytes);
        for number in 0..self.fillers {
            pool.create_root::<Table>(&format!("filler {number}"))?;
        }
        Ok(Watched::new(pool))
    }

    fn prepare(&self, _: &Arc<Sim>, watched: Self::Handle) -> Outcome<Self::Handle> {
        let is_there = watched.pool.roots()?.iter().any(|root| root.name == BALLAST);
        if self.ballast > 0 && !is_there {
            Table::fill(&watched.pool, BALLAST, self.ballast)?;
        }
        Ok(watched)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let pool = Pool::recover(medium)?;
        pool.set_reserve_bytes(self.reserve_bytes);
        Ok(Watched::new(pool))
    }

    fn apply(&self, watched: &Self::Handle, op: &Op) -> Answer<bool> {
        let pool = &watched.pool;
        match *op {
            Op::Create(number) => answer(Self::create_root(pool, number), Answer::Bool),
            Op::Remove(number) if self.is_watched => {
                let removed = watched.chunk_of(number).and_then(|chunk| {
                    let removed = Self::remove_root(pool, number)?;
                    chunk.into_iter().for_each(|chunk| watched.note_dropped(chunk));
                    Ok(removed)
                });
                answer(removed, |answer| answer)
            }
            Op::Put(number, content) if self.is_watched => {
                let put = Self::put(pool, number, content).and_then(|answer| {
                    let chunk = watched.chunk_of(number)?;
                    chunk.into_iter().for_each(|chunk| watched.note_used(chunk));
                    Ok(answer)
                });
                answer(put, |answer| answer)
            }
            Op::Remove(number) => answer(Self::remove_root(pool, number), |answer| answer),
            Op::Put(number, content) => answer(Self::put(pool, number, content), |answer| answer),
            Op::RemoveOpen(number) => answer(Self::remove_open(pool, number), Answer::Bool),
            Op::Check => answer(pool.info(), |_| Answer::None),
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<bool> {
        match *op {
            Op::Create(number) if state.contains_key(&number) => Answer::Bool(false),
            Op::Create(number) => Answer::Bool(state.insert(number, None).is_none()),
            Op::Remove(number) => Answer::Bool(state.remove(&number).is_some()),
            Op::Put(number, content) => match state.get_mut(&number) {
                Some(root) => {
                    *root = Some(content);
                    Answer::Bool(true)
                }
                None => Answer::Bool(false),
            },
            Op::RemoveOpen(number) => Answer::Bool(state.contains_key(&number)),
            Op::Check => Answer::None,
        }
    }

    fn observe(&self, Watched { pool, .. }: &Self::Handle) -> Outcome<Self::State> {
        let mut state = BTreeMap::new();
        for root in pool.roots()? {
            let Some(number) = root.name.strip_prefix("table ") else { continue };
            let table = pool.open_root::<Table>(&root.name)?;
            state.insert(number.parse()?, table.contents()?.get(&0).copied());
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let number = rng.below(self.names);
        match rng.below(9) {
            0..=2 => Op::Create(number),
            3..=4 => Op::Remove(number),
            5..=6 => Op::Put(number, (*rng.pick(self.lens), rng.below(1 << 30))),
            7 => Op::RemoveOpen(number),
            _ => Op::Check,
        }
    }

    fn check(&self, Watched { pool, .. }: &Self::Handle) -> Outcome {
        for root in pool.roots()? {
            if !root.name.starts_with("filler") {
                pool.open_root::<Table>(&root.name)?.check()?;
            }
        }
        check_pool(pool)
    }

    fn is_refused(&self, answer: &Answer<bool>) -> bool {
        is_refused(answer)
    }
}

/// A pool that is only opened and closed, so that only its superblock is written.
///
/// The superblock survives write disturbance, because one of its two copies is always at rest.
/// Nothing else of the pool does, and no structure in it: a disturbed line may hold entries that
/// were at rest.
#[derive(Clone, Debug)]
pub(super) struct Superblock;

/// Size beyond which this pool does not grow; it identifies the superblock as this pool's.
const SIZE_MAX: u64 = 40 << 20;

impl Subject for Superblock {
    type Op = ();
    type Ret = ();
    type State = ();
    type Handle = Pool<Arc<Sim>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        // Created over an older pool, of which nothing may return.
        drop(Pool::format(Arc::clone(&medium), &Format::new(SIZE_MAX / 2))?);
        drop(Pool::recover(Arc::clone(&medium))?);
        Ok(Pool::format(medium, &Format::new(SIZE_MAX))?)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        // Opened, closed and opened; each writes the superblock.
        drop(Pool::recover(Arc::clone(&medium))?);
        Ok(Pool::recover(medium)?)
    }

    fn apply(&self, _: &Self::Handle, (): &()) {}

    fn model(&self, (): &mut (), (): &()) {}

    fn observe(&self, pool: &Self::Handle) -> Outcome {
        let info = pool.info()?;
        if info.size_max != SIZE_MAX || !info.was_clean {
            return Err(format!("not the superblock that was written: {info:?}").into());
        }
        Ok(())
    }

    fn op(&self, _: &mut Rng) {}

    fn check(&self, pool: &Self::Handle) -> Outcome {
        check_pool(pool)
    }
}
