//! The writes of one step: blocks, or parts of blocks.

use smallvec::SmallVec;

use super::layout::{BLOCK_LEN, Lba};

/// The change of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// The whole block: 4,096 bytes.
    Whole(&'a [u8]),
    /// A part, from this byte on.
    Part(usize, &'a [u8]),
    /// Several parts, one after the other.
    Parts(&'a [Part]),
    /// The block reads as zeros, and takes no space.
    Nothing,
}

/// A part of a block: the bytes from this byte on.
pub(crate) type Part = (usize, Vec<u8>);

/// A block that changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) lba: Lba,
    pub(crate) what: What<'a>,
}

/// Pieces of one step, in ascending order, each block once.
pub(crate) type Pieces<'a> = SmallVec<[Piece<'a>; 4]>;

/// The pieces of a contiguous range.
pub(crate) fn pieces(offset: u64, bytes: &[u8]) -> Pieces<'_> {
    let mut pieces = Pieces::with_capacity(bytes.len() / BLOCK_LEN as usize + 2);
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let start = at % BLOCK_LEN;
        let (part, after) = rest.split_at(rest.len().min((BLOCK_LEN - start) as usize));
        let is_whole = part.len() as u64 == BLOCK_LEN;
        let what = if is_whole { What::Whole(part) } else { What::Part(start as usize, part) };
        pieces.push(Piece { lba: Lba::containing(at), what });
        (at, rest) = (at + part.len() as u64, after);
    }
    pieces
}

/// The content of a block.
pub(crate) type BlockData = [u8; BLOCK_LEN as usize];
