//! What is changed in a sorted set.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::intent::{Intent, MemberChange};
use super::layout::{MEMBER_LEN_MAX, SetId, intent_key, next_id_key};
use super::ranks::span;
use super::view::SetView;
use super::{KeyError, Keyspace, Need, Score, Shard};
use crate::store::{Change, Store, StoreError};

/// Numbers of sets that are reserved at a time.
const IDS_RESERVED: u64 = 1024;
/// Members that are removed with their set in one go.
const REMOVED_BATCH: usize = 256;

/// Changes to one sorted set that are collected, to be made all at once.
pub(crate) struct SetEdit<'a, T> {
    /// The set as it was; `None` when there is none.
    view: Option<SetView<'a, T>>,
    changes: BTreeMap<Vec<u8>, Scores>,
}

#[derive(Clone, Copy, Debug)]
struct Scores {
    old: Option<Score>,
    new: Option<Score>,
}

impl<'a, T: OrderedMap<[u8], [u8]>> SetEdit<'a, T> {
    /// The set as it was before; `None` when there is none.
    pub(crate) fn before(&self) -> Option<&SetView<'a, T>> {
        self.view.as_ref()
    }

    /// The score that `member` has, with the changes that were collected.
    pub(crate) fn score(&self, member: &[u8]) -> Result<Option<Score>, KeyError> {
        if let Some(scores) = self.changes.get(member) {
            return Ok(scores.new);
        }
        self.view.as_ref().map_or(Ok(None), |view| view.score(member))
    }

    /// Gives `member` a score, or takes it away; `present` is the one that it has.
    pub(crate) fn set(
        &mut self,
        member: &[u8],
        present: Option<Score>,
        new: Option<Score>,
    ) -> Result<(), KeyError> {
        if member.len() > MEMBER_LEN_MAX {
            return Err(KeyError::MemberTooLong);
        }
        if let Some(scores) = self.changes.get_mut(member) {
            scores.new = new;
        } else {
            self.changes.insert(member.to_vec(), Scores { old: present, new });
        }
        Ok(())
    }

    fn into_changes(self) -> Vec<MemberChange> {
        let is_change = |scores: &Scores| match (scores.old, scores.new) {
            (Some(old), Some(new)) => !old.is_identical(new),
            (old, new) => old.is_some() || new.is_some(),
        };
        let changes = self.changes.into_iter().filter(|(_, scores)| is_change(scores));
        changes.map(|(member, Scores { old, new })| MemberChange { member, old, new }).collect()
    }
}

