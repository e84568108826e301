//! How a transaction is to be.

use std::time::Duration;

use super::slots::How;
use super::waits::ms;

/// How a transaction is to be.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TransactionOptions {
    time_limit: Duration,
    wait: Duration,
    durability: Durability,
    isolation: Isolation,
    foreign_keys: ForeignKeys,
}

/// What a transaction may see of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// It sees one moment. Two transactions that each read what the other one changes may both
    /// commit (write skew).
    #[default]
    Snapshot,
    /// The same, and the transaction is as if all of it had happened at the moment of its commit.
    /// If what it has read is different by then, the commit is refused with
    /// [`Error::NotSerializable`](crate::Error::NotSerializable). A transaction that has changed
    /// nothing is as if it had happened at its snapshot.
    Serializable,
}

/// When foreign keys are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignKeys {
    /// By each statement, or by each batch as a whole. Those of a transaction that is durable
    /// [at its commit](Durability::AtCommit) are checked there in any case.
    #[default]
    AtStatement,
    /// When the transaction commits. Until then, a row may be without its parent.
    AtCommit,
}

/// When the statements of a transaction become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Each one when it returns, for one fence. The transaction outlives the process.
    #[default]
    EachStatement,
    /// All of them when the transaction has committed, for one fence in all. Until then, what it
    /// has changed is kept in memory. A crash gives the transaction up.
    AtCommit,
}

impl TransactionOptions {
    /// The usual: a time limit of one minute.
    pub const fn new() -> Self {
        TransactionOptions {
            time_limit: Duration::from_secs(60),
            wait: Duration::ZERO,
            durability: Durability::EachStatement,
            isolation: Isolation::Snapshot,
            foreign_keys: ForeignKeys::AtStatement,
        }
    }

    pub(super) fn how(&self) -> How {
        How {
            limit_ms: self.time_limit.as_millis().min(u32::MAX.into()) as u32,
            wait_ms: ms(self.wait),
            is_at_commit: self.durability == Durability::AtCommit,
            is_serializable: self.isolation == Isolation::Serializable,
            checks_at_commit: self.foreign_keys == ForeignKeys::AtCommit,
        }
    }

    /// What it may see of others.
    ///
    /// A [serializable](Isolation::Serializable) transaction notes in memory what it reads, and
    /// reads it again when it commits, as of the moment before. It notes 4,096 reads one by one. If
    /// there are more, it counts as having read all rows of their tables. So does a scan.
    /// If the database is opened again before it commits, nobody knows what it has read: it can be
    /// committed if nobody has committed since its snapshot.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, Isolation, TableSpec, TransactionOptions, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let hospital = Database::create(&pool, "hospital")?;
    /// let spec = TableSpec::new("doctors")
    ///     .column("number", Type::U32)
    ///     .column("is on call", Type::Bool)
    ///     .primary_key(["number"]);
    /// let doctors = hospital.create_table(&spec)?;
    /// doctors.insert(&[1.into(), true.into()])?;
    /// doctors.insert(&[2.into(), true.into()])?;
    ///
    /// // Each goes home if the other one is on call.
    /// let (get, update) = (doctors.prepare_get("primary")?, doctors.prepare_update("primary")?);
    /// let options = TransactionOptions::new().isolation(Isolation::Serializable);
    /// let mut first = hospital.begin_with(&options)?;
    /// let mut second = hospital.begin_with(&options)?;
    /// for (of, own, other) in [(&mut first, 1, 2), (&mut second, 2, 1)] {
    ///     assert_eq!(get.run(of, &[other.into()], |doctor| doctor.get(1))?, Some(true));
    ///     update.run_in(of, &[own.into()], |_, doctor| doctor.set(1, false))?;
    /// }
    /// first.commit()?;
    /// assert!(matches!(second.commit(), Err(Error::NotSerializable { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// When its statements become durable.
    ///
    /// ```
    /// use remanent_engine::{Database, Durability, TableSpec, TransactionOptions, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    ///
    /// let options = TransactionOptions::new().durability(Durability::AtCommit);
    /// let mut order = shop.begin_with(&options)?;
    /// for number in 0..100 {
    ///     items.insert_in(&mut order, &[number.into()])?; // no fence
    /// }
    /// order.commit()?; // one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// When foreign keys are checked.
    ///
    /// At the commit, a statement may give a row a parent that comes later, and rows may refer to
    /// each other. If something speaks against the commit, the transaction is given up; who wants
    /// to know before calls [`check_foreign_keys`](crate::Transaction::check_foreign_keys). The
    /// commit takes one fence of its own, also behind
    /// [`commit_with`](crate::Transaction::commit_with). If the database was opened again
    /// meanwhile, it looks at all rows of the database, to find those that the transaction has
    /// changed.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, ForeignKeys, TableSpec, TransactionOptions, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let company = Database::create(&pool, "company")?;
    /// let spec = TableSpec::new("employees")
    ///     .column("number", Type::U32)
    ///     .column("deputy", Type::U32)
    ///     .primary_key(["number"])
    ///     .index("by_deputy", ["deputy"])
    ///     .foreign_key("of_deputy", ["deputy"], "employees", ["number"]);
    /// let employees = company.create_table(&spec)?;
    ///
    /// // Each is the deputy of the other one.
    /// let options = TransactionOptions::new().foreign_keys(ForeignKeys::AtCommit);
    /// let mut pair = company.begin_with(&options)?;
    /// employees.insert_in(&mut pair, &[1.into(), 2.into()])?;
    /// assert!(matches!(pair.check_foreign_keys(), Err(Error::NoParent { .. })));
    /// employees.insert_in(&mut pair, &[2.into(), 1.into()])?;
    /// pair.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn foreign_keys(mut self, foreign_keys: ForeignKeys) -> Self {
        self.foreign_keys = foreign_keys;
        self
    }

    /// Gives the transaction up if nobody goes on with it for so long: after it was suspended, or
    /// after the database was opened when a process was killed. 49 days at the most.
    pub const fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }
}

impl TransactionOptions {
    /// Has statements wait for who is in their way, so long at the most: another transaction that
    /// has changed or [locked](crate::Get::lock_in) the row, or decides who has the key. Those that
    /// wait for each other are found, and one of them is refused
    /// ([`Error::Deadlock`](crate::Error::Deadlock)). Nobody is served first. A statement that
    /// waits looks again every 50 to 150 µs.
    pub const fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self::new()
    }
}
