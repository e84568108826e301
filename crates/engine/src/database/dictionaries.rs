//! Placing the indexes of dictionaries.

use remanent_pmem::Medium;

use super::{Database, Table};
use crate::Result;
use crate::schema::Placement;

impl<M: Medium> Database<M> {
    /// Moves the index of a column's [dictionary](crate::TableSpec::encoded) to the pool or to
    /// DRAM, while others read the table and change it: builds the other one from the values of the
    /// dictionary, exchanges them in one durable step, and frees the old one. Does nothing if the
    /// index lies there. After a crash before that step the old one is there, and after a crash
    /// behind it the new one.
    ///
    /// Looking a value up never waits. A statement that adds a value may wait for the lock of the
    /// dictionary for a moment, and adds a word to both indexes while the new one is built; if it
    /// finds no room for that, it is refused as in a full pool. Looks at every value of the
    /// dictionary, and at every block of the database to free an index that was in the pool. Two
    /// fences if it is moved to DRAM, and four to the pool, besides those for blocks. Waits for who
    /// makes or moves an index, or changes the schema in another way.
    ///
    /// ```
    /// use remanent_engine::{Database, Placement, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("orders")
    ///     .column("number", Type::U32)
    ///     .column("country", Type::Text { max: 60 })
    ///     .primary_key(["number"])
    ///     .encoded(["country"]);
    /// let orders = shop.create_table(&spec)?;
    /// orders.insert(&[1.into(), "Norway".into()])?;
    ///
    /// shop.place_dictionary(&orders, "country", Placement::Dram)?;
    /// assert_eq!(orders.dictionary_placement("country")?, Placement::Dram);
    /// orders.insert(&[2.into(), "Norway".into()])?; // the value that is there
    /// # assert_eq!(shop.check()?, []);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotEncoded`](crate::Error::NotEncoded) when the column has no dictionary, and
    /// [`Error::NoSuchColumn`](crate::Error::NoSuchColumn) when there is no such column. When the
    /// pool is full, or the table was dropped meanwhile. Nothing was changed then. When the medium
    /// met a fault.
    pub fn place_dictionary(
        &self,
        table: &Table<M>,
        column: &str,
        placement: Placement,
    ) -> Result<()> {
        let table = self.own(table)?;
        self.engine.place_dictionary(table, column, placement)
    }
}

impl<M: Medium> Table<M> {
    /// Where the index of a column's [dictionary](crate::TableSpec::encoded) lies now.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, Placement, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("orders")
    ///     .column("number", Type::U32)
    ///     .column("country", Type::Text { max: 60 })
    ///     .primary_key(["number"])
    ///     .encoded(["country"]);
    /// let orders = shop.create_table(&spec)?;
    /// assert_eq!(orders.dictionary_placement("country")?, Placement::Pmem);
    /// let none = orders.dictionary_placement("number");
    /// assert!(matches!(none, Err(Error::NotEncoded { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotEncoded`](crate::Error::NotEncoded) when the column has no dictionary, and
    /// [`Error::NoSuchColumn`](crate::Error::NoSuchColumn) when there is no such column.
    pub fn dictionary_placement(&self, column: &str) -> Result<Placement> {
        let (_, dictionary) = self.core.dictionary_of(column)?;
        Ok(dictionary.index().placement())
    }
}
