//! What is read of a sorted set.

use std::ops::{Bound, ControlFlow};

use remanent_structures::OrderedMap;

use super::super::error::{KeyError, damaged};
use super::super::{Keyspace, Need, RANKS_MAX, Shard};
use super::layout::{Entry, MEMBER_LEN_MAX, Score, SetId};
use super::ranks::{Place, Ranks, span};
use crate::store::{Store, StoreError};

/// A sorted set, while nobody changes it.
pub(crate) struct SetView<'a, T> {
    pub(in crate::keyspace) set: SetId,
    pub(in crate::keyspace) tree: &'a T,
    /// There when they were asked for, or are known anyway.
    pub(in crate::keyspace) ranks: Option<&'a Ranks>,
}

/// Some of the members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Range {
    /// Those with a score between two.
    Score(Bound<Score>, Bound<Score>),
    /// Those between two in their own order. Where scores differ, it is what Redis makes of a short set: from the first
    /// member in the set's order that is not below the range, up to the next one that is above it.
    Lex(LexLimit, LexLimit),
}

/// One end of a range of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LexLimit {
    /// Before all others.
    Least,
    /// After all others.
    Greatest,
    Included(Vec<u8>),
    Excluded(Vec<u8>),
}

impl LexLimit {
    /// Whether a range that begins here has `member`, as far as its beginning goes.
    fn admits_from_below(&self, member: &[u8]) -> bool {
        match self {
            LexLimit::Least => true,
            LexLimit::Greatest => false,
            LexLimit::Included(limit) => member >= limit.as_slice(),
            LexLimit::Excluded(limit) => member > limit.as_slice(),
        }
    }

    /// Whether a range that ends here has `member`, as far as its end goes.
    fn admits_from_above(&self, member: &[u8]) -> bool {
        match self {
            LexLimit::Least => false,
            LexLimit::Greatest => true,
            LexLimit::Included(limit) => member <= limit.as_slice(),
            LexLimit::Excluded(limit) => member < limit.as_slice(),
        }
    }
}

/// Whether a range between two ends of members can have any.
fn is_lex_range(low: &LexLimit, high: &LexLimit) -> bool {
    match (low, high) {
        (LexLimit::Greatest, _) | (_, LexLimit::Least) => false,
        (LexLimit::Least, _) | (_, LexLimit::Greatest) => true,
        (LexLimit::Included(low), LexLimit::Included(high)) => low <= high,
        (
            LexLimit::Included(low) | LexLimit::Excluded(low),
            LexLimit::Included(high) | LexLimit::Excluded(high),
        ) => low < high,
    }
}

/// Which members of a range are wanted, and in what order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// From the greatest to the least.
    pub(crate) backwards: bool,
    pub(crate) skip: u64,
    pub(crate) limit: u64,
}

impl Selection {
    pub(crate) const ALL: Selection = Selection { backwards: false, skip: 0, limit: u64::MAX };
}

impl<S: Store> Keyspace<S> {
    /// Lets `read` see the set `name`; `None` when there is none.
    pub(crate) fn read_set<R>(
        &self,
        name: &[u8],
        need: Need,
        read: impl FnOnce(&SetView<'_, S::Tree>) -> Result<R, KeyError>,
    ) -> Result<Option<R>, KeyError> {
        let gate = &self.shards[self.shard_index(name)];
        {
            let shard = gate.read(&self.store);
            if shard.unfinished.is_none() {
                let Some(set) = self.set(name)? else { return Ok(None) };
                let ranks = shard.ranks.get(&set);
                if need == Need::Entries || ranks.is_some() {
                    return read(&SetView { set, tree: self.tree()?, ranks }).map(Some);
                }
            }
        }
        let mut shard = gate.write(&self.store);
        self.finish(&mut shard)?;
        let Some(set) = self.set(name)? else { return Ok(None) };
        let ranks = match need {
            Need::Ranks => Some(self.ranks(&mut shard, set)?),
            Need::Entries => None,
        };
        read(&SetView { set, tree: self.tree()?, ranks }).map(Some)
    }

    /// The set that the store has under `name`.
    pub(in crate::keyspace) fn set(&self, name: &[u8]) -> Result<Option<SetId>, KeyError> {
        match self.store.get_with(name, SetId::referred_to)? {
            None => Ok(None),
            Some(None) => Err(KeyError::WrongType),
            Some(set) => Ok(set),
        }
    }

    /// The counts of a set, made if they are not there.
    pub(in crate::keyspace) fn ranks<'s>(
        &self,
        shard: &'s mut Shard,
        set: SetId,
    ) -> Result<&'s Ranks, StoreError> {
        if !shard.ranks.contains_key(&set) {
            let ranks = Ranks::count(set, self.tree()?)?;
            if shard.ranks.len() >= RANKS_MAX {
                shard.ranks.clear();
            }
            shard.ranks.insert(set, ranks);
        }
        Ok(&shard.ranks[&set])
    }
}

