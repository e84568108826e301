//! Changes of one map that are part of a batch, and their completion after a crash.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use remanent_pmem::heap::Heap;
use remanent_pmem::{Medium, Pool};

use super::gate::Gate;
use super::intents::Intents;
use super::layout::Entry;
use super::{Change, EntryOf, GateOf, IntentsOf, Sealed};
use crate::Result;
use crate::map::{Map, is_same};
use crate::shared::{Operation, Site, Step};
use crate::stored::{Key, Stored};

/// What a map has for batches.
pub(crate) trait Target<K: Key + ?Sized, V: Stored + ?Sized, M: Medium>: Map<K, V> {
    fn site(&self) -> &Site<M>;

    fn gate(&self) -> &Gate;

    /// What stands for a key at the gate.
    fn gate_key(&self, key: &K) -> u64;

    /// Keeps the pool's intents open, once there are any.
    fn intents(&self) -> &OnceLock<Arc<Intents<M>>>;

    /// Putting an entry, or removing one.
    fn edit<'s>(&'s self, key: &'s K, value: Option<&'s V>) -> impl Operation<'s, M> + 's;
}

/// Completes what a batch that a crash interrupted was to do with a map. Keys for which the pool
/// has no room are closed to writers.
pub(crate) fn completed<K, V, M, T>(map: T, pool: &Pool<M>) -> Result<T>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
    T: Target<K, V, M>,
{
    if let Some(intents) = Intents::existing(pool)? {
        let (root, generation) = (map.site().owner(), map.site().generation());
        for left in intents.complete(root, generation, |entry| redo(&map, entry))? {
            let key = K::with_stored(&left.key, |key| map.gate_key(key));
            map.gate().abandon(map.site().medium(), key);
        }
        map.intents().get_or_init(|| intents);
    }
    Ok(map)
}

fn redo<K: Key + ?Sized, V: Stored + ?Sized>(map: &impl Map<K, V>, entry: &Entry) -> Result<()> {
    K::with_stored(&entry.key, |key| match &entry.value {
        Some(value) => V::with_stored(value, |value| map.put(key, value)).map(drop),
        None => map.discard(key).map(drop),
    })
}

/// A change of one entry of `map`.
pub(crate) fn change<K, V, M, T>(
    map: T,
    key: K::Owned,
    value: Option<V::Owned>,
    _: Sealed,
) -> Box<dyn Change<M>>
where
    K: Key + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    K::Owned: Send,
    V::Owned: Send,
    M: Medium,
    T: Target<K, V, M> + 'static,
{
    Box::new(Edit::<K, V, M, T> { map, key, value, medium: PhantomData })
}

/// Putting an entry, or removing one.
struct Edit<K: Key + ?Sized, V: Stored + ?Sized, M, T> {
    map: T,
    key: K::Owned,
    value: Option<V::Owned>,
    medium: PhantomData<fn(&M)>,
}

impl<K, V, M, T> Change<M> for Edit<K, V, M, T>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    K::Owned: Send,
    V::Owned: Send,
    M: Medium,
    T: Target<K, V, M>,
{
    fn heap(&self) -> &Heap<M> {
        self.map.site()
    }

    fn is_member(&self) -> bool {
        !self.map.site().is_alone()
    }

    fn gate(&self) -> GateOf<'_> {
        GateOf { gate: self.map.gate(), key: self.map.gate_key(self.key.borrow()) }
    }

    fn keep(&self, intents: IntentsOf<M>) {
        self.map.intents().get_or_init(|| Arc::clone(&intents.0));
    }

    fn entry(&self) -> EntryOf {
        let site = self.map.site();
        EntryOf(Entry {
            root: site.owner(),
            generation: site.generation(),
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
        step.add(self.map.edit(self.key.borrow(), self.value.as_ref().map(Borrow::borrow)))
    }
}

/// Makes a map, whose clones are handles, one that batches can change. `$hash` is what stands for
/// `$key` at the gate of the map's core.
macro_rules! batched {
    ($map:ident, $bound:ident, |$core:ident, $key:ident| $hash:expr) => {
        impl<K, V, M> $crate::batch::edit::Target<K, V, M> for $map<K, V, M>
        where
            K: $crate::$bound + ?Sized,
            V: $crate::Stored + ?Sized,
            M: ::remanent_pmem::Medium,
        {
            fn site(&self) -> &$crate::shared::Site<M> {
                &self.core.heap
            }

            fn gate(&self) -> &$crate::batch::Gate {
                &self.core.gate
            }

            fn gate_key(&self, $key: &K) -> u64 {
                let $core = &*self.core;
                $hash
            }

            fn intents(
                &self,
            ) -> &::std::sync::OnceLock<::std::sync::Arc<$crate::batch::intents::Intents<M>>> {
                &self.core.intents
            }

            fn edit<'s>(
                &'s self,
                key: &'s K,
                value: Option<&'s V>,
            ) -> impl $crate::shared::Operation<'s, M> + 's {
                Edit::new(&self.core, key, value)
            }
        }

        impl<K, V, M> $crate::batch::Batched<K, V, M> for $map<K, V, M>
        where
            K: $crate::$bound + ?Sized + 'static,
            V: $crate::Stored + ?Sized + 'static,
            K::Owned: Send,
            V::Owned: Send,
            M: ::remanent_pmem::Medium,
        {
            fn change(
                &self,
                key: K::Owned,
                value: Option<V::Owned>,
                sealed: $crate::batch::Sealed,
            ) -> Box<dyn $crate::batch::Change<M>> {
                $crate::batch::edit::change::<K, V, M, _>(self.clone(), key, value, sealed)
            }
        }
    };
}
pub(crate) use batched;
