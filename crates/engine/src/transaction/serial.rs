//! Committing serializable transactions: what was read is read again.
//!
//! The commit takes its stamp first, and waits until all commits with earlier stamps are done. Then
//! it looks whether what the transaction has read is still as it was. So it compares two snapshots:
//! that of the read, which the transaction holds, and that of all commits before its own. Nothing
//! can be committed between the second one and the transaction. So a serializable transaction is as
//! if all of it had happened at the moment of its commit.
//!
//! Rows that the transaction has changed or locked need no note: it has refused to change them if
//! they were changed since its snapshot, and nobody else can change them until it ends. Neither
//! does what it has changed itself count as a difference, because both snapshots are without it.
//!
//! Whoever has a stamp must not wait for who waits for it. So a commit is validated before it takes
//! locks of keys, the indexes of a table, or a lane of the heap. It begins again with a later stamp
//! if it has to wait for another transaction afterwards.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::held::Held;
use super::notes::{Note, Read};
use super::slots::{HeldSlot, Open};
use super::stamps::Commit;
use super::statement::{Part, Statement};
use super::view::View;
use crate::engine::Engine;
use crate::index::entries::Entries;
use crate::index::order::{self, Order, Span};
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::layout::KeyCells;
use crate::table::ops::{Group, key_cells};
use crate::table::version::Seen;
use crate::{Error, Result};

/// Entries of an index that are compared together.
const TOGETHER: usize = 128;

/// The stamps of two snapshots.
type Moments = [u64; 2];

