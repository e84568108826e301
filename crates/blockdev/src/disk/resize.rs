//! Making a disk larger or smaller.
//!
//! Larger is one step, with blocks that are written to what was added if wanted; the rest of it reads as zeros. Smaller is
//! one step, too, for whoever reads; after it, blocks behind the end are unmapped, leaf by leaf. A crash meanwhile leaves
//! the rest to the next opening, and until all is done the disk does not become larger again.

use std::ops::Range;

use remanent_pmem::{Error as PoolError, Medium};

use super::device::Device;
use super::layout::{BLOCK_LEN, Lba, NODE_ENTRIES, State};
use super::pieces::{Piece, Pieces, What};
use super::recover::check_size;
use crate::{Error, Result};

/// Zeros, to fill the rest of a block.
static ZEROS: [u8; BLOCK_LEN as usize] = [0; BLOCK_LEN as usize];

impl<M: Medium> Device<M> {
    /// Gives the disk another size. Shrinking it drops what lies behind the new end; snapshots keep it.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.check_new_size(size)?;
        let _resizing = self.resizing.lock(self.medium());
        self.discard()?;
        self.set_size(size)?;
        self.discard()
    }

    /// Refuses a size that the disk cannot have.
    pub(crate) fn check_new_size(&self, size: u64) -> Result<()> {
        check_size(size)?;
        if size <= self.space_max() {
            return Ok(());
        }
        let reason = format!(
            "this one was made so small that its slabs of {} bytes are enough for {} bytes; copy it to \
             a larger one",
            self.space.slab_len(),
            self.space_max()
        );
        Err(Error::Size { size, reason })
    }

    /// As [`change`](Device::change), and in the same step the disk gets a size of at least `size_min`.
    pub(crate) fn change_and_grow(
        &self,
        pieces: &[Piece<'_>],
        end: u64,
        size_min: u64,
    ) -> Result<()> {
        let _resizing = self.resizing.lock(self.medium());
        // What lies behind the end since the disk was made smaller must not come back.
        self.discard()?;
        self.in_lane(|lane| {
            let size = self.size().max(size_min);
            if end > size {
                return Err(Error::OutOfRange { offset: end, len: 0, size });
            }
            // Before the structure is held: leaves that are made or looked up here need it, and are found again below.
            self.places(lane, pieces)?;
            let mut structure = self.structure.lock(self.medium());
            let state = State { size, ..structure.state };
            self.change_in(lane, pieces, &[self.rewrite_state(&state)?])?;
            self.publish(&mut structure, state);
            Ok(())
        })
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.alone(|lanes| {
            let lane = &mut lanes[0];
            // The rest of the last block is to read as zeros, should the disk become larger again.
            let (lba, kept) = (Lba::containing(size), (size % BLOCK_LEN) as usize);
            let mut pieces = Pieces::new();
            if size < self.size() && kept > 0 && self.is_mapped(lba)? {
                pieces.push(Piece { lba, what: What::Part(kept, &ZEROS[kept..]) });
                // A leaf that is copied changes the state, too.
                self.places(lane, &pieces)?;
            }
            let old = self.structure.lock(self.medium()).state;
            let discard_end = if size < old.size { old.size.div_ceil(BLOCK_LEN) } else { 0 };
            let state = State { size, discard_end, ..old };
            self.change_in(lane, &pieces, &[self.rewrite_state(&state)?])?;
            self.publish(&mut self.structure.lock(self.medium()), state);
            Ok(())
        })
    }

    /// Whether a block has data. Nobody changes it meanwhile.
    fn is_mapped(&self, lba: Lba) -> Result<bool> {
        let leaf = self.leaf(lba.leaf())?;
        Ok(!self.entry_in(leaf, lba)?.0.block.is_none())
    }

    /// Completes what a crash has interrupted, if that can be done: else it waits until the disk gets another size, and takes
    /// space until then.
    pub(crate) fn resume(&self) -> Result<()> {
        let _resizing = self.resizing.lock(self.medium());
        match self.discard() {
            Err(error @ Error::Pool(PoolError::Medium(_))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Unmaps what lies behind the end since the disk was made smaller.
    fn discard(&self) -> Result<()> {
        let State { size, discard_end, .. } = self.structure.lock(self.medium()).state;
        if discard_end == 0 {
            return Ok(());
        }
        let first = size.div_ceil(BLOCK_LEN);
        self.unmap(Lba(first), discard_end)?;
        self.in_lane(|lane| {
            let mut structure = self.structure.lock(self.medium());
            let state = State { discard_end: 0, ..structure.state };
            let change = self.rewrite_state(&state)?;
            self.commit(lane, &mut [change], None, &[])?;
            self.publish(&mut structure, state);
            Ok(())
        })
    }

    /// Unmaps the blocks from `first` to before `end`, those of one leaf as one step; in a full pool in as small steps as
    /// have room for their record.
    pub(crate) fn unmap(&self, first: Lba, end: u64) -> Result<()> {
        let mut at = first.0;
        while at < end {
            let part_end = end.min((Lba(at).leaf() + 1) * NODE_ENTRIES);
            if !self.leaf(Lba(at).leaf())?.block.is_none() {
                self.unmap_part(at..part_end)?;
            }
            at = part_end;
        }
        Ok(())
    }

    fn unmap_part(&self, blocks: Range<u64>) -> Result<()> {
        let piece = |number| Piece { lba: Lba(number), what: What::Nothing };
        let pieces: Pieces<'_> = blocks.clone().map(piece).collect();
        match self.in_lane(|lane| self.change_in(lane, &pieces, &[])) {
            Err(error) if error.is_full() && pieces.len() > 1 => {
                let middle = blocks.start + pieces.len() as u64 / 2;
                self.unmap_part(blocks.start..middle)?;
                self.unmap_part(middle..blocks.end)
            }
            done => done,
        }
    }
}
