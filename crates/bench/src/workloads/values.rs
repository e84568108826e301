//! Values of entries, each made of one word, so that the sum of all values found can be predicted.

use remanent_structures::Stored;

/// A value that a map under test may have.
pub(crate) trait BenchValue: Stored + Copy + Send + Sync + 'static {
    /// The end of the key's name in rows: nothing for words.
    const SUFFIX: &'static str;

    /// The value made of this word.
    fn of(word: u64) -> Self;

    /// The word that it was made of. Reads all bytes, so that a torn value is noticed.
    fn word(&self) -> u64;
}

impl BenchValue for u64 {
    const SUFFIX: &'static str = "";

    #[inline(always)]
    fn of(word: u64) -> Self {
        word
    }

    #[inline(always)]
    fn word(&self) -> u64 {
        *self
    }
}

/// The value of a record of usual length.
pub(crate) type Value100 = [u8; 100];

/// Words of a [`Value100`] that repeat its word; zeros follow. Their number is odd, so that all
/// words combined by XOR are the word again. The shims have the same in entry.h.
const REPEATED: usize = 11;

impl BenchValue for Value100 {
    const SUFFIX: &'static str = "+100";

    #[inline(always)]
    fn of(word: u64) -> Self {
        let mut value = [0; 100];
        for chunk in value.chunks_exact_mut(8).take(REPEATED) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        value
    }

    #[inline(always)]
    fn word(&self) -> u64 {
        let (chunks, tail) = self.as_chunks::<8>();
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        chunks.iter().chain([&last]).fold(0, |sum, chunk| sum ^ u64::from_le_bytes(*chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_word_unless_it_is_torn() {
        let (old, new) = (Value100::of(7), Value100::of(!7));
        assert_eq!((old.word(), new.word()), (7, !7));
        let mut torn = old;
        torn[64..].copy_from_slice(&new[64..]);
        assert_ne!(torn.word(), 7);
        assert_eq!(u64::of(7).word(), 7);
    }
}
