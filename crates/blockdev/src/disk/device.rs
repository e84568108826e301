//! The device under a [`Disk`](crate::Disk): its lanes, and what all operations share.

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};
use smallvec::SmallVec;

use super::change::Datum;
use super::journal::{Lane, VOUCHED_MAX, settle};
use super::layout::{BLOCK_LEN, Block, Child, LANE_COUNT, STATE, Shape, State, Tree};
use super::map::Leaves;
use super::record::{Change, Spares, spill_count};
use super::snapshot::Snapshots;
use super::space::{Bit, Space};
use super::stripes::{Held, Stripes};
use super::tree::{Paths, find_leaf};
use crate::line::{Line, WORDS};
use crate::seal::{Key, Owner};
use crate::{Error, Result};

/// Blocks that are taken at once by who needs a few.
const REFILL: usize = 8;
/// Versions after which no record may be left that an earlier version is in.
const VERSIONS_SETTLED: u32 = 1 << 30;

/// A disk's persistent part, and the volatile part that exists once in a process.
///
/// Locks are taken in this order: `resizing`, a lane, `structure`, stripes of the map in ascending order, stripes of the
/// bits in ascending order, `growth`, `space`. Whoever holds `growth` changes lines that nobody else changes, and so few that
/// they fit a slot: it needs no stripe, and no block for its record.
#[derive(Debug)]
pub(crate) struct Device<M: Medium> {
    pub(crate) heap: Heap<M>,
    /// Offset of the meta extent.
    pub(crate) meta: u64,
    /// What the disk's checksums are made with.
    pub(crate) key: Key,
    /// Lines that a slot of the journal is to have at most.
    pub(crate) lines_max: usize,
    /// Blocks that a record vouches for at most.
    vouched_max: usize,
    /// Spares that a lane keeps at most.
    pub(crate) spares_max: usize,
    pub(crate) lanes: Box<[PauseMutex<Lane>]>,
    pub(crate) space: Space,
    pub(crate) leaves: Leaves,
    pub(crate) structure: PauseMutex<Structure>,
    /// Bytes of the disk, as `structure` has them.
    pub(crate) size: AtomicU64,
    /// Nodes of this generation, and before, belong to a snapshot too.
    pub(crate) shared_until: AtomicU32,
    /// The newest snapshot, as `structure` has it: it changes while every lane is held.
    pub(crate) newest: PauseMutex<Tree>,
    /// Held by who makes the disk larger or smaller, before any lane.
    pub(crate) resizing: PauseMutex<()>,
    /// Held by who takes slabs from the pool.
    growth: PauseMutex<()>,
    map_stripes: Stripes,
    bit_stripes: Stripes,
    must_settle: AtomicBool,
    /// Whether it was made or opened to the end: until then the lanes' records are not to be written over.
    is_ready: AtomicBool,
}

/// What is the same for the whole disk.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    pub(crate) state: State,
    pub(crate) snapshots: Snapshots,
    /// Who reads a snapshot, by its generation.
    pub(crate) readers: HashMap<u32, Weak<()>>,
}

impl<M: Medium> Device<M> {
    /// A device whose volatile part knows nothing yet.
    pub(crate) fn new(heap: Heap<M>, meta: u64, key: Key, shape: Shape) -> Self {
        Device {
            heap,
            meta,
            key,
            lines_max: shape.lines_max as usize,
            // Less where slots are made small: so that the simulator meets both sides of it.
            vouched_max: VOUCHED_MAX.min(shape.lines_max.saturating_mul(2) as usize),
            spares_max: shape.spares_max as usize,
            lanes: (0..LANE_COUNT).map(|index| PauseMutex::new(Lane::new(index, key))).collect(),
            space: Space::new(shape.slab_blocks, key),
            leaves: Leaves::new(),
            structure: PauseMutex::default(),
            size: AtomicU64::new(0),
            shared_until: AtomicU32::new(0),
            newest: PauseMutex::default(),
            resizing: PauseMutex::default(),
            growth: PauseMutex::default(),
            map_stripes: Stripes::new(),
            bit_stripes: Stripes::new(),
            must_settle: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
        }
    }

