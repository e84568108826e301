//! On-media layout of the header, the directory's nodes, the segments and the records.
//!
//! ```text
//! header    0  root of the directory: a pointer     16  seed of the hash       32  entries, or
//!           8  what `clear` left to be freed        24  options                    unknown
//!                                                                              40  seed, inverted
//!         *48  segment that is being made ready
//!         *64  for each lane, a line with the segments that it is changing
//!
//! pointer      check (16 bits), offset of a node or of a segment, whether it is a node (bit 0)
//!
//! node      0  tag, depth                           16  pointer for hashes with a 0 at the depth
//!           8  bits of the hash before the depth    24  pointer for hashes with a 1
//!
//! segment      128 buckets
//!
//! bucket   *0  control: version, lock, …            16  slots 0 to 2
//!          *8  fingerprints of the slots, and       64  slots 3 to 6
//!              which of them are used
//!
//! slot      0  hash, whether it is valid             8  value; or check (16 bits), offset of a
//!                                                       record, whether it is to be freed (bit 0)
//!
//! record    0  tag, checksum                        16  value, if all values are words
//!           8  lengths of key and value              …  key, padded to words; other values
//!
//!           of a map with several values of a key, before the key:
//!          16  check (16 bits), offset of the        24  number, greater than the next one's
//!              record of an older value of the key,
//!              whether this one is removed (bit 1)
//! ```
//!
//! Words marked `*` are volatile: nothing flushes them, and whoever touches a segment first after
//! opening the pool rebuilds those of buckets. What lanes are changing is read after a process was
//! killed: then it is all there, because the caches are. After a loss of power it is of no use, but
//! no line needs a flush then. A slot lies in one line, and its value is stored before its
//! hash. By assumption 2 a crash leaves a complete valid slot or none, for one flush and one fence.
//!
//! The lowest bits of a hash number the entry's bucket, its *home*. They need not be stored,
//! because the slot's place says them, and their place in the slot's word is taken by two marks:
//! whether the slot is valid, and whether the entry is *displaced*: in the one other bucket where
//! it may be. The highest bits of the hash choose the segment. Where key and value are words, the
//! hash is a permutation of the key, so that a slot has all of the entry.
//!
//! A record is removed by marking the word that leads to it, under the fence that makes the record
//! a suspect. Recovery asks of each suspect: what a marked word leads to is free then, and its slot
//! void. A mark that nobody was asked about came alone, and is taken back.
//!
//! Slot 0 of bucket 0 is no slot. It has the segment's tag and the opening that rebuilt it, and
//! bits of the hash that lead to the segment.

use remanent_pmem::heap::Block;
use remanent_pmem::heap::layout::{self as heap, LANE_COUNT};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64;

pub(super) use super::control::{CONTROL, Control, PRINTS, Prints, SHADOWS_MAX, each_slot};
use crate::shared::MemberId;
use crate::stored::{Key, Stored};

/// Version of the layout, part of the root's type.
pub(super) const LAYOUT: u64 = 1;

pub(super) const ROOT: u64 = 0;
pub(super) const CLEARED: u64 = 8;
pub(super) const SEED: u64 = 16;
/// [`SUMMED`] or [`UNSUMMED`].
pub(super) const OPTIONS: u64 = 24;
pub(super) const COUNT: u64 = 32;
/// The seed once more, each bit inverted: with another seed no key would be found.
pub(super) const SEED_INVERTED: u64 = 40;
/// The segment that is being made ready.
pub(super) const READYING: u64 = 48;
/// Where the lanes say what they are changing.
const NOTES: u64 = LINE_LEN;
/// Segments that a lane can name.
pub(super) const NOTES_PER_LANE: usize = (LINE_LEN / WORD_LEN) as usize;
/// In place of a segment: the lane is changing more of them than it can name.
pub(super) const ANYTHING: u64 = u64::MAX;
/// Bytes of the header.
pub(super) const HEADER_LEN: u64 = NOTES + LANE_COUNT as u64 * LINE_LEN;
const _: () = assert!(HEADER_LEN <= heap::HEADER_LEN);

