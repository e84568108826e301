//! Entries of an ordered index, copied a portion at a time.

use std::ops::ControlFlow;

use remanent_pmem::Medium;

use super::Index;
use super::order::{Order, Span};
use crate::Result;

/// Entries of an index, one after the other. Who looks at their rows does so when the index is not
/// being read any more.
#[derive(Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    /// Reads at most `most` entries of a range.
    pub(crate) fn read<M: Medium>(
        &mut self,
        index: &Index<M>,
        span: &Span,
        order: Order,
        most: usize,
    ) -> Result<()> {
        self.bytes.clear();
        self.ends.clear();
        index.scan(span, order, |entry| {
            self.bytes.extend_from_slice(entry);
            self.ends.push(self.bytes.len());
            match self.ends.len() == most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}
