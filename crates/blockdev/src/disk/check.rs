//! The check of a disk: its consistency, and its data against their checksums.

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry as Slot};
use std::ops::{ControlFlow, Range};

use remanent_pmem::heap::Violation;
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::base::Base;
use super::layout::{BLOCK_LEN, Block, Child, Entry, Lba, NODE_ENTRIES, entry_of_line, leaves};
use super::map::Map;
use super::read::Reader;
use super::snapshot::Snapshots;
use super::tree::{Node, find_leaf};
use crate::error::LINE_DAMAGED;
use crate::line::{BITS, Line, WORDS};
use crate::{Error, Result};

/// Violations that are kept; further ones are only counted.
const TOLD_MAX: usize = 100;

/// How much of a disk is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckScope {
    /// The map and the free-block bitmaps. Writers wait meanwhile.
    Map,
    /// Also all data, against their checksums. Writers do not wait for this part.
    All,
}

/// The first violations, and how many more there were.
#[derive(Debug, Default)]
pub(crate) struct Told {
    violations: Vec<Violation>,
    untold: u64,
}

impl Told {
    pub(crate) fn push(&mut self, violation: Violation) {
        if self.violations.len() < TOLD_MAX {
            self.violations.push(violation);
        } else {
            self.untold += 1;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Violation> {
        if self.untold > 0 {
            self.violations.push(Violation::new(0, format!("and {} more", self.untold)));
        }
        self.violations
    }
}

/// Hands on violations, except repetitions of the last one: a damaged line is met for each of its
/// entries.
struct Teller<'t> {
    tell: &'t mut dyn FnMut(Violation),
    last: Option<Violation>,
    count: u64,
    /// Whether only blocks are reported, because lines were checked before.
    is_of_data: bool,
}

impl<'t> Teller<'t> {
    fn new(tell: &'t mut dyn FnMut(Violation)) -> Self {
        Teller { tell, last: None, count: 0, is_of_data: false }
    }

    fn tell(&mut self, violation: Violation) {
        if self.last.as_ref() != Some(&violation) {
            self.count += 1;
            self.last = Some(violation.clone());
            (self.tell)(violation);
        }
    }

    /// Reports an error that describes damage of the disk; returns any other error.
    fn tell_error(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Damaged { .. } if self.is_of_data => {}
            Error::Damaged { violation } => self.tell(violation),
            Error::Checksum { at, .. } => self.tell(Violation::new(at, error.to_string())),
            other => return Err(other),
        }
        Ok(())
    }

    /// Like `tell_error`; the value is then the default.
    fn note<T: Default>(&mut self, read: Result<T>) -> Result<T> {
        read.or_else(|error| self.tell_error(error).map(|()| T::default()))
    }
}

/// The use of each block, to be compared with the free-block bitmaps.
struct Used<'u, 't> {
    blocks: BTreeMap<Block, Use>,
    /// Whether a part of the map could not be read. Then the use of a block is unknown.
    is_partial: bool,
    teller: &'u mut Teller<'t>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Bits,
    /// A node so many levels above the leaves, with this first leaf.
    Node(u32, u64),
    Data(Lba),
    Spare,
}

impl Used<'_, '_> {
    /// Notes a use. Returns whether it is the first one of this block.
    fn note(&mut self, block: Block, found: Use, at: u64) -> bool {
        match self.blocks.entry(block) {
            Slot::Vacant(slot) => {
                slot.insert(found);
                true
            }
            Slot::Occupied(known) => {
                let known = *known.get();
                // Snapshots share nodes and data, each in the same place.
                if known != found || found == Use::Spare {
                    let what = format!("block {} is {found:?}, and {known:?}", block.0);
                    self.teller.tell(Violation::new(at, what));
                }
                false
            }
        }
    }
}

/// A check of a disk.
#[derive(Debug)]
pub(crate) struct Check<'d, M: Medium> {
    pub(crate) map: &'d Map<M>,
    pub(crate) snapshots: &'d Snapshots,
}

