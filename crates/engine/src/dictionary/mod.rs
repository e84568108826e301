//! Dictionaries: the values of an encoded column, each of them once.
//!
//! A row has the number of its value in the column's cell. A dictionary is append-only: a value
//! keeps its number, and is never removed. Numbers lead to values by runs of entries in the pool
//! (`layout.rs`), which are read into DRAM as they are needed (`values.rs`). Values lead to numbers
//! by a hash index, in the pool or in DRAM (`index.rs`). It is needed only to give rows values.
//!
//! The thread that adds a value fences before it gives the number to anybody. So every number in a
//! row has a durable entry, and statements need no further care. One thread at a time adds values
//! to a dictionary, so a crash leaves at most one torn entry, the last one. Its number is never
//! used.

mod check;
pub(crate) mod index;
mod layout;
mod ops;
pub(crate) mod recover;
mod sample;
pub(crate) mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use self::index::ValueIndex;
use self::layout::Store;
use self::values::Values;
use crate::index::uses::Uses;

pub(crate) use self::layout::{STATE_LEN, new_state};

/// The dictionary of a column.
pub(crate) struct Dictionary<M: Medium> {
    store: Store<M>,
    pub(crate) values: Arc<Values>,
    /// By which values are found. Another one takes its place when it is moved.
    index: ArcSwap<ValueIndex<M>>,
    /// How often the index was used; also those from which it was moved.
    pub(crate) uses: Uses,
    /// Numbers that were given away. Entries of all of them are durable.
    count: AtomicU64,
    /// Held by who adds a value, rebuilds the index, or exchanges it for another one.
    adding: PauseMutex<Adding<M>>,
}

/// What the thread that adds values has to know.
struct Adding<M: Medium> {
    /// How many values the index has, if it is being rebuilt.
    indexed: u64,
    /// The index that is to take the place of the present one: new values get words there, too.
    next: Option<Arc<ValueIndex<M>>>,
}
