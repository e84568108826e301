//! The current version of a tree: how readers see it, what the writer knows, and how the next one
//! is committed.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::Core;
use super::layout::{CHANGING, DISMANTLED, LEN, Place, RECORD_COUNT, RECORD_LEN, ROOT, VERSION};
use super::node::View;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// The state that a version of the tree consists of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub(super) root: u64,
    /// Number of entries.
    pub(super) len: u64,
    /// Root of the tree that a `clear` replaced, until all of it is freed; else 0.
    pub(super) dismantled: u64,
    pub(super) version: u64,
}

/// The durable current version, for readers.
///
/// The words of a version are stored at the index of its lowest bit. They are overwritten only
/// after the next version was published. So a reader that loads the same version before and after
/// has read the words of that version.
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

    /// The current version, and its word in `words`.
    #[inline(always)]
    fn load<M: Medium>(&self, medium: &M, words: &[AtomicU64; 2]) -> (u64, u64) {
        loop {
            // Acquire: everything that the version consists of is visible. Partner of the Release
            // of the version in `store`.
            let version = self.version.load(Ordering::Acquire);
            // Acquire: before the second load of the version. Partner of the Release of the words
            // in `store`.
            let word = words[(version & 1) as usize].load(Ordering::Acquire);
            // Relaxed: if the word is one of a later version, the version before that was published
            // earlier, so this load differs.
            if self.version.load(Ordering::Relaxed) == version {
                return (version, word);
            }
            medium.pause();
        }
    }

    fn store(&self, record: Record) {
        let place = (record.version & 1) as usize;
        // Release: after the previous version. Partner of the Acquire of the words in `load`.
        self.roots[place].store(record.root, Ordering::Release);
        self.lens[place].store(record.len, Ordering::Release);
        // Release: everything that the version consists of is durable. Partner of the Acquire of
        // the version in `load`.
        self.version.store(record.version, Ordering::Release);
    }
}

/// The state of the one writer.
#[derive(Debug)]
pub(super) struct Writer {
    /// The current version.
    pub(super) record: Record,
    /// Index of its record in the header. The next record goes to the index after it.
    pub(super) record_index: u64,
    /// Whether the header says that a change may be in flight.
    pub(super) is_changing: bool,
    /// The epoch in which the tree that is being dismantled was replaced.
    pub(super) left_at: u64,
    pub(super) sweep: Sweep,
}

/// How far the nodes were cleaned of lost versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// No version is lost, or all nodes are clean and the versions are forgotten.
    Done,
    /// The nodes before this place are clean.
    From(Place),
    /// All nodes are clean, durably, so the versions may be forgotten.
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
    /// The tree as a reader sees it. The caller has pinned the heap.
    #[inline(always)]
    pub(super) fn start(&self) -> (View<'_>, u64) {
        let (version, root) = self.published.load(self.medium(), &self.published.roots);
        (View::new(version, &self.lost), root)
    }

    /// The tree as the writer sees it.
    #[inline(always)]
    pub(super) fn view(&self, writer: &Writer) -> View<'_> {
        View::new(writer.record.version, &self.lost)
    }

    pub(super) fn len(&self) -> Result<u64> {
        let (_, len) = self.published.load(self.medium(), &self.published.lens);
        self.heap.verify()?;
        Ok(len)
    }

    /// Notes durably that a change may be in flight, so that its version counts as lost after a
    /// crash.
    #[cold]
    pub(super) fn announce(&self, writer: &mut Writer) {
        let at = self.heap.header() + CHANGING;
        self.medium().store(at, 1);
        // Flush and fence: the note, before an entry has a version that is not committed.
        self.medium().persist(at, 8);
        writer.is_changing = true;
    }

    /// Makes the next version the current one: the commit. Everything that it consists of is
    /// durable already.
    #[inline]
    pub(super) fn commit(&self, writer: &mut Writer, record: Record) -> Result<()> {
        // If something could not be written, the version must not be built on it.
        self.heap.verify()?;
        let index = (writer.record_index + 1) % RECORD_COUNT;
        let at = self.heap.header() + index * RECORD_LEN;
        let medium = self.medium();
        medium.store(at + ROOT, record.root);
        medium.store(at + LEN, record.len);
        medium.store(at + DISMANTLED, record.dismantled);
        // Last of the line, so that a version that survives a crash has its record with it.
        medium.store(at + VERSION, record.version);
        // Flush and fence: the version is durable before any thread sees it.
        medium.persist(at, RECORD_LEN);
        (writer.record, writer.record_index) = (record, index);
        self.published.store(record);
        Ok(())
    }
}
