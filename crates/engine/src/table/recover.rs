//! Opening a table: how many tiles it has, and which blocks are its own.

use std::sync::Arc;

use arc_swap::ArcSwap;
use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::{Error as PoolError, Medium, WORD_LEN};

use super::extension::TileLocks;
use super::free::FreeRows;
use super::layout::{
    EXTENSION, FAR, Kind, NUMBER, RUN_COUNT, STATE_LEN, TILES_MAX, TilePlace, run_at, run_first,
    run_len, run_tiles,
};
use super::rebuild::Rebuilding;
use super::since::Since;
use super::{Columns, Table};
use crate::Result;
use crate::catalog::TableEntry;
use crate::dictionary::Dictionary;
use crate::index::{Index, IndexSet};
use crate::presence::Presence;
use crate::transaction::recover::Completed;
use crate::transaction::statuses::Statuses;

impl<M: Medium> Table<M> {
    /// The table of a catalog's entry, with its indexes and the dictionaries of columns; none, if
    /// only rows are looked at.
    ///
    /// # Errors
    ///
    /// When its state, or a run of tiles, is damaged.
    pub(crate) fn open(
        heap: &Arc<Heap<M>>,
        entry: TableEntry,
        mut indexes: Vec<Index<M>>,
        dictionaries: Vec<(usize, Dictionary<M>)>,
        statuses: &Arc<Statuses>,
    ) -> Result<Self, PoolError> {
        let mut format = entry.format();
        let TableEntry { name, number, mut columns, added, state, .. } = entry;
        let made = if dictionaries.is_empty() { 0 } else { columns.len() };
        let mut by_column: Box<[Option<Dictionary<M>>]> = (0..made).map(|_| None).collect();
        for (column, dictionary) in dictionaries {
            by_column[column] = Some(dictionary);
        }
        let values = by_column.iter().map(|of| of.as_ref().map(|of| Arc::clone(&of.values)));
        format.cells.set_values(values.collect());
        let added = added.into_iter().filter(|added| !added.is_gone);
        columns.extend(added.map(|added| added.column));
        let columns = ArcSwap::from_pointee(Columns::of(columns));
        let tiles = count_tiles(heap.medium(), number, state)?;
        let mut rebuilding = Rebuilding::of(0);
        for index in indexes.iter_mut().filter(|index| index.rows.header().is_none()) {
            index.set_rebuilt(tiles * format.rows);
            rebuilding = Rebuilding::of(tiles);
        }
        let (heap, statuses) = (Arc::clone(heap), Arc::clone(statuses));
        let free = FreeRows::of(tiles);
        let indexes = ArcSwap::from_pointee(IndexSet::of_indexes(indexes));
        Ok(Table {
            heap,
            name,
            number,
            columns,
            format,
            dictionaries: by_column,
            indexes,
            state,
            statuses,
            presence: Presence::default(),
            since: Since::default(),
            free,
            tile_locks: TileLocks::new(),
            rebuilding,
        })
    }
}

/// Number of the tiles that the state of a table leads to. They are added in order, and never
/// removed.
fn count_tiles<M: Medium>(medium: &M, number: u32, state: u64) -> Result<u64, PoolError> {
    let is_inside = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= medium.len());
    if !is_inside(state, STATE_LEN) || medium.load(state) != Kind::State.tag(number) {
        return Err(PoolError::corrupt(state, "the catalog leads to no state of a table"));
    }
    let runs = (0..RUN_COUNT).map(|run| medium.load(run_at(state, run)));
    let runs: Vec<u64> = runs.collect();
    let count = runs.iter().take_while(|run| **run != 0).count();
    for (run, &at) in (0..).zip(&runs) {
        let is_one = is_inside(at, run_len(run))
            && medium.load(at) == Kind::Run.tag(number)
            && medium.load(at + NUMBER) == u64::from(run);
        if is_one != ((run as usize) < count) {
            let what = "the state of a table leads to no run of tiles, or passes over one";
            return Err(PoolError::corrupt(run_at(state, run), what));
        }
    }
    let Some(run) = count.checked_sub(1).map(|run| run as u32) else { return Ok(0) };
    let at = runs[run as usize];
    let (mut there, mut beyond) = (0, run_tiles(run));
    while there < beyond {
        let middle = there.midpoint(beyond);
        match medium.load(TilePlace::of(run_first(run) + middle).at(at)) {
            0 => beyond = middle,
            _ => there = middle + 1,
        }
    }
    Ok(run_first(run) + there)
}

impl<M: Medium> Table<M> {
    /// Whether the table leads to a block that says that it is the table's, once statements are
    /// completed; the block may be anything. Flushes the links that decide it.
    ///
    /// # Errors
    ///
    /// When damage keeps the answer from being found.
    pub(crate) fn leads_to(&self, block: Block, completed: &Completed) -> Result<bool> {
        let medium = self.medium();
        let tag = medium.load(block.offset);
        let number = medium.load(block.offset + NUMBER);
        let links = |at| {
            // Read first: a processor may take a flushed line out of its caches.
            let link = medium.load(at);
            // Flush: a link that a killed process has left in the caches; fenced by the heap.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(at, WORD_LEN);
            link
        };
        if tag == Kind::Run.tag(self.number) {
            let is_run = number < u64::from(RUN_COUNT);
            return Ok(is_run && links(run_at(self.state, number as u32)) == block.offset);
        }
        let tile = || {
            let place = TilePlace::of(number);
            match links(run_at(self.state, place.run)).min(FAR) {
                0 => 0,
                run => links(place.at(run)).min(FAR),
            }
        };
        if tag == Kind::Tile.tag(self.number) && number < TILES_MAX {
            return Ok(tile() == block.offset);
        }
        if tag == Kind::Extension.tag(self.number) && number < TILES_MAX {
            return match tile() {
                0 => Ok(false),
                tile if self.is_tile(tile, number) => Ok(links(tile + EXTENSION) == block.offset),
                tile => Err(self.damaged(tile, "it leads to a tile, and there is none")),
            };
        }
        self.leads_to_version(block.offset, completed)
    }
}
