//! Creating a disk, and opening it after any crash.
//!
//! Opening has these steps:
//!
//! 1. read the slots of 32 lanes;
//! 2. store the lines of records that are not in doubt, where they are not durable;
//! 3. read where the slabs are: 8 bytes for each;
//! 4. for each record in doubt, read the blocks that it leads to, at most 64 for each lane.
//!
//! This does not depend on the amount of data, and depends little on the size of the disk.

use std::collections::HashMap;

use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, crc32c};

use super::base::Base;
use super::device::Device;
use super::journal::{Lane, redo};
use super::layout::{
    BLOCK_LEN, DIRECTORY, DIRECTORY_EXTENTS, DIRECTORY_LINES, HEIGHT_MAX, IDENTITY, LANE_COUNT,
    LAYOUT, META_LEN, SIZE_MAX, SNAPSHOT_COUNT, SNAPSHOTS, STATE, Shape, State,
};
use super::record::{Change, Record};
use super::resize::check_size;
use super::snapshot::{GENERATION_MAX, List};
use crate::line::{Line, WORDS, is_newer};
use crate::seal::{Key, Owner};
use crate::{Error, Result};

impl<M: Medium> RootObject<M> for Device<M> {
    const SURVIVES_DISTURBANCE: bool = true;

    fn root_type() -> RootType {
        RootType { name: "Disk".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::format_in(heap, 0, Shape::of(0))
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::load(heap).map_err(Error::into_pool)
    }
}

impl<M: Medium> Device<M> {
    /// Like [`format`](Device::format), for
    /// [`Pool::create_root_with`](remanent_pmem::Pool::create_root_with).
    pub(crate) fn format_in(heap: Heap<M>, size: u64, shape: Shape) -> Result<Self, PoolError> {
        Self::format(heap, size, shape).map_err(Error::into_pool)
    }

    /// Creates an empty disk of `size` bytes in a fresh heap.
    fn format(heap: Heap<M>, size: u64, shape: Shape) -> Result<Self> {
        check_size(size)?;
        check_shape(shape)?;
        let header = heap.header();
        let mut heap_lane = heap.enter().prepare_to_write();
        let meta = heap_lane.allocate_zeroed(META_LEN)?.offset;
        drop(heap_lane);
        let key = Key::new(&heap);
        let base = Base::new(heap, meta, key, shape);
        let medium = base.medium();
        let mut heap_lane = base.heap.enter().prepare_to_write();
        let directory = base.slabs().make_directory(&mut heap_lane)?;
        drop(heap_lane);
        let state = State { size, generation: 1, ..State::default() };
        let seal_and_put = |at, words, key: Key| {
            Line::store_encoded(medium, at, &Line::first(words).encode(at, key.of_line()));
        };
        let put = |at, words| seal_and_put(at, words, key);
        let Shape { slab_blocks, lines_max, spares_max } = shape;
        let lanes = LANE_COUNT as u64;
        let identity = [BLOCK_LEN, slab_blocks, lanes, meta, lines_max, spares_max, key.0];
        seal_and_put(header + IDENTITY, identity, Key::UNKNOWN);
        put(header + STATE, state.encode());
        for extent in (0..DIRECTORY_EXTENTS).step_by(WORDS) {
            let mut words = [0; WORDS];
            words[0] = if extent == 0 { directory } else { 0 };
            put(header + DIRECTORY + (extent / WORDS) as u64 * LINE_LEN, words);
        }
        for number in 0..SNAPSHOT_COUNT as u64 {
            put(meta + SNAPSHOTS + number * LINE_LEN, [0; WORDS]);
        }
        // Flush: the lines of the snapshots. The journal is zeros, which are no record.
        medium.flush(meta, SNAPSHOT_COUNT as u64 * LINE_LEN);
        // Flush and fence: before the root becomes live.
        medium.persist(header, DIRECTORY + DIRECTORY_LINES * LINE_LEN);
        base.heap.verify()?;
        Ok(Device::new(base, state, List::default()))
    }

