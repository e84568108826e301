//! A vector and its heap, which is the vector's own under a root, or shared with other structures.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_pmem::heap::{Block, Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium, Persistent};

use super::core::Core;
use super::layout::HEADER_LEN;
use super::{AppendVector, Vector};
use crate::segments::Segments;
use crate::shared::{Inspection, Member, Route, Shareable, Site};
use crate::{Error, Result};

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 1;

/// The vector of a root. `CHANGES` says whether its elements can change.
pub(super) struct Root<T: Persistent, M: Medium, const CHANGES: bool> {
    pub(super) core: Core<T>,
    pub(super) heap: Site<M>,
}

impl<T: Persistent, M: Medium, const CHANGES: bool> Root<T, M, CHANGES> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Inspection { mut violations, blocks } = self.inspect()?;
        violations.extend(self.heap.check(blocks.into_iter().flatten())?);
        self.heap.verify()?;
        Ok(violations)
    }

    fn inspect(&self) -> Result<Inspection> {
        let violations = self.core.check(&self.heap)?;
        let blocks = self.core.blocks(self.heap.medium());
        Ok(Inspection { violations, blocks: Some(blocks) })
    }

    fn create_at(site: Site<M>) -> Result<Self, PoolError> {
        let core = Core::create(&site, site.header()).map_err(Error::into_pool)?;
        Ok(Root { core, heap: site })
    }

    fn open_at(site: Site<M>, runs: Segments) -> Result<Self, PoolError> {
        let core = Core::open(&site, site.header(), runs).map_err(Error::into_pool)?;
        Ok(Root { core, heap: site })
    }
}

/// The runs of a vector whose heap has not recovered yet.
#[doc(hidden)]
pub struct Runs<T, M: Medium> {
    runs: Segments,
    site: Site<M>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Persistent, M: Medium> Runs<T, M> {
    fn find(site: Site<M>) -> Result<Self, PoolError> {
        let runs = Core::<T>::open_runs(&site, site.header()).map_err(Error::into_pool)?;
        Ok(Runs { runs, site, elements: PhantomData })
    }
}

impl<T: Persistent, M: Medium> Member<M> for Runs<T, M> {
    fn fixed_blocks(&self) -> Vec<u64> {
        self.runs.blocks(self.site.medium())
    }

    fn route(&self) -> Option<Route<M>> {
        None
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        Ok(Core::<T>::is_linked(&self.runs, self.site.medium(), block))
    }
}

macro_rules! shareable {
    ($vector:ident) => {
        impl<T: Persistent, M: Medium> Shareable<M> for $vector<T, M> {
            type Member = Runs<T, M>;

            fn header_len() -> u64 {
                HEADER_LEN
            }

            fn create_in(site: Site<M>) -> Result<Self, PoolError> {
                Ok($vector { root: Arc::new(Root::create_at(site)?) })
            }

            fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
                Runs::find(site)
            }

            fn finish(found: Arc<Self::Member>) -> Result<Self, PoolError> {
                // Recovery shared the runs until now, so they are read again.
                let Runs { runs, site, .. } = Runs::<T, M>::find(found.site.clone())?;
                Ok($vector { root: Arc::new(Root::open_at(site, runs)?) })
            }

            fn inspect(&self) -> Result<Inspection> {
                self.root.inspect()
            }
        }
    };
}

shareable!(Vector);
shareable!(AppendVector);

impl<T: Persistent, M: Medium, const CHANGES: bool> RootObject<M> for Root<T, M, CHANGES> {
    fn root_type() -> RootType {
        let kind = if CHANGES { "Vector" } else { "AppendVector" };
        RootType { name: format!("{kind}<{}>", T::TYPE_NAME), layout: T::LAYOUT ^ LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap))
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let Runs { runs, site, .. } = Runs::<T, M>::find(Site::alone(heap))?;
        site.recover(|block: Block| Core::<T>::is_linked(&runs, site.medium(), block))?;
        Self::open_at(site, runs)
    }
}

impl<T: Persistent, M: Medium, const CHANGES: bool> Drop for Root<T, M, CHANGES> {
    fn drop(&mut self) {
        // Acknowledged elements are durable without the seal; without it, opening compares
        // checksums.
        let _ = self.core.seal(&self.heap);
    }
}
