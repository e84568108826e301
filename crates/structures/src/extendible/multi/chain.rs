//! Chains: the records of one key, the newest first.
//!
//! A slot leads to the newest record, and each record to the one before it. Who changes the chain
//! has the slot's bucket. A value is removed by a mark in its own record, under the fence that
//! makes the record a suspect. Then it is taken out of the chain, and nothing waits for that: a
//! marked record that a crash leaves in the chain is no value.

use std::sync::atomic::Ordering;

use remanent_pmem::heap::layout::LANE_COUNT;
use remanent_pmem::{Medium, WORD_LEN};

use super::super::Core;
use super::super::bucket::{Bucket, Shadow};
use super::super::layout::{LINK_LEN, Link, Record, each_slot};
use super::super::segment::Payload;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// A record of a chain.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Linked {
    pub(in super::super) record: Record,
    pub(in super::super) link: Link,
}

impl Linked {
    pub(in super::super) fn payload(self) -> Payload {
        Payload { word: self.record.offset, value: 0 }
    }
}

/// The values whose removal is not durable yet: one for each lane.
#[derive(Debug)]
pub(in super::super) struct Dying(Box<[Shadow]>);

impl Dying {
    pub(in super::super) fn new<const MULTI: bool>() -> Self {
        let count = if MULTI { LANE_COUNT } else { 0 };
        Dying((0..count).map(|_| Shadow::default()).collect())
    }

    /// Has the lane remove the value of this record; 0: of none.
    pub(super) fn set(&self, lane: usize, record: u64) {
        // Release: before the mark of the removal, or after its fence.
        self.0[lane].0.store(record, Ordering::Release);
    }

    #[cold]
    fn has(&self, record: u64) -> bool {
        // Acquire: partner of the store in `set`; after the load of the mark.
        self.0.iter().any(|dying| dying.0.load(Ordering::Acquire) == record)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// The records of a chain that begins at `first`, up to the first that is damaged.
    pub(in super::super) fn chain(&self, first: u64) -> impl Iterator<Item = Result<Linked>> {
        std::iter::successors(Some(self.linked(first, None)), |before| {
            let before = *before.as_ref().ok()?;
            before.link.next.map(|next| self.linked(next, Some(before)))
        })
    }

    /// The record at `offset`, whose number has to be below that of the one before it. So no walk
    /// along a damaged chain comes to a record twice.
    pub(super) fn linked(&self, offset: u64, before: Option<Linked>) -> Result<Linked> {
        let (medium, record) = (self.medium(), self.record(offset)?);
        let at = record.link_at();
        if at + LINK_LEN <= medium.len()
            && let Some(link) = Link::open(at, medium.load(at), medium.load(at + WORD_LEN))
            && before.is_none_or(|before| link.number < before.link.number)
        {
            return Ok(Linked { record, link });
        }
        let what = "the records of a key do not lead to one another";
        Err(Error::corrupt(&self.heap, offset, what))
    }

    /// Whether the value of a record is there.
    #[inline(always)]
    pub(in super::super) fn is_alive(&self, linked: Linked) -> bool {
        !linked.link.is_dead || self.dying.has(linked.record.offset)
    }

    /// Number of values to which these slots of a bucket lead, which nobody changes.
    pub(in super::super) fn count_values(&self, bucket: Bucket, slots: u32) -> Result<u64> {
        let mut count = 0;
        for slot in each_slot(slots) {
            for linked in self.chain(Self::content(bucket.word(self.medium(), slot))) {
                count += u64::from(!linked?.link.is_dead);
            }
        }
        Ok(count)
    }

    /// Writes the link of a new record to the one that is to be next. The caller flushes.
    pub(in super::super) fn write_link(&self, record: Record, next: Option<Linked>) {
        let (medium, at) = (self.medium(), record.link_at());
        let number = next.map_or(0, |next| next.link.number + 1);
        let link = Link { next: next.map(|next| next.record.offset), is_dead: false, number };
        medium.store(at, link.seal(at));
        medium.store(at + WORD_LEN, number);
    }

    /// Stores where a record leads. The caller flushes.
    pub(super) fn set_link(&self, record: Record, link: Link) -> u64 {
        let at = record.link_at();
        self.medium().store(at, link.seal(at));
        at
    }
}
