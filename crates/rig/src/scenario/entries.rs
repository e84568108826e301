//! Writes to a server, the expected answers and content after each, and what a power cut may leave
//! of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::guest::resp::{Answer, encode};
use crate::random::Random;

/// Strings and sorted sets of each writer: few, so that each is written many times in a round.
const TEXTS: u64 = 40;
const SETS: u64 = 6;
/// Number of sorted sets that are deleted as a whole; the others grow.
const SETS_DELETED: u64 = 2;
const MEMBERS: u64 = 60;
/// Strings with long values of each writer; and the number of its consecutive writes that mostly
/// add values, before as many mostly remove them.
const LONG_TEXTS: u64 = 24;
const PHASE_LEN: u64 = 40;
/// More writes than can be in flight: a pipeline, and the content of the port to the host.
const LEAD_MAX: u64 = 5_000;
/// Maximal number of keys in the description of a loss.
const NAMED_MAX: usize = 6;

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
                write!(f, "a set of {}:", members.len())?;
                members.iter().take(NAMED_MAX).try_for_each(|(m, s)| write!(f, " {} {s}", shown(m)))
            }
        }
    }
}

/// A write that a writer sends.
pub(crate) enum Write {
    Set(Key, Vec<u8>),
    Del(Key),
    Append(Key, Vec<u8>),
    Incr(Key),
    ZAdd(Key, Vec<(Vec<u8>, i64)>),
    ZRem(Key, Vec<Vec<u8>>),
}

/// The kind of a writer's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All kinds, mostly to small values.
    Small,
    /// Long values that are written and removed, again and again: storage is taken and given back.
    Space,
}

/// The origin of a write: seed, round and writer.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) mix: Mix,
    pub(crate) seed: u64,
    pub(crate) round: u64,
    pub(crate) writer: usize,
}

impl Write {
    /// The write of this number, whose value differs from all others.
    pub(crate) fn numbered(source: Source, number: u64) -> Write {
        match source.mix {
            Mix::Small => Write::small(source, number),
            Mix::Space => Write::of_space(source, number),
        }
    }

    /// A write of [`Mix::Space`].
    fn of_space(source: Source, number: u64) -> Write {
        let Source { seed, round, writer, .. } = source;
        let mut random = Random::of(&[seed, round, writer as u64, number]);
        let key = format!("long:{writer}:{}", random.below(LONG_TEXTS)).into_bytes();
        let set = format!("set:{writer}:0").into_bytes();
        let tag = format!("{writer}.{round}.{number}.");
        let removes = number / PHASE_LEN % 2 == 1;
        match random.below(16) {
            0 => Write::ZAdd(set, vec![(member(&mut random), random.below(50) as i64)]),
            1 => Write::Del(set),
            2..5 => Write::Set(key, value(&mut random, tag)),
            5..14 if removes => Write::Del(key),
            _ => Write::Set(key, long_value(&mut random, tag)),
        }
    }

