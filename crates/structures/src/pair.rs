//! A record that is replaced atomically with one fence, in a pair of lines that are written in
//! turn.
//!
//! Each record has a number and a checksum. The number's lowest bit selects the line, so that the
//! previous record stays intact until the new one is complete. Before a record is stored, the
//! previous one must have been fenced.
//!
//! ```text
//! line, two of them
//! byte  0  number of the record; odd ones lie in the second line
//!       8  6 words of the structure's own
//!      56  checksum of all of that
//! ```

use remanent_pmem::heap::Heap;
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a pair.
pub(crate) const PAIR_LEN: u64 = 2 * LINE_LEN;
/// Words of a record that the structure defines.
const WORDS: usize = 6;

/// The content of one of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) words: [u64; WORDS],
}

/// The place of the lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    offset: u64,
    seed: u64,
}

impl Pair {
    pub(crate) fn new(offset: u64, seed: u64) -> Self {
        Pair { offset, seed }
    }

    /// The line of the record with this number.
    pub(crate) fn line(&self, number: u64) -> u64 {
        self.offset + number % 2 * LINE_LEN
    }

    /// Stores a record; the caller flushes its line.
    pub(crate) fn store<M: Medium>(&self, medium: &M, record: Record) {
        let line = self.line(record.number);
        let words = [record.number].into_iter().chain(record.words).chain([self.sum(record)]);
        for (at, word) in (line..).step_by(WORD_LEN as usize).zip(words) {
            medium.store(at, word);
        }
    }

    /// The records whose checksums match, the newest first.
    pub(crate) fn read<M: Medium>(&self, medium: &M) -> Vec<Record> {
        let mut records: Vec<Record> =
            [0, 1].into_iter().filter_map(|line| self.read_line(medium, line)).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.number));
        records
    }

    fn read_line<M: Medium>(&self, medium: &M, line: u64) -> Option<Record> {
        let at = self.offset + line * LINE_LEN;
        let word = |index: usize| medium.load(at + index as u64 * WORD_LEN);
        let record = Record { number: word(0), words: std::array::from_fn(|own| word(1 + own)) };
        let is_whole = word(1 + WORDS) == self.sum(record) && record.number % 2 == line;
        is_whole.then_some(record)
    }

    fn sum(&self, record: Record) -> u64 {
        let mut bytes = [0; (1 + WORDS) * 8];
        let words = [record.number].into_iter().chain(record.words);
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        xxh3_64_with_seed(&bytes, self.seed)
    }
}

/// The seed for the checksums of the structure whose header lies at `header`. It differs from that
/// of every other structure, also from those that lay there before.
pub(crate) fn seed<M: Medium>(heap: &Heap<M>, header: u64) -> u64 {
    let place = [heap.owner().0.into(), heap.generation(), header].map(u64::to_le_bytes);
    let seed = xxh3_64_with_seed(&heap.pool().uuid(), 0);
    xxh3_64_with_seed(place.as_flattened(), seed)
}
