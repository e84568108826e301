//! On-media layout that all collections share: the keys of the tree.
//!
//! The *tree* is the store's ordered map. The key of each entry begins with the id of a collection
//! and a byte, the *kind* of the entry. Ids are big-endian, so the entries of one collection are
//! adjacent, in the order of their kinds.
//!
//! | key             | value                                       |
//! |-----------------|---------------------------------------------|
//! | id, 0           | the collection's name: its key in the store |
//! | id, 1 to 254, … | what the type of the collection keeps there |
//!
//! No collection has the id 0. Entries under it belong to the keyspace itself:
//!
//! | key                               | value                                                |
//! |-----------------------------------|------------------------------------------------------|
//! | 0, 0                              | ids below it may be in use (8 bytes, little-endian)  |
//! | 0, 1, shard (2 bytes, big-endian) | the shard's last [intent](super::intent), if kept    |

/// Number of a collection: never 0, and not used again while anything is left of its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CollectionId(pub(super) u64);

/// Bytes of a stored id.
pub(super) const ID_LEN: usize = size_of::<u64>();
/// Bytes of a key that say the collection and the kind of the entry.
pub(super) const PREFIX_LEN: usize = ID_LEN + 1;

/// Kinds of entries that every collection has.
const NAME: u8 = 0;
/// No entry has it: where the entries of a collection end.
const END: u8 = u8::MAX;

/// Kinds of entries under the id 0.
const NEXT_ID: u8 = 0;
const INTENT: u8 = 1;
const INTENTS_END: u8 = 2;

impl CollectionId {
    /// The collection that an entry belongs to; `None` for the keyspace's own entries.
    pub(super) fn of_entry(key: &[u8]) -> Option<CollectionId> {
        let id = key.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
        (id != 0).then_some(CollectionId(id))
    }

    /// Key of an entry of the collection: the id, the kind, and what follows.
    pub(super) fn key(self, kind: u8, parts: [&[u8]; 2]) -> Vec<u8> {
        let [first, second] = parts;
        let mut key = Vec::with_capacity(PREFIX_LEN + first.len() + second.len());
        key.extend_from_slice(&self.0.to_be_bytes());
        key.push(kind);
        key.extend_from_slice(first);
        key.extend_from_slice(second);
        key
    }

    /// Key of the entry with the collection's name, which is its first entry.
    pub(super) fn name_key(self) -> Vec<u8> {
        self.key(NAME, [&[]; 2])
    }

    /// Start of the entries that follow the name: those of the collection's content.
    pub(super) fn content_start(self) -> Vec<u8> {
        self.key(NAME + 1, [&[]; 2])
    }

    /// End of the collection's entries.
    pub(super) fn end(self) -> Vec<u8> {
        self.key(END, [&[]; 2])
    }
}

/// Splits a key into the collection, the kind of the entry, and what follows.
pub(super) fn split_key(key: &[u8]) -> Option<(CollectionId, u8, &[u8])> {
    let (id, rest) = key.split_first_chunk()?;
    let (kind, rest) = rest.split_first()?;
    Some((CollectionId(u64::from_be_bytes(*id)), *kind, rest))
}

/// The name that an entry says, if it is the one with its collection's name.
pub(super) fn name_in<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    let (_, kind, rest) = split_key(key)?;
    (kind == NAME && rest.is_empty()).then_some(value)
}

/// Key of the entry that says which ids may be in use.
pub(super) fn next_id_key() -> Vec<u8> {
    CollectionId(0).key(NEXT_ID, [&[]; 2])
}

/// Key of the entry with the intent of a shard.
pub(super) fn intent_key(shard: u16) -> Vec<u8> {
    CollectionId(0).key(INTENT, [&shard.to_be_bytes(), &[]])
}

/// The index of the shard whose intent has this key.
pub(super) fn shard_of_intent(key: &[u8]) -> Option<usize> {
    let (_, _, shard) = split_key(key)?;
    Some(usize::from(u16::from_be_bytes(shard.try_into().ok()?)))
}

/// Start and end of the intents.
pub(super) fn intents() -> (Vec<u8>, Vec<u8>) {
    (CollectionId(0).key(INTENT, [&[]; 2]), CollectionId(0).key(INTENTS_END, [&[]; 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_comes_first_and_is_told_from_other_entries() {
        let id = CollectionId(7);
        let content = id.key(1, [b"some", b"content"]);
        let ordered = [id.name_key(), id.content_start(), content.clone(), id.end()];
        assert!(ordered.is_sorted_by(|a, b| a < b));
        assert_eq!(name_in(&id.name_key(), b"key"), Some(&b"key"[..]));
        assert_eq!(name_in(&content, b"key"), None);
        assert_eq!(split_key(&content), Some((id, 1, &b"somecontent"[..])));
        assert_eq!(CollectionId::of_entry(&content), Some(id));
        assert_eq!(CollectionId::of_entry(&intent_key(3)), None);
        assert_eq!(shard_of_intent(&intent_key(3)), Some(3));
    }
    /// Servers before this one wrote the same bytes.
    #[test]
    fn keys_keep_their_bytes() {
        assert_eq!(CollectionId(7).name_key(), b"\0\0\0\0\0\0\0\x07\0");
        assert_eq!(next_id_key(), [0; 9]);
        assert_eq!(intent_key(3), b"\0\0\0\0\0\0\0\0\x01\0\x03");
    }
}
