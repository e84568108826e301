//! Whether the rows of a table have different keys in an index that is to be unique.

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::statuses::Fate;
use super::view::View;
use super::wait::{Holder, Refused, Told, Wanted};
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::ops::{Group, RowPlace, key_cells};
use crate::{Error, Result};

/// How often somebody is looked at again who decides whether a row has a key, at least: statements
/// are done in a moment.
const TURNS: u32 = 100;
/// How long a statement is waited for, or a transaction that is ending, at least.
const STATEMENT_MS: u64 = 1_000;

impl<M: Medium> Engine<M> {
    /// Refuses an index that is to be unique, and in which two rows have the same key, or may have
    /// it once a transaction has ended. All statements refuse such keys by now: rows that get one
    /// from now on need not be looked at.
    pub(crate) fn require_distinct(&self, table: &Table<M>, index: &Index<M>) -> Result<()> {
        table.for_each_row(|row, place, _| {
            for key in self.keys_of(table, index, row, place)? {
                self.require_only(table, (index, &key), row, place)?;
            }
            Ok(!table.is_dropped())
        })?;
        table.require_there()
    }

    /// Refuses a key of a row that another row has, too.
    fn require_only(
        &self,
        table: &Table<M>,
        (index, key): (&Index<M>, &Key),
        row: RowId,
        place: RowPlace,
    ) -> Result<()> {
        let (mut turns, since_ms) = (0, self.clock.now_ms(self.medium()));
        loop {
            let holder = {
                // Nobody else gets the key meanwhile. So if another row has it now, and this one
                // still has it, both have it.
                let _key = self.keys.lock(self.medium(), std::iter::once((index.id, key.hash)));
                if !self.keys_of(table, index, row, place)?.contains(key) {
                    return Ok(());
                }
                match self.require_free(table, index, key, row, View::NEWEST) {
                    Ok(()) => return Ok(()),
                    Err(Refused::For(Error::Unique { table, index, key, row: other })) => {
                        let rows = [row, other];
                        return Err(Error::Duplicate { table, index, key, rows });
                    }
                    Err(Refused::For(error)) => return Err(error),
                    Err(Refused::Busy { holder, .. } | Refused::Tied { holder, .. }) => holder,
                }
            };
            let wanted = Wanted { table, index, key };
            self.wait_for_holder(holder, || wanted.told(), turns, since_ms)?;
            turns += 1;
        }
    }

    /// Waits a moment for who decides whether a row has a key, but no longer than statements do.
    pub(super) fn wait_for_holder(
        &self,
        holder: Holder,
        told: impl FnOnce() -> Told,
        turns: u32,
        since_ms: u64,
    ) -> Result<()> {
        if let Some(slot) = holder.slot
            && self.expire(slot)?
        {
            return Ok(());
        }
        let waited_ms = self.clock.now_ms(self.medium()).saturating_sub(since_ms);
        let is_open = holder.slot.is_some_and(|slot| self.statuses.open_in(slot).is_some());
        let limit_ms = self.waits.limit_ms().max(if is_open { 0 } else { STATEMENT_MS });
        if turns >= TURNS && waited_ms >= limit_ms {
            return Err(self.in_the_way(holder, told()));
        }
        self.heap.verify()?;
        self.medium().pause();
        Ok(())
    }

    /// The keys that a row has, and those that the open transaction which has changed it has given
    /// it: they may come back.
    fn keys_of(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        row: RowId,
        place: RowPlace,
    ) -> Result<SmallVec<[Key; 2]>> {
        let states = self.states_of(table, index.needs_others, row, place)?;
        let keys = states.iter().filter_map(|of| index.key_of(&table.format, key_cells(of)));
        Ok(keys.filter(|key| index.is_unique_in(key)).collect())
    }

    /// The cells for keys of a row in all states that count, or may come back.
    pub(super) fn states_of(
        &self,
        table: &Table<M>,
        needs_others: bool,
        row: RowId,
        place: RowPlace,
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        // No version is freed that the row leads to.
        let _pin = self.heap.pin();
        loop {
            let before = table.head(place);
            let states = self.states_now(table, needs_others, row, place)?;
            // Otherwise its transaction has written meanwhile what it had not written before.
            if table.head(place) == before {
                return Ok(states);
            }
            self.medium().pause();
        }
    }

    fn states_now(
        &self,
        table: &Table<M>,
        needs_others: bool,
        row: RowId,
        place: RowPlace,
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        let mut states: SmallVec<[[Group; 2]; 2]> = SmallVec::new();
        let claim = table.claim(place);
        if let Some(slot) = claim.holder() {
            states.extend(self.statuses.unwritten.all(self.medium(), slot, (table.number, row)));
        }
        if let Some(pending) = claim.as_pending()
            && self.statuses.fate(pending.by) == Some(Fate::Open)
            && table.claim(place) == claim
        {
            states.extend(self.pending_states(table, needs_others, place, (row, pending))?);
        }
        if let Some(seen) = table.seen(row, place, View::NEWEST)? {
            states.push(table.key_groups(place, seen, needs_others)?);
        }
        Ok(states)
    }
}
