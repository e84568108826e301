//! Open pools of this process. Each is open once, as long as a database or a journal in it is used.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remanent_pmem::{Durability, Error as PoolError, Options, Pool};

use crate::settings::Settings;
use crate::slowdown::Slowdown;
use crate::{Error, Result};

static OPEN: Mutex<BTreeMap<PathBuf, Weak<Pool>>> = Mutex::new(BTreeMap::new());

/// Takes a lock, even if a holder has panicked, because the protected state is always consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open pool. Dropping the last lease closes it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// `Some` until the lease is dropped.
    pool: Option<Arc<Pool>>,
    slowdown: Slowdown,
}

impl Lease {
    /// Opens the pool in a file, or shares it if it is open. `path` has no symbolic links.
    pub(crate) fn take(path: &Path, settings: &Settings, may_create: bool) -> Result<Self> {
        let mut open = lock(&OPEN);
        if let Some(pool) = open.get(path).and_then(Weak::upgrade) {
            let lease = Lease { pool: Some(pool), slowdown: settings.slowdown };
            drop(open);
            check_durability(&lease, settings)?;
            return Ok(lease);
        }
        let pool = Arc::new(open_or_create(path, settings, may_create)?);
        open.insert(path.to_owned(), Arc::downgrade(&pool));
        Ok(Lease { pool: Some(pool), slowdown: settings.slowdown })
    }
}

impl Lease {
    /// The simulated slowdown of the pool.
    pub(crate) fn slowdown(&self) -> Slowdown {
        self.slowdown
    }
}

impl Deref for Lease {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        self.pool.as_ref().expect("it is there until the lease is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The next opener must find the pool open or closed, and not in between.
        let mut open = lock(&OPEN);
        self.pool = None;
        open.retain(|_, pool| pool.strong_count() > 0);
    }
}

/// Checks that an open pool has the requested durability.
pub(crate) fn check_durability(pool: &Pool, settings: &Settings) -> Result<()> {
    let open = pool.guarantee().durability;
    match settings.durability {
        Some(asked) if asked != open => {
            Err(Error::OtherDurability { pool: pool.path().to_owned(), open, asked })
        }
        _ => Ok(()),
    }
}

fn open_or_create(path: &Path, settings: &Settings, may_create: bool) -> Result<Pool> {
    let is_missing = |error: &PoolError| {
        let kind = match error {
            PoolError::Io { source, .. } => source.kind(),
            _ => return false,
        };
        kind == std::io::ErrorKind::NotFound
    };
    match open(path, settings) {
        Err(error) if may_create && is_missing(&error) => Ok(create(path, settings)?),
        opened => Ok(opened?),
    }
}

/// Opens a pool with the requested durability, or else with its own.
fn open(path: &Path, settings: &Settings) -> Result<Pool, PoolError> {
    let options = Pool::options().emulation(settings.emulation);
    if let Some(durability) = settings.durability {
        return options.durability(durability).open(path);
    }
    let pool = options.clone().open(path)?;
    match pool.info()?.created_durability {
        Durability::Process => Ok(pool),
        Durability::Power => {
            drop(pool);
            options.durability(Durability::Power).open(path)
        }
    }
}

/// Creates a pool with the requested durability, or else with the best that its backing can give:
/// users of SQLite expect a transaction to survive a power failure.
fn create(path: &Path, settings: &Settings) -> Result<Pool, PoolError> {
    let options = Options::new().emulation(settings.emulation);
    let options = match settings.size {
        Some(size) => options.size_max(size),
        None => options,
    };
    if let Some(durability) = settings.durability {
        return options.durability(durability).open_or_create(path);
    }
    match options.clone().durability(Durability::Power).open_or_create(path) {
        Err(PoolError::Unsupported { .. }) => options.open_or_create(path),
        made => made,
    }
}
