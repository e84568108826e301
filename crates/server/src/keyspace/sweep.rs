//! The sweeper: removes the entries of collections that are gone, of whatever type.
//!
//! A command that removes a collection takes its reference out of the store, and is done. Nobody
//! looks at the entries any more, and no other collection gets their id, so they can be removed at
//! any time: by the sweeper, which is one thread beside the clients, or after a crash by the next
//! start. The name entry is removed last, so that what is left of a collection is found by it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use remanent_structures::{Map, OrderedMap};

use super::Keyspace;
use super::layout::{CollectionId, name_in};
use super::shard::{Shard, Unfinished};
use super::tree::{onward, span};
use super::types::Reference;
use crate::store::{Store, StoreError};

/// Entries that are removed between two looks at whether the sweeper is to stop.
const REMOVED_BATCH: usize = 256;
/// Keys that are looked at between two moments at which the store's map may change its shape.
const SCANNED_BATCH: usize = 1024;
/// Collections that may wait for the sweeper. A command that removes a further one removes its
/// entries, too.
const GONE_MAX: usize = 1 << 16;

/// Collections that were removed while the server runs, and still have entries.
#[derive(Debug, Default)]
pub(super) struct Gone {
    waiting: Mutex<Waiting>,
    /// Notified when a collection comes to the queue, and when the sweeper is to stop.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    collections: VecDeque<CollectionId>,
    /// Whether there is a sweeper.
    is_served: bool,
    /// Whether the sweeper is to stop. What still waits is left to the next start.
    is_over: bool,
}

impl Gone {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the entries of a collection to the sweeper, or to the next start if the sweeper is to
    /// stop. False when there is no sweeper, or its queue is full.
    fn accept(&self, id: CollectionId) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_over {
            return true;
        }
        let is_accepted = waiting.is_served && waiting.collections.len() < GONE_MAX;
        if is_accepted {
            waiting.collections.push_back(id);
            self.changed.notify_one();
        }
        is_accepted
    }

    fn is_over(&self) -> bool {
        self.waiting().is_over
    }
}

