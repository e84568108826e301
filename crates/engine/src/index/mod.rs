//! Indexes: from the cells of a key to rows, each of which is looked at. A hash index has no keys,
//! and an ordered one may have keys that its rows have lost.

pub(crate) mod backlog;
pub(crate) mod entries;
mod key;
mod locks;
pub(crate) mod map;
pub(crate) mod order;
pub(crate) mod rebuild_cost;
mod rows;
mod set;
mod structure;
pub(crate) mod uses;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use self::backlog::{Backlog, Gathered};
use self::key::KeyPlace;
pub(crate) use self::key::{Key, Keyed};
pub(crate) use self::locks::{HeldKeys, KeyLocks};
use self::order::{Order, Span};
pub(crate) use self::rows::{Dram, Rows};
pub(crate) use self::set::{IndexSet, Member, Role};
pub(crate) use self::structure::{Tree, Words};
use self::uses::Uses;

use crate::Result;
use crate::portions::Taken;
use crate::presence::Presence;
use crate::schema::{IndexSpec, Structure};
use crate::table::layout::{Format, KeyCells};

/// An index of a table.
pub(crate) struct Index<M: Medium> {
    pub(crate) spec: IndexSpec,
    /// Its number among the members of the heap.
    pub(crate) number: u32,
    /// The same number for it and for those to which it is moved in this opening.
    pub(crate) id: u32,
    pub(crate) rows: Rows<M>,
    /// Whether opening has found it empty: it has all rows once those of its table are
    /// [rebuilt](crate::table::rebuild::Rebuilding).
    pub(crate) is_rebuilt: bool,
    /// Words that were read for it, and are not in it yet.
    pub(crate) backlog: Option<Backlog>,
    /// Whether keys have columns of the second group of a row.
    pub(crate) needs_others: bool,
    /// Where its keys lie in rows, if in one place.
    key_place: Option<KeyPlace>,
    /// How often it was used; also by those from which it was moved.
    pub(crate) uses: Arc<Uses>,
    pub(crate) presence: Presence,
    /// Two rows may have had the same key before this stamp, although the index is unique: it was
    /// made later.
    unique_since: AtomicU64,
}

/// Instead of the stamp from which on an index is unique, while the transaction that has made it is
/// open.
pub(crate) const NOT_YET: u64 = u64::MAX;

/// Numbers of rows.
pub(crate) type Candidates = SmallVec<[RowId; 8]>;

impl<M: Medium> Index<M> {
    pub(crate) fn new(format: &Format, spec: IndexSpec, number: u32, rows: Rows<M>) -> Self {
        let needs_others = spec.columns.iter().any(|&column| format.cells[column].group != 0);
        let (id, unique_since) = (number, AtomicU64::new(0));
        let (is_rebuilt, backlog) = (false, None);
        let key_place = KeyPlace::of(format, &spec);
        Index {
            spec,
            number,
            id,
            rows,
            is_rebuilt,
            backlog,
            needs_others,
            key_place,
            uses: Arc::default(),
            presence: Presence::default(),
            unique_since,
        }
    }

    /// Says that opening has found it empty, in a table of about so many rows.
    pub(crate) fn set_rebuilt(&mut self, rows: u64) {
        self.is_rebuilt = true;
        // Keys of the second group are read for each row by itself.
        let has_backlog = self.spec.structure == Structure::Hash && !self.needs_others;
        self.backlog = has_backlog.then(|| Backlog::of(rows));
    }

    /// Whether everything that was read for it is in it.
    #[inline(always)]
    pub(crate) fn has_all_read(&self) -> bool {
        self.backlog.as_ref().is_none_or(|backlog| backlog.progress().0 == 0)
    }

    /// Says that no two rows have the same key from this stamp on.
    pub(crate) fn set_unique_since(&self, stamp: u64) {
        // Relaxed: before anybody gets the index by its name.
        self.unique_since.store(stamp, Ordering::Relaxed);
    }

    /// The stamp from which on no two rows have the same key, if the index is unique.
    #[inline(always)]
    pub(crate) fn unique_since(&self) -> u64 {
        // Relaxed: who has the index by its name sees it.
        self.unique_since.load(Ordering::Relaxed)
    }

