//! Checking what a server keeps in a pool beyond what its structures check of themselves.

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BatchOptions, Error};

use crate::store::{Form, TREE_ROOT};
use crate::{BatchStore, Keyspace, MapStore, Store};

/// What contradicts itself in the sorted sets of a server's pool, in words; nothing where the pool is not a
/// server's or has no sorted sets.
///
/// Opens the keyspace, which completes what a crash left half done. Takes memory for the members of all sets.
///
/// # Errors
///
/// When a root's entry is damaged, or a structure cannot be opened.
pub fn check_collections<M: Medium>(pool: &Pool<M>) -> Result<Vec<String>, Error> {
    if !pool.roots()?.iter().any(|root| root.name == TREE_ROOT) {
        return Ok(Vec::new());
    }
    let found = match Form::of(pool)? {
        None => return Ok(Vec::new()),
        Some(Form::HashMap) => MapStore::open(pool).map(check),
        Some(Form::BatchMap) => BatchStore::open(pool, BatchOptions::without_thread()).map(check),
    };
    match found {
        // Names that a server uses, and types that it does not.
        Err(Error::Pool(PoolError::WrongType { .. })) => Ok(Vec::new()),
        found => found,
    }
}

fn check(store: impl Store) -> Vec<String> {
    let found = Keyspace::open(store).and_then(|keys| keys.check());
    found.unwrap_or_else(|error| vec![error.to_string()])
}
