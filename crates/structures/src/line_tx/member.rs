//! Objects in a heap that they share with other structures.

use std::sync::Arc;

use remanent_pmem::heap::Block;
use remanent_pmem::{Error as PoolError, Medium, Persistent};

use super::layout::{Form, INSIDE};
use super::shared::SharedTx;
use super::{Objects, require_fits};
use crate::Result;
use crate::shared::{Inspection, Member, Route, Shareable, Site};

impl<T: Persistent, M: Medium> Member<M> for Objects<T, M> {
    fn fixed_blocks(&self) -> Vec<u64> {
        vec![self.first]
    }

    fn route(&self) -> Option<Route<M>> {
        None
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        Ok(block.offset == self.first)
    }
}

/// One object, initialized with zeros.
impl<T: Persistent, M: Medium> Shareable<M> for SharedTx<T, M> {
    type Member = Objects<T, M>;

    /// The object lies in the header, in the form that its medium needs.
    fn header_len() -> u64 {
        const { require_fits::<T>() };
        let len = size_of::<T>() as u64;
        let strides = [Form::Line, Form::Copies, Form::Checked].map(|form| form.stride(len));
        INSIDE + strides.into_iter().max().unwrap_or_default()
    }

    fn create_in(site: Site<M>) -> Result<Self, PoolError> {
        Ok(SharedTx::new(Arc::new(Objects::create_at(site)?), 0))
    }

    fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
        Objects::load(site)
    }

    fn finish(objects: Arc<Self::Member>) -> Result<Self, PoolError> {
        objects.heap.verify()?;
        Ok(SharedTx::new(objects, 0))
    }

    fn inspect(&self) -> Result<Inspection> {
        self.objects.inspect()
    }
}
