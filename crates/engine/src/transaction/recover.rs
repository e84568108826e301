//! Opening after a crash: statements whose records have arrived are completed, others never were.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};
use remanent_structures::RowId;

use super::layout::{Record, SLOT_COUNT, SLOTS_LEN, content_of, record_at};
use super::slots::Slots;
use super::stamps::Stamps;
use crate::Result;
use crate::catalog::HEADER_SLOTS;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::{Committed, State};
use crate::table::ops::RowPlace;
use crate::table::version::Seen;

/// Completes the statements that were in progress, by the states that rows are to have. Returns the
/// slots and the stamps.
pub(crate) fn complete<M: Medium>(
    heap: &Arc<Heap<M>>,
    tables: &[Arc<Table<M>>],
    completed: &Completed,
) -> Result<(Slots, Stamps)> {
    let medium = heap.medium();
    let slots = medium.load(heap.header() + HEADER_SLOTS);
    let mut last = 0;
    let mut numbers = vec![0; SLOT_COUNT as usize];
    for (slot, at, record) in records(medium, slots) {
        last = last.max(record.stamp);
        let number = &mut numbers[slot as usize];
        *number = record.number.max(*number);
        let table = tables.iter().find(|table| table.number == record.table);
        let Some((table, place)) = table.and_then(|table| Some((table, table.place(record.row)?)))
        else {
            continue;
        };
        if record.is_void {
            continue;
        }
        if !table.is_tile(place.tile, record.row.get() >> table.format.shift) {
            return Err(table.damaged(place.tile, "it leads to a tile, and there is none"));
        }
        if !is_in_doubt(table, place, record) {
            // A killed process may have left it in the caches.
            table.flush_head(place);
        } else if arrived(table, place, record).is_none() {
            make_void(table, at, record);
        }
    }
    for (&(table, row), &(stamp, _)) in &completed.0 {
        let table = tables.iter().find(|of| of.number == table).expect("it was found before");
        ensure_words(table, row, stamp, completed)?;
    }
    // Fence: cells, versions, and words of the indexes, before a head says that they are there: a
    // killed process may have left them in the caches.
    medium.fence();
    for (&(table, row), &(_, committed)) in &completed.0 {
        let table = tables.iter().find(|of| of.number == table).expect("it was found before");
        if let Some(place) = table.place(row) {
            table.publish(place, committed);
            table.flush_head(place);
        }
    }
    // Fence: the heads, before another record takes the place of those that say the same.
    // Redundant: for this thread alone, whose next statement will fence.
    medium.fence();
    heap.verify()?;
    Ok((Slots::new(slots, numbers.into_iter()), Stamps::after(last)))
}

/// All records, with their slots and where they lie.
fn records<M: Medium>(medium: &M, slots: u64) -> impl Iterator<Item = (u32, u64, Record)> {
    (0..SLOT_COUNT).flat_map(move |slot| {
        [0, 1].into_iter().filter_map(move |half| {
            let at = record_at(slots, slot, half);
            let record = Record::read(medium, at).filter(|record| record.number % 2 == half)?;
            Some((slot, at, record))
        })
    })
}

/// Puts a row into the indexes as its new state wants it: the words may be lost although the record
/// has arrived.
fn ensure_words<M: Medium>(
    table: &Table<M>,
    row: RowId,
    stamp: u64,
    completed: &Completed,
) -> Result<()> {
    let (Some(place), Some(committed)) = (table.place(row), completed.state(table.number, row))
    else {
        return Ok(());
    };
    let keys = match committed.state() {
        State::Version(offset) => {
            let version = table.version_of(offset, row, stamp + 1)?;
            if version.is_removal {
                return Ok(());
            }
            table.group_of(place, Seen::In(version), 0)?
        }
        _ => table.read_group(place, 0),
    };
    for index in &table.indexes {
        if let Some(key) = Key::of_row(&table.format, &index.spec.columns, &keys) {
            index.rows.ensure(key.hash, row)?;
        }
    }
    Ok(())
}

/// The state that a record says, if all that its statement wrote has arrived. Flushes that.
fn arrived<M: Medium>(table: &Table<M>, place: RowPlace, record: Record) -> Option<Committed> {
    if record.version == 0 {
        let [keys, others] = [0, 1].map(|group| table.read_group(place, group));
        if content_of([&keys, &others]) != record.content {
            return None;
        }
        table.flush_groups(place);
        return Some(Committed::present(record.stamp));
    }
    let version = table.arrived_version(record.version, record.row, record.content)?;
    table.flush_version(version);
    (version.stamp == record.stamp).then(|| Committed::version(record.version))
}

/// Whether the head of a row is older than a record, which may have arrived or not.
fn is_in_doubt<M: Medium>(table: &Table<M>, place: RowPlace, record: Record) -> bool {
    table.stamp_of(table.committed(place)) < record.stamp
}

/// The states that rows will have once statements are completed, each with its stamp. Rows that
/// keep their state are not among them.
pub(crate) struct Completed(BTreeMap<(u32, RowId), (u64, Committed)>);

impl Completed {
    /// What the records of the slots say, before indexes are ready.
    pub(crate) fn find<M: Medium>(
        heap: &Heap<M>,
        slots: u64,
        tables: &HashMap<u32, Table<M>>,
    ) -> Result<Self, PoolError> {
        require_slots(heap, slots)?;
        let medium = heap.medium();
        let mut states: BTreeMap<(u32, RowId), (u64, Committed)> = BTreeMap::new();
        for (_, at, record) in records(medium, slots) {
            // Flush: what a killed process has left in the caches, before blocks count as used by
            // it; fenced by the heap.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(at, LINE_LEN);
            let Some(table) = tables.get(&record.table).filter(|_| !record.is_void) else {
                continue;
            };
            let Some(place) = table.place(record.row) else { continue };
            if !is_in_doubt(table, place, record) {
                continue;
            }
            if let Some(committed) = arrived(table, place, record) {
                let newest = states.entry((record.table, record.row)).or_insert((0, committed));
                if record.stamp >= newest.0 {
                    *newest = (record.stamp, committed);
                }
            }
        }
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
