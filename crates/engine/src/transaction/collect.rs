//! Folding versions into tiles, once every snapshot sees them.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use remanent_pmem::Medium;
use remanent_pmem::heap::layout::SUSPECT_COUNT;
use remanent_pmem::heap::{Lane, Suspect};
use remanent_structures::RowId;
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::index::uses::Use;
use crate::index::{IndexSet, Key};
use crate::table::Table;
use crate::table::layout::{Claim, Committed, State};
use crate::table::ops::{Group, RowPlace, key_cells};
use crate::table::version::{NEWEST, Version};
use crate::{Error, Result};

/// A row that a statement has left with a version.
pub(crate) struct Garbage<M: Medium> {
    pub(crate) table: Arc<Table<M>>,
    pub(crate) row: RowId,
    pub(crate) stamp: u64,
}

/// Rows that are folded for one fence, and how many wait until some are.
pub(super) const TOGETHER: usize = 32;
/// Versions that are folded at once: those of one row at the most, and of all rows.
pub(super) const VERSIONS: usize = 128;
/// Suspects of a lane that are left for other purposes.
pub(super) const SPARE: usize = 32;
const _: () = assert!(SPARE + VERSIONS <= SUSPECT_COUNT as usize);

/// How often it is looked for transactions that keep rows from being folded though their time is
/// over, in ms.
const EXPIRY_MS: u64 = 100;

/// Instead of a stamp, of a row that a sweep has found: it is looked at.
const FOUND: u64 = 0;

/// A row whose oldest versions are in its tile, and nothing says so yet.
struct Folded<M: Medium> {
    garbage: Garbage<M>,
    place: RowPlace,
    /// The state that is in the tile now.
    newest: Version,
    /// The version after it; `None` if that state is the row's newest.
    next: Option<Version>,
    suspects: SmallVec<[Suspect; 4]>,
    /// The indexes that lose the row's old words.
    set: Arc<IndexSet<M>>,
    /// Cells from which keys are read that the row had before; none if its keys have not changed.
    old_keys: SmallVec<[[Group; 2]; 2]>,
    /// Those of all states that are left.
    keys: SmallVec<[[Group; 2]; 2]>,
}

/// What came of folding a row.
enum Fold<M: Medium> {
    Done(Box<Folded<M>>),
    /// Nothing can be folded yet. Newer versions have entries of their own.
    Nothing,
    /// Somebody is changing it, or there is no room for suspects.
    Later(Garbage<M>),
}

/// Words of indexes that nobody needs any more, of a row that is claimed until they are removed: a
/// statement that gives it one of these keys again has to see that the word is gone.
pub(super) struct OldWords<M: Medium> {
    pub(super) table: Arc<Table<M>>,
    pub(super) row: RowId,
    pub(super) place: RowPlace,
    pub(super) set: Arc<IndexSet<M>>,
    /// Places of indexes in the set, and keys.
    pub(super) keys: SmallVec<[(usize, Key); 4]>,
    pub(super) after: After,
}

/// What becomes of a row then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It is there, and nobody has it.
    GiveFree,
    /// It can be used for another row.
    GiveBack,
    /// Its transaction keeps it by this lock.
    Lock(Claim),
    /// It stays claimed.
    Keep,
}

impl<M: Medium> Engine<M> {
    /// Remembers a row to be folded.
    pub(super) fn leave_garbage(&self, garbage: Garbage<M>) {
        self.garbage.lock(self.medium()).push_back(garbage);
    }

    /// Folds some rows that statements have left.
    pub(super) fn collect_left(&self) -> Result<()> {
        self.collect_some().map(drop)
    }

    /// Folds some rows if enough wait. Not of interest for the statement that is done: an error
    /// tells of the medium, or of damage, and who meets it next is told.
    pub(crate) fn collect_if_due(&self) {
        if self.garbage.lock(self.medium()).len() >= TOGETHER {
            let _ = self.collect_some();
        }
    }

    /// Folds all rows that can be folded now, and returns how often it did.
    pub(crate) fn collect(&self) -> Result<u64> {
        let mut sum = 0;
        loop {
            match self.collect_some()? {
                Progress { taken: 0, .. } => return Ok(sum),
                Progress { folded: 0, left, taken } if left == taken => return Ok(sum),
                progress => sum += progress.folded as u64,
            }
        }
    }

