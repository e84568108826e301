//! What programs use: how a database is opened.

use std::sync::Arc;

use remanent_pmem::{Error as PoolError, Medium, Pool};

use super::Database;
use crate::rebuild::Rebuild;
use crate::root::Root;
use crate::{Error, Result};

/// How a database is opened.
///
/// ```
/// use remanent_engine::{Database, Placement, Rebuild, TableSpec, Type};
/// use remanent_pmem::Pool;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("bank.pool");
/// # let pool = Pool::options().create(&path)?;
/// let bank = Database::create(&pool, "bank")?;
/// let spec = TableSpec::new("accounts")
///     .column("number", Type::U32)
///     .primary_key(["number"])
///     .place(["primary"], Placement::Dram);
/// bank.create_table(&spec)?.insert(&[7.into()])?;
/// drop((bank, pool));
///
/// let pool = Pool::options().open(&path)?;
/// let bank = Database::options().rebuild(Rebuild::Background).open(&pool, "bank")?;
/// let get = bank.table("accounts")?.prepare_get("primary")?; // at once
/// assert!(get.run(&bank.snapshot(), &[7.into()], |_| Ok(()))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    rebuild: Rebuild,
    threads: usize,
}

impl DatabaseOptions {
    /// The usual ones: opening rebuilds indexes in DRAM, by its own thread.
    pub const fn new() -> Self {
        DatabaseOptions { rebuild: Rebuild::Wait, threads: 1 }
    }

    /// Who rebuilds indexes in DRAM, and when.
    #[must_use]
    pub const fn rebuild(mut self, rebuild: Rebuild) -> Self {
        self.rebuild = rebuild;
        self
    }

    /// By how many threads. One at least.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Opens an existing database, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or the database is damaged.
    pub fn open<M: Medium>(&self, pool: &Pool<M>, name: &str) -> Result<Database<M>> {
        let engine: Arc<Root<M>> = pool.open_root(name)?;
        engine.rebuild(self.rebuild, self.threads)?;
        engine.clock.begin(engine.medium());
        Ok(Database { engine })
    }

    /// Opens a database, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](DatabaseOptions::open), and when the pool is full.
    pub fn open_or_create<M: Medium>(&self, pool: &Pool<M>, name: &str) -> Result<Database<M>> {
        match self.open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Database::create(pool, name),
            opened => opened,
        }
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self::new()
    }
}
