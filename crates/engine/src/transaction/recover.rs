//! Opening after a crash: statements whose records have arrived are completed, others never were.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::deferred::Deferred;
use super::layout::{
    Asked, Content, Entry, OUTCOME_COUNT, Outcome, Record, SLOT_COUNT, SLOTS_LEN, Serial, State,
    TransactionId, content_of, list_at, outcome_at, record_at,
};
use super::list;
use super::notes::Notes;
use super::slots::{NextOutcome, Open, Slot, Slots};
use super::snapshots::Snapshots;
use super::stamps::Stamps;
use super::statuses::{Fate, Statuses};
use crate::catalog::HEADER_SLOTS;
use crate::catalog::promise::{Promised, Settled};
use crate::table::Table;
use crate::table::layout::{Claim, Committed, Pending, State as RowState};
use crate::table::ops::{Head, RowPlace, key_cells};
use crate::table::version::{NEWEST, Seen, Version};
use crate::{Error, Result};

/// A record, its slot, and where it lies.
#[derive(Clone)]
struct Found {
    slot: u32,
    at: u64,
    record: Record,
    /// What its statement has changed; none if its list has not arrived.
    entries: SmallVec<[Entry; 1]>,
}

impl Found {
    fn of<M: Medium>(medium: &M, slots: u64, slot: u32, at: u64, record: Record) -> Self {
        let entries = match record.content {
            Content::Nothing | Content::TakenBack(_) | Content::Schema => SmallVec::new(),
            Content::Row(entry) => SmallVec::from_elem(entry, 1),
            Content::Rows(listed) => {
                let list = list_at(slots, slot, record.number);
                list::read(medium, list, listed).unwrap_or_default().into()
            }
        };
        Found { slot, at, record, entries }
    }

    /// Whether it is known what its statement has changed.
    fn is_whole(&self) -> bool {
        match self.record.content {
            Content::Rows(listed) => self.entries.len() == listed.count as usize,
            Content::Nothing | Content::Row(_) | Content::TakenBack(_) | Content::Schema => true,
        }
    }
}

/// What opening finds of statements that were in progress, and of transactions.
pub(crate) struct Completed {
    /// The heads that rows will have; rows that keep theirs are not among them.
    heads: BTreeMap<(u32, RowId), Head>,
    /// All records, the older one of a slot first, as they will be.
    records: Vec<Found>,
    /// Those of them that are to be written: their statements did not take effect.
    void: Vec<Found>,
}

impl Completed {
    /// What the records of the slots say, before indexes are ready. The slots are there.
    pub(crate) fn find<M: Medium>(
        heap: &Heap<M>,
        slots: u64,
        tables: &HashMap<u32, Table<M>>,
        statuses: &Statuses,
    ) -> Result<Self, PoolError> {
        let medium = heap.medium();
        let mut records = records(medium, slots);
        for found in &records {
            // Flush: what a killed process has left in the caches, before blocks count as used by
            // it; fenced by the heap.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(found.at, LINE_LEN);
        }
        for (table, place, entry) in records.iter().flat_map(|found| targets(tables, found)) {
            if table.is_tile(place.tile, entry.row.get() >> table.format.shift) {
                table.check_extension(place.tile).map_err(Error::into_pool)?;
            }
        }
        list::flush_links(medium, slots);
        for found in &records {
            if let Content::Rows(listed) = found.record.content {
                list::flush(medium, list_at(slots, found.slot, found.record.number), listed);
            }
        }
        // Whatever a committed state leads to was committed: so all are believed at first.
        note_fates(medium, slots, &records, statuses);
        let mut void = Vec::new();
        for index in 0..records.len() {
            let found = &records[index];
            let is_newest = records.get(index + 1).is_none_or(|next| next.slot != found.slot);
            if !is_newest || found.is_whole() && took_effect(&records, tables, found, statuses) {
                continue;
            }
            // The slot is as it was before: what a later record takes the place of says so, too.
            let before = index.checked_sub(1).map(|index| &records[index]);
            let before = before.filter(|before| before.slot == found.slot);
            let before = before.map_or(Record::NONE, |before| before.record);
            let number = found.record.number;
            let record = Record { number, content: Content::Nothing, ..before };
            let voided = Found { record, entries: SmallVec::new(), ..*found };
            void.push(voided.clone());
            records[index] = voided;
        }
        leave_out_taken_back(&mut records);
        statuses.clear();
        note_fates(medium, slots, &records, statuses);
        let mut heads = BTreeMap::new();
        for found in &records {
            for (table, place, entry) in targets(tables, found) {
                if !is_known(table, place, found, entry, statuses)
                    && arrived(table, place, found, entry)
                {
                    let head = heads
                        .entry((entry.table, entry.row))
                        .or_insert_with(|| known_head(table, place, statuses));
                    complete_head(table, head, found, entry, statuses);
                }
            }
        }
        Ok(Completed { heads, records, void })
    }

