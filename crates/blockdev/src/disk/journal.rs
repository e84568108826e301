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
//! The record of nvramdisk (Table 2) has one field for the new block, and the block's logical number twice, which tells
//! a whole record from one that was being written; its steps are ordered one by one. Here the checksum does that, for any
//! number of blocks at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};
use smallvec::SmallVec;

use super::layout::{Block, Entry, LANE_COUNT, Lba, SLOT_LEN, SLOTS, Shape, slot};
use super::record::{
    Change, Draft, Images, Record, SEQUENCE, Spares, is_inside, spill_count, write_spill,
};
use super::space::Space;
use crate::line::{Line, is_newer};
use crate::seal::Key;
use crate::{Error, Result};

/// Blocks that a record vouches for, at most: 256 KiB are read to prove it.
const VOUCHED_MAX: usize = 64;
/// Distance of versions at which all records are cleared: a record with a version from before would look newer.
const VERSIONS_CLEARED: u32 = 1 << 30;

/// Content of a block that nobody can reach yet.
#[derive(Debug)]
pub(crate) struct Datum<'a> {
    /// Pool offset of the block.
    pub(crate) at: u64,
    /// Its number on the disk.
    pub(crate) lba: Lba,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// The change, and the word in it, that is to lead there.
    pub(crate) change: usize,
    pub(crate) word: usize,
}

/// Content of the blocks of one step.
pub(crate) type Data<'a> = SmallVec<[Datum<'a>; 4]>;

/// Blocks for the lines of a record that its slot has no room for.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    pub(crate) blocks: Vec<Block>,
    /// Pool offset of each.
    pub(crate) located: SmallVec<[u64; 4]>,
}

/// The lanes of a disk, and what their records have in common.
///
/// It needs [`Space`] only to give back the blocks that a long record was in.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Offset of the meta extent, in which the slots are.
    meta: u64,
    /// Lines that a slot is to have at most.
    lines_max: usize,
    /// Blocks that a record vouches for at most.
    vouched_max: usize,
    lanes: Box<[PauseMutex<Lane>]>,
    must_clear: AtomicBool,
}

impl Journal {
    /// One whose lanes know nothing of their slots yet.
    pub(crate) fn new(meta: u64, key: Key, shape: Shape) -> Self {
        Journal {
            meta,
            lines_max: shape.lines_max as usize,
            // Less where slots are made small: so that the simulator meets both sides of it.
            vouched_max: VOUCHED_MAX.min(shape.lines_max.saturating_mul(2) as usize),
            lanes: (0..LANE_COUNT).map(|index| PauseMutex::new(Lane::new(index, key))).collect(),
            must_clear: AtomicBool::new(false),
        }
    }

    /// Pool offset of the meta extent.
    #[inline]
    pub(crate) fn meta(&self) -> u64 {
        self.meta
    }

    /// The lanes, for who opens the disk.
    pub(crate) fn lanes(&self) -> &[PauseMutex<Lane>] {
        &self.lanes
    }

