//! The list of rows that a statement has changed, if they are many: a block of the slot's, which is
//! used again and again.
//!
//! ```text
//! list   0  tag
//!        8  entries that there is room for
//!       16  entries: kind, table and row, as a record has them; offset of the version; checksum
//! ```

use remanent_pmem::heap::{Heap, Lane};
use remanent_pmem::{Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{Entry, Listed, SLOT_COUNT, list_at};
use crate::Result;
use crate::table::layout::Kind;

const ROOM: u64 = WORD_LEN;
const ENTRIES: u64 = 2 * WORD_LEN;
const ENTRY_LEN: u64 = 3 * WORD_LEN;
/// Entries for which the first list of a record has room.
const ROOM_MIN: u64 = 20;

fn len_of(room: u64) -> u64 {
    ENTRIES + room * ENTRY_LEN
}

/// Makes room for so many entries in the list that the word at `at` leads to. Two fences if there
/// was none: then it is another list from now on.
pub(super) fn make_room<M: Medium>(lane: &mut Lane<'_, M>, at: u64, count: u64) -> Result<()> {
    let medium = lane.heap().medium();
    let before = medium.load(at);
    match room_of(medium, before) {
        Some(room) if room >= count => Ok(()),
        room => replace(lane, at, room.map(|_| before), count),
    }
}

/// Writes the list of a record, for which there is room, and flushes it.
pub(super) fn write<M: Medium>(medium: &M, at: u64, entries: &[Entry]) -> Listed {
    let (list, bytes) = (medium.load(at), bytes_of(entries));
    medium.write(list + ENTRIES, &bytes);
    // Flush: fenced by the caller, together with the record that has the checksum.
    medium.flush(list + ENTRIES, bytes.len() as u64);
    Listed { count: entries.len() as u32, checksum: xxh3_64(&bytes) as u32 }
}

fn bytes_of(entries: &[Entry]) -> Vec<u8> {
    let words = entries.iter().flat_map(|of| [of.word(), of.version, of.content.into()]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Entries that a list has room for; `None` if there is none.
fn room_of<M: Medium>(medium: &M, list: u64) -> Option<u64> {
    let is_inside = |len: u64| list.checked_add(len).is_some_and(|end| end <= medium.len());
    let is_list = list != 0
        && list.is_multiple_of(WORD_LEN)
        && is_inside(len_of(0))
        && medium.load(list) == Kind::List.tag(0);
    let room = is_list.then(|| medium.load(list + ROOM))?;
    (room <= u64::from(u32::MAX) && is_inside(len_of(room))).then_some(room)
}

fn replace<M: Medium>(
    lane: &mut Lane<'_, M>,
    at: u64,
    before: Option<u64>,
    count: u64,
) -> Result<()> {
    let medium = lane.heap().medium();
    let room = count.next_power_of_two().max(ROOM_MIN);
    let block = lane.allocate(len_of(room))?;
    let room = (block.len - ENTRIES) / ENTRY_LEN;
    medium.store(block.offset, Kind::List.tag(0));
    medium.store(block.offset + ROOM, room);
    // Flush: fenced below.
    medium.flush(block.offset, ENTRIES);
    let old = before.map(|before| lane.suspect(before));
    // Fence: the block, before anything leads to it; the suspect, before nothing does.
    // Redundant flush: it flushes only the suspect. That matters only where the old list lies in a
    // chunk that no lane allocates from any more, because recovery looks at all of the others.
    lane.fence();
    medium.store(at, block.offset);
    // Flush and fence: before the old block is free, and before a record counts on the new one.
    // Redundant fence: the record's own comes before the lane is left, and so before the old block
    // is free. A record that arrives without this word finds no list with room for its entries, and
    // is void.
    medium.persist(at, WORD_LEN);
    lane.note_linked(block);
    if let Some(old) = old {
        lane.retire(old);
    }
    Ok(())
}

/// Flushes the list of a record, which a killed process may have left in the caches.
pub(super) fn flush<M: Medium>(medium: &M, at: u64, listed: Listed) {
    let (list, count) = (medium.load(at), u64::from(listed.count));
    if room_of(medium, list).is_some_and(|room| room >= count) {
        // Flush: fenced by the caller.
        // Redundant: but where a process was killed before, and the power fails later.
        medium.flush(list, len_of(count));
    }
}

/// The entries of a record's list; `None` if they have not arrived.
pub(super) fn read<M: Medium>(medium: &M, at: u64, listed: Listed) -> Option<Vec<Entry>> {
    let (list, count) = (medium.load(at), u64::from(listed.count));
    if room_of(medium, list)? < count {
        return None;
    }
    let mut bytes = vec![0; (count * ENTRY_LEN) as usize];
    medium.read(list + ENTRIES, &mut bytes);
    if xxh3_64(&bytes) as u32 != listed.checksum {
        return None;
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let entries = bytes.chunks_exact(ENTRY_LEN as usize).map(|entry| {
        let (first, rest) = entry.split_at(8);
        let (version, content) = rest.split_at(8);
        Entry::of_words(word(first), word(version), word(content) as u32)
    });
    entries.collect()
}

/// Flushes what leads to lists, which a killed process may have left in the caches, before blocks
/// count as used by it.
pub(super) fn flush_links<M: Medium>(medium: &M, slots: u64) {
    for slot in 0..SLOT_COUNT {
        let words = [0, 1].map(|half| list_at(slots, slot, half));
        if words.iter().any(|at| medium.load(*at) != 0) {
            // Flush: fenced by the heap. Both words are in one line.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(words[0], 2 * WORD_LEN);
        }
    }
}

/// The lists of all slots.
pub(crate) fn all<M: Medium>(heap: &Heap<M>, slots: u64) -> impl Iterator<Item = u64> {
    let words = (0..SLOT_COUNT).flat_map(move |slot| [0, 1].map(|half| list_at(slots, slot, half)));
    words.map(|at| heap.medium().load(at)).filter(|list| *list != 0)
}

#[cfg(test)]
mod tests {
    use remanent_pmem::{LINE_LEN, Pool};
    use remanent_structures::RowId;

    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_not_if_it_has_changed() {
        let pool = Pool::options().create_in_memory().unwrap();
        let medium = pool.medium();
        let (at, list) = (medium.len() - LINE_LEN, medium.len() / 2);
        medium.store(at, list);
        medium.store(list, Kind::List.tag(0));
        medium.store(list + ROOM, 9);
        let entry =
            |row| Entry { table: 3, row: RowId::new(row).unwrap(), version: row * 64, content: 5 };
        let entries: Vec<Entry> = (0..9).map(entry).collect();
        let listed = write(medium, at, &entries);
        assert_eq!(read(medium, at, listed), Some(entries));
        assert_eq!(read(medium, at, Listed { count: 8, ..listed }), None);
        assert_eq!(read(medium, at, Listed { count: u32::MAX, ..listed }), None);
        for word in (list..list + len_of(9)).step_by(8) {
            let before = medium.load(word);
            medium.store(word, before ^ 1 << 33);
            assert_eq!(read(medium, at, listed), None, "{:#x}", word - list);
            medium.store(word, before);
        }
        for nowhere in [0, 3, u64::MAX - 7, medium.len() - 8] {
            medium.store(at, nowhere);
            assert_eq!(read(medium, at, listed), None);
        }
    }
}