impl<T: OrderedMap<[u8], [u8]>> SetView<'_, T> {
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

    /// Members of the set. Ranks must have been asked for, as for everything that tells a number or takes one.
    pub(crate) fn len(&self) -> u64 {
        self.counted().len()
    }

    /// How many members come before `member`, or after it; and its score.
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

    /// Members of a range.
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

    /// The tree's keys that a range comprises: the first, and where they end.
    fn keys(&self, range: &Range) -> Result<(Vec<u8>, Vec<u8>), KeyError> {
        Ok(match range {
            Range::Score(low, high) => {
                let start = match low {
                    Bound::Included(score) => score.to_ordered(),
                    // The infinite have neighbours, too: those of what is not a number.
                    Bound::Excluded(score) => score.to_ordered() + 1,
                    Bound::Unbounded => 0,
                };
                let end = match high {
                    Bound::Included(score) => self.set.scores_from(score.to_ordered() + 1),
                    Bound::Excluded(score) => self.set.scores_from(score.to_ordered()),
                    Bound::Unbounded => self.set.end(),
                };
                (self.set.scores_from(start), end)
            }
            Range::Lex(low, high) => {
                let score = self.outermost(false)?.map_or(Score::ZERO, |(_, score)| score);
                let key = |member: &[u8]| self.set.score_key(score, member);
                let behind = |member: &[u8]| {
                    let mut key = key(member);
                    key.push(0);
                    key
                };
                let start = match low {
                    LexLimit::Least => self.set.scores_start(),
                    LexLimit::Greatest => self.set.end(),
                    LexLimit::Included(member) => key(member),
                    LexLimit::Excluded(member) => behind(member),
                };
                let end = match high {
                    LexLimit::Least => self.set.scores_start(),
                    LexLimit::Greatest => self.set.end(),
                    LexLimit::Included(member) => behind(member),
                    LexLimit::Excluded(member) => key(member),
                };
                (start, end)
            }
        })
    }

    /// The first member, or the last one.
    fn outermost(&self, backwards: bool) -> Result<Option<(Vec<u8>, Score)>, KeyError> {
        let mut found = None;
        let one = Selection { backwards, limit: 1, ..Selection::ALL };
        self.visit_end(one, |member, score| found = Some((member.to_vec(), score)))?;
        Ok(found)
    }

    /// Whether all members have the same score, so that they lie in their own order.
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

    /// Visits what Redis finds between two members in a short set whose scores differ: it goes through the set in its
    /// order, skips what is before the range, and stops behind it.
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
        self.walk(&self.set.scores_start(), &self.set.end(), backwards, |member, score| {
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

    /// Visits the least members, or the greatest, and those next to them.
    pub(crate) fn visit_end(
        &self,
        selection: Selection,
        visit: impl FnMut(&[u8], Score),
    ) -> Result<(), KeyError> {
        self.visit_keys(&self.set.scores_start(), &self.set.end(), selection, visit)
    }

    /// Visits `limit` members from that of rank `start` on; backwards, the last one has rank 0.
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
        let place = self.counted().find(rank, self.set);
        let Place { start, end, before, from } =
            place.ok_or_else(|| damaged("members were counted that are not there"))?;
        if backwards {
            let selection = Selection { backwards, skip: from - 1, limit };
            return self.visit_keys(&self.set.scores_start(), &end, selection, visit);
        }
        let selection = Selection { backwards, skip: before, limit };
        self.visit_keys(&start, &self.set.end(), selection, visit)
    }

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

    /// Visits the members between two keys by score until `visit` has enough.
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

    /// Visits about `limit` members from `cursor` on, in no order that means something, and returns the cursor for the
    /// next call, or 0 when that was all. Members that are there throughout are visited exactly once.
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
            // Those of one hash are visited together: there is no cursor between them.
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
