//! The open roots of this process, and the places of names; volatile.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Weak;

use crate::pool::layout::RootId;

/// Held to create, open or remove a root.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Objects of the open roots.
    pub(super) open: HashMap<RootId, Weak<dyn Any + Send + Sync>>,
    /// Roots by name, once a name was asked for.
    pub(super) names: Option<HashMap<String, RootId>>,
    /// All entries before this index are in use.
    pub(super) taken_before: u16,
}

impl Registry {
    pub(super) fn add_name(&mut self, name: &str, id: RootId) {
        if let Some(names) = &mut self.names {
            names.insert(name.to_owned(), id);
        }
    }

    pub(super) fn remove_name(&mut self, name: &str, id: RootId) {
        if let Some(names) = &mut self.names {
            names.remove(name);
        }
        self.open.remove(&id);
        self.taken_before = self.taken_before.min(id.0 - 1);
    }
}
