//! Opening after a crash: statements whose records have arrived are completed, others never were.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};
use remanent_structures::RowId;

use super::layout::{Record, SLOT_COUNT, SLOTS_LEN, STAMP_MAX, content_of, record_at};
use super::slots::Slots;
use super::stamps::Stamps;
use crate::Result;
use crate::catalog::HEADER_SLOTS;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::Committed;
use crate::table::ops::{Group, RowPlace};
use crate::table::version::Seen;

/// Completes the statements that were in progress. Returns the slots and the stamps.
pub(crate) fn complete<M: Medium>(
    heap: &Arc<Heap<M>>,
    tables: &[Arc<Table<M>>],
) -> Result<(Slots, Stamps)> {
    let medium = heap.medium();
    let slots = medium.load(heap.header() + HEADER_SLOTS);
    require_slots(heap, slots)?;
    let mut last = 0;
    let mut numbers = Vec::new();
    let mut arrived = Vec::new();
    for slot in 0..SLOT_COUNT {
        let mut number = 0;
        for half in 0..2 {
            let at = record_at(slots, slot, half);
            if medium.load(at) == 0 {
                continue;
            }
            // Flush: a record that a killed process has left in the caches; fenced below.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(at, LINE_LEN);
            let record = Record::read(medium, at).filter(|record| record.number % 2 == half);
            let Some(record) = record else { continue };
            last = last.max(record.stamp);
            number = number.max(record.number);
            if !record.is_void {
                arrived.extend(arrived_row(tables, at, record)?);
            }
        }
        numbers.push(number);
    }
    // Fence: cells and words of the indexes, before a head says that they are there: a killed
    // process may have left them in the caches.
    medium.fence();
    // The newest first: of several for a row, no head leads to a version that is free by then.
    arrived.sort_by_key(|row| Reverse(row.stamp));
    for Arrived { table, place, stamp, committed } in arrived {
        if table.stamp_of(table.committed(place)) < stamp {
            table.publish(place, committed);
        }
        table.flush_head(place);
    }
    // Fence: the heads, before another record takes the place of those that say the same.
    // Redundant: for this thread alone, whose next statement will fence.
    medium.fence();
    heap.verify()?;
    Ok((Slots::new(slots, numbers.into_iter()), Stamps::after(last)))
}

/// A row whose statement took effect.
struct Arrived<'t, M: Medium> {
    table: &'t Table<M>,
    place: RowPlace,
    stamp: u64,
    committed: Committed,
}

/// The row of a record, if all that the statement wrote has arrived. The row is in the indexes,
/// then.
fn arrived_row<'t, M: Medium>(
    tables: &'t [Arc<Table<M>>],
    at: u64,
    record: Record,
) -> Result<Option<Arrived<'t, M>>> {
    let Some(table) = tables.iter().find(|table| table.number == record.table) else {
        return Ok(None);
    };
    let Some(place) = table.place(record.row) else { return Ok(None) };
    if !table.is_tile(place.tile, record.row.get() >> table.format.shift) {
        return Err(table.damaged(place.tile, "it leads to a tile, and there is none"));
    }
    let arrived = match record.version {
        0 => arrived_cells(table, place, record),
        offset => arrived_version(table, place, record, offset)?,
    };
    let Some((committed, keys)) = arrived else {
        make_void(table, at, record);
        return Ok(None);
    };
    for index in &table.indexes {
        // The word may be lost although the record has arrived.
        let Some(key) = Key::of_row(&table.format, &index.spec.columns, &keys) else {
            continue;
        };
        match index.rows.ensure(key.hash, record.row) {
            // Then there was no word, the statement has not fenced, and nobody was told of it.
            Err(error) if error.is_full() && is_in_doubt(table, place, record) => {
                make_void(table, at, record);
                return Ok(Some(undone(table, place, record)));
            }
            ensured => ensured?,
        }
    }
    Ok(Some(Arrived { table, place, stamp: record.stamp, committed }))
}

/// The state of a row before a statement that cannot be completed. Its versions count as free if
/// the statement has made them needless.
fn undone<M: Medium>(table: &Table<M>, place: RowPlace, record: Record) -> Arrived<'_, M> {
    let newest = table.committed(place);
    let before = match table.version(record.version).filter(|_| record.version != 0) {
        Some(version) => {
            // Nothing leads to it.
            let block = Block { offset: record.version, len: 0 };
            table.heap.enter().prepare_to_write().give_back(block);
            version.previous
        }
        None => Committed::removed(table.stamp_of(newest)),
    };
    Arrived { table, place, stamp: table.stamp_of(newest) + 1, committed: before }
}

