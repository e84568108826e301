//! Does a disk contradict itself, and do its data still hold what was written?

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use remanent_pmem::heap::Violation;
use remanent_pmem::{LINE_LEN, Medium};

use crate::device::Device;
use crate::layout::{BLOCK_LEN, Block, Child, Entry, Lba, NODE_ENTRIES, entry_in_node};
use crate::line::{BITS, Line};
use crate::map::{leaves, place_word};
use crate::{Error, Result};

/// Violations that are told; the rest are counted.
const TOLD_MAX: usize = 100;

/// What is wrong, as much of it as is told.
#[derive(Debug, Default)]
struct Told {
    violations: Vec<Violation>,
    untold: u64,
}

impl Told {
    fn push(&mut self, violation: Violation) {
        if self.violations.len() < TOLD_MAX {
            self.violations.push(violation);
        } else {
            self.untold += 1;
        }
    }

    fn finish(mut self) -> Vec<Violation> {
        if self.untold > 0 {
            self.violations.push(Violation::new(0, format!("and {} more", self.untold)));
        }
        self.violations
    }
}

impl Extend<Violation> for Told {
    fn extend<I: IntoIterator<Item = Violation>>(&mut self, found: I) {
        found.into_iter().for_each(|violation| self.push(violation));
    }
}

/// What was found at a block of a tree: to be compared with what is marked as used.
#[derive(Debug, Default)]
struct Used {
    /// What each block is used for.
    blocks: BTreeMap<Block, Use>,
    violations: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Bits,
    /// A node so many levels above the leaves, with this first leaf.
    Node(u32, u64),
    Data(Lba),
    Spare,
}

impl Used {
    /// Notes a use. Whether it is the first one of this block.
    fn note(&mut self, block: Block, found: Use, at: u64) -> bool {
        match self.blocks.insert(block, found) {
            None => true,
            // Snapshots share nodes and data, each at its place.
            Some(known) if known == found && found != Use::Spare => false,
            Some(known) => {
                let what = format!("block {} is {found:?}, and {known:?}", block.0);
                self.violations.push(Violation::new(at, what));
                false
            }
        }
    }
}

impl<M: Medium> Device<M> {
    /// Proves that the map, its snapshots and what is marked as used agree. Nobody changes anything meanwhile.
    pub(crate) fn check(&self) -> Result<Vec<Violation>> {
        let mut violations = self.alone(|lanes| {
            let structure = self.structure.lock(self.medium());
            let mut used = Used::default();
            for index in 0..self.space.slab_count() {
                used.note(Block((index as u64 * self.space.slab_blocks()) as u32), Use::Bits, 0);
            }
            for lane in lanes.iter() {
                for &spare in &lane.spares {
                    used.note(spare, Use::Spare, self.meta);
                }
            }
            let snapshots = structure.snapshots.sorted();
            let trees = snapshots.iter().map(|snapshot| snapshot.tree);
            for tree in trees.chain([structure.state.tree]) {
                self.check_node(tree.top, tree.height, 0, &mut used);
            }
            self.check_bits(&mut used);
            Ok(used.violations)
        })?;
        let extents = note(self.read_extents(), &mut violations)?;
        let (runs, errors) = self.slab_runs();
        for error in errors {
            violations.push(violation(error)?);
        }
        let mut violations = violations.finish();
        violations.extend(self.heap.check([self.meta].into_iter().chain(extents).chain(runs))?);
        Ok(violations)
    }

    fn check_node(&self, node: Child, level: u32, leaf: u64, used: &mut Used) {
        if node.block.is_none() {
            return;
        }
        let at = match self.space.locate(node.block, self.meta) {
            Ok(at) => at,
            Err(error) => return used.violations.extend(violation(error)),
        };
        if !used.note(node.block, Use::Node(level, leaf), at) {
            return;
        }
        for place in 0..NODE_ENTRIES {
            let word = match place_word(self.medium(), &self.space, node, place) {
                Ok(word) => word,
                Err(error) => {
                    used.violations.extend(violation(error));
                    continue;
                }
            };
            if level > 0 {
                let below = leaf + place * leaves(level - 1);
                self.check_node(Child::decode(word), level - 1, below, used);
                continue;
            }
            let (entry, lba) = (Entry::decode(word), Lba(leaf * NODE_ENTRIES + place));
            if entry.block.is_none() {
                continue;
            }
            if self.space.offset(entry.block).is_none() {
                let what = format!("it leads to block {}, which no slab has", entry.block.0);
                used.violations.push(Violation::new(at + entry_in_node(place), what));
                continue;
            }
            used.note(entry.block, Use::Data(lba), at + entry_in_node(place));
        }
    }