    /// Whether the last statement of a transaction that goes on was for a table.
    pub(crate) fn has_open(&self, table: u32) -> bool {
        let mut open = self.records.iter().filter(|found| found.record.state == State::Open);
        open.any(|found| found.entries.iter().any(|entry| entry.table == table))
    }

    /// What is known of the changes of the schema that a transaction has made.
    pub(crate) fn settled(&self, promised: &Promised) -> Settled {
        let last = self.records.iter().rev().find(|found| found.slot == promised.slot);
        let last = last.map(|found| found.record).filter(|of| of.serial == promised.serial);
        let (is_kept, taken_back_to) = match last {
            Some(Record { state: State::Committed, statement, .. }) => (true, statement),
            Some(Record { state: State::Open, content: Content::TakenBack(to), .. }) => (false, to),
            Some(Record { state: State::Open, statement, .. }) => (false, statement),
            _ => (false, 0),
        };
        Settled { is_kept, taken_back_to }
    }

    /// Forgets tables that are not there any more.
    pub(crate) fn keep_tables(&mut self, is_there: impl Fn(u32) -> bool) {
        self.heads.retain(|(table, _), _| is_there(*table));
    }

    /// The head that a row of a table will have.
    pub(crate) fn head<M: Medium>(&self, table: &Table<M>, row: RowId, place: RowPlace) -> Head {
        let present = || Head { committed: table.committed(place), claim: table.claim(place) };
        self.heads.get(&(table.number, row)).copied().unwrap_or_else(present)
    }
}

/// All records, slot by slot, the older one first.
fn records<M: Medium>(medium: &M, slots: u64) -> Vec<Found> {
    let mut all = Vec::new();
    for slot in 0..SLOT_COUNT {
        let mut of_slot: SmallVec<[Found; 2]> = SmallVec::new();
        for half in [0, 1] {
            let at = record_at(slots, slot, half);
            let record = Record::read(medium, at).filter(|record| record.number % 2 == half);
            of_slot.extend(record.map(|record| Found::of(medium, slots, slot, at, record)));
        }
        of_slot.sort_unstable_by_key(|found| found.record.number);
        all.extend(of_slot);
    }
    all
}

/// Forgets what the statement before one that takes statements back has changed. All that leads to
/// it is durable, and whoever goes on with the transaction takes it back.
fn leave_out_taken_back(records: &mut [Found]) {
    for index in 1..records.len() {
        let (before, found) = (&records[index - 1], &records[index]);
        let is_taken_back = before.slot == found.slot
            && before.record.serial == found.record.serial
            && matches!(found.record.content, Content::TakenBack(_));
        if is_taken_back {
            records[index - 1].entries.clear();
        }
    }
}

