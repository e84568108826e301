//! Opening: completes the changes that a crash interrupted.

use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::error::damaged;
use super::gate::Gate;
use super::ids::Ids;
use super::intent::{Direction, Intent};
use super::layout::{intent_key, intents, shard_of_intent};
use super::shard::{Shard, Unfinished};
use super::sweep::Gone;
use super::tree::span;
use super::{Keyspace, SHARDS};
use crate::store::{Store, StoreError};

impl<S: Store> Keyspace<S> {
    /// Opens the keys that `store` holds.
    ///
    /// Completes each change that a crash interrupted, or takes it back where the store has no room
    /// for it or refuses it. There is one for each of 256 shards at most. Where one is damaged, or
    /// meets damage, commands on collections of that shard are refused, and others are not.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written at all.
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
        let read = tree.ascend(span(&start, &end), |key, _| {
            found.extend(shard_of_intent(key));
            ControlFlow::Continue(())
        });
        // One that is damaged hides those behind it: then every shard is asked.
        if read.is_err() {
            found = (0..self.shards.len()).collect();
        }
        for shard in found.iter().filter_map(|&index| self.shards.get(index)) {
            let mut shard = shard.write(&self.store);
            let completed = self.complete_found(&mut shard, tree);
            if let Some(fault) = self.store.fault() {
                return Err(StoreError::Failed(fault));
            }
            if let Err(error) = completed {
                tracing::error!(%error, "the sorted sets of a 256th of all keys are refused");
                shard.unfinished.get_or_insert(Unfinished::Unknown(error));
            }
        }
        if !found.is_empty() {
            // The intents are gone, so the next crash must not undo what clients find from now on.
            self.store.sync()?;
        }
        Ok(())
    }

    /// Completes the change of a shard, if there is one.
    fn complete_found(&self, shard: &mut Shard, tree: &S::Tree) -> Result<(), StoreError> {
        let key = intent_key(shard.index);
        let Some(intent) = tree.get_with(&key, Intent::decode)? else { return Ok(()) };
        let intent = intent.ok_or_else(|| damaged("the intent of a change is not readable"))?;
        let name = intent.name.escape_ascii().to_string();
        self.follow(shard, tree, intent).map_err(|error| match error {
            StoreError::Failed(why) => StoreError::Failed(format!(
                "the last change to the sorted set {name} cannot be followed: {why}; remove {name} \
                 with DEL and start the server again, or restore the pool from a backup"
            )),
            error => error,
        })
    }

    /// Completes a change, unless its collection is gone.
    fn follow(&self, shard: &mut Shard, tree: &S::Tree, intent: Intent) -> Result<(), StoreError> {
        // All that is left of such a collection is removed by the sweeper, however much it is.
        if !intent.is_new && !self.names(&intent.name, intent.id)? {
            tree.discard(&intent_key(shard.index))?;
            return Ok(());
        }
        // An intent from an earlier time would undo the changes that came after it.
        if !intent.changes.fit(intent.id, tree)? {
            let what = "its members are neither as before the change nor as after it";
            return Err(StoreError::Failed(what.to_owned()));
        }
        self.complete(shard, intent)
    }

    /// Completes a change, or takes it back where there is no room for it or the store refuses it.
    fn complete(&self, shard: &mut Shard, intent: Intent) -> Result<(), StoreError> {
        shard.unfinished = Some(Unfinished::Change { intent, direction: Direction::Forward });
        match self.finish(shard) {
            // A full pool may have room for the way back alone, or for neither until something is
            // removed. What the store refused before the crash, it refuses again.
            Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                tracing::warn!(%error, "a change that a crash interrupted is taken back");
                if let Some(Unfinished::Change { intent, direction }) = &mut shard.unfinished {
                    (*intent, *direction) = (intent.reversed(), Direction::Back);
                }
                match self.finish(shard) {
                    Err(StoreError::Full) => Ok(()),
                    done => done,
                }
            }
            done => done,
        }
    }
}