/// Where a lane names a segment that it is changing.
#[inline(always)]
pub(super) fn note_at(header: u64, lane: usize, index: usize) -> u64 {
    header + NOTES + lane as u64 * LINE_LEN + index as u64 * WORD_LEN
}

/// Where all that is being changed is named.
pub(super) fn notes(header: u64) -> impl Iterator<Item = u64> {
    let of_lanes = (0..LANE_COUNT)
        .flat_map(move |lane| (0..NOTES_PER_LANE).map(move |index| note_at(header, lane, index)));
    std::iter::once(header + READYING).chain(of_lanes)
}

/// The count in the header while the map is open, and after a crash.
pub(super) const COUNT_UNKNOWN: u64 = u64::MAX;
/// Records have checksums.
pub(super) const SUMMED: u64 = 0x7375_6d6d_6564;
/// Records have no checksums.
pub(super) const UNSUMMED: u64 = 0x756e_7375_6d6d_6564;

/// Mixes words whose single bits are to change the top bits of the product.
pub(super) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hash(pub(super) u64);

impl Hash {
    /// The permutation of a key that is a word.
    #[inline(always)]
    pub(super) fn of_word(word: u64, seed: u64) -> Self {
        let mut hash = word ^ seed;
        hash = (hash ^ hash >> 32).wrapping_mul(MULTIPLIERS[0]);
        hash = (hash ^ hash >> 29).wrapping_mul(MULTIPLIERS[1]);
        Hash(hash ^ hash >> 32)
    }

    /// The key that is a word and has this hash.
    pub(super) fn word(self, seed: u64) -> u64 {
        let mut word = self.0 ^ self.0 >> 32;
        word = word.wrapping_mul(INVERSES[1]);
        word ^= word >> 29 ^ word >> 58;
        word = word.wrapping_mul(INVERSES[0]);
        word ^= word >> 32;
        word ^ seed
    }

    /// The bucket where the entry belongs, of 2^`bits`.
    #[inline(always)]
    pub(super) fn home(self, bits: u32) -> u64 {
        self.0 & ((1 << bits) - 1)
    }

    /// What the numbers of the two buckets differ in where the entry may be: never 0.
    #[inline(always)]
    pub(super) fn step(self, bits: u32) -> u64 {
        (self.0 >> 16 & ((1 << bits) - 1)).max(1)
    }

    /// Tells the slots of a bucket apart.
    #[inline(always)]
    pub(super) fn fingerprint(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The first `depth` bits, as a number.
    #[inline(always)]
    pub(super) fn prefix(self, depth: u32) -> u64 {
        (self.0 >> 1) >> (63 - depth)
    }

    /// The least hash with the same first `depth` bits.
    #[inline(always)]
    pub(super) fn first(self, depth: u32) -> Self {
        Hash(self.prefix(depth).checked_shl(64 - depth).unwrap_or(0))
    }

    /// The least hash behind those with the same first `depth` bits; `None` when there is none.
    pub(super) fn first_behind(self, depth: u32) -> Option<Self> {
        let next = (self.prefix(depth) + 1).checked_shl(64 - depth).unwrap_or(0);
        (next != 0).then_some(Hash(next))
    }

    /// The bit behind the first `depth` bits.
    #[inline(always)]
    pub(super) fn bit(self, depth: u32) -> u64 {
        self.0 >> (63 - depth) & 1
    }
}

const MULTIPLIERS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const INVERSES: [u64; 2] = [inverse(MULTIPLIERS[0]), inverse(MULTIPLIERS[1])];

/// The number by which a product with the odd `factor` is multiplied to undo it.
const fn inverse(factor: u64) -> u64 {
    // Newton's method: each step doubles the number of right bits, of which there are 3 at first.
    let mut inverse = factor;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Depth below which no directory goes. Its table in memory has a word for each prefix of the
/// deepest segment: half a gigabyte here, for fifty thousand million entries.
pub(super) const DEPTH_MAX: u32 = 26;

/// Where a pointer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Node(u64),
    Segment(u64),
}

impl Target {
    /// The pointer to this, as the word at `at`.
    pub(super) fn seal(self, at: u64) -> u64 {
        let word = match self {
            Target::Node(offset) => offset | NODE_MARK,
            Target::Segment(offset) => offset,
        };
        word | pointer_check(at, word) << POINTER_BITS
    }

