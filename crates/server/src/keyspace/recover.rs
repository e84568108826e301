//! Opening: what a crash has left half done.

use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::intent::Intent;
use super::layout::{Entry, SetId, intents, next_id_key, shard_of_intent};
use super::ops::Direction;
use super::ranks::{onward, span};
use super::{Gate, Ids, Keyspace, SHARDS, Shard, damaged};
use crate::store::{Store, StoreError};

impl<S: Store> Keyspace<S> {
    /// Opens what `store` holds, and completes what was under way when it was last closed.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written, or contradicts itself.
    pub fn open(store: S) -> Result<Self, StoreError> {
        let shards = (0..SHARDS).map(|_| Gate::new(Shard::default())).collect();
        let next = next_id(&store)?;
        let ids = Gate::new(Ids { next, reserved: 0 });
        let keyspace = Keyspace { store, shards, ids };
        keyspace.complete_intents()?;
        Ok(keyspace)
    }

    fn complete_intents(&self) -> Result<(), StoreError> {
        let Some(tree) = self.store.tree() else { return Ok(()) };
        let (start, end) = intents();
        let mut found = Vec::new();
        tree.ascend(span(&start, &end), |key, value| {
            found.push((key.to_vec(), Intent::decode(value)));
            ControlFlow::Continue(())
        })?;
        for (key, intent) in found {
            let damage = || damaged("a change of a sorted set is not readable");
            let intent = intent.ok_or_else(damage)?;
            let index = shard_of_intent(&key).filter(|&index| index < SHARDS);
            let index = index.ok_or_else(damage)?;
            let mut shard = self.shards[index].write(&self.store);
            shard.unfinished = Some((index, intent, Direction::Forward));
            match self.finish(&mut shard) {
                // In a full pool it may be that only the way back is open, or that something has to go first.
                Err(StoreError::Full) => {
                    let forward = shard.unfinished.take();
                    shard.unfinished = forward
                        .map(|(index, intent, _)| (index, intent.reversed(), Direction::Back));
                    match self.finish(&mut shard) {
                        Err(StoreError::Full) => {}
                        done => done?,
                    }
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Removes members that a crash has left of sets that are gone, until `is_over` says that it should end. Returns how
    /// many such sets there were.
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
            swept += u64::from(self.sweep_if_gone(next, name)?);
            set = SetId(next.0 + 1);
        }
        Ok(swept)
    }

    /// Removes what is left of a set, if the store does not name it.
    fn sweep_if_gone(&self, set: SetId, name: Option<Vec<u8>>) -> Result<bool, StoreError> {
        let Some(name) = name else {
            // The name is a set's first entry and its last, but where all sets were removed together.
            self.store.sync()?;
            return self.sweep_set(set).map(|()| true);
        };
        {
            // Whoever is about to give the set its name is done when the shard is free; it has none later.
            let _shard = self.shards[self.shard_index(&name)].write(&self.store);
            if self.has_set(&name, set)? {
                return Ok(false);
            }
        }
        // The name must not come back when the members are gone.
        self.store.sync()?;
        self.sweep_set(set).map(|()| true)
    }
}

/// The name of a set, if this is the entry that has it.
fn name(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    match Entry::read(key, value) {
        Some(Entry::Name(name)) => Some(name.to_vec()),
        _ => None,
    }
}

/// The first number that no set has had, as far as anything is left of it.
fn next_id(store: &impl Store) -> Result<u64, StoreError> {
    let Some(tree) = store.tree() else { return Ok(1) };
    let reserved = tree
        .get_with(&next_id_key(), |bytes| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0))?;
    let mut last = None;
    tree.descend(.., |key, _| {
        last = SetId::of_entry(key);
        ControlFlow::Break(())
    })?;
    Ok(reserved.unwrap_or(1).max(last.map_or(1, |last| last.0 + 1)))
}
