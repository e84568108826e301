//! Commands on ranges of members: by rank, by score, or by member.

use std::ops::Bound;

use super::Members;
use crate::command::{Call, Failure, Outcome};
use crate::keyspace::sorted_set::{LexLimit, Need, Range, Score, Selection};
use crate::resp::{parse_f64_limit, parse_i64};
use crate::store::Store;

/// What the ends of a range mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Lex,
}

/// What a command asks that answers a range.
struct Query {
    by: By,
    backwards: bool,
    with_scores: bool,
    skip: i64,
    limit: i64,
}

impl Query {
    /// A query for all members of the range, without their scores.
    fn new(by: By, backwards: bool) -> Self {
        Query { by, backwards, with_scores: false, skip: 0, limit: -1 }
    }

    fn selection(&self) -> Selection {
        Selection {
            backwards: self.backwards,
            // A negative number skips all members.
            skip: u64::try_from(self.skip).unwrap_or(u64::MAX),
            limit: u64::try_from(self.limit).unwrap_or(u64::MAX),
        }
    }
}

/// The first of the ranks from `start` to `stop`, and how many there are. Negative ranks count from
/// the end.
pub(super) fn ranks(start: i64, stop: i64, len: u64) -> (u64, u64) {
    let len = len as i64;
    let from_end = |rank: i64| if rank < 0 { rank.saturating_add(len) } else { rank };
    let start = from_end(start).max(0);
    let stop = from_end(stop).min(len - 1);
    if start > stop { (0, 0) } else { (start as u64, (stop - start + 1) as u64) }
}

fn score_limit(argument: &[u8]) -> Option<Bound<Score>> {
    let (bound, number): (fn(Score) -> Bound<Score>, _) = match argument.strip_prefix(b"(") {
        Some(number) => (Bound::Excluded, number),
        None => (Bound::Included, argument),
    };
    parse_f64_limit(number).and_then(Score::new).map(bound)
}

fn lex_limit(argument: &[u8]) -> Option<LexLimit> {
    match argument {
        b"-" => Some(LexLimit::Least),
        b"+" => Some(LexLimit::Greatest),
        [b'[', member @ ..] => Some(LexLimit::Included(member.to_vec())),
        [b'(', member @ ..] => Some(LexLimit::Excluded(member.to_vec())),
        _ => None,
    }
}

