//! Opening: what a crash has left half done.

use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::commit::Direction;
use super::error::damaged;
use super::gate::Gate;
use super::intent::Intent;
use super::sorted_set::layout::{SetId, intents, next_id_key, shard_of_intent};
use super::sorted_set::ranks::span;
use super::sweep::Gone;
use super::{Ids, Keyspace, SHARDS, Shard};
use crate::store::{Store, StoreError};

impl<S: Store> Keyspace<S> {
    /// Opens what `store` holds, and completes what was under way when it was last closed, or takes it back where
    /// there is no room for it or the store refuses it.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written, or contradicts itself.
    pub fn open(store: S) -> Result<Self, StoreError> {
        let shards = (0..SHARDS).map(|_| Gate::new(Shard::default())).collect();
        let next = next_id(&store)?;
        let ids = Gate::new(Ids { next, reserved: 0 });
        let keyspace = Keyspace { store, shards, ids, gone: Gone::default() };
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
        let is_any = !found.is_empty();
        for (key, intent) in found {
            let damage = || damaged("a change of a sorted set is not readable");
            let intent = intent.ok_or_else(damage)?;
            let index = shard_of_intent(&key).filter(|&index| index < SHARDS);
            let index = index.ok_or_else(damage)?;
            let mut shard = self.shards[index].write(&self.store);
            shard.unfinished = Some((index, intent, Direction::Forward));
            match self.finish(&mut shard) {
                // In a full pool it may be that only the way back is open, or that something has to go first. And
                // what the store has refused before the crash it refuses again.
                Err(error @ (StoreError::Full | StoreError::Refused(_))) => {
                    tracing::warn!(%error, "a change of a sorted set is taken back");
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
        if is_any {
            // What clients find after one crash must not go with the next: its intent does not bring it back again.
            self.store.sync()?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use remanent_pmem::{Mapped, Pool};

    use super::super::intent::MemberChange;
    use super::super::sorted_set::layout::{MEMBER_LEN_MAX, Score, intent_key};
    use super::*;
    use crate::store::MapStore;

    #[test]
    fn what_the_store_refuses_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let pool: Pool<Mapped> = Pool::options().create(directory.path().join("pool")).unwrap();
        let store = MapStore::open(&pool).unwrap();
        // As if an earlier release had not known the limit, and was killed.
        let change =
            |len: usize| MemberChange { member: vec![b'm'; len], old: None, new: Score::new(1.0) };
        let changes = vec![change(1), change(MEMBER_LEN_MAX + 1)];
        let intent = Intent { set: SetId(1), name: b"z".to_vec(), is_new: true, changes };
        store.create_tree().unwrap().put(&intent_key(3), &intent.encode()).unwrap();
        drop(store);
        let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
        assert_eq!(keys.contains(b"z"), Ok(false));
        assert_eq!(keys.tree().unwrap().len().unwrap(), 0);
    }
}
