//! The file's length, and the memory behind it: growing, filling holes, and telling the medium what is used next.

use super::search::Search;
use crate::error::{Error, Result, StorageLimit};
use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{BITMAP_LEN, CHUNK_LEN, ChunkId, DATA_FIRST, ZONE_CHUNKS};

/// Chunks by which a file grows at least: 16 MiB.
const GROW_MIN: u32 = 256;
/// Chunks by which a file grows at most: 1 GiB. Growing only lengthens a sparse file.
const GROW_MAX: u32 = 16_384;

/// Chunks in use from which on the medium is told what will be used next: 8 MiB.
const EXPECT_MIN: u32 = 128;
/// Chunks that it is told of ahead of need at most: 32 MiB.
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
            // The run needs a zone of its own: the rest of this one is found by smaller runs.
            ChunkId(zone_end).next_data().0 + step
        })
        .min(limit);
        if end <= search.end {
            return Err(self.full(u64::from(run) * CHUNK_LEN, search.end));
        }
        medium.grow(end.offset()).map_err(|error| self.refused_by_medium(error))?;
        self.commit_metadata(search.end, end)?;
        // Sync: the length is durable before the superblock counts on it.
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

    /// Tells the medium what will be used next: the run just taken, and as much ahead as the pool's size
    /// makes likely. Small pools are left alone.
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

    /// A medium that is no file has no name for its limit.
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
