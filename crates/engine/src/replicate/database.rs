//! What programs use to be told of commits.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::{Gate, WriteSet};
use crate::Result;
use crate::database::Database;
use crate::transaction::Transaction;
use crate::transaction::layout::STAMP_MAX;
use crate::transaction::view::View;

impl<M: Medium> Database<M> {
    /// Tells a gate of each commit from now on, before it is acknowledged, or nobody. Returns the
    /// stamp of the last commit that is not told. A [snapshot](Database::snapshot) that is taken
    /// afterwards has all until there: a copy that is made [by it](Database::export) afterwards,
    /// and then applies what the gate is told, follows.
    ///
    /// Waits for commits in progress, which an earlier gate is told of: so threads must not wait
    /// there for good. A commit reads its rows twice for the gate, and those of a transaction that
    /// an earlier process has begun are looked for in all tables. Without a gate, a commit pays one
    /// load. A database that is opened has none.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use remanent_engine::{Database, Gate, Result, TableSpec, Type, WriteSet};
    /// # use remanent_pmem::Pool;
    ///
    /// /// Sends write sets to a thread that has another database follow.
    /// struct Sender(Mutex<std::sync::mpsc::Sender<(u64, WriteSet)>>);
    ///
    /// impl Gate for Sender {
    ///     fn take(&self, stamp: u64, write_set: Result<WriteSet>) {
    ///         // Whoever misses a stamp copies the database again.
    ///         if let Ok(write_set) = write_set {
    ///             let _ = self.0.lock().unwrap().send((stamp, write_set));
    ///         }
    ///     }
    ///
    ///     fn wait(&self, _stamp: u64) -> bool {
    ///         true // not until the others have it
    ///     }
    /// }
    ///
    /// # let pool = || Pool::options().create_in_memory();
    /// # let (one, two) = (pool()?, pool()?);
    /// let (sender, told) = std::sync::mpsc::channel();
    /// let shop = Database::create(&one, "shop")?;
    /// shop.set_gate(Some(Arc::new(Sender(Mutex::new(sender)))));
    /// let copy = Database::create(&two, "shop")?;
    ///
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    /// items.insert(&[7.into()])?;
    /// for (stamp, write_set) in told.try_iter() {
    ///     copy.apply(stamp, &write_set)?;
    /// }
    /// let get = copy.table("items")?.prepare_get("primary")?;
    /// assert!(get.run(&copy.snapshot(), &[7.into()], |_| Ok(()))?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_gate(&self, gate: Option<Arc<dyn Gate>>) -> u64 {
        let medium = self.engine.medium();
        let schema = self.engine.schema.lock(medium);
        let told_from = self.engine.stamps.set_gate(medium, gate, schema.catalog.schema_version);
        // Commits in progress may need the lock.
        drop(schema);
        self.engine.stamps.forget_gates_before(medium, told_from);
        told_from
    }

    /// Counts changes of tables, columns, indexes and foreign keys: another number than before says
    /// that what was planned by the old schema may be planned anew. No lock.
    pub fn schema_version(&self) -> u64 {
        self.engine.schema_version()
    }
}

impl<M: Medium> Transaction<'_, M> {
    /// What it has changed so far, for others to [apply](Database::apply). It has changed nothing
    /// else if it commits now; until then, nothing of it counts.
    ///
    /// So a transaction can be agreed on before it commits: it takes its statements, which are
    /// durable, hands this out, and commits once the others have it. After a crash,
    /// [`resume`](Database::resume) goes on with it; an earlier process' changes are looked for in
    /// all tables then.
    ///
    /// That is for a transaction whose commit nothing refuses any more: its statements are durable,
    /// it has snapshot isolation, and if it checks foreign keys at its commit,
    /// [`check_foreign_keys`](Transaction::check_foreign_keys) has found nothing.
    ///
    /// # Errors
    ///
    /// When it is over, a row is damaged, or the medium met a fault.
    pub fn write_set(&self) -> Result<WriteSet> {
        let (engine, slot) = (self.engine(), self.open_slot()?);
        loop {
            let schema_version = engine.schema_version();
            let rows = engine.changed_in(slot)?;
            let after = View { stamp: STAMP_MAX, own: slot.id(), place: None };
            let changed = engine.write_set(rows, View::NEWEST, after)?;
            let promised = engine.promised_changes(slot);
            // Otherwise some rows may have a column that was added meanwhile.
            if engine.schema_version() == schema_version {
                let changed = WriteSet { schema_version, ..changed };
                return Ok(changed.with(promised));
            }
        }
    }
}
