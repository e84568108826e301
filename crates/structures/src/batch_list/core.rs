//! The state of a list that all variants share.

use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium};

use super::layout::{ELEMENT, EPOCH, LEN_MASK, NEXT, Position, UNDO};
use super::stream::{End, Link, Stream};
use super::variant::Variant;
use crate::Result;
use crate::background::Batches;

/// The state of a list that all handles of a process share.
pub(super) struct Core<V, M: Medium> {
    pub(super) stream: Stream<M>,
    pub(super) variant: V,
    /// State of the writer when it was dropped; `None` while there is one.
    pub(super) end: PauseMutex<Option<End>>,
}

impl<V: Variant, M: Medium> Core<V, M> {
    /// Writes an element to free space.
    #[inline(always)]
    pub(super) fn write(&self, link: Link, next: Position, key: u64, value: &[u8]) {
        let medium = self.stream.medium();
        medium.store(link.offset + NEXT, next.0);
        if V::SHAPE.key > EPOCH {
            // No epoch has changed the link of a new element.
            medium.store(link.offset + UNDO, 0);
            medium.store(link.offset + EPOCH, 0);
        }
        medium.store(link.offset + V::SHAPE.key, key);
        medium.store(link.offset + V::SHAPE.len, ELEMENT | value.len() as u64);
        medium.write(link.offset + V::SHAPE.value, value);
        V::persist_element(medium, link.offset, V::SHAPE.value + value.len() as u64);
    }

    /// The element that a link leads to, given by its link.
    #[inline]
    pub(super) fn follow(
        &self,
        reading: &V::Reading<'_>,
        link: Link,
    ) -> Result<Option<Link>, PoolError> {
        match V::next(reading, self.stream.medium(), link) {
            Position::NONE => Ok(None),
            next => self.stream.link(next).map(Some),
        }
    }

    /// Makes everything safe, and prepares for a quick opening.
    pub(super) fn close(&self) -> Result<()> {
        self.variant.close(&self.stream)
    }

    /// Passes the value of an element to `read`.
    pub(super) fn read_value<R>(
        &self,
        link: Link,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, PoolError> {
        let medium = self.stream.medium();
        let len = medium.load(link.offset + V::SHAPE.len) & LEN_MASK;
        let at = link.offset + V::SHAPE.value;
        if !self.stream.holds(link.of, V::SHAPE.size(len)) {
            let what = format!("the element at {} cannot have {len} bytes", link.of);
            return Err(PoolError::corrupt(link.offset, what));
        }
        if let Some(buffer) = [0; SHORT_LEN].get_mut(..len as usize) {
            medium.read(at, buffer);
            return Ok(read(buffer));
        }
        let mut buffer = vec![0; len as usize];
        medium.read(at, &mut buffer);
        Ok(read(&buffer))
    }
}

impl<V: Variant, M: Medium> Batches for Core<V, M> {
    fn unsafe_bytes(&self) -> u64 {
        // `safe` is read first. Otherwise it could exceed `written`.
        let safe = self.stream.safe_bytes();
        self.variant.written().saturating_sub(safe)
    }

    fn persist(&self) -> Result<()> {
        self.variant.make_safe(&self.stream)
    }
}

/// Values up to this length are read without an allocation.
const SHORT_LEN: usize = 512;