    /// Where the word at `at` leads; `None` when it is no pointer.
    #[inline]
    pub(super) fn open(at: u64, word: u64) -> Option<Self> {
        let value = word & ((1 << POINTER_BITS) - 1);
        if word >> POINTER_BITS != pointer_check(at, value) || value == 0 {
            return None;
        }
        Some(match value & NODE_MARK {
            0 => Target::Segment(value),
            _ => Target::Node(value & !NODE_MARK),
        })
    }

    pub(super) fn offset(self) -> u64 {
        match self {
            Target::Node(offset) | Target::Segment(offset) => offset,
        }
    }
}

const NODE_MARK: u64 = 1;
const POINTER_BITS: u32 = 48;

/// Detects every change of a single bit, and all but one in 65,536 of other changes.
fn pointer_check(at: u64, value: u64) -> u64 {
    ((value ^ at << 3).wrapping_mul(FACTOR) >> 48) ^ 0x35ca
}

/// The kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Segment,
    Record,
}

impl Kind {
    /// A segment comes last: where it has its tag, a record has any bytes of a key. Its first word
    /// is a control word, which is below the tags of the others, or 0 in an index of rows.
    const ALL: [Kind; 3] = [Kind::Node, Kind::Record, Kind::Segment];

    /// The tag in a heap that belongs to one map alone. The first letter tells the kind.
    const fn letters(self) -> u32 {
        match self {
            Kind::Node => 0x44_4e_4f_44,
            Kind::Segment => 0x47_4d_4e_54,
            Kind::Record => 0x45_4e_54_52,
        }
    }

    /// Where a block of this kind has its tag, in the upper half of a word.
    const fn tag_at(self) -> u64 {
        match self {
            Kind::Segment => SEGMENT_TAG,
            Kind::Node | Kind::Record => 0,
        }
    }

    pub(super) fn tag(self, member: MemberId) -> u64 {
        u64::from(self.letters() ^ member.get()) << 32
    }

    /// The map that the block at `offset` belongs to, by its tag. Its content may be garbage.
    pub(super) fn member<M: Medium>(medium: &M, offset: u64) -> Option<MemberId> {
        Kind::ALL.into_iter().find_map(|kind| {
            let tag = (medium.load(offset + kind.tag_at()) >> 32) as u32 ^ kind.letters();
            MemberId::from_block(tag)
        })
    }

    /// What the block at `offset` may be, if it belongs to `member`. Its content may be garbage, or
    /// look like that of two kinds.
    pub(super) fn candidates<M: Medium>(
        medium: &M,
        offset: u64,
        member: MemberId,
    ) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| kind.is_at(medium, offset, member))
    }

    /// Whether the block at `offset` is one of this kind that belongs to `member`.
    #[inline]
    pub(super) fn is_at<M: Medium>(self, medium: &M, offset: u64, member: MemberId) -> bool {
        let at = offset.saturating_add(self.tag_at());
        at.is_multiple_of(WORD_LEN)
            && at < medium.len()
            && medium.load(at) >> 32 == self.tag(member) >> 32
    }
}

// Nodes of the directory.

const NODE_PREFIX: u64 = 8;
const CHILDREN: u64 = 16;
pub(super) const NODE_LEN: u64 = 32;

