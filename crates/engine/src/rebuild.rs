//! Rebuilding the indexes in DRAM once the database is opened: who does it, and when.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use crate::Result;
use crate::engine::Engine;
use crate::table::Table;

/// Who rebuilds the [indexes in DRAM](crate::Placement::Dram) when a database is opened, and when.
///
/// Nobody has to wait for it: who looks for a row that an index does not lead to yet reads tiles
/// that are left until the row is found, and no tile is read twice. Looking for a row that is not
/// there, or for all rows with a key, means to read all of them. What was read is found from then
/// on. The first statement that gives a value to an encoded column whose
/// [dictionary index](crate::TableSpec::place_dictionaries) lies in DRAM does wait: it adds the
/// rest of the values to the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebuild {
    /// Opening does, and returns when it is done.
    #[default]
    Wait,
    /// Threads of their own do, while the database is used already.
    Background,
    /// The program does, by [`Database::rebuild_step`](crate::Database::rebuild_step).
    Steps,
}

/// What a thread has found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A part, which it has done.
    Done,
    /// Nothing at the moment: others have begun with all that is left of a step.
    OfOthers,
    /// Nothing is left that can be rebuilt.
    None,
}

/// How far rebuilding has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Tiles, of about a thousand rows each, that were there when the database was opened, of
    /// tables with an index in DRAM. Indexes of [dictionaries](crate::TableSpec::encoded) do not
    /// count.
    pub tiles: u64,
    /// Those that are not in the indexes yet. What was read and is not in an index counts half.
    pub tiles_left: u64,
}

