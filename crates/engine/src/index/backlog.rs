//! Words of an index in DRAM that rebuilding has read, and that are not in the index yet.
//!
//! The bucket of a row's word may be anywhere in a hash index, so that adding words in the order of
//! the rows waits for memory at each. So rebuilding takes two steps. The first one reads the rows
//! of some tiles, and sorts their words by *partitions*, which are the first bits of their hashes:
//! the result is a *run*. When all tiles are read, the second step adds all words of one partition
//! after those of the other, whose buckets the processor's caches hold meanwhile.
//!
//! Until all tiles are read, a key is looked for in its partition of each run. Afterwards, who
//! looks adds the partition to the index, unless another thread is doing it: that takes as long as
//! some looks through it. But all rows of a key are in one partition: who looks first for a key
//! with millions of rows adds those.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use remanent_structures::RowId;

use super::Candidates;
use crate::portions::{Portions, Taken};

/// Rows of a partition at the most, about: for so many, one segment of the index has room.
const PARTITION_ROWS: u64 = 1400;
const BITS_MAX: u32 = u16::BITS;
/// Partitions are taken from 2^this places in turn: neighbours may lie in one segment of the index,
/// for which one thread would wait for the other.
const STREAM_BITS: u32 = 3;

/// The hash of a key, and a row that has the key.
pub(crate) type Word = (u64, RowId);

/// Words that are not in the index yet.
pub(crate) struct Backlog {
    /// There are 2^`bits` partitions.
    bits: u32,
    runs: ArcSwap<Vec<Arc<Run>>>,
    /// Those that are done are in the index.
    partitions: Portions,
    /// A bit for each portion of which a part may be in the index.
    parts: Box<[AtomicU64]>,
    /// There was too little memory for a partition.
    has_failed: AtomicBool,
    /// How often somebody has looked for a key.
    looks: AtomicU64,
}

/// The words of some tiles.
pub(crate) struct Run {
    /// Where each partition begins, and the end of the last one.
    starts: Box<[u32]>,
    words: Box<[Word]>,
}

/// Words on their way into a run.
pub(crate) struct Gathered {
    words: Vec<Word>,
    partitions: Vec<u16>,
    counts: Vec<u32>,
}

impl Backlog {
    /// An empty one, of an index of a table with about so many rows.
    pub(crate) fn of(rows: u64) -> Self {
        let bits = rows.div_ceil(PARTITION_ROWS).next_power_of_two().ilog2().min(BITS_MAX);
        Self::of_bits(bits)
    }

