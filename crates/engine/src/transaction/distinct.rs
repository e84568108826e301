//! Whether the rows of a table have different keys in an index that is to be unique.

use std::thread;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::statuses::Fate;
use super::view::View;
use super::wait::{Holder, NAP, Refused, Told, Wanted};
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

/// How often, and since when, somebody waits who is no statement of a transaction.
pub(super) struct Turns {
    count: u32,
    since_ms: u64,
}

impl Turns {
    pub(super) fn new<M: Medium>(engine: &Engine<M>) -> Self {
        Turns { count: 0, since_ms: engine.clock.now_ms(engine.medium()) }
    }
}

impl<M: Medium> Engine<M> {
    /// Refuses an index that is to be unique, and in which two rows have the same key, or may have
    /// it once a transaction has ended. All statements refuse such keys by now: rows that get one
    /// from now on need not be looked at. If a transaction makes the index, `view` has what that
    /// has changed.
    pub(crate) fn require_distinct(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        view: View,
    ) -> Result<()> {
        table.for_each_row(|row, place, _| {
            for key in self.keys_of(table, index, (row, place), view)? {
                self.require_only(table, (index, &key), (row, place), view)?;
            }
            Ok(!table.is_dropped())
        })?;
        table.require_there(view.own)
    }

    /// Refuses a key of a row that another row has, too.
    fn require_only(
        &self,
        table: &Table<M>,
        (index, key): (&Index<M>, &Key),
        (row, place): (RowId, RowPlace),
        view: View,
    ) -> Result<()> {
        let mut turns = Turns::new(self);
        loop {
            let holder = {
                // Nobody else gets the key meanwhile. So if another row has it now, and this one
                // still has it, both have it.
                let _key = self.keys.lock(self.medium(), std::iter::once((index.id, key.hash)));
                if !self.keys_of(table, index, (row, place), view)?.contains(key) {
                    return Ok(());
                }
                match self.require_free(table, index, key, row, view) {
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
            self.wait_for_holder(holder, || wanted.told(), &mut turns)?;
        }
    }

    /// Waits a moment for who decides whether a row has a key, but no longer than statements do.
    pub(super) fn wait_for_holder(
        &self,
        holder: Holder,
        told: impl FnOnce() -> Told,
        turns: &mut Turns,
    ) -> Result<()> {
        if let Some(slot) = holder.slot
            && self.expire(slot)?
        {
            return Ok(());
        }
        let waited_ms = self.clock.now_ms(self.medium()).saturating_sub(turns.since_ms);
        let is_open = holder.slot.is_some_and(|slot| self.statuses.open_in(slot).is_some());
        let limit_ms = self.waits.limit_ms().max(if is_open { 0 } else { STATEMENT_MS });
        if turns.count >= TURNS && waited_ms >= limit_ms {
            return Err(self.in_the_way(holder, told()));
        }
        turns.count += 1;
        self.heap.verify()?;
        self.medium().pause();
        if turns.count > TURNS {
            thread::sleep(NAP);
        }
        Ok(())
    }

    /// The keys that a row has, and those that the open transaction which has changed it has given
    /// it: they may come back.
    fn keys_of(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        row: (RowId, RowPlace),
        view: View,
    ) -> Result<SmallVec<[Key; 2]>> {
        let states = self.states_of(table, index.needs_others, row, view)?;
        let keys = states.iter().filter_map(|of| index.key_of(&table.format, key_cells(of)));
        Ok(keys.filter(|key| index.is_unique_in(key)).collect())
    }

    /// The cells for keys of a row in all states that count, or may come back. Of a row that the
    /// transaction of `view` has changed, that is the newest one: what comes back in its place has
    /// taken back what that transaction asks for.
    pub(super) fn states_of(
        &self,
        table: &Table<M>,
        needs_others: bool,
        (row, place): (RowId, RowPlace),
        view: View,
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        // No version is freed that the row leads to.
        let _pin = self.heap.pin();
        loop {
            let before = table.head(place);
            let states = self.states_now(table, needs_others, (row, place), view)?;
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
        (row, place): (RowId, RowPlace),
        view: View,
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        let mut states: SmallVec<[[Group; 2]; 2]> = SmallVec::new();
        let claim = table.claim(place);
        let is_own = view.own.is_some_and(|own| {
            claim.as_pending().is_some_and(|pending| pending.by == own.short())
                || claim.holder() == Some(own.slot)
        });
        if let Some(slot) = claim.holder().filter(|_| !is_own) {
            states.extend(self.statuses.unwritten.all(self.medium(), slot, (table.number, row)));
        }
        if let Some(pending) = claim.as_pending().filter(|_| !is_own)
            && self.statuses.fate(pending.by) == Some(Fate::Open)
            && table.claim(place) == claim
        {
            states.extend(self.pending_states(table, needs_others, place, (row, pending))?);
        }
        if let Some(seen) = table.seen(row, place, view)? {
            states.push(table.key_groups(place, seen, needs_others)?);
        }
        Ok(states)
    }
}