impl<M: Medium> Check<'_, M> {
    fn base(&self) -> &Base<M> {
        &self.map.base
    }

    /// Reports each violation once, as it is found. `progress` gets the bytes of data read so far,
    /// and may break off.
    pub(crate) fn run(
        &self,
        scope: CheckScope,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        tell: &mut dyn FnMut(Violation),
    ) -> Result<()> {
        let mut teller = Teller::new(tell);
        self.check_map(&mut teller)?;
        if scope == CheckScope::All {
            teller.is_of_data = teller.count > 0;
            self.check_data(progress, &mut teller)?;
        }
        Ok(())
    }

    /// Proves that the map, its snapshots and the free-block bitmaps agree. Nobody changes anything
    /// meanwhile.
    fn check_map(&self, teller: &mut Teller<'_>) -> Result<()> {
        let base = &self.map.base;
        base.alone(|lanes| {
            let mut used = Used { blocks: BTreeMap::new(), is_partial: false, teller };
            for index in 0..self.base().space.slab_count() {
                used.note(
                    Block((index as u64 * self.base().space.slab_blocks()) as u32),
                    Use::Bits,
                    0,
                );
            }
            for lane in lanes.iter() {
                for &spare in &lane.spares {
                    used.note(spare, Use::Spare, base.meta());
                }
            }
            let snapshots = self.snapshots.all(self.map.medium());
            let trees = snapshots.iter().map(|snapshot| snapshot.tree);
            for tree in trees.chain([self.map.tree()]) {
                self.check_node(Node { child: tree.top, level: tree.height, leaf: 0 }, &mut used)?;
            }
            self.check_bits(&mut used);
            Ok(())
        })?;
        let extents = teller.note(base.slabs().read_extents())?;
        let (runs, errors) = base.slabs().runs();
        for error in errors {
            teller.tell_error(error)?;
        }
        let found = base.heap.check([base.meta()].into_iter().chain(extents).chain(runs))?;
        found.into_iter().for_each(|violation| teller.tell(violation));
        Ok(())
    }

    fn check_node(&self, node: Node, used: &mut Used<'_, '_>) -> Result<()> {
        let block = node.child.block;
        if block.is_none() {
            return Ok(());
        }
        let at = match self.base().locate(block) {
            Ok(at) => at,
            Err(error) => {
                used.is_partial = true;
                return used.teller.tell_error(error);
            }
        };
        let first = node.leaf - node.leaf % leaves(node.level);
        if !used.note(block, Use::Node(node.level, first), at) {
            return Ok(());
        }
        for line in (0..BLOCK_LEN).step_by(LINE_LEN as usize) {
            let Some(found) =
                Line::load(self.map.medium(), at + line, self.base().key.of(node.owner()))
            else {
                used.is_partial = true;
                used.teller.tell(Violation::new(at + line, LINE_DAMAGED));
                continue;
            };
            for (index, word) in found.words.into_iter().enumerate() {
                let place = entry_of_line(line, index);
                let from = at + line + index as u64 * WORD_LEN;
                match node.level.checked_sub(1) {
                    Some(level) => {
                        let (child, leaf) = (Child::decode(word), first + place * leaves(level));
                        self.check_node(Node { child, level, leaf }, used)?;
                    }
                    None => self.check_entry(word, Lba(first * NODE_ENTRIES + place), from, used),
                }
            }
        }
        Ok(())
    }

    fn check_entry(&self, word: u64, lba: Lba, from: u64, used: &mut Used<'_, '_>) {
        let block = Entry::decode(word).block;
        if block.is_none() {
            return;
        }
        if self.base().space.offset(block).is_none() {
            let what = format!("it leads to block {}, which no slab has", block.0);
            return used.teller.tell(Violation::new(from, what));
        }
        used.note(block, Use::Data(lba), from);
    }

    fn check_bits(&self, used: &mut Used<'_, '_>) {
        for index in 0..self.base().space.slab_count() {
            let first = index as u64 * self.base().space.slab_blocks();
            let Some(slab) = self.base().space.slab_offset(index) else { continue };
            for number in (0..self.base().space.slab_blocks()).step_by(BITS as usize) {
                let at = slab + number / BITS * LINE_LEN;
                let Some(line) = Line::load(self.map.medium(), at, self.base().key.of_line())
                else {
                    let what =
                        "a line of a slab's bits is damaged, or not the one that belongs here";
                    used.teller.tell(Violation::new(at, what));
                    continue;
                };
                let blocks =
                    first + number..first + self.base().space.slab_blocks().min(number + BITS);
                self.check_bits_of(&line.words, blocks, at, used);
            }
        }
    }

    fn check_bits_of(
        &self,
        words: &[u64; WORDS],
        blocks: Range<u64>,
        at: u64,
        used: &mut Used<'_, '_>,
    ) {
        for (number, bit) in blocks.zip(0..) {
            let is_marked = words[bit / 64] >> (bit % 64) & 1 == 1;
            let what = match used.blocks.get(&Block(number as u32)) {
                Some(found) if !is_marked => {
                    format!("block {number} is {found:?}, and marked as free")
                }
                None if is_marked && !used.is_partial => {
                    format!("block {number} is marked as used, and no one has it")
                }
                _ => continue,
            };
            used.teller.tell(Violation::new(at, what));
        }
    }

    /// Reads a block that was on the disk a moment ago; a shorter disk is no error.
    fn read_if_there(&self, lba: Lba, data: &mut [u8]) -> Result<()> {
        let left = self.map.size().saturating_sub(lba.offset());
        Reader::new(self.map).read(lba.offset(), &mut data[..left.min(BLOCK_LEN) as usize])
    }

    /// Like [`check_data`](Check::check_data), alone.
    pub(crate) fn scrub(
        &self,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Violation>> {
        let mut told = Told::default();
        let mut tell = |violation| told.push(violation);
        self.check_data(&mut progress, &mut Teller::new(&mut tell))?;
        Ok(told.finish())
    }

    /// Reads all data of the disk and its snapshots, and compares checksums. `progress` gets the
    /// bytes read so far, and may break off.
    fn check_data(
        &self,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        teller: &mut Teller<'_>,
    ) -> Result<()> {
        let mut len = 0;
        let mut data = [0; BLOCK_LEN as usize];
        let blocks = self.map.size().div_ceil(BLOCK_LEN);
        for leaf in 0..blocks.div_ceil(NODE_ENTRIES) {
            let lbas = leaf * NODE_ENTRIES..blocks.min((leaf + 1) * NODE_ENTRIES);
            len += (lbas.end - lbas.start) * BLOCK_LEN;
            if !teller.note(self.map.leaf(leaf))?.block.is_none() {
                for lba in lbas {
                    teller.note(self.read_if_there(Lba(lba), &mut data))?;
                }
            }
            if progress(len).is_break() {
                return Ok(());
            }
        }
        self.check_snapshots(len, progress, teller)
    }

    /// Like [`check_data`](Check::check_data), for the snapshots. Blocks that several of them share
    /// are read once.
    fn check_snapshots(
        &self,
        mut len: u64,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        teller: &mut Teller<'_>,
    ) -> Result<()> {
        let mut data = [0; BLOCK_LEN as usize];
        let mut seen = HashSet::new();
        for (snapshot, _reader) in self.snapshots.open_all(self.map.medium()) {
            let blocks = snapshot.size.div_ceil(BLOCK_LEN);
            for leaf in 0..blocks.div_ceil(NODE_ENTRIES) {
                let node = find_leaf(self.map.medium(), &self.base().space, snapshot.tree, leaf);
                let node = teller.note(node)?;
                if node.block.is_none() || !seen.insert(node.block) {
                    continue;
                }
                for lba in (leaf * NODE_ENTRIES..(leaf + 1) * NODE_ENTRIES).map(Lba) {
                    let read = self.map.entry_in(node, lba).and_then(|(entry, at)| {
                        let is_new = !entry.block.is_none() && seen.insert(entry.block);
                        if is_new {
                            self.map.read_verified(lba, entry, at, &mut data)
                        } else {
                            Ok(())
                        }
                    });
                    teller.note(read)?;
                    len += BLOCK_LEN;
                }
                if progress(len).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
