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

/// What [`convert`] does with a pool that has entries in maps of both types, because an older
/// version has served a pool of a newer one, and begun with none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TwoMaps {
    /// Changes nothing, with an error.
    #[default]
    Refuse,
    /// Keeps the entries of both. Of a key with two, it keeps that of the `HashMap`, which came
    /// later.
    Merge,
}

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
/// in maps of both types, unless [`TwoMaps::Merge`] is asked for.
pub fn convert<M: Medium>(
    pool: &Pool<M>,
    two_maps: TwoMaps,
    mut progress: impl FnMut(u64),
) -> Result<Option<u64>> {
    if Form::of(pool)? != Some(Form::HashMap) {
        remove(pool, CONVERSION_ROOT)?;
        return Ok(None);
    }
    let has_two = has_two_maps(pool)?;
    if pool.has_root(CONVERSION_ROOT)? {
        remove(pool, TABLE_ROOT)?;
    } else if !has_two {
        drop(HashMap::<[u8], [u8], M>::create(pool, CONVERSION_ROOT)?);
    }
    // Completes what a batch has left undone.
    let former: HashMap<[u8], [u8], M> = HashMap::open(pool, ROOT)?;
    let table = match has_two && two_maps == TwoMaps::Merge {
        true => ExtendibleMap::open(pool, TABLE_ROOT)?,
        // Refused if it is there: then it is no copy.
        false => ExtendibleMap::create(pool, TABLE_ROOT)?,
    };
    let copied = copy(&former, &table, &mut progress);
    drop(table);
    drop(former);
    if copied.is_err() && !has_two {
        // Nothing leads there, but it takes space.
        remove(pool, TABLE_ROOT)?;
        remove(pool, CONVERSION_ROOT)?;
    }
    let count = copied?;
    pool.remove_root(ROOT)?;
    remove(pool, CONVERSION_ROOT)?;
    Ok(Some(count))
}

/// Whether a pool has entries in maps of both types, neither of which is a copy.
///
/// # Errors
///
/// When a root's entry is damaged.
pub fn has_two_maps<M: Medium>(pool: &Pool<M>) -> Result<bool> {
    let is_copy = pool.has_root(CONVERSION_ROOT)?;
    Ok(!is_copy && pool.has_root(TABLE_ROOT)? && Form::of(pool)? == Some(Form::HashMap))
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
            count += u64::from(table.put(&key[..], &value[..])?);
        }
        progress(count);
        if cursor == 0 {
            return table.len();
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
