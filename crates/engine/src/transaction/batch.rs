//! Several statements that count as one.

use remanent_pmem::Medium;

use super::{Token, Transaction};
use crate::engine::Engine;
use crate::{Error, Result};

/// A batch in progress. Dropping it takes it back.
pub(super) struct Batch<'t, 'd, M: Medium> {
    transaction: &'t mut Transaction<'d, M>,
    /// Its transaction, which others may take the place of meanwhile.
    of: (&'d Engine<M>, Token),
    /// Steps before it.
    steps: usize,
    /// It is not a part of another one.
    is_whole: bool,
    is_done: bool,
}

impl<'t, 'd, M: Medium> Batch<'t, 'd, M> {
    pub(super) fn begin(transaction: &'t mut Transaction<'d, M>) -> Result<Self> {
        let slot = transaction.slot.as_mut().ok_or(Error::TransactionEnded)?;
        slot.require_statement()?;
        let open = slot.open_mut().ok_or(Error::TransactionEnded)?;
        let (steps, is_whole) = (open.deferred.steps.len(), !open.deferred.is_in_batch());
        open.deferred.batch.get_or_insert(steps);
        let of = (transaction.engine, transaction.token);
        Ok(Batch { transaction, of, steps, is_whole, is_done: false })
    }

    /// What its statements are made in.
    pub(super) fn transaction(&mut self) -> &mut Transaction<'d, M> {
        self.transaction
    }

    fn is_exchanged(&self) -> bool {
        let (engine, token) = self.of;
        !std::ptr::eq(self.transaction.engine, engine) || self.transaction.token != token
    }

    /// Has it count.
    pub(super) fn end(mut self) -> Result<()> {
        if self.is_exchanged() {
            return Err(Error::Exchanged { token: self.of.1 });
        }
        if !self.is_whole {
            self.is_done = true;
            return Ok(());
        }
        let engine = self.transaction.engine;
        let slot = self.transaction.slot.as_mut().ok_or(Error::TransactionEnded)?;
        let open = slot.open_mut().ok_or(Error::TransactionEnded)?;
        open.deferred.batch = None;
        self.is_done = true;
        if open.deferred.is_at_commit {
            open.statement += u32::from(open.deferred.steps.len() > self.steps);
            return Ok(());
        }
        engine.write_batch(slot)
    }
}

impl<M: Medium> Drop for Batch<'_, '_, M> {
    fn drop(&mut self) {
        let engine = self.transaction.engine;
        let is_to_do = !self.is_done && !self.is_exchanged();
        let Some(slot) = self.transaction.slot.as_mut().filter(|_| is_to_do) else { return };
        // An error tells of words that stay in indexes, and do no harm.
        let _ = engine.take_back(slot, self.steps);
        if let Some(open) = slot.open_mut().filter(|_| self.is_whole) {
            open.deferred.batch = None;
        }
    }
}

impl<M: Medium> Transaction<'_, M> {
    /// Takes a batch back that has no end: its transaction was exchanged for another one.
    pub(super) fn leave_batch(&mut self) {
        let Some(slot) = self.slot.as_mut() else { return };
        if let Some(steps) = slot.open_mut().and_then(|open| open.deferred.batch.take()) {
            // An error tells of words that stay in indexes, and do no harm.
            let _ = self.engine.take_back(slot, steps);
        }
    }
}
