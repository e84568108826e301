//! What a transaction has changed: the difference of two views of its rows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::write_set::{Change, OwnedValue, WriteSet};
use crate::Result;
use crate::engine::Engine;
use crate::query::Row;
use crate::replicate::apply;
use crate::schema::PRIMARY;
use crate::table::Table;
use crate::table::ops::Group;
use crate::transaction::view::View;

/// Rows that a transaction has changed.
pub(crate) type ChangedRows<M> = Vec<(Arc<Table<M>>, RowId)>;

impl<M: Medium> Engine<M> {
    /// What was committed with a stamp, which is not visible yet: so nothing of what was before is
    /// folded.
    pub(crate) fn committed_set(&self, rows: ChangedRows<M>, stamp: u64) -> Result<WriteSet> {
        let [before, after] =
            [stamp - 1, stamp].map(|stamp| View { stamp, own: None, place: None });
        self.write_set(rows, before, after)
    }

    /// What became of rows between two views. Others change none of the rows meanwhile, or only
    /// behind both views.
    pub(crate) fn write_set(
        &self,
        rows: ChangedRows<M>,
        before: View,
        after: View,
    ) -> Result<WriteSet> {
        let rows: BTreeMap<_, _> =
            rows.into_iter().map(|(table, row)| ((table.number, row), table)).collect();
        let (mut removed, mut put) = (Vec::new(), Vec::new());
        let mut kept_keys = HashSet::new();
        for ((_, row), table) in rows {
            let is_left = after.own.is_some() && !table.is_there(after.own);
            if is_left || table.is_dropped_at(after.stamp) || apply::is_own(&table.name) {
                continue;
            }
            let states = [self.state_in(&table, row, before)?, self.state_in(&table, row, after)?];
            let name = || table.name.clone();
            match states {
                [None, None] => {}
                [Some(before), Some(after)] if before == after => {}
                [before, now] => {
                    let key_of = |groups: &Option<[Group; 2]>| {
                        let groups = groups.clone().map(|groups| Row::new(&table, row, groups));
                        groups.map(|row| key_values(&table, &row)).transpose()
                    };
                    let (lost, kept) = (key_of(&before)?, key_of(&now)?);
                    kept_keys.extend(kept.map(|key| (table.number, bits_of(&key))));
                    if let Some(key) = lost {
                        let bits = (table.number, bits_of(&key));
                        removed.push((bits, Change::Remove { table: name(), key }));
                    }
                    if let Some(groups) = now {
                        let columns = match after.own {
                            Some(_) => table.columns_for(after.own).len(),
                            None => table.columns_at(after.stamp),
                        };
                        let row = all_values(columns, &Row::new(&table, row, groups))?;
                        put.push(Change::Put { table: name(), row });
                    }
                }
            }
        }
        // A key that some row has is not gone.
        let gone = removed.into_iter().filter(|(key, _)| !kept_keys.contains(key));
        let changes = gone.map(|(_, change)| change).chain(put).collect();
        Ok(WriteSet { schema_version: 0, changes })
    }

    /// The cells of a row as they are in a view.
    fn state_in(&self, table: &Table<M>, row: RowId, view: View) -> Result<Option<[Group; 2]>> {
        let Some(place) = table.place(row) else { return Ok(None) };
        let _pin = self.heap.pin();
        let seen = table.seen(row, place, view);
        let groups = seen.and_then(|seen| {
            let Some(seen) = seen else { return Ok(None) };
            Ok(Some([table.group_of(place, seen, 0)?, table.group_of(place, seen, 1)?]))
        });
        self.heap.verify()?;
        groups
    }
}

/// The values of the first `columns` columns.
pub(super) fn all_values<M: Medium>(columns: usize, row: &Row<'_, M>) -> Result<Vec<OwnedValue>> {
    (0..columns).map(|column| row.value(column).map(OwnedValue::from)).collect()
}

/// The values of a row's primary key.
fn key_values<M: Medium>(table: &Table<M>, row: &Row<'_, M>) -> Result<Vec<OwnedValue>> {
    let index = table.index(PRIMARY, None)?;
    let columns = index.spec.columns.iter();
    columns.map(|column| row.value(*column).map(OwnedValue::from)).collect()
}

/// What tells two keys of a table apart for indexes: floating-point numbers by their bits.
fn bits_of(key: &[OwnedValue]) -> Vec<(u8, u64, Vec<u8>)> {
    let bits = |value: &OwnedValue| match value {
        OwnedValue::Null => (0, 0, Vec::new()),
        OwnedValue::Bool(value) => (1, u64::from(*value), Vec::new()),
        OwnedValue::Int(value) => (2, value.cast_unsigned(), Vec::new()),
        OwnedValue::Uint(value) => (3, *value, Vec::new()),
        OwnedValue::Float(value) => (4, value.to_bits(), Vec::new()),
        OwnedValue::Text(text) => (5, 0, text.clone().into_bytes()),
        OwnedValue::Bytes(bytes) => (6, 0, bytes.clone()),
    };
    key.iter().map(bits).collect()
}
