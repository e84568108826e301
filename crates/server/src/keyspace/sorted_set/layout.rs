//! Where things lie: what a key's value begins with, and the tree's entries of the sorted sets.
//!
//! The store has an entry for each key. Its value is a byte that tells the type ([`Tag`]), and then the string's bytes,
//! or the number of the sorted set ([`SetId`], eight bytes, big end first).
//!
//! One ordered map, the *tree*, has all sorted sets. Its keys begin with the number of a set and a byte that tells what
//! follows; numbers lie with the big end first, so that the entries of a set lie together, and in this order:
//!
//! | key                                                        | value                                |
//! |------------------------------------------------------------|--------------------------------------|
//! | set, 0                                                     | the name, under which the store has it |
//! | set, 1, hash of the member (8 bytes), member               | its score, as eight bytes, little end first |
//! | set, 2, score in ordered form (8 bytes), member            | nothing; one byte where the score is −0 |
//!
//! So the second kind finds a member's score, and in the order of its hash, which gives `ZSCAN` a cursor; and the third
//! is the order that the set has. Set number 0 is none; under it lie
//!
//! | key                                                        | value                                |
//! |------------------------------------------------------------|--------------------------------------|
//! | 0, 0                                                       | numbers below this one may be taken (8 bytes, little end first) |
//! | 0, 1, a shard's number (2 bytes)                           | the [intent](super::super::intent) of a change under way |

use std::fmt;

use remanent_structures::BlinkTree;
use xxhash_rust::xxh3::xxh3_64;

/// The first byte of every stored value: what kind of value follows.
///
/// Kinds that come later take other numbers, so a pool written today stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u8);

impl Tag {
    /// A byte string.
    pub(crate) const STRING: Tag = Tag(0);
    /// The number of a sorted set.
    pub(crate) const SORTED_SET: Tag = Tag(1);

