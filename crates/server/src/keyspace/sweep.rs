//! Members of sets that are gone: removed by one thread beside the clients, which is the *sweeper*.
//!
//! When the store does not name a set any more, nobody looks at its members, and no set gets its number again. So they
//! may go at any time, also after a crash, which leaves their set's name beside them until the last has gone.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use remanent_structures::{Map, OrderedMap};

use super::sorted_set::layout::{Entry, SetId};
use super::sorted_set::ranks::{onward, span};
use super::{Keyspace, Shard};
use crate::store::{Store, StoreError};

/// Members that are removed with their set in one go.
const REMOVED_BATCH: usize = 256;
/// Sets that may wait for the sweeper. Who takes a further one away removes its members itself.
const GONE_MAX: usize = 1 << 16;

/// Sets that were taken away while the server runs, and whose members are still there.
#[derive(Debug, Default)]
pub(super) struct Gone {
    waiting: Mutex<Waiting>,
    /// Told when a set has come to an empty queue, or it is over.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    sets: VecDeque<SetId>,
    /// Whether somebody removes the members of those that wait.
    is_served: bool,
    /// What still waits is for the next start.
    is_over: bool,
}

impl Gone {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the members of `set` to the sweeper, or, when it is over, to the next start. False when there is no
    /// sweeper, or too much waits for it.
    fn accept(&self, set: SetId) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_over {
            return true;
        }
        let is_accepted = waiting.is_served && waiting.sets.len() < GONE_MAX;
        if is_accepted {
            waiting.sets.push_back(set);
            self.changed.notify_one();
        }
        is_accepted
    }

    fn is_over(&self) -> bool {
        self.waiting().is_over
    }
}

impl<S: Store> Keyspace<S> {
    /// Removes the members of a set that the store does not name any more, or leaves them to the sweeper. Where that
    /// fails, the next opening sees to it.
    pub(super) fn remove_members(&self, shard: &mut Shard, set: SetId) {
        shard.ranks.remove(&set);
        // What a change has left that was not completed is done with here, since the room for it may be that of
        // this set.
        if shard.unfinished.is_none() && self.gone.accept(set) {
            return;
        }
        // The name must not come back when the members are gone.
        let removed = self.store.sync().and_then(|()| self.sweep_set(set));
        if let Err(error) = removed.and_then(|()| self.finish(shard)) {
            tracing::warn!(%error, "members of removed sorted sets still take up room");
        }
    }

    /// Removes all entries of a set, its name last: as long as that is there, the others are found.
    pub(super) fn sweep_set(&self, set: SetId) -> Result<(), StoreError> {
        self.sweep_until(set, &|| false)
    }

    fn sweep_until(&self, set: SetId, is_over: &impl Fn() -> bool) -> Result<(), StoreError> {
        let tree = self.tree()?;
        let (start, end) = (set.name_key(), set.end());
        while !is_over() {
            let mut keys = Vec::new();
            tree.descend(span(&start, &end), |key, _| {
                keys.push(key.to_vec());
                if keys.len() < REMOVED_BATCH {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            for key in &keys {
                tree.discard(key)?;
            }
            if keys.len() < REMOVED_BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Removes members that a crash has left of sets that are gone, until `is_over` says that it should end, for which
    /// it is asked every few hundred members. Returns how many such sets there were.
    ///
    /// Clients may be served meanwhile. About a microsecond for each set there is.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written.
    pub fn sweep(&self, is_over: impl Fn() -> bool) -> Result<u64, StoreError> {
        let Some(tree) = self.store.tree() else { return Ok(0) };
        let (mut set, mut swept) = (SetId(1), 0);
        while !is_over() {
            let mut found = None;
            tree.ascend(onward(&set.name_key()), |key, value| {
                found = SetId::of_entry(key).map(|set| (set, name(key, value)));
                ControlFlow::Break(())
            })?;
            let Some((next, name)) = found else { break };
            swept += u64::from(self.sweep_if_gone(next, name, &is_over)?);
            set = SetId(next.0 + 1);
        }
        Ok(swept)
    }

    /// Removes what is left of a set, if the store does not name it.
    fn sweep_if_gone(
        &self,
        set: SetId,
        name: Option<Vec<u8>>,
        is_over: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        // The name is a set's first entry and its last, but where all sets were removed together.
        if let Some(name) = name {
            // Whoever is about to give the set its name is done when the shard is free; it has none later.
            let _shard = self.shards[self.shard_index(&name)].write(&self.store);
            if self.has_set(&name, set)? {
                return Ok(false);
            }
        }
        // The name must not come back when the members are gone.
        self.store.sync()?;
        self.sweep_until(set, is_over).map(|()| true)
    }

    /// From now on, who takes a set away leaves its members to [`sweep_gone`](Keyspace::sweep_gone).
    pub fn leave_members(&self) {
        self.gone.waiting().is_served = true;
    }

    /// Removes the members of all sets that were left to it, until `is_over` says that it should end.
    ///
    /// # Errors
    ///
    /// When the store cannot be written. The sets are left to the next start then.
    pub fn sweep_gone(&self, is_over: impl Fn() -> bool) -> Result<(), StoreError> {
        loop {
            let sets = std::mem::take(&mut self.gone.waiting().sets);
            if sets.is_empty() || is_over() {
                return Ok(());
            }
            // The names must not come back when the members are gone.
            self.store.sync()?;
            for set in sets {
                self.sweep_until(set, &is_over)?;
            }
        }
    }

    /// Is the sweeper: removes what a crash has left of sets, and then the members of each set that is taken away,
    /// until [`stop_sweeper`](Keyspace::stop_sweeper) is called.
    pub fn run_sweeper(&self) {
        self.leave_members();
        let is_over = || self.gone.is_over();
        match self.sweep(is_over) {
            Ok(0) => {}
            Ok(sets) => tracing::info!(sets, "removed what a crash had left of sorted sets"),
            Err(error) => tracing::warn!(%error, "what a crash has left of sorted sets stays"),
        }
        while !is_over() {
            if let Err(error) = self.sweep_gone(is_over) {
                tracing::warn!(%error, "the members of removed sorted sets still take up room");
            }
            let nothing_to_do = |waiting: &mut Waiting| waiting.sets.is_empty() && !waiting.is_over;
            let waiting = self.gone.changed.wait_while(self.gone.waiting(), nothing_to_do);
            drop(waiting);
        }
    }

    /// Has [`run_sweeper`](Keyspace::run_sweeper) return soon. What it has not removed is found at the next start.
    pub fn stop_sweeper(&self) {
        self.gone.waiting().is_over = true;
        self.gone.changed.notify_all();
    }
}

/// The name of a set, if this is the entry that has it.
fn name(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    match Entry::read(key, value) {
        Some(Entry::Name(name)) => Some(name.to_vec()),
        _ => None,
    }
}