/// Says what became of the transactions that records are of, and of that before them: it may have
/// rows that do not say it durably.
fn note_fates<M: Medium>(medium: &M, slots: u64, records: &[Found], statuses: &Statuses) {
    for of_slot in records.chunk_by(|one, other| one.slot == other.slot) {
        let slot = of_slot[0].slot;
        let ids = of_slot.iter().filter_map(|found| found.record.id(slot));
        let ids: SmallVec<[TransactionId; 2]> = ids.collect();
        if ids.is_empty() {
            continue;
        }
        let outcomes =
            (0..OUTCOME_COUNT).map(|of| Outcome::read(medium, outcome_at(slots, slot, of)));
        let before = outcomes
            .flatten()
            .filter(|outcome| ids.iter().all(|id| id.number > outcome.serial.number))
            .max_by_key(|outcome| outcome.serial.number);
        if let Some(Outcome { serial, committed, .. }) = before {
            let fate = committed.map_or(Fate::Aborted, Fate::Committed);
            statuses.begin(TransactionId { slot, number: serial.number }, fate);
        }
        let mut last = None;
        for Found { record, .. } in of_slot {
            let Some(id) = record.id(slot) else { continue };
            let fate = match record.state {
                State::Committed => Fate::Committed(record.stamp),
                State::Aborted => Fate::Aborted,
                State::Open | State::Alone => Fate::Open,
            };
            match last == Some(id) {
                true => statuses.set(id, fate),
                false => statuses.begin(id, fate),
            }
            last = Some(id);
        }
    }
}

/// The rows that a record is of, but those of tables that were dropped.
fn targets<'t, M: Medium>(
    tables: &'t HashMap<u32, Table<M>>,
    found: &Found,
) -> impl Iterator<Item = (&'t Table<M>, RowPlace, Entry)> {
    found.entries.iter().filter_map(|&entry| {
        let table = tables.get(&entry.table)?;
        let place = table.place(entry.row)?;
        Some((table, place, entry))
    })
}

/// Whether all that the newest record of a slot says is there.
fn took_effect<M: Medium>(
    records: &[Found],
    tables: &HashMap<u32, Table<M>>,
    found: &Found,
    statuses: &Statuses,
) -> bool {
    targets(tables, found).all(|(table, place, entry)| {
        is_known(table, place, found, entry, statuses)
            || arrived(table, place, found, entry)
            || was_changed_since(records, tables, found, entry, statuses)
    })
}

/// What became of a record's transaction.
fn fate_of(found: &Found, statuses: &Statuses) -> Fate {
    match found.record.id(found.slot) {
        Some(id) => statuses.fate(id.short()).unwrap_or(Fate::Aborted),
        None => Fate::Committed(found.record.stamp),
    }
}

/// Whether a later statement has changed a row: then the record's took effect, and folding may have
/// written other cells over its own. Not so if its transaction is open, and has the row.
fn was_changed_since<M: Medium>(
    records: &[Found],
    tables: &HashMap<u32, Table<M>>,
    found: &Found,
    entry: Entry,
    statuses: &Statuses,
) -> bool {
    let Fate::Committed(own) = fate_of(found, statuses) else { return false };
    records.iter().any(|later| {
        let is_later = matches!(fate_of(later, statuses), Fate::Committed(stamp) if stamp > own);
        is_later
            && targets(tables, later).any(|(table, place, of_later)| {
                (of_later.table, of_later.row) == (entry.table, entry.row)
                    && of_later.version != 0
                    && arrived(table, place, later, of_later)
            })
    })
}

/// Whether the head of a row says what a record says, or something newer.
fn is_known<M: Medium>(
    table: &Table<M>,
    place: RowPlace,
    found: &Found,
    entry: Entry,
    statuses: &Statuses,
) -> bool {
    let pending = table.claim(place).as_pending();
    let id = found.record.id(found.slot);
    if let (Some(pending), Some(id)) = (pending, id)
        && pending.by == id.short()
    {
        let of_version = |version: Version| {
            version.row == entry.row && version.statement >= found.record.statement
        };
        return match pending.version {
            0 => entry.version == 0 && pending.inserted_by >= found.record.statement,
            newest => newest == entry.version || table.version(newest).is_some_and(of_version),
        };
    }
    let committed = table.stamp_of(table.committed(place));
    let of_claim = pending.and_then(|pending| match statuses.fate(pending.by) {
        Some(Fate::Committed(stamp)) => Some(stamp),
        _ => None,
    });
    match fate_of(found, statuses) {
        Fate::Committed(stamp) => committed.max(of_claim.unwrap_or(0)) >= stamp,
        Fate::Open => false,
        Fate::Aborted => true,
    }
}