/// Offset of the pointer for hashes with this bit.
#[inline(always)]
pub(super) fn child_at(node: u64, bit: u64) -> u64 {
    node + CHILDREN + bit * WORD_LEN
}

/// Writes a node that has no children yet.
pub(super) fn write_node<M: Medium>(
    medium: &M,
    node: u64,
    member: MemberId,
    hash: Hash,
    depth: u32,
) {
    medium.store(node, Kind::Node.tag(member) | u64::from(depth));
    medium.store(node + NODE_PREFIX, hash.0);
}

/// A hash that leads through the node.
pub(super) fn node_hash<M: Medium>(medium: &M, node: u64) -> Hash {
    Hash(medium.load(node + NODE_PREFIX))
}

// Segments.

pub(super) const BUCKET_LEN: u64 = 2 * LINE_LEN;
pub(super) const SLOT_COUNT: u32 = 7;
const SLOTS: u64 = 16;
const SLOT_LEN: u64 = 16;
const SEGMENT_TAG: u64 = SLOTS;
const SEGMENT_HASH: u64 = SLOTS + WORD_LEN;

/// Buckets of a segment.
#[inline(always)]
pub(super) const fn bucket_count<K: Key + ?Sized>() -> u64 {
    1 << K::SEGMENT_BITS
}

/// Bytes of a segment.
pub(super) const fn segment_len<K: Key + ?Sized>() -> u64 {
    bucket_count::<K>() * BUCKET_LEN
}

/// Slots that are used in an entry's home before its other bucket is considered. More would fill
/// segments less before they are split, fewer would displace more entries.
pub(super) const BALANCED_FROM: u32 = 4;

/// Slots that a bucket may use, as bits.
#[inline(always)]
pub(super) const fn slots_of<K: Key + ?Sized>(bucket: u64) -> u32 {
    // The first bucket's first slot has the segment's head.
    if bucket == 0 { K::BUCKET_SLOTS & !1 } else { K::BUCKET_SLOTS }
}

#[inline(always)]
pub(super) fn slot_at(bucket: u64, slot: u32) -> u64 {
    bucket + SLOTS + u64::from(slot) * SLOT_LEN
}

/// Whether the opening `epoch` has made the segment ready.
pub(super) fn is_ready<M: Medium>(medium: &M, segment: u64, epoch: u32) -> bool {
    medium.load(segment + SEGMENT_TAG) as u32 == epoch
}

/// Writes the head of a segment that the opening `epoch` has made ready. `hash` is the least one of
/// the segment: it leads there after a split, too.
pub(super) fn write_segment_head<M: Medium>(
    medium: &M,
    segment: u64,
    member: MemberId,
    hash: Hash,
    epoch: u32,
) {
    medium.store(segment + SEGMENT_HASH, hash.0);
    medium.store(segment + SEGMENT_TAG, Kind::Segment.tag(member) | u64::from(epoch));
}

/// A hash that leads to the segment.
pub(super) fn segment_hash<M: Medium>(medium: &M, segment: u64) -> Hash {
    Hash(medium.load(segment + SEGMENT_HASH))
}

