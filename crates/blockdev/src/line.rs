//! A line of metadata with its own checksum and version.
//!
//! ```text
//! byte 0   seven words
//!      56  version (32 bits) | checksum (32 bits)
//! ```
//!
//! The checksum covers the words, the version, the line's own offset and its seal.
//!
//! A crash may leave a line with some of its stores; on a medium with write disturbance it may
//! leave garbage in any word. In both cases the checksum does not match. The journal has a complete
//! copy of every line that is not certain to be durable. The version distinguishes superseded
//! records of the journal from others. The [`Seal`] identifies the line's owner, so a line of
//! another disk or of another node of the map does not match.

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Words of a line that hold content.
pub(crate) const WORDS: usize = 7;
/// Bits in the words of a line.
pub(crate) const BITS: u64 = WORDS as u64 * 64;

/// Offset of the word with version and checksum.
const TAG: u64 = WORDS as u64 * WORD_LEN;

/// Seed of a line's checksum, which also covers content, version and offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seal(pub(crate) u64);

/// Content of a complete line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) words: [u64; WORDS],
    /// How often the line was written, modulo 2³²; compared by [`is_newer`].
    pub(crate) version: u32,
}

impl Line {
    /// The first version of a line.
    pub(crate) fn first(words: [u64; WORDS]) -> Self {
        Line { words, version: 1 }
    }

    /// Reads the line at `at`; `None` if it is incomplete.
    #[inline]
    pub(crate) fn load<M: Medium>(medium: &M, at: u64, seal: Seal) -> Option<Self> {
        let mut image = [0; WORDS + 1];
        let window = medium.window(at, LINE_LEN)?;
        for (word, place) in image.iter_mut().zip(0..) {
            *word = window(place * WORD_LEN);
        }
        Self::decode(image, at, seal)
    }

    /// Decodes the image of the line at `at`; `None` if it is incomplete.
    #[inline]
    pub(crate) fn decode(image: [u64; WORDS + 1], at: u64, seal: Seal) -> Option<Self> {
        let [words @ .., tag] = image;
        let line = Line { words, version: tag as u32 };
        (line.tag(at, seal) == tag).then_some(line)
    }

    /// The eight words to be stored at `at`.
    #[inline]
    pub(crate) fn encode(&self, at: u64, seal: Seal) -> [u64; WORDS + 1] {
        let mut image = [0; WORDS + 1];
        image[..WORDS].copy_from_slice(&self.words);
        image[WORDS] = self.tag(at, seal);
        image
    }

    /// Stores an encoded line word by word. The caller flushes it, now or later.
    ///
    /// Each word is atomic: a concurrent reader of a single word finds its old or its new value.
    #[inline]
    pub(crate) fn store_encoded<M: Medium>(medium: &M, at: u64, image: &[u64; WORDS + 1]) {
        for (&word, place) in image.iter().zip(0..) {
            medium.store(at + place * WORD_LEN, word);
        }
    }

    #[inline]
    fn tag(&self, at: u64, seal: Seal) -> u64 {
        let mut bytes = [0; TAG as usize];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *bytes = word.to_le_bytes();
        }
        let checksum = xxh3_64_with_seed(&bytes, at << 16 ^ u64::from(self.version) ^ seal.0);
        checksum << 32 | u64::from(self.version)
    }
}

/// Whether `version` comes after `other`. The two are less than 2³¹ versions apart.
pub(crate) fn is_newer(version: u32, other: u32) -> bool {
    (version.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_whole_or_is_not_read() {
        let line = Line { words: [1, 2, 3, 0, 0, 6, 7], version: 9 };
        let seal = Seal(0x1234_5678_9abc_def0);
        let image = line.encode(4096, seal);
        assert_eq!(Line::decode(image, 4096, seal), Some(line));
        assert_eq!(Line::decode(image, 4160, seal), None, "a line of another place");
        assert_eq!(Line::decode(image, 4096, Seal(1)), None, "a line of another owner");
        for word in 0..=WORDS {
            let mut torn = image;
            torn[word] ^= 1 << (word * 7);
            assert_eq!(Line::decode(torn, 4096, seal), None, "word {word}");
        }
        assert_eq!(Line::decode([0; 8], 0, Seal::default()), None, "zeros are no line");
    }

    #[test]
    fn versions_are_compared_around_the_end_of_their_range() {
        assert!(is_newer(1, 0) && is_newer(0, u32::MAX) && is_newer(5, u32::MAX - 5));
        assert!(!is_newer(3, 3) && !is_newer(u32::MAX, 0));
    }
}
