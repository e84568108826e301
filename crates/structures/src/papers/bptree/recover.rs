//! Creating and opening a tree, and recovery.
//!
//! A crash loses at most one version: the one after the current version, which the only writer was
//! about to commit. Some nodes may have entries whose begin or end is that version, and nothing
//! says which. So the number is never used again: the header notes it as lost, and begins and ends
//! with it do not count. That takes one fence for any size of tree. Later changes clean the nodes
//! of it, one path at a time. When they have cleaned all nodes, the note is removed. If so many
//! processes crash before this that the header has no room for another note, the next opening
//! cleans the whole tree itself.

use std::marker::PhantomData;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium};

use super::Core;
use super::layout::{
    CHANGING, DISMANTLED, LEN, LOST, LOST_COUNT, Place, RECORD_COUNT, RECORD_LEN, ROOT, VERSION,
};
use super::node::{Bound, Lost, View};
use super::shift::Moves;
use super::version::{Published, Record, Sweep, Writer};
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 2;

impl<K, V, M, const MULTI: bool> RootObject<M> for Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    M: Medium,
{
    fn root_type() -> RootType {
        let kind = if MULTI { "BpMultiTree" } else { "BpTree" };
        let name = format!("{kind}<{}, {}>", K::type_name(), V::type_name());
        RootType { name, layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let mut core = Self::new(heap, Record::default(), 0, Lost::default());
        let root = {
            let mut lane = core.heap.enter().prepare_to_write();
            core.make_empty(&mut lane).map_err(pool_error)?
        };
        let record = Record { root, version: 1, ..Record::default() };
        let (medium, header) = (core.medium(), core.heap.header());
        medium.store(header + ROOT, record.root);
        medium.store(header + VERSION, record.version);
        // Flush and fence: the record; the fence is for the root's node, too. Both are durable
        // before the root becomes live.
        medium.persist(header, RECORD_LEN);
        core.writer.get_mut().record = record;
        core.published = Published::new(record);
        Ok(core)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let (record, index) = newest_record(&heap)?;
        let mut lost = noted_lost(&heap);
        if let Some(version) = lost.versions.iter().find(|&&version| version > VERSION_MAX) {
            heap.verify()?;
            let what = format!("{version} is no version of a B+-tree that was lost");
            return Err(PoolError::corrupt(heap.header() + LOST, what));
        }
        let is_changing = heap.medium().load(heap.header() + CHANGING) != 0;
        if is_changing {
            let last_lost = lost.versions.last().copied().unwrap_or(0);
            lost.versions.push(record.version.max(last_lost) + 1);
        }
        let last_lost = lost.versions.last().copied().unwrap_or(0);
        let mut core = Self::new(heap, record, index, lost);
        core.heap.recover(|block| core.is_linked(record, block))?;
        if is_changing {
            core.note_lost(last_lost).map_err(pool_error)?;
        }
        let record = Record { version: record.version.max(last_lost), ..record };
        let epoch = core.heap.epoch();
        let writer = core.writer.get_mut();
        (writer.record, writer.is_changing, writer.left_at) = (record, is_changing, epoch);
        if last_lost != 0 {
            writer.sweep = Sweep::From(Place::default());
        }
        core.published = Published::new(record);
        core.heap.verify()?;
        Ok(core)
    }
}

/// Half of the range, which no counter reaches.
const VERSION_MAX: u64 = u64::MAX / 2;

/// The record with the highest version, and its index.
fn newest_record<M: Medium>(heap: &Heap<M>) -> Result<(Record, u64), PoolError> {
    let (medium, header) = (heap.medium(), heap.header());
    let version_at = |index: u64| medium.load(header + index * RECORD_LEN + VERSION);
    let index = (0..RECORD_COUNT).max_by_key(|&index| version_at(index)).unwrap_or(0);
    let at = header + index * RECORD_LEN;
    let record = Record {
        root: medium.load(at + ROOT),
        len: medium.load(at + LEN),
        dismantled: medium.load(at + DISMANTLED),
        version: medium.load(at + VERSION),
    };
    heap.verify()?;
    if record.version == 0 || record.version > VERSION_MAX {
        let what = format!("{} is no version of a B+-tree", record.version);
        return Err(PoolError::corrupt(at + VERSION, what));
    }
    if record.len > medium.len() {
        let what = format!("a B+-tree in this pool cannot have {} entries", record.len);
        return Err(PoolError::corrupt(at + LEN, what));
    }
    Ok((record, index))
}

/// The lost versions that the header notes.
fn noted_lost<M: Medium>(heap: &Heap<M>) -> Lost {
    let words = (0..LOST_COUNT).map(|index| heap.header() + LOST + 8 * index);
    let mut versions: Vec<u64> =
        words.map(|at| heap.medium().load(at)).filter(|&version| version != 0).collect();
    versions.sort_unstable();
    Lost { versions }
}

fn pool_error(error: Error) -> PoolError {
    match error {
        Error::Pool(error) => error,
        other => PoolError::corrupt(0, other.to_string()),
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn new(heap: Heap<M>, record: Record, record_index: u64, lost: Lost) -> Self {
        let writer =
            Writer { record, record_index, is_changing: false, left_at: 0, sweep: Sweep::Done };
        let published = Published::new(record);
        Core {
            heap,
            published,
            moves: Moves::default(),
            lost,
            writer: PauseMutex::new(writer),
            types: PhantomData,
        }
    }

    /// Notes in the header that `version`, which may have been in flight, is lost.
    fn note_lost(&self, version: u64) -> Result<()> {
        let vacant = || {
            let mut words = (0..LOST_COUNT).map(|index| self.heap.header() + LOST + 8 * index);
            words.find(|&at| self.medium().load(at) == 0)
        };
        if vacant().is_none() {
            self.clean_all()?;
        }
        let Some(at) = vacant() else { return Ok(()) };
        self.medium().store(at, version);
        // Flush and fence: the note, before any entry has a later version.
        // Redundant fence: if the tree is checked before it changes, as the simulator does.
        self.medium().persist(at, 8);
        Ok(())
    }

    /// Cleans all nodes of lost versions, and forgets these on the medium. Takes time in proportion
    /// to the tree.
    #[cold]
    fn clean_all(&self) -> Result<()> {
        let mut writer = self.writer.lock(self.medium());
        let record = writer.record;
        let view = self.view(&writer);
        for root in [record.root, record.dismantled].into_iter().filter(|&root| root != 0) {
            let mut next = Some(Place::default());
            while let Some(place) = next {
                next = self.clean_path(view, root, &place)?;
            }
        }
        // The numbers must not be used again.
        let last = self.lost.versions.last().copied().unwrap_or(0);
        self.commit(&mut writer, Record { version: record.version.max(last), ..record })?;
        self.forget_lost();
        Ok(())
    }

    /// Whether the tree, or the one that is being dismantled, leads to `block`, whose content may
    /// be garbage. Every node on the path is flushed: an entry may be only in the caches, and if it
    /// were lost later, the path would lead elsewhere.
    fn is_linked(&self, record: Record, block: Block) -> bool {
        let view = View::new(record.version, &self.lost);
        let mut roots = [record.root, record.dismantled].into_iter().filter(|&root| root != 0);
        roots.any(|root| self.leads_to(view, root, block.offset))
    }

    fn leads_to(&self, view: View<'_>, root: u64, offset: u64) -> bool {
        let (Some(wanted), Some(mut node)) = (self.read_node(offset), self.read_node(root)) else {
            return false;
        };
        let low = self.low(offset);
        loop {
            // Flush: a node on the path; fenced by the heap before it forgets that the block was
            // suspect.
            // Redundant: unless a process was killed before and the power fails later.
            self.medium().flush(node.at, Self::shape(node).node_len);
            if node.at == offset || node.level <= wanted.level {
                return node.at == offset;
            }
            let Some(slot) = self.last(view, node, &low, Bound::UpTo) else { return false };
            match self.child(node, self.child_at(node, slot)) {
                Ok(child) => node = child,
                Err(_) => return false,
            }
        }
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Drop for Core<K, V, M, MULTI> {
    /// Notes in the header that no change is in flight, unless the medium met a fault. The heap is
    /// quiesced after this.
    fn drop(&mut self) {
        let medium = self.heap.medium();
        if !self.writer.get_mut().is_changing || medium.fault().is_some() {
            return;
        }
        let at = self.heap.header() + CHANGING;
        medium.store(at, 0);
        // Flush and fence: so that the next opening does not take a version for lost.
        // Redundant: if this is lost, the next opening notes a version as lost that never was in
        // flight.
        medium.persist(at, 8);
    }
}
