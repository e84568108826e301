//! The object of a database's root, which all handles of a process share: the engine, and the
//! threads that work for it.

use std::ops::Deref;
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium};

use crate::Result;
use crate::catalog::LAYOUT;
use crate::engine::Engine;
use crate::rebuild::{Rebuild, Workers};

/// A database that is open.
pub(crate) struct Root<M: Medium> {
    /// Dropped before the engine, which the threads use.
    workers: Workers,
    engine: Arc<Engine<M>>,
}

impl<M: Medium> Root<M> {
    /// Has indexes in DRAM rebuilt.
    pub(crate) fn rebuild(&self, how: Rebuild, threads: usize) -> Result<()> {
        match how {
            Rebuild::Wait => self.engine.rebuild(threads)?,
            Rebuild::Background if self.engine.has_to_rebuild() => {
                self.workers.start(&self.engine, threads);
            }
            Rebuild::Background | Rebuild::Steps => {}
        }
        Ok(())
    }
}

impl<M: Medium> Deref for Root<M> {
    type Target = Engine<M>;

    #[inline(always)]
    fn deref(&self) -> &Engine<M> {
        &self.engine
    }
}

impl<M: Medium> RootObject<M> for Root<M> {
    fn root_type() -> RootType {
        RootType { name: "Database".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let engine = Arc::new(Engine::create(heap)?);
        Ok(Root { workers: Workers::default(), engine })
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let engine = Arc::new(Engine::open(heap)?);
        Ok(Root { workers: Workers::default(), engine })
    }
}
