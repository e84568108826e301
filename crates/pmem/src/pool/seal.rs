//! Seals: bitmaps at rest are compared with a checksum before anything is allocated by them.
//!
//! A heap that closes properly *seals* its chunks of small blocks: the state word gets a checksum of the bitmap. Who changes
//! a bitmap next, a lane that takes the chunk up, or frees the first block in it, compares the two and breaks the seal. So
//! a bit that was flipped meanwhile, a page that became zeros or another's, or an older one, is noticed before a block
//! is handed out that is in use. What does not fit is set aside.
//!
//! A seal is broken under the heap's lock of its chunks, and before any bit changes, so nobody compares a bitmap that is
//! being changed. A crash may leave the seal beside changed bits if both were being flushed; then a lane names the
//! chunk, or a block in it, and recovery breaks the seal unseen. Chunks that were in use in a process that crashed have no
//! seal until the next proper close. Nor have those of pools that are declared to lie on a medium with write disturbance.

use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{BITMAP_LEN, ChunkId, ChunkKind, ChunkState, FORMAT_VERSION_UNSEALED};
use crate::violation::Violation;

impl<M: Medium> Pool<M> {
    /// Seals a chunk whose bitmap is at rest. The caller's fence makes it durable, together with the bitmap.
    pub(crate) fn seal(&self, chunk: ChunkId, state: ChunkState) {
        if self.0.version == FORMAT_VERSION_UNSEALED || self.guarantee().write_disturbance {
            return;
        }
        let sealed = state.sealed(chunk, &self.read_bitmap(chunk));
        self.store_own([(chunk.state(), sealed.encode())]);
        // Flush: fenced with the bitmap.
        // Redundant: a chunk without a seal is believed.
        self.medium().flush(chunk.state(), WORD_LEN);
    }

    /// To be called before bits of a chunk change, or are believed: breaks its seal. False when the chunk is set aside,
    /// from now on if the bitmap does not fit the seal.
    pub(crate) fn break_seal(&self, chunk: ChunkId) -> bool {
        let state = self.usable_state(chunk);
        if !state.is_sealed() {
            return state.kind == ChunkKind::Small;
        }
        if !self.fits_seal(chunk, state) {
            self.put_aside(chunk, Violation::new(chunk.bitmap(), misfit_of_seal(chunk)));
            return false;
        }
        self.drop_seal(chunk, state);
        true
    }

    /// Breaks a seal, if there is one, whatever it says.
    pub(crate) fn drop_seal(&self, chunk: ChunkId, state: ChunkState) {
        if state.is_sealed() {
            self.store_own([(chunk.state(), state.unsealed().encode())]);
            // Flush: fenced before the lanes forget the chunk, or the block of it that is being freed.
            self.medium().flush(chunk.state(), WORD_LEN);
        }
    }

    pub(crate) fn fits_seal(&self, chunk: ChunkId, state: ChunkState) -> bool {
        !state.is_sealed() || state == state.sealed(chunk, &self.read_bitmap(chunk))
    }

    fn read_bitmap(&self, chunk: ChunkId) -> [u8; BITMAP_LEN as usize] {
        let mut bitmap = [0; BITMAP_LEN as usize];
        self.medium().read(chunk.bitmap(), &mut bitmap);
        bitmap
    }
}

pub(super) fn misfit_of_seal(chunk: ChunkId) -> String {
    format!("the bitmap of chunk {} does not fit its seal", chunk.0)
}
