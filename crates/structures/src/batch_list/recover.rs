//! Creation and recovery.
//!
//! The paper's Algorithm 10 keeps a persistent bitmap of pages that may be damaged, since its
//! working pointer continues behind them. It cuts the links that lead there, page by page, with
//! page protection and a signal handler. Here writing continues at the safe position, so the pages
//! that may be damaged are exactly those behind it. They are written anew, and no safe element
//! leads to them once the variant has restored its links. One word replaces the bitmap, and saves a
//! fence for each page.

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::persistent::read_shared;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium};

use super::core::Core;
use super::layout::{DIRECTORY, Position, SAFE, Safe, SafeBytes};
use super::stream::Stream;
use super::variant::Variant;
use crate::line_tx::{Form, recover_version};
use crate::segments::{SEGMENT_LEN, Segments, Slot};

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 1;

impl<V: Variant, M: Medium> RootObject<M> for Core<V, M> {
    fn root_type() -> RootType {
        RootType { name: V::TYPE_NAME.to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        // An empty list is all zeros, as a new heap's header is.
        let segments = Segments::create(heap.header() + DIRECTORY);
        segments.take(&heap, Slot(0), SEGMENT_LEN, |_| {})?;
        Self::take_up(Stream::new(heap, segments, 0, Safe::EMPTY), Safe::EMPTY)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let segments = Segments::open(&heap, heap.header() + DIRECTORY)?;
        // Also makes the header durable as a killed process left it, before it is used.
        heap.recover(|block: Block| segments.is_linked(heap.medium(), block))?;
        let (line, len) = (heap.header() + SAFE, size_of::<SafeBytes>() as u64);
        let version = recover_version(heap.medium(), Form::Line, line, len)
            .ok_or_else(|| PoolError::corrupt(line, "what is safe of the list is damaged"))?;
        let at = Form::Line.data(line, version, len);
        let safe = Safe::from_bytes(&read_shared(heap.medium(), at));
        let is_there = |position: Position| segments.get(position.slot()).is_some();
        // The end may be the end of a segment that has no successor.
        if !is_there(Position(safe.end.0 - 1)) || safe.tail >= safe.end {
            let what = format!("a list does not end at {}, after {}", safe.end, safe.tail);
            return Err(PoolError::corrupt(line, what));
        }
        Self::take_up(Stream::new(heap, segments, version, safe), safe)
    }
}

impl<V: Variant, M: Medium> Core<V, M> {
    fn take_up(stream: Stream<M>, safe: Safe) -> Result<Self, PoolError> {
        let (variant, end) = V::recover(&stream, safe)?;
        stream.free_long_from(end.working);
        stream.heap.verify()?;
        Ok(Core { stream, variant, end: PauseMutex::new(Some(end)) })
    }
}
