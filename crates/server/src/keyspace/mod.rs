//! All keys of a server, of whatever type.
//!
//! A string lies in the [`Store`] with its key. A sorted set has its number there ([`layout`]), and its members in the
//! store's tree, twice: by member, which finds a score, and by score, which is the order that the set has.
//!
//! # What holds
//!
//! - **One step.** A command changes a set as a whole, however many members it names: for other clients, who wait for
//!   it, and for a crash. Before anything else, what is to be done is written down as one entry of the tree (the
//!   [`intent`]); that commits. Then it is done, and the entry removed. Opening completes what it finds.
//! - **Names.** The store decides what a key is. Strings are read and written without a lock, but where one replaces
//!   a set. Whoever takes a set's number out of the store leaves its members to the sweeper ([`sweep`]), or removes them
//!   where there is none; what a crash leaves of them is found by [`Keyspace::sweep`].
//! - **Locks.** Each key belongs to one of the shards. Its lock is held by whoever changes a set or takes it away, and
//!   shared by who reads one. Who brings a string to a name that has none may come between a set's first members and
//!   its name: then they are taken back, and the set's command is refused, for the key has another type.
//! - **Fences.** Two for writing the intent and two for removing it, and two for each entry of the tree that changes. So
//!   four, and for each member four more if it is new or goes, six if it has another score. A set that begins takes
//!   four more for its name, and one that ends three.
//! - **Recovery.** Opening looks at the intents, one a shard at most.
//!
//! In a store that works in batches, strings and names become safe later, and members at once. So a crash may take
//! a set that is younger than the bound, or keep a member that is younger than a string that it takes. Before members
//! are removed with their set, all is made safe.

mod check;
mod intent;
mod layout;
mod ops;
mod ranks;
mod recover;
mod sweep;
mod view;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use self::intent::Intent;
use self::layout::SetId;
use self::ops::Direction;
use self::ranks::Ranks;
use self::sweep::Gone;
use crate::store::{Change, Store, StoreError};

pub(crate) use self::layout::{MEMBER_LEN_MAX, Score, Tag};
pub(crate) use self::ops::SetEdit;
pub(crate) use self::view::{LexLimit, Range, Selection, SetView};

/// Locks that the keys share.
const SHARDS: usize = 256;
/// Sets in a shard whose ranks are kept at a time.
const RANKS_MAX: usize = 1024;

/// All keys of a server: strings, and sorted sets.
pub struct Keyspace<S> {
    store: S,
    shards: Box<[Gate<Shard>]>,
    ids: Gate<Ids>,
    gone: Gone,
}

/// What is known of some sets besides what the tree says; its lock is the lock of those sets.
#[derive(Debug, Default)]
struct Shard {
    ranks: HashMap<SetId, Ranks>,
    /// A change that could be neither completed nor taken back.
    unfinished: Option<(usize, Intent, Direction)>,
}

/// Numbers for sets to come.
#[derive(Debug)]
struct Ids {
    next: u64,
    /// Numbers below this one need not be reserved any more.
    reserved: u64,
}

/// Why a command on a key did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// The key holds another type.
    WrongType,
    /// A member is longer than an entry of the tree can hold.
    MemberTooLong,
    /// It did something, which could be neither completed nor taken back.
    Undecided(StoreError),
    /// What it would copy needs more memory than clients may take.
    NoMemory,
    Store(StoreError),
}

impl From<StoreError> for KeyError {
    fn from(error: StoreError) -> Self {
        KeyError::Store(error)
    }
}

impl From<remanent_structures::Error> for KeyError {
    fn from(error: remanent_structures::Error) -> Self {
        KeyError::Store(error.into())
    }
}

/// Whether a reader asks for ranks, or for how many members there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Entries,
    Ranks,
}

/// A lock that is held across calls of the store, whose waiters let the simulator schedule the holder.
#[derive(Debug)]
struct Gate<T> {
    lock: RwLock<T>,
    /// How many want to write: readers let them go first, for a while.
    writers: AtomicU32,
    /// How many readers have waited for long: writers let them go first, for a while.
    patient: AtomicU32,
}

/// Rounds of waiting after which a thread gives way to nobody, and sleeps in between.
const ROUNDS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

impl<T> Gate<T> {
    fn new(value: T) -> Self {
        Gate { lock: RwLock::new(value), writers: AtomicU32::new(0), patient: AtomicU32::new(0) }
    }

    fn read<S: Store>(&self, store: &S) -> RwLockReadGuard<'_, T> {
        // Relaxed: who does not see another one yet goes before it; the lock itself orders what it guards.
        let gives_way = || self.writers.load(Ordering::Relaxed) > 0;
        let mut was_patient = false;
        let guard = wait(store, |round| {
            if round < ROUNDS && gives_way() {
                return Err(TryLockError::WouldBlock);
            }
            if round == ROUNDS {
                was_patient = true;
                self.patient.fetch_add(1, Ordering::Relaxed);
            }
            self.lock.try_read()
        });
        if was_patient {
            self.patient.fetch_sub(1, Ordering::Relaxed);
        }
        guard
    }

    fn write<S: Store>(&self, store: &S) -> RwLockWriteGuard<'_, T> {
        // Relaxed: as in `read`.
        let gives_way = || self.patient.load(Ordering::Relaxed) > 0;
        self.writers.fetch_add(1, Ordering::Relaxed);
        let guard = wait(store, |round| {
            if round < ROUNDS && gives_way() {
                return Err(TryLockError::WouldBlock);
            }
            self.lock.try_write()
        });
        self.writers.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

