//! The interface of the variants of a list.

use remanent_pmem::Medium;
use remanent_pmem::Result as PoolResult;

use super::layout::{NEXT, Position, Safe, Shape};
use super::stream::{End, Link, Stream};
use crate::Result;

/// How a list changes its links, and how it makes them safe. Implemented by this crate alone.
///
/// A value of the implementing type is the variant's volatile state.
pub trait Variant: Send + Sync + Sized + 'static {
    /// Name of the root's type.
    #[doc(hidden)]
    const TYPE_NAME: &'static str;
    /// Layout of elements.
    #[doc(hidden)]
    const SHAPE: Shape = Shape::PLAIN;
    /// Whether operations return before they are safe.
    #[doc(hidden)]
    const IS_BATCHED: bool = true;
    /// Whether [`change`](Variant::change) may fail.
    #[doc(hidden)]
    const MAY_REFUSE: bool = false;
    /// Whether recovery reads the items between two positions.
    #[doc(hidden)]
    const HAS_RECORDS: bool = false;

    /// What a walk holds while it reads links.
    #[doc(hidden)]
    type Reading<'a>;

    /// Restores the links as of `safe`, and finds the end of the list.
    ///
    /// # Errors
    ///
    /// When the list is damaged.
    #[doc(hidden)]
    fn recover<M: Medium>(stream: &Stream<M>, safe: Safe) -> PoolResult<(Self, End)>;

    /// Begins a walk.
    #[doc(hidden)]
    fn read<M: Medium>(&self, medium: &M) -> Self::Reading<'_>;

    /// The present target of a link.
    #[doc(hidden)]
    #[inline(always)]
    fn next<M: Medium>(reading: &Self::Reading<'_>, medium: &M, link: Link) -> Position {
        let _ = reading;
        Position(medium.load(link.offset + NEXT))
    }

    /// Makes a new element durable before it is linked. Batched variants leave that to the batch.
    #[doc(hidden)]
    #[inline(always)]
    fn persist_element<M: Medium>(medium: &M, offset: u64, len: u64) {
        let _ = (medium, offset, len);
    }

    /// Sets a link to `next`. This completes an operation, and `end` is the writer's state after
    /// it.
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

    /// Bytes written by completed operations since the list was opened.
    #[doc(hidden)]
    fn written(&self) -> u64;

    /// Makes all operations safe that were complete before the call.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the pool is damaged.
    #[doc(hidden)]
    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()>;

    /// As [`make_safe`](Variant::make_safe), and prepares for a quick opening.
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
