//! What is changed in a sorted set.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::error::KeyError;
use super::intent::{Intent, MemberChange};
use super::sorted_set::layout::{MEMBER_LEN_MAX, SetId, intent_key, next_id_key};
use super::sorted_set::ranks::span;
use super::sorted_set::view::SetView;
use super::{Keyspace, Need, Score, Shard};
use crate::memory::Share;
use crate::store::{Change, Store, StoreError};

/// Numbers of sets that are reserved at a time.
const IDS_RESERVED: u64 = 1024;

/// Changes to one sorted set that are collected, to be made all at once.
pub(crate) struct SetEdit<'a, T> {
    /// The set as it was; `None` when there is none.
    view: Option<SetView<'a, T>>,
    changes: BTreeMap<Vec<u8>, Scores>,
    /// What the changes take of the clients' memory.
    share: Share,
}

/// Bytes that a change takes besides the member's, which it copies: in the collection, and in the intent.
const CHANGE_OVERHEAD: usize = 192;
/// How many copies of a member there are at a time.
const MEMBER_COPIES: usize = 3;

/// Whether a change is made, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Back,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    Done,
    /// The set is gone, or something else has its name: nothing is left of it.
    Superseded,
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
            if !self.share.grow(MEMBER_COPIES * member.len() + CHANGE_OVERHEAD) {
                return Err(KeyError::NoMemory);
            }
            self.changes.insert(member.to_vec(), Scores { old: present, new });
        }
        Ok(())
    }

    fn into_changes(self) -> (Vec<MemberChange>, Share) {
        let is_change = |scores: &Scores| match (scores.old, scores.new) {
            (Some(old), Some(new)) => !old.is_identical(new),
            (old, new) => old.is_some() || new.is_some(),
        };
        let changes = self.changes.into_iter().filter(|(_, scores)| is_change(scores));
        let changes =
            changes.map(|(member, Scores { old, new })| MemberChange { member, old, new });
        (changes.collect(), self.share)
    }
}

impl<S: Store> Keyspace<S> {
    /// Has `edit` collect changes to the set `name`, and makes them all, as one step. A set that is not there begins
    /// with its first member, and one that has none left ends. What it copies meanwhile is of the memory that `share`
    /// takes.
    pub(crate) fn edit_set<R>(
        &self,
        name: &[u8],
        need: Need,
        share: Share,
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
        let mut collected = SetEdit { view, changes: BTreeMap::new(), share };
        let result = edit(&mut collected)?;
        // Given back when all is done.
        let (changes, _share) = collected.into_changes();
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
    fn commit(&self, shard: &mut Shard, index: usize, intent: Intent) -> Result<(), KeyError> {
        let (tree, key) = (self.tree()?, intent_key(index as u16));
        // This commits: the intent is durable before anything of it is done.
        tree.put(&key, &intent.encode())?;
        let (unfinished, result) = match self.apply(&intent, Direction::Forward) {
            Ok(Applied::Done) => {
                self.count(shard, &intent);
                (intent, Ok(()))
            }
            Ok(Applied::Superseded) => (intent.reversed(), Err(KeyError::WrongType)),
            Err(error) => {
                let back = intent.reversed();
                if self.apply(&back, Direction::Back).is_err() {
                    shard.ranks.remove(&back.set);
                    shard.unfinished = Some((index, back, Direction::Back));
                    // What is written down still says forward: the next opening tries that first.
                    return Err(KeyError::Undecided(error));
                }
                (back, Err(error.into()))
            }
        };
        // Should this fail, what was done last is done again before the next change, and changes nothing.
        if tree.discard(&key).is_err() {
            shard.unfinished = Some((index, unfinished, Direction::Forward));
        }
        result
    }

    /// Completes what an earlier change has left, if anything.
    pub(super) fn finish(&self, shard: &mut Shard) -> Result<(), StoreError> {
        if let Some((index, intent, direction)) = &shard.unfinished {
            self.apply(intent, *direction)?;
            self.tree()?.discard(&intent_key(*index as u16))?;
            shard.unfinished = None;
        }
        Ok(())
    }

    /// Does what an intent says, whatever part of it was done before.
    ///
    /// Forwards, what needs room comes first, and what gives some back last; on the way back it is the other way
    /// round, so that no more room is needed than there was.
    pub(super) fn apply(
        &self,
        intent: &Intent,
        direction: Direction,
    ) -> Result<Applied, StoreError> {
        let Intent { set, ref name, is_new, ref changes } = *intent;
        let tree = self.tree()?;
        if is_new {
            put_unless_same(tree, &set.name_key(), name)?;
        } else if !self.has_set(name, set)? {
            // It was taken away before its members were, or never had its name. The name must not come back.
            self.store.sync()?;
            return self.sweep_set(set).map(|()| Applied::Superseded);
        }
        if direction == Direction::Back {
            discard_old(tree, set, changes)?;
        }
        for MemberChange { member, new, .. } in changes {
            if let Some(score) = new {
                put_unless_same(tree, &set.score_key(*score, member), score.note())?;
                put_unless_same(tree, &set.member_key(member), &score.to_bytes())?;
            }
        }
        if is_new && !self.name_set(name, set)? {
            return self.sweep_set(set).map(|()| Applied::Superseded);
        }
        if direction == Direction::Forward {
            discard_old(tree, set, changes)?;
        }
        if changes.iter().any(|change| change.new.is_none()) && self.is_empty_set(set)? {
            self.store.modify(name, |stored| {
                let is_ours = stored.and_then(SetId::referred_to) == Some(set);
                (if is_ours { Change::<&[u8]>::Remove } else { Change::Keep }, ())
            })?;
            // The name must not come back when the members are gone.
            self.store.sync()?;
            self.sweep_set(set)?;
        }
        Ok(Applied::Done)
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

    /// Removes the members of all sets, which the store does not name any more. All shards are locked.
    pub(super) fn clear_members(&self, tree: &S::Tree) -> Result<(), StoreError> {
        let mut ids = self.ids.write(&self.store);
        // The entry that reserves numbers goes, too.
        ids.reserved = 0;
        tree.clear()?;
        Ok(())
    }
}

/// Puts an entry, which needs no room when it is there.
fn put_unless_same(
    tree: &impl OrderedMap<[u8], [u8]>,
    key: &[u8],
    value: &[u8],
) -> remanent_structures::Result<()> {
    tree.modify(key, |found| match found {
        Some(found) if found == value => (Change::Keep, ()),
        _ => (Change::Put(value), ()),
    })
}

/// Removes what changes make obsolete.
fn discard_old(
    tree: &impl OrderedMap<[u8], [u8]>,
    set: SetId,
    changes: &[MemberChange],
) -> remanent_structures::Result<()> {
    for MemberChange { member, old, new } in changes {
        if let Some(old) = old
            && new.is_none_or(|new| new.to_ordered() != old.to_ordered())
        {
            tree.discard(&set.score_key(*old, member))?;
        }
        if new.is_none() {
            tree.discard(&set.member_key(member))?;
        }
    }
    Ok(())
}
