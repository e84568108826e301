//! Statements that change rows.

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::layout::{Record, content_of};
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::layout::{Claim, Committed, State};
use crate::table::ops::{Group, RowPlace};
use crate::value::Value;
use crate::{Error, Result};

/// The keys of a row, in the order of the table's indexes.
type Keys = SmallVec<[Option<Key>; 4]>;

/// A row that is on its way into a table.
struct NewRow {
    groups: [Group; 2],
    keys: Keys,
}

impl<M: Medium> Engine<M> {
    /// Adds a row, and commits that. One fence.
    pub(crate) fn insert(&self, table: &Table<M>, values: &[Value<'_>]) -> Result<RowId> {
        let new = NewRow::of(table, values)?;
        let (row, place) = table.take_row()?;
        let mut slot = self.slots.hold(self.medium());
        self.claim_free(table, place, slot.index)?;
        if let Err(error) = self.place_row(table, &new, row, place) {
            table.give_row_back(row, place);
            return Err(error);
        }
        let medium = self.medium();
        table.flush_groups(place);
        let commit = self.stamps.begin(medium);
        let content = content_of([&new.groups[0], &new.groups[1]]);
        let number = slot.next_number();
        let stamp = commit.stamp;
        let (table_number, version, is_void) = (table.number, 0, false);
        let record = Record { number, stamp, table: table_number, row, version, content, is_void };
        slot.write(medium, record);
        // Fence: cells, words of the indexes and record; before anybody sees the row, and before it
        // is acknowledged. Also what the record before has published.
        medium.fence();
        self.heap.verify()?;
        slot.has_published(table.publish(place, Committed::present(stamp)));
        table.claim_row(place, Claim::NONE);
        Ok(row)
    }

    /// Claims a row that was free when it was taken. If it is not any more, nobody gets it again.
    fn claim_free(&self, table: &Table<M>, place: RowPlace, slot: u32) -> Result<()> {
        // Others may have it for a moment: who looked for a row that was here before.
        while table.try_claim(place, Claim::of(self.opens, slot), self.opens).is_err() {
            self.medium().pause();
        }
        if matches!(table.committed(place).state(), State::Free(_)) {
            return Ok(());
        }
        table.claim_row(place, Claim::NONE);
        Err(table.head_damaged(place))
    }

    /// Writes a row that is claimed and enters it in the indexes, unless one of its keys is taken.
    fn place_row(&self, table: &Table<M>, new: &NewRow, row: RowId, place: RowPlace) -> Result<()> {
        let unique = || new.keyed(table).filter(|(index, _)| index.spec.kind.is_unique());
        let hashes = unique().map(|(index, key)| (index.number, key.hash));
        let _keys = self.keys.lock(self.medium(), hashes);
        for (index, key) in unique() {
            self.require_free(table, index, key, row)?;
        }
        table.write_groups(place, [&new.groups[0], &new.groups[1]]);
        for (done, (index, key)) in new.keyed(table).enumerate() {
            if let Err(error) = index.rows.insert(key.hash, row) {
                for (index, key) in new.keyed(table).take(done) {
                    index.rows.remove(key.hash, row)?;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Refuses a key that another row has, or is getting. An earlier statement may have left a word
    /// of the key for the row itself.
    pub(super) fn require_free(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        own: RowId,
    ) -> Result<()> {
        let mut taken = None;
        for row in index.candidates(key)?.into_iter().filter(|row| *row != own) {
            if let Some(place) = table.place(row) {
                let _pin = self.heap.pin();
                taken = taken.or(self.takes(table, index, key, row, place)?);
            }
        }
        let Some(is_visible) = taken else { return Ok(()) };
        let key = key.tell(&table.format, &index.spec.columns);
        let (table, index) = (table.name.clone(), index.spec.name.clone());
        match is_visible {
            true => Err(Error::Unique { table, index, key }),
            false => Err(Error::Conflict { table, index, key }),
        }
    }

    /// Whether a row has a key, or is getting it; and if so, whether readers see that.
    fn takes(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        row: RowId,
        place: RowPlace,
    ) -> Result<Option<bool>> {
        // The claim first: whoever publishes the row takes it away last.
        let claim = table.claim(place);
        let committed = table.committed(place);
        if self.newest_has(table, index, key, row, place)? {
            // Whoever is told of a row finds it: until readers see it, it is on its way. A claimed
            // row may be losing the key.
            let is_settled = !claim.is_of(self.opens) || claim.is_collectors();
            return Ok(Some(is_settled && table.stamp_of(committed) <= self.stamps.visible()));
        }
        // An insert on its way has its cells in the tile already.
        let is_statements = claim.is_of(self.opens) && !claim.is_collectors();
        let is_new = is_statements && matches!(committed.state(), State::Free(_));
        let has_key = || key.is_of(&table.format, &index.spec.columns, &table.read_group(place, 0));
        Ok((is_new && has_key()).then_some(false))
    }
}

impl NewRow {
    fn of<M: Medium>(table: &Table<M>, values: &[Value<'_>]) -> Result<Self> {
        let format = &table.format;
        if values.len() != format.cells.len() {
            return Err(table.wrong_count(format.cells.len(), values.len()));
        }
        let mut groups: [Group; 2] =
            format.group_len.map(|len| SmallVec::from_elem(0, len as usize));
        for (column, value) in values.iter().enumerate() {
            table.set(&mut groups, column, value)?;
        }
        let key = |index: &Index<M>| Key::of_row(format, &index.spec.columns, &groups[0]);
        let keys = table.indexes.iter().map(key).collect();
        Ok(NewRow { groups, keys })
    }

    /// The indexes that the row is in, with its keys.
    fn keyed<'k, M: Medium>(
        &'k self,
        table: &'k Table<M>,
    ) -> impl Iterator<Item = (&'k Index<M>, &'k Key)> {
        table.indexes.iter().zip(&self.keys).filter_map(|(index, key)| Some((index, key.as_ref()?)))
    }
}
