//! Reading and changing entries, and the commit that every change ends with.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::Core;
use super::clear::Sweep;
use super::layout::{
    CHANGING, DISMANTLED, HEIGHT_MAX, LEN, Place, RECORD_COUNT, RECORD_LEN, ROOT, VERSION,
    payload_of, with_value,
};
use super::node::{Bound, Node, View};
use super::rebuild::{Edit, Entry};
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Error, Result};

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

/// Where an entry belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) leaf: Node,
    /// Used entries before it.
    pub(super) index: usize,
}

/// The way from the root to a leaf.
pub(super) struct Path {
    nodes: [Node; HEIGHT_MAX],
    /// Entry of each node that leads to the next.
    slots: [u64; HEIGHT_MAX],
    pub(super) len: usize,
}

impl Path {
    #[inline(always)]
    pub(super) fn node(&self, depth: usize) -> Node {
        self.nodes[depth]
    }

    /// The entry through which the node at `depth` was reached; it lies in the node above.
    #[inline(always)]
    pub(super) fn slot_of(&self, depth: usize) -> u64 {
        self.slots[depth - 1]
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

    pub(super) fn len(&self) -> Result<u64> {
        let (_, len) = self.published.load(self.medium(), &self.published.lens);
        self.heap.verify()?;
        Ok(len)
    }

    #[inline]
    pub(super) fn get_with<R>(
        &self,
        key: &K,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let place = Place::first_of(key);
        let _pin = self.heap.pin();
        let (view, root) = self.start();
        let mut node = self.node(root)?;
        while node.level > 0 {
            let at = self.read(node, || {
                let slot = self.last(view, node, &place, Bound::UpTo)?;
                Some(self.child_at(node, slot))
            });
            node = self.child(node, at.ok_or_else(|| self.no_child(node))?)?;
        }
        let found = self.read(node, || Some(self.payload(node, self.find(view, node, &place)?)));
        self.heap.verify()?;
        Ok(found.map(|payload| with_value(&payload, use_value)))
    }

    #[cold]
    pub(super) fn no_child(&self, node: Node) -> Error {
        self.damaged(node.at, "no entry of an inner node is low enough")
    }

    /// The child that `place` belongs to as the writer finds it, and the entry that leads to it.
    #[inline(always)]
    pub(super) fn child_for(
        &self,
        view: View<'_>,
        node: Node,
        place: &Place,
    ) -> Result<(u64, Node)> {
        let found = self.last(view, node, place, Bound::UpTo);
        let slot = found.ok_or_else(|| self.no_child(node))?;
        Ok((slot, self.child(node, self.child_at(node, slot))?))
    }

    /// The leaf that `place` belongs to, for the writer: it and those on the way there are in order.
    #[inline(always)]
    pub(super) fn leaf_for(&self, view: View<'_>, root: u64, place: &Place) -> Result<Node> {
        let mut node = self.node(root)?;
        loop {
            self.clean(view, node);
            if node.level == 0 {
                return Ok(node);
            }
            node = self.child_for(view, node, place)?.1;
        }
    }

    /// The way to that leaf.
    pub(super) fn descend(&self, view: View<'_>, root: u64, place: &Place) -> Result<Path> {
        let mut node = self.node(root)?;
        let mut path =
            Path { nodes: [Node::default(); HEIGHT_MAX], slots: [0; HEIGHT_MAX], len: 0 };
        loop {
            self.clean(view, node);
            path.nodes[path.len] = node;
            path.len += 1;
            if node.level == 0 {
                return Ok(path);
            }
            (path.slots[path.len - 1], node) = self.child_for(view, node, place)?;
        }
    }

    /// The tree as the writer finds it.
    #[inline(always)]
    pub(super) fn view(&self, writer: &Writer) -> View<'_> {
        View::new(writer.record.version, &self.lost)
    }

