//! Opening after a crash: statements whose records have arrived are completed, others never were.

use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::layout::{Record, SLOT_COUNT, SLOTS_LEN, content_of, record_at};
use super::slots::Slots;
use super::stamps::Stamps;
use crate::Result;
use crate::catalog::HEADER_SLOTS;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::Committed;
use crate::table::ops::RowPlace;

/// Completes the statements that were in progress. Returns the slots and the stamps.
pub(crate) fn complete<M: Medium>(
    heap: &Arc<Heap<M>>,
    tables: &[Arc<Table<M>>],
) -> Result<(Slots, Stamps)> {
    let medium = heap.medium();
    let slots = medium.load(heap.header() + HEADER_SLOTS);
    if heap.large_len(slots)?.is_none_or(|len| len < SLOTS_LEN) {
        return Err(PoolError::corrupt(slots, "the header leads to no transaction slots").into());
    }
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
    for Arrived { table, place, stamp } in arrived {
        if table.committed(place).stamp() < stamp {
            table.publish(place, Committed::present(stamp));
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
    let groups = [0, 1].map(|group| table.read_group(place, group));
    if content_of([&groups[0], &groups[1]]) != record.content {
        make_void(table, at, record);
        return Ok(None);
    }
    table.flush_groups(place);
    for index in &table.indexes {
        // The word may be lost although the record has arrived.
        let Some(key) = Key::of_row(&table.format, &index.spec.columns, &groups[0]) else {
            continue;
        };
        match index.rows.ensure(key.hash, record.row) {
            // Then there was no word, the statement has not fenced, and nobody was told of it.
            Err(error) if error.is_full() && table.committed(place).stamp() < record.stamp => {
                make_void(table, at, record);
                return Ok(None);
            }
            ensured => ensured?,
        }
    }
    Ok(Some(Arrived { table, place, stamp: record.stamp }))
}

/// Makes sure that a record whose statement did not take effect never seems to have: the row may
/// get the same cells later. The stamp remains, so that no other commit gets it.
fn make_void<M: Medium>(table: &Table<M>, at: u64, record: Record) {
    Record { is_void: true, ..record }.write(table.medium(), at);
    // Flush: fenced by the caller.
    // Redundant: but where the row gets the same cells from a statement that is refused then.
    table.medium().flush(at, LINE_LEN);
}
