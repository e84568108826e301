//! Writes that a connection sends, and what the server answers and holds after each: a model of it.

use std::collections::BTreeMap;
use std::fmt;

use super::support::{Answer, Random, encode};

/// Keys of each connection and kind: few, so that each is written many times a round.
const KEYS: u64 = 40;
const SETS: u64 = 8;
/// Of the sorted sets, those that strings replace, and that are deleted as a whole. The others can
/// become long.
const SETS_REPLACED: u64 = 3;
const MEMBERS: u64 = 200;
pub(crate) const SHARED_COUNTERS: u64 = 3;

pub(crate) type Key = Vec<u8>;
/// Members of a sorted set, and their scores.
pub(crate) type Members = BTreeMap<Vec<u8>, i64>;
pub(crate) type Entries = BTreeMap<Key, Value>;

/// What a key holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Set(Members),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(&shown(text)),
            Value::Set(members) => {
                let members = members.iter().map(|(member, score)| (shown(member), score));
                f.debug_list().entries(members).finish()
            }
        }
    }
}

/// A write that a connection sends.
pub(crate) enum Write {
    Set(Key, Vec<u8>),
    Del(Key),
    /// Several keys as one.
    MSet(Vec<(Key, Vec<u8>)>),
    DelAll(Vec<Key>),
    Incr(Key),
    Append(Key, Vec<u8>),
    /// An increment of a counter that other connections increment as well.
    IncrShared(Key),
    ZAdd(Key, Vec<(Vec<u8>, i64)>),
    ZRem(Key, Vec<Vec<u8>>),
    ZIncrBy(Key, i64, Vec<u8>),
    ZPopMin(Key, u64),
}

impl fmt::Debug for Write {
    /// Briefly: values may be long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words().iter().map(|word| shown(word)).collect();
        f.write_str(&words.join(" "))
    }
}

impl Write {
    /// A write of the connection `owner`, which may or may not be one that has sorted sets, and
    /// that changes several keys as one; `number` makes its value unlike all others.
    pub(crate) fn random(
        random: &mut Random,
        owner: u64,
        number: u64,
        has_sets: bool,
        has_batches: bool,
    ) -> Write {
        if has_batches && random.below(8) == 0 {
            return Self::random_batch(random, owner, number, has_sets);
        }
        let mut key =
            |kind: &str, keys| format!("{kind}:{owner}:{}", random.below(keys)).into_bytes();
        let (text, counter) = (key("text", KEYS), key("count", KEYS));
        let (set, replaced) = (key("set", SETS), key("set", SETS_REPLACED));
        let text = if has_sets && random.below(10) == 0 { replaced.clone() } else { text };
        match random.below(if has_sets { 20 } else { 13 }) {
            0..6 => Write::Set(text, value(random, owner, number)),
            6 => Write::Del(text),
            7 => Write::Del(counter),
            8 => Write::Append(text, format!("+{owner}.{number}").into_bytes()),
            9..12 => Write::Incr(counter),
            12 => {
                Write::IncrShared(format!("shared:{}", random.below(SHARED_COUNTERS)).into_bytes())
            }
            13 => Write::Del(replaced),
            14..17 => {
                let pairs = (0..=members_at_once(random)).map(|_| (member(random), score(random)));
                Write::ZAdd(set, pairs.collect())
            }
            17 => Write::ZRem(set, (0..=members_at_once(random)).map(|_| member(random)).collect()),
            18 => Write::ZIncrBy(set, score(random), member(random)),
            _ => Write::ZPopMin(set, members_at_once(random)),
        }
    }

    /// A write of several keys, of which some may have sorted sets.
    fn random_batch(random: &mut Random, owner: u64, number: u64, has_sets: bool) -> Write {
        let mut keys: Vec<Key> = (0..=1 + random.below(6))
            .map(|_| match random.below(8) {
                0 if has_sets => format!("set:{owner}:{}", random.below(SETS_REPLACED)),
                _ => format!("text:{owner}:{}", random.below(KEYS)),
            })
            .map(String::into_bytes)
            .collect();
        keys.sort();
        keys.dedup();
        if random.below(3) == 0 {
            return Write::DelAll(keys);
        }
        Write::MSet(keys.into_iter().map(|key| (key, value(random, owner, number))).collect())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(&self.words())
    }

