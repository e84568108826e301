//! Maps that are explored in the same way.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_structures::batch::{Batch, Batched};
use remanent_structures::shared::{Shareable, Step};
use remanent_structures::{ExtendibleMap, HashMap, Key, Map, Result, Stored};

use crate::keys::TestKey;

type M = Arc<Sim>;

/// A map on the simulated medium, under a root of its own.
pub(crate) trait TestedMap<K: Key + ?Sized, V: Stored + ?Sized>:
    Map<K, V> + 'static
{
    fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        Self: Sized;

    fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        Self: Sized;

    /// Removes entries in a batch, which does not look whether the map could become smaller.
    fn remove_together(&self, pool: &Pool<M>, keys: &[&K]) -> Result<()>;
}

/// A map that steps and batches change, too.
pub(crate) trait SteppedMap<K: Key + ?Sized, V: Stored + ?Sized>:
    TestedMap<K, V> + Batched<K, V, M> + Shareable<M, Member: 'static>
{
    fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>;

    fn put_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K, value: &'s V) -> Result<()>;

    fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K) -> Result<()>;
}

/// A kind of map, with the types of entries that are explored.
pub(crate) trait Kind: Clone + Send + Sync + 'static {
    type Words: SteppedMap<TestKey, u64>;
    type Texts: SteppedMap<TestKey, [u8]>;
}

/// [`HashMap`]s.
#[derive(Clone, Debug)]
pub(crate) struct HashMaps;

impl Kind for HashMaps {
    type Words = HashMap<TestKey, u64, M>;
    type Texts = HashMap<TestKey, [u8], M>;
}

/// [`ExtendibleMap`]s.
#[derive(Clone, Debug)]
pub(crate) struct ExtendibleMaps;

impl Kind for ExtendibleMaps {
    type Words = ExtendibleMap<TestKey, u64, M>;
    type Texts = ExtendibleMap<TestKey, [u8], M>;
}

/// Copies of all entries.
pub(crate) fn entries<K: Key + ?Sized, V: Stored + ?Sized>(
    map: &impl Map<K, V>,
) -> Result<Vec<(K::Owned, V::Owned)>> {
    let mut entries = Vec::new();
    map.for_each(|key, value| {
        entries.push((key.to_owned(), value.to_owned()));
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

macro_rules! tested {
    ($($map:ident),*) => {$(
        impl<K, V> TestedMap<K, V> for $map<K, V, M>
        where
            K: Key + ?Sized + 'static,
            V: Stored + ?Sized + 'static,
            K::Owned: Send,
            V::Owned: Send,
        {
            fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
                $map::create(pool, name)
            }

            fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
                $map::open(pool, name)
            }

            fn remove_together(&self, pool: &Pool<M>, keys: &[&K]) -> Result<()> {
                let mut batch = Batch::new(pool)?;
                for key in keys {
                    batch.remove(self, key)?;
                }
                batch.commit().map(drop)
            }
        }

        impl<K, V> SteppedMap<K, V> for $map<K, V, M>
        where
            K: Key + ?Sized + 'static,
            V: Stored + ?Sized + 'static,
            K::Owned: Send,
            V::Owned: Send,
        {
            fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self> {
                $map::open_or_create(pool, name)
            }

            fn put_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K, value: &'s V) -> Result<()> {
                $map::put_in(self, step, key, value)
            }

            fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K) -> Result<()> {
                $map::remove_in(self, step, key)
            }
        }
    )*};
}

tested!(HashMap, ExtendibleMap);
