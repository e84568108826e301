//! Compaction in step with writers. When the log is too long (`balance.rs`), every writer compacts
//! before its operation returns, or waits for a writer that does.
//!
//! This terminates. Emptying a segment gains room if less than half of it is live, or a quarter is
//! dead. When no such segment is left, at most a quarter of each segment is dead or taken by
//! tombstones, and the log is short enough. Records of the last batches cannot be moved before they
//! are safe, so a writer that finds nothing else to empty makes them safe. Values longer than a
//! quarter of a segment may leave room unused that emptying cannot gain; writers then go on.

use remanent_pmem::Medium;

use super::Core;
use super::balance::{TARGET, TRIGGER};
use super::space::{DEAD_ENOUGH, SPARSE};
use crate::Result;
use crate::background::lock_patiently;

impl<M: Medium> Core<M> {
    /// Compacts if writers have to. Called at the end of an operation, without a lock.
    #[inline]
    pub(super) fn keep_pace(&self) -> Result<()> {
        if self.log.segments.balance.is_behind() { self.catch_up() } else { Ok(()) }
    }

    #[cold]
    fn catch_up(&self) -> Result<()> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let mut is_synced = false;
        let mut has_gained = false;
        let balance = &self.log.segments.balance;
        if !balance.exceeds(TRIGGER) {
            // Another writer has compacted.
            balance.catch_up();
            return Ok(());
        }
        while balance.exceeds(TARGET) {
            let picked = self.log.pick(DEAD_ENOUGH);
            if !picked.is_empty() {
                match self.compact(&picked) {
                    // The pool is full. The writer that needs room will see that, and make some.
                    Err(error) if error.is_full() => break,
                    // As in `tidy`: other segments can still be emptied.
                    Err(error) if error.is_damage() => {}
                    compacted => compacted?,
                }
                (is_synced, has_gained) = (false, true);
            } else if is_synced {
                break;
            } else {
                // Segments that are not safe cannot be emptied.
                self.log.sync()?;
                is_synced = true;
            }
        }
        balance.catch_up();
        if has_gained {
            // Other writers may have gone on meanwhile, without setting the flag again.
            balance.compare();
        }
        Ok(())
    }

    /// Compacts segments of which less than half is live. Returns whether there were any.
    pub(super) fn compact_sparse(&self) -> Result<bool> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let picked = self.log.pick(SPARSE);
        if picked.is_empty() { Ok(false) } else { self.compact(&picked).map(|()| true) }
    }
}