/// The first word of a slot: the hash, with marks in place of the bits that number the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    const VALID: u64 = 1;
    const DISPLACED: u64 = 2;
    /// The stamp of a slot that no entry with a record has.
    pub(super) const NONE: Stamp = Stamp(0);

    /// The stamp of a valid slot.
    #[inline(always)]
    pub(super) fn new(hash: Hash, bits: u32, is_displaced: bool) -> Self {
        let displaced = if is_displaced { Self::DISPLACED } else { 0 };
        Stamp(hash.0 >> bits << bits | Self::VALID | displaced)
    }

    #[inline(always)]
    pub(super) fn is_valid(self) -> bool {
        self.0 & Self::VALID != 0
    }

    /// The same, of a slot that is not valid.
    #[inline(always)]
    pub(super) fn void(self) -> Self {
        Stamp(self.0 & !Self::VALID)
    }

    #[inline(always)]
    pub(super) fn is_displaced(self) -> bool {
        self.0 & Self::DISPLACED != 0
    }

    /// Whether the two are of one hash and place, whether they are valid or not.
    #[inline(always)]
    pub(super) fn is_same_as(self, other: Stamp) -> bool {
        (self.0 ^ other.0) & !Self::VALID == 0
    }

    /// The hash of the entry with this stamp in the bucket of the number `index`.
    #[inline(always)]
    pub(super) fn hash(self, index: u64, bits: u32) -> Hash {
        let high = Hash(self.0 >> bits << bits);
        // No branch: it would often be mispredicted.
        let home = index ^ (high.step(bits) * u64::from(self.is_displaced()));
        Hash(high.0 | home)
    }

    /// Whether no bits are set that no stamp has.
    pub(super) fn is_possible(self, bits: u32) -> bool {
        self.0 & ((1 << bits) - 1) & !(Self::VALID | Self::DISPLACED) == 0
    }
}

// Records.

/// Longest key and value: 512 MiB, as in Redis, and what a program may put before them, such as the
/// type of a value.
pub(super) const LEN_MAX: u64 = (512 << 20) + 64;
const LENGTHS: u64 = 8;
const CONTENT: u64 = 16;

/// What records of a map have between head and key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// Nothing.
    Plain,
    /// The value, which is a word, and replaced in its place.
    ValueWord,
    /// A link to another record of the key.
    Linked,
}

impl Form {
    #[inline(always)]
    const fn key_at(self) -> u64 {
        match self {
            Form::Plain => CONTENT,
            Form::ValueWord => CONTENT + WORD_LEN,
            Form::Linked => CONTENT + LINK_LEN,
        }
    }
}

/// Bytes of a record's link.
pub(super) const LINK_LEN: u64 = 2 * WORD_LEN;

/// Offset, lengths and checksum of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) key_len: u64,
    pub(super) value_len: u64,
    pub(super) sum: u32,
}

impl Record {
    /// The record of `member` at `offset`; `None` when there is none.
    #[inline(always)]
    pub(super) fn read<M: Medium>(medium: &M, offset: u64, member: MemberId) -> Option<Self> {
        let is_inside = offset.is_multiple_of(WORD_LEN)
            && offset.checked_add(CONTENT + WORD_LEN).is_some_and(|end| end <= medium.len());
        if !is_inside {
            return None;
        }
        let (head, lengths) = (medium.load(offset), medium.load(offset + LENGTHS));
        let (key_len, value_len) = (lengths >> 32, lengths & u64::from(u32::MAX));
        let is_record = head >> 32 == Kind::Record.tag(member) >> 32
            && key_len <= LEN_MAX
            && value_len <= LEN_MAX;
        is_record.then_some(Record { offset, key_len, value_len, sum: head as u32 })
    }

    pub(super) fn write_head<M: Medium>(self, medium: &M, member: MemberId) {
        medium.store(self.offset, Kind::Record.tag(member) | u64::from(self.sum));
        medium.store(self.offset + LENGTHS, self.lengths());
    }

    fn lengths(self) -> u64 {
        self.key_len << 32 | self.value_len
    }

    /// Where a record that has a link has it.
    #[inline(always)]
    pub(super) fn link_at(self) -> u64 {
        self.offset + CONTENT
    }

    #[inline(always)]
    pub(super) fn key_at(self, form: Form) -> u64 {
        self.offset + form.key_at()
    }

    #[inline(always)]
    pub(super) fn value_at(self, form: Form) -> u64 {
        match form {
            Form::ValueWord => self.offset + CONTENT,
            Form::Plain | Form::Linked => {
                self.key_at(form) + self.key_len.next_multiple_of(WORD_LEN)
            }
        }
    }

