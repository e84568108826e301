//! Reading blocks, without a lock.
//!
//! A block that is overwritten while it is read may be used anew at once. So what was read is compared with the checksum
//! in the entry that led there; when it differs and the entry's line has changed, the reader follows the new one. When it
//! differs and the line has not, the data are damaged, and that is what the reader is told.
//!
//! The entry's line is compared with its own checksum, too. The entry's says that these are data of this block; the line's,
//! that this is the entry of the disk, and not of a snapshot, and that there is no entry where there seems to be none.

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
                // It is damaged, or being stored, or the leaf has become something else.
                return self.read_held(lba, data);
            };
            let entry = Entry::decode(line.words[place.word]);
            let read = self.map.read_entry(lba, entry, place.at, data);
            // Acquire: what was read comes before the questions whether it was the right thing to read.
            fence(Ordering::Acquire);
            // A leaf that was copied, and lost its snapshot, may be anything by now.
            let is_same_leaf = self.map.leaf(lba.leaf())? == leaf;
            if read.is_ok() && is_same_leaf {
                return read;
            }
            // What was read of a faulty medium says nothing of the disk.
            self.map.base.heap.verify()?;
            // Stored by the writer before it lets the block be used anew, so seen if the data are.
            if is_same_leaf && load() == Some(line) {
                return self.read_held(lba, data);
            }
            medium.pause();
        }
    }

    /// As [`read_block`](Reader::read_block), while nobody changes it: what is wrong now is wrong for good.
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

    /// Reads a range of a tree that nobody changes: a snapshot's.
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

    /// Visits a range in parts that have data, and parts that have none.
    pub(crate) fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.extents_by(|leaf| self.map.leaf(leaf), offset, len, visit)
    }

    /// As [`extents`](Reader::extents), of a tree that nobody changes.
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
                // Of a line that is not whole nobody says that there is nothing: who reads what it leads to is told.
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
            // The last part: there is nothing to break off.
            let _ = visit(known);
        }
        Ok(())
    }
}

/// Reads each block that overlaps a range, and copies the part that is asked for.
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
