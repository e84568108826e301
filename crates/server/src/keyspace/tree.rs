//! Ranges and single entries of the tree, for all types.

use std::ops::Bound;

use remanent_structures::{Change, OrderedMap, Result};

/// A range of the tree's keys.
pub(super) type Span<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The keys from `start` up to `end`, which is excluded.
pub(super) fn span<'a>(start: &'a [u8], end: &'a [u8]) -> Span<'a> {
    (Bound::Included(start), Bound::Excluded(end))
}

/// The keys from `start` on.
pub(super) fn onward(start: &[u8]) -> Span<'_> {
    (Bound::Included(start), Bound::Unbounded)
}

/// Puts an entry, unless it is there with the same value: then the tree is not written, and needs
/// no room.
pub(super) fn put_unless_same(
    tree: &impl OrderedMap<[u8], [u8]>,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    tree.modify(key, |found| match found {
        Some(found) if found == value => (Change::Keep, ()),
        _ => (Change::Put(value), ()),
    })
}
