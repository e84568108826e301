//! Commands on sorted sets.

mod add;
mod range;
mod remove;

use super::call::{Call, Handler};
use super::failure::{Failure, Outcome};
use super::glob;
use super::keyspace::{ScanOptions, scan_count};
use super::row::{LOOK_UP, ONE_KEY, READ, READ_DELETE, READ_UPDATE, WRITE, commands};
use crate::keyspace::KeyError;
use crate::keyspace::sorted_set::{Need, Score, View};
use crate::resp::{Output, Protocol, Request, format_f64, parse_cursor, parse_f64, parse_i64};
use crate::store::Store;

const SORTED_SET_POP: &[&str] = &["write", "fast"];
const SORTED_SET_READ: &[&str] = &["@read", "@sortedset", "@fast"];
const SORTED_SET_READ_SLOW: &[&str] = &["@read", "@sortedset", "@slow"];
const SORTED_SET_WRITE: &[&str] = &["@write", "@sortedset", "@fast"];
const SORTED_SET_WRITE_SLOW: &[&str] = &["@write", "@sortedset", "@slow"];

#[rustfmt::skip]
commands! {
    "zadd" -4 => zadd, WRITE, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) for each item added, where N is the number of elements in the sorted set."
        "Add one or more members to a sorted set, or update its score if it already exists",
        key_access: &["RW", "update"];
    "zcard" 2 => zcard, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "1.2.0" "O(1), and O(N) when it is first asked for"
        "Get the number of members in a sorted set",
        key_access: LOOK_UP;
    "zcount" 4 => zcount, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Count the members in a sorted set with scores within the given values";
    "zincrby" 4 => zincrby, WRITE, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Increment the score of a member in a sorted set",
        key_access: READ_UPDATE;
    "zlexcount" 4 => zlexcount, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)) with N being the number of elements in the sorted set."
        "Count the number of members in a sorted set between a given lexicographical range";
    "zmscore" -3 => zmscore, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "6.2.0" "O(M*log(N)) with M being the number of members that are requested."
        "Get the score associated with the given members in a sorted set";
    "zpopmax" -2 => zpopmax, SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "5.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove and return members with the highest scores in a sorted set",
        key_access: READ_DELETE, demand: Some(count_asked);
    "zpopmin" -2 => zpopmin, SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "5.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove and return members with the lowest scores in a sorted set",
        key_access: READ_DELETE, demand: Some(count_asked);
    "zrange" -4 => zrange, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set",
        demand: Some(range_asked);
    "zrangebylex" -4 => zrangebylex, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by lexicographical range",
        demand: Some(limit_asked);
    "zrangebyscore" -4 => zrangebyscore, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.0.5" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by score",
        demand: Some(limit_asked);
    "zrank" -3 => zrank, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Determine the index of a member in a sorted set";
    "zrem" -3 => zrem, SORTED_SET_POP, SORTED_SET_WRITE, ONE_KEY,
        "sorted-set" "1.2.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove one or more members from a sorted set",
        key_access: &["RW", "delete"];
    "zremrangebylex" 4 => zremrangebylex, &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set between the given lexicographical range",
        key_access: &["RW", "delete"];
    "zremrangebyrank" 4 => zremrangebyrank, &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "2.0.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set within the given indexes",
        key_access: &["RW", "delete"], demand: Some(ranks_asked);
    "zremrangebyscore" 4 => zremrangebyscore, &["write"], SORTED_SET_WRITE_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements removed."
        "Remove all members in a sorted set within the given scores",
        key_access: &["RW", "delete"];
    "zrevrange" -4 => zrevrange, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by index, with scores ordered from high to low",
        demand: Some(range_asked);
    "zrevrangebylex" -4 => zrevrangebylex, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.9" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.",
        demand: Some(limit_asked);
    "zrevrangebyscore" -4 => zrevrangebyscore, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.2.0" "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned."
        "Return a range of members in a sorted set, by score, with scores ordered from high to low",
        demand: Some(limit_asked);
    "zrevrank" -3 => zrevrank, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "2.0.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Determine the index of a member in a sorted set, with scores ordered from high to low";
    "zscan" -3 => zscan, &["readonly"], SORTED_SET_READ_SLOW, ONE_KEY,
        "sorted-set" "2.8.0" "O(1) for every call. O(N) for a complete iteration."
        "Incrementally iterate sorted sets elements and associated scores",
        demand: Some(|request| scan_count(request, 3));
    "zscore" 3 => zscore, READ, SORTED_SET_READ, ONE_KEY,
        "sorted-set" "1.2.0" "O(log(N)) with N being the number of elements in the sorted set."
        "Get the score associated with the given member in a sorted set";
}

