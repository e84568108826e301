//! Content of free chunks: what their state words say, and what they hold.

use super::purpose::Purpose;
use crate::error::{Error, Result};
use crate::medium::{LINE_LEN, Medium, PAGE_LEN, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{BITMAP_LEN, CHUNK_LEN, ChunkId, ChunkKind, ChunkState, ZONE_CHUNKS};
use crate::violation::Violation;

/// Maximal number of chunks in a run of which each page is checked before use.
const PAGES_LOOKED_AT_MAX: u32 = 16;

impl<M: Medium> Pool<M> {
    /// The state word of a chunk.
    ///
    /// # Errors
    ///
    /// When the format does not know the word: its kind, or a field that is impossible for the
    /// kind.
    pub(crate) fn chunk_state(&self, chunk: ChunkId) -> Result<ChunkState> {
        let word = self.medium().load(chunk.state());
        let damaged =
            |what: String| Error::corrupt(chunk.state(), format!("chunk {} has {what}", chunk.0));
        let state =
            ChunkState::decode(word).map_err(|kind| damaged(format!("unknown kind {kind}")))?;
        match state.misfit(ZONE_CHUNKS - chunk.0 % ZONE_CHUNKS, self.0.version) {
            Some(what) => Err(damaged(format!("{what} as {:?}", state.kind))),
            None => Ok(state),
        }
    }

    /// Whether the free chunks of a run that are recorded as zeros seem to hold zeros. Checks a
    /// line of each page, or of each chunk in a long run. A chunk with other content is set aside,
    /// because its state is damaged and it may be in use.
    pub(super) fn reads_as_stated(&self, first: ChunkId, run: u32) -> bool {
        const ZEROS: [u8; LINE_LEN as usize] = [0; LINE_LEN as usize];
        let step = if run <= PAGES_LOOKED_AT_MAX { PAGE_LEN } else { CHUNK_LEN };
        for chunk in (first.0..first.0 + run).map(ChunkId) {
            if self.usable_state(chunk).kind != ChunkKind::Free {
                continue;
            }
            let mut lines = (chunk.offset()..chunk.offset() + CHUNK_LEN).step_by(step as usize);
            if let Some(at) = lines.find(|&at| !self.medium().equals(at, &ZEROS)) {
                let what = format!("chunk {} is said to be unused and zero, and is not", chunk.0);
                self.put_aside(chunk, Violation::new(at, what));
                return false;
            }
        }
        true
    }

    /// Brings the bytes of a run without holes to the content that the purpose needs.
    pub(super) fn prepare(&self, first: ChunkId, purpose: Purpose) {
        let medium = self.medium();
        if let Purpose::Small(_) = purpose {
            self.clear_bitmap(first.bitmap());
            return;
        }
        if let Purpose::Large { zeroed: false, .. } = purpose {
            return;
        }
        for index in 0..purpose.run() {
            let chunk = ChunkId(first.0 + index);
            if self.usable_state(chunk).kind == ChunkKind::FreeDirty {
                medium.write_zeros(chunk.offset(), CHUNK_LEN);
                medium.flush(chunk.offset(), CHUNK_LEN);
            }
        }
    }

    /// Zeroes a bitmap that the chunk's last owner left behind when its root was dropped.
    fn clear_bitmap(&self, bitmap: u64) {
        let medium = self.medium();
        let mut words = (0..BITMAP_LEN / WORD_LEN).map(|word| bitmap + word * WORD_LEN);
        if words.any(|at| medium.load(at) != 0) {
            medium.write_zeros(bitmap, BITMAP_LEN);
            // Flush and fence: after a crash no old bit may be found beside the new state word.
            medium.persist(bitmap, BITMAP_LEN);
        }
    }
}
