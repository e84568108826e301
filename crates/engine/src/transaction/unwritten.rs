//! What transactions have changed and not written yet: those that are durable at their commit, and
//! those in a batch. Other statements see that the rows are claimed, and here what keys they get.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;
use remanent_structures::RowId;

use super::layout::SLOT_COUNT;
use crate::table::ops::Group;

/// A row, with the number of its table.
pub(crate) type RowName = (u32, RowId);

/// The cells of a row as a transaction has them; `None` if it has removed the row.
pub(crate) type Cells = Option<[Group; 2]>;

/// What the transactions of all slots have not written yet.
#[derive(Debug)]
pub(crate) struct Unwritten {
    slots: Box<[OfSlot]>,
}

/// In lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OfSlot {
    /// Whether there is any.
    is_any: AtomicBool,
    rows: PauseMutex<HashMap<RowName, OfRow>>,
}

/// What a transaction has made of a row.
#[derive(Debug)]
struct OfRow {
    newest: Cells,
    /// What it had made of it before, or has taken back: a part of it may be taken back again, and
    /// who builds an index has to find these keys.
    others: Vec<Cells>,
}

impl Unwritten {
    pub(crate) fn new() -> Self {
        Unwritten { slots: (0..SLOT_COUNT).map(|_| OfSlot::default()).collect() }
    }

    /// Passes the cells of a row, if the transaction of a slot has changed and not written it.
    #[inline]
    pub(crate) fn get<M: Medium, R>(
        &self,
        medium: &M,
        slot: u32,
        row: RowName,
        read: impl FnOnce(&Cells) -> R,
    ) -> Option<R> {
        let of_slot = &self.slots[slot as usize];
        // Acquire: partner of the store in `set`. Others have seen the row's claim before.
        match of_slot.is_any.load(Ordering::Acquire) {
            true => of_slot.rows.lock(medium).get(&row).map(|of| read(&of.newest)),
            false => None,
        }
    }

    /// What the transaction of a slot has made of a row at last, and not written.
    pub(super) fn newest<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> Cells {
        self.get(medium, slot, row, Cells::clone).flatten()
    }

    /// All that the transaction of a slot has made of a row, and not written.
    pub(crate) fn all<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> Vec<[Group; 2]> {
        let rows = self.slots[slot as usize].rows.lock(medium);
        let of_row = rows.get(&row).into_iter();
        let cells = of_row.flat_map(|of| std::iter::once(&of.newest).chain(&of.others));
        cells.flatten().cloned().collect()
    }

    /// Whether the transaction of a slot has changed a row, and not written it.
    #[inline]
    pub(crate) fn has<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> bool {
        self.get(medium, slot, row, |_| ()).is_some()
    }

    /// Says what the transaction of a slot has made of a row. Returns what it had made of it before
    /// in the same way.
    pub(super) fn set<M: Medium>(
        &self,
        medium: &M,
        slot: u32,
        row: RowName,
        cells: Cells,
    ) -> Option<Cells> {
        let of_slot = &self.slots[slot as usize];
        let before = match of_slot.rows.lock(medium).entry(row) {
            Entry::Vacant(vacant) => {
                vacant.insert(OfRow { newest: cells, others: Vec::new() });
                None
            }
            Entry::Occupied(mut found) => {
                let before = std::mem::replace(&mut found.get_mut().newest, cells);
                found.get_mut().others.push(before.clone());
                Some(before)
            }
        };
        // Release: partner of the load in `get`.
        of_slot.is_any.store(true, Ordering::Release);
        before
    }

    /// Forgets a row, which is written or taken back. Returns what was made of it.
    pub(super) fn remove<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> Option<Cells> {
        let of_slot = &self.slots[slot as usize];
        let mut rows = of_slot.rows.lock(medium);
        let cells = rows.remove(&row).map(|of| of.newest);
        // Release: as above.
        of_slot.is_any.store(!rows.is_empty(), Ordering::Release);
        cells
    }
}