/// Whether all that a record's statement wrote has arrived. Flushes that.
fn arrived<M: Medium>(table: &Table<M>, place: RowPlace, found: &Found, entry: Entry) -> bool {
    if entry.version == 0 {
        let groups = [0, 1].map(|group| table.read_group(place, group));
        let is_whole = matches!(&groups, [Ok(keys), Ok(others)]
            if content_of([keys, others]) == entry.content);
        if is_whole {
            table.flush_groups(place);
        }
        return is_whole;
    }
    let Entry { row, version, content, .. } = entry;
    let identity = found.record.identity(found.slot);
    match table.arrived_version(version, row, content, identity) {
        Some(version) => {
            table.flush_version(version);
            true
        }
        None => false,
    }
}

/// The head of a row, which a record will change: if its transaction has committed, the row has
/// been settled since, and if it has not, been given free.
fn known_head<M: Medium>(table: &Table<M>, place: RowPlace, statuses: &Statuses) -> Head {
    let (committed, claim) = (table.committed(place), table.claim(place));
    let free = Head { committed, claim: Claim::NONE };
    let Some(pending) = claim.as_pending() else { return free };
    match statuses.fate(pending.by) {
        Some(Fate::Open) => Head { committed, claim },
        Some(Fate::Committed(stamp)) if stamp > table.stamp_of(committed) => {
            Head { committed: committed_by(pending.version, stamp), claim: Claim::NONE }
        }
        _ => free,
    }
}

fn committed_by(version: u64, stamp: u64) -> Committed {
    match version {
        0 => Committed::present(stamp),
        offset => Committed::version(offset),
    }
}

/// Has the head of a row say what a record says, unless it says something newer.
fn complete_head<M: Medium>(
    table: &Table<M>,
    head: &mut Head,
    found: &Found,
    entry: Entry,
    statuses: &Statuses,
) {
    match (fate_of(found, statuses), found.record.id(found.slot)) {
        (Fate::Committed(stamp), id) if table.stamp_of(head.committed) <= stamp => {
            head.committed = committed_by(entry.version, stamp);
            // An open transaction that had inserted the row has taken that back: otherwise no other
            // one would have got the row.
            let is_old = |pending: Pending| {
                pending.version == 0 && id.is_none_or(|id| id.short() != pending.by)
            };
            if head.claim.as_pending().is_some_and(is_old) {
                head.claim = Claim::NONE;
            }
        }
        (Fate::Open, Some(id)) => {
            let pending = Pending::of(id.short(), entry.version, found.record.statement);
            head.claim = Claim::pending(pending);
            if let Some(before) = committed_before(table, *head, entry.row, pending) {
                head.committed = before;
            }
        }
        _ => {}
    }
}

/// What was committed of a row when an open transaction first changed it. The head may lead to
/// versions still that were folded before, and are free.
fn committed_before<M: Medium>(
    table: &Table<M>,
    head: Head,
    row: RowId,
    pending: Pending,
) -> Option<Committed> {
    match table.pending_versions(row, pending).ok()? {
        // There was no row: a removal was folded.
        (_, Some(_)) => Some(Committed::removed(table.stamp_of(head.committed))),
        (versions, None) => versions.last().map(|oldest| oldest.previous),
    }
}

impl Completed {
    /// The last stamp that somebody may know: that of a commit, or of a snapshot, which a commit
    /// that was refused may have moved on. An open transaction must not see what comes next.
    fn last_stamp(&self) -> u64 {
        let stamps = self.records.iter().map(|found| found.record.stamp.max(found.record.snapshot));
        stamps.max().unwrap_or(0)
    }
}

