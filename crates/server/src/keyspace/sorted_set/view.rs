//! Reading a sorted set.

use std::ops::ControlFlow;

use remanent_structures::OrderedMap;

use super::super::Keyspace;
use super::super::error::{KeyError, damaged};
use super::super::shard::Shard;
use super::super::tree::span;
use super::super::types::CollectionType;
use super::layout::{Entry, MEMBER_LEN_MAX, SetId};
use super::range::{LexLimit, Range, Selection, is_lex_range, lex_keys, score_keys};
use super::ranks::{Place, Ranks};
use super::score::Score;
use crate::store::Store;

/// A sorted set that nobody changes as long as the view is there.
pub(crate) struct View<'a, T> {
    set: SetId,
    tree: &'a T,
    /// There if they were asked for, or were known anyway.
    ranks: Option<&'a Ranks>,
}

/// What a command needs to know of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The entries alone.
    Entries,
    /// The ranks of members as well, or how many members there are. They are counted if they are
    /// not known.
    Ranks,
}

impl<S: Store> Keyspace<S> {
    /// Calls `read` with the sorted set `name`; `None` when there is no such key.
    pub(crate) fn read_sorted_set<R>(
        &self,
        name: &[u8],
        need: Need,
        read: impl FnOnce(&View<'_, S::Tree>) -> Result<R, KeyError>,
    ) -> Result<Option<R>, KeyError> {
        if let Some(shard) = self.lock_shared(name) {
            let found = self.collection(name, CollectionType::SortedSet)?;
            let Some(set) = found.map(SetId) else { return Ok(None) };
            let ranks = shard.caches.sorted_sets.get(set);
            if need == Need::Entries || ranks.is_some() {
                return read(&View { set, tree: self.tree()?, ranks }).map(Some);
            }
        }
        let mut shard = self.lock(name)?;
        let found = self.collection(name, CollectionType::SortedSet)?;
        let Some(set) = found.map(SetId) else { return Ok(None) };
        read(&self.view(&mut shard, set, need)?).map(Some)
    }

    /// A view of a set whose shard is locked for writing.
    pub(super) fn view<'a>(
        &'a self,
        shard: &'a mut Shard,
        set: SetId,
        need: Need,
    ) -> Result<View<'a, S::Tree>, KeyError> {
        let tree = self.tree()?;
        let ranks = match need {
            Need::Ranks => Some(shard.caches.sorted_sets.get_or_count(set, tree)?),
            Need::Entries => None,
        };
        Ok(View { set, tree, ranks })
    }
}

