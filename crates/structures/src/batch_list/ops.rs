//! The operations, which all variants share.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::layout::{Position, VALUE_LEN_MAX};
use super::stream::Link;
use super::variant::{Changeable, Variant};
use super::{BatchList, ChangeList, LinkList, List, Writer};
use crate::background::Batches;
use crate::{Error, Lag, Result};

/// An element, and the link that leads to it.
#[derive(Clone, Copy, Debug)]
struct Found {
    left: Link,
    element: Link,
}

impl<V: Variant, M: Medium> List<V, M> {
    fn find(&self, key: u64) -> Result<Option<Found>> {
        let (core, medium) = (&*self.writer.core, self.writer.core.stream.medium());
        let reading = core.variant.read(medium);
        let mut left = core.stream.head();
        for _ in 0..self.writer.end.count {
            let Some(element) = core.follow(&reading, left)? else { break };
            if medium.load(element.offset + V::SHAPE.key) == key {
                return Ok(Some(Found { left, element }));
            }
            left = element;
        }
        core.stream.heap.verify()?;
        Ok(None)
    }

    /// The present target of a link.
    fn next(&self, link: Link) -> Position {
        let core = &*self.writer.core;
        V::next(&core.variant.read(core.stream.medium()), core.stream.medium(), link)
    }

    /// Inserts a new element behind `left`, instead of `replaced` if there is one.
    #[inline(always)]
    fn put(
        &mut self,
        left: Link,
        next: Position,
        replaced: Option<Link>,
        key: u64,
        value: &[u8],
    ) -> Result<bool> {
        let len = value.len() as u64;
        if len > VALUE_LEN_MAX {
            return Err(Error::TooLong { what: "value", len, limit: VALUE_LEN_MAX });
        }
        let Writer { core, end } = &mut self.writer;
        let before = V::MAY_REFUSE.then_some(*end);
        let element = core.stream.place(end, V::SHAPE.size(len), V::HAS_RECORDS)?;
        core.write(element, next, key, value);
        if next == Position::NONE {
            end.tail = element;
        }
        end.count += u64::from(replaced.is_none());
        if let Err(error) = core.variant.change(&core.stream, end, left, element.of) {
            // The element was written to space that becomes free again.
            before.into_iter().for_each(|before| *end = before);
            return Err(error);
        }
        self.complete()?;
        Ok(true)
    }

    /// Called at the end of every operation, before it returns.
    #[inline(always)]
    fn complete(&self) -> Result<()> {
        let core = &*self.writer.core;
        core.stream.heap.verify()?;
        let safe = core.stream.safe_bytes();
        if V::IS_BATCHED && self.background.note(self.writer.end.written - safe)? {
            core.variant.make_safe(&core.stream)?;
        }
        Ok(())
    }
}

impl<V: Variant, M: Medium> BatchList for List<V, M> {
    #[inline]
    fn insert(&mut self, key: u64, value: &[u8]) -> Result<bool> {
        self.put(self.writer.end.tail, Position::NONE, None, key, value)
    }

    fn get_with<R>(&self, key: u64, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let core = &*self.writer.core;
        let Some(Found { element, .. }) = self.find(key)? else { return Ok(None) };
        let value = core.read_value(element, |value| {
            // After a fault the bytes may not be a value, so the medium is checked first.
            core.stream.heap.verify().map(|()| read(value))
        })?;
        Ok(Some(value?))
    }

    fn for_each(&self, mut visit: impl FnMut(u64, &[u8])) -> Result<()> {
        let (core, medium) = (&*self.writer.core, self.writer.core.stream.medium());
        let mut at = core.stream.head();
        for _ in 0..self.writer.end.count {
            // The guard is dropped before each visit, which may sync.
            let next = core.follow(&core.variant.read(medium), at)?;
            let Some(element) = next else { break };
            let key = medium.load(element.offset + V::SHAPE.key);
            core.read_value(element, |value| {
                core.stream.heap.verify().map(|()| visit(key, value))
            })??;
            at = element;
        }
        Ok(core.stream.heap.verify()?)
    }

    fn len(&self) -> u64 {
        self.writer.end.count
    }

    fn sync(&self) -> Result<()> {
        self.writer.core.persist()
    }

    fn lag(&self) -> Lag {
        Lag { bytes: self.writer.core.unsafe_bytes() }
    }

    fn close(self) -> Result<()> {
        self.writer.core.close()
    }

    fn check(&mut self) -> Result<Vec<Violation>> {
        self.writer.core.check(&self.writer.end)
    }
}

impl<V: Changeable, M: Medium> ChangeList for List<V, M> {
    fn update(&mut self, key: u64, value: &[u8]) -> Result<bool> {
        let Some(Found { left, element }) = self.find(key)? else { return Ok(false) };
        self.put(left, self.next(element), Some(element), key, value)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        let Some(Found { left, element }) = self.find(key)? else { return Ok(false) };
        let next = self.next(element);
        let mut end = self.writer.end;
        if next == Position::NONE {
            end.tail = left;
        }
        // Saturating: the count is 0 only if the list is damaged.
        end.count = end.count.saturating_sub(1);
        let core = &*self.writer.core;
        core.variant.change(&core.stream, &mut end, left, next)?;
        self.writer.end = end;
        self.complete()?;
        Ok(true)
    }
}

impl<V: Changeable, M: Medium> LinkList for List<V, M> {
    fn insert_after(&mut self, left: Option<u64>, key: u64, value: &[u8]) -> Result<bool> {
        let left = match left {
            None => self.writer.core.stream.head(),
            Some(left) => match self.find(left)? {
                Some(Found { element, .. }) => element,
                None => return Ok(false),
            },
        };
        self.put(left, self.next(left), None, key, value)
    }
}
