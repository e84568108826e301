//! A B+-tree with several entries for a key.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Mapped, Medium, Pool};

use super::Core;
use super::layout::{Entry, Layout, Place, payload_of, with_value};
use super::node::Bound;
use super::ops::Spot;
use super::scan::{Copies, Range};
use crate::key_range::KeyRange;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// A B+-tree with any number of entries for a key, as the paper's dictionaries and indexes need.
///
/// As durable as [`BpTree`](super::BpTree), from which it differs only in that a key may have
/// several entries. Entries of one key are returned oldest first. Clones are handles to one tree.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::papers::BpMultiTree;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let rows: BpMultiTree<u32, u64> = BpMultiTree::create(&pool, "rows by year")?;
/// rows.insert(&2015, &1)?;
/// rows.insert(&2015, &7)?;
/// assert_eq!(rows.get_all(&2015)?, [1, 7]);
/// assert!(rows.remove_one(&2015, &1)?);
/// assert_eq!(rows.get_all(&2015)?, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BpMultiTree<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    core: Arc<Core<K, V, M, true>>,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BpMultiTree<K, V, M> {
    /// Creates an empty tree under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let () = Layout::<K, V, true>::FITS;
        Ok(BpMultiTree { core: pool.create_root(name)? })
    }

    /// Opens an existing tree, in any state that a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let () = Layout::<K, V, true>::FITS;
        Ok(BpMultiTree { core: pool.open_root(name)? })
    }

    /// Opens a tree, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](BpMultiTree::open) and [`create`](BpMultiTree::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        match Self::open(pool, name) {
            Err(Error::Pool(remanent_pmem::Error::NoSuchRoot { .. })) => Self::create(pool, name),
            opened => opened,
        }
    }

    /// Adds an entry, even if the key has others. See [`BpTree`](super::BpTree) for its fences.
    ///
    /// # Errors
    ///
    /// When the pool is full: nothing was changed.
    pub fn insert(&self, key: &K, value: &V) -> Result<()> {
        self.core.add(key, value)
    }

    /// Passes the values of `key` to `visit`, oldest first, until it breaks. No fence.
    ///
    /// All are seen as they are at one moment. `visit` should be quick, and must not change the
    /// tree.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn for_each(&self, key: &K, mut visit: impl FnMut(&V) -> ControlFlow<()>) -> Result<()> {
        self.core.ascend(&Range::of_key(key), |_, value| visit(value))
    }

    /// Copies of the values of `key`, oldest first. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn get_all(&self, key: &K) -> Result<Vec<V::Owned>> {
        let mut values = Vec::new();
        self.for_each(key, |value| {
            values.push(value.to_owned());
            ControlFlow::Continue(())
        })?;
        Ok(values)
    }

    /// Removes the oldest entry with this key and value. Returns whether there was one. See
    /// [`BpTree`](super::BpTree) for its fences.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn remove_one(&self, key: &K, value: &V) -> Result<bool>
    where
        V: PartialEq,
    {
        self.core.remove_where(key, |found| found == value)
    }

    /// Removes the entries of `key` one by one, and returns how many there were. See
    /// [`BpTree`](super::BpTree) for their fences.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn remove_all(&self, key: &K) -> Result<u64> {
        let mut removed = 0;
        while self.core.remove_where(key, |_| true)? {
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes all entries atomically, and returns how many there were: a crash, or another thread,
    /// sees all of them or none.
    ///
    /// One version commits the removal. The space is then freed in portions, while other threads go
    /// on.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a full pool has no room even for an empty node.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn len(&self) -> Result<u64> {
        self.core.len()
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits the entries of a range in ascending order, those of one key oldest first, until
    /// `visit` breaks.
    ///
    /// All are seen as they are at one moment. `visit` should be quick, and must not change the
    /// tree.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn ascend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.ascend(&Range::of(&range), visit)
    }

    /// As [`ascend`](BpMultiTree::ascend), in descending order, those of one key newest first.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn descend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        self.core.descend_range(&Range::of(&range), visit)
    }

    /// Proves that the tree is consistent; see [`Map::check`](crate::Map::check).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Clone for BpMultiTree<K, V, M> {
    fn clone(&self) -> Self {
        BpMultiTree { core: Arc::clone(&self.core) }
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for BpMultiTree<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpMultiTree")
            .field("type", &format_args!("{}, {}", K::type_name(), V::type_name()))
            .finish_non_exhaustive()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M, true> {
    fn add(&self, key: &K, value: &V) -> Result<()> {
        let payload = payload_of(value);
        let first = Place::first_of(key);
        self.twice_when_full(|| {
            self.write(|writer| {
                let view = self.view(writer);
                // Behind the key's other entries, since the version is the entry's number.
                let last = first.numbered(u64::MAX);
                let leaf = self.leaf_for(view, writer.record.root, &last)?;
                let index = self.count_before(leaf, &last, Bound::UpTo);
                let begin = view.version + 1;
                let entry = Entry { place: first.numbered(begin), begin, payload };
                let len = writer.record.len + 1;
                self.put(writer, Spot { leaf, index }, None, &entry, len)
            })
        })
    }

    fn remove_where(&self, key: &K, accept: impl Fn(&V) -> bool) -> Result<bool> {
        self.write(|writer| {
            let view = self.view(writer);
            let mut place = None;
            let root = self.node(writer.record.root)?;
            let _ = self.ascend_node(
                view,
                root,
                &Range::of_key(key),
                &mut Copies::new(),
                &mut |entry| {
                    if !with_value(entry.value, &accept) {
                        return ControlFlow::Continue(());
                    }
                    place = Some(Place::first_of(key).numbered(entry.number));
                    ControlFlow::Break(())
                },
            )?;
            self.heap.verify()?;
            let Some(place) = place else { return Ok(false) };
            let leaf = self.leaf_for(view, writer.record.root, &place)?;
            let Some(slot) = self.find(view, leaf, &place) else {
                return Err(self.damaged(leaf.at, "an entry lies in the wrong leaf"));
            };
            self.take(writer, leaf, slot, &place)?;
            Ok(true)
        })
    }
}
