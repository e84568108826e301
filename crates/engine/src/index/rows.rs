//! Where the words of an index lie: in the pool, or in memory that a crash takes away.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use remanent_pmem::heap::Lane;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};
use remanent_structures::shared::{Inspection, Shareable};
use remanent_structures::{RowId, RowIndex};

use crate::Result;

/// The words of an index.
pub(crate) enum Rows<M: Medium> {
    Pool {
        /// Offset of the header.
        header: u64,
        rows: RowIndex<M>,
    },
    Dram(RowIndex<Mapped>),
}

impl<M: Medium> Rows<M> {
    /// Offset of the header; `None` if it is in DRAM.
    pub(crate) fn header(&self) -> Option<u64> {
        match self {
            Rows::Pool { header, .. } => Some(*header),
            Rows::Dram(_) => None,
        }
    }

    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        visit: impl FnMut(RowId) -> ControlFlow<()>,
    ) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => rows.find(hash, visit)?,
            Rows::Dram(rows) => rows.find(hash, visit)?,
        };
        Ok(())
    }

    /// Adds the word of a new row.
    #[inline]
    pub(crate) fn insert(&self, hash: u64, row: RowId) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => Ok(rows.insert(hash, row)?),
            Rows::Dram(rows) => Ok(rows.insert(hash, row)?),
        }
    }

    /// Adds words of rows that have none.
    pub(crate) fn insert_all(&self, words: impl IntoIterator<Item = (u64, RowId)>) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => Ok(rows.insert_all(words)?),
            Rows::Dram(rows) => Ok(rows.insert_all(words)?),
        }
    }

    /// Adds a word unless it is there.
    pub(crate) fn ensure(&self, hash: u64, row: RowId) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => Ok(rows.ensure(hash, row)?),
            Rows::Dram(rows) => Ok(rows.ensure(hash, row)?),
        }
    }

    /// Removes a word, if it is there.
    pub(crate) fn remove(&self, hash: u64, row: RowId) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => rows.remove(hash, row)?,
            Rows::Dram(rows) => rows.remove(hash, row)?,
        };
        Ok(())
    }

    /// What contradicts itself, and which blocks of the pool it reaches.
    pub(crate) fn inspect(&self) -> Result<Inspection> {
        match self {
            Rows::Pool { header, rows } => {
                let mut found = rows.inspect()?;
                if let Some(blocks) = &mut found.blocks {
                    blocks.push(*header);
                }
                Ok(found)
            }
            Rows::Dram(rows) => {
                // Its blocks are not those of the database.
                let violations = rows.inspect()?.violations;
                Ok(Inspection { violations, blocks: Some(Vec::new()) })
            }
        }
    }

    /// Gives back what was made for a table that could not be made, but its header.
    pub(crate) fn abandon(self, lane: &mut Lane<'_, M>) -> Result<()> {
        match self {
            Rows::Pool { rows, .. } => Ok(rows.abandon(lane)?),
            Rows::Dram(_) => Ok(()),
        }
    }
}

/// The memory of all indexes of a database that are in DRAM.
#[derive(Debug, Default)]
pub(crate) struct Dram {
    /// Made with the first index.
    pool: OnceLock<Pool>,
}

impl Dram {
    /// Gives the memory of an index back, which nobody has any more.
    pub(crate) fn remove(&self, number: u32) -> Result<(), PoolError> {
        let name = number.to_string();
        match self.pool.get() {
            Some(pool) if pool.has_root(&name)? => pool.remove_root(&name),
            _ => Ok(()),
        }
    }

    /// An empty index. Its number is that of no other one.
    pub(crate) fn create<M: Medium>(&self, number: u32) -> Result<Rows<M>, PoolError> {
        let pool = match self.pool.get() {
            Some(pool) => pool,
            None => {
                let made = Pool::options().create_in_memory()?;
                self.pool.get_or_init(|| made)
            }
        };
        let name = number.to_string();
        // Of a table that could not be made.
        self.remove(number)?;
        let rows = RowIndex::create(pool, &name);
        Ok(Rows::Dram(rows.map_err(|error| crate::Error::from(error).into_pool())?))
    }
}