    /// Remembers all rows that have versions: those that an earlier process has left. Ends
    /// transactions whose time is over.
    pub(crate) fn sweep(&self) -> Result<()> {
        let swept = self.sweep_orphans();
        let tables = self.schema.lock(self.medium()).tables.clone();
        self.garbage.lock(self.medium()).clear();
        for table in tables {
            table.for_each_row(|row, _, committed| {
                if let State::Version(_) = committed.state() {
                    let table = Arc::clone(&table);
                    self.leave_garbage(Garbage { table, row, stamp: FOUND });
                }
                Ok(true)
            })?;
        }
        swept.map(drop)
    }

    /// Folds the rows of a tile that can be folded now. What cannot is not remembered: statements
    /// of this process have left theirs to be folded, and another look at the tile finds the rest.
    pub(super) fn fold_tile(&self, table: &Arc<Table<M>>, tile: u64) -> Result<()> {
        self.snapshots.expire(&self.stamps, self.clock.now_ms(self.medium()));
        let horizon = self.snapshots.horizon(&self.stamps);
        let versions = table.heads_of(tile).filter_map(|(row, _, head)| {
            let has_version = matches!(head.committed.state(), State::Version(_));
            has_version.then(|| Garbage { table: Arc::clone(table), row, stamp: FOUND })
        });
        let versions: Vec<Garbage<M>> = versions.collect();
        let mut failed = None;
        let mut versions = versions.into_iter();
        loop {
            let batch: Vec<_> = versions.by_ref().take(TOGETHER).collect();
            if batch.is_empty() {
                return failed.map_or(Ok(()), Err);
            }
            failed = failed.or(self.fold_all(batch, horizon)?.failed);
        }
    }

    /// Some of the rows that can be folded, as every snapshot sees that much.
    fn ready(&self, horizon: u64) -> Vec<Garbage<M>> {
        let mut garbage = self.garbage.lock(self.medium());
        let ready = garbage.iter().take(TOGETHER).take_while(|row| row.stamp <= horizon);
        let ready = ready.count();
        garbage.drain(..ready).collect()
    }

    /// Gives up transactions whose time is over, if rows wait that none can be folded of: nobody
    /// may ever come across what those have changed. Looks for them now and then. Says whether
    /// there were any.
    fn expire_those_in_the_way(&self, now_ms: u64) -> bool {
        // Relaxed: a number. Two threads may look at once.
        let before_ms = self.expired_ms.load(Ordering::Relaxed);
        // Another clock may show less.
        let is_due = now_ms < before_ms || now_ms - before_ms >= EXPIRY_MS;
        if !is_due || self.garbage.lock(self.medium()).is_empty() {
            return false;
        }
        self.expired_ms.store(now_ms, Ordering::Relaxed);
        self.expire_all()
    }

    /// Folds a few rows: for one fence, besides those for freeing.
    fn collect_some(&self) -> Result<Progress> {
        let now_ms = self.clock.now_ms(self.medium());
        self.snapshots.expire(&self.stamps, now_ms);
        let mut horizon = self.snapshots.horizon(&self.stamps);
        let mut batch = self.ready(horizon);
        if batch.is_empty() && self.expire_those_in_the_way(now_ms) {
            horizon = self.snapshots.horizon(&self.stamps);
            batch = self.ready(horizon);
        }
        let taken = batch.len();
        let Tried { folded, left, failed } = self.fold_all(batch, horizon)?;
        let progress = Progress { taken, folded, left: left.len() };
        self.garbage.lock(self.medium()).extend(left);
        failed.map_or(Ok(progress), Err)
    }

