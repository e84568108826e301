//! Operations that share fences with others; see [`Step`].
//!
//! What an operation has stored stays hidden, and its buckets held, until the step has fenced.

use remanent_pmem::heap::{Block, Heap, Suspect};
use remanent_pmem::{Medium, WORD_LEN};

use super::bucket::{Held, Shadows};
use super::directory::Place;
use super::layout::{ANYTHING, NOTES_PER_LANE, slot_at, to_word};
use super::observe::Changed;
use super::ops::Entry;
use super::segment::{Found, NOT_WHOLE, Probe, Room};
use super::{Core, ExtendibleMap};
use crate::Result;
use crate::shared::{Operation, Progress, Scope, Step};
use crate::stored::{Key, Stored};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> ExtendibleMap<K, V, M> {
    /// Sets the value of `key` with the [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn put_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K, value: &'s V) -> Result<()> {
        step.add(Edit::new(&self.core, key, Some(value)))
    }

    /// Removes the entry of `key`, if there is one, with the [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the medium met a fault: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: &'s K) -> Result<()> {
        step.add(Edit::new(&self.core, key, None))
    }
}

/// How far an operation has come.
enum State<'s, M: Medium> {
    /// It is not published, or changes nothing.
    Pending,
    /// A new entry is stored.
    Filled(Room<'s, M>),
    /// A word of the entry in this slot is stored.
    Replaced(Entry<'s, M>),
    /// The entry in this slot is removed.
    Emptied(Entry<'s, M>, u32),
}

/// Putting an entry, or removing one.
pub(super) struct Edit<'s, K: ?Sized, V: ?Sized, M: Medium> {
    core: &'s Core<K, V, M>,
    probe: Probe<'s, K>,
    value: Option<&'s V>,
    /// A flushed record that nothing leads to.
    record: Option<Block>,
    /// The record that the entry has before the operation, and its suspect.
    old: Option<(u64, Suspect)>,
    state: State<'s, M>,
    was_present: bool,
}

const LAST_NOTE: usize = NOTES_PER_LANE - 1;

/// Why an operation cannot be published now.
struct IsBusy;

impl<'s, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Edit<'s, K, V, M> {
    pub(super) fn new(core: &'s Core<K, V, M>, key: &'s K, value: Option<&'s V>) -> Self {
        let probe = Probe { key, hash: core.hash(key) };
        let (record, old, state) = (None, None, State::Pending);
        Edit { core, probe, value, record, old, state, was_present: false }
    }

    /// Makes the record for the new value, if it needs one that it has not got.
    fn make_record(&mut self, scope: &mut Scope<'s, M>, value: &V) -> Result<()> {
        if self.record.is_none() {
            let lane = scope.lane(&self.core.heap);
            self.record = Some(self.core.make_record(lane, self.probe.key, value, None)?);
            scope.has_prepared();
        }
        Ok(())
    }

    /// Makes the record that is to be replaced a suspect, and no other; `None`: it is not known.
    fn suspect(&mut self, scope: &mut Scope<'s, M>, record: Option<u64>) {
        if self.old.as_ref().map(|(suspected, _)| *suspected) == record {
            return;
        }
        let lane = scope.lane(&self.core.heap);
        if let Some((_, other)) = self.old.take() {
            lane.cancel(other);
        }
        if let Some(record) = record {
            self.old = Some((record, lane.suspect(record)));
            scope.has_prepared();
        }
    }

    /// Says what this operation changes, beside what others of the step do.
    fn note(&self, scope: &mut Scope<'s, M>, offset: u64) {
        let (index, lane) = (scope.published(), scope.lane(&self.core.heap));
        match index < LAST_NOTE {
            true => self.core.note(lane, index, offset),
            false => self.core.note(lane, LAST_NOTE, ANYTHING),
        }
    }

    /// Takes the buckets where the entry is or may be. Waits for others only if the step holds
    /// nothing that these may wait for.
    fn hold_entry(
        &self,
        scope: &Scope<'s, M>,
    ) -> Result<std::result::Result<(Place<'s>, Entry<'s, M>), IsBusy>> {
        let core = self.core;
        loop {
            let place = core.place(self.probe.hash)?;
            let home = Core::<K, V, M>::pair(place.segment, self.probe.hash).home;
            let held = home.try_hold(core.medium());
            if let Some(home) = held
                && let Some(entry) = core.hold_entry(home, place, &self.probe)?
            {
                return Ok(Ok((place, entry)));
            }
            if !scope.may_wait() {
                return Ok(Err(IsBusy));
            }
            core.heap.verify()?;
            core.medium().pause();
        }
    }

    /// Puts the value. `None` when the operation is to begin anew.
    fn put(
        &mut self,
        scope: &mut Scope<'s, M>,
        place: Place<'s>,
        entry: Entry<'s, M>,
        value: &V,
    ) -> Result<Option<Progress>> {
        if let Some(slot) = entry.slot {
            return self.replace(scope, entry, slot, value).map(Some);
        }
        let core = self.core;
        if !Core::<K, V, M>::IS_INLINE {
            self.make_record(scope, value)?;
            // Fence: the record, before a slot leads to it.
            scope.fence_prepared();
        }
        let content = self.record.map_or_else(|| to_word(value), |record| record.offset);
        match core.find_room(place.segment, self.probe.hash, entry.home, entry.other) {
            Found::Room(mut room) => {
                core.observer.tell(Changed::Put(self.probe.key, value));
                let at = core.store_entry(&mut room, self.probe.hash, content);
                // Flush: fenced by the step, before anybody finds the entry.
                scope.lane(&core.heap).flush_later(at);
                let others = [room.other.as_ref(), room.until_durable.as_ref()];
                hold(scope, std::iter::once(&room.home).chain(others.into_iter().flatten()));
                self.record = None;
                self.state = State::Filled(room);
                Ok(Some(Progress::Done))
            }
            Found::Full | Found::Busy if !scope.may_wait() => Ok(Some(Progress::Busy)),
            Found::Full => {
                core.split(scope.lane(&core.heap), place, self.probe.hash)?;
                Ok(None)
            }
            Found::Busy => Ok(None),
        }
    }

    fn replace(
        &mut self,
        scope: &mut Scope<'s, M>,
        mut entry: Entry<'s, M>,
        slot: u32,
        value: &V,
    ) -> Result<Progress> {
        let core = self.core;
        let at = slot_at(entry.holder().bucket.0, slot) + WORD_LEN;
        let (at, word) = match self.record {
            _ if Core::<K, V, M>::IS_INLINE => (at, to_word(value)),
            _ if Core::<K, V, M>::HAS_VALUE_WORD => {
                let at = core.value_at(at, entry.is_whole)?;
                self.note(scope, at);
                (at, to_word(value))
            }
            None => {
                self.make_record(scope, value)?;
                return self.replace(scope, entry, slot, value);
            }
            Some(record) => {
                let before = Core::<K, V, M>::content(core.medium().load(at));
                self.suspect(scope, entry.is_whole.then_some(before));
                // Fence: the record, before the slot leads to it; the suspect, before the slot
                // stops leading to the old record.
                scope.fence_prepared();
                self.record = None;
                let stamp = Core::<K, V, M>::stamp(self.probe.hash, entry.other.is_some());
                let bucket = entry.holder().bucket;
                (at, Core::<K, V, M>::word_for(bucket, slot, stamp, record.offset))
            }
        };
        core.observer.tell(Changed::Put(self.probe.key, value));
        let lane = scope.lane(&core.heap).index();
        let shadow = Shadows::of_operation(lane, scope.published());
        core.store_word(entry.holder(), slot, shadow, at, word);
        // Flush: fenced by the step, before anybody sees the word.
        scope.lane(&core.heap).flush_later(at);
        hold(scope, std::iter::once(&entry.home).chain(entry.other.as_ref()));
        self.state = State::Replaced(entry);
        Ok(Progress::Done)
    }

    fn remove(&mut self, scope: &mut Scope<'s, M>, mut entry: Entry<'s, M>) -> Progress {
        if let Some(slot) = entry.slot {
            let core = self.core;
            let bucket = entry.holder().bucket;
            let record = Core::<K, V, M>::content(bucket.word(core.medium(), slot));
            core.observer.tell(Changed::Removed(self.probe.key));
            let old = core.begin_removal(scope.lane(&core.heap), &mut entry, slot);
            self.old = old.map(|old| (record, old));
            hold(scope, std::iter::once(&entry.home).chain(entry.other.as_ref()));
            self.state = State::Emptied(entry, slot);
        }
        Progress::Done
    }

    /// Gives back what nothing leads to.
    fn give_record_back(&mut self, scope: &mut Scope<'s, M>) {
        if let Some(record) = self.record.take() {
            scope.lane(&self.core.heap).give_back(record);
        }
    }
}

/// Has the step know what it holds.
fn hold<'h, 's: 'h, M: Medium>(
    scope: &mut Scope<'s, M>,
    buckets: impl Iterator<Item = &'h Held<'s, M>>,
) {
    buckets.for_each(|held| scope.hold(held.bucket.0, Box::new(())));
}

