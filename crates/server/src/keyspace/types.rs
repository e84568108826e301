//! The types that a key's value may have, and everything that the rest of the keyspace asks of a
//! type.
//!
//! The first byte of a stored value is the tag of its type:
//!
//! | type       | stored value                                      |
//! |------------|---------------------------------------------------|
//! | string     | 0, the bytes of the string                        |
//! | sorted set | 1, the id of the collection (8 bytes, big-endian) |
//!
//! All types but strings are *collections*: their entries are in the tree, and the stored value is
//! a [`Reference`]. A new collection type is a folder beside this file, and a variant of
//! [`CollectionType`], [`Changes`] and [`Contents`]. The matches on these enums are what the
//! compiler then asks of the type:
//!
//! | asked of a type              | by          | for                                     |
//! |------------------------------|-------------|-----------------------------------------|
//! | tag, name                    | all         | stored values, `TYPE`, `SCAN … TYPE`    |
//! | [`Changes`]                  | `commit.rs` | intents: encoded, applied, taken back   |
//! | [`Caches`], where it has one | `commit.rs` | what is known of a collection in memory |
//! | [`Contents`]                 | `check.rs`  | `remanent pool check`                   |
//!
//! Removing a collection asks nothing of its type: the sweeper removes all entries with its id.

use remanent_structures::{OrderedMap, Result};

use super::layout::{CollectionId, ID_LEN};
use super::sorted_set;

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// A byte string.
    String,
    /// A value whose entries are in the tree.
    Collection(CollectionType),
}

/// A type whose entries are in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionType {
    SortedSet,
}

impl ValueType {
    /// The tag, which is the first byte of a stored value.
    pub(crate) const fn tag(self) -> u8 {
        match self {
            ValueType::String => 0,
            ValueType::Collection(collection) => collection.tag(),
        }
    }

    /// The type of a stored value; `None` when its tag is that of no type.
    pub(crate) fn of(stored: &[u8]) -> Option<Self> {
        let tag = *stored.first()?;
        if tag == ValueType::String.tag() {
            return Some(ValueType::String);
        }
        CollectionType::of_tag(tag).map(ValueType::Collection)
    }

    /// The name by which `TYPE` and `SCAN … TYPE` know the type of a stored value.
    pub(crate) fn name_of(stored: &[u8]) -> &'static str {
        match ValueType::of(stored) {
            None => "unknown",
            Some(ValueType::String) => "string",
            Some(ValueType::Collection(collection)) => collection.name(),
        }
    }
}

impl CollectionType {
    const ALL: [CollectionType; 1] = [CollectionType::SortedSet];

    /// The tag. It is stored, so a type keeps it for good.
    const fn tag(self) -> u8 {
        match self {
            CollectionType::SortedSet => 1,
        }
    }

    fn of_tag(tag: u8) -> Option<Self> {
        CollectionType::ALL.into_iter().find(|collection| collection.tag() == tag)
    }

    fn name(self) -> &'static str {
        match self {
            CollectionType::SortedSet => "zset",
        }
    }
}

/// The stored value of a key that has a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) collection_type: CollectionType,
    pub(super) id: CollectionId,
}

const REFERENCE_LEN: usize = 1 + ID_LEN;

impl Reference {
    /// The bytes that are stored.
    pub(super) fn to_bytes(self) -> [u8; REFERENCE_LEN] {
        let mut bytes = [self.collection_type.tag(); REFERENCE_LEN];
        bytes[1..].copy_from_slice(&self.id.0.to_be_bytes());
        bytes
    }

    /// Reads a stored value; `None` when it is no reference.
    pub(super) fn read(stored: &[u8]) -> Option<Self> {
        // The length comes first: the bytes of a longer value lie elsewhere, and are not fetched.
        let bytes: &[u8; REFERENCE_LEN] = stored.try_into().ok()?;
        let (tag, id) = bytes.split_first()?;
        let collection_type = CollectionType::of_tag(*tag)?;
        Some(Reference {
            collection_type,
            id: CollectionId(u64::from_be_bytes(id.try_into().ok()?)),
        })
    }
}

/// What a change does to the entries of one collection.
///
/// Applying is idempotent: whatever part of the changes was applied before, applying them all
/// completes them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Changes {
    SortedSet(sorted_set::Changes),
}

impl Changes {
    pub(super) fn collection_type(&self) -> CollectionType {
        match self {
            Changes::SortedSet(_) => CollectionType::SortedSet,
        }
    }

    /// The first byte of an intent, which says what follows. A type whose encoding changes takes
    /// another number for the new one.
    pub(super) fn form(&self) -> u8 {
        match self {
            Changes::SortedSet(_) => SORTED_SET_FORM,
        }
    }

