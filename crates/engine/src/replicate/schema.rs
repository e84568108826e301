//! Telling of changes of the schema, in their place among commits.

use std::sync::atomic::Ordering;

use remanent_pmem::Medium;

use super::write_set::{SchemaChange, WriteSet};
use crate::catalog::Catalog;
use crate::catalog::promise::{Author, Promised};
use crate::engine::Engine;
use crate::transaction::stamps::Commit;
use crate::{Error, Result};

/// A change of the schema on its way. Whoever has it gives the lock of the schema back before it is
/// told, or dropped: then it waits for commits before it, which may need the lock.
pub(crate) struct Altering<'e, M: Medium>(Option<(Commit<'e, M>, u64)>);

impl<M: Medium> Altering<'_, M> {
    /// One that nobody is told of.
    pub(crate) fn untold() -> Self {
        Altering(None)
    }

    /// The stamp behind which commits go by the new schema; 0 if nobody is told.
    pub(crate) fn stamp(&self) -> u64 {
        self.0.as_ref().map_or(0, |(commit, _)| commit.stamp)
    }

    /// Notes whether it may be there although it has failed. Returns the error.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        // Neither is met once something leads to the new catalog.
        let is_refusal = error.is_full() || matches!(error, Error::Schema { .. });
        if let Some((commit, _)) = self.0.as_mut().filter(|_| is_refusal) {
            commit.cancel();
        }
        error
    }

    /// Tells of it, once it is durable.
    ///
    /// # Errors
    ///
    /// When the gate does not confirm it. It counts all the same.
    pub(crate) fn end(self, change: impl FnOnce() -> SchemaChange) -> Result<()> {
        let Some((commit, version)) = self.0 else { return Ok(()) };
        commit.end(|_| Ok(WriteSet::of_schema(version, change())))
    }
}

impl<M: Medium> Engine<M> {
    /// Shows the schema of a catalog that is durable. The caller has the lock of the schema.
    pub(crate) fn show_schema(&self, catalog: &Catalog) {
        self.statuses.set_author(catalog.promised.as_ref().map(Promised::id));
        // Release: before anybody can go by the new schema; partner of the load below.
        self.schema_version.store(catalog.schema_version, Ordering::Release);
    }

    /// The version of the schema that was shown last.
    #[inline]
    pub(crate) fn schema_version(&self) -> u64 {
        // Acquire: partner of the store above.
        self.schema_version.load(Ordering::Acquire)
    }

    /// Gives the change that a catalog makes its place among commits, before anybody can go by it.
    /// The caller has the lock of the schema. That of a transaction has its place once it commits.
    pub(crate) fn begin_altering(&self, author: Author, catalog: &mut Catalog) -> Altering<'_, M> {
        if author != Author::Alone {
            return Altering::untold();
        }
        catalog.schema_version += 1;
        if !self.stamps.has_gate() {
            return Altering::untold();
        }
        let commit = self.stamps.begin(self.medium());
        // So that the next opening gives later stamps.
        catalog.stamp = commit.stamp;
        Altering(Some((commit, catalog.schema_version)))
    }
}