impl<M: Medium> Engine<M> {
    /// The commit of the transaction that has a slot, if it is serializable and what it has read is
    /// still so. It counts as cancelled until the caller [proceeds](Commit::proceed), which writes
    /// it. `None` if the transaction is not serializable. The caller has no lock that others wait
    /// for.
    ///
    /// # Errors
    ///
    /// [`Error::NotSerializable`], with which the transaction can only be given up.
    pub(super) fn validated(
        &self,
        slot: &mut HeldSlot<'_, M>,
        held: &Held<M>,
    ) -> Result<Option<Commit<'_, M>>> {
        if slot.open().is_none_or(|open| open.notes.is_none()) {
            return Ok(None);
        }
        let mut commit = self.stamps.begin(self.medium());
        commit.cancel();
        // Commits before it do not wait for it from now on.
        held.hold_from(commit.stamp);
        let before = commit.stamp - 1;
        self.stamps.wait_until_visible(self.medium(), before);
        self.require_unchanged(slot, before)?;
        Ok(Some(commit))
    }

    /// The same for a statement that is the last one of its transaction.
    pub(super) fn validated_last(
        &self,
        statement: &mut Statement<'_, '_, M>,
    ) -> Result<Option<Commit<'_, M>>> {
        match statement.part == Part::Last {
            true => self.validated(statement.slot, &Held::nothing()),
            false => Ok(None),
        }
    }

    /// Refuses a serializable transaction if something that it has read is different in the
    /// snapshot with a stamp.
    pub(super) fn require_unchanged(&self, slot: &mut HeldSlot<'_, M>, now: u64) -> Result<()> {
        let Some(open) = slot.open_mut() else { return Ok(()) };
        let unchanged = self.require_notes(open, now);
        if let (Err(_), Some(notes)) = (&unchanged, &mut open.notes) {
            notes.is_refused = true;
        }
        // A faulty medium reads as zeros.
        self.heap.verify()?;
        unchanged
    }

    fn require_notes(&self, open: &Open<M>, now: u64) -> Result<()> {
        let Some(notes) = &open.notes else { return Ok(()) };
        if notes.lost_since.is_some_and(|since| since < now) {
            let what = "others have committed since its snapshot, and what it has read is not \
                        known any more, because the database was opened again meanwhile";
            return Err(Error::NotSerializable { table: None, what: what.to_owned() });
        }
        notes.with_all(self.medium(), |noted| {
            let is_to_do = |table: &Table<M>, since| since < now || table.is_dropped();
            for note in noted.single.iter().filter(|note| is_to_do(&note.table, note.since)) {
                self.require_same(note, now)?;
            }
            for (table, since) in noted.whole.iter().filter(|of| is_to_do(&of.0, of.1)) {
                self.require_all_same(table, [*since, now])?;
            }
            Ok(())
        })
    }

    fn require_same(&self, note: &Note<M>, now: u64) -> Result<()> {
        let Note { ref table, ref read, since } = *note;
        let moments = [since, now];
        match read {
            _ if table.is_dropped() => self.require_all_same(table, moments),
            Read::Key { index, key } => match table.live_index(*index) {
                Some(index) => self.require_key_same(table, &index, key, moments),
                None => self.require_all_same(table, moments),
            },
            Read::Range { index, span } => self.require_range_same(table, *index, span, moments),
            Read::Row(row) => match self.is_same(table, *row, moments, |_| Ok(true))? {
                true => Ok(()),
                false => Err(not_serializable(table, format!("row {}, which it", row.get()))),
            },
        }
    }

    fn require_key_same(
        &self,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        moments: Moments,
    ) -> Result<()> {
        let of = WithKeyCells { table, index };
        let changed = table.search(index, key, |row| {
            let has_key = |cells: &[Group; 2]| {
                of.has(cells, |cells| key.is_of(&table.format, &index.spec, cells))
            };
            let is_same = self.is_same_with(table, row, moments, index.needs_others, has_key)?;
            Ok((!is_same).then_some(()))
        })?;
        if changed.is_some() {
            let (name, key) = (&index.spec.name, key.tell(&table.format, &index.spec));
            let what = format!("the rows with the {name:?} key ({key}), which it");
            return Err(not_serializable(table, what));
        }
        match table.require_index(index) {
            Ok(()) => Ok(()),
            // It was dropped just now.
            Err(_) => self.require_all_same(table, moments),
        }
    }

    fn require_range_same(
        &self,
        table: &Arc<Table<M>>,
        id: u32,
        span: &Span,
        moments: Moments,
    ) -> Result<()> {
        while let Some(index) = table.live_index(id) {
            if !table.has_all_rows(&index) {
                table.read_rest()?;
            }
            self.require_entries_same(table, &index, span.clone(), moments)?;
            if index.is_in_use() {
                return Ok(());
            }
        }
        self.require_all_same(table, moments)
    }

    fn require_entries_same(
        &self,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        mut span: Span,
        moments: Moments,
    ) -> Result<()> {
        let (of, mut entries) = (WithKeyCells { table, index }, Entries::default());
        loop {
            entries.read(index, &span, Order::Ascending, TOGETHER)?;
            for entry in entries.iter() {
                let Some((key, row)) = order::key_and_row(entry) else { continue };
                let columns = &index.spec.columns;
                let has_key = |cells: &[Group; 2]| {
                    of.has(cells, |cells| order::is_of_row(key, &table.format, columns, cells))
                };
                if !self.is_same_with(table, row, moments, index.needs_others, has_key)? {
                    let what = format!("a range of index {:?}, which it", index.spec.name);
                    return Err(not_serializable(table, what));
                }
            }
            match entries.iter().last() {
                Some(last) if entries.len() == TOGETHER => {
                    span.go_on_behind(last, Order::Ascending);
                }
                _ => return Ok(()),
            }
        }
    }

    fn require_all_same(&self, table: &Arc<Table<M>>, moments: Moments) -> Result<()> {
        let mut is_same = !table.is_dropped();
        table.for_each_row(|row, _, _| {
            is_same = is_same && self.is_same(table, row, moments, |_| Ok(true))?;
            Ok(is_same)
        })?;
        match is_same {
            true => Ok(()),
            false => Err(not_serializable(table, "the table, of which it".to_owned())),
        }
    }

    fn is_same(
        &self,
        table: &Table<M>,
        row: RowId,
        moments: Moments,
        is_of: impl Fn(&[Group; 2]) -> Result<bool>,
    ) -> Result<bool> {
        self.is_same_with(table, row, moments, false, is_of)
    }

    /// Whether a row has one state at two moments, or none at either; or `is_of` takes the cells of
    /// its keys at neither. The transaction's snapshot keeps what is seen at both of them.
    fn is_same_with(
        &self,
        table: &Table<M>,
        row: RowId,
        moments: Moments,
        needs_others: bool,
        is_of: impl Fn(&[Group; 2]) -> Result<bool>,
    ) -> Result<bool> {
        let Some(place) = table.place(row) else { return Ok(true) };
        // No version is freed that the row leads to.
        let _pin = self.heap.pin();
        let [before, now] =
            moments.map(|stamp| table.seen(row, place, View { stamp, own: None, place: None }));
        let (before, now) = (before?, now?);
        let is_same = match (before, now) {
            (None, None) | (Some(Seen::InTile), Some(Seen::InTile)) => true,
            (Some(Seen::In(before)), Some(Seen::In(now))) => before.offset == now.offset,
            // It was folded just now, and what is folded is seen by all snapshots.
            (Some(Seen::In(_)), Some(Seen::InTile)) => true,
            _ => false,
        };
        if is_same {
            return Ok(true);
        }
        for seen in [before, now].into_iter().flatten() {
            if is_of(&table.key_groups(place, seen, needs_others)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The cells of rows for the keys of an index.
struct WithKeyCells<'t, M: Medium> {
    table: &'t Table<M>,
    index: &'t Index<M>,
}

impl<M: Medium> WithKeyCells<'_, M> {
    /// Whether the cells have a key, as `is_of` says.
    ///
    /// # Errors
    ///
    /// If they have not, and one of their values is damaged: they may have had it.
    fn has(&self, cells: &[Group; 2], is_of: impl Fn(KeyCells<'_>) -> bool) -> Result<bool> {
        let cells = key_cells(cells);
        let is_of = is_of(cells);
        if !is_of {
            self.table.require_values(&self.index.spec.columns, cells)?;
        }
        Ok(is_of)
    }
}

#[cold]
fn not_serializable<M: Medium>(table: &Table<M>, read: String) -> Error {
    let what = format!("others have changed {read} has read");
    Error::NotSerializable { table: Some(table.name.clone()), what }
}
