//! Folding versions into tiles, once every snapshot sees them.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::{Lane, Suspect};
use remanent_structures::RowId;
use smallvec::SmallVec;

use crate::Result;
use crate::engine::Engine;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::{Claim, Committed, State};
use crate::table::ops::{Group, RowPlace};
use crate::table::version::Version;

/// A row that a statement has left with a version.
pub(crate) struct Garbage<M: Medium> {
    pub(crate) table: Arc<Table<M>>,
    pub(crate) row: RowId,
    pub(crate) stamp: u64,
}

/// Rows that are folded for one fence, and how many wait until some are.
const TOGETHER: usize = 32;
/// Suspects of a lane that are left for other purposes.
const SPARE: usize = 32;

/// A row whose newest version is in its tile, not yet by its head.
struct Folded<'g, M: Medium> {
    garbage: &'g Garbage<M>,
    place: RowPlace,
    newest: Version,
    suspects: SmallVec<[Suspect; 4]>,
    /// First groups of cells that the row had before.
    old_keys: SmallVec<[Group; 2]>,
    keys: Group,
}

impl<M: Medium> Engine<M> {
    /// Remembers a row to be folded.
    pub(super) fn leave_garbage(&self, garbage: Garbage<M>) {
        self.garbage.lock(self.medium()).push_back(garbage);
    }

    /// Folds some rows if enough wait.
    pub(super) fn collect_if_due(&self) -> Result<()> {
        if self.garbage.lock(self.medium()).len() >= TOGETHER {
            self.collect_some()?;
        }
        Ok(())
    }

    /// Folds all rows that can be folded now, and returns how many.
    pub(crate) fn collect(&self) -> Result<u64> {
        let mut sum = 0;
        loop {
            match self.collect_some()? {
                0 => return Ok(sum),
                count => sum += count,
            }
        }
    }

