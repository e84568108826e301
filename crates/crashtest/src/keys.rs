//! A key whose hashes collide and whose nodes are small.

use remanent_pmem::Medium;
use remanent_structures::{Key, OrderedKey, Stored};

/// A key for tests: in a map that begins with eight buckets, its hashes collide for small keys; in
/// extendible maps, segments have four buckets of two slots; in trees, nodes have four entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestKey(pub(crate) u64);

/// Hashes of the small keys; the low bits are the bucket. Three keys have the same hash, in the
/// first bucket, and two have another one. The others begin in bucket 1 and are separated as the
/// map grows; two of them lie exactly where a bucket begins, or will begin.
const HASHES: [u64; 8] = [0x18, 0x18, 0x18, 0x11, 0x01, 0x09, 0x3d, 0x3d];

impl Stored for TestKey {
    const LEN: Option<u32> = Some(8);

    fn type_name() -> String {
        "TestKey".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.0.to_le_bytes())
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |key| use_value(&TestKey(*key)))
    }
}

impl Key for TestKey {
    const BUCKET_BITS: u32 = 3;
    const SEGMENT_BITS: u32 = 2;
    // One in each line.
    const BUCKET_SLOTS: u32 = 0b000_1100;

    fn hash(&self, _seed: u64) -> u64 {
        match HASHES.get(self.0 as usize) {
            // The bucket is the low bits of the reversed hash.
            Some(&hash) => hash.reverse_bits(),
            None => self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20),
        }
    }

    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        medium.load(offset) == self.0
    }
}

impl OrderedKey for TestKey {
    const NODE_ENTRIES_MAX: usize = 4;

    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_ordered(use_bytes)
    }

    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        u64::from_ordered(bytes, |key| use_key(&TestKey(*key)))
    }
}

/// A key for tests, made of a number.
pub(crate) trait NumberedKey: Key + Copy + Send + Sync + 'static {
    fn new(number: u64) -> Self;

    fn number(self) -> u64;
}

impl NumberedKey for TestKey {
    fn new(number: u64) -> Self {
        TestKey(number)
    }

    fn number(self) -> u64 {
        self.0
    }
}

/// A [`TestKey`] that is too long for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WideKey(TestKey);

impl NumberedKey for WideKey {
    fn new(number: u64) -> Self {
        WideKey(TestKey(number))
    }

    fn number(self) -> u64 {
        self.0.0
    }
}

impl Stored for WideKey {
    const LEN: Option<u32> = Some(16);

    fn type_name() -> String {
        "WideKey".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        let number = u128::from(self.number());
        use_bytes(&number.to_le_bytes())
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(&bytes[..8], |number| use_value(&WideKey::new(*number)))
    }
}

impl Key for WideKey {
    const BUCKET_BITS: u32 = TestKey::BUCKET_BITS;
    const SEGMENT_BITS: u32 = TestKey::SEGMENT_BITS;
    const BUCKET_SLOTS: u32 = TestKey::BUCKET_SLOTS;

    fn hash(&self, seed: u64) -> u64 {
        self.0.hash(seed)
    }

    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        self.0.matches(medium, offset)
    }
}
