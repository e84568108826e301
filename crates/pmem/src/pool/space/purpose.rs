//! Purposes of chunks.

use crate::pool::layout::{ChunkKind, ChunkState, RootId};

/// The purpose of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Blocks of a size class.
    Small(u8),
    /// One allocation of so many chunks; zeroed on request.
    Large { run: u32, zeroed: bool },
    /// A heap's header and lanes, zeroed.
    Heap,
    /// Entries of roots, zeroed.
    Directory,
}

impl Purpose {
    pub(super) fn run(self) -> u32 {
        match self {
            Purpose::Large { run, .. } => run,
            Purpose::Small(_) | Purpose::Heap | Purpose::Directory => 1,
        }
    }

    pub(super) fn head_state(self, owner: RootId) -> ChunkState {
        let (kind, class) = match self {
            Purpose::Small(class) => (ChunkKind::Small, class),
            Purpose::Large { .. } => (ChunkKind::LargeHead, 0),
            Purpose::Heap => (ChunkKind::Heap, 0),
            Purpose::Directory => (ChunkKind::Directory, 0),
        };
        ChunkState { kind, class, owner: owner.0, run: self.run() }
    }
}
