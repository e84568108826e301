//! Editing a sorted set: a command collects changes, which are then committed as one step.

use std::collections::BTreeMap;

use remanent_structures::OrderedMap;

use super::super::Keyspace;
use super::super::error::KeyError;
use super::super::intent::Intent;
use super::super::types::{self, CollectionType};
use super::changes::{Changes, MemberChange};
use super::layout::{MEMBER_LEN_MAX, SetId};
use super::score::Score;
use super::view::{Need, View};
use crate::memory::Share;
use crate::store::{Store, StoreError};

/// Changes to one sorted set, collected to be made together.
pub(crate) struct Edit<'a, T> {
    /// The set before the changes; `None` when there is none.
    view: Option<View<'a, T>>,
    changes: BTreeMap<Vec<u8>, Scores>,
    /// Whether there is known to be a member that no change names.
    has_others: bool,
    /// The clients' memory that the changes take.
    share: Share,
}

/// Bytes that a change takes besides copies of the member: in the collection, and in the intent.
const CHANGE_OVERHEAD: usize = 192;
/// Copies of a member that there are at a time.
const MEMBER_COPIES: usize = 3;

/// A member's scores before and after.
#[derive(Clone, Copy, Debug)]
struct Scores {
    old: Option<Score>,
    new: Option<Score>,
}

impl<'a, T: OrderedMap<[u8], [u8]>> Edit<'a, T> {
    /// The set before the changes; `None` when there is none.
    pub(crate) fn before(&self) -> Option<&View<'a, T>> {
        self.view.as_ref()
    }

    /// The score of `member` after the changes that were collected so far.
    pub(crate) fn score(&self, member: &[u8]) -> Result<Option<Score>, KeyError> {
        if let Some(scores) = self.changes.get(member) {
            return Ok(scores.new);
        }
        self.view.as_ref().map_or(Ok(None), |view| view.score(member))
    }

    /// Says that the set has a member that no change names, nor any later one of this edit: then
    /// nobody has to look whether it ends.
    pub(crate) fn keeps_a_member(&mut self) {
        self.has_others = true;
    }

    /// Collects a change: `member` gets the score `new`, or is removed where that is `None`.
    /// `present` is what [`score`](Edit::score) returns for it.
    pub(crate) fn set(
        &mut self,
        member: &[u8],
        present: Option<Score>,
        new: Option<Score>,
    ) -> Result<(), KeyError> {
        if member.len() > MEMBER_LEN_MAX {
            let what = format!("a member of a sorted set has at most {MEMBER_LEN_MAX} bytes");
            return Err(StoreError::Refused(what).into());
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

    /// The changes that change anything.
    fn into_changes(self) -> (Changes, Share) {
        let is_change = |scores: &Scores| match (scores.old, scores.new) {
            (Some(old), Some(new)) => !old.is_identical(new),
            (old, new) => old.is_some() || new.is_some(),
        };
        let changes = self.changes.into_iter().filter(|(_, scores)| is_change(scores));
        let changes =
            changes.map(|(member, Scores { old, new })| MemberChange { member, old, new });
        (Changes(changes.collect()), self.share)
    }
}

impl<S: Store> Keyspace<S> {
    /// Calls `edit` to collect changes to the sorted set `name`, and commits them as one step.
    ///
    /// Adding the first member creates the set, and removing the last one ends it. What is copied
    /// meanwhile counts as memory of `share`.
    pub(crate) fn edit_sorted_set<R>(
        &self,
        name: &[u8],
        need: Need,
        share: Share,
        edit: impl FnOnce(&mut Edit<'_, S::Tree>) -> Result<R, KeyError>,
    ) -> Result<R, KeyError> {
        let mut shard = self.lock(name)?;
        let found = self.collection(name, CollectionType::SortedSet)?;
        let view = match found {
            None => None,
            Some(id) => Some(self.view(&mut shard, SetId(id), need)?),
        };
        let mut collected = Edit { view, changes: BTreeMap::new(), has_others: false, share };
        let result = edit(&mut collected)?;
        let has_others = collected.has_others;
        // The memory is given back when the changes are committed.
        let (changes, _share) = collected.into_changes();
        if changes.0.is_empty() {
            return Ok(result);
        }
        let is_new = found.is_none();
        let id = found.map_or_else(|| self.new_id(), Ok)?;
        let changes = types::Changes::SortedSet(changes);
        self.commit(&mut shard, Intent { id, name: name.to_vec(), is_new, changes }, has_others)?;
        Ok(result)
    }
}
