//! On-media layout of a sorted set.
//!
//! Each member has two entries in the tree, whose keys begin with the set's id:
//!
//! | kind | key                                         | value                                |
//! |------|---------------------------------------------|--------------------------------------|
//! | 1    | id, 1, hash of the member (8 bytes), member | score (8 bytes, little-endian)       |
//! | 2    | id, 2, ordered score (8 bytes), member      | nothing; one byte if the score is −0 |
//!
//! Kind 1 finds the score of a member. Its entries are in the order of the members' hashes, which
//! gives `ZSCAN` a cursor. Kind 2 has the members in the order of the set. Hashes and ordered
//! scores are big-endian; an ordered score is an integer that compares as the score does.

use remanent_structures::BlinkTree;
use xxhash_rust::xxh3::xxh3_64;

use super::super::layout::{CollectionId, PREFIX_LEN, split_key};
use super::score::{SCORE_LEN, Score};

/// Kinds of entries.
const MEMBER: u8 = 1;
const SCORE: u8 = 2;
/// No entry has it: where the entries by score end.
const SCORES_END: u8 = 3;

const HASH_LEN: usize = size_of::<u64>();
/// Longest member in bytes: what the key of an entry leaves for it.
pub(super) const MEMBER_LEN_MAX: usize =
    BlinkTree::<[u8], [u8]>::KEY_LEN_MAX - PREFIX_LEN - SCORE_LEN;
// Keys of both kinds have room for the longest member.
const _: () = assert!(SCORE_LEN >= HASH_LEN);

/// A collection that is a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetId(pub(super) CollectionId);

impl SetId {
    /// Key of the entry with the score of `member`.
    pub(super) fn member_key(self, member: &[u8]) -> Vec<u8> {
        self.0.key(MEMBER, [&member_hash(member).to_be_bytes(), member])
    }

    /// Key of the entry of `member` in the order of the set.
    pub(super) fn score_key(self, score: Score, member: &[u8]) -> Vec<u8> {
        self.0.key(SCORE, [&score.to_ordered().to_be_bytes(), member])
    }

    /// Start of the entries by member whose hash is at least `hash`.
    pub(super) fn members_from(self, hash: u64) -> Vec<u8> {
        self.0.key(MEMBER, [&hash.to_be_bytes(), &[]])
    }

    /// Start of the entries by score whose ordered form is at least `ordered`.
    pub(super) fn scores_from(self, ordered: u64) -> Vec<u8> {
        self.0.key(SCORE, [&ordered.to_be_bytes(), &[]])
    }

    /// Start of the entries by score, which is the end of those by member.
    pub(super) fn scores_start(self) -> Vec<u8> {
        self.0.key(SCORE, [&[]; 2])
    }

    /// End of the entries by score.
    pub(super) fn scores_end(self) -> Vec<u8> {
        self.0.key(SCORES_END, [&[]; 2])
    }
}

/// An entry of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry<'a> {
    /// A member with its hash and its score.
    Member(u64, &'a [u8], Score),
    /// A member in the order of scores.
    Scored(Score, &'a [u8]),
}

impl<'a> Entry<'a> {
    /// Reads an entry; `None` when it is not one of a sorted set's members.
    pub(super) fn read(key: &'a [u8], value: &'a [u8]) -> Option<Self> {
        let (_, kind, rest) = split_key(key)?;
        match kind {
            MEMBER => {
                let (hash, member) = rest.split_first_chunk::<HASH_LEN>()?;
                Some(Entry::Member(u64::from_be_bytes(*hash), member, Score::from_bytes(value)?))
            }
            SCORE => {
                let (ordered, member) = rest.split_first_chunk::<SCORE_LEN>()?;
                let score = Score::from_ordered(u64::from_be_bytes(*ordered), value)?;
                Some(Entry::Scored(score, member))
            }
            _ => None,
        }
    }
}

/// The hash under which a member's entry with its score lies.
pub(super) fn member_hash(member: &[u8]) -> u64 {
    xxh3_64(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_are_written() {
        let set = SetId(CollectionId(7));
        let zero = Score::new(-0.0).unwrap();
        let member = set.member_key(b"m");
        assert_eq!(
            Entry::read(&member, &zero.to_bytes()),
            Some(Entry::Member(member_hash(b"m"), b"m", zero))
        );
        let scored = set.score_key(zero, b"m");
        let Some(Entry::Scored(score, b"m")) = Entry::read(&scored, zero.zero_note()) else {
            panic!()
        };
        assert!(score.is_identical(zero));
        assert_eq!(Entry::read(&set.0.name_key(), b"key"), None);
        let ordered = [set.0.name_key(), member, set.scores_start(), scored, set.scores_end()];
        assert!(ordered.is_sorted_by(|a, b| a < b));
    }
    /// Servers before this one wrote the same bytes.
    #[test]
    fn keys_keep_their_bytes() {
        let set = SetId(CollectionId(7));
        let one = Score::new(1.0).unwrap();
        let hash = xxh3_64(b"m").to_be_bytes();
        let by_member = [b"\0\0\0\0\0\0\0\x07\x01", &hash[..], b"m"].concat();
        assert_eq!(set.member_key(b"m"), by_member);
        let by_score = b"\0\0\0\0\0\0\0\x07\x02\xbf\xf0\0\0\0\0\0\0m";
        assert_eq!(set.score_key(one, b"m"), by_score);
        assert_eq!(one.to_bytes(), *b"\0\0\0\0\0\0\xf0\x3f");
    }
}