/// Completes the statements that were in progress. Returns the slots and the stamps.
pub(crate) fn complete<M: Medium>(
    heap: &Arc<Heap<M>>,
    tables: &[Arc<Table<M>>],
    completed: &Completed,
    statuses: &Arc<Statuses>,
    snapshots: &Snapshots,
    schema_stamp: u64,
) -> Result<(Slots<M>, Stamps)> {
    let medium = heap.medium();
    let slots = medium.load(heap.header() + HEADER_SLOTS);
    let table_of = |number| tables.iter().find(|table| table.number == number);
    for entry in completed.records.iter().flat_map(|found| &found.entries) {
        let Some(table) = table_of(entry.table) else { continue };
        let Some(place) = table.place(entry.row) else { continue };
        if !table.is_tile(place.tile, entry.row.get() >> table.format.shift) {
            return Err(table.damaged(place.tile, "it leads to a tile, and there is none"));
        }
        // A killed process may have left it in the caches.
        table.flush_head(place);
    }
    for (&(table, row), &head) in &completed.heads {
        let table = table_of(table).expect("it was found before");
        ensure_words(table, row, head)?;
    }
    for found in &completed.void {
        // The row may get the same cells later, and the statement must not seem to have taken
        // effect then.
        found.record.write(medium, found.at);
        // Flush: fenced by the caller.
        // Redundant: but where the row gets the same cells from a statement that is refused then.
        medium.flush(found.at, LINE_LEN);
    }
    // Fence: cells, versions, and words of the indexes, before a head says that they are there: a
    // killed process may have left them in the caches.
    medium.fence();
    for (&(table, row), &head) in &completed.heads {
        let table = table_of(table).expect("it was found before");
        if let Some(place) = table.place(row) {
            publish_head(table, place, head);
        }
    }
    let volatile = (0..SLOT_COUNT).map(|slot| {
        let of_slot: SmallVec<[Record; 2]> = completed
            .records
            .iter()
            .filter(|found| found.slot == slot)
            .map(|found| found.record)
            .collect();
        let outcome = complete_outcomes(medium, slots, slot, &of_slot);
        let last = of_slot.last().copied().unwrap_or(Record::NONE);
        // That is written when the database is closed, and all rows say it.
        let is_closed = last.state == State::Alone && last.content == Content::Nothing;
        let is_orphan = !is_closed && of_slot.iter().any(|record| record.id(slot).is_some());
        statuses.set_orphan(slot, is_orphan);
        if last.id(slot).is_some() {
            statuses.set_owner(slot, last.serial, false);
            // Who has begun it in an earlier process may ask.
            statuses.name(slot, last.serial);
        }
        Slot::of(last, outcome, open_of(medium, last, snapshots))
    });
    let volatile: Vec<Slot<M>> = volatile.collect();
    // Fence: the heads, before another record takes the place of those that say the same.
    // Redundant: for this thread alone, whose next statement will fence.
    medium.fence();
    heap.verify()?;
    let stamps = Stamps::after(completed.last_stamp().max(schema_stamp));
    let opening = Serial::opening_of(heap.pool().opens());
    Ok((Slots::new(slots, statuses, opening, volatile.into_iter()), stamps))
}

/// Writes and flushes a head, in an order in which half of it is completed by the next opening.
fn publish_head<M: Medium>(table: &Table<M>, place: RowPlace, head: Head) {
    // A claim of a transaction that was given up must not come back beside the new state, because
    // what it leads to may be freed. But if another one takes its place, it goes last: it may be
    // all that leads to what was committed.
    if head.claim == Claim::NONE {
        table.give_free(place);
    }
    table.publish(place, head.committed);
    table.claim_row(place, head.claim);
    table.flush_head(place);
}

/// The transaction that is open as the last record of a slot says.
fn open_of<M: Medium>(medium: &M, last: Record, snapshots: &Snapshots) -> Option<Open<M>> {
    let is_open = last.state == State::Open;
    is_open.then(|| Open {
        serial: last.serial,
        statement: last.statement,
        limit_ms: last.limit_ms,
        snapshot: snapshots.hold_at(medium, last.snapshot),
        snapshot_before: None,
        rows: Vec::new(),
        locked: Vec::new(),
        deferred: Deferred::new(false),
        notes: last.is_serializable.then(|| Notes::lost(last.snapshot, last.has_older)),
        checks_at_commit: last.checks_at_commit,
        is_continued: true,
        back_to: match last.content {
            Content::TakenBack(to) => Some(to),
            _ => None,
        },
        // Who goes on with it says something else.
        wait_ms: 0,
        expires_ms: Some(u64::from(last.limit_ms)),
    })
}

