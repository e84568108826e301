//! Words of a pool that get another value.

use arbitrary::Arbitrary;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{LINE_LEN, Medium};

/// Another value for one of the words that are not zero.
#[derive(Arbitrary, Debug)]
pub struct Change {
    word: u16,
    value: Value,
    /// Whether the line's checksum is made to fit again, where lines have one.
    is_sealed: bool,
}

#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    /// As another word: leads elsewhere, or says what something else is.
    OfWord(u16),
    /// So many away.
    Away(i16),
    /// One bit.
    Flipped(u8),
}

/// Changes words of the first `chunks` chunks that a pool has handed out; `seal` makes a line's checksum fit.
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