    /// Remembers all rows that have versions: those that an earlier process has left.
    pub(crate) fn sweep(&self) -> Result<()> {
        let tables = self.schema.lock(self.medium()).tables.clone();
        for table in tables {
            table.for_each_row(|row, place, committed| {
                if let State::Version(_) = committed.state() {
                    let stamp = table.stamp_of(table.committed(place));
                    self.leave_garbage(Garbage { table: Arc::clone(&table), row, stamp });
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Folds a few rows: for one fence, besides those for freeing.
    fn collect_some(&self) -> Result<u64> {
        let horizon = self.snapshots.horizon(&self.stamps);
        let batch: Vec<Garbage<M>> = {
            let mut garbage = self.garbage.lock(self.medium());
            let ready = garbage.iter().take(TOGETHER).take_while(|row| row.stamp <= horizon);
            let ready = ready.count();
            garbage.drain(..ready).collect()
        };
        if batch.is_empty() {
            return Ok(0);
        }
        let mut lane = self.heap.enter().prepare_for(SPARE + 4 * TOGETHER);
        let mut folded = Vec::new();
        let mut left = Vec::new();
        for (index, garbage) in batch.iter().enumerate() {
            match self.fold(&mut lane, garbage, horizon) {
                Ok(Fold::Done(row)) => folded.push(*row),
                Ok(Fold::Nothing) => {}
                Ok(Fold::Later) => left.push(index),
                Err(error) => {
                    // What is claimed is given free by publishing; the rest is found by a sweep.
                    self.publish_folded(&mut lane, folded)?;
                    return Err(error);
                }
            }
        }
        let count = folded.len() as u64;
        let old_words = self.publish_folded(&mut lane, folded)?;
        drop(lane);
        for OldWords { garbage, keys, is_removal } in old_words {
            for (index, key) in keys {
                garbage.table.indexes[index].rows.remove(key.hash, garbage.row)?;
            }
            if is_removal {
                garbage.table.give_row_back(garbage.row);
            }
        }
        let mut garbage = self.garbage.lock(self.medium());
        for (index, row) in batch.into_iter().enumerate() {
            if left.contains(&index) {
                garbage.push_back(row);
            }
        }
        Ok(count)
    }

    /// Writes the newest cells of a row into its tile, and makes all of its versions suspects.
    fn fold<'g>(
        &self,
        lane: &mut Lane<'_, M>,
        garbage: &'g Garbage<M>,
        horizon: u64,
    ) -> Result<Fold<'g, M>> {
        let Garbage { table, row, .. } = garbage;
        let Some(place) = table.place(*row) else { return Ok(Fold::Nothing) };
        if table.try_claim(place, Claim::of_collector(self.opens), self.opens).is_err() {
            return Ok(Fold::Later);
        }
        let give_free = || table.claim_row(place, Claim::NONE);
        let newest = match table.committed(place).state() {
            State::Version(offset) => table.version(offset),
            _ => None,
        };
        // A newer one that is not seen by all is remembered by its own statement.
        let Some(newest) = newest.filter(|newest| newest.stamp <= horizon) else {
            give_free();
            return Ok(Fold::Nothing);
        };
        let chain = table.chain(newest).inspect_err(|_| give_free())?;
        if lane.suspects_left() < SPARE + chain.len() {
            give_free();
            return Ok(Fold::Later);
        }
        let suspects = chain.iter().map(|version| lane.suspect(version.offset)).collect();
        let mut old_keys: SmallVec<[Group; 2]> = SmallVec::from_elem(table.read_group(place, 0), 1);
        old_keys.extend(chain.iter().filter_map(|version| table.own_group(*version, 0)));
        for group in 0..2 {
            let cells = chain.iter().find_map(|version| table.own_group(*version, group));
            if let Some(cells) = cells {
                table.write_group(place, group, &cells);
            }
        }
        let keys = table.read_group(place, 0);
        let folded = Folded { garbage, place, newest, suspects, old_keys, keys };
        Ok(Fold::Done(Box::new(folded)))
    }

    /// Has the heads of rows say that their tiles have the newest cells, and gives the versions to
    /// be freed. Returns what is to be removed from indexes.
    fn publish_folded<'g>(
        &self,
        lane: &mut Lane<'_, M>,
        folded: Vec<Folded<'g, M>>,
    ) -> Result<Vec<OldWords<'g, M>>> {
        // Fence: the cells, before a head says that they are the newest; the suspects, before
        // nothing leads to them.
        lane.fence();
        let mut old_words = Vec::new();
        for row in folded {
            let Folded { garbage, place, newest, suspects, old_keys, keys } = row;
            let committed = match newest.is_removal {
                true => Committed::removed(newest.stamp),
                false => Committed::present(newest.stamp),
            };
            lane.flush_later(garbage.table.publish(place, committed));
            garbage.table.claim_row(place, Claim::NONE);
            for suspect in suspects {
                lane.retire(suspect);
            }
            old_words.push(OldWords::of(garbage, &old_keys, &keys, newest.is_removal));
        }
        Ok(old_words)
    }
}

/// What came of folding a row.
enum Fold<'g, M: Medium> {
    Done(Box<Folded<'g, M>>),
    /// There is nothing to be folded.
    Nothing,
    /// Somebody is changing it.
    Later,
}

/// Words of indexes that no snapshot needs any more.
struct OldWords<'g, M: Medium> {
    garbage: &'g Garbage<M>,
    /// Numbers of indexes, and keys.
    keys: SmallVec<[(usize, Key); 4]>,
    is_removal: bool,
}

impl<'g, M: Medium> OldWords<'g, M> {
    fn of(garbage: &'g Garbage<M>, old: &[Group], new: &Group, is_removal: bool) -> Self {
        let table = &garbage.table;
        let mut keys: SmallVec<[(usize, Key); 4]> = SmallVec::new();
        for (number, index) in table.indexes.iter().enumerate() {
            let key = |cells: &Group| Key::of_row(&table.format, &index.spec.columns, cells);
            let kept = key(new).filter(|_| !is_removal);
            for cells in old {
                let Some(key) = key(cells) else { continue };
                let word = (number, key);
                if kept.as_ref() != Some(&word.1) && !keys.contains(&word) {
                    keys.push(word);
                }
            }
        }
        OldWords { garbage, keys, is_removal }
    }
}
