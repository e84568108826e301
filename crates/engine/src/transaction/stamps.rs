//! Stamps of commits, and up to which of them readers see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::layout::SLOT_COUNT;
use crate::replicate::gate::{Gate, Gated};
use crate::replicate::write_set::WriteSet;
use crate::{Error, Result};

/// Hands out stamps in order. What a stamp commits is seen once all before it are done, too: a
/// snapshot is a number.
#[derive(Debug)]
pub(crate) struct Stamps {
    last: AtomicU64,
    /// The last stamp that is done and has only such before it.
    visible: AtomicU64,
    /// Stamp s is done if the word s modulo their number has it.
    done: Box<[AtomicU64]>,
    /// Who is told of commits before they are done.
    gated: Gated,
}

/// A commit in progress. Dropping it says that it is done, or that nobody knows whether it counts.
#[derive(Debug)]
pub(crate) struct Commit<'s, M: Medium> {
    stamps: &'s Stamps,
    medium: &'s M,
    pub(crate) stamp: u64,
    /// It was told.
    is_told: bool,
    /// Nothing of it was written.
    is_cancelled: bool,
}

impl Stamps {
    /// Stamps behind `last`, which was the greatest.
    pub(crate) fn after(last: u64) -> Self {
        let done = (0..SLOT_COUNT).map(|_| AtomicU64::new(0));
        let gated = Gated::default();
        Stamps { last: last.into(), visible: last.into(), done: done.collect(), gated }
    }

    /// The stamp of the newest state that readers see.
    #[inline(always)]
    pub(crate) fn visible(&self) -> u64 {
        // Acquire: partner of the exchange in `advance`; what was published before is seen.
        self.visible.load(Ordering::Acquire)
    }

    /// The greatest stamp that somebody has taken: its commit may be in progress.
    pub(crate) fn last(&self) -> u64 {
        // Relaxed: the number alone matters.
        self.last.load(Ordering::Relaxed)
    }

    /// Whether a commit is in progress, and readers will see it.
    pub(crate) fn is_on_its_way(&self, stamp: u64) -> bool {
        // A damaged row may state any.
        stamp > self.visible() && stamp <= self.last()
    }

    /// Takes the next stamp.
    pub(crate) fn begin<'s, M: Medium>(&'s self, medium: &'s M) -> Commit<'s, M> {
        // AcqRel: partner of itself, and of the one in `set_gate`. Who has a later stamp sees what
        // was stored before an earlier one was taken.
        let stamp = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        Commit { stamps: self, medium, stamp, is_told: false, is_cancelled: false }
    }

    /// Whether commits are told.
    #[inline(always)]
    pub(crate) fn has_gate(&self) -> bool {
        self.gated.is_on()
    }

    /// Has commits told to a gate from now on, or to nobody. Returns the last stamp that is not
    /// told.
    pub(crate) fn set_gate<M: Medium>(
        &self,
        medium: &M,
        gate: Option<Arc<dyn Gate>>,
        schema_version: u64,
    ) -> u64 {
        // Release: partner of the one in `begin`.
        let last_stamp = || self.last.fetch_add(0, Ordering::Release);
        self.gated.set(medium, gate, schema_version, last_stamp)
    }

    /// Waits for the commits that an earlier gate is told of, or nobody.
    pub(crate) fn forget_gates_before<M: Medium>(&self, medium: &M, stamp: u64) {
        self.wait_until_visible(medium, stamp);
        self.gated.forget_before(medium, stamp);
    }

    /// Waits until readers see the commit with a stamp, and all before.
    pub(crate) fn wait_until_visible<M: Medium>(&self, medium: &M, stamp: u64) {
        while self.visible() < stamp {
            medium.pause();
            self.advance();
        }
    }

    fn advance(&self) {
        let mut visible = self.visible();
        // Acquire: partner of the store in `drop`; what those commits have published is seen by
        // who sees their stamps.
        while self.done[self.place(visible + 1)].load(Ordering::Acquire) == visible + 1 {
            // AcqRel: partner of the load in `visible`.
            let exchanged = self.visible.compare_exchange(
                visible,
                visible + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            visible = exchanged.map_or_else(|found| found, |_| visible + 1);
        }
    }

    fn place(&self, stamp: u64) -> usize {
        (stamp % self.done.len() as u64) as usize
    }
}

impl<M: Medium> Commit<'_, M> {
    /// Ends a commit that is durable: tells what it has changed, if somebody asks for it, waits
    /// until it may be acknowledged, and has others see it. The caller has nothing that others wait
    /// for: the gate may take its time.
    ///
    /// # Errors
    ///
    /// When it is given up on. It counts all the same.
    pub(crate) fn end(mut self, told: impl FnOnce(u64) -> Result<WriteSet>) -> Result<()> {
        let Commit { stamps, medium, stamp, .. } = self;
        if !stamps.has_gate() {
            return Ok(());
        }
        let told = told(stamp);
        self.is_told = true;
        let gate = stamps.gated.pass(medium, stamp, Some(told));
        match gate.is_none_or(|gate| gate.wait(stamp)) {
            true => Ok(()),
            false => Err(Error::Unconfirmed { stamp }),
        }
    }

    /// Notes that nothing of it was written.
    pub(crate) fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Notes that something of it may be written from now on, after a [`cancel`](Commit::cancel).
    pub(crate) fn proceed(mut self) -> Self {
        self.is_cancelled = false;
        self
    }
}

impl<M: Medium> Drop for Commit<'_, M> {
    fn drop(&mut self) {
        let Commit { stamps, medium, stamp, is_told, is_cancelled } = *self;
        if !is_told && stamps.has_gate() {
            let in_doubt = (!is_cancelled).then_some(Err(Error::Unconfirmed { stamp }));
            stamps.gated.pass(medium, stamp, in_doubt);
        }
        // Its word may still be that of an earlier one: there are more changes of the schema and
        // commits in progress than words.
        let words = stamps.done.len() as u64;
        stamps.wait_until_visible(medium, stamp.saturating_sub(words));
        // Release: partner of the load in `advance`.
        stamps.done[stamps.place(stamp)].store(stamp, Ordering::Release);
        stamps.advance();
        // Whoever was told of a commit sees it.
        stamps.wait_until_visible(medium, stamp);
    }
}
