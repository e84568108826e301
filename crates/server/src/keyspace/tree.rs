//! Ranges and single entries of the tree, for all types.

use std::ops::Bound;

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
