//! What programs use: maps of their own in the place of indexes.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::Database;
use crate::index::map::RowMap;

impl<M: Medium> Database<M> {
    /// Has hash indexes that come to DRAM from now on stand on maps that `make` makes, so that a
    /// program can compare its own with ours in their place; with `None`, on ours again. Those
    /// of dictionaries do so, too. `make` must not use the database.
    ///
    /// To exchange the map of an index, [place](Database::place_index) it in the pool and in DRAM
    /// again, also while it is in use. The next opening does not know `make`: it rebuilds indexes
    /// on our own maps, until they are placed once more.
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use std::sync::{Arc, Mutex};
    ///
    /// use remanent_engine::{Database, Placement, Result, RowId, RowMap, TableSpec, Type};
    /// use remanent_pmem::Pool;
    ///
    /// #[derive(Default)]
    /// struct Simple(Mutex<std::collections::HashMap<u64, HashSet<RowId>>>);
    ///
    /// impl RowMap for Simple {
    ///     fn insert(&self, hash: u64, row: RowId) -> Result<()> {
    ///         self.0.lock().unwrap().entry(hash).or_default().insert(row);
    ///         Ok(())
    ///     }
    ///     fn remove(&self, hash: u64, row: RowId) -> Result<()> {
    ///         if let Some(rows) = self.0.lock().unwrap().get_mut(&hash) {
    ///             rows.remove(&row);
    ///         }
    ///         Ok(())
    ///     }
    ///     fn find(&self, hash: u64, visit: &mut dyn FnMut(RowId)) -> Result<()> {
    ///         let maps = self.0.lock().unwrap();
    ///         maps.get(&hash).into_iter().flatten().for_each(|row| visit(*row));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let pool = Pool::options().create_in_memory()?;
    /// let database = Database::create(&pool, "bank")?;
    /// let spec = TableSpec::new("accounts").column("number", Type::U32).primary_key(["number"]);
    /// let accounts = database.create_table(&spec)?;
    /// accounts.insert(&[7.into()])?;
    /// database.set_row_maps(Some(Arc::new(|| Box::<Simple>::default())));
    /// database.place_index(&accounts, "primary", Placement::Dram)?;
    /// let get = accounts.prepare_get("primary")?;
    /// assert!(get.run(&database.snapshot(), &[7.into()], |_| Ok(()))?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_row_maps(&self, make: Option<Arc<dyn Fn() -> Box<dyn RowMap> + Send + Sync>>) {
        self.engine.dram.set_make_map(make);
    }
}
