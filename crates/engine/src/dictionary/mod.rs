//! Dictionaries: the values of an encoded column, each of them once.
//!
//! A row has the number of its value in the column's cell. A dictionary is append-only: a value
//! keeps its number, and is never removed. Numbers lead to values by runs of entries in the pool
//! (`layout.rs`), which are read into DRAM as they are needed (`values.rs`). Values lead to numbers
//! by a hash index, in the pool or in DRAM. It is needed only to give rows values.
//!
//! The thread that adds a value fences before it gives the number to anybody. So every number in a
//! row has a durable entry, and statements need no further care. One thread at a time adds values
//! to a dictionary, so a crash leaves at most one torn entry, the last one. Its number is never
//! used.

mod check;
mod layout;
mod ops;
pub(crate) mod recover;
pub(crate) mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use self::layout::Store;
use self::values::Values;
use crate::index::Rows;

pub(crate) use self::layout::{STATE_LEN, new_state};

/// The dictionary of a column.
pub(crate) struct Dictionary<M: Medium> {
    store: Store<M>,
    pub(crate) values: Arc<Values>,
    /// From hashes of values to numbers.
    index: Rows<M>,
    /// Numbers that were given away. Entries of all of them are durable.
    count: AtomicU64,
    /// Whether the index has all values.
    is_indexed: AtomicBool,
    /// Held by who adds a value, or rebuilds the index.
    adding: PauseMutex<Indexed>,
}

/// How many values an index that is being rebuilt has.
#[derive(Debug, Default)]
struct Indexed(u64);
