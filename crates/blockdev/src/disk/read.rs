//! Reading blocks, without a lock.
//!
//! A block that is overwritten during a read may be reused at once. So the reader compares the data
//! with the checksum in the entry that led to them. If they differ and the entry's line has
//! changed, the reader follows the new entry. If they differ and the line has not changed, the data
//! are damaged, and the reader reports that.
//!
//! The reader also compares the entry's line with the line's own checksum. The checksum in the
//! entry proves that these are data of this block. That of the line proves that the entry is the
//! disk's, and not a snapshot's, and that an absent entry is really absent.

use std::ops::ControlFlow;
use std::sync::atomic::{Ordering, fence};

use remanent_pmem::Medium;

use super::Extent;
use super::layout::{BLOCK_LEN, Child, Entry, Lba, NODE_ENTRIES, Tree};
use super::map::Map;
use super::tree::find_leaf;
use crate::Result;
use crate::line::Line;

/// Data of a block.
type Data = [u8; BLOCK_LEN as usize];

/// Reads a disk, or a tree of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'m, M: Medium> {
    map: &'m Map<M>,
}

impl<'m, M: Medium> Reader<'m, M> {
    pub(crate) fn new(map: &'m Map<M>) -> Self {
        Reader { map }
    }

    /// Reads a range, which lies on the disk.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        for_each_block(offset, bytes, |lba, data| self.read_block(lba, data))?;
        Ok(self.map.base.heap.verify()?)
    }

    fn read_block(&self, lba: Lba, data: &mut [u8]) -> Result<()> {
        let medium = self.map.medium();
        loop {
            let leaf = self.map.leaf(lba.leaf())?;
            if leaf.block.is_none() {
                data.fill(0);
                return Ok(());
            }
            let place = self.map.place_in(leaf, lba)?;
            let load = || Line::load(medium, place.at, self.map.base.key.of(place.owner));
            let Some(line) = load() else {
                // The line is damaged, or being stored; or the leaf was reused.
                return self.read_held(lba, data);
            };
            let entry = Entry::decode(line.words[place.word]);
            let read = self.map.read_entry(lba, entry, place.at, data);
            // Acquire: the data are read before the checks whether they were the right data.
            fence(Ordering::Acquire);
            // If the leaf was copied and its snapshot removed, its block may hold anything by now.
            let is_same_leaf = self.map.leaf(lba.leaf())? == leaf;
            if read.is_ok() && is_same_leaf {
                return read;
            }
            // After a fault, the data say nothing about the disk.
            self.map.base.heap.verify()?;
            // The writer stored the line before it released the block. So if the data are newer,
            // the change of the line is visible.
            if is_same_leaf && load() == Some(line) {
                return self.read_held(lba, data);
            }
            medium.pause();
        }
    }

    /// Like [`read_block`](Reader::read_block), under the lock of the line: damage found here is
    /// permanent.
    #[cold]
    fn read_held(&self, lba: Lba, data: &mut [u8]) -> Result<()> {
        loop {
            let leaf = self.map.leaf(lba.leaf())?;
            let place = self.map.place_in(leaf, lba)?;
            let _held = self.map.hold_one(place.at);
            if self.map.leaf(lba.leaf())? == leaf {
                let entry = Entry::decode(self.map.line_at(place)?.words[place.word]);
                return self.map.read_entry(lba, entry, place.at, data);
            }
        }
    }

    /// Reads a range of an immutable tree: a snapshot's.
    pub(crate) fn read_tree(&self, tree: Tree, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut known: Option<(u64, Child)> = None;
        for_each_block(offset, bytes, |lba, data| {
            let leaf = match known {
                Some((number, leaf)) if number == lba.leaf() => leaf,
                _ => find_leaf(self.map.medium(), &self.map.base.space, tree, lba.leaf())?,
            };
            known = Some((lba.leaf(), leaf));
            let (entry, at) = self.map.entry_in(leaf, lba)?;
            self.map.read_entry(lba, entry, at, data)
        })?;
        Ok(self.map.base.heap.verify()?)
    }

    /// Visits a range in parts that have data and parts that have none.
    pub(crate) fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.extents_by(|leaf| self.map.leaf(leaf), offset, len, visit)
    }

    /// Like [`extents`](Reader::extents), for an immutable tree.
    pub(crate) fn extents_of(
        &self,
        tree: Tree,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut known: Option<(u64, Child)> = None;
        let find = |leaf| match known {
            Some((number, node)) if number == leaf => Ok(node),
            _ => {
                let node = find_leaf(self.map.medium(), &self.map.base.space, tree, leaf)?;
                known = Some((leaf, node));
                Ok(node)
            }
        };
        self.extents_by(find, offset, len, visit)
    }

    fn extents_by(
        &self,
        mut find: impl FnMut(u64) -> Result<Child>,
        offset: u64,
        len: u64,
        mut visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = offset + len;
        let mut at = offset;
        let mut known = Extent { len: 0, is_mapped: false };
        while at < end {
            let lba = Lba::containing(at);
            let leaf = find(lba.leaf())?;
            let (is_mapped, next) = if leaf.block.is_none() {
                (false, Lba((lba.leaf() + 1) * NODE_ENTRIES))
            } else {
                let place = self.map.place_in(leaf, lba)?;
                let entry = Entry::decode(self.map.medium().load(place.entry()));
                // A damaged line may have had an entry. It counts as data, so that reading it
                // reports the damage.
                let is_mapped = !entry.block.is_none() || self.map.line_at(place).is_err();
                (is_mapped, Lba(lba.0 + 1))
            };
            if find(lba.leaf())? != leaf {
                continue;
            }
            let next = next.offset().min(end);
            if is_mapped != known.is_mapped && known.len > 0 {
                if visit(known).is_break() {
                    return Ok(self.map.base.heap.verify()?);
                }
                known.len = 0;
            }
            known = Extent { len: known.len + (next - at), is_mapped };
            at = next;
        }
        self.map.base.heap.verify()?;
        if known.len > 0 {
            // The last part: there is nothing left to break off.
            let _ = visit(known);
        }
        Ok(())
    }
}

/// Reads each block that overlaps a range, and copies the requested part.
fn for_each_block(
    offset: u64,
    bytes: &mut [u8],
    mut read: impl FnMut(Lba, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let start = (at % BLOCK_LEN) as usize;
        let len = rest.len().min(BLOCK_LEN as usize - start);
        let (part, after) = rest.split_at_mut(len);
        if len as u64 == BLOCK_LEN {
            read(Lba::containing(at), part)?;
        } else {
            let mut data: Data = [0; BLOCK_LEN as usize];
            read(Lba::containing(at), &mut data)?;
            part.copy_from_slice(&data[start..start + len]);
        }
        (at, rest) = (at + len as u64, after);
    }
    Ok(())
}
