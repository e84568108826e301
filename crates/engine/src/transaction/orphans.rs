//! Whether the rows of a table have parents: before it gets a foreign key, and when a database is
//! checked.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::distinct::Turns;
use super::foreign::Tie;
use super::ops::Taken;
use super::view::View;
use super::wait::Told;
use crate::engine::Engine;
use crate::foreign::ForeignKey;
use crate::index::{Key, Keyed};
use crate::table::Table;
use crate::table::ops::{Group, RowPlace, key_cells};
use crate::{Error, Result};

/// A row of the table that gets a foreign key.
struct Child<'t, M: Medium> {
    table: &'t Arc<Table<M>>,
    row: RowId,
    place: RowPlace,
    needs_others: bool,
}

impl<M: Medium> Engine<M> {
    /// Refuses a foreign key if a row has no parent, or may have none once a transaction has ended.
    /// All statements look for parents by now: rows that are changed from now on need not be looked
    /// at. If a transaction adds the foreign key, `view` has what that has changed.
    pub(crate) fn require_parents(
        &self,
        table: &Arc<Table<M>>,
        parent: &Arc<Table<M>>,
        of: &Arc<ForeignKey<M>>,
        view: View,
    ) -> Result<()> {
        let needs_others = {
            let set = table.indexes.load();
            of.child.index_in(table, &set)?.needs_others
        };
        table.for_each_row(|row, place, _| {
            let child = Child { table, row, place, needs_others };
            for cells in self.states_of(table, needs_others, (row, place), view)? {
                table.require_values(&of.child.columns, key_cells(&cells))?;
                let Some(wanted) = of.key_of_parent(table, parent, key_cells(&cells)) else {
                    continue;
                };
                let tie = Tie::to_parent(of, parent, wanted);
                self.require_parent_of(&child, &tie, &cells, view)?;
            }
            Ok(!table.is_dropped())
        })?;
        table.require_there(view.own)
    }

    /// Refuses a state of a row that has no parent.
    fn require_parent_of(
        &self,
        child: &Child<'_, M>,
        tie: &Tie<M>,
        cells: &[Group; 2],
        view: View,
    ) -> Result<()> {
        let Child { table, row, place, needs_others } = *child;
        let spec = &tie.of.child.spec;
        let Some(key) = Key::of_row(&table.format, spec, key_cells(cells)) else { return Ok(()) };
        let keyed = Keyed { spec, needs_others, key: &key };
        let mut turns = Turns::new(self);
        loop {
            let (holder, told) = {
                let _key = self.keys.lock(self.medium(), std::iter::once(tie.lock()));
                match self.require_tie(table, tie, view) {
                    Ok(None) => return Ok(()),
                    Ok(Some(in_the_way)) => in_the_way,
                    Err(error @ Error::NoParent { .. }) => {
                        let _pin = self.heap.pin();
                        match self.takes(table, keyed, row, place, view)? {
                            // It refers to another one by now.
                            None => return Ok(()),
                            Some(Taken::Perhaps(holder)) => {
                                let key = key.tell(&table.format, spec);
                                let (table, index) = (table.name.clone(), spec.name.clone());
                                (holder, Box::new(Told::Key { table, index, key }))
                            }
                            Some(Taken::Settled(_) | Taken::Before) => return Err(error),
                        }
                    }
                    Err(error) => return Err(error),
                }
            };
            self.wait_for_holder(holder, || *told, &mut turns)?;
        }
    }

    /// Looks for the parents of all rows of a table, as they were committed last. Says which rows
    /// have none.
    pub(crate) fn orphans_of(
        &self,
        table: &Arc<Table<M>>,
        mut found: impl FnMut(RowPlace, String),
    ) -> Result<()> {
        let set = table.indexes.load();
        for of in set.foreign.to_parents.iter().filter(|of| of.presence.is_there(|| false)) {
            let Some(parent) = of.parent.table() else { continue };
            let needs_others = of.child.index_in(table, &set)?.needs_others;
            table.for_each_row(|row, place, _| {
                let is_orphan = self.is_orphan(of, [table, &parent], (row, place), needs_others);
                match is_orphan {
                    Ok(false) => {}
                    Ok(true) => {
                        let (row, of) = (row.get(), &of.name);
                        found(place, format!("row {row} has no parent by the foreign key {of:?}"));
                    }
                    // Who looks at that row, or at that table, tells of it.
                    Err(error) if error.is_damage() => {}
                    Err(error) => return Err(error),
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    fn is_orphan(
        &self,
        of: &Arc<ForeignKey<M>>,
        [table, parent]: [&Arc<Table<M>>; 2],
        (row, place): (RowId, RowPlace),
        needs_others: bool,
    ) -> Result<bool> {
        let Some(seen) = table.seen(row, place, View::NEWEST)? else { return Ok(false) };
        let cells = table.key_groups(place, seen, needs_others)?;
        table.require_values(&of.child.columns, key_cells(&cells))?;
        let key = of.key_of_parent(table, parent, key_cells(&cells));
        let Some(key) = key else { return Ok(false) };
        let set = parent.indexes.load();
        let index = of.parent.index_in(parent, &set)?;
        let keyed = Keyed { spec: &of.parent.spec, needs_others: index.needs_others, key: &key };
        let found = parent.search(index, &key, |row| {
            let Some(place) = parent.place(row) else { return Ok(None) };
            let is_it = self.sees_key(parent, keyed, row, place, View::NEWEST)?;
            Ok(is_it.then_some(()))
        })?;
        Ok(found.is_none())
    }
}