    fn of_bits(bits: u32) -> Self {
        Backlog {
            bits,
            runs: ArcSwap::default(),
            partitions: Portions::of(1 << bits),
            parts: (0..(1_u64 << bits).div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            has_failed: AtomicBool::new(false),
            looks: AtomicU64::new(0),
        }
    }

    /// How many bits of a hash are the number of its partition.
    #[inline]
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Partitions that are not in the index, and all.
    #[inline(always)]
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.partitions.left(), self.partitions.count())
    }

    /// How much the index is wanted.
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a hint.
        self.looks.load(Ordering::Relaxed)
    }

    /// The partition that is taken as this portion. Threads that take portions one after the other
    /// are far from each other, and near to where one was shortly before.
    fn partition_of(&self, portion: u64) -> u64 {
        let bits = STREAM_BITS.min(self.bits);
        portion >> bits | (portion & ((1 << bits) - 1)) << (self.bits - bits)
    }

    /// The portion as which a partition is taken.
    fn portion_of(&self, partition: u64) -> u64 {
        let rest = self.bits - STREAM_BITS.min(self.bits);
        partition >> rest | (partition & ((1 << rest) - 1)) << (self.bits - rest)
    }

    /// Whether the words of a partition are in the index.
    pub(crate) fn is_added(&self, partition: u64) -> bool {
        self.partitions.is_done(self.portion_of(partition))
    }

    /// Counts a look for a key. Whether who looks is to add the partition to the index: where there
    /// was too little memory once, those who rebuild try again.
    pub(crate) fn count_look(&self) -> bool {
        // Relaxed: hints.
        self.looks.fetch_add(1, Ordering::Relaxed);
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// A partition, if the caller is the one to add it to the index.
    pub(crate) fn take(&self, partition: u64) -> Option<Taken<'_>> {
        self.partitions.take(self.portion_of(partition))
    }

    /// A partition that is to be added to the index.
    pub(crate) fn take_any(&self) -> Option<Taken<'_>> {
        self.partitions.take_any()
    }

    /// Room for the words of some tiles, with so many rows.
    pub(crate) fn gather(&self, rows: usize) -> Gathered {
        let counts = vec![0; 1 << self.bits];
        let (words, partitions) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        Gathered { words, partitions, counts }
    }

    /// Has others find words that were gathered.
    pub(crate) fn publish(&self, gathered: Gathered) {
        if gathered.len() == 0 {
            return;
        }
        let run = Arc::new(gathered.sort());
        self.runs.rcu(|runs| {
            let mut runs = Vec::clone(runs);
            runs.push(Arc::clone(&run));
            runs
        });
    }

    /// The rows that have a key, by its hash, in a partition of all runs but the first `seen`. Sets
    /// `seen` to the number of runs.
    pub(crate) fn rows(&self, partition: u64, hash: u64, seen: &mut usize) -> Candidates {
        let runs = self.runs.load();
        let unseen = runs.get(*seen..).unwrap_or(&[]);
        *seen = runs.len();
        let words = unseen.iter().flat_map(|run| run.partition(partition));
        words.filter(|(of, _)| *of == hash).map(|(_, row)| *row).collect()
    }

    /// Passes the words of a partition to `add`; or, if some of them may be in the index already,
    /// sorted to `add_missing`. Returns how many there are.
    pub(crate) fn add<E>(
        &self,
        taken: Taken<'_>,
        add: impl FnOnce(&[Word]) -> Result<(), E>,
        add_missing: impl FnOnce(&[Word]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (part, bit) = (&self.parts[(taken.number() / 64) as usize], 1 << (taken.number() % 64));
        let mut words = Vec::with_capacity(2 * PARTITION_ROWS as usize);
        let partition = self.partition_of(taken.number());
        for run in &**self.runs.load() {
            words.extend_from_slice(run.partition(partition));
        }
        // Relaxed: ordered by giving the partition back, and taking it.
        let added = match part.fetch_or(bit, Ordering::Relaxed) & bit {
            0 => add(&words),
            _ => {
                words.sort_unstable();
                add_missing(&words)
            }
        };
        if let Err(error) = added {
            // Relaxed: a hint.
            self.has_failed.store(true, Ordering::Relaxed);
            return Err(error);
        }
        taken.finish();
        if self.partitions.left() == 0 {
            self.runs.store(Arc::default());
        }
        Ok(words.len() as u64)
    }
}

impl Gathered {
    /// Adds a word, which is in this partition.
    #[inline]
    pub(crate) fn push(&mut self, partition: u64, word: Word) {
        self.words.push(word);
        self.partitions.push(partition as u16);
        self.counts[partition as usize] += 1;
    }

    /// How many words there are.
    pub(crate) fn len(&self) -> u64 {
        self.words.len() as u64
    }

    fn sort(self) -> Run {
        let mut next = 0;
        let mut starts: Vec<u32> = Vec::with_capacity(self.counts.len() + 1);
        for count in &self.counts {
            starts.push(next);
            next += count;
        }
        let mut places = starts.clone();
        starts.push(next);
        let mut words = vec![self.words[0]; self.words.len()];
        for (word, partition) in self.words.iter().zip(&self.partitions) {
            let place = &mut places[usize::from(*partition)];
            words[*place as usize] = *word;
            *place += 1;
        }
        Run { starts: starts.into(), words: words.into() }
    }
}

