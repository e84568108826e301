//! The journal: any set of lines changes atomically, for one fence.
//!
//! Each lane has two slots, and writes its records into them in turn. A record has the new images
//! of all lines that an operation changes. Once the record is durable, the operation has happened.
//! The lines themselves are stored afterwards, and are flushed before the lane's next fence. So the
//! lane's last record is needed until the next one is complete; the record before it is not needed
//! any more.
//!
//! After a crash each line that is incomplete, or older than a record says, gets the newest image
//! from any record. A superseded record has older images, which are ignored. So records need not be
//! erased, except for one that does not count.
//!
//! # Records in doubt
//!
//! One fence covers a record and the blocks that it leads to, so a record may become durable before
//! its blocks. The record says which of its entries lead to such blocks, and an entry has the
//! checksum of its block. A lane's last record counts after a crash if one of these is true:
//!
//! - A later record was begun in its lane. It was begun after this record's fence. The other slot
//!   then holds a torn beginning, or an older record whose blocks were reused after that fence.
//! - One of its lines is on the medium: lines are stored after that fence.
//! - Any record has a newer image of one of its lines: the writer of that record had waited for the
//!   line.
//! - All blocks that it leads to are complete. If none of the above is true, nobody has replaced a
//!   block of this record, so only the crash can have torn one.
//!
//! Proving a record of many blocks would take long. Such a record has a fence before it that covers
//! its blocks, and so has a record whose lines do not fit a slot.
//!
//! # Comparison with the paper
//!
//! The record of nvramdisk (Table 2) has one field for the new block, and the logical block's
//! number twice, which distinguishes a complete record from a torn one. Its steps are ordered one
//! by one. Here a checksum does that, for any number of blocks at once.

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

/// Maximal number of blocks that a record vouches for: recovery reads up to 256 KiB to prove it.
const VOUCHED_MAX: usize = 64;
/// Distance of versions at which all records are cleared. Without clearing, a record with an old
/// version would look newer.
const VERSIONS_CLEARED: u32 = 1 << 30;

/// Content of a block that is not reachable yet.
#[derive(Debug)]
pub(crate) struct Datum<'a> {
    /// Pool offset of the block.
    pub(crate) at: u64,
    /// Its number on the disk.
    pub(crate) lba: Lba,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Index of the change, and the word in it, that will lead to the block.
    pub(crate) change: usize,
    pub(crate) word: usize,
}

/// Content of the blocks of one step.
pub(crate) type Data<'a> = SmallVec<[Datum<'a>; 4]>;

/// Blocks for those lines of a record that do not fit its slot.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    pub(crate) blocks: Vec<Block>,
    /// Pool offset of each.
    pub(crate) located: SmallVec<[u64; 4]>,
}

/// The lanes of a disk, and the common state of their records.
///
/// The journal needs [`Space`] only to give back the blocks of a long record.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Offset of the meta extent, which contains the slots.
    meta: u64,
    /// Maximal number of lines in a slot.
    lines_max: usize,
    /// Maximal number of blocks that a record vouches for.
    vouched_max: usize,
    lanes: Box<[PauseMutex<Lane>]>,
    must_clear: AtomicBool,
}