impl<T: OrderedMap<[u8], [u8]>> View<'_, T> {
    /// The score of `member`.
    pub(crate) fn score(&self, member: &[u8]) -> Result<Option<Score>, KeyError> {
        if member.len() > MEMBER_LEN_MAX {
            return Ok(None);
        }
        match self.tree.get_with(&self.set.member_key(member), Score::from_bytes)? {
            None => Ok(None),
            Some(None) => Err(damaged("a member's score is no number").into()),
            Some(score) => Ok(score),
        }
    }

    fn counted(&self) -> &Ranks {
        self.ranks.expect("ranks were asked for")
    }

    /// How many members the set has.
    ///
    /// # Panics
    ///
    /// Panics unless the view was asked for with [`Need::Ranks`], as do all functions that return
    /// or take a rank or a count.
    pub(crate) fn len(&self) -> u64 {
        self.counted().len()
    }

    /// How many members come before `member`, or after it if `backwards`; and its score.
    pub(crate) fn rank(
        &self,
        member: &[u8],
        backwards: bool,
    ) -> Result<Option<(u64, Score)>, KeyError> {
        let Some(score) = self.score(member)? else { return Ok(None) };
        let key = self.set.score_key(score, member);
        let rank = self.counted().position(&key, self.tree)?;
        Ok(Some((if backwards { self.len() - 1 - rank } else { rank }, score)))
    }

    /// How many members a range has.
    pub(crate) fn count(&self, range: &Range) -> Result<u64, KeyError> {
        if let Range::Lex(low, high) = range
            && !self.has_one_score()?
        {
            let mut count = 0;
            self.visit_lex(low, high, Selection::ALL, |_, _| count += 1)?;
            return Ok(count);
        }
        let (start, end) = self.keys(range)?;
        if start >= end {
            return Ok(0);
        }
        let position = |key: &[u8]| self.counted().position(key, self.tree);
        Ok(position(&end)? - position(&start)?)
    }

    /// Start and end of the entries that a range comprises. For a range by bytes, all members have
    /// the same score.
    fn keys(&self, range: &Range) -> Result<(Vec<u8>, Vec<u8>), KeyError> {
        Ok(match range {
            Range::Score(low, high) => score_keys(self.set, low, high),
            Range::Lex(low, high) => {
                let score = self.outermost(false)?.map_or(Score::ZERO, |(_, score)| score);
                lex_keys(self.set, score, low, high)
            }
        })
    }

    /// The first member, or the last one if `backwards`.
    fn outermost(&self, backwards: bool) -> Result<Option<(Vec<u8>, Score)>, KeyError> {
        let mut found = None;
        let one = Selection { backwards, limit: 1, ..Selection::ALL };
        self.visit_end(one, |member, score| found = Some((member.to_vec(), score)))?;
        Ok(found)
    }

    /// Whether all members have the same score, so that the set is in the order of the members'
    /// bytes.
    fn has_one_score(&self) -> Result<bool, KeyError> {
        let score = |backwards| {
            let outermost = self.outermost(backwards)?;
            Ok::<_, KeyError>(outermost.map(|(_, score)| score.to_ordered()))
        };
        Ok(score(false)? == score(true)?)
    }

    /// Visits members of a range.
    pub(crate) fn visit(
        &self,
        range: &Range,
        selection: Selection,
        visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        if let Range::Lex(low, high) = range
            && !self.has_one_score()?
        {
            return self.visit_lex(low, high, selection, visit);
        }
        let (start, end) = self.keys(range)?;
        self.visit_keys(&start, &end, selection, visit)
    }

    /// Visits members of a range by bytes in a set with different scores: see [`Range::Lex`].
    fn visit_lex(
        &self,
        low: &LexLimit,
        high: &LexLimit,
        selection: Selection,
        mut visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        let (Some((first, _)), Some((last, _))) = (self.outermost(false)?, self.outermost(true)?)
        else {
            return Ok(());
        };
        let may_have_any = is_lex_range(low, high)
            && low.admits_from_below(&last)
            && high.admits_from_above(&first);
        let Selection { backwards, skip, limit } = selection;
        if !may_have_any || limit == 0 {
            return Ok(());
        }
        let last = skip.saturating_add(limit);
        let (mut has_begun, mut passed) = (false, 0);
        self.walk(&self.set.scores_start(), &self.set.scores_end(), backwards, |member, score| {
            let (enters, stays) = match backwards {
                false => (low.admits_from_below(member), high.admits_from_above(member)),
                true => (high.admits_from_above(member), low.admits_from_below(member)),
            };
            has_begun |= enters;
            if !has_begun {
                return ControlFlow::Continue(());
            }
            if !stays {
                return ControlFlow::Break(());
            }
            passed += 1;
            if passed > skip {
                visit(member, score);
            }
            if passed < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    /// Visits members from the first on, or from the last on if the selection is backwards.
    pub(crate) fn visit_end(
        &self,
        selection: Selection,
        visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        self.visit_keys(&self.set.scores_start(), &self.set.scores_end(), selection, visit)
    }

    /// Visits `limit` members from rank `start` on. If `backwards`, the last member has rank 0.
    pub(crate) fn visit_ranks(
        &self,
        start: u64,
        limit: u64,
        backwards: bool,
        visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        if start >= self.len() || limit == 0 {
            return Ok(());
        }
        let rank = if backwards { self.len() - 1 - start } else { start };
        let place = self.counted().find(rank);
        let Place { start, next, before, from } =
            place.ok_or_else(|| damaged("members were counted that are not there"))?;
        let set_end = self.set.scores_end();
        if backwards {
            let selection = Selection { backwards, skip: from - 1, limit };
            let end = next.unwrap_or(&set_end);
            return self.visit_keys(&self.set.scores_start(), end, selection, visit);
        }
        let selection = Selection { backwards, skip: before, limit };
        self.visit_keys(start, &set_end, selection, visit)
    }

    /// Visits the members that are selected of those between two keys by score.
    fn visit_keys(
        &self,
        start: &[u8],
        end: &[u8],
        selection: Selection,
        mut visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        let Selection { backwards, skip, limit } = selection;
        if start >= end || limit == 0 || skip == u64::MAX {
            return Ok(());
        }
        let mut passed = 0;
        let last = skip.saturating_add(limit);
        self.walk(start, end, backwards, |member, score| {
            passed += 1;
            if passed > skip {
                visit(member, score);
            }
            if passed < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    /// Visits the members between two keys by score until `visit` breaks.
    fn walk(
        &self,
        start: &[u8],
        end: &[u8],
        backwards: bool,
        mut visit: impl FnMut(&[u8], Score) -> ControlFlow<()>,
    ) -> Result<(), KeyError> {
        let mut is_damaged = false;
        let visit = |key: &[u8], value: &[u8]| match Entry::read(key, value) {
            Some(Entry::Scored(score, member)) => visit(member, score),
            _ => {
                is_damaged = true;
                ControlFlow::Break(())
            }
        };
        if backwards {
            self.tree.descend(span(start, end), visit)?;
        } else {
            self.tree.ascend(span(start, end), visit)?;
        }
        if is_damaged {
            Err(damaged("a sorted set has an entry that is none").into())
        } else {
            Ok(())
        }
    }

    /// Visits about `limit` members from `cursor` on, in the order of their hashes, and returns the
    /// cursor for the next call, or 0 after the last member.
    ///
    /// A member that is there throughout is visited exactly once, whatever is added or removed
    /// between calls.
    pub(crate) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&[u8], Score),
    ) -> Result<u64, KeyError> {
        let (start, end) = (self.set.members_from(cursor), self.set.scores_start());
        let (mut visited, mut last, mut next, mut is_damaged) = (0, 0, 0, false);
        self.tree.ascend(span(&start, &end), |key, value| {
            let Some(Entry::Member(hash, member, score)) = Entry::read(key, value) else {
                is_damaged = true;
                return ControlFlow::Break(());
            };
            // Members with the same hash are visited together: there is no cursor between them.
            if visited >= limit && hash != last {
                next = hash;
                return ControlFlow::Break(());
            }
            visit(member, score);
            (visited, last) = (visited + 1, hash);
            ControlFlow::Continue(())
        })?;
        debug_assert!(is_damaged || next == 0 || next > last);
        if is_damaged {
            Err(damaged("a sorted set has a member that is none").into())
        } else {
            Ok(next)
        }
    }
}
