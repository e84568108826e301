//! Making a disk larger or smaller.
//!
//! Larger is one step, with blocks that are written to what was added if wanted; the rest of it reads as zeros. Smaller is
//! one step, too, for whoever reads; after it, blocks behind the end are unmapped, leaf by leaf. A crash meanwhile leaves
//! the rest to the next opening, and until all is done the disk does not become larger again.

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

/// Refuses a size that the disk cannot have.
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

/// Refuses a size that the format cannot have.
pub(crate) fn check_size(size: u64) -> Result<()> {
    let reason = match size {
        _ if !size.is_multiple_of(512) => "a size is a multiple of 512 bytes".to_owned(),
        _ if size > SIZE_MAX => format!("{SIZE_MAX} bytes are the most"),
        _ => return Ok(()),
    };
    Err(Error::Size { size, reason })
}

/// Who makes the disk larger or smaller: one at a time, before any lane is taken.
#[derive(Debug)]
pub(crate) struct Resizer<'m, M: Medium> {
    map: &'m Map<M>,
    _alone: PauseGuard<'m, ()>,
}

impl<'m, M: Medium> Resizer<'m, M> {
    /// Waits for who has `resizing`.
    pub(crate) fn new(map: &'m Map<M>, resizing: &'m PauseMutex<()>) -> Self {
        Resizer { map, _alone: resizing.lock(map.medium()) }
    }

    /// Gives the disk another size, which it can have. Shrinking it drops what lies behind the new end; snapshots keep it.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.discard()?;
        self.set_size(size)?;
        self.discard()
    }

    /// Changes blocks as [`Step::change`] does, and in the same step the disk gets a size of at least `size_min`.
    pub(crate) fn change_and_grow(
        &self,
        pieces: &[Piece<'_>],
        end: u64,
        size_min: u64,
    ) -> Result<()> {
        // What lies behind the end since the disk was made smaller must not come back.
        self.discard()?;
        self.map.base.in_lane(|lane| {
            let size = self.map.size().max(size_min);
            if end > size {
                return Err(Error::OutOfRange { offset: end, len: 0, size });
            }
            // Before the structure is held: leaves that are made or looked up here need it, and are found again below.
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
            // The rest of the last block is to read as zeros, should the disk become larger again.
            let (lba, kept) = (Lba::containing(size), (size % BLOCK_LEN) as usize);
            let mut pieces = Pieces::new();
            if size < self.map.size() && kept > 0 && self.is_mapped(lba)? {
                pieces.push(Piece { lba, what: What::Part(kept, &ZEROS[kept..]) });
                // A leaf that is copied changes the state, too.
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

    /// Completes what a crash has interrupted, if that can be done: else it waits until the disk gets another size, and takes
    /// space until then.
    pub(crate) fn resume(&self) -> Result<()> {
        match self.discard() {
            Err(error @ Error::Pool(PoolError::Medium(_))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Unmaps what lies behind the end since the disk was made smaller.
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
