//! The pool of a trial.

use std::path::Path;

use anyhow::{Result, ensure};
use remanent_engine::{Database, DatabaseOptions, Rebuild};
use remanent_pmem::{Durability, Emulation, Options, Pool};

use super::placed;
use super::plan::placements;
use crate::{Client, Population, Tables};

pub(super) const FILE: &str = "tatp.pool";
/// Name of the database in its pool.
pub const ROOT: &str = "tatp";
/// Size beyond which no pool grows, unless it has more subscribers than this is for.
const SIZE_MAX: u64 = 12 << 30;
/// Room for each subscriber of larger populations: several times what its rows take.
const BYTES_PER_SUBSCRIBER: u64 = 8 << 10;
/// Threads that rebuild indexes for a check.
const CHECK_THREADS: usize = 2;

pub(super) fn pool_options(emulation: Emulation) -> Options {
    Pool::options().durability(Durability::Process).emulation(emulation)
}

/// Creates the database in `directory` with about `percent` of its index entries in the pool.
/// Calls `watch` now and then with the number of rows that are loaded.
///
/// # Errors
///
/// When the pool cannot be created or has no room, or `watch` fails.
pub fn load(
    directory: &Path,
    population: &Population,
    percent: u32,
    watch: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Pool> {
    let size_max = SIZE_MAX.max(u64::from(population.count()) * BYTES_PER_SUBSCRIBER);
    let pool = pool_options(Emulation::Nvram).size_max(size_max).create(directory.join(FILE))?;
    let database = Database::create(&pool, ROOT)?;
    let (specs, _) = placed(percent);
    let tables = Tables::create_as(&database, &specs)?;
    let mut watched = Ok(());
    population.load_while(&tables, |row_count| {
        watched = watch(row_count);
        watched.is_ok()
    })?;
    watched.map(|()| pool)
}

/// Moves indexes of the database that [`load`] has made in this directory, so that about `percent`
/// of its index entries are in the pool: as if it had been loaded so.
///
/// # Errors
///
/// When the pool cannot be opened or has no room.
pub fn place(directory: &Path, percent: u32) -> Result<()> {
    let pool = open_pool(directory)?;
    let database = DatabaseOptions::new().rebuild(Rebuild::Steps).open(&pool, ROOT)?;
    for (table, index, placement) in placements(percent).0 {
        database.place_index(&database.table(table)?, index, placement)?;
    }
    Ok(())
}

/// Opens the pool that [`load`] has made in this directory, without emulated latency.
///
/// # Errors
///
/// When there is none, or somebody has it open.
pub fn open_pool(directory: &Path) -> Result<Pool> {
    Ok(pool_options(Emulation::Nvram).open(directory.join(FILE))?)
}

/// Checks that every row has the row that it belongs to.
///
/// # Errors
///
/// When one has not, or the database cannot be opened.
pub fn check(directory: &Path) -> Result<()> {
    let pool = open_pool(directory)?;
    let database = DatabaseOptions::new().threads(CHECK_THREADS).open(&pool, ROOT)?;
    let wrong = Client::new(&database)?.check()?;
    ensure!(wrong.is_empty(), "the tables contradict themselves: {wrong:?}");
    Ok(())
}