    /// The name that `TYPE` and `SCAN … TYPE` know it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tag::STRING => "string",
            Tag::SORTED_SET => "zset",
            _ => "unknown",
        }
    }

    /// The kind of a stored value.
    pub(crate) fn of(stored: &[u8]) -> Tag {
        Tag(stored.first().copied().unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Number of a sorted set: never 0, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::keyspace) struct SetId(pub(in crate::keyspace) u64);

const ID_LEN: usize = size_of::<u64>();
/// Bytes of the value that refers to a sorted set.
const REFERENCE_LEN: usize = 1 + ID_LEN;
/// Bytes of a tree's key that tell the set and the kind of entry.
const PREFIX_LEN: usize = ID_LEN + 1;
const HASH_LEN: usize = size_of::<u64>();
const SCORE_LEN: usize = size_of::<f64>();
/// Longest member in bytes: what a key of a tree in a pool leaves for it.
pub(crate) const MEMBER_LEN_MAX: usize =
    BlinkTree::<[u8], [u8]>::KEY_LEN_MAX - PREFIX_LEN - SCORE_LEN;
// By member, the hash is where the score is otherwise.
const _: () = assert!(SCORE_LEN >= HASH_LEN);

/// Kinds of entries of a set.
const NAME: u8 = 0;
const MEMBER: u8 = 1;
const SCORE: u8 = 2;
const END: u8 = 3;

/// Kinds of entries under the number 0.
const NEXT_ID: u8 = 0;
const INTENT: u8 = 1;

/// Value of a score's entry where the score is −0, which lies in the place of 0.
const MINUS_ZERO: &[u8] = b"-";

impl SetId {
    /// The value that refers to the set in the store.
    pub(in crate::keyspace) fn reference(self) -> [u8; REFERENCE_LEN] {
        let mut reference = [Tag::SORTED_SET.0; REFERENCE_LEN];
        reference[1..].copy_from_slice(&self.0.to_be_bytes());
        reference
    }

    /// The set that a stored value refers to.
    pub(in crate::keyspace) fn referred_to(stored: &[u8]) -> Option<SetId> {
        // Only a value of the right length is looked at: a longer one lies elsewhere, and would have to be fetched.
        let reference: &[u8; REFERENCE_LEN] = stored.try_into().ok()?;
        let (tag, id) = reference.split_first()?;
        if Tag(*tag) != Tag::SORTED_SET {
            return None;
        }
        Some(SetId(u64::from_be_bytes(id.try_into().ok()?)))
    }

    /// The set that an entry of the tree belongs to; `None` for those of number 0.
    pub(in crate::keyspace) fn of_entry(key: &[u8]) -> Option<SetId> {
        let id = key.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
        (id != 0).then_some(SetId(id))
    }

    fn key(self, kind: u8, parts: [&[u8]; 2]) -> Vec<u8> {
        let [first, second] = parts;
        let mut key = Vec::with_capacity(PREFIX_LEN + first.len() + second.len());
        key.extend_from_slice(&self.0.to_be_bytes());
        key.push(kind);
        key.extend_from_slice(first);
        key.extend_from_slice(second);
        key
    }

    /// Key of the entry that has the set's name.
    pub(in crate::keyspace) fn name_key(self) -> Vec<u8> {
        self.key(NAME, [&[]; 2])
    }

    /// Key of the entry that has the score of `member`.
    pub(in crate::keyspace) fn member_key(self, member: &[u8]) -> Vec<u8> {
        self.key(MEMBER, [&member_hash(member).to_be_bytes(), member])
    }

    /// Key of the entry that has `member` in the set's order.
    pub(in crate::keyspace) fn score_key(self, score: Score, member: &[u8]) -> Vec<u8> {
        self.key(SCORE, [&score.to_ordered().to_be_bytes(), member])
    }

    /// Where the members begin whose hash is at least `hash`.
    pub(in crate::keyspace) fn members_from(self, hash: u64) -> Vec<u8> {
        self.key(MEMBER, [&hash.to_be_bytes(), &[]])
    }

    /// Where the members begin whose ordered score is at least `ordered`.
    pub(in crate::keyspace) fn scores_from(self, ordered: u64) -> Vec<u8> {
        self.key(SCORE, [&ordered.to_be_bytes(), &[]])
    }

    /// Where the entries by member end, and those by score begin.
    pub(in crate::keyspace) fn scores_start(self) -> Vec<u8> {
        self.key(SCORE, [&[]; 2])
    }

    /// Where the entries by score end, and with them the set.
    pub(in crate::keyspace) fn end(self) -> Vec<u8> {
        self.key(END, [&[]; 2])
    }
}

/// Key of the entry that tells which numbers of sets may be taken.
pub(in crate::keyspace) fn next_id_key() -> Vec<u8> {
    SetId(0).key(NEXT_ID, [&[]; 2])
}

/// Key of the entry with the intent of a shard.
pub(in crate::keyspace) fn intent_key(shard: u16) -> Vec<u8> {
    SetId(0).key(INTENT, [&shard.to_be_bytes(), &[]])
}

/// The shard whose intent has that key.
pub(in crate::keyspace) fn shard_of_intent(key: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(key.get(PREFIX_LEN..)?.try_into().ok()?)))
}

/// Where the intents begin and end.
pub(in crate::keyspace) fn intents() -> (Vec<u8>, Vec<u8>) {
    (SetId(0).key(INTENT, [&[]; 2]), SetId(0).key(INTENT + 1, [&[]; 2]))
}

