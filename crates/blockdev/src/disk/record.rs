//! On-media layout of a record of the journal: writing and reading it.
//!
//! ```text
//! slot, 2 KiB
//! byte 0    xxh3 of everything that follows
//!      8    sequence number; its lowest bit is the slot's
//!     16    lines changed (32 bits) | spare blocks (32 bits)
//!     24    0, or pool offset of the first block with lines
//!     32    targets, the first 2; or xxh3 of those blocks
//!     64    numbers of the lane's spare blocks, 32 bits each, in whole lines
//!      …    further targets, in whole lines
//!      …    images
//!
//! block with lines, for records that do not fit a slot
//! byte 0    0, or pool offset of the next one
//!      8    lines in it
//!     64    up to 50 targets
//!    896    images
//!
//! target    pool offset of a line (lower 56 bits) | which of its words lead to blocks that the
//!           record's fence covers (8 bits); and in a second word the line's owner, which its
//!           checksum and those of the blocks cover
//! ```

use std::collections::HashSet;

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{BLOCK_LEN, Block, Entry, SLOT_LEN, SPARES_MAX};
use crate::Result;
use crate::line::{Line, WORDS};
use crate::seal::{Key, Owner};

const CHECK_LEN: usize = 8;
/// Offset of the sequence number; no record has 0.
pub(crate) const SEQUENCE: u64 = 8;
const HEADER_LEN: usize = LINE_LEN as usize;
/// Bytes that name the line to change, in addition to its image.
const TARGET_LEN: usize = 2 * size_of::<u64>();
/// Targets that fit into the header, after its fixed part.
const TARGETS: usize = HEADER_LEN / 2;
const HEADER_TARGETS: usize = (HEADER_LEN - TARGETS) / TARGET_LEN;
/// Maximal number of lines in a block.
const SPILL_LINES: usize = 50;
const SPILL_TARGETS: usize = LINE_LEN as usize;
const SPILL_IMAGES: usize = 896;
const _: () = assert!(SPILL_TARGETS + SPILL_LINES * TARGET_LEN <= SPILL_IMAGES);
const _: () = assert!(SPILL_IMAGES + SPILL_LINES * LINE_LEN as usize <= BLOCK_LEN as usize);

/// Lowest bit of the part of a target that says which words were written.
const WRITTEN_SHIFT: u32 = 56;

// Overwriting consecutive blocks by spares never needs more lines than fit a slot.
const _: () = assert!(record_len(SPARES_MAX / WORDS + 2, SPARES_MAX) as u64 <= SLOT_LEN);

/// A change of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Pool offset.
    pub(crate) at: u64,
    /// The line's node of the map, if it is in one.
    pub(crate) owner: Owner,
    /// New content of the line.
    pub(crate) line: Line,
    /// A bit for each word that is an entry of a block written by the same operation. These entries
    /// have no checksum until the commit.
    pub(crate) written: u8,
}

impl Change {
    /// A change of a line outside the map.
    pub(crate) fn new(at: u64, line: Line) -> Self {
        Self::of_node(at, Owner::NONE, line)
    }

    /// A change without newly written blocks.
    pub(crate) fn of_node(at: u64, owner: Owner, line: Line) -> Self {
        Change { at, owner, line, written: 0 }
    }

    /// A change that replaces the words of the line at `at`, which is outside the map. Nobody
    /// stores to it meanwhile.
    pub(crate) fn rewrite<M: Medium>(
        medium: &M,
        key: Key,
        at: u64,
        words: [u64; WORDS],
    ) -> Result<Self> {
        let version = key.load_line(medium, at, Owner::NONE)?.version.wrapping_add(1);
        Ok(Change::new(at, Line { words, version }))
    }

    fn target(&self, is_vouched: bool) -> [u64; 2] {
        let written = if is_vouched { self.written } else { 0 };
        [self.at | u64::from(written) << WRITTEN_SHIFT, self.owner.0]
    }

    /// The entries of blocks that the same operation wrote, and their words.
    pub(crate) fn entries_written(&self) -> impl Iterator<Item = (usize, Entry)> {
        let words = self.line.words.into_iter().enumerate();
        let written = words.filter(|(word, _)| self.written & 1 << word != 0);
        written.map(|(word, entry)| (word, Entry::decode(entry)))
    }

    /// The line on the medium; `None` if it is incomplete.
    pub(crate) fn found<M: Medium>(&self, medium: &M, key: Key) -> Option<Line> {
        Line::load(medium, self.at, key.of(self.owner))
    }
}