impl<M: Medium> Engine<M> {
    /// Does a part of the rebuilding. What a transaction needs that goes on comes first.
    fn rebuild_part(&self) -> Result<Part> {
        let tables = self.schema.lock(self.medium()).tables.clone();
        let (first, others): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|table| table.rebuilding.is_first());
        let of_first = self.rebuild_part_of(&first);
        if matches!(of_first, Ok(Part::Done)) {
            return of_first;
        }
        // Others are rebuilt all the same if that has failed.
        let of_others = self.rebuild_part_of(&others)?;
        if of_others == Part::Done {
            return Ok(Part::Done);
        }
        match of_first? {
            Part::None => Ok(of_others),
            of_first => Ok(of_first),
        }
    }

    /// Reads tiles of the table that is wanted most; or if all are read, adds values to the index
    /// of a dictionary, or a part of what was read to the index that is wanted most.
    fn rebuild_part_of(&self, tables: &[Arc<Table<M>>]) -> Result<Part> {
        let mut unread: Vec<_> = tables.iter().filter(|of| !of.rebuilding.is_over()).collect();
        unread.sort_by_key(|table| Reverse(table.rebuilding.wanted()));
        for table in &unread {
            if let Some(taken) = table.rebuilding.take_any() {
                let begin = Instant::now();
                let words = table.read_tiles(taken)?;
                self.rebuild_cost.note_read(begin, words);
                return Ok(Part::Done);
            }
        }
        let (mut is_indexed, mut failed) = (true, None);
        for dictionary in tables.iter().flat_map(|table| table.unindexed()) {
            is_indexed = false;
            let begin = Instant::now();
            match dictionary.rebuild_part() {
                Ok(Some(values)) => {
                    self.rebuild_cost.note_values(begin, values);
                    return Ok(Part::Done);
                }
                Ok(None) => {}
                // Others are rebuilt all the same.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut unfinished = Vec::new();
        for table in tables.iter().filter(|table| table.rebuilding.is_over()) {
            let set = table.indexes.load();
            let indexes = set.all().iter().filter(|index| !index.has_all_read());
            unfinished.extend(indexes.map(|index| Arc::clone(&index.index)));
        }
        unfinished.sort_by_key(|index| Reverse(index.wanted()));
        for index in &unfinished {
            let begin = Instant::now();
            if let Some(words) = index.add_any_partition()? {
                self.rebuild_cost.note_added(begin, words);
                return Ok(Part::Done);
            }
        }
        failed.map_or(Ok(()), Err)?;
        // Whoever has the last groups of tiles may be a statement, which adds nothing.
        let is_over = is_indexed && unread.is_empty() && unfinished.is_empty();
        Ok(if is_over { Part::None } else { Part::OfOthers })
    }

    /// Does a part of the rebuilding, or lets others go on with theirs for a moment. Whether
    /// something is left to be done, perhaps.
    pub(crate) fn rebuild_step(&self) -> Result<bool> {
        let part = self.rebuild_part()?;
        if part == Part::OfOthers {
            self.medium().pause();
        }
        Ok(part != Part::None)
    }

    /// Rebuilds all indexes in DRAM, by so many threads. Waits for those that others have begun
    /// with.
    pub(crate) fn rebuild(&self, threads: usize) -> Result<()> {
        let work = || -> Result<()> {
            while self.rebuild_step()? {}
            Ok(())
        };
        let mut done = Ok(());
        if threads > 1 {
            done = thread::scope(|scope| {
                // Without a thread, this one does more.
                let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
                let others: Vec<_> = (1..threads).filter_map(spawn).collect();
                let own = work();
                let joined = others.into_iter().map(|other| match other.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                joined.fold(own, Result::and)
            });
        }
        done?;
        while self.has_to_rebuild() {
            // What others have begun with, and given up.
            work()?;
            self.medium().pause();
        }
        Ok(())
    }

    /// Whether something is left to be rebuilt.
    pub(crate) fn has_to_rebuild(&self) -> bool {
        let tables = self.schema.lock(self.medium()).tables.clone();
        self.rebuild_progress().tiles_left > 0
            || tables.iter().any(|table| table.unindexed().next().is_some())
    }

    /// What a thread beside the program does until nothing is left, or it is stopped.
    fn work_beside(&self, stop: &AtomicBool) {
        let mut nap = NAP;
        // Acquire: partner of the store in `drop`.
        while !stop.load(Ordering::Acquire) {
            match self.rebuild_part() {
                // Threads of the program come first: they add to the indexes what they want.
                Ok(Part::Done) => {
                    nap = NAP;
                    thread::yield_now();
                }
                Ok(Part::OfOthers) => thread::sleep(NAP),
                // There may be memory later. Each attempt reads a group of tiles again.
                Err(error) if error.is_full() => {
                    thread::sleep(nap);
                    nap = (2 * nap).min(NAP_MAX);
                }
                // What fails is left: who looks for a row that the index lacks is told the same.
                Ok(Part::None) | Err(_) => return,
            }
        }
    }

    pub(crate) fn rebuild_progress(&self) -> RebuildProgress {
        let schema = self.schema.lock(self.medium());
        let mut sum = RebuildProgress { tiles: 0, tiles_left: 0 };
        for table in &schema.tables {
            let (unread, tiles) = table.rebuilding.progress();
            let (mut left, mut all) = (0, 0);
            for (left_of_index, of_index) in
                table.indexes.load().all().iter().filter_map(|index| index.backlog_progress())
            {
                left += left_of_index;
                all += of_index;
            }
            // What was read counts half until it is in the indexes.
            let unfinished = (tiles * left).div_ceil(all.max(1));
            sum.tiles += tiles;
            sum.tiles_left += if all == 0 { unread } else { (unread + unfinished).div_ceil(2) };
        }
        sum
    }
}

/// How long a thread beside the program lets others go on.
const NAP: Duration = Duration::from_millis(1);
/// The same at the most, while there is no memory.
const NAP_MAX: Duration = Duration::from_millis(256);

/// Threads that rebuild indexes. Dropping them stops them, and waits for their end.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    stop: Arc<AtomicBool>,
    threads: PauseMutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts so many, unless some are at work.
    pub(crate) fn start<M: Medium>(&self, engine: &Arc<Engine<M>>, count: usize) {
        let mut threads = self.threads.lock(engine.medium());
        threads.retain(|thread| !thread.is_finished());
        if !threads.is_empty() {
            return;
        }
        for _ in 0..count.max(1) {
            let (engine, stop) = (Arc::clone(engine), Arc::clone(&self.stop));
            let work = move || engine.work_beside(&stop);
            let spawned = thread::Builder::new().name("remanent-rebuild".to_owned()).spawn(work);
            // Without a thread, rows are looked for in the tiles.
            threads.extend(spawned);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Release: partner of the load in `work_beside`.
        self.stop.store(true, Ordering::Release);
        let threads = self.threads.try_lock().map(|mut threads| std::mem::take(&mut *threads));
        for thread in threads.into_iter().flatten() {
            // A panic was told already, and what is left undone is looked for in the tiles.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Pool;

    use super::*;
    use crate::schema::PRIMARY;
    use crate::{Database, DatabaseOptions, Placement, Resumed, TableSpec, Type};

    #[test]
    fn what_a_transaction_needs_that_goes_on_is_rebuilt_first() {
        let pool = Pool::options().create_in_memory().unwrap();
        let database = Database::create(&pool, "d").unwrap();
        for name in ["other", "own", "third"] {
            let spec = TableSpec::new(name).column("id", Type::U32).primary_key(["id"]);
            let spec = spec.place([PRIMARY], Placement::Dram).tile_rows(8);
            let table = database.create_table(&spec).unwrap();
            for id in 0..2_000_u32 {
                table.insert(&[id.into()]).unwrap();
            }
        }
        let mut open = database.begin().unwrap();
        database.table("own").unwrap().insert_in(&mut open, &[9_999_u32.into()]).unwrap();
        let token = open.suspend();
        drop(database);
        let database = DatabaseOptions::new().rebuild(Rebuild::Steps).open(&pool, "d").unwrap();
        let table = |name: &str| database.table(name).unwrap();
        // Others are looked for again and again.
        let get = table("other").prepare_get(PRIMARY).unwrap();
        for id in 0..200_u32 {
            get.run(&database.snapshot(), &[id.into()], |_| Ok(())).unwrap().unwrap();
        }
        let has_all = |name: &str| {
            let core = &table(name).core;
            core.rebuilding.is_done()
                && core.indexes.load().all().iter().all(|of| of.has_all_read())
        };
        while !has_all("own") {
            assert!(database.rebuild_step().unwrap());
            assert_eq!(table("third").core.rebuilding.progress(), (250, 250), "none of its tiles");
        }
        let Resumed::Open(open) = database.resume(token).unwrap() else { panic!("it is over") };
        open.commit().unwrap();
        while database.rebuild_step().unwrap() {}
        assert!(has_all("other") && has_all("third"));
        assert_eq!(database.check().unwrap(), []);
    }
}
