//! Stamps of commits, and up to which of them readers see.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::layout::SLOT_COUNT;

/// Hands out stamps in order. What a stamp commits is seen once all before it are done, too: a
/// snapshot is a number.
#[derive(Debug)]
pub(crate) struct Stamps {
    last: AtomicU64,
    /// The last stamp that is done and has only such before it.
    visible: AtomicU64,
    /// Stamp s is done if the word s modulo their number has it. There are as many words as commits
    /// in progress, because each waits until it is visible.
    done: Box<[AtomicU64]>,
}

/// A commit in progress. Dropping it says that it is done, or will not be.
#[derive(Debug)]
pub(crate) struct Commit<'s, M: Medium> {
    stamps: &'s Stamps,
    medium: &'s M,
    pub(crate) stamp: u64,
}

impl Stamps {
    /// Stamps behind `last`, which was the greatest.
    pub(crate) fn after(last: u64) -> Self {
        let done = (0..SLOT_COUNT).map(|_| AtomicU64::new(0));
        Stamps { last: last.into(), visible: last.into(), done: done.collect() }
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
        // Relaxed: the number alone matters.
        let stamp = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        Commit { stamps: self, medium, stamp }
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

impl<M: Medium> Drop for Commit<'_, M> {
    fn drop(&mut self) {
        let Commit { stamps, medium, stamp } = *self;
        // Release: partner of the load in `advance`.
        stamps.done[stamps.place(stamp)].store(stamp, Ordering::Release);
        stamps.advance();
        // Whoever was told of a commit sees it.
        while stamps.visible() < stamp {
            medium.pause();
            stamps.advance();
        }
    }
}
