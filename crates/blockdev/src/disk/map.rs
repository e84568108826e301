//! The map from a logical block to its data: the disk's own tree, and a cache of its leaves.
//!
//! Memory holds the places of the leaves of the disk's tree, so reading follows one entry and not
//! the whole path.

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
/// Bit of a word of [`Leaves`]: the leaf is known.
const KNOWN: u64 = 1 << 63;

/// Places of the leaves of the disk's tree, as far as they are known; volatile.
#[derive(Debug)]
struct Leaves {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Leaves {
    fn new() -> Self {
        let count = LEAVES_MAX.div_ceil(SEGMENT_LEAVES);
        Leaves { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The leaf, which may be none; `None` if it is not known.
    #[inline]
    fn get(&self, leaf: u64) -> Option<Child> {
        let segment = self.segments.get((leaf / SEGMENT_LEAVES) as usize)?.get()?;
        // Acquire: partner of `set`; the content of the leaf is visible.
        let word = segment[(leaf % SEGMENT_LEAVES) as usize].load(Ordering::Acquire);
        (word & KNOWN != 0).then(|| Child::decode(word & !KNOWN))
    }

    fn set(&self, leaf: u64, child: Child) {
        let Some(segment) = self.segments.get((leaf / SEGMENT_LEAVES) as usize) else { return };
        let segment =
            segment.get_or_init(|| (0..SEGMENT_LEAVES).map(|_| AtomicU64::new(0)).collect());
        // Release: partner of `get`.
        segment[(leaf % SEGMENT_LEAVES) as usize].store(child.encode() | KNOWN, Ordering::Release);
    }
}

/// The place of a block's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    /// Pool offset of the line.
    pub(crate) at: u64,
    /// The leaf that contains the line.
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

/// Lines of the map, each with its first entry that is meant, and the words that are meant.
pub(crate) type Places = SmallVec<[(EntryPlace, Range<usize>); 8]>;

/// The map of a disk: finds the leaf with a block's entry, and follows the entry.
///
/// Changing an entry takes a lane and the stripe of the entry's line. Making or copying a leaf also
/// takes the lock of the state.
#[derive(Debug)]
pub(crate) struct Map<M: Medium> {
    pub(crate) base: Base<M>,
    leaves: Leaves,
    /// Held to change nodes above the leaves, or anything else in the line of the state.
    pub(crate) state: PauseMutex<State>,
    /// Size of the disk in bytes, a copy of that in `state`.
    size: AtomicU64,
    /// Nodes of this generation and of earlier ones are shared with a snapshot.
    shared_until: AtomicU32,
    /// The tree of the newest snapshot. It changes only while every lane is held.
    newest: PauseMutex<Tree>,
    stripes: Stripes,
}

impl<M: Medium> Map<M> {
    /// The map of a disk in this state. No leaf is known yet.
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
        // Acquire: partner of `publish`; a thread that sees a disk larger again also sees that it
        // was emptied before.
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

    /// The disk's own tree at present.
    pub(crate) fn tree(&self) -> Tree {
        self.state.lock(self.medium()).tree
    }

    /// A change of the state's line.
    pub(crate) fn rewrite_state(&self, state: &State) -> Result<Change> {
        self.base.rewrite(self.base.heap.header() + STATE, state.encode())
    }

    /// Publishes a committed state to readers.
    pub(crate) fn publish(&self, known: &mut State, state: State) {
        *known = state;
        // Release: partner of `size`.
        self.size.store(state.size, Ordering::Release);
    }

    /// Makes nodes up to a generation copied before they change, because the newest snapshot, with
    /// this tree, shares them. Nobody changes anything meanwhile.
    pub(crate) fn share(&self, generation: u32, tree: Tree) {
        *self.newest.lock(self.medium()) = tree;
        // Relaxed: the locks of the lanes publish it.
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

    /// Prefetches a block's entry, if its place is known.
    #[inline]
    pub(crate) fn prefetch(&self, lba: Lba) -> Result<()> {
        if let Some(place) = self.own_place(lba)? {
            self.medium().prefetch(place.at);
        }
        Ok(())
    }

    /// The place of a block's entry, if it is known and the entry can be changed in place.
    #[inline]
    pub(crate) fn own_place(&self, lba: Lba) -> Result<Option<EntryPlace>> {
        match self.leaves.get(lba.leaf()).filter(|leaf| self.is_own(*leaf)) {
            Some(leaf) => Ok(Some(self.place_in(leaf, lba)?)),
            None => Ok(None),
        }
    }

    /// The place of a block's entry in its leaf.
    #[inline]
    pub(crate) fn place_in(&self, leaf: Child, lba: Lba) -> Result<EntryPlace> {
        let (line, word) = place_in_node(lba.place());
        let at = self.base.locate(leaf.block)? + line;
        Ok(EntryPlace { at, owner: Owner::leaf(leaf, lba.leaf()), word })
    }

    /// The line of an entry. Nobody stores to it meanwhile.
    #[inline]
    pub(crate) fn line_at(&self, place: EntryPlace) -> Result<Line> {
        self.base.key.load_line(self.medium(), place.at, place.owner)
    }

    /// The lines, and the words in them, of the entries of consecutive blocks, on the conditions of
    /// [`own_place`](Map::own_place).
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

    /// The disk's leaf of this number, or none.
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

    /// Whether the disk has a snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        // Relaxed: the value changes only while every lane is held.
        self.shared_until.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_own(&self, child: Child) -> bool {
        // Relaxed: the value changes only while every lane is held.
        !child.block.is_none() && child.generation > self.shared_until.load(Ordering::Relaxed)
    }

    /// Makes missing leaves, and copies those that a snapshot shares, all of them for two fences.
    /// They can then be changed in place while the lane is held.
    #[cold]
    pub(crate) fn make_leaves(&self, lane: &mut Lane, leaves: &[u64]) -> Result<()> {
        let mut known = self.state.lock(self.medium());
        let mut blocks = Vec::new();
        let made = self.make_paths(lane, &known, leaves, &mut blocks);
        // The unused blocks, or all of them.
        self.base.release(blocks);
        let (paths, state) = made?;
        self.publish(&mut known, state);
        paths.leaves.iter().for_each(|&(leaf, child)| self.leaves.set(leaf, child));
        Ok(())
    }

    /// Leaves in `blocks` those that are still free when it returns.
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

    /// Links new nodes. Returns the state with them.
    fn link(&self, lane: &mut Lane, paths: &mut Paths, state: &State) -> Result<State> {
        let made = paths.blocks();
        if made.is_empty() {
            // Another thread has linked them meanwhile.
            return Ok(*state);
        }
        paths.write(self.medium());
        // Fence: the new nodes, before anything leads to them.
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

    /// The entry of a block in a leaf that nobody changes, and its place.
    pub(crate) fn entry_in(&self, leaf: Child, lba: Lba) -> Result<(Entry, u64)> {
        if leaf.block.is_none() {
            return Ok((Entry::default(), self.base.heap.header() + STATE));
        }
        let place = self.place_in(leaf, lba)?;
        Ok((Entry::decode(self.line_at(place)?.words[place.word]), place.at))
    }

    /// Reads the block of an entry, or zeros.
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

    /// Reads the block of an entry, and compares its checksum.
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

    /// Whether the newest snapshot has this block at this place; the block then stays when it is
    /// replaced. If an older snapshot has it, all snapshots between have it, too.
    pub(crate) fn has_snapshot_of(&self, lba: Lba, block: Block) -> Result<bool> {
        if !self.has_snapshot() {
            return Ok(false);
        }
        let tree = *self.newest.lock(self.medium());
        let leaf = find_leaf(self.medium(), &self.base.space, tree, lba.leaf())?;
        Ok(self.entry_in(leaf, lba)?.0.block == block)
    }
}