/// A few lines, without allocating.
pub(crate) type Changes = SmallVec<[Change; 4]>;

/// Changed lines as they are stored.
pub(crate) type Images = SmallVec<[[u64; WORDS + 1]; 4]>;

/// Free blocks that are marked as used.
pub(crate) type Spares = SmallVec<[Block; 16]>;

/// Number of blocks for the lines of a record, if a slot may have `lines_max` lines.
pub(crate) fn spill_count(changes: usize, spares: usize, lines_max: usize) -> usize {
    if changes <= lines_max && record_len(changes, spares) as u64 <= SLOT_LEN {
        return 0;
    }
    changes.div_ceil(SPILL_LINES)
}

const fn record_len(changes: usize, spares: usize) -> usize {
    let line = LINE_LEN as usize;
    let spares = (spares * size_of::<u32>()).next_multiple_of(line);
    let targets = changes.saturating_sub(HEADER_TARGETS) * TARGET_LEN;
    HEADER_LEN + spares + targets.next_multiple_of(line) + changes * line
}

/// A record that is to be written to a slot.
#[derive(Debug)]
pub(crate) struct Draft<'r> {
    /// The lane's sequence number.
    pub(crate) sequence: u64,
    /// Spares that the lane has after this record.
    pub(crate) spares: &'r [Block],
    pub(crate) changes: &'r [Change],
    /// The changed lines, encoded.
    pub(crate) images: &'r Images,
    /// Whether the record says which blocks have to be complete for it to count.
    pub(crate) is_vouched: bool,
    /// Offset of the first block with lines, and the checksum of all such blocks; `None` if the
    /// record has the lines itself.
    pub(crate) spilled: Option<(u64, u64)>,
}

impl Draft<'_> {
    /// Replaces the content of `record` by the record's bytes, for the slot at `slot`.
    pub(crate) fn encode(&self, slot: u64, key: Key, record: &mut Vec<u8>) {
        record.clear();
        let counts = (self.spares.len() as u64) << 32 | self.changes.len() as u64;
        let (spill, spilled_hash) = self.spilled.unwrap_or_default();
        for word in [0, self.sequence, counts, spill] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        let inline = if self.spilled.is_some() { &[] } else { self.changes };
        if self.spilled.is_some() {
            record.extend_from_slice(&spilled_hash.to_le_bytes());
        }
        let targets = inline.iter().map(|change| change.target(self.is_vouched));
        for word in targets.clone().take(HEADER_TARGETS).flatten() {
            record.extend_from_slice(&word.to_le_bytes());
        }
        pad(record);
        for spare in self.spares {
            record.extend_from_slice(&spare.0.to_le_bytes());
        }
        pad(record);
        for word in targets.skip(HEADER_TARGETS).flatten() {
            record.extend_from_slice(&word.to_le_bytes());
        }
        pad(record);
        for image in self.images.iter().take(inline.len()) {
            image.iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        }
        let check = xxh3_64_with_seed(&record[CHECK_LEN..], key.of_record(slot));
        record[..CHECK_LEN].copy_from_slice(&check.to_le_bytes());
    }
}

/// A record as it was found on the medium.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) spares: Spares,
    pub(crate) changes: Vec<Change>,
}

impl Record {
    /// Whether its blocks may be torn.
    pub(crate) fn is_vouched(&self) -> bool {
        self.changes.iter().any(|change| change.written != 0)
    }

    /// The record at `at`, if there is a complete one.
    pub(crate) fn read<M: Medium>(medium: &M, at: u64, key: Key) -> Option<Self> {
        let mut header = [0; HEADER_LEN];
        medium.read(at, &mut header);
        let [check, sequence, counts, spill, ..] = *words(&header) else { return None };
        let (count, spare_count) = (counts as u32 as usize, (counts >> 32) as usize);
        let inline_count = if spill == 0 { count } else { 0 };
        // A torn record may hold any numbers: the sums below must not overflow.
        let fits = inline_count < SLOT_LEN as usize
            && spare_count <= SPARES_MAX
            && count as u64 <= medium.len() / LINE_LEN;
        if sequence == 0 || !fits || record_len(inline_count, spare_count) as u64 > SLOT_LEN {
            return None;
        }
        let mut bytes = vec![0; record_len(inline_count, spare_count)];
        medium.read(at, &mut bytes);
        if xxh3_64_with_seed(&bytes[CHECK_LEN..], key.of_record(at)) != check {
            return None;
        }
        let mut rest = &bytes[HEADER_LEN..];
        let spares = take(&mut rest, spare_count * size_of::<u32>());
        let spares = spares.as_chunks::<4>().0.iter().map(|n| Block(u32::from_le_bytes(*n)));
        let changes = if spill == 0 {
            let mut targets = words(&header[TARGETS..]).to_vec();
            let further = count.saturating_sub(HEADER_TARGETS) * TARGET_LEN;
            targets.extend(words(take(&mut rest, further)));
            decode(&targets, count, rest, key)?
        } else {
            read_spill(medium, (spill, words(&header[TARGETS..])[0]), count, key)?
        };
        Some(Record { sequence, spares: spares.collect(), changes })
    }
}