    #[inline(always)]
    pub(super) fn len(self, form: Form) -> u64 {
        let end = match form {
            Form::ValueWord => self.key_at(form) + self.key_len,
            Form::Plain | Form::Linked => self.value_at(form) + self.value_len,
        };
        end - self.offset
    }

    /// Whether a record of these lengths fits into `block`.
    pub(super) fn fits(self, form: Form, block: Block) -> bool {
        self.len(form) <= block.len
    }

    /// The checksum of a record with this key and this value.
    #[inline(always)]
    pub(super) fn sum_of(self, key: &[u8], value: &[u8]) -> u32 {
        let (key, value) = (xxh3_64(key), xxh3_64(value));
        let mixed = (key ^ self.lengths()).wrapping_mul(FACTOR) ^ value;
        (mixed.wrapping_mul(FACTOR) >> 32) as u32
    }
}

/// Where a record leads that is one of several of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The record of the value that was added before this one.
    pub(super) next: Option<u64>,
    /// The value is removed.
    pub(super) is_dead: bool,
    /// Greater than that of the next one. It never changes.
    pub(super) number: u64,
}

const DEAD: u64 = 2;

/// As `pointer_check`, also of the number.
fn link_check(at: u64, value: u64, number: u64) -> u64 {
    pointer_check(at, value) ^ number.wrapping_mul(FACTOR) >> 48
}

impl Link {
    /// The link as the word at `at`, behind which its number is.
    pub(super) fn seal(self, at: u64) -> u64 {
        let word = self.next.unwrap_or(0) | if self.is_dead { DEAD } else { 0 };
        word | link_check(at, word, self.number) << POINTER_BITS
    }

    /// The link in the word at `at`, behind which `number` is; `None` when it is none.
    #[inline]
    pub(super) fn open(at: u64, word: u64, number: u64) -> Option<Self> {
        let value = word & ((1 << POINTER_BITS) - 1);
        let next = value & !DEAD;
        let is_link = word >> POINTER_BITS == link_check(at, value, number);
        let next = (next != 0).then_some(next);
        is_link.then_some(Link { next, is_dead: value & DEAD != 0, number })
    }
}

/// In the word that leads to a record: the entry is being removed.
const GONE: u64 = 1;
const OFFSET_BITS: u32 = 48;

/// The word of the slot at `at`, which has this stamp, that leads to the record at `offset`.
#[inline(always)]
pub(super) const fn seal_record(at: u64, stamp: Stamp, offset: u64) -> u64 {
    offset | slot_check(at, stamp, offset) << OFFSET_BITS
}

/// Where the word of a slot leads, whether the record is to be freed or not.
#[inline(always)]
pub(super) const fn record_offset(word: u64) -> u64 {
    word & ((1 << OFFSET_BITS) - 1) & !GONE
}

/// Whether the two words of the slot at `at` belong together, and there.
pub(super) const fn is_sealed(at: u64, stamp: Stamp, word: u64) -> bool {
    word >> OFFSET_BITS == slot_check(at, stamp, record_offset(word))
}

/// Detects every change of a single bit, and all but one in 65,536 of other changes.
#[inline(always)]
const fn slot_check(at: u64, stamp: Stamp, offset: u64) -> u64 {
    let mixed = stamp.0 ^ offset.rotate_left(16) ^ at.rotate_left(32);
    (mixed.wrapping_mul(FACTOR) >> 48) ^ 0x51c3
}

/// The word of a slot whose record is to be freed.
#[inline(always)]
pub(super) const fn gone(word: u64) -> u64 {
    word | GONE
}

/// The word of a slot as it was before its record was to be freed.
pub(super) const fn not_gone(word: u64) -> u64 {
    word & !GONE
}

/// Whether keys or values of this type are words.
#[inline(always)]
pub(super) const fn is_word<T: Stored + ?Sized>() -> bool {
    matches!(T::LEN, Some(len) if len as u64 <= WORD_LEN)
}

