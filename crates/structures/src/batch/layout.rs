//! On-media layout of the batches that are being committed.
//!
//! ```text
//! header of the heap, 2 KiB: 31 slots of one line, one for each lane
//!
//! slot     0  offset of the intent            16  checksum of the intent's bytes
//!          8  length of the intent            24  1 when a batch is committed, 2 when entries of
//!                                                 it may be done, else 0
//!
//! intent   0  number of entries               then the entries
//!
//! entry    0  1 when it is done, not part of the checksum
//!          8  number of the root, in 16 bits; 1 to put, 2 to remove, in 8 bits, from bit 16 on
//!         16  generation of the root
//!         24  length of the key               40  key, padded to whole words
//!         32  length of the value              …  value, padded to whole words
//! ```
//!
//! The last word of a slot is stored last. So a crash leaves a slot whole, or one that says that
//! nothing is committed. The intent shares the slot's fence: its checksum says whether it arrived.
//! An entry that says that it is done before the slot says so, too, did not arrive either: an older
//! intent with the same bytes lay there.

use remanent_pmem::heap::layout::{HEADER_LEN, LANE_COUNT};
use remanent_pmem::pool::layout::RootId;
use remanent_pmem::{LINE_LEN, WORD_LEN};
use xxhash_rust::xxh3::Xxh3;

pub(super) const OFFSET: u64 = 0;
pub(super) const LEN: u64 = 8;
pub(super) const SUM: u64 = 16;
pub(super) const STATE: u64 = 24;
pub(super) const EMPTY: u64 = 0;
pub(super) const COMMITTED: u64 = 1;
pub(super) const RESUMED: u64 = 2;
pub(super) const DONE: u64 = 1;

const _: () = assert!(LANE_COUNT as u64 * LINE_LEN <= HEADER_LEN);

/// Bytes of an entry before its key.
const ENTRY_HEAD_LEN: usize = 40;
const PUT: u64 = 1;
const REMOVE: u64 = 2;

/// What a batch does to one key of one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The map: the number of its root, and how often a root of this number was created.
    pub(crate) root: RootId,
    pub(crate) generation: u64,
    /// The key, as the map has it encoded for this purpose.
    pub(crate) key: Vec<u8>,
    /// The stored form of the value; `None` to remove the entry.
    pub(crate) value: Option<Vec<u8>>,
}

/// Offset of a slot from the header.
pub(super) fn slot(index: usize) -> u64 {
    index as u64 * LINE_LEN
}

/// An intent's bytes.
pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = (entries.len() as u64).to_le_bytes().to_vec();
    for entry in entries {
        let operation = if entry.value.is_some() { PUT } else { REMOVE };
        let value = entry.value.as_deref().unwrap_or_default();
        let place = u64::from(entry.root.0) | operation << 16;
        let words = [0, place, entry.generation, entry.key.len() as u64, value.len() as u64];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        for part in [&entry.key[..], value] {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(WORD_LEN as usize), 0);
        }
    }
    bytes
}

/// The entries of an intent, and where the word of each lies that says whether it is done. `None`
/// when the bytes are no intent's.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<(u64, Entry)>> {
    let mut rest = bytes;
    let count = take_word(&mut rest)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let at = (bytes.len() - rest.len()) as u64;
        let _done = take_word(&mut rest)?;
        let place = take_word(&mut rest)?;
        let generation = take_word(&mut rest)?;
        let (key_len, value_len) = (take_word(&mut rest)?, take_word(&mut rest)?);
        let key = take_padded(&mut rest, key_len)?;
        let value = take_padded(&mut rest, value_len)?;
        let value = match place >> 16 {
            PUT => Some(value),
            REMOVE => None,
            _ => return None,
        };
        entries.push((at, Entry { root: RootId(place as u16), generation, key, value }));
    }
    rest.is_empty().then_some(entries)
}

/// The checksum of an intent: of all but the words that say what is done.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    let mut rest = bytes;
    let count = take_word(&mut rest).unwrap_or_default();
    sum.update(&count.to_le_bytes());
    // What cannot be an intent is summed as far as it goes: the sum will not fit.
    for _ in 0..count {
        let Some(head) = rest.get(WORD_LEN as usize..ENTRY_HEAD_LEN) else { break };
        let mut lens = &head[16..];
        let lens = [take_word(&mut lens), take_word(&mut lens)].map(Option::unwrap_or_default);
        sum.update(head);
        rest = &rest[ENTRY_HEAD_LEN..];
        for len in lens {
            let Some(part) = take_padded(&mut rest, len) else { return 0 };
            sum.update(&part);
        }
    }
    sum.digest()
}

fn take_word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

fn take_padded(bytes: &mut &[u8], len: u64) -> Option<Vec<u8>> {
    let padded = len.checked_next_multiple_of(WORD_LEN)?;
    let (part, rest) = bytes.split_at_checked(usize::try_from(padded).ok()?)?;
    *bytes = rest;
    Some(part[..len as usize].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |key: &[u8], value: Option<&[u8]>| Entry {
            root: RootId(7),
            generation: 3,
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        vec![
            entry(b"", Some(b"")),
            entry(b"a key of some length", None),
            entry(b"k", Some(b"12345678")),
        ]
    }

    #[test]
    fn entries_come_back() {
        let bytes = encode(&entries());
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.iter().map(|(_, entry)| entry.clone()).collect::<Vec<_>>(), entries());
        assert!((0..bytes.len()).all(|len| decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn every_bit_counts_but_those_of_what_is_done() {
        let bytes = encode(&entries());
        let sum = checksum(&bytes);
        let done: Vec<u64> = decode(&bytes).unwrap().into_iter().map(|(at, _)| at).collect();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let is_of_done = done.iter().any(|&at| (at..at + 8).contains(&(bit as u64 / 8)));
            let is_padding = decode(&changed).is_some_and(|entries| {
                entries.into_iter().map(|(_, entry)| entry).eq(self::entries())
            });
            assert!(
                is_of_done || is_padding || checksum(&changed) != sum,
                "bit {bit} does not count"
            );
        }
    }
}
