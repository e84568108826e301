//! Which roots are open in this process, and where their names are; volatile.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Weak;

use crate::pool::layout::RootId;

/// Held by whoever creates, opens or removes a root.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Objects of the roots that are open.
    pub(super) open: HashMap<RootId, Weak<dyn Any + Send + Sync>>,
    /// Roots by name, from when they are first asked for.
    pub(super) names: Option<HashMap<String, RootId>>,
    /// As many entries from the first one on are in use.
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
