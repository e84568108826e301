//! Opening a dictionary.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium};

use super::index::ValueIndex;
use super::layout::{STATE_LEN, Store};
use super::ops::row_of;
use super::values::{Place, RUN_COUNT, Values};
use super::{Adding, Dictionary};
use crate::index::uses::Uses;
use crate::index::{Key, Rows};
use crate::value::Type;
use crate::{Error, Result};

/// Which dictionary of which table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// Offset of its state.
    pub(crate) state: u64,
    /// Number of the table.
    pub(crate) table: u32,
    /// Number of the column.
    pub(crate) column: usize,
    /// The type of its values.
    pub(crate) of_type: Type,
}

/// A dictionary in the pool, without its index.
pub(crate) struct FoundDictionary<M: Medium> {
    store: Store<M>,
    runs: Vec<u64>,
    count: u64,
}

impl<M: Medium> FoundDictionary<M> {
    /// Finds a dictionary, and how many numbers it has given away. Flushes what a killed process
    /// may have left in the caches; the caller fences.
    ///
    /// # Errors
    ///
    /// When its state, or what leads to a run, is damaged.
    pub(crate) fn find(heap: &Arc<Heap<M>>, site: Site) -> Result<Self, PoolError> {
        let Site { state, table, column, of_type } = site;
        let (heap, value_len) = (Arc::clone(heap), of_type.cell_len());
        let store = Store { heap, state, table, column: column as u32, value_len };
        store.require_state()?;
        let medium = store.medium();
        // Flush: fenced by the caller.
        // Redundant: but where a process was killed before, and the power fails later.
        medium.flush(state, STATE_LEN);
        let runs = (0..RUN_COUNT).map_while(|run| store.run(run).transpose());
        let runs = runs.collect::<Result<Vec<u64>, _>>()?;
        for run in runs.len() as u32..RUN_COUNT {
            if store.run(run)?.is_some() {
                let what = "a dictionary passes over a run of entries";
                return Err(store.damaged(store.run_at(run), what));
            }
        }
        let count = store.count(&runs)?;
        if let Some(last) = count.checked_sub(1) {
            let Place { run, at } = Place::of(last as u32);
            store.settle(store.entry_at(runs[run as usize], at), count);
        }
        Ok(FoundDictionary { store, runs, count })
    }

    /// The blocks of its own, without those of its index.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().copied().chain([self.store.state])
    }

    /// The dictionary with its index, which has this number, once the heap has recovered.
    ///
    /// # Errors
    ///
    /// When the index has no room for a value that a crash has taken from it, or is damaged.
    pub(crate) fn open(self, number: u32, index: Rows<M>) -> Result<Dictionary<M>> {
        let FoundDictionary { store, count, .. } = self;
        let is_whole = index.header().is_some() || count == 0;
        let last =
            count.checked_sub(1).map(|last| last as u32).filter(|_| index.header().is_some());
        if let Some((last, value)) = last.and_then(|last| Some((last, store.read(last)?))) {
            // Also if it is there: a killed process may have left it in the caches.
            index.ensure(&Key::of_value(&value), row_of(last))?;
            // Fence: the word, before another value is added: then nobody asks for this one.
            // Redundant: but where another thread adds that value, by a fence of its own.
            store.medium().fence();
        }
        store.heap.verify().map_err(Error::from)?;
        let of_values = store.clone();
        Ok(Dictionary {
            store,
            values: Arc::new(Values::new(move |id| of_values.read(id))),
            index: ArcSwap::from_pointee(ValueIndex::new(number, index, is_whole)),
            uses: Uses::default(),
            count: AtomicU64::new(count),
            adding: PauseMutex::new(Adding { indexed: 0, next: None }),
        })
    }
}