    fn check_bits(&self, used: &mut Used) {
        for index in 0..self.space.slab_count() {
            let first = index as u64 * self.space.slab_blocks();
            let Some(slab) = self.space.slab_offset(index) else { continue };
            for number in 0..self.space.slab_blocks() {
                let at = slab + number / BITS * LINE_LEN;
                let Some(line) = Line::load(self.medium(), at) else {
                    let what = "a line of a slab's bits fails its checksum";
                    used.violations.push(Violation::new(at, what));
                    break;
                };
                let bit = number % BITS;
                let is_marked = line.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
                let block = Block((first + number) as u32);
                let found = used.blocks.get(&block);
                if is_marked != found.is_some() {
                    let what = match found {
                        Some(found) => {
                            format!("block {} is {found:?}, and marked as free", block.0)
                        }
                        None => format!("block {} is marked as used, and no one has it", block.0),
                    };
                    used.violations.push(Violation::new(at, what));
                }
            }
        }
    }

    /// Reads what there is of a block that was on the disk just now.
    fn read_if_there(&self, lba: Lba, data: &mut [u8]) -> Result<()> {
        let left = self.size().saturating_sub(lba.offset());
        self.read(lba.offset(), &mut data[..left.min(BLOCK_LEN) as usize])
    }

    /// Reads all data of the disk and its snapshots, and compares checksums. `visit` gets the bytes looked at so far, and
    /// may break off.
    pub(crate) fn scrub(
        &self,
        mut visit: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Violation>> {
        let mut violations = Told::default();
        let mut len = 0;
        let mut data = [0; BLOCK_LEN as usize];
        let blocks = self.size().div_ceil(BLOCK_LEN);
        for leaf in 0..blocks.div_ceil(NODE_ENTRIES) {
            let lbas = leaf * NODE_ENTRIES..blocks.min((leaf + 1) * NODE_ENTRIES);
            len += (lbas.end - lbas.start) * BLOCK_LEN;
            if !note(self.leaf(leaf), &mut violations)?.block.is_none() {
                for lba in lbas {
                    note(self.read_if_there(Lba(lba), &mut data), &mut violations)?;
                }
            }
            if visit(len).is_break() {
                return Ok(violations.finish());
            }
        }
        // What several snapshots have is read once.
        let mut seen = HashSet::new();
        for (snapshot, _reader) in self.open_snapshots() {
            let blocks = snapshot.size.div_ceil(BLOCK_LEN);
            for leaf in 0..blocks.div_ceil(NODE_ENTRIES) {
                let node = snapshot.tree.leaf(self.medium(), &self.space, leaf);
                let node = note(node, &mut violations)?;
                if node.block.is_none() || !seen.insert(node.block) {
                    continue;
                }
                for lba in (leaf * NODE_ENTRIES..(leaf + 1) * NODE_ENTRIES).map(Lba) {
                    let read = self.entry_in(node, lba).and_then(|(entry, at)| {
                        let is_new = !entry.block.is_none() && seen.insert(entry.block);
                        if is_new { self.read_verified(lba, entry, at, &mut data) } else { Ok(()) }
                    });
                    note(read, &mut violations)?;
                    len += BLOCK_LEN;
                }
                if visit(len).is_break() {
                    return Ok(violations.finish());
                }
            }
        }
        Ok(violations.finish())
    }
}

/// Keeps what an error says is wrong with the disk; then there is nothing.
fn note<T: Default>(read: Result<T>, violations: &mut Told) -> Result<T> {
    read.or_else(|error| {
        violations.push(violation(error)?);
        Ok(T::default())
    })
}

/// What an error says is wrong with the disk; any other error stays one.
fn violation(error: Error) -> Result<Violation> {
    match error {
        Error::Damaged { violation } => Ok(violation),
        Error::Checksum { at, .. } => Ok(Violation::new(at, error.to_string())),
        other => Err(other),
    }
}
