//! From a logical block to where its data lie: the disk's own tree, and what is known of it in memory.
//!
//! Where the leaves of the disk's tree lie is kept in memory, so that reading follows one entry and not the whole path.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Medium, WORD_LEN, crc32c};
use smallvec::SmallVec;

use super::base::Base;
use super::journal::Lane;
use super::layout::{Block, Child, Entry, Lba, NODE_ENTRIES, STATE, State, Tree, place_in_node};
use super::record::Change;
use super::stripes::{Held, Stripes};
use super::tree::{Paths, find_leaf};
use crate::line::{Line, WORDS};
use crate::seal::Owner;
use crate::{Error, Result};

/// Leaves of a segment of [`Leaves`].
const SEGMENT_LEAVES: u64 = 4096;
/// Leaves of the largest disk.
const LEAVES_MAX: u64 = (1 << 32) / NODE_ENTRIES + 1;
/// Set in what is known of a leaf.
const KNOWN: u64 = 1 << 63;

/// Where the leaves of the disk's tree lie, as far as it is known; volatile.
#[derive(Debug)]
struct Leaves {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Leaves {
    fn new() -> Self {
        let count = LEAVES_MAX.div_ceil(SEGMENT_LEAVES);
        Leaves { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The leaf, or none; `None` when it is not known.
    #[inline]
    fn get(&self, leaf: u64) -> Option<Child> {
        let segment = self.segments.get((leaf / SEGMENT_LEAVES) as usize)?.get()?;
        // Acquire: with `set`, so that the leaf's content is seen.
        let word = segment[(leaf % SEGMENT_LEAVES) as usize].load(Ordering::Acquire);
        (word & KNOWN != 0).then(|| Child::decode(word & !KNOWN))
    }

    fn set(&self, leaf: u64, child: Child) {
        let Some(segment) = self.segments.get((leaf / SEGMENT_LEAVES) as usize) else { return };
        let segment =
            segment.get_or_init(|| (0..SEGMENT_LEAVES).map(|_| AtomicU64::new(0)).collect());
        // Release: with `get`.
        segment[(leaf % SEGMENT_LEAVES) as usize].store(child.encode() | KNOWN, Ordering::Release);
    }
}

/// Where a block's entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    /// Pool offset of the line.
    pub(crate) at: u64,
    /// The leaf that it is a line of.
    pub(crate) owner: Owner,
    pub(crate) word: usize,
}

impl EntryPlace {
    /// Pool offset of the entry.
    #[inline]
    pub(crate) fn entry(self) -> u64 {
        self.at + self.word as u64 * WORD_LEN
    }
}

/// Lines of the map, by their first entry that is meant, and words in each of them.
pub(crate) type Places = SmallVec<[(EntryPlace, Range<usize>); 8]>;

/// The map of a disk: which leaf has a block's entry, and what the entry leads to.
///
/// To change an entry takes a lane and the stripe of the entry's line. To make or copy a leaf takes the state's lock, too.
#[derive(Debug)]
pub(crate) struct Map<M: Medium> {
    pub(crate) base: Base<M>,
    leaves: Leaves,
    /// Held by who changes nodes above the leaves, or anything else that the state's line says.
    pub(crate) state: PauseMutex<State>,
    /// Bytes of the disk, as `state` has them.
    size: AtomicU64,
    /// Nodes of this generation, and before, belong to a snapshot too.
    shared_until: AtomicU32,
    /// The tree of the newest snapshot: it changes while every lane is held.
    newest: PauseMutex<Tree>,
    stripes: Stripes,
}

impl<M: Medium> Map<M> {
    /// The map of a disk in this state. Where its leaves are is not known yet.
    pub(crate) fn new(base: Base<M>, state: State) -> Self {
        Map {
            base,
            leaves: Leaves::new(),
            state: PauseMutex::new(state),
            size: AtomicU64::new(state.size),
            shared_until: AtomicU32::new(0),
            newest: PauseMutex::default(),
            stripes: Stripes::new(),
        }
    }

    #[inline]
    pub(crate) fn medium(&self) -> &M {
        self.base.medium()
    }

    pub(crate) fn size(&self) -> u64 {
        // Acquire: with `publish`, so that who sees a smaller disk made larger sees it emptied before.
        self.size.load(Ordering::Acquire)
    }

    /// Whether the range lies on the disk.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size }),
        }
    }

    /// The disk's own tree, as it is.
    pub(crate) fn tree(&self) -> Tree {
        self.state.lock(self.medium()).tree
    }

    /// The change of the state's line.
    pub(crate) fn rewrite_state(&self, state: &State) -> Result<Change> {
        self.base.rewrite(self.base.heap.header() + STATE, state.encode())
    }

    /// Makes a state count that was committed.
    pub(crate) fn publish(&self, known: &mut State, state: State) {
        *known = state;
        // Release: with `size`.
        self.size.store(state.size, Ordering::Release);
    }

    /// Has nodes up to a generation copied before they change, since the newest snapshot, with this tree, has them.
    /// Nobody changes anything meanwhile.
    pub(crate) fn share(&self, generation: u32, tree: Tree) {
        *self.newest.lock(self.medium()) = tree;
        // Relaxed: published by the lanes' locks.
        self.shared_until.store(generation, Ordering::Relaxed);
    }