impl<S: Store> Call<'_, S> {
    /// The range between the arguments `low` and `high`, by score or by member.
    pub(super) fn range(&self, by: By, low: usize, high: usize) -> Result<Range, Failure> {
        let (low, high) = (self.request.get(low), self.request.get(high));
        if by == By::Score {
            return match (score_limit(low), score_limit(high)) {
                (Some(low), Some(high)) => Ok(Range::Score(low, high)),
                _ => Err(Failure::text("ERR min or max is not a float")),
            };
        }
        match (lex_limit(low), lex_limit(high)) {
            (Some(low), Some(high)) => Ok(Range::Lex(low, high)),
            _ => Err(Failure::text("ERR min or max not valid string range item")),
        }
    }

    /// The number that the argument at `index` spells.
    pub(super) fn number(&self, index: usize) -> Result<i64, Failure> {
        parse_i64(self.request.get(index)).ok_or(Failure::NOT_AN_INTEGER)
    }

    pub(super) fn zcount(&mut self) -> Outcome {
        self.count_range(By::Score)
    }

    pub(super) fn zlexcount(&mut self) -> Outcome {
        self.count_range(By::Lex)
    }

    fn count_range(&mut self, by: By) -> Outcome {
        let range = self.range(by, 2, 3)?;
        let count = self.read_set(Need::Ranks, |set, _| set.count(&range))?;
        self.reply.integer(count.unwrap_or(0) as i64);
        Ok(())
    }

    /// Executes `ZRANGE`, whose options say what the ends of the range mean.
    pub(super) fn zrange(&mut self) -> Outcome {
        let query = self.with_options(Query::new(By::Rank, false), true)?;
        self.answer_range(&query)
    }

    pub(super) fn zrevrange(&mut self) -> Outcome {
        self.zrange_of(By::Rank, true)
    }

    pub(super) fn zrangebyscore(&mut self) -> Outcome {
        self.zrange_of(By::Score, false)
    }

    pub(super) fn zrevrangebyscore(&mut self) -> Outcome {
        self.zrange_of(By::Score, true)
    }

    pub(super) fn zrangebylex(&mut self) -> Outcome {
        self.zrange_of(By::Lex, false)
    }

    pub(super) fn zrevrangebylex(&mut self) -> Outcome {
        self.zrange_of(By::Lex, true)
    }

    /// Executes a command whose name says what the ends of the range mean.
    fn zrange_of(&mut self, by: By, backwards: bool) -> Outcome {
        let query = self.with_options(Query::new(by, backwards), false)?;
        self.answer_range(&query)
    }

    fn answer_range(&mut self, query: &Query) -> Outcome {
        let key = self.request.get(1);
        let found = if query.by == By::Rank {
            let (start, stop) = (self.number(2)?, self.number(3)?);
            let mut members = Members::new(self.reply, query.with_scores);
            let found = self.shared.keys.read_sorted_set(key, Need::Ranks, |set| {
                let (start, limit) = ranks(start, stop, set.len());
                set.visit_ranks(start, limit, query.backwards, |member, score| {
                    members.push(member, score);
                })
            })?;
            members.finish();
            found
        } else {
            let (low, high) = if query.backwards { (3, 2) } else { (2, 3) };
            let range = self.range(query.by, low, high)?;
            let mut members = Members::new(self.reply, query.with_scores);
            let found = self.shared.keys.read_sorted_set(key, Need::Entries, |set| {
                set.visit(&range, query.selection(), |member, score| members.push(member, score))
            })?;
            members.finish();
            found
        };
        self.count_lookup(found.is_some());
        Ok(())
    }

    /// Reads the options, which begin with argument 4. `is_open` says whether they may choose the
    /// order and the meaning of the ends.
    fn with_options(&self, mut query: Query, is_open: bool) -> Result<Query, Failure> {
        // Order and meaning may be chosen once.
        let (mut is_order_open, mut is_kind_open) = (is_open, is_open);
        let mut index = 4;
        while index < self.request.len() {
            let following = self.request.len() - index - 1;
            if self.is_word(index, "WITHSCORES") {
                query.with_scores = true;
            } else if self.is_word(index, "LIMIT") && following >= 2 {
                (query.skip, query.limit) = (self.number(index + 1)?, self.number(index + 2)?);
                index += 2;
            } else if is_order_open && self.is_word(index, "REV") {
                (query.backwards, is_order_open) = (true, false);
            } else if is_kind_open && self.is_word(index, "BYSCORE") {
                (query.by, is_kind_open) = (By::Score, false);
            } else if is_kind_open && self.is_word(index, "BYLEX") {
                (query.by, is_kind_open) = (By::Lex, false);
            } else {
                return Err(Failure::SYNTAX);
            }
            index += 1;
        }
        if query.limit != -1 && query.by == By::Rank {
            return Err(Failure::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if query.with_scores && query.by == By::Lex {
            return Err(Failure::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_from_either_end() {
        assert_eq!(ranks(0, -1, 5), (0, 5));
        assert_eq!(ranks(-2, -1, 5), (3, 2));
        assert_eq!(ranks(-100, 1, 5), (0, 2));
        assert_eq!(ranks(3, 100, 5), (3, 2));
        assert_eq!(ranks(4, 3, 5), (0, 0));
        assert_eq!(ranks(5, 9, 5), (0, 0));
        assert_eq!(ranks(i64::MIN, i64::MIN, 5), (0, 0));
        assert_eq!(ranks(0, -1, 0), (0, 0));
    }
}
