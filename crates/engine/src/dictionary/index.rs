//! The index of a dictionary, which leads from values to numbers, and moving it.
//!
//! To move it, another index is built beside it. A thread that adds a value from then on adds its
//! word to both, under one fence. So the index that the catalog names has every value whenever a
//! crash comes. Values are looked for in the old index until the new one takes its place, and no
//! look waits for that: a value that is not found is looked for again before it is added, by the
//! thread that holds the lock of the dictionary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::Dictionary;
use super::ops::{MANY, row_of};
use crate::Result;
use crate::index::{Key, Rows};
use crate::schema::Placement;

/// An index from the hashes of values to numbers.
pub(crate) struct ValueIndex<M: Medium> {
    /// Its number among the members of the heap.
    pub(crate) number: u32,
    pub(crate) rows: Rows<M>,
    /// Whether it has all values.
    is_whole: AtomicBool,
}

impl<M: Medium> ValueIndex<M> {
    pub(crate) fn new(number: u32, rows: Rows<M>, is_whole: bool) -> Self {
        ValueIndex { number, rows, is_whole: AtomicBool::new(is_whole) }
    }

    /// Where it lies.
    pub(crate) fn placement(&self) -> Placement {
        match self.rows.header() {
            Some(_) => Placement::Pmem,
            None => Placement::Dram,
        }
    }

    /// Whether it has all values. It has not while it is built, or is rebuilt in DRAM.
    pub(super) fn is_whole(&self) -> bool {
        // Acquire: partner of the store in `set_whole`.
        self.is_whole.load(Ordering::Acquire)
    }

    pub(super) fn set_whole(&self) {
        // Release: the words are there; partner of the load in `is_whole`.
        self.is_whole.store(true, Ordering::Release);
    }
}

impl<M: Medium> Dictionary<M> {
    /// The index by which values are found now.
    pub(crate) fn index(&self) -> Arc<ValueIndex<M>> {
        self.index.load_full()
    }

    /// Has `next` get every value: those that are added from now on by who adds them, and those
    /// that are there by this thread. Their words are durable with the caller's next fence. One
    /// caller at a time. `require` is asked before each part whether to go on.
    ///
    /// # Errors
    ///
    /// When there is no room for the words, or the medium met a fault. The caller ends the move by
    /// [`stop_moving`](Dictionary::stop_moving).
    pub(crate) fn build(
        &self,
        next: &Arc<ValueIndex<M>>,
        require: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let count = {
            let mut adding = self.adding.lock(self.store.medium());
            adding.next = Some(Arc::clone(next));
            // No value is being added.
            self.count()
        };
        let mut first = 0;
        while first < count {
            require()?;
            let until = (first + MANY).min(count);
            let words = self.words(first..until)?;
            match next.rows.insert_words(&words) {
                // Lanes may hold blocks that are not freed yet.
                Err(error) if error.is_full() => {
                    self.store.heap.relieve();
                    let mut words = words.iter();
                    words.try_for_each(|(hash, id)| next.rows.ensure_word(*hash, *id))?;
                }
                inserted => inserted?,
            }
            first = until;
        }
        next.set_whole();
        Ok(())
    }

    /// Has values be found by the index that was [built](Dictionary::build), which the catalog
    /// names by now. The one before gets no more words.
    pub(crate) fn exchange_index(&self, next: &Arc<ValueIndex<M>>) {
        let mut adding = self.adding.lock(self.store.medium());
        adding.next = None;
        self.index.store(Arc::clone(next));
    }

    /// Has nobody add words to the index that was being built.
    pub(crate) fn stop_moving(&self) {
        self.adding.lock(self.store.medium()).next = None;
    }

    /// The words of values that are there: hashes and numbers. Those of damaged values are left
    /// out.
    pub(super) fn words(&self, ids: std::ops::Range<u64>) -> Result<Vec<(u64, RowId)>> {
        let words = ids.filter_map(|id| {
            // Not by way of `values`: who reads rows needs only some of them.
            let value = self.store.read(id as u32)?;
            Some((Key::of_value(&value).hash, row_of(id as u32)))
        });
        let words = words.collect();
        // A faulty medium reads as zeros: as if there were no values.
        self.store.heap.verify()?;
        Ok(words)
    }
}