/// Tries until nobody is in the way. What a holder that panicked has left is handed on as it is.
fn wait<G, S: Store>(store: &S, mut attempt: impl FnMut(u32) -> Result<G, TryLockError<G>>) -> G {
    let mut round = 0_u32;
    loop {
        match attempt(round) {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => store.pause(),
        }
        if round > ROUNDS {
            std::thread::sleep(NAP);
        }
        round = round.saturating_add(1);
    }
}

impl<S: Store> Keyspace<S> {
    fn shard_index(&self, name: &[u8]) -> usize {
        xxh3_64(name) as usize % SHARDS
    }

    /// The store's tree, which is there when a set is.
    fn tree(&self) -> Result<&S::Tree, StoreError> {
        self.store.tree().ok_or_else(|| damaged("it names a sorted set, and has no members of any"))
    }

    /// The store behind the keys.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Lets `read` see the stored value of `name`, its tag first; `None` when there is none.
    pub(crate) fn get_with<R>(
        &self,
        name: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.store.get_with(name, read)
    }

    pub(crate) fn contains(&self, name: &[u8]) -> Result<bool, StoreError> {
        Ok(self.store.get_with(name, |_| ())?.is_some())
    }

    /// Replaces the stored value of `name` by a function of it, as one step, and removes the members of a set that was
    /// replaced. Without a lock, but for that.
    pub(crate) fn modify<R, T: Borrow<[u8]>>(
        &self,
        name: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        let set_in = |old: Option<&[u8]>, change: &Change<T>| {
            old.and_then(SetId::referred_to).filter(|_| !matches!(change, Change::Keep))
        };
        let done = self.store.modify(name, |old| {
            let (change, result) = change(old);
            match set_in(old, &change) {
                None => (change, Some(result)),
                Some(_) => (Change::Keep, None),
            }
        })?;
        if let Some(result) = done {
            return Ok(result);
        }
        let mut shard = self.shards[self.shard_index(name)].write(&self.store);
        // A change that finds no room to be completed goes with the set.
        let _ = self.finish(&mut shard);
        let (result, replaced) = self.store.modify(name, |old| {
            let (change, result) = change(old);
            let replaced = set_in(old, &change);
            (change, (result, replaced))
        })?;
        if let Some(set) = replaced {
            self.remove_members(&mut shard, set);
        }
        Ok(result)
    }

    /// Stores a value, whether or not there is one.
    pub(crate) fn put(&self, name: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.modify(name, |_| (Change::Put(value), ()))
    }

    /// Stores a value if there is none; says whether it did.
    pub(crate) fn insert(&self, name: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| match old {
            None => (Change::Put(value), true),
            Some(_) => (Change::Keep, false),
        })
    }

    /// Stores a value if there is one already; says whether it did.
    pub(crate) fn replace(&self, name: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| match old {
            Some(_) => (Change::Put(value), true),
            None => (Change::Keep, false),
        })
    }

    /// Takes a key of any type away; says whether it was there.
    pub(crate) fn remove(&self, name: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| (Change::<&[u8]>::Remove, old.is_some()))
    }

    /// Takes all keys away, as one step; the members of sets then follow one by one.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.write(&self.store)).collect();
        self.store.clear()?;
        let Some(tree) = self.store.tree() else { return Ok(()) };
        shards.iter_mut().for_each(|shard| shard.ranks.clear());
        // The names must not come back when the members are gone.
        self.store.sync()?;
        // Numbers begin where they were, so what a crash leaves here belongs to no set that comes.
        self.clear_members(tree)?;
        shards.iter_mut().for_each(|shard| shard.unfinished = None);
        Ok(())
    }

    pub(crate) fn len(&self) -> Result<u64, StoreError> {
        self.store.len()
    }

    /// As [`Store::scan`].
    pub(crate) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        self.store.scan(cursor, limit, visit)
    }
}

/// A store that contradicts itself, in words for the client.
fn damaged(what: &str) -> StoreError {
    StoreError::Failed(format!("the pool is damaged: {what}; restore it from a backup"))
}

impl<S: fmt::Debug> fmt::Debug for Keyspace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;
    use crate::store::Volatile;

    #[test]
    fn readers_get_their_turn_among_many_writers() {
        const READS: u32 = 50;
        let (gate, store) = (Gate::new(0_u64), Volatile::new(1 << 20));
        let (is_done, started) = (AtomicBool::new(false), Instant::now());
        let reads = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) && started.elapsed().as_secs() < 20 {
                        let mut guard = gate.write(&store);
                        // Others come to wait meanwhile.
                        (0..100).for_each(|_| std::hint::spin_loop());
                        std::thread::yield_now();
                        *guard += 1;
                    }
                });
            }
            let mut reads = 0;
            while reads < READS && started.elapsed().as_secs() < 20 {
                std::hint::black_box(*gate.read(&store));
                reads += 1;
            }
            is_done.store(true, Ordering::Relaxed);
            reads
        });
        assert_eq!(reads, READS, "{} writes", *gate.read(&store));
    }
}