impl<S: Store> Keyspace<S> {
    /// Has `edit` collect changes to the set `name`, and makes them all, as one step. A set that is not there begins
    /// with its first member, and one that has none left ends.
    pub(crate) fn edit_set<R>(
        &self,
        name: &[u8],
        need: Need,
        edit: impl FnOnce(&mut SetEdit<'_, S::Tree>) -> Result<R, KeyError>,
    ) -> Result<R, KeyError> {
        let index = self.shard_index(name);
        let mut shard = self.shards[index].write(&self.store);
        self.finish(&mut shard)?;
        let set = self.set(name)?;
        let view = match set {
            None => None,
            Some(set) => {
                let ranks = match need {
                    Need::Ranks => Some(self.ranks(&mut shard, set)?),
                    Need::Entries => None,
                };
                Some(SetView { set, tree: self.tree()?, ranks })
            }
        };
        let mut collected = SetEdit { view, changes: BTreeMap::new() };
        let result = edit(&mut collected)?;
        let changes = collected.into_changes();
        if changes.is_empty() {
            return Ok(result);
        }
        let is_new = set.is_none();
        let set = set.map_or_else(|| self.new_set(), Ok)?;
        self.commit(&mut shard, index, Intent { set, name: name.to_vec(), is_new, changes })?;
        Ok(result)
    }

    /// A number for a set to come.
    fn new_set(&self) -> Result<SetId, StoreError> {
        let mut ids = self.ids.write(&self.store);
        if ids.next >= ids.reserved {
            let reserved = ids.next + IDS_RESERVED;
            self.store.create_tree()?.put(&next_id_key(), &reserved.to_le_bytes())?;
            ids.reserved = reserved;
        }
        ids.next += 1;
        Ok(SetId(ids.next - 1))
    }

    /// Makes a change, or none of it.
    fn commit(&self, shard: &mut Shard, index: usize, intent: Intent) -> Result<(), StoreError> {
        let (tree, key) = (self.tree()?, intent_key(index as u16));
        // This commits: the intent is durable before anything of it is done.
        tree.put(&key, &intent.encode())?;
        let done = self.apply(&intent);
        if let Err(error) = done {
            let back = intent.reversed();
            if self.apply(&back).is_ok() && tree.discard(&key).is_ok() {
                return Err(error);
            }
            shard.ranks.remove(&back.set);
            shard.unfinished = Some((index, back));
            return Err(error);
        }
        self.count(shard, &intent);
        // Should this fail, the intent is done again before the next change, and changes nothing.
        if tree.discard(&key).is_err() {
            shard.unfinished = Some((index, intent));
        }
        Ok(())
    }

    /// Completes what an earlier change has left, if anything.
    pub(super) fn finish(&self, shard: &mut Shard) -> Result<(), StoreError> {
        if let Some((index, intent)) = &shard.unfinished {
            self.apply(intent)?;
            self.tree()?.discard(&intent_key(*index as u16))?;
            shard.unfinished = None;
        }
        Ok(())
    }

    /// Does what an intent says, whatever part of it was done before.
    ///
    /// What needs room comes first, and what gives some back last.
    pub(super) fn apply(&self, intent: &Intent) -> Result<(), StoreError> {
        let Intent { set, ref name, is_new, ref changes } = *intent;
        let tree = self.tree()?;
        if is_new {
            tree.put(&set.name_key(), name)?;
        } else if !self.has_set(name, set)? {
            // Someone else has taken the whole set away, and waits to remove what is left of it.
            return self.sweep_set(set);
        }
        for MemberChange { member, new, .. } in changes {
            if let Some(score) = new {
                tree.put(&set.score_key(*score, member), score.note())?;
                tree.put(&set.member_key(member), &score.to_bytes())?;
            }
        }
        if is_new && !self.name_set(name, set)? {
            return self.sweep_set(set);
        }
        let mut is_smaller = false;
        for MemberChange { member, old, new } in changes {
            if let Some(old) = old
                && new.is_none_or(|new| new.to_ordered() != old.to_ordered())
            {
                tree.discard(&set.score_key(*old, member))?;
            }
            if new.is_none() {
                tree.discard(&set.member_key(member))?;
                is_smaller = true;
            }
        }
        if is_smaller && self.is_empty_set(set)? {
            self.store.modify(name, |stored| {
                let is_ours = stored.and_then(SetId::referred_to) == Some(set);
                (if is_ours { Change::<&[u8]>::Remove } else { Change::Keep }, ())
            })?;
            self.remove_rest(set);
        }
        Ok(())
    }

    pub(super) fn has_set(&self, name: &[u8], set: SetId) -> Result<bool, StoreError> {
        Ok(self.store.get_with(name, SetId::referred_to)?.flatten() == Some(set))
    }

    /// Enters the set in the store; false when something else has its name.
    fn name_set(&self, name: &[u8], set: SetId) -> Result<bool, StoreError> {
        self.store.modify(name, |stored| match stored {
            None => (Change::Put(set.reference()), true),
            Some(stored) => (Change::Keep, SetId::referred_to(stored) == Some(set)),
        })
    }

    fn is_empty_set(&self, set: SetId) -> Result<bool, StoreError> {
        let mut is_empty = true;
        self.tree()?.ascend(span(&set.scores_start(), &set.end()), |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    /// Takes note of a change in the ranks of the set, if they are known.
    fn count(&self, shard: &mut Shard, intent: &Intent) {
        let set = intent.set;
        let Some(ranks) = shard.ranks.get_mut(&set) else { return };
        for MemberChange { member, old, new } in &intent.changes {
            let keys = [old, new].map(|score| score.map(|score| set.score_key(score, member)));
            if keys[0] == keys[1] {
                continue;
            }
            if let Some(key) = &keys[0] {
                ranks.removed(key);
            }
            if let Some(key) = &keys[1] {
                ranks.added(key);
            }
        }
        let divided = self.tree().and_then(|tree| Ok(ranks.divide_long(set, tree)?));
        if ranks.len() == 0 || divided.is_err() {
            shard.ranks.remove(&set);
        }
    }

    /// Removes the members of a set that the store does not name any more.
    pub(super) fn remove_members(&self, name: &[u8], set: SetId) {
        let mut shard = self.shards[self.shard_index(name)].write(&self.store);
        shard.ranks.remove(&set);
        self.remove_rest(set);
    }

    /// Removes what is left of a set that the store does not name any more. Where that fails, the next opening sees
    /// to it.
    fn remove_rest(&self, set: SetId) {
        // The name must not come back when the members are gone.
        if let Err(error) = self.store.sync().and_then(|()| self.sweep_set(set)) {
            tracing::warn!(%error, "the members of a removed sorted set still take up room");
        }
    }

    /// Removes all entries of a set, its name last: as long as that is there, the others are found.
    pub(super) fn sweep_set(&self, set: SetId) -> Result<(), StoreError> {
        let tree = self.tree()?;
        let (start, end) = (set.name_key(), set.end());
        loop {
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
                return Ok(());
            }
        }
    }

    /// Removes the members of all sets, which the store does not name any more. All shards are locked.
    pub(super) fn clear_members(&self, tree: &S::Tree) -> Result<(), StoreError> {
        let mut ids = self.ids.write(&self.store);
        // The entry that reserves numbers goes, too.
        ids.reserved = 0;
        tree.clear()?;
        Ok(())
    }
}
