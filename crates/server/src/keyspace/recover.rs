//! Opening: completes the changes that a crash interrupted.

use std::ops::ControlFlow;

use remanent_structures::OrderedMap;

use super::error::damaged;
use super::gate::Gate;
use super::ids::Ids;
use super::intent::{Direction, Intent};
use super::layout::{intents, shard_of_intent};
use super::shard::{Shard, Unfinished};
use super::sweep::Gone;
use super::tree::span;
use super::{Keyspace, SHARDS};
use crate::store::{Store, StoreError};

impl<S: Store> Keyspace<S> {
    /// Opens the keys that `store` holds.
    ///
    /// Completes each change that a crash interrupted, or takes it back where the store has no room
    /// for it or refuses it. There is one for each of 256 shards at most.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written, or contradicts itself.
    pub fn open(store: S) -> Result<Self, StoreError> {
        let shards = (0..SHARDS).map(|index| Gate::new(Shard::new(index))).collect();
        let ids = Gate::new(Ids::open(&store)?);
        let keyspace = Keyspace { store, shards, ids, gone: Gone::default() };
        keyspace.complete_intents()?;
        Ok(keyspace)
    }

    fn complete_intents(&self) -> Result<(), StoreError> {
        let Some(tree) = self.store.tree() else { return Ok(()) };
        let (start, end) = intents();
        let mut found = Vec::new();
        tree.ascend(span(&start, &end), |key, value| {
            found.push((shard_of_intent(key), Intent::decode(value)));
            ControlFlow::Continue(())
        })?;
        let is_any = !found.is_empty();
        for (index, intent) in found {
            let damage = || damaged("the intent of a change is not readable");
            let shard = index.and_then(|index| self.shards.get(index)).ok_or_else(damage)?;
            let intent = intent.ok_or_else(damage)?;
            self.complete(&mut shard.write(&self.store), intent)?;
        }
        if is_any {
            // The intents are gone, so the next crash must not undo what clients find from now on.
            self.store.sync()?;
        }
        Ok(())
    }

    /// Completes a change, or takes it back where there is no room for it or the store refuses it.
    fn complete(&self, shard: &mut Shard, intent: Intent) -> Result<(), StoreError> {
        shard.unfinished = Some(Unfinished { intent, direction: Direction::Forward });
        match self.finish(shard) {
            // A full pool may have room for the way back alone, or for neither until something is
            // removed. What the store refused before the crash, it refuses again.
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::warn!(%error, "a change that a crash interrupted is taken back");
                let forward = shard.unfinished.take();
                shard.unfinished = forward.map(|Unfinished { intent, .. }| Unfinished {
                    intent: intent.reversed(),
                    direction: Direction::Back,
                });
                match self.finish(shard) {
                    Err(StoreError::Full) => Ok(()),
                    done => done,
                }
            }
            done => done,
        }
    }
}
