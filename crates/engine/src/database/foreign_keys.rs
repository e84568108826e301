//! Adding and dropping foreign keys.

use remanent_pmem::Medium;

use super::{Database, Table};
use crate::Result;
use crate::foreign::spec::ForeignKeySpec;
use crate::schema::NewForeignKey;

impl<M: Medium> Database<M> {
    /// Adds a foreign key to a table, while others read and change it: one durable step. A crash
    /// before leaves nothing of it. What it needs of the tables and of their indexes is told by
    /// [`TableSpec::foreign_key`](crate::TableSpec::foreign_key).
    ///
    /// Looks at every row of the table. Statements are refused by the foreign key as soon as rows
    /// are looked at, even if it is refused itself afterwards. Two fences.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, NewForeignKey, TableSpec, Type, Value};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let firm = Database::create(&pool, "firm")?;
    /// let people = TableSpec::new("people")
    ///     .column("id", Type::U32)
    ///     .nullable("chief", Type::U32)
    ///     .primary_key(["id"])
    ///     .index("by_chief", ["chief"]);
    /// let people = firm.create_table(&people)?;
    /// people.insert(&[1.into(), Value::Null])?;
    /// people.insert(&[2.into(), 1.into()])?;
    ///
    /// let of_chief = NewForeignKey::new("of_chief", ["chief"], "people", ["id"]);
    /// firm.add_foreign_key(&people, &of_chief)?;
    /// assert_eq!(people.foreign_keys()[0].references, "people");
    /// assert!(matches!(people.insert(&[3.into(), 9.into()]), Err(Error::NoParent { .. })));
    /// // Together, rows may come before the rows that they refer to.
    /// let mut hiring = firm.begin()?;
    /// hiring.batch(|batch| {
    ///     people.insert_in(batch, &[3.into(), 9.into()])?;
    ///     people.insert_in(batch, &[9.into(), 1.into()])
    /// })?;
    /// hiring.commit()?;
    ///
    /// firm.drop_foreign_key(&people, "of_chief")?;
    /// people.insert(&[4.into(), 5.into()])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ForeignKey`] when the description is wrong, or an index is missing, which the error
    /// names. [`Error::NoParent`] when a row refers to a row that is not there, and
    /// [`Error::Conflict`] when a transaction that is open decides that;
    /// [`SchemaBusy`](crate::Error::SchemaBusy) while one has changed the schema. When the pool is
    /// full, one of the tables was dropped meanwhile, or a row is damaged. Nothing was changed
    /// then. When the medium met a fault.
    ///
    /// [`Error::ForeignKey`]: crate::Error::ForeignKey
    /// [`Error::NoParent`]: crate::Error::NoParent
    /// [`Error::Conflict`]: crate::Error::Conflict
    pub fn add_foreign_key(&self, table: &Table<M>, key: &NewForeignKey) -> Result<()> {
        let table = self.own(table)?;
        self.engine.add_foreign_key(table, key)
    }

    /// Drops a foreign key, while others read and change its table: one durable step. Two fences.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchForeignKey`](crate::Error::NoSuchForeignKey) when the table has none of this
    /// name; [`SchemaBusy`](crate::Error::SchemaBusy) while an open transaction has changed the
    /// schema; when not even what dropping needs is left in a full pool: nothing was changed then.
    /// When the medium met a fault.
    pub fn drop_foreign_key(&self, table: &Table<M>, name: &str) -> Result<()> {
        let table = self.own(table)?;
        self.engine.drop_foreign_key(table, name)
    }
}

impl<M: Medium> Table<M> {
    /// The foreign keys by which its rows refer to others, as they are now.
    pub fn foreign_keys(&self) -> Vec<ForeignKeySpec> {
        let (set, is_author) = (self.core.indexes.load(), self.core.statuses.is_author(self.of));
        let keys = set.foreign.to_parents.iter().filter(|key| key.presence.is_there(|| is_author));
        keys.filter_map(|key| key.describe()).collect()
    }
}
