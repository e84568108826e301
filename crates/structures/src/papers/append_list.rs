//! A list that is appended to in batches: the optimization technique of BOPL (its section 4.2).
//!
//! An insertion writes the element and the link to it, publishes the writer's state in volatile
//! memory, and returns. A batch flushes all lines that were written since the last one, mostly
//! whole pages; fences; and commits the list's end, last element and length in one line
//! transaction, with a second fence. The only safe word that is changed later is the link of the
//! last safe element. After a crash it may lead to elements that are not safe, so recovery cuts it.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::{Mapped, Medium, Result as PoolResult, WORD_LEN};

use crate::Result;
use crate::batch_list::layout::{NEXT, Position, Safe};
use crate::batch_list::stream::{End, Link, Stream};
use crate::batch_list::{List, Variant};

/// The list of BOPL's optimized insertion: elements are appended in batches, and never changed.
///
/// Opening it reads one link. [`LogList`](crate::batch_list::LogList) has all operations, but walks
/// the list when it is opened.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::BatchList;
/// use remanent_structures::papers::AppendList;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = AppendList::create(&pool, "log", BatchOptions::default())?;
/// list.insert(1, b"a value")?; // no flush, no fence, no lock
/// list.sync()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Elements are neither replaced nor removed:
///
/// ```compile_fail,E0277
/// # use remanent_structures::batch_list::ChangeList;
/// # use remanent_structures::papers::AppendList;
/// fn change(list: &mut AppendList) {
///     let _ = list.remove(1);
/// }
/// ```
pub type AppendList<M = Mapped> = List<Append, M>;

/// Elements are appended in batches; see [`AppendList`].
///
/// A sequence lock, by which the writer publishes its state to the persister without a locked
/// instruction. `sequence` is odd while the other fields change. Aligned to two lines, since the
/// prefetcher fetches pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Append {
    sequence: AtomicU64,
    working: AtomicU64,
    tail: AtomicU64,
    count: AtomicU64,
    written: AtomicU64,
}

impl Append {
    /// Publishes the writer's state after an operation.
    #[inline(always)]
    fn tell(&self, end: &End) {
        // Relaxed: only the writer changes the sequence.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // Release: partners of the Acquires in `told`. A reader that sees one of these values also
        // sees the odd sequence, and what the operation wrote.
        self.working.store(end.working.0, Ordering::Release);
        self.tail.store(end.tail.of.0, Ordering::Release);
        self.count.store(end.count, Ordering::Release);
        self.written.store(end.written, Ordering::Release);
        // Release: all four values are stored. Partner of the first Acquire in `told`.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// The state that the writer published last, and the bytes written until then.
    fn told<M: Medium>(&self, medium: &M) -> (Safe, u64) {
        loop {
            // Acquire: partner of the last Release in `tell`.
            let before = self.sequence.load(Ordering::Acquire);
            // Acquire: partners of the Releases in `tell`. These loads precede the second load of
            // the sequence.
            let end = Position(self.working.load(Ordering::Acquire));
            let tail = Position(self.tail.load(Ordering::Acquire));
            let count = self.count.load(Ordering::Acquire);
            let written = self.written.load(Ordering::Acquire);
            // Relaxed: the Acquires above order the other loads before this one.
            if before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before {
                return (Safe { end, tail, mark: 0, count }, written);
            }
            medium.pause();
        }
    }
}

impl Variant for Append {
    const TYPE_NAME: &'static str = "AppendList";

    type Reading<'a> = ();

    fn recover<M: Medium>(stream: &Stream<M>, safe: Safe) -> PoolResult<(Self, End)> {
        let medium = stream.medium();
        let end = stream.end(safe.end, stream.link_or_head(safe.tail)?, safe.count);
        // The link may lead to an element that is not safe. Not flushed: the next batch flushes
        // this link, and until then another recovery cuts it again.
        medium.store(end.tail.offset + NEXT, Position::NONE.0);
        let append = Append {
            sequence: AtomicU64::new(0),
            working: AtomicU64::new(end.working.0),
            tail: AtomicU64::new(end.tail.of.0),
            count: AtomicU64::new(end.count),
            written: AtomicU64::new(0),
        };
        Ok((append, end))
    }

    #[inline(always)]
    fn read<M: Medium>(&self, _: &M) -> Self::Reading<'_> {}

    #[inline(always)]
    fn change<M: Medium>(
        &self,
        stream: &Stream<M>,
        end: &mut End,
        link: Link,
        next: Position,
    ) -> Result<()> {
        stream.medium().store(link.offset + NEXT, next.0);
        self.tell(end);
        Ok(())
    }

    #[inline(always)]
    fn written(&self) -> u64 {
        // Relaxed: the number is only a bound, and a hint for the persister.
        self.written.load(Ordering::Relaxed)
    }

    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        let mut committed = stream.begin_batch();
        let (end, written) = self.told(stream.medium());
        if written == committed.written {
            return Ok(stream.heap.verify()?);
        }
        stream.flush(committed.safe.end, end.end);
        let before = stream.link_or_head(committed.safe.tail)?;
        // Flush: the link of the last safe element, which was stored after its page was flushed.
        stream.medium().flush(before.offset + NEXT, WORD_LEN);
        // Fence: elements and links, before they are committed as safe.
        stream.medium().fence();
        stream.commit(&mut committed, end, written)?;
        Ok(stream.take_ahead(end.end)?)
    }
}
