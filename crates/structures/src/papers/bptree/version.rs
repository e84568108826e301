//! The current version of a tree: what readers see, what the writer knows, and how the next one is committed.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::Core;
use super::layout::{CHANGING, DISMANTLED, LEN, Place, RECORD_COUNT, RECORD_LEN, ROOT, VERSION};
use super::node::View;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// What the current version of a tree is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub(super) root: u64,
    /// Entries.
    pub(super) len: u64,
    /// Root of the tree that a clearing left, until all of it is freed; else 0.
    pub(super) dismantled: u64,
    pub(super) version: u64,
}

/// The durable version, for readers.
///
/// What belongs to a version lies in the place of its parity, and is replaced only when the next one is there
/// already: whoever finds the same version before and after has read what belongs to it.
#[derive(Debug)]
pub(super) struct Published {
    version: AtomicU64,
    roots: [AtomicU64; 2],
    lens: [AtomicU64; 2],
}

impl Published {
    pub(super) fn new(record: Record) -> Self {
        let both = |word: u64| [AtomicU64::new(word), AtomicU64::new(word)];
        let Record { root, len, version, .. } = record;
        Published { version: AtomicU64::new(version), roots: both(root), lens: both(len) }
    }

    /// Version, and the word that belongs to it.
    #[inline(always)]
    fn load<M: Medium>(&self, medium: &M, words: &[AtomicU64; 2]) -> (u64, u64) {
        loop {
            // Acquire: pairs with the Release in `store`: all that the version consists of is there.
            let version = self.version.load(Ordering::Acquire);
            // Acquire: before the version is read again.
            let word = words[(version & 1) as usize].load(Ordering::Acquire);
            // Relaxed: a word of a later version (Release in `store`) came after the version before that.
            if self.version.load(Ordering::Relaxed) == version {
                return (version, word);
            }
            medium.pause();
        }
    }

    fn store(&self, record: Record) {
        let place = (record.version & 1) as usize;
        // Release: after the version before; pairs with the Acquire of the words in `load`.
        self.roots[place].store(record.root, Ordering::Release);
        self.lens[place].store(record.len, Ordering::Release);
        // Release: pairs with the Acquire in `load`. All that the version consists of is durable.
        self.version.store(record.version, Ordering::Release);
    }
}

/// What the one writer knows.
#[derive(Debug)]
pub(super) struct Writer {
    /// The current version.
    pub(super) record: Record,
    /// Where that lies: the next one goes to the place after it.
    pub(super) record_index: u64,
    /// Whether the header says that a change may be under way.
    pub(super) is_changing: bool,
    /// Epoch in which the tree that is dismantled was left.
    pub(super) left_at: u64,
    pub(super) sweep: Sweep,
}

/// How far the search for what lost versions have left in nodes has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Nothing is lost, or nothing of it is left.
    Done,
    /// What lies before this place is clean.
    From(Place),
    /// Everything is clean, durably: the versions may be forgotten.
    Clean,
}

impl Sweep {
    #[inline(always)]
    pub(super) fn is_due(self) -> bool {
        self != Sweep::Done
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// The tree as a reader finds it, who is pinned already.
    #[inline(always)]
    pub(super) fn start(&self) -> (View<'_>, u64) {
        let (version, root) = self.published.load(self.medium(), &self.published.roots);
        (View::new(version, &self.lost), root)
    }

    /// The tree as the writer finds it.
    #[inline(always)]
    pub(super) fn view(&self, writer: &Writer) -> View<'_> {
        View::new(writer.record.version, &self.lost)
    }

    pub(super) fn len(&self) -> Result<u64> {
        let (_, len) = self.published.load(self.medium(), &self.published.lens);
        self.heap.verify()?;
        Ok(len)
    }

    /// Durably says that a change may be under way, so that its version counts as lost after a crash.
    #[cold]
    pub(super) fn announce(&self, writer: &mut Writer) {
        let at = self.heap.header() + CHANGING;
        self.medium().store(at, 1);
        // Flush and fence: before an entry bears a version that is not committed yet.
        self.medium().persist(at, 8);
        writer.is_changing = true;
    }

    /// Makes the next version the current one: the commit. What it consists of is durable already.
    #[inline]
    pub(super) fn commit(&self, writer: &mut Writer, record: Record) -> Result<()> {
        // What could not be written is not to be built on.
        self.heap.verify()?;
        let index = (writer.record_index + 1) % RECORD_COUNT;
        let at = self.heap.header() + index * RECORD_LEN;
        let medium = self.medium();
        medium.store(at + ROOT, record.root);
        medium.store(at + LEN, record.len);
        medium.store(at + DISMANTLED, record.dismantled);
        // Last of the line, so that a version which is found has its record before it.
        medium.store(at + VERSION, record.version);
        // Flush and fence: the version is durable before any thread works at it.
        medium.persist(at, RECORD_LEN);
        (writer.record, writer.record_index) = (record, index);
        self.published.store(record);
        Ok(())
    }
}