    /// Opens a disk.
    fn load(heap: Heap<M>) -> Result<Self> {
        let header = heap.header();
        let identity = Key::UNKNOWN.load_line(heap.medium(), header + IDENTITY, Owner::NONE)?;
        let [block_len, slab_blocks, lane_count, meta, lines_max, spares_max, key] = identity.words;
        let shape = Shape { slab_blocks, lines_max, spares_max };
        let is_known = (block_len, lane_count) == (BLOCK_LEN, LANE_COUNT as u64)
            && shape.check().is_ok()
            && heap.has_large(meta, META_LEN)?;
        if !is_known {
            let what = "a disk of another format, or what says its format is damaged";
            return Err(Error::damaged(header + IDENTITY, what));
        }
        let base = Base::new(heap, meta, Key(key), shape);
        let in_doubt = recover_lanes(&base)?;
        let extents = base.slabs().read_extents()?;
        base.slabs().read(&extents)?;
        decide(&base, in_doubt)?;
        let state = base.key.load_line(base.medium(), header + STATE, Owner::NONE)?;
        let state = State::decode(&state.words);
        let snapshots = List::read(&base)?;
        check_state(&state, &snapshots, header + STATE)?;
        base.heap.recover(|extent| base.slabs().is_linked(&extents, extent))?;
        // No lane begins with an old record: the blocks of a long one are not marked as used, and
        // its lines may be of a snapshot that was removed since.
        base.clear_all_records();
        base.heap.verify()?;
        Ok(Device::new(base, state, snapshots))
    }
}

/// Reads the lanes' records, and makes durable what they certainly decided. [`decide`] handles the
/// rest.
fn recover_lanes<M: Medium>(base: &Base<M>) -> Result<Vec<InDoubt>> {
    let medium = base.medium();
    // Flush and fence: records that a killed process left in the caches alone, before anything is
    // decided by them.
    // Redundant: but where a process was killed before, and the power fails later.
    medium.persist(base.meta(), META_LEN);
    let (mut changes, mut torn, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let mut newest: HashMap<u64, u32> = HashMap::new();
    for (index, lane) in base.journal.lanes().iter().enumerate() {
        let found = Lane::find(medium, base.meta(), base.key, index)?;
        let in_doubt = found.in_doubt.iter().flat_map(|record| &record.changes);
        for Change { at, line, .. } in found.changes.iter().chain(in_doubt) {
            let known = newest.entry(*at).or_insert(line.version);
            *known = if is_newer(line.version, *known) { line.version } else { *known };
        }
        changes.extend(found.changes);
        torn.extend(found.torn);
        records.extend(found.in_doubt.map(|record| (index, record)));
        *lane.lock(medium) = found.lane;
    }
    // An unreadable record must not be taken for an absent one.
    base.heap.verify()?;
    let is_complete = |change: &Change| {
        let found = change.found(medium, base.key);
        is_newer(newest[&change.at], change.line.version)
            || found.is_some_and(|found| !is_newer(change.line.version, found.version))
    };
    let in_doubt = records.into_iter().map(|(lane, record)| InDoubt {
        is_complete: record.changes.iter().any(is_complete),
        lane,
        record,
    });
    // Collected before any of the lines is stored.
    let in_doubt = in_doubt.collect();
    redo(medium, base.key, changes, &torn);
    base.heap.verify()?;
    Ok(in_doubt)
}

/// Makes records durable that were completed, or all of whose blocks are complete, and undoes the
/// others.
fn decide<M: Medium>(base: &Base<M>, in_doubt: Vec<InDoubt>) -> Result<()> {
    let medium = base.medium();
    let (mut changes, mut torn) = (Vec::new(), Vec::new());
    for InDoubt { lane, record, is_complete } in in_doubt {
        let mut lane = base.journal.lanes()[lane].lock(medium);
        let slot = lane.slot_of(base.meta(), &record);
        if is_complete || leads_to_whole(base, &record, slot)? {
            lane.adopt(&record);
            changes.extend(record.changes);
        } else {
            torn.push(slot);
        }
    }
    base.heap.verify()?;
    // Fence: the blocks that were found complete, before any line leads to them.
    // Redundant: but where a process was killed before, and the power fails later.
    medium.fence();
    redo(medium, base.key, changes, &torn);
    Ok(base.heap.verify()?)
}

/// Whether all blocks of the record at `from` match their checksums. Durable with the next fence.
fn leads_to_whole<M: Medium>(base: &Base<M>, record: &Record, from: u64) -> Result<bool> {
    let mut block = [0; BLOCK_LEN as usize];
    for change in &record.changes {
        for (word, entry) in change.entries_written() {
            let lba = change.owner.lba(change.at, word);
            let lba = lba.ok_or_else(|| Error::damaged(from, "a record writes no leaf"))?;
            let at = base.space.locate(entry.block, from)?;
            base.medium().read(at, &mut block);
            if crc32c(&block) ^ base.key.mask(lba) != entry.checksum {
                return Ok(false);
            }
            // Flush: a killed process may have left the block in the caches alone; fenced before
            // any line leads to it.
            // Redundant: as that fence.
            base.medium().flush(at, BLOCK_LEN);
        }
    }
    Ok(true)
}

/// The last record of a lane, which may have become durable before its blocks.
struct InDoubt {
    lane: usize,
    record: Record,
    /// Whether the record is known to be complete. Its blocks may then have been reused since.
    is_complete: bool,
}

/// Refuses an impossible state, from which a walk might not end.
fn check_state(state: &State, snapshots: &List, at: u64) -> Result<()> {
    check_size(state.size)?;
    let sorted = snapshots.sorted();
    let trees = sorted.iter().map(|snapshot| snapshot.tree).chain([state.tree]);
    let is_sound = trees.map(|tree| tree.height).max() <= Some(HEIGHT_MAX)
        && state.discard_end <= SIZE_MAX / BLOCK_LEN
        && sorted.iter().all(|snapshot| snapshot.size <= SIZE_MAX)
        && sorted.is_sorted_by(|one, other| one.generation < other.generation)
        && sorted.last().is_none_or(|snapshot| snapshot.generation < state.generation)
        && state.generation <= GENERATION_MAX;
    if is_sound { Ok(()) } else { Err(Error::damaged(at, "the disk's state contradicts itself")) }
}

/// Refuses impossible limits.
pub(crate) fn check_shape(shape: Shape) -> Result<()> {
    shape.check().map_err(|reason| Error::Shape { shape, reason })
}