    /// A write of [`Mix::Small`].
    fn small(source: Source, number: u64) -> Write {
        let Source { seed, round, writer, .. } = source;
        let mut random = Random::of(&[seed, round, writer as u64, number]);
        let mut key = |kind: &str, keys| format!("{kind}:{writer}:{}", random.below(keys));
        let text = key("text", TEXTS).into_bytes();
        let count = key("count", TEXTS).into_bytes();
        let set = key("set", SETS).into_bytes();
        let deleted = key("set", SETS_DELETED).into_bytes();
        let tag = format!("{writer}.{round}.{number}.");
        match random.below(20) {
            0..8 => Write::Set(text, value(&mut random, tag)),
            8 => Write::Del(text),
            9 => Write::Del(count),
            10 => Write::Append(text, format!("+{tag}").into_bytes()),
            11..13 => Write::Incr(count),
            13 => Write::Del(deleted),
            14..18 => {
                let pairs = (0..=few(&mut random))
                    .map(|_| (member(&mut random), random.below(50) as i64 - 25))
                    .collect();
                Write::ZAdd(set, pairs)
            }
            _ => Write::ZRem(set, (0..=few(&mut random)).map(|_| member(&mut random)).collect()),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (name, arguments) = match self {
            Write::Set(_, value) => ("SET", vec![value.clone()]),
            Write::Del(_) => ("DEL", vec![]),
            Write::Append(_, tail) => ("APPEND", vec![tail.clone()]),
            Write::Incr(_) => ("INCR", vec![]),
            Write::ZAdd(_, pairs) => {
                let pair = |(member, score): &(Vec<u8>, i64)| {
                    [score.to_string().into_bytes(), member.clone()]
                };
                ("ZADD", pairs.iter().flat_map(pair).collect())
            }
            Write::ZRem(_, members) => ("ZREM", members.clone()),
        };
        let mut words = vec![name.as_bytes().to_vec(), self.key().clone()];
        words.extend(arguments);
        encode(&words)
    }

    fn key(&self) -> &Key {
        use Write::{Append, Del, Incr, Set, ZAdd, ZRem};
        match self {
            Set(key, _) | Del(key) | Append(key, _) | Incr(key) | ZAdd(key, _) | ZRem(key, _) => {
                key
            }
        }
    }

    /// Applies the write to the entries as the server does, and returns the expected answer.
    pub(crate) fn apply(&self, entries: &mut Entries) -> Answer {
        match self {
            Write::Set(key, value) => {
                entries.insert(key.clone(), Value::Text(value.clone()));
                Answer::ok()
            }
            Write::Del(key) => Answer::Integer(entries.remove(key).is_some().into()),
            Write::Append(key, tail) => on_text(entries, key, |text| {
                text.extend_from_slice(tail);
                text.len() as i64
            }),
            Write::Incr(key) => on_text(entries, key, |text| {
                let sum = number(text).unwrap_or(0) + 1;
                *text = sum.to_string().into_bytes();
                sum
            }),
            Write::ZAdd(key, pairs) => on_set(entries, key, |set| {
                let is_new = |(member, score): &&(Vec<u8>, i64)| {
                    set.insert(member.clone(), *score).is_none()
                };
                pairs.iter().filter(is_new).count()
            }),
            Write::ZRem(key, members) => on_set(entries, key, |set| {
                members.iter().filter(|member| set.remove(*member).is_some()).count()
            }),
        }
    }
}

/// Finds how many of the writer's writes are in `found`: all acknowledged ones, and a prefix of the
/// later ones, each completely. `entries` is the content before them, and is updated.
///
/// # Errors
///
/// The differences to what was acknowledged, if no number of writes leaves what was found.
pub(crate) fn count_kept(
    source: Source,
    acknowledged: u64,
    entries: &mut Entries,
    found: &Entries,
) -> Result<u64, Vec<String>> {
    for number in 0..acknowledged {
        Write::numbered(source, number).apply(entries);
    }
    let keys: BTreeSet<&Key> = entries.keys().chain(found.keys()).collect();
    let mut different: BTreeSet<Key> =
        keys.into_iter().filter(|key| entries.get(*key) != found.get(*key)).cloned().collect();
    let losses: Vec<String> = different
        .iter()
        .take(NAMED_MAX)
        .map(|key| {
            format!(
                "{}: acknowledged was {:?}, found is {:?}",
                shown(key),
                entries.get(key),
                found.get(key)
            )
        })
        .collect();
    let keys = different.len();
    for number in acknowledged..=acknowledged + LEAD_MAX {
        if different.is_empty() {
            return Ok(number);
        }
        let write = Write::numbered(source, number);
        write.apply(entries);
        let key = write.key();
        if entries.get(key) == found.get(key) {
            different.remove(key);
        } else {
            different.insert(key.clone());
        }
    }
    let Source { round, writer, .. } = source;
    let summary = format!(
        "writer {writer}, round {round}: {acknowledged} writes were acknowledged, and neither they nor they and \
         some of those after them leave what was found; {keys} keys differ"
    );
    Err([summary].into_iter().chain(losses).collect())
}

/// The integer in the text.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Changes the string `key`, which exists from now on.
fn on_text(entries: &mut Entries, key: &Key, change: impl FnOnce(&mut Vec<u8>) -> i64) -> Answer {
    match entries.entry(key.clone()).or_insert(Value::Text(Vec::new())) {
        Value::Text(text) => Answer::Integer(change(text)),
        Value::Set(_) => wrong_type(),
    }
}

/// Changes the sorted set `key`, which exists as long as it has members.
fn on_set(entries: &mut Entries, key: &Key, change: impl FnOnce(&mut Members) -> usize) -> Answer {
    let value = entries.entry(key.clone()).or_insert(Value::Set(Members::new()));
    let Value::Set(members) = value else { return wrong_type() };
    let changed = change(members);
    if members.is_empty() {
        entries.remove(key);
    }
    Answer::Integer(changed as i64)
}

fn wrong_type() -> Answer {
    Answer::Error("WRONGTYPE Operation against a key holding the wrong kind of value".into())
}

/// A value, mostly small, sometimes several lines, pages or chunks long.
fn value(random: &mut Random, tag: String) -> Vec<u8> {
    let len = match random.below(100) {
        0..70 => random.below(24),
        70..95 => random.below(400),
        95..99 => random.below(9_000),
        _ => random.below(100_000),
    };
    let mut value = tag.into_bytes();
    value.resize(value.len() + len as usize, b'a' + (len % 26) as u8);
    value
}

/// A value from two to a dozen chunks of the pool long.
fn long_value(random: &mut Random, tag: String) -> Vec<u8> {
    let len = 70_000 + random.below(700_000);
    let mut value = tag.into_bytes();
    value.resize(value.len() + len as usize, b'A' + (len % 26) as u8);
    value
}

/// Number of further members in a command.
fn few(random: &mut Random) -> u64 {
    match random.below(10) {
        0..5 => 0,
        5..9 => random.below(6),
        _ => random.below(40),
    }
}

/// One of a few members, some of which are long.
fn member(random: &mut Random) -> Vec<u8> {
    let number = random.below(MEMBERS);
    let mut member = format!("m{number}").into_bytes();
    let len = match number {
        0 => 9_000,
        1..20 => 60,
        _ => 0,
    };
    member.resize(member.len() + len, b'.');
    member
}

fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=60 => bytes.escape_ascii().to_string(),
        len => format!("{}… ({len} bytes)", bytes[..60].escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source { mix: Mix::Small, seed: 7, round: 2, writer: 1 };

    fn after(count: u64) -> Entries {
        let mut entries = Entries::new();
        for number in 0..count {
            Write::numbered(SOURCE, number).apply(&mut entries);
        }
        entries
    }

    fn kept(acknowledged: u64, found: &Entries) -> Result<u64, Vec<String>> {
        count_kept(SOURCE, acknowledged, &mut Entries::new(), found)
    }

    #[test]
    fn what_was_acknowledged_or_more_is_accepted() {
        let found = after(300);
        for acknowledged in [0, 250, 299, 300] {
            let kept = kept(acknowledged, &found).expect("accepted");
            assert!(kept >= acknowledged && after(kept) == found, "{kept}");
        }
    }

    #[test]
    fn one_lost_write_is_found() {
        for acknowledged in 200..260 {
            // A write without effect, such as the removal of a missing member, cannot be lost.
            let (found, whole) = (after(acknowledged - 1), after(acknowledged));
            if found != whole {
                // A later write may by chance leave the same content again, but not soon.
                let losses = kept(acknowledged, &found);
                assert!(losses.is_err(), "{acknowledged}");
            }
        }
    }

    /// The number of values grows and shrinks, so a pool takes space and gives it back.
    #[test]
    fn writes_of_space_grow_and_shrink() {
        let source = Source { mix: Mix::Space, ..SOURCE };
        let mut entries = Entries::new();
        let mut lens = Vec::new();
        for number in 0..8 * PHASE_LEN {
            Write::numbered(source, number).apply(&mut entries);
            if (number + 1) % PHASE_LEN == 0 {
                let len = |value: &Value| match value {
                    Value::Text(text) => text.len(),
                    Value::Set(_) => 0,
                };
                lens.push(entries.values().map(len).sum::<usize>());
            }
        }
        for phases in lens.chunks(2) {
            assert!(phases[0] > 4 << 20 && 4 * phases[1] < 3 * phases[0], "{lens:?}");
        }
    }

    #[test]
    fn a_write_in_the_middle_is_missed_and_a_stranger_noticed() {
        let mut found = after(300);
        let key = found.keys().next().expect("an entry").clone();
        found.remove(&key);
        let losses = kept(300, &found).expect_err("an entry is missing");
        assert!(losses[0].contains("1 keys differ"), "{losses:?}");
        let mut found = after(300);
        found.insert(b"text:1:stranger".to_vec(), Value::Text(b"?".to_vec()));
        assert!(kept(300, &found).is_err());
    }
}
