//! Giving the entries of an older pool the map that new pools have.
//!
//! The two maps have roots of different names. As long as there is the former, it has the entries.
//! A third root says that the latter is a copy, which a crash may have left incomplete. Removing
//! the former root is one step.

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{BatchMap, BatchOptions, ExtendibleMap, HashMap, Result};

use super::form::refuse_two_maps;
use super::{CONVERSION_ROOT, Form, ROOT, TABLE_ROOT, has_two_maps};

/// Entries that are copied between two calls of `progress`.
const PART: usize = 1024;

/// What [`convert`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// So many entries, which were in a `HashMap`, are in an `ExtendibleMap`.
    Moved(u64),
    /// The empty map of an older version is removed, which stood beside the entries of a newer one.
    EmptyRemoved,
    /// Nothing: the pool was made by a newer version, was converted before, or is served batched.
    Unneeded,
}

/// Moves a server's entries from a `HashMap` to an `ExtendibleMap`.
///
/// Nobody may use the pool meanwhile. A crash at any moment loses nothing: afterwards the entries
/// are in the one map or in the other, and another call completes the conversion. `progress` is
/// called with the number of entries that are copied.
///
/// # Errors
///
/// When the pool has no room for both maps, which take about as much as they did before: the
/// entries stay where they are. [`RootInUse`](remanent_pmem::Error::RootInUse) when somebody has
/// opened the entries. [`RootExists`](remanent_pmem::Error::RootExists) when the pool has entries
/// in two maps, because an older version has served a pool of a newer one: nothing is removed.
pub fn convert<M: Medium>(pool: &Pool<M>, mut progress: impl FnMut(u64)) -> Result<Conversion> {
    if has_two_maps(pool)? && is_older_empty(pool)? {
        pool.remove_root(ROOT)?;
        return Ok(Conversion::EmptyRemoved);
    }
    refuse_two_maps(pool)?;
    if Form::of(pool)? != Some(Form::HashMap) {
        forget_conversion(pool)?;
        return Ok(Conversion::Unneeded);
    }
    if pool.has_root(CONVERSION_ROOT)? {
        remove(pool, TABLE_ROOT)?;
    } else {
        drop(HashMap::<[u8], [u8], M>::create(pool, CONVERSION_ROOT)?);
    }
    // Completes what a batch has left undone.
    let former: HashMap<[u8], [u8], M> = HashMap::open(pool, ROOT)?;
    let table = ExtendibleMap::create(pool, TABLE_ROOT)?;
    let copied = copy(&former, &table, &mut progress);
    drop(table);
    drop(former);
    if copied.is_err() {
        // Nothing leads there, but it takes space.
        remove(pool, TABLE_ROOT)?;
        remove(pool, CONVERSION_ROOT)?;
    }
    let count = copied?;
    pool.remove_root(ROOT)?;
    forget_conversion(pool)?;
    Ok(Conversion::Moved(count))
}

/// Whether the map under the older root has no entry.
fn is_older_empty<M: Medium>(pool: &Pool<M>) -> Result<bool> {
    match Form::of(pool)? {
        Some(Form::HashMap) => HashMap::<[u8], [u8], M>::open(pool, ROOT)?.is_empty(),
        Some(Form::BatchMap) => {
            let options = BatchOptions::without_thread();
            BatchMap::<[u8], [u8], M>::open(pool, ROOT, options)?.is_empty()
        }
        Some(Form::ExtendibleMap) | None => Ok(false),
    }
}

/// Forgets that a map was a copy, which is the only one now. A crash may have come before that.
pub(super) fn forget_conversion<M: Medium>(pool: &Pool<M>) -> Result<()> {
    remove(pool, CONVERSION_ROOT)
}

fn copy<M: Medium>(
    former: &HashMap<[u8], [u8], M>,
    table: &ExtendibleMap<[u8], [u8], M>,
    progress: &mut impl FnMut(u64),
) -> Result<u64> {
    let (mut cursor, mut count) = (0, 0);
    loop {
        let mut part: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(PART);
        cursor =
            former.scan(cursor, PART, |key, value| part.push((key.to_vec(), value.to_vec())))?;
        for (key, value) in part {
            count += u64::from(table.insert(&key[..], &value[..])?);
        }
        progress(count);
        if cursor == 0 {
            return Ok(count);
        }
    }
}

/// Removes a root, if it is there.
fn remove<M: Medium>(pool: &Pool<M>, root: &str) -> Result<()> {
    match pool.remove_root(root) {
        Ok(()) | Err(PoolError::NoSuchRoot { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
