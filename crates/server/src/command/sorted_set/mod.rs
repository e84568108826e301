//! Commands on one sorted set.

mod add;
mod range;
mod remove;

use super::{Call, Failure, Outcome, Verb, glob};
use crate::keyspace::{KeyError, MEMBER_LEN_MAX, Need, Score, SetView};
use crate::resp::{Output, Protocol, Request, format_f64, parse_cursor, parse_f64, parse_i64};
use crate::store::{Store, StoreError};

use super::keyspace::{ScanOptions, scan_count};

impl Failure {
    const NOT_A_FLOAT: Failure =
        Failure::Text(std::borrow::Cow::Borrowed("ERR value is not a valid float"));
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::WrongType => Failure::WRONG_TYPE,
            KeyError::MemberTooLong => Failure::text(format!(
                "ERR a member of a sorted set has at most {MEMBER_LEN_MAX} bytes"
            )),
            KeyError::Undecided(error) => {
                let code = if error == StoreError::Full { "OOM" } else { "ERR" };
                Failure::text(format!(
                    "{code} {error}, in the middle of the command: whether it takes effect is decided before its key \
                     is used again, or at the next start"
                ))
            }
            KeyError::NoMemory => Failure::NoMemory,
            KeyError::Store(error) => error.into(),
        }
    }
}

/// The score that an argument spells. One that could only be stored as infinity, or as zero, is refused.
fn score(argument: &[u8]) -> Result<Score, Failure> {
    parse_f64(argument).and_then(Score::new).ok_or(Failure::NOT_A_FLOAT)
}

/// How many members a request asks for, as far as its numbers tell; 0 where that depends on the set.
///
/// A range to the end, or between scores, comprises as many as there are, and most sets are short.
pub(super) fn members_asked(verb: Verb, request: &Request<'_>) -> u64 {
    let number = |index: usize| {
        let argument = (index < request.len()).then(|| request.get(index));
        argument.and_then(parse_i64).unwrap_or(0)
    };
    let asked = match verb {
        Verb::ZPopMin | Verb::ZPopMax => number(2),
        Verb::ZScan => return scan_count(request, 3),
        Verb::ZRemRangeByRank => ranks_asked(number(2), number(3)),
        Verb::ZRange
        | Verb::ZRevRange
        | Verb::ZRangeByScore
        | Verb::ZRevRangeByScore
        | Verb::ZRangeByLex
        | Verb::ZRevRangeByLex => {
            let words = || request.iter().enumerate().skip(4);
            let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let limit = words().find(|(_, word)| is(word, "LIMIT"));
            // Those that are skipped are visited, too.
            let limited = limit.map_or(0, |(index, _)| {
                let (skip, limit) = (number(index + 1), number(index + 2));
                if limit < 0 { skip } else { skip.saturating_add(limit) }
            });
            let by_rank = matches!(verb, Verb::ZRange | Verb::ZRevRange)
                && !words().any(|(_, word)| is(word, "BYSCORE") || is(word, "BYLEX"));
            if by_rank { ranks_asked(number(2), number(3)) } else { limited }
        }
        _ => 0,
    };
    u64::try_from(asked).unwrap_or(0)
}

/// Ranks from `start` to `stop`, where both count from the same end.
fn ranks_asked(start: i64, stop: i64) -> i64 {
    if (start < 0) == (stop < 0) { stop.saturating_sub(start).saturating_add(1) } else { 0 }
}

/// Members and scores that are answered as an array, whose length is known when all are in it.
struct Members<'a> {
    reply: &'a mut Output,
    start: usize,
    len: usize,
    with_scores: bool,
    /// Whether a member and its score are an array of their own.
    nested: bool,
}

impl<'a> Members<'a> {
    fn new(reply: &'a mut Output, with_scores: bool) -> Self {
        let nested = with_scores && reply.protocol() == Protocol::Resp3;
        let start = reply.len();
        Members { reply, start, len: 0, with_scores, nested }
    }

    fn push(&mut self, member: &[u8], score: Score) {
        self.len += 1;
        if self.nested {
            self.reply.array(2);
        }
        self.reply.bulk(member);
        if self.with_scores {
            self.reply.double(score.value());
        }
    }

    fn finish(self) {
        let flat = self.with_scores && !self.nested;
        self.reply.close_array(self.start, if flat { 2 * self.len } else { self.len });
    }
}

