//! What all variants have in common.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Error as PoolError, Medium};

use super::layout::{ELEMENT, EPOCH, LEN_MASK, NEXT, Position, SAFE, Safe, UNDO};
use super::stream::{End, Link, Stream};
use super::variant::Variant;
use crate::Result;
use crate::background::{Batches, lock_patiently};
use crate::line_tx::{self, Form};

/// The part of a list that exists once a process.
pub struct Core<V, M: Medium> {
    pub(crate) stream: Stream<M>,
    pub(crate) variant: V,
    /// Held while a batch is made safe.
    pub(crate) committed: PauseMutex<Committed>,
    /// Bytes that are safe, of those written since the list was opened.
    pub(crate) safe_bytes: AtomicU64,
    /// Where the writer stood when it left; `None` while there is one.
    pub(crate) end: PauseMutex<Option<End>>,
}

/// What was committed last.
pub(crate) struct Committed {
    /// Version of the line that says it.
    pub(crate) version: u64,
    pub(crate) safe: Safe,
    /// Bytes written up to then since the list was opened.
    pub(crate) written: u64,
}

impl<V: Variant, M: Medium> Core<V, M> {
    /// The right to make a batch safe.
    pub(crate) fn begin_batch(&self) -> PauseGuard<'_, Committed> {
        lock_patiently(&self.committed, self.stream.medium())
    }

    /// Says what is safe now. Everything that it speaks of was flushed and fenced.
    pub(crate) fn commit(&self, committed: &mut Committed, safe: Safe, written: u64) -> Result<()> {
        let (heap, line) = (&self.stream.heap, self.stream.heap.header() + SAFE);
        let (before, after) = (committed.safe.to_bytes(), safe.to_bytes());
        line_tx::commit(heap.medium(), Form::Line, line, committed.version, &before, &after);
        heap.verify()?;
        *committed = Committed { version: committed.version + 1, safe, written };
        // Relaxed: a bound, and a hint for the persister.
        self.safe_bytes.store(written, Ordering::Relaxed);
        Ok(())
    }

    /// Writes an element to where nobody looks yet.
    #[inline(always)]
    pub(crate) fn write(&self, link: Link, next: Position, key: u64, value: &[u8]) {
        let medium = self.stream.medium();
        medium.store(link.offset + NEXT, next.0);
        if V::SHAPE.key > EPOCH {
            // No epoch has changed this link.
            medium.store(link.offset + UNDO, 0);
            medium.store(link.offset + EPOCH, 0);
        }
        medium.store(link.offset + V::SHAPE.key, key);
        medium.store(link.offset + V::SHAPE.len, ELEMENT | value.len() as u64);
        medium.write(link.offset + V::SHAPE.value, value);
        V::settle(medium, link.offset, V::SHAPE.value + value.len() as u64);
    }

    /// The element that a link leads to, by its own link.
    #[inline]
    pub(crate) fn follow(
        &self,
        reading: &V::Reading<'_>,
        link: Link,
    ) -> Result<Option<Link>, PoolError> {
        match V::next(reading, self.stream.medium(), link) {
            Position::NONE => Ok(None),
            next => self.stream.link(next).map(Some),
        }
    }

    /// Has `read` look at the value of an element.
    pub(crate) fn read_value<R>(
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
        // Relaxed: safe before written, or the difference would be negative at worst.
        let safe = self.safe_bytes.load(Ordering::Relaxed);
        self.variant.written().saturating_sub(safe)
    }

    fn persist(&self) -> Result<()> {
        V::persist(self)
    }
}

/// Values up to this length are read without an allocation.
const SHORT_LEN: usize = 512;