    /// Folds what can be folded of some rows. An error is returned at once if it tells of the
    /// medium.
    fn fold_all(&self, batch: Vec<Garbage<M>>, horizon: u64) -> Result<Tried<M>> {
        let mut tried = Tried { folded: 0, left: Vec::new(), failed: None };
        if batch.is_empty() {
            return Ok(tried);
        }
        let mut lane = self.heap.enter().prepare_for(SPARE + VERSIONS);
        let mut folded = Vec::new();
        for garbage in batch {
            match self.fold(&mut lane, garbage, horizon) {
                Ok(Fold::Done(row)) => folded.push(*row),
                Ok(Fold::Nothing) => {}
                Ok(Fold::Later(garbage)) => tried.left.push(garbage),
                // A damaged row stays as it is, and the others are folded.
                Err(error) => tried.failed = tried.failed.or(Some(error)),
            }
        }
        tried.folded = folded.len();
        let old_words = match folded.is_empty() {
            true => Vec::new(),
            false => self.publish_folded(&mut lane, folded, &mut tried.left)?,
        };
        drop(lane);
        for words in old_words {
            let removed = words.remove();
            tried.failed = tried.failed.or(removed.err());
        }
        Ok(tried)
    }

    /// Writes the cells of the newest state that every snapshot sees into the tile of a row, and
    /// makes suspects of the versions that this replaces. Claims the row.
    fn fold(&self, lane: &mut Lane<'_, M>, garbage: Garbage<M>, horizon: u64) -> Result<Fold<M>> {
        let (table, row) = (&garbage.table, garbage.row);
        let Some(place) = table.place(row) else { return Ok(Fold::Nothing) };
        if let Err(other) = table.try_claim(place, Claim::of_collector(self.opens), self.opens) {
            // Who ends a transaction leaves its rows here.
            let is_unwritten = |slot| self.is_unwritten(slot, (table.number, row));
            let is_left = other.as_pending().is_some()
                || other.locked_by().is_some() && table.note_to_fold(place, other)
                || other.holder().is_some_and(is_unwritten);
            return Ok(if is_left { Fold::Nothing } else { Fold::Later(garbage) });
        }
        let State::Version(offset) = table.committed(place).state() else {
            table.give_free(place);
            return Ok(Fold::Nothing);
        };
        let chain = table.version_of(offset, row, NEWEST).and_then(|newest| table.chain(newest));
        let chain = chain.inspect_err(|_| table.give_free(place))?;
        let seen = chain.iter().filter(|version| version.stamp <= horizon).count();
        let count = seen.min(lane.suspects_left().saturating_sub(SPARE));
        if count == 0 {
            table.give_free(place);
            let oldest = chain[chain.len() - 1].stamp;
            return Ok(match (seen, garbage.stamp) {
                (0, FOUND) => Fold::Later(Garbage { stamp: oldest, ..garbage }),
                (0, _) => Fold::Nothing,
                _ => Fold::Later(garbage),
            });
        }
        let (left, old) = chain.split_at(chain.len() - count);
        let set = table.indexes.load_full();
        let written = write_oldest(table, place, (left, old), &set);
        let [old_keys, keys] = written.inspect_err(|_| table.give_free(place))?;
        let suspects = old.iter().map(|version| lane.suspect(version.offset)).collect();
        let (newest, next) = (old[0], left.last().copied());
        let folded = Folded { garbage, place, newest, next, suspects, set, old_keys, keys };
        Ok(Fold::Done(Box::new(folded)))
    }

    /// Says that the tiles of rows have those cells, and gives the versions to be freed. Returns
    /// what is to be removed from indexes. Rows with more versions are left.
    fn publish_folded(
        &self,
        lane: &mut Lane<'_, M>,
        folded: Vec<Folded<M>>,
        left: &mut Vec<Garbage<M>>,
    ) -> Result<Vec<OldWords<M>>> {
        // Fence: the cells, before anything says that they are the newest; the suspects, before
        // nothing leads to them.
        lane.fence();
        if let Err(fault) = self.heap.verify() {
            // What could not be read is shown as zeros, which may have been written.
            for row in folded {
                row.suspects.into_iter().for_each(|suspect| lane.cancel(suspect));
                row.garbage.table.give_free(row.place);
            }
            return Err(fault.into());
        }
        let mut old_words = Vec::new();
        for row in folded {
            let Folded { garbage, place, newest, next, suspects, set, old_keys, keys } = row;
            let table = Arc::clone(&garbage.table);
            let is_removal = newest.is_removal;
            let committed = match is_removal {
                true => Committed::removed(newest.stamp),
                false => Committed::present(newest.stamp),
            };
            lane.flush_later(match next {
                Some(next) => table.end_chain_at(next, committed),
                None => table.publish(place, committed),
            });
            for suspect in suspects {
                lane.retire(suspect);
            }
            if let Some(next) = next {
                let (table, row) = (Arc::clone(&table), garbage.row);
                left.push(Garbage { table, row, stamp: next.stamp });
            }
            let words = old_keys_of(&table, &set, &old_keys, &keys, is_removal);
            if words.is_empty() && !is_removal {
                table.give_free(place);
                continue;
            }
            let after = if is_removal { After::GiveBack } else { After::GiveFree };
            let Garbage { table, row, .. } = garbage;
            old_words.push(OldWords { table, row, place, set, keys: words, after });
        }
        Ok(old_words)
    }
}