    /// Tries again when the pool was full: other lanes may hold what was removed but not freed.
    #[inline]
    pub(super) fn twice_when_full<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        match attempt() {
            Err(error) if error.is_full() => {
                self.heap.relieve();
                attempt()
            }
            done => done,
        }
    }

    /// Changes the tree by `change`, as its only writer.
    ///
    /// It need not be in the heap to look at nodes: only the writer unlinks some.
    #[inline]
    pub(super) fn write<R>(&self, change: impl FnOnce(&mut Writer) -> Result<R>) -> Result<R> {
        let mut writer = self.writer.lock(self.medium());
        self.heap.verify()?;
        let result = change(&mut writer)?;
        self.heap.verify()?;
        if writer.record.dismantled != 0 || writer.sweep.is_due() {
            self.maintain(&mut writer)?;
        }
        Ok(result)
    }

    /// Changes the entry of `key` as `decide` says, as one step.
    #[inline]
    pub(super) fn edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        let place = Place::first_of(key);
        self.twice_when_full(|| {
            self.write(|writer| {
                let view = self.view(writer);
                let leaf = self.leaf_for(view, writer.record.root, &place)?;
                let index = self.count_before(leaf, &place, Bound::UpTo);
                let found = self.find_among(view, leaf, &place, index);
                let (change, result) = match found {
                    None => decide(None),
                    Some(slot) => {
                        with_value(&self.payload(leaf, slot), |value| decide(Some(value)))
                    }
                };
                // Not even a look at what cannot be read may decide.
                self.heap.verify()?;
                match (change, found) {
                    (Change::Keep, _) | (Change::Remove, None) => {}
                    (Change::Put(value), found) => {
                        let payload = payload_of(value.borrow());
                        let entry = Entry { place, begin: view.version + 1, payload };
                        let len = writer.record.len + u64::from(found.is_none());
                        self.put(writer, Spot { leaf, index }, found, &entry, len)?;
                    }
                    (Change::Remove, Some(slot)) => self.take(writer, leaf, slot, &place)?,
                }
                Ok(result)
            })
        })
    }

    /// Puts an entry where it belongs, behind so many of its leaf, and ends the one that it replaces. The tree has
    /// `len` entries then.
    #[inline(always)]
    pub(super) fn put(
        &self,
        writer: &mut Writer,
        spot: Spot,
        replaced: Option<u64>,
        entry: &Entry,
        len: u64,
    ) -> Result<()> {
        let Spot { leaf, index } = spot;
        let used = self.used_len(leaf);
        if used == Self::shape(leaf).slots {
            return self.apply(writer, &entry.place, &Edit::put(replaced, entry), len);
        }
        self.change_leaf(writer, len, |version| {
            if let Some(slot) = replaced {
                self.end(slot, version);
            }
            self.put_at(leaf, used, index, entry);
        })
    }

    /// Ends the entry at `slot`, which has this place.
    #[inline(always)]
    pub(super) fn take(
        &self,
        writer: &mut Writer,
        leaf: Node,
        slot: u64,
        place: &Place,
    ) -> Result<()> {
        let len = writer.record.len.saturating_sub(1);
        let view = self.view(writer);
        let enough = Self::shape(leaf).slots / 4 + 2;
        if self.live(view, leaf).take(enough).count() < enough {
            // Perhaps too few are left.
            return self.apply(writer, place, &Edit::remove(slot), len);
        }
        self.change_leaf(writer, len, |version| self.end(slot, version))
    }

    /// Commits the version in which only one leaf has changed, in its place, by `change`; what that writes is flushed.
    #[inline(always)]
    fn change_leaf(&self, writer: &mut Writer, len: u64, change: impl FnOnce(u64)) -> Result<()> {
        if !writer.is_changing {
            self.announce(writer);
        }
        let version = writer.record.version + 1;
        change(version);
        // Fence: the leaf, before the version.
        self.medium().fence();
        self.commit(writer, Record { len, version, ..writer.record })
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
