//! What must hold of the collections: the store and the tree agree, and each collection with
//! itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;

use remanent_structures::OrderedMap;

use super::Keyspace;
use super::layout::{CollectionId, name_in};
use super::shard::Unfinished;
use super::tree::onward;
use super::types::{Contents, Reference};
use crate::store::{Store, StoreError};

/// A collection that the store refers to, and what the tree has of it.
struct Found {
    key: Vec<u8>,
    has_entries: bool,
    name: Option<Vec<u8>>,
    contents: Contents,
}

impl<S: Store> Keyspace<S> {
    /// Everything that contradicts itself in the collections, in words. No command may be under
    /// way.
    ///
    /// Entries of collections that were removed are no contradiction: they wait to be
    /// [swept](Keyspace::sweep). Takes memory for the content of all collections.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut wrong = Vec::new();
        let mut collections = self.referred_to(&mut wrong)?;
        if let Some(tree) = self.store.tree() {
            tree.ascend(onward(&CollectionId(1).name_key()), |key, value| {
                match CollectionId::of_entry(key) {
                    None => wrong.push(format!("the entry {} is none", key.escape_ascii())),
                    Some(id) => {
                        if let Some(found) = collections.get_mut(&id) {
                            found.add(id, key, value, &mut wrong);
                        }
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        collections.iter().for_each(|(id, found)| found.check(*id, &mut wrong));
        for shard in &self.shards {
            // A change that waits for room is none: the next start completes it or takes it back.
            if let Some(Unfinished::Unknown(error)) = &shard.read(&self.store).unfinished {
                wrong.push(error.to_string());
            }
        }
        Ok(wrong)
    }

    /// The collections that the store refers to.
    fn referred_to(
        &self,
        wrong: &mut Vec<String>,
    ) -> Result<BTreeMap<CollectionId, Found>, StoreError> {
        let mut collections = BTreeMap::new();
        let mut cursor = 0;
        loop {
            // A scan may visit a key twice.
            cursor = self.store.scan(cursor, 1024, |key, stored| {
                let Some(Reference { collection_type, id }) = Reference::read(stored) else {
                    return;
                };
                match collections.entry(id) {
                    Entry::Vacant(place) => {
                        place.insert(Found::new(key, Contents::new(collection_type)));
                    }
                    Entry::Occupied(found) if found.get().key != key => wrong.push(format!(
                        "{} and {} are the same collection, {}",
                        found.get().key.escape_ascii(),
                        key.escape_ascii(),
                        id.0
                    )),
                    Entry::Occupied(_) => {}
                }
            })?;
            if cursor == 0 {
                return Ok(collections);
            }
        }
    }
}

impl Found {
    fn new(key: &[u8], contents: Contents) -> Self {
        Found { key: key.to_vec(), has_entries: false, name: None, contents }
    }

    fn add(&mut self, id: CollectionId, key: &[u8], value: &[u8], wrong: &mut Vec<String>) {
        self.has_entries = true;
        match name_in(key, value) {
            Some(name) => self.name = Some(name.to_vec()),
            None => self.contents.add(id, key, value, wrong),
        }
    }

    fn check(&self, id: CollectionId, wrong: &mut Vec<String>) {
        let key = self.key.escape_ascii();
        if !self.has_entries {
            return wrong.push(format!("{key} is collection {}, which has no entries", id.0));
        }
        if self.name.as_deref() != Some(&self.key) {
            wrong.push(format!("collection {} does not know that it is {key}", id.0));
        }
        self.contents.check(id, wrong);
    }
}
