//! Finding the number of a value, and adding a value.

use std::sync::atomic::Ordering;

use remanent_pmem::heap::layout::SMALL_LEN_MAX;
use remanent_pmem::{Error as PoolError, Medium, WORD_LEN};
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::index::ValueIndex;
use super::layout::Store;
use super::values::{IDS, Place};
use super::{Adding, Dictionary};
use crate::index::Key;
use crate::index::uses::Use;
use crate::table::layout::NUMBER;
use crate::{Error, Result};

/// Values that are added to an index at once.
pub(super) const MANY: u64 = 1_024;
/// Values that a part of rebuilding adds to an index.
const PART: u64 = 16 * MANY;

impl<M: Medium> Dictionary<M> {
    /// Where it lies.
    pub(crate) fn offset(&self) -> u64 {
        self.store.state
    }

    /// Numbers that were given away.
    pub(crate) fn count(&self) -> u64 {
        // Acquire: entries of these numbers are durable; partner of the store in `add`.
        self.count.load(Ordering::Acquire)
    }

    /// The number of a value, which is added if the dictionary does not have it. The caller has
    /// neither a lane nor a pin. No fence for a value that is there. One for a new value, and those
    /// for blocks; it is durable then, whatever becomes of the statement. `None` if the dictionary
    /// is full.
    ///
    /// # Errors
    ///
    /// When the pool is full, a run of entries is damaged, or the medium met a fault.
    #[inline]
    pub(crate) fn id_of(&self, value: &[u8]) -> Result<Option<u32>> {
        let key = Key::of_value(value);
        self.uses.count(Use::Lookup);
        {
            // Whether it is in use still makes no difference: a number that it leads to is right.
            let index = self.index.load();
            if index.is_whole()
                && let Some(id) = self.find(&index, &key, value)?
            {
                return Ok(Some(id));
            }
        }
        self.id_of_other(&key, value)
    }

    /// The number of a value, by an index that has all values.
    fn find(&self, index: &ValueIndex<M>, key: &Key, value: &[u8]) -> Result<Option<u32>> {
        let count = self.count();
        let is_it = |id: &RowId| {
            // A word may be of an entry that is not durable, or that a crash has taken away.
            id.get() < count && self.values.get(id.get() as u32) == Some(value)
        };
        let found = index.rows.candidates(key)?.into_iter().find(is_it);
        Ok(found.map(|id| id.get() as u32))
    }

    #[cold]
    fn id_of_other(&self, key: &Key, value: &[u8]) -> Result<Option<u32>> {
        match self.add(key, value) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.store.heap.relieve();
                self.add(key, value)
            }
            added => added,
        }
    }

    fn add(&self, key: &Key, value: &[u8]) -> Result<Option<u32>> {
        let medium = self.store.medium();
        let mut adding = self.adding.lock(medium);
        // Nobody exchanges it as long as this thread has the lock.
        let index = self.index.load();
        self.index_until(&index, &mut adding, u64::MAX)?;
        if let Some(id) = self.find(&index, key, value)? {
            return Ok(Some(id));
        }
        // A faulty medium reads as zeros: the value may be there.
        self.store.heap.verify()?;
        let id = match self.count() {
            count if count < IDS => count as u32,
            _ => return Ok(None),
        };
        let Place { run, at } = Place::of(id);
        let run = match self.store.run(run)? {
            Some(run) => run,
            None => match self.store.make_run(run) {
                // No chunks in a row are so many.
                Err(Error::Pool(PoolError::TooLarge { .. })) => return Ok(None),
                made => made?,
            },
        };
        // The words first: they can fail. Nobody follows them before the number is given away.
        index.rows.ensure(key, row_of(id))?;
        if let Some(next) = &adding.next {
            next.rows.ensure(key, row_of(id))?;
        }
        self.store.write(self.store.entry_at(run, at), id, value);
        // Fence: the entry and its words, before anybody learns the number.
        medium.fence();
        self.store.heap.verify()?;
        self.values.put(id, SmallVec::from_slice(value));
        // Release: the entry is durable; partner of the load in `count`.
        self.count.store(u64::from(id) + 1, Ordering::Release);
        self.uses.count(Use::Change);
        Ok(Some(id))
    }

    /// Whether the index has all values. It has not if it lies in DRAM and is being rebuilt.
    pub(crate) fn is_indexed(&self) -> bool {
        self.index.load().is_whole()
    }

    /// Adds a part of the values to the index that it does not have, and returns how many values
    /// these were. `None` if another thread does.
    ///
    /// # Errors
    ///
    /// When there is no memory left, or the medium met a fault.
    pub(crate) fn rebuild_part(&self) -> Result<Option<u64>> {
        let Some(mut adding) = self.adding.try_lock() else { return Ok(None) };
        let (index, before) = (self.index.load(), adding.indexed);
        self.index_until(&index, &mut adding, before + PART)?;
        Ok(Some(adding.indexed - before))
    }

    /// Has the index have all values with numbers less than `until`.
    fn index_until(&self, index: &ValueIndex<M>, adding: &mut Adding<M>, until: u64) -> Result<()> {
        if index.is_whole() {
            return Ok(());
        }
        let count = self.count();
        while adding.indexed < until.min(count) {
            let end = (adding.indexed + MANY).min(count);
            for (hash, id) in self.words(adding.indexed..end)? {
                // Some are there if the memory was at its end before.
                index.rows.ensure_word(hash, id)?;
            }
            adding.indexed = end;
        }
        if adding.indexed == count {
            index.set_whole();
        }
        Ok(())
    }
}

/// A number as an index has it.
pub(super) fn row_of(id: u32) -> RowId {
    RowId::new(id.into()).expect("rows have greater numbers, too")
}

impl<M: Medium> Store<M> {
    /// Makes a run of entries, durably. Two fences, and those of the allocator.
    fn make_run(&self, run: u32) -> Result<u64> {
        let (medium, len) = (self.medium(), self.run_len(run));
        let mut lane = self.heap.enter().prepare_to_write();
        let block = match len <= SMALL_LEN_MAX {
            true => {
                let block = lane.allocate(len)?;
                medium.write_zeros(block.offset, len);
                // Flush: fenced below.
                // Redundant: but where the block was used before.
                medium.flush(block.offset, len);
                block
            }
            false => lane.allocate_zeroed(len)?,
        };
        let [tag, number] = self.run_head(run);
        medium.store(block.offset, tag);
        medium.store(block.offset + NUMBER, number);
        // Flush: fenced below.
        medium.flush(block.offset, 2 * WORD_LEN);
        // Fence: the run, before anything leads to it.
        lane.fence();
        self.heap.verify().map_err(Error::from)?;
        // Release: after what is in the run; partner of the load in `run`.
        medium.store(self.run_at(run), block.offset);
        // Flush and fence: before an entry of the run is.
        // Redundant fence: that of the entry comes, but where the index has no room for its word.
        medium.persist(self.run_at(run), WORD_LEN);
        Ok(block.offset)
    }
}
