//! Where the words of an index lie: in the pool, or in memory that a crash takes away.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use remanent_pmem::heap::Lane;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};
use remanent_structures::shared::Inspection;
use remanent_structures::{RowId, RowIndex};

use super::backlog::Word;
use super::map::{MakeMap, OwnMap};
use super::order::{Order, Span};
use super::structure::{Tree, Words};
use super::{Candidates, Key};
use crate::Result;
use crate::schema::{IndexSpec, Structure};
use crate::table::layout::{Format, KeyCells};

/// The words of an index.
pub(crate) enum Rows<M: Medium> {
    Pool {
        /// Offset of the header.
        header: u64,
        words: Words<M>,
    },
    Dram(Words<Mapped>),
    /// In DRAM, too.
    Own(OwnMap),
}

/// Calls a method on the words, wherever they lie.
macro_rules! on_words {
    ($rows:expr, $words:ident => $call:expr) => {
        match $rows {
            Rows::Pool { words: $words, .. } => $call,
            Rows::Dram($words) => $call,
            Rows::Own($words) => $call,
        }
    };
}

impl<M: Medium> Rows<M> {
    /// Offset of the header; `None` if it is in DRAM.
    pub(crate) fn header(&self) -> Option<u64> {
        match self {
            Rows::Pool { header, .. } => Some(*header),
            Rows::Dram(_) | Rows::Own(_) => None,
        }
    }

    #[inline]
    pub(crate) fn candidates(&self, key: &Key) -> Result<Candidates> {
        on_words!(self, words => words.candidates(key))
    }

    /// Whether a row has a word of a key, or perhaps of another one with the same hash.
    pub(super) fn has(&self, key: &Key, row: RowId) -> Result<bool> {
        on_words!(self, words => words.has(key, row))
    }

    /// Calls `visit` with the entries of a range, until it breaks. A hash index has none.
    pub(super) fn scan(
        &self,
        span: &Span,
        order: Order,
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        on_words!(self, words => words.scan(span, order, visit))
    }

    /// Adds the word of a new row. Two fences if it is ordered and in the pool; otherwise none, and
    /// it is durable with the caller's next one.
    #[inline]
    pub(crate) fn insert(&self, key: &Key, row: RowId) -> Result<()> {
        on_words!(self, words => words.insert(key, row))
    }

    /// Adds the words of rows that have none.
    pub(super) fn insert_rows<'k>(
        &self,
        format: &Format,
        spec: &IndexSpec,
        rows: impl Iterator<Item = (RowId, KeyCells<'k>)>,
    ) -> Result<()> {
        on_words!(self, words => words.insert_rows(format, spec, rows))
    }

    /// Adds words of a hash index, none of which is there.
    pub(crate) fn insert_words(&self, words: &[Word]) -> Result<()> {
        on_words!(self, of => of.insert_words(words))
    }

    /// Adds the words of a [partition](Rows::partition) of so many bits, none of which is there.
    pub(super) fn insert_partition(&self, bits: u32, words: &[Word]) -> Result<()> {
        on_words!(self, of => of.insert_partition(bits, words))
    }

    /// Adds those of some words of a hash index, sorted by their hashes, that are not there.
    pub(super) fn insert_missing(&self, words: &[Word]) -> Result<()> {
        on_words!(self, of => of.insert_missing(words))
    }

    /// Adds a word of a hash index unless it is there.
    pub(crate) fn ensure_word(&self, hash: u64, row: RowId) -> Result<()> {
        on_words!(self, words => words.ensure_word(hash, row))
    }

    /// The first `bits` bits by which a hash index spreads the words of a key; 0 in a tree.
    #[inline]
    pub(crate) fn partition(&self, hash: u64, bits: u32) -> u64 {
        on_words!(self, words => words.partition(hash, bits))
    }

    /// Whether a row has one word for both keys.
    pub(crate) fn is_one_word(&self, key: &Key, other: &Key) -> bool {
        on_words!(self, words => words.is_one_word(key, other))
    }

    /// Adds a word unless it is there. Fences as for [`insert`](Rows::insert).
    pub(crate) fn ensure(&self, key: &Key, row: RowId) -> Result<()> {
        on_words!(self, words => words.ensure(key, row))
    }

    /// Removes a word, if it is there. Fences as for [`insert`](Rows::insert).
    pub(crate) fn remove(&self, key: &Key, row: RowId) -> Result<()> {
        on_words!(self, words => words.remove(key, row))
    }

    /// What contradicts itself, and which blocks of the pool it reaches.
    pub(crate) fn inspect(&self) -> Result<Inspection> {
        match self {
            Rows::Pool { header, words } => {
                let mut found = words.inspect()?;
                if let Some(blocks) = &mut found.blocks {
                    blocks.push(*header);
                }
                Ok(found)
            }
            Rows::Dram(words) => {
                // Its blocks are not those of the database.
                let violations = words.inspect()?.violations;
                Ok(Inspection { violations, blocks: Some(Vec::new()) })
            }
            Rows::Own(map) => map.inspect(),
        }
    }

    /// Gives back what was made for a table that could not be made, but its header.
    pub(crate) fn abandon(self, lane: &mut Lane<'_, M>) -> Result<()> {
        match self {
            Rows::Pool { words, .. } => words.abandon(lane),
            Rows::Dram(_) | Rows::Own(_) => Ok(()),
        }
    }
}

/// The memory of all indexes of a database that are in DRAM.
#[derive(Default)]
pub(crate) struct Dram {
    /// Made with the first index.
    pool: OnceLock<Pool>,
    /// Makes maps that take the place of hash indexes.
    make_map: Mutex<Option<Arc<MakeMap>>>,
}

impl fmt::Debug for Dram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dram").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Dram {
    /// Has hash indexes that are made from now on stand on these maps; or on our own again.
    pub(crate) fn set_make_map(&self, make: Option<Arc<MakeMap>>) {
        *self.make_map.lock().unwrap_or_else(PoisonError::into_inner) = make;
    }

    fn own_map(&self, structure: Structure) -> Option<OwnMap> {
        let make = self.make_map.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Not under the lock: it is the program's.
        make.filter(|_| structure == Structure::Hash).map(|make| OwnMap(make()))
    }

    /// Gives the memory of an index back, which nobody has any more.
    pub(crate) fn remove(&self, number: u32) -> Result<(), PoolError> {
        let name = number.to_string();
        match self.pool.get() {
            Some(pool) if pool.has_root(&name)? => pool.remove_root(&name),
            _ => Ok(()),
        }
    }

    /// An empty index. Its number is that of no other one.
    pub(crate) fn create<M: Medium>(
        &self,
        number: u32,
        structure: Structure,
    ) -> Result<Rows<M>, PoolError> {
        if let Some(map) = self.own_map(structure) {
            self.remove(number)?;
            return Ok(Rows::Own(map));
        }
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
        let words = match structure {
            Structure::Hash => RowIndex::create(pool, &name).map(Words::Hash),
            Structure::Ordered => Tree::create(pool, &name).map(Words::Ordered),
        };
        Ok(Rows::Dram(words.map_err(|error| crate::Error::from(error).into_pool())?))
    }
}
