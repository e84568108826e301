//! Giving the entries of an older pool the map that new pools have.
//!
//! The two maps have roots of different names. As long as there is the former, it has the entries.
//! A third root says that the latter is a copy, which a crash may have left incomplete. Removing
//! the former root is one step.

use remanent_pmem::{Error as PoolError, Medium, Pool};
use remanent_structures::{ExtendibleMap, HashMap, Result};

use super::{CONVERSION_ROOT, Form, ROOT, TABLE_ROOT};

/// Entries that are copied between two calls of `progress`.
const PART: usize = 1024;

/// Moves a server's entries from a `HashMap` to an `ExtendibleMap`. Returns how many there are, or
/// `None` if the pool has no entries in a `HashMap`: it was made by a newer version, or converted
/// before.
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
/// in maps of both types, because an older version has served a pool of a newer one: nothing is
/// removed.
pub fn convert<M: Medium>(pool: &Pool<M>, mut progress: impl FnMut(u64)) -> Result<Option<u64>> {
    if Form::of(pool)? != Some(Form::HashMap) {
        forget_conversion(pool)?;
        return Ok(None);
    }
    if pool.has_root(CONVERSION_ROOT)? {
        remove(pool, TABLE_ROOT)?;
    } else if !pool.has_root(TABLE_ROOT)? {
        drop(HashMap::<[u8], [u8], M>::create(pool, CONVERSION_ROOT)?);
    }
    // Completes what a batch has left undone.
    let former: HashMap<[u8], [u8], M> = HashMap::open(pool, ROOT)?;
    // Refused if it is there: then it is no copy.
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
    Ok(Some(count))
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
