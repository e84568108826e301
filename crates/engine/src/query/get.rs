//! Reading one row by a key.

use remanent_pmem::{Mapped, Medium};

use super::Row;
use super::prepared::{Asked, Prepared};
use crate::Result;
use crate::index::{Candidates, Key};
use crate::transaction::view::View;
use crate::transaction::{LockMode, Moment, Transaction};
use crate::value::Value;

/// A prepared read of the row with a key, by a unique index.
///
/// Made by [`Table::prepare_get`](crate::Table::prepare_get), which has an example.
#[derive(Debug)]
pub struct Get<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Clone for Get<M> {
    fn clone(&self) -> Self {
        Get { prepared: self.prepared.clone() }
    }
}

impl<M: Medium> Get<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Ok(Get { prepared: Prepared::unique(table, name)? })
    }

    /// Passes the row with this key to `read`, as it was at that moment, and returns what `read`
    /// does; `None` if there was none, as for NULL. No fence; a lock only where a part of the index
    /// is used for the first time since the pool was opened. Nothing is allocated for keys of up to
    /// 32 bytes, and rows whose key columns and other columns take up to 64 bytes each.
    ///
    /// # Errors
    ///
    /// That of `read`. When the key has another number of values than the index has columns, or
    /// values that do not fit them; when the head of a row is damaged, or the medium met a fault.
    /// [`Error::IndexDropped`](crate::Error::IndexDropped) when the index is not there any more.
    /// [`Error::Ambiguous`](crate::Error::Ambiguous) when it was
    /// [made](crate::Database::create_index) after a moment at which two rows had the key.
    #[inline]
    pub fn run<R>(
        &self,
        moment: &impl Moment<M>,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let prepared = &self.prepared;
        let view = moment.view_in(&prepared.engine)?;
        let Some(key) = prepared.key(key, view.own)? else { return Ok(None) };
        if let Some(notes) = moment.notes() {
            prepared.note_key(notes, &key, view);
        }
        if view.stamp < prepared.index().unique_since() {
            return self.only_row(view, &key)?.map(|row| read(&row)).transpose();
        }
        let mut damage = None;
        let found = prepared.table.search(prepared.index(), &key, |row| {
            let found = prepared.row_with_key(row, &key, view);
            prepared.engine.heap.verify()?;
            found.or_else(|error| {
                damage.get_or_insert(error);
                Ok(None)
            })
        })?;
        prepared.engine.require_kept(view)?;
        match found {
            Some(row) => read(&row).map(Some),
            None => damage.map_or_else(|| prepared.require_index().map(|()| None), Err),
        }
    }

    /// The row with a key at a moment at which several rows may have had it.
    #[cold]
    fn only_row(&self, view: View, key: &Key) -> Result<Option<Row<'_, M>>> {
        let Prepared { engine, table, .. } = &self.prepared;
        let mut rows = Candidates::new();
        table.search(self.prepared.index(), key, |row| {
            rows.push(row);
            Ok(None::<()>)
        })?;
        self.prepared.require_index()?;
        let mut found: Option<Row<'_, M>> = None;
        for row in rows {
            let row = self.prepared.row_with_key(row, key, view);
            if row.is_err() {
                // Its versions may be gone.
                engine.require_kept(view)?;
            }
            let Some(row) = row? else { continue };
            if let Some(other) = found.as_ref().filter(|other| other.id() != row.id()) {
                let rows = [other.id(), row.id()];
                return Err(table.ambiguous(self.prepared.index(), key, rows));
            }
            found = Some(row);
        }
        // A faulty medium reads as zeros: not a row of those is shown.
        engine.heap.verify()?;
        engine.require_kept(view)?;
        Ok(found)
    }

    /// Locks the row with this key for a transaction, and passes it to `read` as the transaction
    /// sees it. Until the transaction ends, nobody else changes, removes or locks the row; reads go
    /// on as if it were not locked. Returns what `read` does; `None` if there is no row, or
    /// [`LockMode::Skip`] passes over it. No fence.
    ///
    /// Locks are kept in memory alone. A transaction that was
    /// [suspended](Transaction::suspend) keeps them, until its time is over. After a crash, and
    /// when the database was closed, they are gone: a transaction that is
    /// [resumed](crate::Database::resume) then has what its statements have changed, and locks
    /// again. A lock is no statement: [`statement`](Transaction::statement) does not count it.
    ///
    /// Who has waited for a lock still sees the moment at which its transaction began.
    /// [`refresh`](Transaction::refresh) shows what was committed under the lock meanwhile.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, LockMode, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "queue")?;
    /// let spec = TableSpec::new("jobs").column("number", Type::U32).primary_key(["number"]);
    /// let jobs = database.create_table(&spec)?;
    /// for number in 1..=3 {
    ///     jobs.insert(&[number.into()])?;
    /// }
    /// let get = jobs.prepare_get("primary")?;
    /// let (mut one, mut other) = (database.begin()?, database.begin()?);
    /// assert!(get.lock_in(&mut one, &[1.into()], LockMode::NoWait, |_| Ok(()))?.is_some());
    ///
    /// let refused = get.lock_in(&mut other, &[1.into()], LockMode::NoWait, |_| Ok(()));
    /// let Err(Error::Conflict { holder, .. }) = refused else { panic!("it is locked") };
    /// assert_eq!(holder, Some(one.token()));
    /// // The first job that nobody has.
    /// let mut taken = None;
    /// for number in 1..=3 {
    ///     taken = get.lock_in(&mut other, &[number.into()], LockMode::Skip, |row| row.get(0))?;
    ///     if taken.is_some() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(taken, Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of `read`, after which the row stays locked. When the key does not fit.
    /// [`Error::Conflict`](crate::Error::Conflict) when another statement or transaction has the
    /// row, and [`Error::Deadlock`](crate::Error::Deadlock) when that waits for this one;
    /// [`Error::Overtaken`](crate::Error::Overtaken) when the row was changed since the transaction
    /// took its snapshot; [`Error::Ambiguous`](crate::Error::Ambiguous) as for [`run`](Get::run).
    /// When the row is damaged, or the medium met a fault.
    pub fn lock_in<R>(
        &self,
        transaction: &mut Transaction<'_, M>,
        key: &[Value<'_>],
        mode: LockMode,
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let Prepared { engine, table, .. } = &self.prepared;
        let mut statement = transaction.next_statement(engine)?;
        let Some(key) = self.prepared.key(key, statement.view.own)? else { return Ok(None) };
        let locked = engine.lock(&mut statement, table, self.prepared.index(), &key, mode)?;
        locked.map(|(row, groups)| read(&Row::new(table, row, groups))).transpose()
    }
}
