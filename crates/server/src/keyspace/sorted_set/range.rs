//! Ranges of a sorted set's members: what commands ask for, and which entries that comprises.

use std::ops::Bound;

use super::layout::SetId;
use super::score::Score;

/// A range of members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Range {
    /// Members whose score is between two scores.
    Score(Bound<Score>, Bound<Score>),
    /// Members between two others, by their bytes.
    ///
    /// This is the order of a set only if all its members have the same score. If they have not,
    /// the range is what Redis makes of it in a short set: it begins at the first member, in the
    /// order of the set, that is not below the range, and ends before the next one that is above
    /// it.
    Lex(LexLimit, LexLimit),
}

/// One end of a range by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LexLimit {
    /// Before all members.
    Least,
    /// After all members.
    Greatest,
    Included(Vec<u8>),
    Excluded(Vec<u8>),
}

/// Which members of a range are wanted, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Whether they are wanted from the last to the first.
    pub(crate) backwards: bool,
    pub(crate) skip: u64,
    pub(crate) limit: u64,
}

impl Selection {
    pub(crate) const ALL: Selection = Selection { backwards: false, skip: 0, limit: u64::MAX };
}

impl LexLimit {
    /// Whether `member` is not below a range that begins with this limit.
    pub(super) fn admits_from_below(&self, member: &[u8]) -> bool {
        match self {
            LexLimit::Least => true,
            LexLimit::Greatest => false,
            LexLimit::Included(limit) => member >= limit.as_slice(),
            LexLimit::Excluded(limit) => member > limit.as_slice(),
        }
    }

    /// Whether `member` is not above a range that ends with this limit.
    pub(super) fn admits_from_above(&self, member: &[u8]) -> bool {
        match self {
            LexLimit::Least => false,
            LexLimit::Greatest => true,
            LexLimit::Included(limit) => member <= limit.as_slice(),
            LexLimit::Excluded(limit) => member < limit.as_slice(),
        }
    }
}

/// Whether there can be a member between the two limits.
pub(super) fn is_lex_range(low: &LexLimit, high: &LexLimit) -> bool {
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

/// Start and end of the entries by score whose scores are between two.
pub(super) fn score_keys(
    set: SetId,
    low: &Bound<Score>,
    high: &Bound<Score>,
) -> (Vec<u8>, Vec<u8>) {
    let start = match low {
        Bound::Included(score) => score.to_ordered(),
        // There is a next number for infinity, too: the ordered form of a NaN, which no score has.
        Bound::Excluded(score) => score.to_ordered() + 1,
        Bound::Unbounded => 0,
    };
    let end = match high {
        Bound::Included(score) => set.scores_from(score.to_ordered() + 1),
        Bound::Excluded(score) => set.scores_from(score.to_ordered()),
        Bound::Unbounded => set.scores_end(),
    };
    (set.scores_from(start), end)
}

/// Start and end of the entries by score whose members are between two, in a set whose members all
/// have the score `score`.
pub(super) fn lex_keys(
    set: SetId,
    score: Score,
    low: &LexLimit,
    high: &LexLimit,
) -> (Vec<u8>, Vec<u8>) {
    let at = |member: &[u8]| set.score_key(score, member);
    let behind = |member: &[u8]| {
        let mut key = at(member);
        key.push(0);
        key
    };
    let start = match low {
        LexLimit::Least => set.scores_start(),
        LexLimit::Greatest => set.scores_end(),
        LexLimit::Included(member) => at(member),
        LexLimit::Excluded(member) => behind(member),
    };
    let end = match high {
        LexLimit::Least => set.scores_start(),
        LexLimit::Greatest => set.scores_end(),
        LexLimit::Included(member) => behind(member),
        LexLimit::Excluded(member) => at(member),
    };
    (start, end)
}
