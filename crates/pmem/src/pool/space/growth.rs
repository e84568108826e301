//! The length of the file and the memory behind it: growing, filling holes, and hints to the
//! medium.

use super::search::Search;
use crate::error::{Error, Result, StorageLimit};
use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{BITMAP_LEN, CHUNK_LEN, ChunkId, DATA_FIRST, ZONE_CHUNKS};

/// Minimal growth of a file in chunks: 16 MiB.
const GROW_MIN: u32 = 256;
/// Maximal growth of a file in chunks: 1 GiB. Growing only lengthens a sparse file.
const GROW_MAX: u32 = 16_384;

/// Number of chunks in use from which the medium gets hints about future use: 8 MiB.
const EXPECT_MIN: u32 = 128;
/// Maximal number of chunks that are announced ahead of need: 32 MiB.
const EXPECT_AHEAD_MAX: u32 = 512;

impl<M: Medium> Pool<M> {
    /// Lengthens the file so that a run of `run` chunks fits behind its end.
    pub(super) fn grow(&self, search: &mut Search, run: u32) -> Result<()> {
        let medium = self.medium();
        let limit = ChunkId((self.size_max() / CHUNK_LEN) as u32);
        let step = (search.end.0 / 8).clamp(GROW_MIN, GROW_MAX).max(run);
        let start = search.end.next_data();
        let wanted = start.0.saturating_add(step);
        let zone_end = start.0 - start.0 % ZONE_CHUNKS + ZONE_CHUNKS;
        let end = ChunkId(if run <= zone_end - start.0 {
            wanted.min(zone_end)
        } else {
            // The run needs a zone of its own. Smaller runs use the rest of this one.
            ChunkId(zone_end).next_data().0 + step
        })
        .min(limit);
        if end <= search.end {
            return Err(self.full(u64::from(run) * CHUNK_LEN, search.end));
        }
        medium.grow(end.offset()).map_err(|error| self.refused_by_medium(error))?;
        self.commit_metadata(search.end, end)?;
        // Sync: the length is durable before the superblock relies on it.
        medium.sync_file()?;
        let first_chunk = search.next.0;
        self.update_superblock(|superblock| {
            superblock.size = end.offset();
            superblock.first_chunk = first_chunk;
        });
        search.end = end;
        Ok(())
    }

    /// Fills the holes under the state words and bitmaps of the chunks `from .. to`.
    pub(crate) fn commit_metadata(&self, from: ChunkId, to: ChunkId) -> Result<()> {
        let mut at = from.next_data();
        while at < to {
            let zone_end = ChunkId(at.0 - at.0 % ZONE_CHUNKS + ZONE_CHUNKS);
            let count = u64::from(zone_end.min(to).0 - at.0);
            self.commit(at.state(), count * WORD_LEN)?;
            self.commit(at.bitmap(), count * BITMAP_LEN)?;
            at = zone_end.next_data();
        }
        Ok(())
    }

    /// Fills the holes of a range.
    pub(super) fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.medium().commit(offset, len).map_err(|error| self.refused_by_medium(error))
    }

    /// Announces to the medium what will be used next: the run just taken, and chunks ahead
    /// according to the pool's size. Small pools announce nothing.
    pub(super) fn expect_next(&self, search: &mut Search, first: ChunkId, run: u32) {
        let used = first.0.saturating_sub(DATA_FIRST);
        if used < EXPECT_MIN {
            return;
        }
        let ahead = (used / 16).clamp(EXPECT_MIN, EXPECT_AHEAD_MAX);
        let wanted = ChunkId((first.0 + run + ahead).min(search.end.0));
        let from = search.expected.max(first);
        if wanted > from && (wanted.0 - from.0 >= ahead / 2 || run > ahead) {
            self.medium().expect_use(from.offset(), wanted.offset() - from.offset());
            search.expected = wanted;
            search.reserve.note_announced(self.guarantee().backing);
        }
    }

    /// Reports a full medium as a full file system; a medium that is not a file names no limit.
    fn refused_by_medium(&self, error: Error) -> Error {
        match error {
            Error::Full { needed, .. } => Error::StorageFull {
                needed,
                path: self.path().to_owned(),
                limit: StorageLimit::FileSystem,
            },
            other => other,
        }
    }

    pub(super) fn full(&self, needed: u64, end: ChunkId) -> Error {
        Error::Full { needed, size: end.offset(), size_max: self.size_max() }
    }
}
