//! Changes to several keys as one.

use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

use super::Keyspace;
use super::types::Reference;
use crate::store::{Edit, Store, StoreError};

impl<S: Store> Keyspace<S> {
    /// Stores values and removes keys of any type. Returns for each edit whether its key was
    /// present.
    ///
    /// A crash leaves all edits or none, if the store supports that ([`Store::apply`]). Other
    /// clients see the keys change one after the other.
    pub(crate) fn edit_all(&self, edits: &[Edit<'_>]) -> Result<Vec<bool>, StoreError> {
        // While these locks are held, no key becomes a collection, and no collection goes away.
        // They are taken in the order of their numbers, as by every command that takes several.
        let numbers: BTreeSet<usize> =
            edits.iter().map(|edit| self.shard_number(edit.key)).collect();
        let mut shards: Vec<_> = numbers
            .iter()
            .map(|&number| (number, self.shards[number].write(&self.store)))
            .collect();
        for (_, shard) in &mut shards {
            // A change that cannot be finished for lack of room may be to one of these collections.
            // It goes away with the collection.
            let _ = self.finish(shard);
        }
        let mut replaced = Vec::new();
        for edit in edits {
            let reference = self.store.get_with(edit.key, Reference::read)?.flatten();
            replaced.extend(reference.map(|reference| (self.shard_number(edit.key), reference.id)));
        }
        let presence = self.store.apply(edits)?;
        replaced.sort_unstable();
        replaced.dedup();
        for (number, id) in replaced {
            if let Some((_, shard)) = shards.iter_mut().find(|(other, _)| *other == number) {
                self.remove_entries(shard, id);
            }
        }
        Ok(presence)
    }

    fn shard_number(&self, name: &[u8]) -> usize {
        xxh3_64(name) as usize % self.shards.len()
    }
}