/// Writes lines into blocks, and returns their checksum. The fence of the record makes them
/// durable, too.
pub(crate) fn write_spill<M: Medium>(
    medium: &M,
    changes: &[Change],
    images: &Images,
    spill: &[u64],
) -> u64 {
    let mut hash = 0;
    if spill.is_empty() {
        return hash;
    }
    let parts = changes.chunks(SPILL_LINES).zip(images.chunks(SPILL_LINES));
    for (index, (changes, images)) in parts.enumerate() {
        let mut block = [0; BLOCK_LEN as usize];
        let next = spill.get(index + 1).copied().unwrap_or(0);
        let head = [next, changes.len() as u64].into_iter();
        put(&mut block, 0, head);
        put(&mut block, SPILL_TARGETS, changes.iter().flat_map(|change| change.target(false)));
        put(&mut block, SPILL_IMAGES, images.iter().flatten().copied());
        hash = fold(hash, &block);
        medium.write_streaming(spill[index], &block);
    }
    hash
}

/// Reads lines from the blocks that begin at `first` and have the checksum `expected`.
fn read_spill<M: Medium>(
    medium: &M,
    (first, expected): (u64, u64),
    count: usize,
    key: Key,
) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let (mut at, mut hash) = (first, 0);
    let mut seen = HashSet::new();
    while changes.len() < count {
        let mut block = [0; BLOCK_LEN as usize];
        if !is_inside(medium, at) || !is_inside(medium, at.checked_add(BLOCK_LEN - LINE_LEN)?) {
            return None;
        }
        // A block that never held lines may lead in a circle.
        if !seen.insert(at) {
            return None;
        }
        medium.read(at, &mut block);
        hash = fold(hash, &block);
        let [next, here, ..] = *words(&block) else { return None };
        if here == 0 || here > SPILL_LINES as u64 {
            return None;
        }
        let targets = words(&block[SPILL_TARGETS..SPILL_IMAGES]);
        changes.extend(decode(&targets, here as usize, &block[SPILL_IMAGES..], key)?);
        at = next;
    }
    (changes.len() == count && hash == expected).then_some(changes)
}

/// Decodes lines from their targets and images; `None` if an image is not that of a line.
fn decode(targets: &[u64], count: usize, images: &[u8], key: Key) -> Option<Vec<Change>> {
    let images = images.as_chunks::<{ LINE_LEN as usize }>().0;
    let targets = targets.as_chunks::<2>().0.iter().take(count);
    let changes = targets.zip(images).map(|(&[target, owner], image)| {
        let image = words(image).first_chunk().copied()?;
        let (at, written) = (target & ((1 << WRITTEN_SHIFT) - 1), (target >> WRITTEN_SHIFT) as u8);
        let owner = Owner(owner);
        Some(Change { at, owner, line: Line::decode(image, at, key.of(owner))?, written })
    });
    changes.collect()
}

/// Whether there is room for a line at `at`.
pub(crate) fn is_inside<M: Medium>(medium: &M, at: u64) -> bool {
    at.is_multiple_of(LINE_LEN) && at.checked_add(LINE_LEN).is_some_and(|end| end <= medium.len())
}

fn fold(hash: u64, block: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(block, hash)
}

fn pad(record: &mut Vec<u8>) {
    record.resize(record.len().next_multiple_of(LINE_LEN as usize), 0);
}

fn put(bytes: &mut [u8], at: usize, words: impl Iterator<Item = u64>) {
    let places = bytes[at..].as_chunks_mut::<{ WORD_LEN as usize }>().0;
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
}

/// Takes a part of `len` bytes, in whole lines, off `rest`.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (part, after) = rest.split_at(len.next_multiple_of(LINE_LEN as usize));
    *rest = after;
    &part[..len]
}

fn words(bytes: &[u8]) -> SmallVec<[u64; 8]> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