    /// Says that it was dropped, or that another index has taken its place, which statements use
    /// already. They do not keep this one from now on.
    pub(crate) fn retire(&self) {
        // It releases what was done before; partner of the load in `is_in_use`.
        self.presence.end();
    }

    /// Whether everything that was committed up to now is in it. To be asked once it was read.
    #[inline(always)]
    pub(crate) fn is_in_use(&self) -> bool {
        // It acquires what `retire` has released. A statement that has not kept the index has begun
        // after it, and whoever knows of that statement sees it.
        !self.presence.is_gone()
    }

    /// The key of a row; `None` when the row is not in the index.
    #[inline]
    pub(crate) fn key_of(&self, format: &Format, row: KeyCells<'_>) -> Option<Key> {
        Key::of_row(format, &self.spec, row)
    }

    /// Whether only one row can have a key.
    #[inline]
    pub(crate) fn is_unique_in(&self, key: &Key) -> bool {
        self.spec.kind.is_unique() && !key.has_null
    }

    /// Numbers of the rows that may have a key: those that have it, and perhaps others, some of
    /// them twice. If the index is not rebuilt yet, some may be missing: see
    /// [`Table::search`](crate::table::Table::search).
    #[inline]
    pub(crate) fn candidates(&self, key: &Key) -> Result<Candidates> {
        self.rows.candidates(key)
    }

    /// Whether the index leads from a key to a row.
    pub(crate) fn has(&self, key: &Key, row: RowId) -> Result<bool> {
        self.rows.has(key, row)
    }

    /// Calls `visit` with the entries of a range of an ordered index, until it breaks: those of all
    /// rows, and perhaps some whose row has another key, or none.
    pub(crate) fn scan(
        &self,
        span: &Span,
        order: Order,
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.rows.scan(span, order, visit)
    }

    /// Puts rows into the index that are not in it.
    pub(crate) fn insert_rows<'k>(
        &self,
        format: &Format,
        rows: impl Iterator<Item = (RowId, KeyCells<'k>)>,
    ) -> Result<()> {
        self.rows.insert_rows(format, &self.spec, rows)
    }

    /// Gathers the words of rows for the index's backlog: of rows with their first groups, behind
    /// which bytes may go on.
    pub(crate) fn gather_rows<'k>(
        &self,
        format: &Format,
        rows: impl Iterator<Item = (RowId, &'k [u8])>,
        bits: u32,
        gathered: &mut Gathered,
    ) {
        let mut push = |hash, row| gathered.push(self.rows.partition(hash, bits), (hash, row));
        match self.key_place {
            Some(place) => rows.for_each(|(row, keys)| push(place.hash(keys), row)),
            None => rows.for_each(|(row, keys)| {
                let cells = [&keys[..format.group_len[0] as usize], &[]];
                if let Some(hash) = Key::hash_of_row(format, &self.spec, cells) {
                    push(hash, row);
                }
            }),
        }
    }

    /// Partitions of the index's backlog that are not in the index, and all of them.
    pub(crate) fn backlog_progress(&self) -> Option<(u64, u64)> {
        self.backlog.as_ref().map(Backlog::progress)
    }

    /// How much the index is wanted while it is rebuilt.
    pub(crate) fn wanted(&self) -> u64 {
        self.backlog.as_ref().map_or(0, Backlog::wanted)
    }

    /// Adds a partition of the index's backlog that nobody has taken, and returns how many words it
    /// had; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When there is no memory left: the partition is taken by nobody then.
    pub(crate) fn add_any_partition(&self) -> Result<Option<u64>> {
        let backlog = self.backlog.as_ref();
        let taken = backlog.and_then(|backlog| Some((backlog, backlog.take_any()?)));
        taken.map(|(backlog, taken)| self.add_partition(backlog, taken)).transpose()
    }

    /// Adds a partition of the index's backlog, and returns how many words it had.
    ///
    /// # Errors
    ///
    /// When there is no memory left: the partition is taken by nobody then.
    pub(crate) fn add_partition(&self, backlog: &Backlog, taken: Taken<'_>) -> Result<u64> {
        let add_missing = |words: &[_]| self.rows.insert_missing(words);
        let add = |words: &[_]| self.rows.insert_partition(backlog.bits(), words);
        backlog.add(taken, add, add_missing)
    }
}