    /// Whether it is a command of sorted sets.
    pub(crate) fn is_on_set(&self) -> bool {
        use Write::{ZAdd, ZIncrBy, ZPopMin, ZRem};
        matches!(self, ZAdd(..) | ZRem(..) | ZIncrBy(..) | ZPopMin(..))
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let (name, key, arguments) = match self {
            Write::Set(key, value) => ("SET", key, vec![value.clone()]),
            Write::Del(key) => ("DEL", key, vec![]),
            Write::DelAll(keys) => ("DEL", &keys[0], keys[1..].to_vec()),
            Write::MSet(pairs) => {
                let words = pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]);
                ("MSET", &pairs[0].0, words.skip(1).collect())
            }
            Write::Incr(key) | Write::IncrShared(key) => ("INCR", key, vec![]),
            Write::Append(key, tail) => ("APPEND", key, vec![tail.clone()]),
            Write::ZAdd(key, pairs) => {
                let pair = |(member, score): &(Vec<u8>, i64)| [digits(*score), member.clone()];
                ("ZADD", key, pairs.iter().flat_map(pair).collect())
            }
            Write::ZRem(key, members) => ("ZREM", key, members.clone()),
            Write::ZIncrBy(key, by, member) => ("ZINCRBY", key, vec![digits(*by), member.clone()]),
            Write::ZPopMin(key, count) => ("ZPOPMIN", key, vec![digits(*count as i64)]),
        };
        let mut words = vec![name.into(), key.clone()];
        words.extend(arguments);
        words
    }

    /// Does to the connection's own entries what the server does; returns the answer that is due,
    /// except for shared counters, whose answers depend on others.
    pub(crate) fn apply(&self, entries: &mut Entries) -> Option<Answer> {
        Some(match self {
            Write::Set(key, value) => {
                entries.insert(key.clone(), Value::Text(value.clone()));
                Answer::ok()
            }
            Write::Del(key) => Answer::Integer(entries.remove(key).is_some().into()),
            Write::DelAll(keys) => {
                let count = keys.iter().filter(|key| entries.remove(*key).is_some()).count();
                Answer::Integer(count as i64)
            }
            Write::MSet(pairs) => {
                let texts =
                    pairs.iter().map(|(key, value)| (key.clone(), Value::Text(value.clone())));
                entries.extend(texts);
                Answer::ok()
            }
            Write::Incr(key) => on_text(entries, key, |text| {
                let sum = if text.is_empty() { 1 } else { number(text) + 1 };
                *text = digits(sum);
                sum
            }),
            Write::Append(key, tail) => on_text(entries, key, |text| {
                text.extend_from_slice(tail);
                text.len() as i64
            }),
            Write::IncrShared(_) => return None,
            Write::ZAdd(key, pairs) => on_set(entries, key, |set| {
                let is_new = |(member, score): &&(Vec<u8>, i64)| {
                    set.insert(member.clone(), *score).is_none()
                };
                Answer::Integer(pairs.iter().filter(is_new).count() as i64)
            }),
            Write::ZRem(key, members) => on_set(entries, key, |set| {
                let count = members.iter().filter(|member| set.remove(*member).is_some()).count();
                Answer::Integer(count as i64)
            }),
            Write::ZIncrBy(key, by, member) => on_set(entries, key, |set| {
                let score = set.entry(member.clone()).or_default();
                *score += by;
                Answer::Bulk(digits(*score))
            }),
            Write::ZPopMin(key, count) => on_set(entries, key, |set| pop_min(set, *count)),
        })
    }
}

/// Changes the string `key`, which is there from now on.
fn on_text(entries: &mut Entries, key: &Key, change: impl FnOnce(&mut Vec<u8>) -> i64) -> Answer {
    match entries.entry(key.clone()).or_insert(Value::Text(Vec::new())) {
        Value::Text(text) => Answer::Integer(change(text)),
        Value::Set(_) => wrong_type(),
    }
}

/// Changes the sorted set `key`, which is there as long as it has members.
fn on_set(entries: &mut Entries, key: &Key, change: impl FnOnce(&mut Members) -> Answer) -> Answer {
    let value = entries.entry(key.clone()).or_insert(Value::Set(Members::new()));
    let Value::Set(members) = value else { return wrong_type() };
    let answer = change(members);
    if members.is_empty() {
        entries.remove(key);
    }
    answer
}

fn wrong_type() -> Answer {
    Answer::Error("WRONGTYPE Operation against a key holding the wrong kind of value".into())
}

fn pop_min(set: &mut Members, count: u64) -> Answer {
    let mut popped = in_order(set);
    popped.truncate(count as usize);
    set.retain(|member, score| popped.binary_search(&(*score, member.clone())).is_err());
    let pair = |(score, member)| [Answer::Bulk(member), Answer::Bulk(digits(score))];
    Answer::Array(popped.into_iter().flat_map(pair).collect())
}

/// The members in the order that a sorted set has.
pub(crate) fn in_order(set: &Members) -> Vec<(i64, Vec<u8>)> {
    let mut members: Vec<_> = set.iter().map(|(member, score)| (*score, member.clone())).collect();
    members.sort();
    members
}

/// Mostly small, sometimes several lines, pages or chunks long.
fn value(random: &mut Random, owner: u64, number: u64) -> Vec<u8> {
    let len = match random.below(100) {
        0..70 => random.below(24),
        70..95 => random.below(400),
        95..99 => random.below(9_000),
        _ => random.below(200_000),
    };
    let mut value = format!("{owner}.{number}.").into_bytes();
    value.resize(value.len() + len as usize, b'a' + (number % 26) as u8);
    value
}

/// How many members a command names besides the first.
fn members_at_once(random: &mut Random) -> u64 {
    match random.below(20) {
        0..10 => 0,
        10..19 => random.below(8),
        _ => random.below(120),
    }
}

/// One of few; some of them are long.
fn member(random: &mut Random) -> Vec<u8> {
    let number = random.below(MEMBERS);
    let len = match number {
        0 => 30_000,
        1..10 => 1_000,
        10..50 => 60,
        _ => 0,
    };
    let mut member = format!("m{number}").into_bytes();
    member.resize(member.len() + len, b'.');
    member
}

/// One of few, so that members share them.
fn score(random: &mut Random) -> i64 {
    random.below(50) as i64 - 25
}

fn digits(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(crate) fn number(digits: &[u8]) -> i64 {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).expect("an integer")
}

fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=60 => bytes.escape_ascii().to_string(),
        len => format!("{}… ({len} bytes)", bytes[..60].escape_ascii()),
    }
}
