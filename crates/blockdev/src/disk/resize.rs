//! Resizing a disk.
//!
//! Making a disk larger is atomic, together with writes of blocks to the added part; the rest of
//! that part reads as zeros. Making a disk smaller is atomic for readers, too. Afterwards blocks
//! behind the end are unmapped, leaf by leaf. A crash meanwhile leaves the rest to the next
//! opening. The disk does not become larger again until all is unmapped.

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Error as PoolError, Medium};

use super::base::Base;
use super::change::{Step, unmap};
use super::layout::{BLOCK_LEN, Lba, SIZE_MAX, State};
use super::map::Map;
use super::pieces::{Piece, Pieces, What};
use crate::{Error, Result};

/// Zeros, to fill the rest of a block.
static ZEROS: [u8; BLOCK_LEN as usize] = [0; BLOCK_LEN as usize];

/// Refuses a size that is impossible for this disk.
pub(crate) fn check_new_size<M: Medium>(base: &Base<M>, size: u64) -> Result<()> {
    check_size(size)?;
    let (slab_len, len_max) = (base.space.slab_len(), base.slabs().len_max());
    if size <= len_max {
        return Ok(());
    }
    let reason = format!(
        "this one was made so small that its slabs of {slab_len} bytes are enough for {len_max} \
         bytes; copy it to a larger one"
    );
    Err(Error::Size { size, reason })
}

/// Refuses a size that is impossible in this format.
pub(crate) fn check_size(size: u64) -> Result<()> {
    let reason = match size {
        _ if !size.is_multiple_of(512) => "a size is a multiple of 512 bytes".to_owned(),
        _ if size > SIZE_MAX => format!("{SIZE_MAX} bytes are the most"),
        _ => return Ok(()),
    };
    Err(Error::Size { size, reason })
}

/// A change of the disk's size: one at a time, begun before any lane is taken.
#[derive(Debug)]
pub(crate) struct Resizer<'m, M: Medium> {
    map: &'m Map<M>,
    _alone: PauseGuard<'m, ()>,
}

impl<'m, M: Medium> Resizer<'m, M> {
    /// Waits for the lock `resizing`.
    pub(crate) fn new(map: &'m Map<M>, resizing: &'m PauseMutex<()>) -> Self {
        Resizer { map, _alone: resizing.lock(map.medium()) }
    }

    /// Changes the size of the disk, to a size that is possible. Shrinking drops the data behind
    /// the new end; snapshots keep them.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.discard()?;
        self.set_size(size)?;
        self.discard()
    }

    /// Changes blocks as [`Step::change`] does; the same atomic step gives the disk a size of at
    /// least `size_min`.
    pub(crate) fn change_and_grow(
        &self,
        pieces: &[Piece<'_>],
        end: u64,
        size_min: u64,
    ) -> Result<()> {
        // Data behind the end, from before the disk became smaller, must not return.
        self.discard()?;
        self.map.base.in_lane(|lane| {
            let size = self.map.size().max(size_min);
            if end > size {
                return Err(Error::OutOfRange { offset: end, len: 0, size });
            }
            // Before the lock of the state is taken, which making or finding leaves needs; the
            // leaves are found again below.
            Step::new(self.map, lane).places(pieces)?;
            let mut old = self.map.state.lock(self.map.medium());
            let state = State { size, ..*old };
            Step::new(self.map, lane).change(pieces, &[self.map.rewrite_state(&state)?])?;
            self.map.publish(&mut old, state);
            Ok(())
        })
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.map.base.alone(|lanes| {
            let lane = &mut lanes[0];
            // If the disk becomes larger again, the rest of the last block must read as zeros.
            let (lba, kept) = (Lba::containing(size), (size % BLOCK_LEN) as usize);
            let mut pieces = Pieces::new();
            if size < self.map.size() && kept > 0 && self.is_mapped(lba)? {
                pieces.push(Piece { lba, what: What::Part(kept, &ZEROS[kept..]) });
                // Copying a leaf changes the state, too.
                Step::new(self.map, lane).places(&pieces)?;
            }
            let old = *self.map.state.lock(self.map.medium());
            let discard_end = if size < old.size { old.size.div_ceil(BLOCK_LEN) } else { 0 };
            let state = State { size, discard_end, ..old };
            Step::new(self.map, lane).change(&pieces, &[self.map.rewrite_state(&state)?])?;
            self.map.publish(&mut self.map.state.lock(self.map.medium()), state);
            Ok(())
        })
    }

    /// Whether a block has data. Nobody changes it meanwhile.
    fn is_mapped(&self, lba: Lba) -> Result<bool> {
        let leaf = self.map.leaf(lba.leaf())?;
        Ok(!self.map.entry_in(leaf, lba)?.0.block.is_none())
    }

    /// Completes what a crash has interrupted, if there is room. Otherwise it waits for the next
    /// resize, and takes space until then.
    pub(crate) fn resume(&self) -> Result<()> {
        match self.discard() {
            Err(error @ Error::Pool(PoolError::Medium(_))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Unmaps the blocks behind the end that the disk had before it became smaller.
    fn discard(&self) -> Result<()> {
        let State { size, discard_end, .. } = *self.map.state.lock(self.map.medium());
        if discard_end == 0 {
            return Ok(());
        }
        let first = size.div_ceil(BLOCK_LEN);
        unmap(self.map, Lba(first), discard_end)?;
        self.map.base.in_lane(|lane| {
            let mut old = self.map.state.lock(self.map.medium());
            let state = State { discard_end: 0, ..*old };
            let change = self.map.rewrite_state(&state)?;
            self.map.base.commit(lane, &mut [change], None, &[])?;
            self.map.publish(&mut old, state);
            Ok(())
        })
    }
}