impl<M: Medium> OldWords<M> {
    /// Removes the words, and gives the row free.
    pub(super) fn remove(self) -> Result<()> {
        let OldWords { table, row, place, set, keys, after } = self;
        let remove = |(index, key): &(usize, Key)| {
            let index = &set.all()[*index];
            index.uses.count(Use::Change);
            index.rows.remove(key, row)
        };
        let removed = keys.iter().try_for_each(remove);
        match after {
            After::GiveFree => table.give_free(place),
            After::GiveBack => table.give_row_back(row, place),
            After::Lock(lock) => {
                table.claim_row(place, lock);
            }
            After::Keep => {}
        }
        removed
    }
}

/// The cells for keys of some states of a row.
type States = SmallVec<[[Group; 2]; 2]>;

/// Writes the newest of the oldest versions of a row into its tile. Returns the cells for keys that
/// these versions and the tile had, and those of the states that are left: none if the versions
/// have changed no key.
fn write_oldest<M: Medium>(
    table: &Table<M>,
    place: RowPlace,
    (left, old): (&[Version], &[Version]),
    set: &IndexSet<M>,
) -> Result<[States; 2]> {
    let needs_others = set.needs_others;
    let changes_keys = |of: &Version| of.is_removal || of.has[0] || needs_others && of.has[1];
    let has_new_keys = old.iter().any(changes_keys);
    let mut states = [States::new(), States::new()];
    if has_new_keys {
        states = [
            table.keys_of_versions(place, old, needs_others)?,
            table.keys_of_versions(place, left, needs_others)?,
        ];
        states[0].push(table.key_groups_in_tile(place, needs_others)?);
    }
    for group in 0..2 {
        let cells = old.iter().find_map(|version| table.own_group(*version, group));
        if let Some(cells) = cells {
            table.write_group(place, group, &cells)?;
        }
    }
    if has_new_keys {
        states[1].push(table.key_groups_in_tile(place, needs_others)?);
    }
    Ok(states)
}

/// What came of folding some rows.
struct Tried<M: Medium> {
    folded: usize,
    /// Rows that cannot be folded yet.
    left: Vec<Garbage<M>>,
    /// The first error. It tells of a row.
    failed: Option<Error>,
}

/// How far folding has come.
struct Progress {
    taken: usize,
    folded: usize,
    left: usize,
}

