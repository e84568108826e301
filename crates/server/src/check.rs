//! The check of what a server keeps in a pool, beyond the checks of the structures themselves.

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BatchOptions, Error};

use crate::store::{Form, TREE_ROOT, has_two_maps};
use crate::{BatchStore, Keyspace, MapStore, Store};

/// Checks the collections, such as sorted sets, in a server's pool, and returns what contradicts
/// itself, in words. A pool without collections, or of another program, has no contradictions.
///
/// Opens the keyspace, which completes the changes that a crash interrupted. Takes memory for the
/// content of all collections.
///
/// # Errors
///
/// When a root's entry is damaged, or a structure cannot be opened.
pub fn check_collections<M: Medium>(pool: &Pool<M>) -> Result<Vec<String>, Error> {
    if !pool.roots()?.iter().any(|root| root.name == TREE_ROOT) {
        return Ok(Vec::new());
    }
    if has_two_maps(pool)? {
        let what = "the pool has entries in two maps: an older version has served it since a newer";
        return Ok(vec![what.to_owned()]);
    }
    let found = match Form::of(pool)? {
        None => return Ok(Vec::new()),
        Some(Form::ExtendibleMap | Form::HashMap) => MapStore::open(pool).map(check),
        Some(Form::BatchMap) => BatchStore::open(pool, BatchOptions::without_thread()).map(check),
    };
    match found {
        // The roots have the names of a server's, but other types: the pool is not a server's.
        Err(Error::Pool(PoolError::WrongType { .. })) => Ok(Vec::new()),
        found => found,
    }
}

fn check(store: impl Store) -> Vec<String> {
    let found = Keyspace::open(store).and_then(|keys| keys.check());
    found.unwrap_or_else(|error| vec![error.to_string()])
}
