//! What the variants of a list differ in.

use remanent_pmem::Medium;
use remanent_pmem::Result as PoolResult;

use super::layout::{NEXT, Position, Safe, Shape};
use super::stream::{End, Link, Stream};
use crate::Result;

/// How a list changes its links, and when they are safe; implemented by this crate alone.
///
/// The value of the type is what the variant keeps in volatile memory.
pub trait Variant: Send + Sync + Sized + 'static {
    /// Name of the root's type.
    #[doc(hidden)]
    const TYPE_NAME: &'static str;
    /// How elements lie.
    #[doc(hidden)]
    const SHAPE: Shape = Shape::PLAIN;
    /// Whether operations are acknowledged before they are safe.
    #[doc(hidden)]
    const IS_BATCHED: bool = true;
    /// Whether [`change`](Variant::change) may fail.
    #[doc(hidden)]
    const MAY_REFUSE: bool = false;
    /// Whether recovery goes through the items between two positions.
    #[doc(hidden)]
    const HAS_RECORDS: bool = false;

    /// What a walk holds.
    #[doc(hidden)]
    type Reading<'a>;

    /// Takes up the list as it was when `safe` was committed: makes its links what they were, and finds its end.
    ///
    /// # Errors
    ///
    /// When the list contradicts itself.
    #[doc(hidden)]
    fn recover<M: Medium>(stream: &Stream<M>, safe: Safe) -> PoolResult<(Self, End)>;

    /// Begins a walk.
    #[doc(hidden)]
    fn read<M: Medium>(&self, medium: &M) -> Self::Reading<'_>;

    /// Where a link leads at present.
    #[doc(hidden)]
    #[inline(always)]
    fn next<M: Medium>(reading: &Self::Reading<'_>, medium: &M, link: Link) -> Position {
        let _ = reading;
        Position(medium.load(link.offset + NEXT))
    }

    /// Makes a new element durable before a link leads to it, where that is not left to a batch.
    #[doc(hidden)]
    #[inline(always)]
    fn persist_element<M: Medium>(medium: &M, offset: u64, len: u64) {
        let _ = (medium, offset, len);
    }

    /// Changes a link. That completes an operation, after which the writer stands at `end`.
    ///
    /// # Errors
    ///
    /// When the pool is full; nothing was changed then.
    #[doc(hidden)]
    fn change<M: Medium>(
        &self,
        stream: &Stream<M>,
        end: &mut End,
        link: Link,
        next: Position,
    ) -> Result<()>;

    /// Bytes that complete operations have written since the list was opened.
    #[doc(hidden)]
    fn written(&self) -> u64;

    /// Makes everything safe that was complete before the call.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the pool is damaged.
    #[doc(hidden)]
    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()>;

    /// As [`make_safe`](Variant::make_safe), and leaves as little as possible to the next opening.
    ///
    /// # Errors
    ///
    /// As for [`make_safe`](Variant::make_safe).
    #[doc(hidden)]
    fn close<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        self.make_safe(stream)
    }
}

/// A variant whose elements can be replaced and removed, and inserted anywhere.
pub trait Changeable: Variant {}