impl<'s, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Operation<'s, M> for Edit<'s, K, V, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.core.heap
    }

    fn suspects(&self) -> usize {
        // That of the record that it removes or replaces.
        usize::from(!Core::<K, V, M>::IS_INLINE && self.old.is_none())
    }

    /// Makes the record that is needed, and a suspect of the one that it replaces, if nothing
    /// changes until `publish`.
    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        let Some(value) = self.value.filter(|_| !Core::<K, V, M>::IS_INLINE) else { return Ok(()) };
        let place = self.core.place(self.probe.hash)?;
        let found = self.core.look(place.segment, &self.probe)?;
        if found.is_some() && Core::<K, V, M>::HAS_VALUE_WORD {
            return Ok(());
        }
        self.make_record(scope, value)?;
        if let Some(found) = found {
            self.suspect(scope, (found.word & NOT_WHOLE == 0).then_some(found.word));
        }
        Ok(())
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        loop {
            let Ok((place, entry)) = self.hold_entry(scope)? else { return Ok(Progress::Busy) };
            self.note(scope, place.segment);
            self.was_present = entry.slot.is_some();
            let Some(value) = self.value else { return Ok(self.remove(scope, entry)) };
            if let Some(progress) = self.put(scope, place, entry, value)? {
                return Ok(progress);
            }
            self.core.heap.verify()?;
            self.core.medium().pause();
        }
    }

    fn finish(&mut self, scope: &mut Scope<'s, M>) {
        let core = self.core;
        let lane = scope.lane(&core.heap);
        let mut old = self.old.take().map(|(_, suspect)| suspect);
        match std::mem::replace(&mut self.state, State::Pending) {
            State::Pending => {}
            State::Filled(room) => core.show_entry(lane, room, self.probe.hash),
            State::Replaced(mut entry) => {
                let held = entry.holder();
                held.set_control(held.control().replaced().next_version());
                drop(entry);
                if let Some(old) = old.take() {
                    lane.retire(old);
                }
            }
            State::Emptied(mut entry, slot) => {
                core.end_removal(lane, &mut entry, slot, old.take());
                core.count.add(lane.index(), -1);
            }
        }
        if let Some(unused) = old {
            lane.cancel(unused);
        }
        self.give_record_back(scope);
        // What is durable now may be more than what the lane could name.
        self.core.note(scope.lane(&self.core.heap), LAST_NOTE, 0);
    }

    fn was_present(&self) -> bool {
        self.was_present
    }

    fn give_up(&mut self, scope: &mut Scope<'s, M>) {
        self.state = State::Pending;
        if let Some((_, old)) = self.old.take() {
            scope.lane(&self.core.heap).cancel(old);
        }
        self.give_record_back(scope);
    }
}
