//! Compaction in step with writers: when the log is too long (`balance.rs`), every writer compacts, or waits for one that
//! does, before its operation returns.
//!
//! That ends. Emptying a segment of which less than half is live, or of which a quarter is dead, gains room. Where
//! neither is left, at most a quarter of each segment is dead or a tombstone's, and the log is short enough: what
//! the last batches wrote is not emptied before it is safe, but is made safe by whoever finds nothing else. Values longer
//! than a quarter of a segment may leave room unused that no emptying gains; writers then go on.

use remanent_pmem::Medium;

use super::Core;
use super::balance::{TARGET, TRIGGER};
use super::space::{DEAD_ENOUGH, SPARSE};
use crate::Result;
use crate::background::lock_patiently;

impl<M: Medium> Core<M> {
    /// Compacts when writers have to. Called at the end of an operation, without a lock.
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
            // Somebody else has done it.
            balance.catch_up();
            return Ok(());
        }
        while balance.exceeds(TARGET) {
            let picked = self.log.pick(DEAD_ENOUGH);
            if !picked.is_empty() {
                match self.compact(&picked) {
                    // Whoever needs the room will see it, and make some.
                    Err(error) if error.is_full() => break,
                    // As when the thread compacts: others can be emptied.
                    Err(error) if error.is_damage() => {}
                    compacted => compacted?,
                }
                (is_synced, has_gained) = (false, true);
            } else if is_synced {
                break;
            } else {
                // What is not safe yet is not emptied.
                self.log.sync()?;
                is_synced = true;
            }
        }
        balance.catch_up();
        if has_gained {
            // Others may have gone on meanwhile, and found that somebody compacts.
            balance.compare();
        }
        Ok(())
    }

    /// Compacts what is sparse; whether there was something.
    pub(super) fn compact_sparse(&self) -> Result<bool> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let picked = self.log.pick(SPARSE);
        if picked.is_empty() { Ok(false) } else { self.compact(&picked).map(|()| true) }
    }
}