    /// Takes a lane: the thread's own if nobody has it.
    pub(crate) fn enter<M: Medium>(&self, medium: &M) -> PauseGuard<'_, Lane> {
        let first = medium.thread() as usize % LANE_COUNT;
        loop {
            let mut lanes = (0..LANE_COUNT).map(|step| &self.lanes[(first + step) % LANE_COUNT]);
            if let Some(lane) = lanes.find_map(PauseMutex::try_lock) {
                return lane;
            }
            medium.pause();
        }
    }

    /// Takes all lanes, in their order.
    pub(crate) fn enter_all<M: Medium>(&self, medium: &M) -> Vec<PauseGuard<'_, Lane>> {
        self.lanes.iter().map(|lane| lane.lock(medium)).collect()
    }

    /// Blocks that a record of so many lines needs beside its slot, in a lane with so many spares.
    pub(crate) fn spill_count(&self, changes: usize, spares: usize) -> usize {
        spill_count(changes, spares, self.lines_max)
    }

    /// Lines that a record of the lane may change and needs no block for.
    pub(crate) fn lines_without_spill(&self, lane: &Lane) -> usize {
        let fits = |&lines: &usize| self.spill_count(lines, lane.spares.len()) == 0;
        (1..=self.lines_max).take_while(fits).last().expect("a slot has room for a line")
    }

    /// Makes changes happen as one, together with `data`, by a record with the lane's spares as they are; see
    /// [`Lane::commit`]. The record fits the lane's slot.
    #[inline]
    pub(crate) fn commit<M: Medium>(
        &self,
        medium: &M,
        space: &Space,
        lane: &mut Lane,
        changes: &mut [Change],
        data: &[Datum<'_>],
    ) {
        lane.commit(medium, self.meta, changes, &[], data, self.vouched_max);
        self.follow(medium, space, lane, Vec::new(), changes);
    }

    /// As [`commit`](Journal::commit), with the record's lines in blocks of their own, if `spill` has any.
    pub(crate) fn commit_spilled<M: Medium>(
        &self,
        medium: &M,
        space: &Space,
        lane: &mut Lane,
        changes: &mut [Change],
        spill: Spill,
        data: &[Datum<'_>],
    ) {
        lane.commit(medium, self.meta, changes, &spill.located, data, self.vouched_max);
        self.follow(medium, space, lane, spill.blocks, changes);
    }

    /// What a commit leaves to be done: frees the last record's blocks, and asks for records to be cleared in time.
    #[inline]
    fn follow<M: Medium>(
        &self,
        medium: &M,
        space: &Space,
        lane: &mut Lane,
        spill: Vec<Block>,
        changes: &[Change],
    ) {
        if !spill.is_empty() || !lane.spilled.is_empty() {
            let done = std::mem::replace(&mut lane.spilled, spill);
            space.release(medium, done);
        }
        if changes.iter().any(|change| change.line.version.is_multiple_of(VERSIONS_CLEARED)) {
            // Relaxed: the lanes' locks order what is cleared.
            self.must_clear.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all records have to be cleared; says so once.
    #[inline]
    pub(crate) fn takes_clearing(&self) -> bool {
        // Relaxed: the lanes' locks order what is cleared.
        self.must_clear.load(Ordering::Relaxed) && self.must_clear.swap(false, Ordering::Relaxed)
    }

    /// Overwrites both slots of every lane with empty records, so that recovery ignores blocks that are about to be
    /// reused. Two fences, however many lanes.
    pub(crate) fn clear_records<M: Medium>(
        &self,
        medium: &M,
        space: &Space,
        lanes: &mut [PauseGuard<'_, Lane>],
    ) {
        clear_records(medium, self.meta, lanes.iter_mut().map(|lane| &mut **lane));
        for lane in lanes {
            space.release(medium, std::mem::take(&mut lane.spilled));
        }
    }
}

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
    spilled: Vec<Block>,
    record: Vec<u8>,
    /// Whether both of its slots hold records without lines.
    is_clear: bool,
}

/// What was found in a lane's slots.
#[derive(Debug)]
pub(crate) struct Found {
    /// As its last record that is not in doubt leaves it.
    pub(crate) lane: Lane,
    /// Of all records that are not in doubt.
    pub(crate) changes: Vec<Change>,
    /// The last record, if it may have become durable before what it leads to.
    pub(crate) in_doubt: Option<Record>,
    /// Offsets of slots that hold something, and no whole record.
    pub(crate) torn: Vec<u64>,
}

impl Lane {
    fn new(index: usize, key: Key) -> Self {
        Lane {
            index,
            key,
            sequence: 0,
            spares: Spares::new(),
            unflushed: Vec::new(),
            spilled: Vec::new(),
            record: Vec::with_capacity(SLOT_LEN as usize),
            is_clear: true,
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
    fn commit<M: Medium>(
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
        let (sequence, spares) = (self.sequence, &self.spares);
        let draft = Draft { sequence, spares, changes, images: &images, is_vouched, spilled };
        draft.encode(slot, key, &mut self.record);
        self.write(medium, slot);
        // Fence: the record is what makes the operation happen, so it comes before any of its lines; and with it what it
        // vouches for.
        medium.fence();
        self.unflushed.clear();
        for (change, image) in changes.iter().zip(&images) {
            Line::store_encoded(medium, change.at, image);
            self.unflushed.push(change.at);
        }
        self.is_clear = false;
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

    /// Makes a record that changes nothing, for the slot at `slot`.
    fn build_empty(&mut self, slot: u64) {
        let (sequence, spares, images) = (self.sequence, &self.spares, &Images::new());
        let draft =
            Draft { sequence, spares, changes: &[], images, is_vouched: false, spilled: None };
        draft.encode(slot, self.key, &mut self.record);
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
        let in_doubt = records.pop_if(|record| torn.is_empty() && record.is_vouched());
        let mut lane = Lane::new(index, key);
        let mut changes = Vec::new();
        for record in records {
            lane.adopt(&record);
            changes.extend(record.changes);
        }
        Ok(Found { lane, changes, in_doubt, torn })
    }

    /// Goes on after a record.
    pub(crate) fn adopt(&mut self, record: &Record) {
        self.is_clear = false;
        self.sequence = record.sequence;
        self.spares = record.spares.clone();
    }

    /// Offset of the slot that a record of the lane is in.
    pub(crate) fn slot_of(&self, meta: u64, record: &Record) -> u64 {
        meta + slot(self.index, record.sequence)
    }
}

/// Overwrites both slots of every lane with empty records, so that recovery ignores blocks that are about to be reused.
/// Two fences, however many lanes.
fn clear_records<'l, M: Medium>(
    medium: &M,
    meta: u64,
    lanes: impl IntoIterator<Item = &'l mut Lane>,
) {
    let mut lanes: Vec<&mut Lane> = lanes.into_iter().filter(|lane| !lane.is_clear).collect();
    if lanes.is_empty() {
        return;
    }
    for _ in 0..SLOTS {
        for lane in &mut lanes {
            lane.begin(medium);
            let slot = meta + slot(lane.index, lane.sequence);
            lane.build_empty(slot);
            lane.write(medium, slot);
        }
        // Fence: the lines of the lanes' last records, before those are overwritten, and then what overwrites them.
        medium.fence();
        lanes.iter_mut().for_each(|lane| lane.unflushed.clear());
    }
    lanes.iter_mut().for_each(|lane| lane.is_clear = true);
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