impl Journal {
    /// A journal whose lanes know nothing of their slots yet.
    pub(crate) fn new(meta: u64, key: Key, shape: Shape) -> Self {
        Journal {
            meta,
            lines_max: shape.lines_max as usize,
            // Less if slots are made small, so that the simulator reaches both sides of the limit.
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

    /// The lanes, for opening the disk.
    pub(crate) fn lanes(&self) -> &[PauseMutex<Lane>] {
        &self.lanes
    }

    /// Takes a lane: the thread's own lane if it is free.
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

    /// Number of blocks that a record of so many lines needs in addition to its slot, in a lane
    /// with so many spares.
    pub(crate) fn spill_count(&self, changes: usize, spares: usize) -> usize {
        spill_count(changes, spares, self.lines_max)
    }

    /// Number of lines that a record of the lane may change without a block.
    pub(crate) fn lines_without_spill(&self, lane: &Lane) -> usize {
        let fits = |&lines: &usize| self.spill_count(lines, lane.spares.len()) == 0;
        (1..=self.lines_max).take_while(fits).last().expect("a slot has room for a line")
    }

    /// Makes changes take effect atomically, together with `data`, by a record that keeps the
    /// lane's spares; see [`Lane::commit`]. The record fits the lane's slot.
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

    /// Like [`commit`](Journal::commit), with the record's lines in blocks of their own, if `spill`
    /// has any.
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

    /// Follow-up of a commit: frees the last record's blocks, and requests clearing of all records
    /// in time.
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
            // Relaxed: the locks of the lanes order the clearing.
            self.must_clear.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all records must be cleared. Returns true once for each request.
    #[inline]
    pub(crate) fn takes_clearing(&self) -> bool {
        // Relaxed: the locks of the lanes order the clearing.
        self.must_clear.load(Ordering::Relaxed) && self.must_clear.swap(false, Ordering::Relaxed)
    }

    /// Overwrites both slots of every lane with empty records, so that recovery ignores blocks that
    /// are about to be reused. Two fences, however many lanes.
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

/// The state of a lane. An operation that changes the disk holds one.
#[derive(Debug)]
pub(crate) struct Lane {
    index: usize,
    /// Key of the disk's checksums.
    key: Key,
    /// Sequence number of the last record.
    sequence: u64,
    pub(crate) spares: Spares,
    /// Lines of the last record, to be flushed before the next fence.
    unflushed: Vec<u64>,
    /// Blocks that hold the last record, until the next one.
    spilled: Vec<Block>,
    record: Vec<u8>,
    /// Whether both slots hold records without lines.
    is_clear: bool,
}

/// What was found in a lane's slots.
#[derive(Debug)]
pub(crate) struct Found {
    /// The lane after its last record that is not in doubt.
    pub(crate) lane: Lane,
    /// Changes of all records that are not in doubt.
    pub(crate) changes: Vec<Change>,
    /// The last record, if it may have become durable before the blocks that it leads to.
    pub(crate) in_doubt: Option<Record>,
    /// Offsets of slots that hold something other than a complete record.
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

    /// Index of the spare to use next, when spares are used in turn.
    pub(crate) fn turn(&self) -> usize {
        self.sequence as usize % self.spares.len()
    }

    /// Makes all of `changes` take effect atomically, together with the lane's spares. Durable when
    /// it returns. `spill` has the pool offsets of as many blocks as [`spill_count`] says; nobody
    /// touches these before the lane's next record.
    ///
    /// Writes `data`, and puts their checksums into the entries that lead to them. Everything else
    /// that the changed lines lead to is already durable. The record vouches for `data` if these
    /// are at most `vouched_max` blocks. Nobody else changes the lines meanwhile.
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
        // Fence: the record, which makes the operation happen, before any of its lines; and
        // together with the blocks that it vouches for.
        medium.fence();
        self.unflushed.clear();
        for (change, image) in changes.iter().zip(&images) {
            Line::store_encoded(medium, change.at, image);
            self.unflushed.push(change.at);
        }
        self.is_clear = false;
    }

    /// Prepares the lane for the next record.
    fn begin<M: Medium>(&mut self, medium: &M) {
        for &at in &self.unflushed {
            // Flush: the lines of the last record. The fence of the next record covers them; the
            // record after that overwrites the last record.
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

    /// Reads a lane's slots after a crash.
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
        // A torn slot holds the beginning of a later record, or an older record whose blocks were
        // reused. In both cases this record's fence was completed.
        let in_doubt = records.pop_if(|record| torn.is_empty() && record.is_vouched());
        let mut lane = Lane::new(index, key);
        let mut changes = Vec::new();
        for record in records {
            lane.adopt(&record);
            changes.extend(record.changes);
        }
        Ok(Found { lane, changes, in_doubt, torn })
    }

    /// Continues after a record.
    pub(crate) fn adopt(&mut self, record: &Record) {
        self.is_clear = false;
        self.sequence = record.sequence;
        self.spares = record.spares.clone();
    }

    /// Offset of the slot of a record of the lane.
    pub(crate) fn slot_of(&self, meta: u64, record: &Record) -> u64 {
        meta + slot(self.index, record.sequence)
    }
}

/// Overwrites both slots of every lane with empty records, so that recovery ignores blocks that are
/// about to be reused. Two fences, however many lanes.
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
        // Fence: the lines of the lanes' last records, before these records are overwritten; then
        // the empty records.
        medium.fence();
        lanes.iter_mut().for_each(|lane| lane.unflushed.clear());
    }
    lanes.iter_mut().for_each(|lane| lane.is_clear = true);
}

/// Gives every line that is incomplete, or older than a record says, its newest image. Durable when
/// it returns. Idempotent.
///
/// Voids the slots in `torn`. Otherwise a later write to such a slot, of the same lines, could be
/// interrupted and complete the old record.
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
        // Flush: also lines that look right, because a killed process may have left them in the
        // caches alone. Fenced below.
        medium.flush(at, LINE_LEN);
    }
    // Fence: the lanes' next records overwrite those that these lines are from, and the voided
    // ones.
    // Redundant fence: the recovery of the heap begins with one, and a lane's next record comes
    // after it.
    medium.fence();
}
