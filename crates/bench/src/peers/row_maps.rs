//! Maps in the place of the engine's hash indexes: the paper's, our map of several values, and
//! DashMap.

use std::ops::ControlFlow;

use anyhow::Result;
use dashmap::DashMap;
use remanent_engine::{Error, RowId, RowMap};
use remanent_pmem::Pool;
use remanent_structures::{ExtendibleMultiMap, HashMultiMap};
use smallvec::SmallVec;

/// A map, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// HYRISE-NV's (`HashMultiMap`).
    Paper,
    Extendible,
    Dash,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Paper, Kind::Extendible, Kind::Dash];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Paper => "HashMultiMap",
            Kind::Extendible => "ExtendibleMultiMap",
            Kind::Dash => "DashMap",
        }
    }

    /// An empty map in memory.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(crate) fn make(self) -> Result<Box<dyn RowMap>> {
        let pool = || Pool::options().create_in_memory();
        Ok(match self {
            Kind::Paper => Box::new(Paper(HashMultiMap::create(&pool()?, "rows")?)),
            Kind::Extendible => Box::new(Extendible(ExtendibleMultiMap::create(&pool()?, "rows")?)),
            Kind::Dash => Box::new(Dash(DashMap::new())),
        })
    }
}

struct Paper(HashMultiMap<u64, u64>);
struct Extendible(ExtendibleMultiMap<u64, u64>);
struct Dash(DashMap<u64, SmallVec<[RowId; 2]>>);

/// Implements [`RowMap`] for a map of ours with several values for a key.
macro_rules! row_map {
    ($map:ident) => {
        impl RowMap for $map {
            fn insert(&self, hash: u64, row: RowId) -> Result<(), Error> {
                Ok(self.0.insert(&hash, &row.get())?)
            }

            fn remove(&self, hash: u64, row: RowId) -> Result<(), Error> {
                self.0.remove_one(&hash, &row.get())?;
                Ok(())
            }

            fn find(&self, hash: u64, visit: &mut dyn FnMut(RowId)) -> Result<(), Error> {
                self.0.for_each(&hash, |row| {
                    RowId::new(*row).into_iter().for_each(&mut *visit);
                    ControlFlow::Continue(())
                })?;
                Ok(())
            }
        }
    };
}

row_map!(Paper);
row_map!(Extendible);

impl RowMap for Dash {
    fn insert(&self, hash: u64, row: RowId) -> Result<(), Error> {
        self.0.entry(hash).or_default().push(row);
        Ok(())
    }

    fn remove(&self, hash: u64, row: RowId) -> Result<(), Error> {
        if let Some(mut rows) = self.0.get_mut(&hash) {
            rows.retain(|of| *of != row);
        }
        self.0.remove_if(&hash, |_, rows| rows.is_empty());
        Ok(())
    }

    fn find(&self, hash: u64, visit: &mut dyn FnMut(RowId)) -> Result<(), Error> {
        self.0.get(&hash).iter().flat_map(|rows| rows.iter()).for_each(|row| visit(*row));
        Ok(())
    }
}
