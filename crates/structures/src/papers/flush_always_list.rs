//! A list that flushes in every operation: BOPL's first implementation, with which its authors
//! compare the others.
//!
//! An element is durable before a link leads to it, and the link is durable before the operation
//! returns. The paper flushes a third time, to note the last element. Here recovery walks the list
//! instead, as the paper's Algorithm 10 does in the end.

use remanent_pmem::{Error as PoolError, Mapped, Medium, Result as PoolResult, WORD_LEN};

use crate::Result;
use crate::batch_list::layout::{NEXT, Position, Safe, Shape};
use crate::batch_list::stream::{End, Link, Stream};
use crate::batch_list::{Changeable, List, Variant};
use crate::segments::SEGMENT_LEN;

/// The list of BOPL's first implementation: every operation is durable when it returns, for two
/// fences.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::BatchOptions;
/// use remanent_structures::batch_list::BatchList;
/// use remanent_structures::papers::FlushAlwaysList;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut list = FlushAlwaysList::create(&pool, "list", BatchOptions::default())?;
/// list.insert(5, b"durable when it returns")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type FlushAlwaysList<M = Mapped> = List<FlushAlways, M>;

/// Each operation is durable when it returns; see [`FlushAlwaysList`].
#[derive(Debug, Default)]
pub struct FlushAlways(());

impl Changeable for FlushAlways {}

impl Variant for FlushAlways {
    const TYPE_NAME: &'static str = "FlushAlwaysList";
    const IS_BATCHED: bool = false;

    type Reading<'a> = ();

    fn recover<M: Medium>(stream: &Stream<M>, _: Safe) -> PoolResult<(Self, End)> {
        let medium = stream.medium();
        let (mut working, mut tail, mut count) = (Position::FIRST, stream.head(), 0);
        let elements_max = stream.capacity() / Shape::PLAIN.size(0);
        loop {
            // Flush: what a killed process left in the caches, before anything is built upon it.
            // Redundant: unless a process was killed before and the power fails later.
            medium.flush(tail.offset + NEXT, WORD_LEN);
            let next = Position(medium.load(tail.offset + NEXT));
            if next == Position::NONE {
                break;
            }
            let (element, size) = stream.element(tail, next, Shape::PLAIN)?;
            tail = element;
            count += 1;
            if count > elements_max {
                return Err(PoolError::corrupt(element.offset, "the list does not end"));
            }
            let behind = match size {
                long if long > SEGMENT_LEN => Position::in_slot(next.next_slot()),
                size => next.plus(size),
            };
            working = working.max(behind);
        }
        // Fence: for these flushes.
        // Redundant: for the same reason as the flushes.
        medium.fence();
        Ok((FlushAlways(()), stream.end(working, tail, count)))
    }

    #[inline(always)]
    fn read<M: Medium>(&self, _: &M) -> Self::Reading<'_> {}

    #[inline]
    fn persist_element<M: Medium>(medium: &M, offset: u64, len: u64) {
        // Flush and fence: the element, before a link leads to it.
        medium.persist(offset, len);
    }

    #[inline]
    fn change<M: Medium>(
        &self,
        stream: &Stream<M>,
        _: &mut End,
        link: Link,
        next: Position,
    ) -> Result<()> {
        let medium = stream.medium();
        medium.store(link.offset + NEXT, next.0);
        // Flush and fence: the link, before the operation is acknowledged.
        medium.persist(link.offset + NEXT, WORD_LEN);
        Ok(())
    }

    fn written(&self) -> u64 {
        0
    }

    fn make_safe<M: Medium>(&self, stream: &Stream<M>) -> Result<()> {
        Ok(stream.heap.verify()?)
    }
}