    /// Appends the encoding of the changes.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Changes::SortedSet(changes) => changes.encode(bytes),
        }
    }

    /// Reads what [`encode`](Changes::encode) appended; `None` when `bytes` are something else.
    pub(super) fn decode(form: u8, bytes: &[u8]) -> Option<Self> {
        match form {
            SORTED_SET_FORM => sorted_set::Changes::decode(bytes).map(Changes::SortedSet),
            _ => None,
        }
    }

    /// The changes that take these back, however far they were applied.
    pub(super) fn reversed(&self) -> Self {
        match self {
            Changes::SortedSet(changes) => Changes::SortedSet(changes.reversed()),
        }
    }

    /// Whether each part of the collection is as it was before these changes, or as they make it.
    pub(super) fn fit(&self, id: CollectionId, tree: &impl OrderedMap<[u8], [u8]>) -> Result<bool> {
        match self {
            Changes::SortedSet(changes) => changes.fit(id, tree),
        }
    }

    /// Whether any entry goes, so that the collection may be empty afterwards.
    pub(super) fn removes_any(&self) -> bool {
        match self {
            Changes::SortedSet(changes) => changes.removes_any(),
        }
    }

    /// Whether it is known without a search that the collection has entries afterwards.
    pub(super) fn leave_any(&self, id: CollectionId, caches: &Caches) -> bool {
        match self {
            Changes::SortedSet(changes) => changes.leave_any(id, &caches.sorted_sets),
        }
    }

    /// First part of applying, which may need room: the entries that are put.
    pub(super) fn new_entries(&self, id: CollectionId) -> Vec<(Vec<u8>, Vec<u8>)> {
        match self {
            Changes::SortedSet(changes) => changes.new_entries(id),
        }
    }

    /// Second part of applying, which gives room back: keys whose entries the changes make
    /// obsolete.
    pub(super) fn obsolete_keys(&self, id: CollectionId) -> Vec<Vec<u8>> {
        match self {
            Changes::SortedSet(changes) => changes.obsolete_keys(id),
        }
    }

    /// Keeps what is cached of the collection in step with changes that were applied.
    pub(super) fn update_caches(
        &self,
        id: CollectionId,
        caches: &mut Caches,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) {
        match self {
            Changes::SortedSet(changes) => changes.update_cache(id, &mut caches.sorted_sets, tree),
        }
    }
}

/// Form of the changes to a sorted set.
pub(super) const SORTED_SET_FORM: u8 = 1;

/// What is known in memory of the collections of a shard, and can be found out again from the tree.
#[derive(Debug, Default)]
pub(super) struct Caches {
    pub(super) sorted_sets: sorted_set::RankCache,
}

impl Caches {
    /// Forgets a collection, of whatever type.
    pub(super) fn forget(&mut self, id: CollectionId) {
        let Caches { sorted_sets } = self;
        sorted_sets.forget(id);
    }

    /// Forgets all collections.
    pub(super) fn clear(&mut self) {
        *self = Caches::default();
    }
}

/// The content of one collection, collected to be checked.
#[derive(Debug)]
pub(super) enum Contents {
    SortedSet(sorted_set::Contents),
}

impl Contents {
    pub(super) fn new(collection_type: CollectionType) -> Self {
        match collection_type {
            CollectionType::SortedSet => Contents::SortedSet(sorted_set::Contents::default()),
        }
    }

    /// Adds an entry, and says in `wrong` if the type writes no such entry.
    pub(super) fn add(
        &mut self,
        id: CollectionId,
        key: &[u8],
        value: &[u8],
        wrong: &mut Vec<String>,
    ) {
        match self {
            Contents::SortedSet(contents) => contents.add(id, key, value, wrong),
        }
    }

    /// Says in `wrong` what contradicts itself, once all entries were added.
    pub(super) fn check(&self, id: CollectionId, wrong: &mut Vec<String>) {
        match self {
            Contents::SortedSet(contents) => contents.check(id, wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_are_written_and_told_from_strings() {
        for collection_type in CollectionType::ALL {
            let reference = Reference { collection_type, id: CollectionId(7) };
            let stored = reference.to_bytes();
            assert_eq!(Reference::read(&stored), Some(reference));
            assert_eq!(ValueType::of(&stored), Some(ValueType::Collection(collection_type)));
            assert_eq!(ValueType::name_of(&stored), collection_type.name());
        }
        let string = b"\08 bytes.";
        assert_eq!(string.len(), REFERENCE_LEN);
        assert_eq!(Reference::read(string), None);
        assert_eq!(ValueType::of(string), Some(ValueType::String));
        assert_eq!(Reference::read(&[u8::MAX; REFERENCE_LEN]), None);
        assert_eq!(ValueType::of(&[u8::MAX]), None);
    }

    #[test]
    fn the_tags_in_pools_keep_their_meaning() {
        assert_eq!(ValueType::String.tag(), 0);
        assert_eq!(CollectionType::SortedSet.tag(), 1);
    }
}