impl Run {
    fn partition(&self, partition: u64) -> &[Word] {
        let partition = partition as usize;
        &self.words[self.starts[partition] as usize..self.starts[partition + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> RowId {
        RowId::new(number).unwrap()
    }

    /// Ten words in a run, of four partitions.
    fn backlog(run_count: u64) -> Backlog {
        let backlog = Backlog::of_bits(2);
        for run in 0..run_count {
            let mut gathered = backlog.gather(10);
            (0..10).for_each(|hash| gathered.push(hash % 4, (hash, row(run * 10 + hash))));
            backlog.publish(gathered);
        }
        backlog
    }

    #[test]
    fn words_are_found_in_each_run_until_they_are_in_the_index() {
        let backlog = backlog(3);
        let mut seen = 1;
        assert_eq!(backlog.rows(1, 5, &mut seen).as_slice(), [row(15), row(25)]);
        assert_eq!((seen, backlog.rows(1, 5, &mut seen).len()), (3, 0));
        let mut index: Vec<Word> = Vec::new();
        while let Some(taken) = backlog.take_any() {
            assert!(!backlog.is_added(backlog.partition_of(taken.number())));
            let add = |words: &[Word]| {
                index.extend(words);
                Ok::<_, ()>(())
            };
            backlog.add(taken, add, |_| unreachable!("nothing is there in part")).unwrap();
        }
        assert!((0..4).all(|partition| backlog.is_added(partition)));
        assert_eq!((backlog.progress(), backlog.rows(1, 5, &mut 0).len()), ((0, 4), 0));
        index.sort_unstable();
        let all = (0..10).flat_map(|hash| (0..3).map(move |run| (hash, row(run * 10 + hash))));
        assert!(index.into_iter().eq(all));
    }

    #[test]
    fn a_part_of_a_partition_is_not_added_twice() {
        let backlog = backlog(1);
        let taken = backlog.take(2).unwrap();
        let failed = backlog.add(taken, |_| Err("full"), |_| Ok(()));
        assert_eq!((failed, backlog.is_added(2)), (Err("full"), false));
        let mut ensured: Vec<Word> = Vec::new();
        let add_missing = |words: &[Word]| {
            ensured.extend(words);
            Ok::<_, ()>(())
        };
        let taken = backlog.take(2).expect("it was given back");
        backlog.add(taken, |_| unreachable!("a part is there"), add_missing).unwrap();
        assert_eq!(ensured, [(2, row(2)), (6, row(6))]);
        // Of the others, nothing is there.
        let others = backlog.take(1).unwrap();
        let added = backlog.add(others, |_| Ok::<_, ()>(()), |_| unreachable!("nothing is there"));
        assert_eq!(added, Ok(3));
    }

    #[test]
    fn each_portion_is_another_partition() {
        for bits in [0, 1, 2, 3, 4, 9] {
            let backlog = Backlog::of_bits(bits);
            let mut partitions: Vec<u64> =
                (0..1 << bits).map(|portion| backlog.partition_of(portion)).collect();
            let portions = partitions.iter().map(|partition| backlog.portion_of(*partition));
            assert!(portions.eq(0..1 << bits), "{bits}");
            partitions.sort_unstable();
            assert!(partitions.into_iter().eq(0..1 << bits), "{bits}");
        }
        let neighbours = [0, 1, 8].map(|portion| Backlog::of_bits(9).partition_of(portion));
        assert_eq!(neighbours, [0, 64, 1]);
    }

    #[test]
    fn there_is_a_partition_for_about_a_thousand_rows() {
        for (rows, bits) in [(0, 0), (1_400, 0), (5_000, 2), (2_500_000, 11), (u64::MAX >> 20, 16)]
        {
            assert_eq!(Backlog::of(rows).bits(), bits, "{rows}");
        }
    }
}