/// The keys in each index whose words a row had, and needs for no state that is left.
pub(super) fn old_keys_of<M: Medium>(
    table: &Table<M>,
    set: &IndexSet<M>,
    old: &[[Group; 2]],
    left: &[[Group; 2]],
    is_removal: bool,
) -> SmallVec<[(usize, Key); 4]> {
    let mut keys: SmallVec<[(usize, Key); 4]> = SmallVec::new();
    for (number, index) in set.all().iter().enumerate() {
        let (format, spec) = (&table.format, &index.spec);
        let left = if is_removal { &[] } else { left };
        let left_keys = OnceCell::new();
        let keys_of_left =
            || left.iter().filter_map(|of| index.key_of(format, key_cells(of))).collect();
        let is_left = |key: &Key| {
            // Most often, nothing has changed. But another key may have the same word.
            let of_left = || -> &Vec<Key> { left_keys.get_or_init(keys_of_left) };
            left.iter().any(|of| key.is_of(format, spec, key_cells(of)))
                || of_left().iter().any(|own| index.rows.is_one_word(own, key))
        };
        for cells in old {
            let Some(key) = index.key_of(&table.format, key_cells(cells)) else { continue };
            let word = (number, key);
            if !keys.contains(&word) && !is_left(&word.1) {
                keys.push(word);
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use remanent_pmem::Pool;

    use super::*;
    use crate::{
        Database, Durability, Table as Handle, TableSpec, Transaction, TransactionOptions, Type,
    };

    /// Pairs of keys of an index that have one word, where it may lie in the same bucket.
    fn keys_with_one_word(table: &Handle) -> Vec<(u64, u64)> {
        let index = table.core.index("by_code", None).unwrap();
        let key_of = |code: u64| {
            let write = |_, cell: &mut [u8]| {
                cell.copy_from_slice(&code.to_le_bytes());
                Ok(())
            };
            Key::of_cells(&table.core.format, &index.spec, write).unwrap()
        };
        let mut seen = HashMap::new();
        let mut found = Vec::new();
        for code in 0..300_000 {
            let key = key_of(code);
            if let Some(other) = seen.insert(index.rows.partition(key.hash, 27), code) {
                assert!(index.rows.is_one_word(&key, &key_of(other)));
                found.push((other, code));
            }
        }
        assert!(!index.rows.is_one_word(&key_of(found[0].0), &key_of(found[1].0)));
        found
    }

    #[test]
    fn a_row_keeps_a_word_that_its_new_key_has_in_common_with_the_old_one() {
        let pool = Pool::options().create_in_memory().unwrap();
        let database = Database::create(&pool, "d").unwrap();
        let spec = TableSpec::new("t")
            .column("id", Type::U32)
            .column("code", Type::U64)
            .primary_key(["id"])
            .unique("by_code", ["code"]);
        let table = database.create_table(&spec).unwrap();
        let pairs = keys_with_one_word(&table);
        assert!(pairs.len() > 100, "{}", pairs.len());
        let update = table.prepare_update("primary").unwrap();
        let by_code = table.prepare_get("by_code").unwrap();
        let is_found =
            |code: u64| by_code.run(&database.snapshot(), &[code.into()], |_| Ok(())).unwrap();
        for (id, (old, new)) in (0_u32..).zip(pairs) {
            table.insert(&[id.into(), old.into()]).unwrap();
            update.run(&[id.into()], |_, row| row.set(1, new)).unwrap();
            database.collect().unwrap();
            assert_eq!((is_found(old), is_found(new)), (None, Some(())), "{old} and {new}");
            // Nor if a transaction has given it both, and another one before.
            for (how, other) in [(Durability::AtCommit, 1), (Durability::EachStatement, 2)] {
                update.run(&[id.into()], |_, row| row.set(1, u64::MAX - other)).unwrap();
                database.collect().unwrap();
                let options = TransactionOptions::new().durability(how);
                let mut both = database.begin_with(&options).unwrap();
                let set = |by: &mut Transaction<'_>, code: u64| {
                    update.run_in(by, &[id.into()], |_, row| row.set(1, code)).map(drop)
                };
                both.batch(|batch| set(batch, old).and_then(|()| set(batch, new))).unwrap();
                both.commit().unwrap();
                assert_eq!((is_found(old), is_found(new)), (None, Some(())), "{old} and {new}");
                database.collect().unwrap();
                assert_eq!((is_found(old), is_found(new)), (None, Some(())), "{old} and {new}");
            }
            // Nor when the change is taken back.
            let mut given_up = database.begin().unwrap();
            update.run_in(&mut given_up, &[id.into()], |_, row| row.set(1, old)).unwrap();
            given_up.abort().unwrap();
            assert_eq!((is_found(old), is_found(new)), (None, Some(())), "{old} and {new}");
            assert!(table.prepare_delete("primary").unwrap().run(&[id.into()]).unwrap());
        }
        assert_eq!(database.check().unwrap(), []);
    }
}
