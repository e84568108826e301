//! Directory chunks: the entries of roots beyond those in the header chunk.
//!
//! A pool takes a directory chunk when a root is created and every entry is in use, and keeps it.
//! The header names the chunk durably before the chunk's state word says that it is taken. After a
//! crash in between, the word in the header leads to a free chunk, and opening clears the word.
//! Nobody else takes the chunk meanwhile.

use super::layout::{
    ChunkId, ChunkKind, DIRECTORY_ROOT_COUNT, DirectoryId, HEADER_ROOT_COUNT, ROOT_LEN, ROOTS,
    RootId, directory_count_max,
};
use super::space::purpose::Purpose;
use crate::error::{Error, Result};
use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;

impl<M: Medium> Pool<M> {
    /// Offset of an existing root entry.
    pub(crate) fn root_entry(&self, id: RootId) -> u64 {
        let (directory, number) = id.place();
        let first = match directory {
            None => ROOTS,
            Some(directory) => ChunkId(self.medium().load(directory.link()) as u32).offset(),
        };
        first + number * ROOT_LEN
    }

    /// The numbers of all entries.
    pub(super) fn root_ids(&self) -> impl Iterator<Item = RootId> {
        let further = self.directories().count() as u16 * DIRECTORY_ROOT_COUNT;
        (1..=HEADER_ROOT_COUNT + further).map(RootId)
    }

    /// The directory chunks of the pool.
    pub(super) fn directories(&self) -> impl Iterator<Item = DirectoryId> {
        let all = (0..directory_count_max(self.0.version)).map(DirectoryId);
        all.take_while(|directory| self.medium().load(directory.link()) != 0)
    }

    /// Takes another directory chunk, and returns the first root with its entry there; `None` if
    /// the pool has the maximal number. The caller holds the registry.
    pub(super) fn grow_directory(&self) -> Result<Option<RootId>> {
        let next = DirectoryId(self.directories().count() as u16);
        if next.0 == directory_count_max(self.0.version) {
            return Ok(None);
        }
        self.take_chunks_announced(Purpose::Directory, next.owner(), |chunk| {
            self.store_own([(next.link(), next.encode(chunk))]);
            // Flush and fence: named, and zero, before the state word says that it is taken.
            self.medium().persist(next.link(), WORD_LEN);
        })?;
        // Fence: the state word, before an entry counts.
        self.medium().fence();
        Ok(Some(RootId(HEADER_ROOT_COUNT + next.0 * DIRECTORY_ROOT_COUNT + 1)))
    }

    /// Checks the words that lead to directory chunks, and clears that of a chunk that was being
    /// taken. Called before any entry is read.
    pub(super) fn recover_directories(&self) -> Result<()> {
        for directory in self.directories() {
            let chunk = self.read_directory(directory)?;
            let state = self.chunk_state(chunk)?;
            if state.is_free() {
                self.store_own([(directory.link(), 0)]);
                // Flush and fence: before the chunk is taken for something else.
                // Redundant fence: who takes chunks has opened or created a root before, which
                // fences.
                self.medium().persist(directory.link(), WORD_LEN);
            } else if state.kind == ChunkKind::Directory && state.owner == directory.owner().0 {
                // Flush and fence: entries that a killed process left in the caches alone, before
                // anything is decided by a root's state.
                // Redundant: but where a process was killed before, and the power fails later.
                self.medium().persist(chunk.offset(), u64::from(DIRECTORY_ROOT_COUNT) * ROOT_LEN);
            } else {
                let what = format!(
                    "chunk {} is to be directory chunk {}, and is {state:?}",
                    chunk.0, directory.0
                );
                return Err(Error::corrupt(directory.link(), what));
            }
        }
        Ok(())
    }

    /// The chunk that the header names.
    ///
    /// # Errors
    ///
    /// When the word in the header is damaged.
    pub(super) fn read_directory(&self, directory: DirectoryId) -> Result<ChunkId> {
        let word = self.medium().load(directory.link());
        let chunk = ChunkId(word as u32);
        let is_whole = word == directory.encode(chunk);
        if is_whole && chunk.is_data() && chunk < self.chunk_end() {
            return Ok(chunk);
        }
        let what = format!("what leads to directory chunk {} is damaged: {word:#x}", directory.0);
        Err(Error::corrupt(directory.link(), what))
    }
}
