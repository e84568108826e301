//! Creating a file, and opening it after any crash.

use remanent_pmem::heap::Heap;
use remanent_pmem::heap::layout::HEADER_LEN;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium, Result};

use super::layout::{EXTENT_COUNT, Extent, GROUPS, IDENTITY, LAYOUT, MAGIC, STATE, State, place};
use super::ops::{Body, Writing};
use super::pair::Pair;
use crate::line::{Line, WORDS};
use crate::seal::Key;

impl<M: Medium> RootObject<M> for Body<M> {
    /// Metadata survive; content does if it is written in whole lines.
    const SURVIVES_DISTURBANCE: bool = true;

    fn root_type() -> RootType {
        RootType { name: "File".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self> {
        let (header, medium) = (heap.header(), heap.medium());
        let key = Key::new(&heap);
        let identity = Line::first([MAGIC, key.0, 0, 0, 0, 0, 0]);
        let identity = identity.encode(header + IDENTITY, Key::UNKNOWN.of_line());
        Line::store_encoded(medium, header + IDENTITY, &identity);
        let state = State { len: 0, is_present: true };
        let pair = Pair::make(medium, header + STATE, key, state.encode());
        let pairs = groups().map(|at| Pair::make(medium, header + at, key, [0; WORDS])).collect();
        // Flush and fence: before the root becomes live.
        medium.persist(header, HEADER_LEN);
        heap.verify()?;
        Ok(Body::new(heap, Writing::new(pair, pairs)))
    }

    fn open(heap: Heap<M>) -> Result<Self> {
        let (header, medium) = (heap.header(), heap.medium());
        let identity = Line::load(medium, header + IDENTITY, Key::UNKNOWN.of_line());
        let Some([MAGIC, key, ..]) = identity.map(|line| line.words) else {
            let what = "a file of another format, or what says its format is damaged";
            return Err(PoolError::corrupt(header + IDENTITY, what));
        };
        let key = Key(key);
        let pair = Pair::recover(medium, header + STATE, key)?;
        let pairs: Result<Box<[Pair]>> =
            groups().map(|at| Pair::recover(medium, header + at, key)).collect();
        let writing = Writing::new(pair, pairs?);
        let extents = read_extents(&heap, &writing.groups)?;
        let end = extents.last().map_or(0, |extent| extent.end());
        if writing.state.len > end {
            let what = format!("{} bytes, and extents for {end}", writing.state.len);
            return Err(PoolError::corrupt(header + STATE, what));
        }
        // The recovery makes the header durable first, including the lines that were rewritten
        // above.
        heap.recover(|block| extents.iter().any(|extent| extent.at == block.offset))?;
        let body = Body::new(heap, writing);
        extents.into_iter().for_each(|extent| body.add_extent(extent));
        body.heap.verify()?;
        Ok(body)
    }
}

/// Offsets, in the header, of the pairs with extents.
fn groups() -> impl Iterator<Item = u64> {
    (0..GROUPS).map(|group| place(group * WORDS).0)
}

fn read_extents<M: Medium>(heap: &Heap<M>, groups: &[Pair]) -> Result<Vec<Extent>> {
    let mut extents: Vec<Extent> = Vec::new();
    for index in 0..EXTENT_COUNT {
        let word = groups[index / WORDS].words()[index % WORDS];
        if word == 0 {
            break;
        }
        let extent = Extent::decode(word, extents.last().map_or(0, |last| last.end()));
        if extent.len == 0 || !heap.has_large(extent.at, extent.len)? {
            let what = format!("extent {index} of the file is none of its heap");
            return Err(PoolError::corrupt(heap.header() + place(index).0, what));
        }
        extents.push(extent);
    }
    Ok(extents)
}
