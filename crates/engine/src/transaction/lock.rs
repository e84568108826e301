//! Row locks: rows that a transaction keeps others from changing, without changing them itself.
//!
//! A lock is a claim of the row's head, like that of a statement in progress: it counts in this
//! opening of the pool alone, so that it needs no flush and no fence, and is gone after a crash.
//! The transaction's slot lists the rows that it has locked. Who ends the transaction unlocks them
//! before the slot is used for others.
//!
//! A row that is locked cannot be folded. Who would fold it notes that in the lock, and unlocking
//! leaves the row to be folded. Changing the row replaces the lock by the claim of the change,
//! whose end leaves the row to be folded in any case.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::collect::Garbage;
use super::slots::Written;
use super::statement::{Refusal, Statement};
use super::wait::Holder;
use crate::Result;
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::layout::{Claim, State};
use crate::table::ops::{Group, RowPlace};

/// What [`Get::lock_in`](crate::Get::lock_in) does if another transaction has the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// It waits as long as statements of the transaction do
    /// ([`TransactionOptions::wait`](crate::TransactionOptions::wait)).
    #[default]
    Wait,
    /// It is refused at once, with [`Error::Conflict`](crate::Error::Conflict).
    NoWait,
    /// It passes over the row, as if it were not there. A worker goes on to the next row that
    /// nobody has.
    Skip,
}

impl<M: Medium> Engine<M> {
    /// Locks the row with a key of a unique index for the transaction of a statement, and returns
    /// its cells. `None` when there is no row, or it is passed over. No fence.
    pub(crate) fn lock(
        &self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        mode: LockMode,
    ) -> Result<Option<(RowId, [Group; 2])>> {
        let Some(mut target) = self.claim_row(statement, table, index, key, mode)? else {
            return Ok(None);
        };
        let (slot, row) = (statement.slot.index, target.row);
        if let Some(open) = statement.slot.open_mut()
            && target.claimed.lock(Claim::of_lock(self.opens, slot))
        {
            open.locked.push(Written { table: Arc::clone(table), row });
        }
        Ok(Some((row, target.groups)))
    }

    /// Why a statement cannot claim a row that another transaction has locked.
    pub(super) fn meet_lock(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &Table<M>,
        place: RowPlace,
        lock: Claim,
    ) -> Result<Refusal> {
        let Some(slot) = lock.locked_by() else { return Ok(Refusal::Wait) };
        if self.expire(slot)? {
            return Ok(Refusal::Wait);
        }
        if self.statuses.open_in(slot).is_some() {
            // Otherwise the row was unlocked meanwhile, and the slot may be another transaction's.
            let is_locked = table.claim(place).locked_by() == Some(slot);
            let holder = Holder { slot: Some(slot) };
            return Ok(if is_locked { Refusal::Busy(holder) } else { Refusal::Wait });
        }
        if self.stamps.has_gate() && self.slots.try_hold_one(slot).is_none() {
            // Whoever ends it may be waiting for the gate, which takes its time.
            let is_locked = table.claim(place).locked_by() == Some(slot);
            let holder = Holder { slot: Some(slot) };
            return Ok(if is_locked { Refusal::Busy(holder) } else { Refusal::Wait });
        }
        let is_over = || self.statuses.open_in(slot).is_none();
        self.require_claim_ends(statement, table, place, (lock, slot), is_over)?;
        Ok(Refusal::Wait)
    }

    /// Unlocks the rows of a transaction that is over, whose slot the caller has.
    pub(crate) fn unlock(&self, locked: &[Written<M>], slot: u32) {
        let lock = Claim::of_lock(self.opens, slot);
        for Written { table, row } in locked {
            let Some(place) = table.place(*row) else { continue };
            // If its transaction has changed the row since, it has another claim, or none.
            if table.claim(place).locked_by() != Some(slot) || table.unlock(place, lock) {
                continue;
            }
            // It is to be folded. The lock does not change any more.
            table.give_free(place);
            let committed = table.committed(place);
            if matches!(committed.state(), State::Version(_)) && !table.is_dropped() {
                let (table, row) = (Arc::clone(table), *row);
                let stamp = table.stamp_of(committed);
                self.leave_garbage(Garbage { table, row, stamp });
            }
        }
    }
}