impl<S: Store> Call<'_, S> {
    /// Runs a command on a sorted set.
    pub(super) fn run_on_sorted_set(&mut self, verb: Verb) -> Outcome {
        match verb {
            Verb::ZAdd => self.zadd(),
            Verb::ZCard => self.zcard(),
            Verb::ZCount | Verb::ZLexCount => self.zcount(verb),
            Verb::ZIncrBy => self.zincrby(),
            Verb::ZMScore => self.zmscore(),
            Verb::ZPopMax => self.zpop(true),
            Verb::ZPopMin => self.zpop(false),
            Verb::ZRange
            | Verb::ZRangeByLex
            | Verb::ZRangeByScore
            | Verb::ZRevRange
            | Verb::ZRevRangeByLex
            | Verb::ZRevRangeByScore => self.zrange(verb),
            Verb::ZRank => self.zrank(false),
            Verb::ZRem => self.zrem(),
            Verb::ZRemRangeByLex | Verb::ZRemRangeByRank | Verb::ZRemRangeByScore => {
                self.zremrange(verb)
            }
            Verb::ZRevRank => self.zrank(true),
            Verb::ZScan => self.zscan(),
            Verb::ZScore => self.zscore(),
            _ => unreachable!("{verb:?} is not about a sorted set"),
        }
    }

    /// Lets `read` see the set that argument 1 names, and the request; counts whether the set is there.
    fn read_set<R>(
        &mut self,
        need: Need,
        read: impl FnOnce(&SetView<'_, S::Tree>, &Request<'_>) -> Result<R, KeyError>,
    ) -> Result<Option<R>, Failure> {
        let request = &self.request;
        let read = |set: &SetView<'_, S::Tree>| read(set, request);
        let found = self.shared.keys.read_set(request.get(1), need, read)?;
        self.count(found.is_some());
        Ok(found)
    }

    fn zcard(&mut self) -> Outcome {
        let len = self.read_set(Need::Ranks, |set, _| Ok(set.len()))?;
        self.reply.integer(len.unwrap_or(0) as i64);
        Ok(())
    }

    fn zscore(&mut self) -> Outcome {
        let score =
            self.read_set(Need::Entries, |set, request| set.score(request.get(2)))?.flatten();
        self.answer_score(score);
        Ok(())
    }

    fn zmscore(&mut self) -> Outcome {
        let scores = self.read_set(Need::Entries, |set, request| {
            request.iter().skip(2).map(|member| set.score(member)).collect::<Result<Vec<_>, _>>()
        })?;
        let len = self.request.len() - 2;
        self.reply.array(len);
        for score in scores.unwrap_or_else(|| vec![None; len]) {
            self.answer_score(score);
        }
        Ok(())
    }

    fn answer_score(&mut self, score: Option<Score>) {
        match score {
            Some(score) => self.reply.double(score.value()),
            None => self.reply.null(),
        }
    }

    fn zrank(&mut self, backwards: bool) -> Outcome {
        let with_score = match self.request.len() {
            3 => false,
            4 if self.is_word(3, "WITHSCORE") => true,
            _ => return Err(Failure::SYNTAX),
        };
        let found = self
            .read_set(Need::Ranks, |set, request| set.rank(request.get(2), backwards))?
            .flatten();
        match found {
            None if with_score => self.reply.null_array(),
            None => self.reply.null(),
            Some((rank, score)) => {
                if with_score {
                    self.reply.array(2);
                }
                self.reply.integer(rank as i64);
                if with_score {
                    self.reply.double(score.value());
                }
            }
        }
        Ok(())
    }

    fn zscan(&mut self) -> Outcome {
        let cursor = parse_cursor(self.request.get(2));
        let cursor = cursor.ok_or(Failure::text("ERR invalid cursor"))?;
        let options = ScanOptions::parse(&self.request, 3).and_then(|options| {
            if options.type_name.is_some() { Err(Failure::SYNTAX) } else { Ok(options) }
        });
        let (start, reply) = (self.reply.len(), &mut *self.reply);
        let mut len = 0;
        let found = self.shared.keys.read_set(self.request.get(1), Need::Entries, |set| {
            let Ok(options) = &options else { return Ok(0) };
            let limit = usize::try_from(options.count).unwrap_or(usize::MAX);
            set.scan(cursor, limit, |member, score| {
                if options.pattern.is_none_or(|pattern| glob::matches(pattern, member)) {
                    reply.bulk(member);
                    reply.bulk(format_f64(score.value()).as_bytes());
                    len += 2;
                }
            })
        })?;
        // As Redis has it, nobody minds what is asked of a set that is not there.
        if found.is_some() {
            options?;
        }
        reply.close_scan(start, found.unwrap_or(0), len);
        Ok(())
    }
}
