//! The journal: any set of lines changes as a whole, for one fence.
//!
//! Each lane has two slots and writes its records into them in turn. A record has the new images of all lines that an
//! operation changes. Once it is durable the operation has happened; the lines themselves are stored afterwards,
//! and are flushed before the lane's next fence. So the lane's last record is needed until the next one is complete, and the
//! one before it no more. After a crash each line that is not whole, or older than a record says, gets the newest
//! image that any record has of it. A record that was overtaken has older images, which are ignored; so records need
//! not be erased, but for one that does not count.
//!
//! A record may become durable before the blocks that it leads to, since one fence is for both. It says which entries are
//! of such blocks, and an entry has the checksum of its block. A lane's last record counts after a crash if one of these
//! is so:
//!
//! - Something else was begun in its lane: that comes after the record's fence. What is torn in the other slot is such a
//!   beginning, or it is an older record, whose blocks were used anew after that fence.
//! - A line of it is on the medium: lines are stored after that fence.
//! - Any record has a newer image of one of its lines: who made that had waited for the line.
//! - What it leads to is whole. If nothing of the above is so, nobody has replaced a block that it leads to, so only the
//!   crash can have torn it.
//!
//! A record of many blocks would be long to prove: there a fence comes in between, as for one whose lines a slot has no
//! room for.
//!
//! ```text
//! slot, 2 KiB
//! byte 0    xxh3 of everything that follows
//!      8    sequence number; its lowest bit is the slot's
//!     16    lines changed (32 bits) | spare blocks (32 bits)
//!     24    0, or pool offset of the first of the blocks that have the lines
//!     32    targets, the first 2; or xxh3 of those blocks
//!     64    numbers of the lane's spare blocks, 32 bits each, in whole lines
//!      …    further targets, in whole lines
//!      …    images
//!
//! block with lines, for records that a slot has no room for
//! byte 0    0, or pool offset of the next one
//!      8    lines in it
//!     64    up to 50 targets
//!    896    images
//!
//! target    pool offset of a line (lower 56 bits) | which of its words lead to blocks that the record's fence is for
//!           (8 bits); and in a second word the line's owner, by which its checksum and those of the blocks are compared
//! ```
//!
//! The record of nvramdisk (Table 2) has one field for the new block, and the block's logical number twice, which tells
//! a whole record from one that was being written; its steps are ordered one by one. Here the checksum does that, for any
//! number of blocks at once.

use std::collections::{HashMap, HashSet};

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::change::Datum;
use super::layout::{BLOCK_LEN, Block, Entry, SLOT_LEN, SLOTS, slot};
use crate::line::{Line, WORDS, is_newer};
use crate::seal::{Key, Owner};
use crate::{Error, Result};

const CHECK_LEN: usize = 8;
/// Place of the sequence number; no record has 0.
const SEQUENCE: u64 = 8;
const HEADER_LEN: usize = LINE_LEN as usize;
/// Bytes that say which line is changed, beside its image.
const TARGET_LEN: usize = 2 * size_of::<u64>();
/// Place of the targets in the header, and how many it has room for.
const TARGETS: usize = HEADER_LEN / 2;
const HEADER_TARGETS: usize = (HEADER_LEN - TARGETS) / TARGET_LEN;
/// Lines that a block has room for.
pub(crate) const SPILL_LINES: usize = 50;
const SPILL_TARGETS: usize = LINE_LEN as usize;
const SPILL_IMAGES: usize = 896;
const _: () = assert!(SPILL_TARGETS + SPILL_LINES * TARGET_LEN <= SPILL_IMAGES);
const _: () = assert!(SPILL_IMAGES + SPILL_LINES * LINE_LEN as usize <= BLOCK_LEN as usize);

/// Place of what a target says beside the offset.
const WRITTEN_SHIFT: u32 = 56;

/// Blocks that a record vouches for, at most: 256 KiB are read to prove it.
pub(crate) const VOUCHED_MAX: usize = 64;
/// Spare blocks that a lane of any disk keeps, at most.
pub(crate) const SPARES_MAX: usize = 64;
// Blocks in a row that are overwritten by spares need no more lines than fit in a slot.
const _: () = assert!(record_len(SPARES_MAX / WORDS + 2, SPARES_MAX) as u64 <= SLOT_LEN);