/// Keeps the outcomes of a slot's last transactions, which a crash may have lost. Returns where the
/// next one comes.
fn complete_outcomes<M: Medium>(
    medium: &M,
    slots: u64,
    slot: u32,
    records: &[Record],
) -> NextOutcome {
    let at = |index| outcome_at(slots, slot, index);
    let mut kept: [Option<Outcome>; OUTCOME_COUNT] =
        std::array::from_fn(|index| Outcome::read(medium, at(index)));
    let newest = (0..OUTCOME_COUNT).max_by_key(|index| kept[*index].map(|of| of.serial.number));
    let newest = newest.filter(|index| kept[*index].is_some());
    let behind = |index: usize| (index + 1) % OUTCOME_COUNT;
    let first = newest.map_or(0, behind);
    let mut next = first;
    for record in records {
        let committed = match record.state {
            State::Committed => Some(record.stamp),
            State::Aborted => None,
            State::Open | State::Alone => continue,
        };
        // Somebody may know its name.
        let outcome = Outcome { serial: record.serial, committed, asked: Asked::BySomebody };
        let of_it = |of: &Option<Outcome>| of.is_some_and(|of| of.serial == outcome.serial);
        if let Some(index) = kept.iter().position(of_it) {
            // Its name may have become known after the outcome was written.
            if kept[index] != Some(outcome) {
                outcome.write(medium, at(index));
                kept[index] = Some(outcome);
            }
            continue;
        }
        // One before the newest that is kept has taken its place in the ring, or nobody asks.
        let is_newer = |of: &Outcome| of.serial.number > outcome.serial.number;
        if !kept.iter().flatten().any(is_newer) {
            outcome.write(medium, at(next));
            kept[next] = Some(outcome);
            next = behind(next);
        }
    }
    if records.iter().any(|record| record.state != State::Alone) {
        // Flush: fenced by the caller; a killed process may have left some in the caches.
        // Redundant: but where a crash comes after another one, as in
        // `engine/transactions-recovery`.
        medium.flush(at(0), 2 * LINE_LEN);
    }
    let is_spare =
        |index: &usize| next == first && kept[*index].is_some_and(|of| of.asked == Asked::ByNobody);
    NextOutcome { at: next, spare: newest.filter(is_spare) }
}

/// Puts a row into the indexes as its new states want it: the words may be lost although the record
/// has arrived.
fn ensure_words<M: Medium>(table: &Table<M>, row: RowId, head: Head) -> Result<()> {
    let Some(place) = table.place(row) else { return Ok(()) };
    let set = table.indexes.load();
    let committed = match head.committed.state() {
        RowState::Version(offset) => Some(offset),
        RowState::Present(_) => Some(0),
        RowState::Free(_) | RowState::Damaged => None,
    };
    let pending = head.claim.as_pending().map(|pending| pending.version);
    for version in committed.into_iter().chain(pending) {
        let keys = match version {
            0 => table.key_groups_in_tile(place, set.needs_others)?,
            offset => {
                let version = table.version_of(offset, row, NEWEST)?;
                if version.is_removal {
                    continue;
                }
                table.key_groups(place, Seen::In(version), set.needs_others)?
            }
        };
        // The others are rebuilt.
        for index in set.all().iter().filter(|index| index.rows.header().is_some()) {
            if let Some(key) = index.key_of(&table.format, key_cells(&keys)) {
                index.rows.ensure(&key, row)?;
            }
        }
    }
    Ok(())
}

/// Refuses a header that leads to no slots.
pub(crate) fn require_slots<M: Medium>(heap: &Heap<M>, slots: u64) -> Result<(), PoolError> {
    match heap.large_len(slots)?.is_none_or(|len| len < SLOTS_LEN) {
        true => Err(PoolError::corrupt(slots, "the header leads to no transaction slots")),
        false => Ok(()),
    }
}
