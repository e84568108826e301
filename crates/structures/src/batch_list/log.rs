//! The variant `LogList`: all operations in batches, with an undo log. It is the paper's first
//! solution (its section 4.3), without a flush on the critical path.
//!
//! Time is divided into *epochs*; a batch ends one and makes it safe. If an epoch is lost in a
//! crash, every link that it changed must get its old value back, unless the link's element is lost
//! with the epoch. The paper writes the old value into a journal, and flushes the journal before it
//! changes the link.
//!
//! Here each element has its own journal entry, in the line of its link (in-cache-line logging:
//! Cohen et al., ASPLOS 2019): *undo* is the link's value before the epoch, and *epoch* says which
//! epoch changed it. The words are stored in the order undo, epoch, next. Stores to one line become
//! durable in their order (assumption 2 of `docs/model.md`), so no image has a changed link without
//! its undo, and nothing needs to be flushed before the batch.
//!
//! A link has one undo. While the epoch that used it is being made safe, the next epoch must not
//! overwrite it: an operation that would do so waits for the batch.
//!
//! Recovery walks the list, and sets every link whose epoch was not committed to its undo. This
//! takes time in proportion to the list. It flushes nothing: the first batch flushes those links,
//! and until it is committed their epochs still count as lost, so another recovery would do the
//! same.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, Result as PoolResult};

use super::layout::{EPOCH, NEXT, Position, Safe, Shape, UNDO};
use super::stream::{End, Link, Stream};
use super::variant::{Changeable, Variant};
use crate::{Error, Result};

/// An upper bound that no list's epochs reach.
const EPOCH_MAX: u64 = 1 << 55;

/// Elements are changed in batches, with an undo log; see [`LogList`](super::LogList).
#[derive(Debug)]
pub struct Log {
    present: PauseMutex<Present>,
    /// A copy of the number in `present`, read without the lock.
    written: AtomicU64,
}

/// The present epoch.
#[derive(Debug)]
struct Present {
    epoch: u64,
    /// Elements from here on were made in this epoch.
    began: Position,
    /// Whether the previous epoch is being made safe.
    is_sealing: bool,
    /// Offsets of the older links that this epoch changed.
    changed: Vec<u64>,
    /// State of the writer after the last operation.
    end: Safe,
    written: u64,
}

impl Changeable for Log {}

impl Variant for Log {
    const TYPE_NAME: &'static str = "LogList";
    const SHAPE: Shape = Shape::LOGGED;
    const MAY_REFUSE: bool = true;

    type Reading<'a> = ();

    fn recover<M: Medium>(stream: &Stream<M>, safe: Safe) -> PoolResult<(Self, End)> {
        let medium = stream.medium();
        if safe.mark > EPOCH_MAX {
            let what = format!("no epoch of a list is {:#x}", safe.mark);
            return Err(PoolError::corrupt(stream.head().offset, what));
        }
        let mut end = stream.end(safe.end, stream.head(), 0);
        let (mut epoch, mut changed) = (safe.mark, Vec::new());
        loop {
            let word = |at| medium.load(end.tail.offset + at);
            if word(EPOCH) > EPOCH_MAX {
                let what = format!("no link was changed in epoch {:#x}", word(EPOCH));
                return Err(PoolError::corrupt(end.tail.offset, what));
            }
            if word(EPOCH) > safe.mark {
                epoch = epoch.max(word(EPOCH));
                medium.store(end.tail.offset + NEXT, word(UNDO));
                changed.push(end.tail.offset);
            }
            let next = Position(word(NEXT));
            if next == Position::NONE {
                break;
            }
            (end.tail, _) = stream.element(end.tail, next, Shape::LOGGED)?;
            end.count += 1;
            if next >= safe.end || end.count > safe.count {
                let what = format!("the list leads to {next}, beyond what is safe of it");
                return Err(PoolError::corrupt(end.tail.offset, what));
            }
        }
        if (end.tail.of, end.count) != (safe.tail, safe.count) {
            let what = format!(
                "the list has {} elements up to {}, and should have {} up to {}",
                end.count, end.tail.of, safe.count, safe.tail
            );
            return Err(PoolError::corrupt(end.tail.offset, what));
        }
        let present = Present {
            // Greater than every epoch in a link that can still be reached.
            epoch: epoch + 1,
            began: safe.end,
            is_sealing: false,
            changed,
            end: safe,
            written: 0,
        };
        Ok((Log { present: PauseMutex::new(present), written: AtomicU64::new(0) }, end))
    }

    /// Takes no lock: only the writer changes links, and it does not walk meanwhile.
    #[inline(always)]
    fn read<M: Medium>(&self, _: &M) -> Self::Reading<'_> {}

    fn change<M: Medium>(
        &self,
        stream: &Stream<M>,
        end: &mut End,
        link: Link,
        next: Position,
    ) -> Result<()> {
        let medium = stream.medium();
        let mut present = self.present.lock(medium);
        if link.of < present.began {
            let mut epoch = medium.load(link.offset + EPOCH);
            while present.is_sealing && epoch + 1 == present.epoch {
                drop(present);
                self.wait_for_batch(stream)?;
                present = self.present.lock(medium);
                epoch = medium.load(link.offset + EPOCH);
            }
            if epoch != present.epoch {
                // Release: undo before epoch before next, in this line's order of stores. The epoch
                // makes the undo count, so it is stored after the undo. It is stored before the
                // link, so a changed link always has its epoch.
                medium.store(link.offset + UNDO, medium.load(link.offset + NEXT));
                medium.store(link.offset + EPOCH, present.epoch);
                present.changed.push(link.offset);
                end.written += LINE_LEN;
            }
        }
        // Release: after the element that the link leads to, and after the undo, if there is one.
        medium.store(link.offset + NEXT, next.0);
        present.end = end.reached();
        present.written = end.written;
        // Relaxed: the number is only a bound, and a hint for the persister.
        self.written.store(end.written, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn written(&self) -> u64 {
        // Relaxed: as in `change`.
        self.written.load(Ordering::Relaxed)
    }

    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        let medium = stream.medium();
        let mut committed = stream.begin_batch();
        let mut present = self.present.lock(medium);
        if present.written == committed.written {
            return Ok(stream.heap.verify()?);
        }
        let (end, written) = (Safe { mark: present.epoch, ..present.end }, present.written);
        let changed = std::mem::take(&mut present.changed);
        present.epoch += 1;
        present.began = end.end;
        present.is_sealing = true;
        drop(present);
        stream.flush(committed.safe.end, end.end);
        for offset in changed {
            // Flush: a changed link, with its undo.
            medium.flush(offset, EPOCH + 8);
        }
        // Fence: elements and links, before the epoch is committed.
        medium.fence();
        stream.commit(&mut committed, end, written)?;
        self.present.lock(medium).is_sealing = false;
        Ok(stream.take_ahead(end.end)?)
    }
}

impl Log {
    /// Waits for the current batch.
    #[cold]
    fn wait_for_batch<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        let batch = stream.begin_batch();
        if self.present.lock(stream.medium()).is_sealing {
            stream.heap.verify()?;
            return Err(Error::Persister { what: "it failed in the middle of a batch".to_owned() });
        }
        drop(batch);
        Ok(())
    }
}
