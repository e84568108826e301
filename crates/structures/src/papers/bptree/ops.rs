//! Reading and changing entries, and removing all of them.

use std::borrow::Borrow;

use remanent_pmem::Medium;

use super::Core;
use super::layout::{Entry, Place, payload_of, with_value};
use super::node::{Bound, Node};
use super::rebuild::Edit;
use super::version::{Record, Writer};
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Result};

/// The place of a new entry in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) leaf: Node,
    /// The number of used entries before it.
    pub(super) index: usize,
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
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

    /// Tries again when the pool was full, because other lanes may hold removed blocks that are not
    /// freed yet.
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

    /// Changes the tree by `change`, as the only writer.
    ///
    /// The writer may read nodes without entering the heap, because only the writer unlinks nodes.
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

    /// Changes the entry of `key` as `decide` says, atomically.
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
                // If the medium met a fault, the read that led to the decision cannot be trusted.
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

    /// Puts an entry into a leaf at its spot, and ends the entry that it replaces. The tree has
    /// `len` entries afterwards.
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

    /// Ends the entry at `slot`, whose place is `place`.
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
            // Few entries are left, so the leaf may have to be joined.
            return self.apply(writer, place, &Edit::remove(slot), len);
        }
        self.change_leaf(writer, len, |version| self.end(slot, version))
    }

    /// Commits the version in which only one leaf changes, in place. `change` makes that change and
    /// flushes it.
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

    /// Makes an empty leaf the root, then frees the tree that it replaced.
    pub(super) fn clear(&self) -> Result<u64> {
        loop {
            // Only one tree at a time can be dismantled.
            self.dismantle_all()?;
            let cleared = self.twice_when_full(|| {
                self.write(|writer| {
                    if writer.record.dismantled != 0 {
                        return Ok(None);
                    }
                    let mut lane = self.heap.enter().prepare_to_write();
                    let before = writer.record;
                    let root = self.make_empty(&mut lane)?;
                    // Fence: the new root, before the version that leads to it.
                    lane.fence();
                    let version = before.version + 1;
                    let record = Record { root, len: 0, dismantled: before.root, version };
                    self.commit(writer, record)?;
                    writer.left_at = self.heap.epoch();
                    Ok(Some(before.len))
                })
            })?;
            if let Some(len) = cleared {
                self.dismantle_all()?;
                return Ok(len);
            }
        }
    }

    fn dismantle_all(&self) -> Result<()> {
        loop {
            let mut writer = self.writer.lock(self.medium());
            if writer.record.dismantled == 0 {
                return Ok(());
            }
            self.maintain(&mut writer)?;
            drop(writer);
            self.heap.verify()?;
            self.medium().pause();
        }
    }
}