    /// To be called when nothing is left of what a crash has interrupted.
    pub(crate) fn set_ready(&self) {
        // Relaxed: read by who has it alone.
        self.is_ready.store(true, Ordering::Relaxed);
    }

    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    pub(crate) fn size(&self) -> u64 {
        // Acquire: with `publish`, so that who sees a smaller disk made larger sees it emptied before.
        self.size.load(Ordering::Acquire)
    }

    /// Takes a lane: the thread's own if nobody has it.
    pub(crate) fn enter(&self) -> PauseGuard<'_, Lane> {
        let first = self.medium().thread() as usize % LANE_COUNT;
        loop {
            let mut lanes = (0..LANE_COUNT).map(|step| &self.lanes[(first + step) % LANE_COUNT]);
            if let Some(lane) = lanes.find_map(PauseMutex::try_lock) {
                return lane;
            }
            self.medium().pause();
        }
    }

    /// Does `change` in a lane, and reports what the medium could not do.
    pub(crate) fn in_lane<R>(&self, change: impl FnOnce(&mut Lane) -> Result<R>) -> Result<R> {
        let changed = change(&mut self.enter());
        // Relaxed: the lanes' locks order what is settled.
        if self.must_settle.load(Ordering::Relaxed)
            && self.must_settle.swap(false, Ordering::Relaxed)
        {
            self.settle_all();
        }
        // Before anything else the medium's fault: what was read meanwhile is not to be believed.
        self.heap.verify()?;
        changed
    }

    /// Does `change` while nobody else changes anything.
    pub(crate) fn alone<R>(
        &self,
        change: impl FnOnce(&mut [PauseGuard<'_, Lane>]) -> Result<R>,
    ) -> Result<R> {
        let mut lanes: Vec<_> = self.lanes.iter().map(|lane| lane.lock(self.medium())).collect();
        let changed = change(&mut lanes);
        drop(lanes);
        self.heap.verify()?;
        changed
    }

    /// Leaves no record in any lane that anybody would look at again.
    pub(crate) fn settle_all(&self) {
        let mut lanes: Vec<_> = self.lanes.iter().map(|lane| lane.lock(self.medium())).collect();
        self.settle(&mut lanes);
    }

    /// As [`settle_all`](Device::settle_all), for who has the lanes.
    pub(crate) fn settle(&self, lanes: &mut [PauseGuard<'_, Lane>]) {
        settle(self.medium(), self.meta, lanes.iter_mut().map(|lane| &mut **lane));
        for lane in lanes {
            self.space.release(self.medium(), std::mem::take(&mut lane.spilled));
        }
    }

    /// Makes changes happen as one, together with `data`, and with them that the lane has other spares; see
    /// [`Lane::commit`]. Their locks are held, or nobody else changes these lines.
    pub(crate) fn commit(
        &self,
        lane: &mut Lane,
        changes: &mut [Change],
        spares: Option<Spares>,
        data: &[Datum<'_>],
    ) -> Result<()> {
        let spare_count = spares.as_ref().map_or(lane.spares.len(), |spares| spares.len());
        let spill = match spill_count(changes.len(), spare_count, self.lines_max) {
            0 => Vec::new(),
            count => self.reserve(lane, count)?,
        };
        let located = spill.iter().map(|&block| self.space.locate(block, self.meta));
        let located: SmallVec<[u64; 4]> = located.collect::<Result<_>>()?;
        // From here on nothing fails: what else was committed in this lane has had the spares of before.
        if let Some(spares) = spares {
            lane.spares = spares;
        }
        self.commit_at(lane, changes, spill, &located, data);
        Ok(())
    }

    /// As [`commit`](Device::commit), with the lane's spares as they are, and a record in the blocks `spill`, at `located`.
    #[inline]
    pub(crate) fn commit_at(
        &self,
        lane: &mut Lane,
        changes: &mut [Change],
        spill: Vec<Block>,
        located: &[u64],
        data: &[Datum<'_>],
    ) {
        lane.commit(self.medium(), self.meta, changes, located, data, self.vouched_max);
        if !spill.is_empty() || !lane.spilled.is_empty() {
            let done = std::mem::replace(&mut lane.spilled, spill);
            self.space.release(self.medium(), done);
        }
        if changes.iter().any(|change| change.line.version.is_multiple_of(VERSIONS_SETTLED)) {
            // Relaxed: as in `in_lane`.
            self.must_settle.store(true, Ordering::Relaxed);
        }
    }

    /// The line at `at`, which is no node's, with other words: what a commit changes it to.
    pub(crate) fn rewrite(&self, at: u64, words: [u64; WORDS]) -> Result<Change> {
        Change::rewrite(self.medium(), self.key, at, words)
    }

    /// The line at `at`, which is no node's, and which nobody stores to meanwhile.
    pub(crate) fn load_line(&self, at: u64) -> Result<Line> {
        self.key.load_line(self.medium(), at, Owner::NONE)
    }

    /// The change of the state's line.
    pub(crate) fn rewrite_state(&self, state: &State) -> Result<Change> {
        self.rewrite(self.heap.header() + STATE, state.encode())
    }

    /// Makes a state count that was committed.
    pub(crate) fn publish(&self, structure: &mut Structure, state: State) {
        structure.state = state;
        // Release: with `size`.
        self.size.store(state.size, Ordering::Release);
    }

    /// As [`reserve`](Device::reserve), of more than `count`, for who takes a few each time; what is left is no more than a
    /// lane may keep.
    pub(crate) fn reserve_some(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        match self.reserve(lane, count.max(REFILL.min(self.spares_max))) {
            Err(error) if error.is_full() => self.reserve(lane, count),
            reserved => reserved,
        }
    }

    /// Takes `count` blocks that nobody has, from new slabs if need be.
    ///
    /// # Errors
    ///
    /// When the pool is full; then nothing was taken, of the pool neither but where [`add_slabs`](Device::add_slabs) says so.
    pub(crate) fn reserve(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        let mut taken = self.space.reserve(self.medium(), count)?;
        while taken.len() < count {
            let slabs = self.space.slab_count();
            let grown = {
                let _growth = self.growth.lock(self.medium());
                // Another thread may have been here meanwhile.
                if self.space.slab_count() > slabs {
                    Ok(())
                } else {
                    self.add_slabs(lane, count - taken.len())
                }
            };
            let more = grown.and_then(|()| self.space.reserve(self.medium(), count - taken.len()));
            match more {
                Ok(more) => taken.extend(more),
                Err(error) => {
                    self.space.release(self.medium(), taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Where the disk's leaf is, if there is one.
    pub(crate) fn leaf(&self, leaf: u64) -> Result<Child> {
        match self.leaves.get(leaf) {
            Some(child) => Ok(child),
            None => self.find_leaf(leaf),
        }
    }

    #[cold]
    fn find_leaf(&self, leaf: u64) -> Result<Child> {
        // Nodes above the leaves change under this lock alone.
        let structure = self.structure.lock(self.medium());
        let child = find_leaf(self.medium(), &self.space, structure.state.tree, leaf)?;
        self.leaves.set(leaf, child);
        Ok(child)
    }

    /// Whether there is any.
    pub(crate) fn has_snapshot(&self) -> bool {
        // Relaxed: it changes while every lane is held.
        self.shared_until.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_own(&self, child: Child) -> bool {
        // Relaxed: it changes while every lane is held.
        !child.block.is_none() && child.generation > self.shared_until.load(Ordering::Relaxed)
    }

    /// Makes leaves, or copies them where a snapshot has them too, all of them for two fences. They can be changed in
    /// place then, as long as the lane is held.
    #[cold]
    pub(crate) fn make_leaves(&self, lane: &mut Lane, leaves: &[u64]) -> Result<()> {
        let mut structure = self.structure.lock(self.medium());
        let mut blocks = Vec::new();
        let made = self.make_paths(lane, &structure.state, leaves, &mut blocks);
        // Those that were not needed, or all.
        self.space.release(self.medium(), blocks);
        let (paths, state) = made?;
        self.publish(&mut structure, state);
        paths.leaves.iter().for_each(|&(leaf, child)| self.leaves.set(leaf, child));
        Ok(())
    }

    /// `blocks` are those that nobody has when it returns.
    fn make_paths(
        &self,
        lane: &mut Lane,
        state: &State,
        leaves: &[u64],
        blocks: &mut Vec<Block>,
    ) -> Result<(Paths, State)> {
        let medium = self.medium();
        // Relaxed: as in `is_own`.
        let shared_until = self.shared_until.load(Ordering::Relaxed);
        let mut paths = Paths::new(state.tree, state.generation, shared_until);
        for &leaf in leaves {
            let added = paths.add(medium, &self.space, leaf, || match blocks.pop() {
                Some(block) => Ok(block),
                None => {
                    *blocks = self.reserve_some(lane, 1)?;
                    Ok(blocks.pop().expect("one at least"))
                }
            });
            if added.is_err() {
                blocks.extend(paths.blocks());
            }
            added?;
        }
        let linked = self.link(lane, &mut paths, state);
        if linked.is_err() {
            blocks.extend(paths.blocks());
        }
        Ok((paths, linked?))
    }

    /// Makes new nodes count; the answer is the state with them.
    fn link(&self, lane: &mut Lane, paths: &mut Paths, state: &State) -> Result<State> {
        let made = paths.blocks();
        if made.is_empty() {
            // Another thread was here meanwhile.
            return Ok(*state);
        }
        paths.write(self.medium());
        // Fence: the nodes, before anything leads to them.
        self.medium().fence();
        let mut changes = std::mem::take(&mut paths.changes);
        let linked = State { tree: paths.tree, ..*state };
        if linked != *state {
            changes.push(self.rewrite_state(&linked)?);
        }
        let _held = self.mark(&made, &[], &mut changes)?;
        self.commit(lane, &mut changes, None, &[])?;
        Ok(linked)
    }

    /// Waits for the locks of lines of the map.
    pub(crate) fn hold_map(&self, lines: impl Iterator<Item = u64>) -> Held<'_> {
        self.map_stripes.hold(self.medium(), lines)
    }

    /// Waits for the lock of one line of the map.
    #[inline]
    pub(crate) fn hold_line(&self, at: u64) -> PauseGuard<'_, ()> {
        self.map_stripes.hold_one(self.medium(), at)
    }

    /// Adds to `changes` that blocks are in use from now on, and others free. The locks are to be held until that is
    /// committed.
    pub(crate) fn mark(
        &self,
        used: &[Block],
        free: &[Block],
        changes: &mut impl Extend<Change>,
    ) -> Result<Held<'_>> {
        if used.is_empty() && free.is_empty() {
            return Ok(Held::new());
        }
        self.space.look_at_all(self.medium(), free)?;
        let mut bits: Vec<(Bit, bool)> = Vec::with_capacity(used.len() + free.len());
        for (blocks, is_used) in [(used, true), (free, false)] {
            for &block in blocks {
                bits.push((self.space.bit(block)?, is_used));
            }
        }
        bits.sort_unstable_by_key(|(bit, _)| bit.line);
        let held = self.bit_stripes.hold(self.medium(), bits.iter().map(|(bit, _)| bit.line));
        for part in bits.chunk_by(|(one, _), (other, _)| one.line == other.line) {
            let at = part[0].0.line;
            let mut line = self.load_line(at)?;
            for (bit, is_used) in part {
                let word = &mut line.words[bit.word];
                if (*word & bit.mask != 0) == *is_used {
                    let state = if *is_used { "used" } else { "free" };
                    let what = format!("a block of this line is {state} already");
                    return Err(Error::damaged(at, what));
                }
                *word ^= bit.mask;
            }
            line.version = line.version.wrapping_add(1);
            changes.extend([Change::new(at, line)]);
        }
        Ok(held)
    }

    /// Whether the range lies on the disk.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size }),
        }
    }
}

impl<M: Medium> Drop for Device<M> {
    /// Leaves no record that opening would have to prove: a block that a damaged medium changes later is one that fails its
    /// checksum, and no write that a crash has torn.
    fn drop(&mut self) {
        if *self.is_ready.get_mut() && self.medium().fault().is_none() && !std::thread::panicking()
        {
            self.settle_all();
        }
    }
}

const _: () = assert!(BLOCK_LEN.is_multiple_of(LINE_LEN));