impl<S: Store> Keyspace<S> {
    /// Removes the entries of a collection that the store no longer refers to, or leaves them to
    /// the sweeper. If that fails, the next start removes them.
    pub(super) fn remove_entries(&self, shard: &mut Shard, id: CollectionId) {
        shard.caches.forget(id);
        // An unfinished change may need the room of this collection, so the sweeper would be too
        // late.
        let needs_room = matches!(shard.unfinished, Some(Unfinished::Change { .. }));
        if !needs_room && self.gone.accept(id) {
            return;
        }
        match self.sweep_unnamed(id) {
            Ok(()) if needs_room => {
                if let Err(error) = self.finish(shard) {
                    tracing::warn!(%error, "a change is still not complete");
                }
            }
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "entries of deleted keys still take up room"),
        }
    }

    /// Removes all entries of a collection that the store has ceased to refer to.
    pub(super) fn sweep_unnamed(&self, id: CollectionId) -> Result<(), StoreError> {
        // A crash must not bring the reference back when the entries are gone.
        self.store.sync()?;
        self.sweep_collection(id)
    }

    /// Removes all entries of a collection to which no crash can bring a reference back.
    pub(super) fn sweep_collection(&self, id: CollectionId) -> Result<(), StoreError> {
        self.sweep_until(id, &|| false)
    }

    fn sweep_until(&self, id: CollectionId, is_over: &impl Fn() -> bool) -> Result<(), StoreError> {
        let tree = self.tree()?;
        let (start, end) = (id.name_key(), id.end());
        while !is_over() {
            let mut keys = Vec::new();
            // From the last to the first, which is the name.
            let listed = tree.descend(span(&start, &end), |key, _| {
                keys.push(key.to_vec());
                if keys.len() < REMOVED_BATCH {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            for key in &keys {
                tree.discard(key)?;
            }
            // Entries behind one that is damaged are removed, too.
            listed?;
            if keys.len() < REMOVED_BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Removes the entries that a crash has left of collections that are gone, until `is_over`
    /// returns true, which is called every few hundred entries. Returns how many such collections
    /// there were.
    ///
    /// Clients may be served meanwhile. Takes about a microsecond for each collection that is not
    /// gone. A collection that meets damage keeps no other from being removed.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written.
    pub fn sweep(&self, is_over: impl Fn() -> bool) -> Result<u64, StoreError> {
        let Some(tree) = self.store.tree() else { return Ok(0) };
        let (mut id, mut swept, mut failed) = (CollectionId(1), 0, Ok(()));
        let mut referred_to = None;
        while !is_over() {
            let mut found = None;
            tree.ascend(onward(&id.name_key()), |key, value| {
                let name = name_in(key, value).map(<[u8]>::to_vec);
                found = CollectionId::of_entry(key).map(|id| (id, name));
                ControlFlow::Break(())
            })?;
            let Some((next, name)) = found else { break };
            match self.sweep_if_gone(next, name, &mut referred_to, &is_over) {
                Ok(is_swept) => swept += u64::from(is_swept),
                Err(error) => failed = failed.and(Err(error)),
            }
            id = CollectionId(next.0 + 1);
        }
        failed.map(|()| swept)
    }

    /// Removes what is left of a collection, unless the store refers to it. All that the store
    /// refers to are found and kept in `referred_to` when that is first needed.
    fn sweep_if_gone(
        &self,
        id: CollectionId,
        name: Option<Vec<u8>>,
        referred_to: &mut Option<BTreeSet<CollectionId>>,
        is_over: &impl Fn() -> bool,
    ) -> Result<bool, StoreError> {
        if let Some(name) = name {
            // A command may be about to make the store refer to the collection. It holds the lock
            // until that is done; a collection without a reference after that never gets one.
            let _shard = self.shard(&name).write(&self.store);
            if self.names(&name, id)? {
                return Ok(false);
            }
        } else {
            // The name is put with the first entries and removed as the last. It is missing after a
            // crash while all collections were removed together; or it is damaged; or a command is
            // making the collection, and not all of its entries were seen.
            if !self.ids.read(&self.store).is_older(id) {
                return Ok(false);
            }
            let referred_to = match referred_to {
                Some(found) => found,
                None => referred_to.insert(self.all_referred_to()?),
            };
            if referred_to.contains(&id) {
                tracing::error!(id = id.0, "a sorted set does not know its name: check the pool");
                return Ok(false);
            }
        }
        // A crash must not bring the reference back when the entries are gone.
        self.store.sync()?;
        self.sweep_until(id, is_over).map(|()| true)
    }

    /// The collections that the store refers to, but for those that come meanwhile.
    fn all_referred_to(&self) -> Result<BTreeSet<CollectionId>, StoreError> {
        let (mut found, mut cursor) = (BTreeSet::new(), 0);
        loop {
            cursor = self.store.scan(cursor, SCANNED_BATCH, |_, stored| {
                found.extend(Reference::read(stored).map(|reference| reference.id));
            })?;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }

    /// From now on, commands that remove a collection leave its entries to
    /// [`sweep_gone`](Keyspace::sweep_gone).
    pub fn defer_sweeping(&self) {
        self.gone.waiting().is_served = true;
    }

    /// Removes the entries of all collections that commands have left to it, until `is_over`
    /// returns true.
    ///
    /// # Errors
    ///
    /// When the store cannot be written. The entries are left to the next start then.
    pub fn sweep_gone(&self, is_over: impl Fn() -> bool) -> Result<(), StoreError> {
        loop {
            let collections = std::mem::take(&mut self.gone.waiting().collections);
            if collections.is_empty() || is_over() {
                return Ok(());
            }
            // A crash must not bring the references back when the entries are gone.
            self.store.sync()?;
            // One that meets damage keeps no other from being removed.
            let sweep = |id| self.sweep_until(id, &is_over);
            collections.into_iter().map(sweep).fold(Ok(()), Result::and)?;
        }
    }

    /// The sweeper's thread: removes what a crash has left of collections, and then the entries of
    /// each collection that is removed, until [`stop_sweeper`](Keyspace::stop_sweeper) is called.
    pub fn run_sweeper(&self) {
        self.defer_sweeping();
        let is_over = || self.gone.is_over();
        match self.sweep(is_over) {
            Ok(0) => {}
            Ok(collections) => {
                tracing::info!(collections, "removed what a crash had left of deleted keys");
            }
            Err(error) => {
                tracing::warn!(%error, "what a crash has left of deleted keys stays");
            }
        }
        while !is_over() {
            if let Err(error) = self.sweep_gone(is_over) {
                tracing::warn!(%error, "entries of deleted keys still take up room");
            }
            let nothing_to_do =
                |waiting: &mut Waiting| waiting.collections.is_empty() && !waiting.is_over;
            let waiting = self.gone.changed.wait_while(self.gone.waiting(), nothing_to_do);
            drop(waiting);
        }
    }

    /// Makes [`run_sweeper`](Keyspace::run_sweeper) return soon. The next start removes what is
    /// left.
    pub fn stop_sweeper(&self) {
        self.gone.waiting().is_over = true;
        self.gone.changed.notify_all();
    }
}
