//! Which of the maps has a server's entries in a pool.

use std::fmt;

use remanent_pmem::{Error, Medium, Pool};

use super::{CONVERSION_ROOT, ROOT, TABLE_ROOT};

/// The map that has a server's entries in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An `ExtendibleMap`, whose writes are durable when they return: for
    /// [`MapStore`](super::MapStore).
    ExtendibleMap,
    /// A `HashMap`, of a pool that an older version made. Its writes are durable when they return:
    /// for [`MapStore`](super::MapStore), too.
    HashMap,
    /// A `BatchMap`, whose writes become safe in batches: for [`BatchStore`](super::BatchStore).
    BatchMap,
}

impl Form {
    /// The map in `pool`; `None` if it has none yet, or something else under the same root.
    ///
    /// # Errors
    ///
    /// When a root's entry is damaged.
    pub fn of<M: Medium>(pool: &Pool<M>) -> Result<Option<Form>, Error> {
        let roots = pool.info()?.roots;
        let type_of = |name: &str| {
            let root = roots.iter().find(|root| root.name == name)?;
            root.root_type.name.split('<').next()
        };
        Ok(match (type_of(ROOT), type_of(TABLE_ROOT)) {
            (Some("HashMap"), _) => Some(Form::HashMap),
            (Some("BatchMap"), _) => Some(Form::BatchMap),
            (None, Some("ExtendibleMap")) => Some(Form::ExtendibleMap),
            _ => None,
        })
    }
}

impl Form {
    /// Whether writes become safe in batches, after they were acknowledged.
    #[must_use]
    pub fn is_batched(self) -> bool {
        self == Form::BatchMap
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::ExtendibleMap => "ExtendibleMap",
            Form::HashMap => "HashMap",
            Form::BatchMap => "BatchMap",
        })
    }
}

/// Whether a pool has entries in maps under both of the roots that a server may use, because an
/// older version has served a pool of a newer one, and begun with none.
///
/// Neither can be served. It would hide the entries of the other, and the sorted sets that the
/// other names would be removed. If the older version has stored nothing,
/// [`convert`](super::convert) removes its map.
///
/// # Errors
///
/// When a root's entry is damaged.
pub fn has_two_maps<M: Medium>(pool: &Pool<M>) -> Result<bool, Error> {
    // Beside this root, the newer map is a copy that a conversion has not finished.
    let is_copy = pool.has_root(CONVERSION_ROOT)? && Form::of(pool)? == Some(Form::HashMap);
    Ok(!is_copy && pool.has_root(ROOT)? && pool.has_root(TABLE_ROOT)?)
}

pub(super) fn refuse_two_maps<M: Medium>(pool: &Pool<M>) -> Result<(), Error> {
    if has_two_maps(pool)? {
        let found = Form::ExtendibleMap.to_string();
        return Err(Error::RootExists { name: TABLE_ROOT.to_owned(), found });
    }
    Ok(())
}
