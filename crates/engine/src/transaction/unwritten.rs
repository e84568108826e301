//! What transactions have changed and not written yet: those that are durable at their commit, and
//! those in a batch. Other statements see that the rows are claimed, and here what keys they get.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::layout::SLOT_COUNT;
use crate::table::ops::Group;

/// A row, with the number of its table.
pub(crate) type RowName = (u32, RowId);

/// The cells of a row as a transaction has them; `None` if it has removed the row.
pub(crate) type Cells = Option<[Group; 2]>;

/// What a transaction has made of a row: how it was before, and after each change. Until all is
/// written, each of these states may come back.
#[derive(Debug)]
pub(crate) struct Made {
    states: SmallVec<[Cells; 2]>,
    /// The row's place among those that the transaction has changed and not written.
    at: usize,
}

impl Made {
    /// How the row was before; `None` if there was none.
    pub(super) fn before(&self) -> &Cells {
        &self.states[0]
    }

    /// How the transaction has it.
    pub(crate) fn newest(&self) -> &Cells {
        self.states.last().expect("how it was before")
    }

    /// Whether there is a row in all states.
    pub(super) fn is_always(&self) -> bool {
        self.states.iter().all(Option::is_some)
    }

    /// All states in which there is a row.
    pub(super) fn all(&self) -> impl Iterator<Item = &[Group; 2]> {
        self.states.iter().flatten()
    }
}

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
    rows: PauseMutex<HashMap<RowName, Made>>,
}

impl Unwritten {
    pub(crate) fn new() -> Self {
        Unwritten { slots: (0..SLOT_COUNT).map(|_| OfSlot::default()).collect() }
    }

    /// Passes what was made of a row, if the transaction of a slot has changed and not written it.
    #[inline]
    pub(crate) fn get<M: Medium, R>(
        &self,
        medium: &M,
        slot: u32,
        row: RowName,
        read: impl FnOnce(&Made) -> R,
    ) -> Option<R> {
        let of_slot = &self.slots[slot as usize];
        // Acquire: partner of the store in `set`. Others have seen the row's claim before.
        match of_slot.is_any.load(Ordering::Acquire) {
            true => of_slot.rows.lock(medium).get(&row).map(read),
            false => None,
        }
    }

    /// All states that may come back of a row that the transaction of a slot has changed and not
    /// written.
    pub(crate) fn all<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> Vec<[Group; 2]> {
        let all = |made: &Made| made.all().cloned().collect();
        self.get(medium, slot, row, all).unwrap_or_default()
    }

    /// Whether the transaction of a slot has changed a row, and not written it.
    #[inline]
    pub(crate) fn has<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> bool {
        self.get(medium, slot, row, |_| ()).is_some()
    }

    /// Says what the transaction of a slot has made of a row, and how it was before. Returns the
    /// row's place among those that it has changed: `next`, if it has not changed the row before.
    pub(super) fn change<M: Medium>(
        &self,
        medium: &M,
        slot: u32,
        row: RowName,
        [before, after]: [Cells; 2],
        next: usize,
    ) -> usize {
        let of_slot = &self.slots[slot as usize];
        let mut rows = of_slot.rows.lock(medium);
        let first = || Made { states: SmallVec::from_iter([before]), at: next };
        let made = rows.entry(row).or_insert_with(first);
        made.states.push(after);
        // Release: partner of the load in `get`.
        of_slot.is_any.store(true, Ordering::Release);
        made.at
    }

    /// Takes the last change of a row back. Whether that was the first one.
    pub(super) fn take_back<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> bool {
        let of_slot = &self.slots[slot as usize];
        let mut rows = of_slot.rows.lock(medium);
        let Some(made) = rows.get_mut(&row) else { return false };
        made.states.pop();
        let is_first = made.states.len() == 1;
        if is_first {
            rows.remove(&row);
        }
        // Release: as above.
        of_slot.is_any.store(!rows.is_empty(), Ordering::Release);
        is_first
    }

    /// Forgets a row, which is written. Returns what was made of it.
    pub(super) fn remove<M: Medium>(&self, medium: &M, slot: u32, row: RowName) -> Option<Made> {
        let of_slot = &self.slots[slot as usize];
        let mut rows = of_slot.rows.lock(medium);
        let made = rows.remove(&row);
        // Release: as above.
        of_slot.is_any.store(!rows.is_empty(), Ordering::Release);
        made
    }
}
