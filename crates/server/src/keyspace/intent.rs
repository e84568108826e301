//! Intents: what a change to a collection is about to do, written down as one entry of the tree.
//!
//! | bytes | what they say                                                     |
//! |-------|-------------------------------------------------------------------|
//! | 1     | form of the changes, which says the type, too ([`Changes::form`]) |
//! | 8     | id of the collection, little-endian                               |
//! | 1     | 1 when the collection is new, else 0                              |
//! | 4 + … | name of the collection, its length in front                       |
//! | …     | the changes, as their type encodes them                           |

use super::encoding::{push_text, take, take_text};
use super::layout::CollectionId;
use super::types::{Changes, Reference};

/// A change to one collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Intent {
    pub(super) id: CollectionId,
    /// The key under which the store refers to the collection.
    pub(super) name: Vec<u8>,
    /// Whether the change creates the collection.
    pub(super) is_new: bool,
    pub(super) changes: Changes,
}

/// Whether a change is made, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Back,
}

impl Intent {
    /// The stored value that refers to the collection.
    pub(super) fn reference(&self) -> Reference {
        Reference { collection_type: self.changes.collection_type(), id: self.id }
    }

    /// The value of the intent's entry.
    pub(super) fn encode(&self) -> Vec<u8> {
        // Enough for a change of one member with a name of usual length.
        let mut bytes = Vec::with_capacity(128);
        bytes.push(self.changes.form());
        bytes.extend_from_slice(&self.id.0.to_le_bytes());
        bytes.push(self.is_new.into());
        push_text(&mut bytes, &self.name);
        self.changes.encode(&mut bytes);
        bytes
    }

    /// Reads what [`encode`](Intent::encode) wrote; `None` when `bytes` are something else.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Intent> {
        let [form] = take(&mut bytes)?;
        let id = CollectionId(u64::from_le_bytes(take(&mut bytes)?));
        let is_new = take::<1>(&mut bytes)? != [0];
        let name = take_text(&mut bytes)?.to_vec();
        Some(Intent { id, name, is_new, changes: Changes::decode(form, bytes)? })
    }

    /// The intent that takes this one back, however far it was applied.
    pub(super) fn reversed(&self) -> Intent {
        let Intent { id, name, is_new: _, changes } = self;
        Intent { id: *id, name: name.clone(), is_new: false, changes: changes.reversed() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::SORTED_SET_FORM;
    use super::*;

    /// An intent as servers have stored it since there are sorted sets: a new set `z` whose member
    /// `m` gets the score 1.
    const STORED: &[u8] =
        b"\x01\x03\0\0\0\0\0\0\0\x01\x01\0\0\0z\x02\0\0\0\0\0\0\xf0\x3f\x01\0\0\0m";

    #[test]
    fn an_intent_is_read_as_it_was_written() {
        let intent = Intent::decode(STORED).unwrap();
        assert_eq!((intent.id, intent.is_new), (CollectionId(3), true));
        assert_eq!(intent.name, b"z");
        assert_eq!(intent.encode(), STORED);
        assert_eq!(intent.reversed().reversed(), Intent { is_new: false, ..intent });
        for len in 0..STORED.len() {
            let read = Intent::decode(&STORED[..len]);
            assert_ne!(read.map(|read| read.encode()).as_deref(), Some(STORED));
        }
    }

    proptest::proptest! {
        /// Damaged bytes are refused, or read as an intent that is encoded alike.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, sound_start: bool) {
            let mut bytes = bytes;
            if sound_start && !bytes.is_empty() {
                bytes[0] = SORTED_SET_FORM;
            }
            if let Some(intent) = Intent::decode(&bytes) {
                proptest::prop_assert_eq!(Intent::decode(&intent.encode()), Some(intent));
            }
        }
    }
}
