//! Checksums that cover the place of their content: a disk, a node of its map, a block's number.
//!
//! A checksum of the content alone still matches after the content was copied, exchanged, or
//! replaced by an older copy. So each checksum also covers the place of its content:
//!
//! | checksum | also covers |
//! |---|---|
//! | of a line of metadata | the [`Key`] of its disk or file, its pool offset, and its version |
//! | of a line of the map | the same, and its [`Owner`] |
//! | of a block | the key, and the block's number on the disk |
//! | of a record of the journal | the key, and the offset of its slot |
//!
//! So entries of two blocks that are exchanged or copied never match, because two blocks of a disk
//! always have different masks. Other damage passes by chance once in 2³² times.

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::disk::layout::{BLOCK_LEN, Child, Lba, NODE_ENTRIES, entry_of_line, leaves};
use crate::line::{Line, Seal};
use crate::{Error, Result};

/// An odd number without regularities: 2⁶⁴ divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Key of the checksums of one disk or file. No two disks or files have the same key, nor one that
/// existed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// Key for the line that stores the key.
    pub(crate) const UNKNOWN: Key = Key(0);

    /// A unique key for the content of this heap: it combines the random identity of the pool, the
    /// heap's number and its generation.
    pub(crate) fn new<M: Medium>(heap: &Heap<M>) -> Self {
        let creation = u64::from(heap.owner().0) | heap.generation() << 32;
        Key(xxh3_64_with_seed(&heap.pool().uuid(), creation))
    }

    /// Seal of a line outside the map.
    #[inline]
    pub(crate) fn of_line(self) -> Seal {
        self.of(Owner::NONE)
    }

    /// Seal of a line with this owner.
    #[inline]
    pub(crate) fn of(self, owner: Owner) -> Seal {
        Seal(self.0 ^ owner.0.wrapping_mul(ODD))
    }

    /// The line at `at` of this owner. Nobody stores to it meanwhile.
    ///
    /// # Errors
    ///
    /// When it is damaged.
    #[inline]
    pub(crate) fn load_line<M: Medium>(self, medium: &M, at: u64, owner: Owner) -> Result<Line> {
        Line::load(medium, at, self.of(owner)).ok_or_else(|| Error::damaged_line(at))
    }

    /// Mask that is combined with a block's checksum: different for any two blocks of a disk.
    #[inline]
    pub(crate) fn mask(self, lba: Lba) -> u32 {
        // Each step is invertible, so different numbers give different masks.
        let number = (lba.0 as u32 ^ self.0 as u32).wrapping_mul(ODD as u32);
        number ^ number >> 15 ^ (self.0 >> 32) as u32
    }

    /// Seed of the checksum of a record in the slot at `at`.
    pub(crate) fn of_record(self, at: u64) -> u64 {
        self.0 ^ at.wrapping_mul(ODD)
    }
}

/// The node of the map that a line belongs to, as records of the journal store it: its first leaf
/// (lower 28 bits), its level above the leaves plus one (4 bits), and the generation in which it
/// was made (upper 32 bits). 0 for all other lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) u64);

const LEVEL_SHIFT: u32 = 28;
const GENERATION_SHIFT: u32 = 32;
const _: () = assert!(NODE_ENTRIES.pow(crate::disk::layout::HEIGHT_MAX) < 1 << LEVEL_SHIFT);

impl Owner {
    pub(crate) const NONE: Owner = Owner(0);

    /// The node `level` levels above the leaves on the way to a leaf.
    #[inline]
    pub(crate) fn node(child: Child, level: u32, leaf: u64) -> Self {
        let first = leaf - leaf % leaves(level);
        let level = u64::from(level) + 1;
        Owner(u64::from(child.generation) << GENERATION_SHIFT | level << LEVEL_SHIFT | first)
    }

    /// A leaf, by its number.
    #[inline]
    pub(crate) fn leaf(child: Child, leaf: u64) -> Self {
        Owner(u64::from(child.generation) << GENERATION_SHIFT | 1 << LEVEL_SHIFT | leaf)
    }

    /// The block whose entry is a word of the line at pool offset `at`; `None` if no block has its
    /// entry there.
    pub(crate) fn lba(self, at: u64, word: usize) -> Option<Lba> {
        let (level, leaf) = (self.0 as u32 >> LEVEL_SHIFT, self.0 & ((1 << LEVEL_SHIFT) - 1));
        (level == 1).then(|| Lba(leaf * NODE_ENTRIES + entry_of_line(at % BLOCK_LEN, word)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::disk::layout::{Block, place_in_node};

    #[test]
    fn no_two_blocks_have_the_same_mask() {
        for key in [Key(0), Key(0x0123_4567_89ab_cdef), Key(u64::MAX)] {
            let low = (0..1 << 16).map(Lba);
            let high = (0..1 << 12).map(|number| Lba(number << 20 | 7 << 16));
            let masks: HashSet<u32> = low.chain(high).map(|lba| key.mask(lba)).collect();
            assert_eq!(masks.len(), (1 << 16) + (1 << 12));
        }
        assert_ne!(Key(1).mask(Lba(5)), Key(2).mask(Lba(5)));
        assert_ne!(Key(1 << 40).mask(Lba(5)), Key(2 << 40).mask(Lba(5)));
    }

    #[test]
    fn an_owner_says_which_blocks_have_their_entries_in_its_lines() {
        let child = Child { block: Block(9), generation: 77 };
        for lba in [0, 6, 7, 447, 448, 1000, (1 << 32) - 1].map(Lba) {
            let owner = Owner::leaf(child, lba.leaf());
            assert_eq!(owner, Owner::node(child, 0, lba.leaf()));
            let (line, word) = place_in_node(lba.place());
            assert_eq!(owner.lba(5 * BLOCK_LEN + line, word), Some(lba));
            assert_eq!(Owner::node(child, 1, lba.leaf()).lba(line, word), None);
        }
        assert_eq!(Owner::NONE.lba(0, 0), None);
        assert_eq!(Owner::node(child, 1, 449), Owner::node(child, 1, 448));
        assert_ne!(Owner::node(child, 1, 448), Owner::node(child, 1, 447));
        assert_ne!(Owner::node(child, 1, 0), Owner::node(child, 0, 0));
        let later = Child { generation: 78, ..child };
        assert_ne!(Owner::leaf(child, 0), Owner::leaf(later, 0));
    }
}
