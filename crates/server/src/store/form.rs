//! Which of the two maps has a server's entries in a pool.

use std::fmt;

use remanent_pmem::{Error, Medium, Pool};

use super::ROOT;

/// The map that has a server's entries in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A `HashMap`, whose writes are durable when they return: for [`MapStore`](super::MapStore).
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
        let root = roots.into_iter().find(|root| root.name == ROOT);
        Ok(root.and_then(|root| match root.root_type.name.split('<').next() {
            Some("HashMap") => Some(Form::HashMap),
            Some("BatchMap") => Some(Form::BatchMap),
            _ => None,
        }))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::HashMap => "HashMap",
            Form::BatchMap => "BatchMap",
        })
    }
}
