//! Seals: checksums of bitmaps at rest, compared before anything is allocated from their chunks.
//!
//! A heap that closes properly *seals* its chunks of small blocks: the state word gets a checksum
//! of the bitmap. The next change of the bitmap compares the two and breaks the seal: a lane that
//! takes the chunk, or the free of the first block in it. So damage to a bitmap at rest is detected
//! before a block in use is allocated again: a flipped bit, a page of zeros, a page of another
//! chunk, or an older page. A chunk that does not match is set aside.
//!
//! A seal is broken under the heap's lock of its chunks, before any bit changes. So nobody compares
//! a bitmap that is being changed. A crash may leave a seal beside changed bits if both were being
//! flushed. Then a lane names the chunk, or a block in it, and recovery breaks the seal without
//! comparing.
//!
//! Two kinds of chunks have no seal: those that were in use in a crashed process, until the next
//! proper close; and those of pools that are declared to lie on a medium with write disturbance.

use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{BITMAP_LEN, ChunkId, ChunkKind, ChunkState, FORMAT_VERSION_UNSEALED};
use crate::violation::Violation;

impl<M: Medium> Pool<M> {
    /// Seals a chunk whose bitmap is at rest. The caller's fence makes the seal durable, together
    /// with the bitmap.
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

    /// Breaks the seal of a chunk; must be called before its bits change or are relied on. Returns
    /// false if the chunk is set aside; a chunk that does not match its seal is set aside now.
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

    /// Breaks the seal of a chunk, if there is one, without comparing.
    pub(crate) fn drop_seal(&self, chunk: ChunkId, state: ChunkState) {
        if state.is_sealed() {
            self.store_own([(chunk.state(), state.unsealed().encode())]);
            // Flush: fenced before the lanes forget the chunk, or its block that is being freed.
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