/// A line that an operation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Pool offset.
    pub(crate) at: u64,
    /// The node of the map that it is a line of, if it is one's.
    pub(crate) owner: Owner,
    /// What it holds then.
    pub(crate) line: Line,
    /// Words, a bit for each, that are entries of blocks which are written by the same operation. They have no checksum
    /// before that.
    pub(crate) written: u8,
}

impl Change {
    /// One of a line that is no node's.
    pub(crate) fn new(at: u64, line: Line) -> Self {
        Self::of_node(at, Owner::NONE, line)
    }

    /// One that leads to nothing that is being written.
    pub(crate) fn of_node(at: u64, owner: Owner, line: Line) -> Self {
        Change { at, owner, line, written: 0 }
    }

    fn target(&self, is_vouched: bool) -> [u64; 2] {
        let written = if is_vouched { self.written } else { 0 };
        [self.at | u64::from(written) << WRITTEN_SHIFT, self.owner.0]
    }

    /// Words that are entries of blocks which were written by the same operation.
    pub(crate) fn entries_written(&self) -> impl Iterator<Item = (usize, Entry)> {
        let words = self.line.words.into_iter().enumerate();
        let written = words.filter(|(word, _)| self.written & 1 << word != 0);
        written.map(|(word, entry)| (word, Entry::decode(entry)))
    }

    /// Its line, as it is on the medium; none where that is not whole.
    pub(crate) fn found<M: Medium>(&self, medium: &M, key: Key) -> Option<Line> {
        Line::load(medium, self.at, key.of(self.owner))
    }
}

/// A few lines, without allocating.
pub(crate) type Changes = SmallVec<[Change; 4]>;

/// Changed lines as they are stored.
type Images = SmallVec<[[u64; WORDS + 1]; 4]>;

/// Blocks that are in use by no one, and marked as used.
pub(crate) type Spares = SmallVec<[Block; 16]>;

/// What an operation needs that changes something; one holds it at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    index: usize,
    /// What the disk's checksums are made with.
    key: Key,
    /// That of the last record.
    sequence: u64,
    pub(crate) spares: Spares,
    /// Lines of the last record, to be flushed before the next fence.
    unflushed: Vec<u64>,
    /// Blocks that the last record is in, until the next one.
    pub(crate) spilled: Vec<Block>,
    record: Vec<u8>,
    /// Whether its records have no lines that anybody would look at again.
    is_settled: bool,
}

/// What was found in a lane's slots.
#[derive(Debug)]
pub(crate) struct Found {
    /// As the last record leaves it that is certain.
    pub(crate) lane: Lane,
    /// Of all records that are certain.
    pub(crate) changes: Vec<Change>,
    /// The last record, if it may have become durable before what it leads to.
    pub(crate) doubtful: Option<Record>,
    /// Offsets of slots that hold something, and no whole record.
    pub(crate) torn: Vec<u64>,
}

/// How many blocks the lines of a record are in, of which a slot is to have `lines_max` at most.
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

impl Lane {
    pub(crate) fn new(index: usize, key: Key) -> Self {
        Lane {
            index,
            key,
            sequence: 0,
            spares: Spares::new(),
            unflushed: Vec::new(),
            spilled: Vec::new(),
            record: Vec::with_capacity(SLOT_LEN as usize),
            is_settled: true,
        }
    }

    /// Which of the spares is to be used where they are used in turn.
    pub(crate) fn turn(&self) -> usize {
        self.sequence as usize % self.spares.len()
    }

