//! Changes of words in a pool.

use arbitrary::Arbitrary;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{LINE_LEN, Medium};

/// A new value for one of the words that are not zero.
#[derive(Arbitrary, Debug)]
pub struct Change {
    word: u16,
    value: Value,
    /// Whether the checksum of the word's line is computed again, if the line has one.
    is_sealed: bool,
}

#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    /// The value of another word, which leads elsewhere or describes something else.
    OfWord(u16),
    /// The word plus this distance.
    Away(i16),
    /// The word with one bit flipped.
    Flipped(u8),
}

/// Changes words of the first `chunks` chunks that a pool has handed out. `seal` computes a line's
/// checksum again.
pub fn change<M: Medium>(medium: &M, chunks: u64, changes: &[Change], seal: impl Fn(&M, u64)) {
    let start = ChunkId(DATA_FIRST).offset();
    let end = (start + chunks * CHUNK_LEN).min(medium.len());
    let words: Vec<u64> = (start..end).step_by(8).filter(|&at| medium.load(at) != 0).collect();
    let place = |word: u16| words[usize::from(word) % words.len()];
    for change in changes {
        let at = place(change.word);
        let value = match change.value {
            Value::Any(value) => value,
            Value::OfWord(word) => medium.load(place(word)),
            Value::Away(distance) => medium.load(at).wrapping_add_signed(distance.into()),
            Value::Flipped(bit) => medium.load(at) ^ 1 << (bit % 64),
        };
        medium.store(at, value);
        if change.is_sealed {
            seal(medium, at & !(LINE_LEN - 1));
        }
    }
}
