//! Which of the maps has a server's entries in a pool.

use std::fmt;

use remanent_pmem::{Error, Medium, Pool};

use super::{ROOT, TABLE_ROOT};

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
