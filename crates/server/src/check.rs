//! The check of what a server keeps in a pool, beyond the checks of the structures themselves.

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BatchOptions, Error};

use crate::store::{Form, TREE_ROOT, has_two_maps};
use crate::{BatchStore, Keyspace, MapStore, Store};

const TWO_MAPS: &str = "the pool has entries in two maps, because an older version has served it \
    since a newer one: serve a copy of the pool from before that; if the older version has stored \
    nothing, convert the pool";

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
    if has_two_maps(pool)? {
        return Ok(vec![TWO_MAPS.to_owned()]);
    }
    if !pool.has_root(TREE_ROOT)? {
        return Ok(Vec::new());
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
