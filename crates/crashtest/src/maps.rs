//! Maps that are explored in the same way.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::Pool;
use remanent_structures::{ExtendibleMap, HashMap, Key, Map, Result, Stored};

/// A map on the simulated medium, under a root of its own.
pub(crate) trait TestedMap<K: Key + ?Sized, V: Stored + ?Sized>:
    Map<K, V> + 'static
{
    fn create(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self>
    where
        Self: Sized;

    fn open(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self>
    where
        Self: Sized;
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
        impl<K, V> TestedMap<K, V> for $map<K, V, Arc<Sim>>
        where
            K: Key + ?Sized + 'static,
            V: Stored + ?Sized + 'static,
        {
            fn create(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self> {
                $map::create(pool, name)
            }

            fn open(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Self> {
                $map::open(pool, name)
            }
        }
    )*};
}

tested!(HashMap, ExtendibleMap);