/// The stored form of at most 8 bytes, as a word.
#[inline(always)]
pub(super) fn to_word<T: Stored + ?Sized>(value: &T) -> u64 {
    value.with_bytes(|bytes| {
        let mut word = [0; 8];
        let len = bytes.len().min(word.len());
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    })
}

/// Passes the value that has this word as its stored form.
#[inline(always)]
pub(super) fn with_word<T: Stored + ?Sized, R>(word: u64, use_value: impl FnOnce(&T) -> R) -> R {
    let bytes = word.to_le_bytes();
    let len = T::LEN.map_or(0, |len| len as usize).min(bytes.len());
    T::with_stored(&bytes[..len], use_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [u64; 6] = [0, 1, 77, 1 << 63, u64::MAX, 0x1234_5678_9abc_def0];

    #[test]
    fn keys_that_are_words_come_back_from_their_hashes() {
        for word in WORDS {
            for seed in WORDS {
                assert_eq!(Hash::of_word(word, seed).word(seed), word);
            }
        }
    }

    #[test]
    fn hashes_come_back_from_stamps_and_places() {
        for bits in [2, 7] {
            for hash in WORDS.map(Hash) {
                let (home, other) = (hash.home(bits), hash.home(bits) ^ hash.step(bits));
                assert_ne!(home, other);
                assert_eq!(Stamp::new(hash, bits, false).hash(home, bits), hash);
                assert_eq!(Stamp::new(hash, bits, true).hash(other, bits), hash);
                let stamp = Stamp::new(hash, bits, true);
                assert!(stamp.is_valid() && stamp.is_possible(bits));
                assert!(stamp.void().is_same_as(stamp) && !stamp.void().is_valid());
            }
        }
    }

    #[test]
    fn every_single_bit_of_a_pointer_counts() {
        for target in [Target::Node(0x4_0020), Target::Segment(0x12_3456_4000)] {
            let word = target.seal(0x1000);
            assert_eq!(Target::open(0x1000, word), Some(target));
            assert_eq!(Target::open(0x1008, word), None);
            assert!((0..64).all(|bit| Target::open(0x1000, word ^ 1 << bit).is_none()));
        }
        assert_eq!(Target::open(0x1000, 0), None);
    }

    #[test]
    fn every_single_bit_of_a_link_counts() {
        for next in [None, Some(0x4_0020), Some(0x12_3456_4008)] {
            for is_dead in [false, true] {
                let number = 0x1234_5678;
                let link = Link { next, is_dead, number };
                let word = link.seal(0x1010);
                assert_eq!(Link::open(0x1010, word, number), Some(link));
                assert_eq!(Link::open(0x1018, word, number), None);
                for bit in 0..64 {
                    assert_eq!(Link::open(0x1010, word ^ 1 << bit, number), None);
                    assert_eq!(Link::open(0x1010, word, number ^ 1 << bit), None);
                }
            }
        }
    }

    #[test]
    fn every_single_bit_of_a_slot_with_a_record_counts() {
        let stamp = Stamp::new(Hash(0x1234_5678_9abc_def0), 7, true);
        for offset in [0x4_0020, 0x7fff_ffff_fff8] {
            let at = 0x12_3430;
            let word = seal_record(at, stamp, offset);
            assert_eq!((record_offset(word), record_offset(gone(word))), (offset, offset));
            assert!(is_sealed(at, stamp, word) && is_sealed(at, stamp, gone(word)));
            assert!(!is_sealed(at + 0x40, stamp, word) && !is_sealed(at + 0x4000, stamp, word));
            // The lowest bit is the mark of a removal.
            assert!((1..64).all(|bit| !is_sealed(at, stamp, word ^ 1 << bit)));
            assert!((0..64).all(|bit| !is_sealed(at, Stamp(stamp.0 ^ 1 << bit), word)));
        }
    }
}
