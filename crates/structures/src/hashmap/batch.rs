//! Changes of a map that are part of a [`Batch`](crate::Batch).

use std::borrow::Borrow;
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Medium, Pool};

use super::layout::Order;
use super::step::Edit;
use super::{Core, HashMap};
use crate::Result;
use crate::batch::intents::Intents;
use crate::batch::{Batched, Change, Entry, EntryOf, GateOf, IntentsOf, Sealed};
use crate::map::{Change as EntryChange, is_same};
use crate::shared::Step;
use crate::stored::{Key, Stored};

impl<K, V, M> HashMap<K, V, M>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// Completes what a batch that a crash interrupted was to do with this map. Keys for which the
    /// pool has no room are closed to writers.
    pub(super) fn completed(self, pool: &Pool<M>) -> Result<Self> {
        if let Some(intents) = Intents::existing(pool)? {
            let core = &self.core;
            let (root, generation) = (core.heap.owner(), core.heap.generation());
            for left in intents.complete(root, generation, |entry| core.redo(entry))? {
                let key = K::with_stored(&left.key, |key| core.gate_key(key));
                core.gate.abandon(core.medium(), key);
            }
            core.intents.get_or_init(|| intents);
        }
        Ok(self)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M, false> {
    /// What stands for a key at the gate.
    fn gate_key(&self, key: &K) -> u64 {
        Order::of_hash(self.hash(key)).0
    }

    fn redo(&self, entry: &Entry) -> Result<()> {
        K::with_stored(&entry.key, |key| match &entry.value {
            Some(value) => V::with_stored(value, |value| {
                self.edit_unread(key, |_| (EntryChange::Put(value), ()))
            }),
            None => self.edit_unread(key, |_| (EntryChange::<&V>::Remove, ())),
        })
    }
}

impl<K, V, M> Batched<K, V, M> for HashMap<K, V, M>
where
    K: Key + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    K::Owned: Send,
    V::Owned: Send,
    M: Medium,
{
    fn change(&self, key: K::Owned, value: Option<V::Owned>, _: Sealed) -> Box<dyn Change<M>> {
        Box::new(BatchedEdit { map: self.clone(), key, value })
    }
}

/// Putting an entry, or removing one.
struct BatchedEdit<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> {
    map: HashMap<K, V, M>,
    key: K::Owned,
    value: Option<V::Owned>,
}

impl<K, V, M> Change<M> for BatchedEdit<K, V, M>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    K::Owned: Send,
    V::Owned: Send,
    M: Medium,
{
    fn heap(&self) -> &Heap<M> {
        &self.map.core.heap
    }

    fn is_member(&self) -> bool {
        !self.map.core.heap.is_alone()
    }

    fn gate(&self) -> GateOf<'_> {
        let core = &self.map.core;
        GateOf { gate: &core.gate, key: core.gate_key(self.key.borrow()) }
    }

    fn keep(&self, intents: IntentsOf<M>) {
        self.map.core.intents.get_or_init(|| Arc::clone(&intents.0));
    }

    fn entry(&self) -> EntryOf {
        let heap = self.heap();
        EntryOf(Entry {
            root: heap.owner(),
            generation: heap.generation(),
            key: self.key.borrow().with_bytes(<[u8]>::to_vec),
            value: self.value.as_ref().map(|value| value.borrow().with_bytes(<[u8]>::to_vec)),
        })
    }

    fn is_present(&self) -> Result<bool> {
        let expected = self.value.as_ref().map(Borrow::borrow);
        let is_equal = |found: &V| expected.is_some_and(|expected| is_same(found, expected));
        let found = self.map.get_with(self.key.borrow(), is_equal)?;
        Ok(found.unwrap_or(expected.is_none()))
    }

    fn add_to<'s>(&'s self, step: &mut Step<'s, M>) -> Result<()> {
        let value = self.value.as_ref().map(Borrow::borrow);
        step.add(Edit::new(&self.map.core, self.key.borrow(), value))
    }
}