    /// Waits for the locks of some lines.
    pub(crate) fn hold(&self, lines: impl Iterator<Item = u64>) -> Held<'_> {
        self.stripes.hold(self.medium(), lines)
    }

    /// Waits for the lock of one line.
    #[inline]
    pub(crate) fn hold_one(&self, at: u64) -> PauseGuard<'_, ()> {
        self.stripes.hold_one(self.medium(), at)
    }

    /// Has a block's entry on its way to the core, if it is known where that is.
    #[inline]
    pub(crate) fn prefetch(&self, lba: Lba) -> Result<()> {
        if let Some(place) = self.own_place(lba)? {
            self.medium().prefetch(place.at);
        }
        Ok(())
    }

    /// Where a block's entry is, if that is known and it can be changed in place.
    #[inline]
    pub(crate) fn own_place(&self, lba: Lba) -> Result<Option<EntryPlace>> {
        match self.leaves.get(lba.leaf()).filter(|leaf| self.is_own(*leaf)) {
            Some(leaf) => Ok(Some(self.place_in(leaf, lba)?)),
            None => Ok(None),
        }
    }

    /// Where a block's entry is in its leaf.
    #[inline]
    pub(crate) fn place_in(&self, leaf: Child, lba: Lba) -> Result<EntryPlace> {
        let (line, word) = place_in_node(lba.place());
        let at = self.base.locate(leaf.block)? + line;
        Ok(EntryPlace { at, owner: Owner::leaf(leaf, lba.leaf()), word })
    }

    /// The line of an entry, which nobody stores to meanwhile.
    #[inline]
    pub(crate) fn line_at(&self, place: EntryPlace) -> Result<Line> {
        self.base.key.load_line(self.medium(), place.at, place.owner)
    }

    /// The lines, and the words in them, of the entries of blocks in a row, as [`own_place`](Map::own_place).
    #[inline]
    pub(crate) fn own_places(&self, first: Lba, count: usize) -> Result<Option<Places>> {
        let mut places = Places::new();
        let (mut lba, end) = (first.0, first.0 + count as u64);
        while lba < end {
            let Some(place) = self.own_place(Lba(lba))? else { return Ok(None) };
            let words = place.word..WORDS.min(place.word + (end - lba) as usize);
            lba += words.len() as u64;
            places.push((place, words));
        }
        Ok(Some(places))
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
        let state = self.state.lock(self.medium());
        let child = find_leaf(self.medium(), &self.base.space, state.tree, leaf)?;
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
        let mut known = self.state.lock(self.medium());
        let mut blocks = Vec::new();
        let made = self.make_paths(lane, &known, leaves, &mut blocks);
        // Those that were not needed, or all.
        self.base.release(blocks);
        let (paths, state) = made?;
        self.publish(&mut known, state);
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
            let added = paths.add(medium, &self.base.space, leaf, || match blocks.pop() {
                Some(block) => Ok(block),
                None => {
                    *blocks = self.base.reserve_some(lane, 1)?;
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
        let _held = self.base.mark(&made, &[], &mut changes)?;
        self.base.commit(lane, &mut changes, None, &[])?;
        Ok(linked)
    }

    /// The entry of a block in a leaf that nobody changes, and where it is.
    pub(crate) fn entry_in(&self, leaf: Child, lba: Lba) -> Result<(Entry, u64)> {
        if leaf.block.is_none() {
            return Ok((Entry::default(), self.base.heap.header() + STATE));
        }
        let place = self.place_in(leaf, lba)?;
        Ok((Entry::decode(self.line_at(place)?.words[place.word]), place.at))
    }

    /// Reads what an entry leads to, or zeros.
    pub(crate) fn read_entry(
        &self,
        lba: Lba,
        entry: Entry,
        from: u64,
        data: &mut [u8],
    ) -> Result<()> {
        if entry.block.is_none() {
            data.fill(0);
            return Ok(());
        }
        self.read_verified(lba, entry, from, data)
    }

    /// Reads the block that an entry leads to, and compares its checksum.
    pub(crate) fn read_verified(
        &self,
        lba: Lba,
        entry: Entry,
        from: u64,
        data: &mut [u8],
    ) -> Result<()> {
        let at = self.base.space.locate(entry.block, from)?;
        self.medium().read(at, data);
        let (found, expected) = (crc32c(data), entry.checksum ^ self.base.key.mask(lba));
        if found == expected {
            return Ok(());
        }
        Err(Error::Checksum { offset: lba.offset(), at, found, expected })
    }

    /// Whether the newest snapshot has this block at this place: then it stays when it is replaced. An older one that
    /// has it has it through all between.
    pub(crate) fn has_snapshot_of(&self, lba: Lba, block: Block) -> Result<bool> {
        if !self.has_snapshot() {
            return Ok(false);
        }
        let tree = *self.newest.lock(self.medium());
        let leaf = find_leaf(self.medium(), &self.base.space, tree, lba.leaf())?;
        Ok(self.entry_in(leaf, lba)?.0.block == block)
    }
}
