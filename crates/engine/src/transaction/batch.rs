//! Several statements that count as one.

use remanent_pmem::Medium;

use super::slots::Open;
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
    /// Batches in progress, with it.
    depth: usize,
    is_done: bool,
}

impl<'t, 'd, M: Medium> Batch<'t, 'd, M> {
    pub(super) fn begin(transaction: &'t mut Transaction<'d, M>) -> Result<Self> {
        let slot = transaction.slot.as_mut().ok_or(Error::TransactionEnded)?;
        slot.require_statement()?;
        let open = slot.open_mut().ok_or(Error::TransactionEnded)?;
        let steps = open.deferred.steps.len();
        open.deferred.batches.push(steps);
        let depth = open.deferred.batches.len();
        let of = (transaction.engine, transaction.token);
        Ok(Batch { transaction, of, steps, depth, is_done: false })
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
        let exchanged = Error::Exchanged { token: self.of.1 };
        if self.is_exchanged() {
            return Err(exchanged);
        }
        let engine = self.transaction.engine;
        let slot = self.transaction.slot.as_mut().ok_or(Error::TransactionEnded)?;
        let open = slot.open_mut().ok_or(Error::TransactionEnded)?;
        // Otherwise the transaction was exchanged, and is back: in a batch that is a part of this
        // one, or to be suspended meanwhile.
        if open.deferred.batches.len() != self.depth {
            return Err(exchanged);
        }
        self.is_done = true;
        open.deferred.batches.pop();
        if open.deferred.is_in_batch() {
            return Ok(());
        }
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
        let depth = |open: &Open<M>| open.deferred.batches.len();
        if slot.open().map_or(0, depth) < self.depth {
            // It was suspended, and taken back then.
            return;
        }
        // An error tells of words that stay in indexes, and do no harm.
        let _ = engine.take_back(slot, self.steps);
        if let Some(open) = slot.open_mut() {
            open.deferred.batches.truncate(self.depth - 1);
        }
    }
}

impl<M: Medium> Transaction<'_, M> {
    /// Takes a batch back that has no end: its transaction was exchanged for another one.
    pub(super) fn leave_batch(&mut self) {
        let Some(slot) = self.slot.as_mut() else { return };
        let Some(open) = slot.open_mut() else { return };
        if let Some(steps) = std::mem::take(&mut open.deferred.batches).first().copied() {
            // An error tells of words that stay in indexes, and do no harm.
            let _ = self.engine.take_back(slot, steps);
        }
    }
}