fn is_in_doubt<M: Medium>(table: &Table<M>, place: RowPlace, record: Record) -> bool {
    table.stamp_of(table.committed(place)) < record.stamp
}

/// The state that an insert has made, and the first group of its cells, if these have arrived.
fn arrived_cells<M: Medium>(
    table: &Table<M>,
    place: RowPlace,
    record: Record,
) -> Option<(Committed, Group)> {
    let [keys, others] = [0, 1].map(|group| table.read_group(place, group));
    if content_of([&keys, &others]) != record.content {
        return None;
    }
    table.flush_groups(place);
    Some((Committed::present(record.stamp), keys))
}

/// The state that a change has made, and the first group of cells after it, if its version has
/// arrived.
fn arrived_version<M: Medium>(
    table: &Table<M>,
    place: RowPlace,
    record: Record,
    offset: u64,
) -> Result<Option<(Committed, Group)>> {
    // Once the head is as new, the version may be folded and freed, and its block have another one.
    if !is_in_doubt(table, place, record) {
        let newest = table.committed(place);
        let keys = match table.seen(record.row, place, STAMP_MAX)? {
            Some(seen) => table.group_of(place, seen, 0)?,
            None => return Ok(Some((newest, table.read_group(place, 0)))),
        };
        return Ok(Some((newest, keys)));
    }
    let found = table.arrived_version(offset, record.row, record.content);
    let Some(version) = found.filter(|version| version.stamp == record.stamp) else {
        return Ok(None);
    };
    table.flush_version(version);
    let keys = table.group_of(place, Seen::In(version), 0)?;
    Ok(Some((Committed::version(offset), keys)))
}

/// The states that rows will have once statements are completed, each with its stamp. Rows that
/// keep their state are not among them.
pub(crate) struct Completed(HashMap<(u32, RowId), (u64, Committed)>);

impl Completed {
    /// What the records of the slots say, before indexes are ready.
    pub(crate) fn find<M: Medium>(
        heap: &Heap<M>,
        slots: u64,
        tables: &HashMap<u32, Table<M>>,
    ) -> Result<Self, PoolError> {
        require_slots(heap, slots)?;
        let mut states: HashMap<(u32, RowId), (u64, Committed)> = HashMap::new();
        let records = (0..SLOT_COUNT)
            .flat_map(|slot| [0, 1].map(|half| record_at(slots, slot, half)))
            .filter_map(|at| Record::read(heap.medium(), at))
            .filter(|record| !record.is_void);
        for record in records {
            let Some(table) = tables.get(&record.table) else { continue };
            let Some(place) = table.place(record.row) else { continue };
            if !is_in_doubt(table, place, record) {
                continue;
            }
            let arrived = match record.version {
                0 => arrived_cells(table, place, record).map(|(committed, _)| committed),
                offset => table
                    .arrived_version(offset, record.row, record.content)
                    .filter(|version| version.stamp == record.stamp)
                    .map(|_| Committed::version(offset)),
            };
            let newest = states.entry((record.table, record.row)).or_insert((0, Committed(0)));
            if let Some(committed) = arrived
                && record.stamp > newest.0
            {
                *newest = (record.stamp, committed);
            }
        }
        states.retain(|_, (stamp, _)| *stamp != 0);
        Ok(Completed(states))
    }

    /// The state of a row of a table, if it will have another one.
    pub(crate) fn state(&self, table: u32, row: RowId) -> Option<Committed> {
        self.0.get(&(table, row)).map(|(_, committed)| *committed)
    }
}

fn require_slots<M: Medium>(heap: &Heap<M>, slots: u64) -> Result<(), PoolError> {
    match heap.large_len(slots)?.is_none_or(|len| len < SLOTS_LEN) {
        true => Err(PoolError::corrupt(slots, "the header leads to no transaction slots")),
        false => Ok(()),
    }
}

/// Makes sure that a record whose statement did not take effect never seems to have: the row may
/// get the same cells later. The stamp remains, so that no other commit gets it.
fn make_void<M: Medium>(table: &Table<M>, at: u64, record: Record) {
    Record { is_void: true, ..record }.write(table.medium(), at);
    // Flush: fenced by the caller.
    // Redundant: but where the row gets the same cells from a statement that is refused then.
    table.medium().flush(at, LINE_LEN);
}
