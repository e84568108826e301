//! Pools on simulated media, created, recovered and checked in the same way for every subject.

use std::sync::Arc;

use remanent_crashsim::{Outcome, Sim};
use remanent_pmem::heap::Violation;
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, ChunkState};
use remanent_pmem::{Error as PoolError, Medium, Pool};

/// A structure in a pool, both open. The structure is closed first.
pub(crate) struct Open<T> {
    pub(crate) object: T,
    pub(crate) pool: Pool<Arc<Sim>>,
}

/// Name of the root of a structure under test.
pub(crate) const ROOT: &str = "tested";

impl<T> Open<T> {
    pub(crate) fn create<E>(
        medium: Arc<Sim>,
        size_max: u64,
        create: impl FnOnce(&Pool<Arc<Sim>>, &str) -> Result<T, E>,
    ) -> Outcome<Self>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        Self::create_in(medium, &Format::new(size_max), create)
    }

    /// Creates a pool and the structure in it, or the part of it that a crash has left out.
    pub(crate) fn create_in<E>(
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

    pub(crate) fn recover<E>(
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
                // An existing root must be complete, even if the crash came while it was being
                // created.
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

    pub(crate) fn check(&self) -> Outcome {
        check_pool(&self.pool)
    }
}

/// Opens the pool that a crash has left, which must be consistent; creates one if there is none.
/// The superblock is written last. So an interrupted creation leaves no pool, or one whose only
/// superblock is torn.
pub(crate) fn create_pool(medium: Arc<Sim>, format: &Format) -> Outcome<Pool<Arc<Sim>>> {
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

/// Checks the pool's own metadata, and that chunks recorded as zeros hold zeros.
pub(crate) fn check_pool(pool: &Pool<Arc<Sim>>) -> Outcome {
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

pub(crate) fn must_be_empty(violations: Vec<Violation>) -> Outcome {
    let told: Vec<String> = violations.iter().map(Violation::to_string).collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("; ").into()) }
}