impl Failure {
    const NOT_A_FLOAT: Failure =
        Failure::Text(std::borrow::Cow::Borrowed("ERR value is not a valid float"));
}

/// The score that an argument spells. A number so large or so small that it would become infinity
/// or 0 is refused.
fn score(argument: &[u8]) -> Result<Score, Failure> {
    parse_f64(argument).and_then(Score::new).ok_or(Failure::NOT_A_FLOAT)
}

// The functions below estimate how many members a request asks for. They return 0 if that depends
// on the set, as for a range between scores or up to the last member: most sets are short.

/// The number that the argument at `index` spells; 0 if it spells none.
fn number_asked(request: &Request<'_>, index: usize) -> i64 {
    let argument = (index < request.len()).then(|| request.get(index));
    argument.and_then(parse_i64).unwrap_or(0)
}

/// Members that a `ZPOPMIN` or `ZPOPMAX` asks for.
fn count_asked(request: &Request<'_>) -> u64 {
    u64::try_from(number_asked(request, 2)).unwrap_or(0)
}

/// Members that a `ZREMRANGEBYRANK` asks for.
fn ranks_asked(request: &Request<'_>) -> u64 {
    let (start, stop) = (number_asked(request, 2), number_asked(request, 3));
    // How many members are between ranks that count from different ends depends on the set.
    let len =
        if (start < 0) == (stop < 0) { stop.saturating_sub(start).saturating_add(1) } else { 0 };
    u64::try_from(len).unwrap_or(0)
}

/// Members that a range by score or by member visits, as its `LIMIT` says.
fn limit_asked(request: &Request<'_>) -> u64 {
    let Some(index) = option_index(request, "LIMIT") else { return 0 };
    let (skip, limit) = (number_asked(request, index + 1), number_asked(request, index + 2));
    // Members that are skipped are visited, too.
    u64::try_from(if limit < 0 { skip } else { skip.saturating_add(limit) }).unwrap_or(0)
}

/// Members that a `ZRANGE` or `ZREVRANGE` asks for.
fn range_asked(request: &Request<'_>) -> u64 {
    let has = |option| option_index(request, option).is_some();
    if has("BYSCORE") || has("BYLEX") { limit_asked(request) } else { ranks_asked(request) }
}

/// The index of an option among the arguments of a range.
fn option_index(request: &Request<'_>, option: &str) -> Option<usize> {
    let mut words = request.iter().enumerate().skip(4);
    words.find(|(_, word)| word.eq_ignore_ascii_case(option.as_bytes())).map(|(index, _)| index)
}

/// An answer that is an array of members and scores. Its length need not be known before.
struct Members<'a> {
    reply: &'a mut Output,
    start: usize,
    len: usize,
    with_scores: bool,
    /// Whether each member is in an array of its own with its score.
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
    /// Calls `read` with the set that argument 1 names and with the request. Counts the set as
    /// found or missing.
    fn read_set<R>(
        &mut self,
        need: Need,
        read: impl FnOnce(&View<'_, S::Tree>, &Request<'_>) -> Result<R, KeyError>,
    ) -> Result<Option<R>, Failure> {
        let request = &self.request;
        let read = |set: &View<'_, S::Tree>| read(set, request);
        let found = self.shared.keys.read_sorted_set(request.get(1), need, read)?;
        self.count_lookup(found.is_some());
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

    fn zrank(&mut self) -> Outcome {
        self.answer_rank(false)
    }

    fn zrevrank(&mut self) -> Outcome {
        self.answer_rank(true)
    }

    fn answer_rank(&mut self, backwards: bool) -> Outcome {
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
        let key = self.request.get(1);
        let found = self.shared.keys.read_sorted_set(key, Need::Entries, |set| {
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
        // As in Redis, wrong options are no error if the set is missing.
        if found.is_some() {
            options?;
        }
        reply.close_scan(start, found.unwrap_or(0), len);
        Ok(())
    }
}