    /// Makes all of `changes` happen, durably when it returns, together with the lane's spares. `spill` are the pool
    /// offsets of as many blocks as [`spill_count`] says, which nobody touches before the lane's next record.
    ///
    /// `data` are written, and what leads to them gets their checksums; everything else that the changed lines lead to is
    /// durable. The record vouches for them if there are `vouched_max` at most. Nobody else changes the lines meanwhile.
    pub(crate) fn commit<M: Medium>(
        &mut self,
        medium: &M,
        meta: u64,
        changes: &mut [Change],
        spill: &[u64],
        data: &[Datum<'_>],
        vouched_max: usize,
    ) {
        self.begin(medium);
        for datum in data {
            let checksum = medium.write_streaming_summed(datum.at, &datum.bytes);
            let checksum = checksum ^ self.key.mask(datum.lba);
            let entry = &mut changes[datum.change].line.words[datum.word];
            *entry = Entry { checksum, ..Entry::decode(*entry) }.encode();
        }
        let is_vouched = spill.is_empty() && data.len() <= vouched_max;
        if !is_vouched && !data.is_empty() {
            // Fence: the data, before the record that leads to them.
            medium.fence();
        }
        let key = self.key;
        let encode = |change: &Change| change.line.encode(change.at, key.of(change.owner));
        let images: Images = changes.iter().map(encode).collect();
        let spilled_hash = write_spill(medium, changes, &images, spill);
        let spilled = spill.first().map(|&at| (at, spilled_hash));
        let slot = meta + slot(self.index, self.sequence);
        self.build(slot, changes, &images, is_vouched, spilled);
        self.write(medium, slot);
        // Fence: the record is what makes the operation happen, so it comes before any of its lines; and with it what it
        // vouches for.
        medium.fence();
        self.unflushed.clear();
        for (change, image) in changes.iter().zip(&images) {
            Line::store_encoded(medium, change.at, image);
            self.unflushed.push(change.at);
        }
        self.is_settled = false;
    }

    /// What comes before the next record.
    fn begin<M: Medium>(&mut self, medium: &M) {
        for &at in &self.unflushed {
            // Flush: the last record's lines, fenced with the next one: the record after that overwrites the last one.
            medium.flush(at, LINE_LEN);
        }
        self.sequence += 1;
    }

    /// Writes the record to its slot; durable with the next fence.
    fn write<M: Medium>(&self, medium: &M, slot: u64) {
        medium.write(slot, &self.record);
        // Flush: the record, fenced by the caller.
        medium.flush(slot, self.record.len() as u64);
    }

    /// Makes the record of changes for the slot at `slot`. Their lines are in blocks from the given one on, with the given
    /// checksum, or in the record itself.
    fn build(
        &mut self,
        slot: u64,
        changes: &[Change],
        images: &Images,
        is_vouched: bool,
        spilled: Option<(u64, u64)>,
    ) {
        let record = &mut self.record;
        record.clear();
        let counts = (self.spares.len() as u64) << 32 | changes.len() as u64;
        let (spill, spilled_hash) = spilled.unwrap_or_default();
        for word in [0, self.sequence, counts, spill] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        let inline = if spilled.is_some() { &[] } else { changes };
        if spilled.is_some() {
            record.extend_from_slice(&spilled_hash.to_le_bytes());
        }
        let targets = inline.iter().map(|change| change.target(is_vouched));
        for word in targets.clone().take(HEADER_TARGETS).flatten() {
            record.extend_from_slice(&word.to_le_bytes());
        }
        pad(record);
        for spare in &self.spares {
            record.extend_from_slice(&spare.0.to_le_bytes());
        }
        pad(record);
        for word in targets.skip(HEADER_TARGETS).flatten() {
            record.extend_from_slice(&word.to_le_bytes());
        }
        pad(record);
        for image in images.iter().take(inline.len()) {
            image.iter().for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
        }
        let check = xxh3_64_with_seed(&record[CHECK_LEN..], self.key.of_record(slot));
        record[..CHECK_LEN].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads a lane's slots as a crash left them.
    pub(crate) fn find<M: Medium>(medium: &M, meta: u64, key: Key, index: usize) -> Result<Found> {
        let mut records: Vec<Record> = Vec::new();
        let mut torn = Vec::new();
        for number in 0..SLOTS {
            let at = meta + slot(index, number);
            match Record::read(medium, at, key).filter(|record| record.sequence % SLOTS == number) {
                Some(record) => records.push(record),
                None if medium.load(at) == 0 && medium.load(at + SEQUENCE) == 0 => {}
                None => torn.push(at),
            }
        }
        records.sort_by_key(|record| record.sequence);
        let mut targets = records.iter().flat_map(|record| {
            record.changes.iter().map(move |change| (record.sequence, change.at))
        });
        if let Some((sequence, line)) = targets.find(|(_, at)| !is_inside(medium, *at)) {
            let what = format!("a record changes a line at {line:#x}, outside the pool");
            return Err(Error::damaged(meta + slot(index, sequence), what));
        }
        // What is torn is the beginning of a later one, or an older one whose blocks were used anew: this one was completed.
        let doubtful = records.pop_if(|record| torn.is_empty() && record.is_vouched());
        let mut lane = Lane::new(index, key);
        let mut changes = Vec::new();
        for record in records {
            lane.adopt(&record);
            changes.extend(record.changes);
        }
        Ok(Found { lane, changes, doubtful, torn })
    }

    /// Goes on after a record.
    pub(crate) fn adopt(&mut self, record: &Record) {
        self.is_settled = false;
        self.sequence = record.sequence;
        self.spares = record.spares.clone();
    }

    /// Offset of the slot that a record of the lane is in.
    pub(crate) fn slot_of(&self, meta: u64, record: &Record) -> u64 {
        meta + slot(self.index, record.sequence)
    }
}

/// Leaves no record in lanes whose lines anybody would look at again: for who uses blocks that had lines for something
/// else. Two fences, however many lanes.
pub(crate) fn settle<'l, M: Medium>(
    medium: &M,
    meta: u64,
    lanes: impl IntoIterator<Item = &'l mut Lane>,
) {
    let mut lanes: Vec<&mut Lane> = lanes.into_iter().filter(|lane| !lane.is_settled).collect();
    if lanes.is_empty() {
        return;
    }
    for _ in 0..SLOTS {
        for lane in &mut lanes {
            lane.begin(medium);
            let slot = meta + slot(lane.index, lane.sequence);
            lane.build(slot, &[], &Images::new(), false, None);
            lane.write(medium, slot);
        }
        // Fence: the lines of the lanes' last records, before those are overwritten, and then what overwrites them.
        medium.fence();
        lanes.iter_mut().for_each(|lane| lane.unflushed.clear());
    }
    lanes.iter_mut().for_each(|lane| lane.is_settled = true);
}

/// Gives every line that is not whole, or older than a record says, the newest image there is of it. Durable when it
/// returns. Doing it twice changes nothing.
///
/// What is no whole record is made one that nothing can complete: what is written to its slot next may consist of the same
/// lines, and be interrupted, too.
pub(crate) fn redo<M: Medium>(
    medium: &M,
    key: Key,
    changes: impl IntoIterator<Item = Change>,
    torn: &[u64],
) {
    for &slot in torn {
        medium.store(slot, 0);
        medium.store(slot + SEQUENCE, 0);
        // Flush: fenced below, before anything is written to the slot.
        medium.flush(slot, LINE_LEN);
    }
    let mut newest: HashMap<u64, Change> = HashMap::new();
    for change in changes {
        let known = newest.entry(change.at).or_insert(change);
        if is_newer(change.line.version, known.line.version) {
            *known = change;
        }
    }
    let mut newest: Vec<Change> = newest.into_values().collect();
    newest.sort_unstable_by_key(|change| change.at);
    for change in newest {
        let Change { at, line, owner, .. } = change;
        let found = change.found(medium, key);
        if found.is_none_or(|found| is_newer(line.version, found.version)) {
            Line::store_encoded(medium, at, &line.encode(at, key.of(owner)));
        }
        // Flush: also lines that look right, which a killed process may have left in the caches. Fenced below.
        medium.flush(at, LINE_LEN);
    }
    // Fence: the lanes' next records overwrite the ones that these lines are from, and those that were not whole.
    // Redundant fence: the recovery of the heap begins with one, and a lane's next record comes
    // after it.
    medium.fence();
}

/// A record as it was found.
#[derive(Debug)]
pub(crate) struct Record {
    sequence: u64,
    spares: Spares,
    pub(crate) changes: Vec<Change>,
}

impl Record {
    /// Whether blocks that it leads to may have been torn.
    fn is_vouched(&self) -> bool {
        self.changes.iter().any(|change| change.written != 0)
    }

    /// The record at `at`, if one was written there, and whole.
    fn read<M: Medium>(medium: &M, at: u64, key: Key) -> Option<Self> {
        let mut header = [0; HEADER_LEN];
        medium.read(at, &mut header);
        let [check, sequence, counts, spill, ..] = *words(&header) else { return None };
        let (count, spare_count) = (counts as u32 as usize, (counts >> 32) as usize);
        let inline_count = if spill == 0 { count } else { 0 };
        // What was being written may be anything: no sum below may be too large.
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

/// Writes lines into blocks, and returns their checksum. Not durable before the record, whose fence covers both.
fn write_spill<M: Medium>(medium: &M, changes: &[Change], images: &Images, spill: &[u64]) -> u64 {
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

/// Reads lines from the blocks that begin at `first`, and have the checksum `expected`.
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
        // What never was such a block may lead in a circle.
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

/// As many lines, from their targets and images; `None` when an image is not that of a line.
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

fn is_inside<M: Medium>(medium: &M, at: u64) -> bool {
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