/// What an entry of a set says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::keyspace) enum Entry<'a> {
    /// The set's name.
    Name(&'a [u8]),
    /// A member, the hash that it lies at, and its score.
    Member(u64, &'a [u8], Score),
    /// A member in the order of scores.
    Scored(Score, &'a [u8]),
}

impl<'a> Entry<'a> {
    /// Reads an entry; `None` when it is none that this module writes.
    pub(in crate::keyspace) fn read(key: &'a [u8], value: &'a [u8]) -> Option<Self> {
        let (prefix, rest) = key.split_at_checked(PREFIX_LEN)?;
        match prefix[ID_LEN] {
            NAME if rest.is_empty() => Some(Entry::Name(value)),
            MEMBER => {
                let (hash, member) = rest.split_first_chunk::<HASH_LEN>()?;
                Some(Entry::Member(u64::from_be_bytes(*hash), member, Score::from_bytes(value)?))
            }
            SCORE => {
                let (ordered, member) = rest.split_first_chunk::<SCORE_LEN>()?;
                let score = Score::from_ordered(u64::from_be_bytes(*ordered))?;
                Some(Entry::Scored(if value == MINUS_ZERO { Score(-0.0) } else { score }, member))
            }
            _ => None,
        }
    }
}

/// Where a member lies among those of its set.
pub(in crate::keyspace) fn member_hash(member: &[u8]) -> u64 {
    xxh3_64(member)
}

/// A member's score: any number, infinity included.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Score(f64);

const SIGN: u64 = 1 << 63;

impl Score {
    pub(crate) const ZERO: Score = Score(0.0);

    /// `None` for what is not a number.
    pub(crate) fn new(value: f64) -> Option<Self> {
        (!value.is_nan()).then_some(Score(value))
    }

    pub(crate) fn value(self) -> f64 {
        self.0
    }

    /// A number that is ordered as the scores are. 0 and −0 have the same.
    pub(in crate::keyspace) fn to_ordered(self) -> u64 {
        // Adding 0 turns −0 into 0.
        let bits = (self.0 + 0.0).to_bits();
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }

    fn from_ordered(ordered: u64) -> Option<Self> {
        let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
        Score::new(f64::from_bits(bits))
    }

    /// As a member's entry has it.
    pub(in crate::keyspace) fn to_bytes(self) -> [u8; SCORE_LEN] {
        self.0.to_le_bytes()
    }

    pub(in crate::keyspace) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Score::new(f64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The value of an entry by score.
    pub(in crate::keyspace) fn note(self) -> &'static [u8] {
        if self.0 == 0.0 && self.0.is_sign_negative() { MINUS_ZERO } else { &[] }
    }

    /// Whether both are the same number to the bit: 0 is not −0.
    pub(in crate::keyspace) fn is_identical(self, other: Score) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ordered_as_numbers() {
        let numbers = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            0.1,
            1e300,
            f64::INFINITY,
        ];
        for pair in numbers.windows(2) {
            let [low, high] =
                [pair[0], pair[1]].map(|number| Score::new(number).unwrap().to_ordered());
            assert!(low < high, "{pair:?}");
        }
        for number in numbers {
            let ordered = Score(number).to_ordered();
            assert_eq!(Score::from_ordered(ordered).unwrap().value().to_bits(), number.to_bits());
        }
        assert_eq!(Score(-0.0).to_ordered(), Score(0.0).to_ordered());
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        let set = SetId(7);
        let zero = Score(-0.0);
        let member = set.member_key(b"m");
        assert_eq!(
            Entry::read(&member, &zero.to_bytes()),
            Some(Entry::Member(member_hash(b"m"), b"m", zero))
        );
        let scored = set.score_key(zero, b"m");
        let Some(Entry::Scored(score, b"m")) = Entry::read(&scored, zero.note()) else { panic!() };
        assert!(score.is_identical(zero));
        assert_eq!(Entry::read(&set.name_key(), b"key"), Some(Entry::Name(b"key")));
        let ordered = [set.name_key(), member, set.scores_start(), scored, set.end()];
        assert!(ordered.is_sorted_by(|a, b| a < b));
        assert_eq!(SetId::referred_to(&set.reference()), Some(set));
        assert_eq!(SetId::referred_to(b"\0text"), None);
    }
}
