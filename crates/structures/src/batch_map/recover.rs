//! Creating and opening a map, and recovery: finds the end of the log, and rebuilds the index.
//!
//! Every record is compared with its checksum. The log may end at a record that does not match: a
//! crash tore it. Segments behind it are made void before anything else is written, so that they
//! can never follow new records. But only records that were not safe can be torn. Each segment says
//! which segments before it were safe when it began (`TRUSTED_BEFORE`), and how far it is safe
//! itself (`SAFE`), which covers all batches but the last one for certain. A mismatch before that
//! position is damage. If only a value is damaged, all other entries are there, and reading the
//! value is an error. Otherwise entries may be missing, and the map is not opened.

use std::sync::atomic::Ordering;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Core;
use super::index::Entry;
use super::layout::{
    CLEARS, CLOSED, DIRECTORY, END_LEN, HASH, HEADER_SUM, INCARNATION, Kind, RECORDS, SAFE, SEED,
    SEGMENT_LEN, SEGMENT_LEN_MAX, SEQUENCE, SUM, TRUSTED_BEFORE, end_mark, header_sum, safe_to,
    segment_sum, void_mark,
};
use super::log::{Log, Open};
use super::ops::Hashed;
use super::record::Located;
use super::space::{LogSegments, Spares};
use crate::Error;
use crate::segments::{DIRECTORY_LEN, Segment, Segments, Slot};

/// A segment that is part of the log.
#[derive(Clone, Copy)]
struct Part {
    sequence: u64,
    slot: Slot,
    segment: Segment,
    clears: bool,
    trusted_before: u64,
    /// Offset up to which the segment is known to be safe.
    safe_to: u64,
}

impl Part {
    /// Reads the header of a segment.
    fn read<M: Medium>(
        medium: &M,
        slot: Slot,
        segment: Segment,
        salt: u64,
    ) -> Result<Self, PoolError> {
        let word = |at| medium.load(segment.offset + at);
        let words = [SEQUENCE, CLEARS, TRUSTED_BEFORE].map(word);
        let [sequence, clears, trusted_before] = words;
        match safe_to(word(SAFE), sequence ^ salt) {
            Some(safe_to) if word(SUM) == segment_sum(salt, segment.offset, words) => {
                Ok(Part { sequence, slot, segment, clears: clears != 0, trusted_before, safe_to })
            }
            _ => {
                let what = "what a segment says of its place in the log is not what was written";
                Err(PoolError::corrupt(segment.offset, what))
            }
        }
    }

    /// The positions that are safe according to this segment: the end of those before it, and a
    /// position in itself.
    fn says_safe(&self) -> [Safe; 2] {
        let itself = Safe { sequence: self.sequence, at: self.safe_to };
        let before = Safe { sequence: self.trusted_before, at: 0 };
        // If none of its records is known to be safe, the segments before it need not be safe
        // completely.
        [before, if self.safe_to > RECORDS { itself } else { before }]
    }

    /// Tells the log the segment's sequence.
    fn note<M: Medium>(&self, log: &Log<M>) {
        // Relaxed: no other thread uses the log yet.
        log.segments.sequences.make(self.slot).store(self.sequence, Ordering::Relaxed);
    }

    /// The segment as one to which records are appended, from offset `used` on.
    fn opened(self, used: u64, segment_len: u64) -> Open {
        let Part { slot, segment: Segment { offset, len }, sequence, .. } = self;
        // A segment longer than others already has its one record.
        let capacity = if len > segment_len { used } else { len - END_LEN };
        Open { slot, offset, sequence, used, capacity }
    }
}

/// A record that recovery found.
struct Found {
    record: Located,
    hash: u64,
}

/// Computes the hash of a key from its bytes and the map's seed.
type HashOf = fn(&[u8], u64) -> u64;

/// A position before which the log is known to be safe: all segments below `sequence`, and that one
/// up to `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Safe {
    sequence: u64,
    at: u64,
}

/// Records whose index slots are prefetched together: about as many as a core can have loads
/// outstanding.
const BATCH: usize = 16;

/// The end of a segment's records.
enum End {
    /// The end mark: the log continues in the next segment.
    Mark,
    /// This offset, where no record follows.
    Cut(u64),
}

impl<M: Medium> Core<M> {
    /// Creates an empty map in a fresh heap.
    pub(super) fn create(heap: Heap<M>, segment_len: u64) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        // Clients cannot guess the pool's random identity, so they cannot choose keys that collide
        // in the index. The generation makes the seed differ from that of every earlier map, whose
        // records may still be in memory.
        let creation = u64::from(heap.owner().0) | heap.generation() << 32;
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), creation);
        medium.store(header + SEED, seed);
        medium.store(header + INCARNATION, 1);
        medium.store(header + SEGMENT_LEN, segment_len);
        medium.store(header + HEADER_SUM, header_sum(seed, segment_len));
        // Flush: the header; fenced when the first segment is taken, below, and so before the root
        // becomes live.
        medium.flush(header, LINE_LEN + DIRECTORY_LEN);
        let directory = Segments::create(header + DIRECTORY);
        let segments = LogSegments::new(heap, directory, Spares::default());
        let core = Core::new(Log::new(segments, first_sequence(1)), seed);
        // So that the first write finds a segment ready.
        core.log.prepare_ahead().map_err(pool_error)?;
        core.log.heap().verify()?;
        Ok(core)
    }

    /// Opens a map, in any state that a crash left it in.
    pub(super) fn open(heap: Heap<M>, hash_of: HashOf) -> Result<Self, PoolError> {
        let header = heap.header();
        let directory = Segments::open(&heap, header + DIRECTORY)?;
        // Do not decide anything, or make anything void, from a medium that cannot be read.
        heap.verify()?;
        heap.recover(|block: Block| directory.is_linked(heap.medium(), block))?;
        let medium = heap.medium();
        let seed = medium.load(header + SEED);
        let segment_len = medium.load(header + SEGMENT_LEN);
        let is_written = medium.load(header + HEADER_SUM) == header_sum(seed, segment_len);
        if !is_written || !is_segment_len(segment_len) {
            let what = format!(
                "a map of seed {seed:#x} and segments of {segment_len} bytes was not written"
            );
            return Err(PoolError::corrupt(header, what));
        }
        let (mut parts, odd, spares) = read_segments(&heap, &directory, segment_len, seed)?;
        heap.verify()?;
        let incarnation = medium.load(header + INCARNATION);
        let is_closed = medium.load(header + CLOSED) == incarnation;
        check_order(&heap, &parts, incarnation)?;
        let incarnation = incarnation + 1;
        medium.store(header + INCARNATION, incarnation);
        // Flush and fence: no segment gets a sequence that another had before, and records written
        // from now on do not pass for properly closed.
        // Redundant fence: unless a record that was not safe survives, in a segment whose sequence
        // the next incarnation uses again. No tested seed reaches that.
        medium.persist(header + INCARNATION, WORD_LEN);
        let first = parts.iter().rposition(|part| part.clears).unwrap_or(0);
        // Cleared segments become void, durably, before the segment that says that they are cleared
        // can become void.
        let mut void: Vec<Part> = parts.drain(..first).collect();
        make_void(medium, seed, &void);
        let segments = LogSegments::new(heap, directory, spares);
        let core = Core::new(Log::new(segments, first_sequence(incarnation)), seed);
        parts.iter().for_each(|part| part.note(&core.log));
        let end = core.rebuild(&parts, hash_of)?;
        core.log.heap().verify()?;
        if let Some((index, at)) = end {
            let behind: Vec<Part> = parts.drain(index + 1..).collect();
            if is_closed && behind.len() <= 1 {
                // Nothing was lost, so the log continues where it ended.
                core.log.resume(
                    parts[index].opened(at, segment_len),
                    behind.first().map(|part| part.opened(RECORDS, segment_len)),
                );
            } else {
                core.end_log(&behind, parts[index], at);
                void.extend(behind);
                // A segment without a record becomes void like those behind it.
                void.extend((at == RECORDS).then(|| parts[index]));
            }
        }
        let taken = core.log.segments.slots().map(|(_, segment)| segment.len).sum();
        core.log.segments.balance.take(taken);
        let unused = void.iter().map(|part| part.slot).chain(odd);
        unused.for_each(|slot| core.log.segments.set_aside(slot));
        core.log.segments.slots().for_each(|(slot, _)| core.log.segments.consider(slot));
        core.log.segments.balance.compare();
        core.log.heap().verify()?;
        Ok(core)
    }

    /// Makes the index lead to the newest records. Returns where the log ends: the index of a part,
    /// and an offset in it. `None` when the last part has an end mark, or there is no part.
    fn rebuild(&self, parts: &[Part], hash_of: HashOf) -> Result<Option<(usize, u64)>, PoolError> {
        let safe =
            parts.iter().flat_map(Part::says_safe).max().unwrap_or(Safe { sequence: 0, at: 0 });
        for (index, part) in parts.iter().enumerate() {
            match self.read_part(part, safe, hash_of) {
                End::Mark => {}
                End::Cut(at) if (Safe { sequence: part.sequence, at }) < safe => {
                    let what = "something has changed that was safe here, and entries behind it may be missing";
                    return Err(PoolError::corrupt(part.segment.offset + at, what));
                }
                End::Cut(at) => return Ok(Some((index, at))),
            }
        }
        Ok(None)
    }

    /// Ends the log at offset `at` in `last`, after making the segments behind it void.
    fn end_log(&self, behind: &[Part], last: Part, at: u64) {
        let medium = self.medium();
        // Until these are durably void, the log ends here because no record follows.
        make_void(medium, self.seed, behind);
        if at == RECORDS {
            return make_void(medium, self.seed, &[last]);
        }
        let end = last.segment.offset + at;
        medium.store(end, end_mark(self.log.segments.salted(last.sequence), at));
        // Flush and fence: the end mark, before a new segment follows.
        // Redundant fence: unless another thread goes on, whose fences do not cover this flush. The
        // simulator recovers and goes on with one thread.
        medium.persist(end, WORD_LEN);
    }

    /// Makes the index lead to the records of a segment, up to the first that cannot be used.
    fn read_part(&self, part: &Part, safe: Safe, hash_of: HashOf) -> End {
        let (medium, segments) = (self.medium(), &self.log.segments);
        let Part { slot, segment, sequence, .. } = *part;
        let mut batch = Vec::with_capacity(BATCH);
        let mut at = RECORDS;
        let end = loop {
            if self.is_end(part, at) {
                break End::Mark;
            }
            let Some(record) = segments.locate_at(slot, at) else { break End::Cut(at) };
            let is_safe = Safe { sequence, at } < safe;
            let is_readable = segments.is_whole(&record)
                || is_safe && self.is_value_alone_changed(part, &record, safe, hash_of);
            if !is_readable {
                break End::Cut(at);
            }
            batch.push(Found { record, hash: medium.load(record.start + HASH) });
            if batch.len() == BATCH {
                self.enter_all(&mut batch);
            }
            at += record.head.record_len();
        };
        self.enter_all(&mut batch);
        segments.seal(slot, at);
        if sequence >= safe.sequence {
            // Flush and fence: every record that is used is safe. A killed process may have left it
            // only in the caches.
            // Redundant: unless a process was killed before and the power fails later.
            medium.persist(segment.offset, (at + END_LEN).min(segment.len));
        }
        end
    }

    fn is_end(&self, part: &Part, at: u64) -> bool {
        let mark = end_mark(self.log.segments.salted(part.sequence), at);
        at + END_LEN <= part.segment.len && self.medium().load(part.segment.offset + at) == mark
    }

    /// Whether only the value of a damaged record has changed, so that no other record is lost. Its
    /// key must match its hash, and the log must continue directly behind the record and nowhere
    /// within it.
    fn is_value_alone_changed(
        &self,
        part: &Part,
        record: &Located,
        safe: Safe,
        hash_of: HashOf,
    ) -> bool {
        let (from, end) = (record.place.at(), record.place.at() + record.head.record_len());
        let hash = self.medium().load(record.start + HASH);
        let segments = &self.log.segments;
        let has_key = segments.with_bytes(record, |key, _| hash_of(key, self.seed) == hash);
        let is_whole_at =
            |at| segments.locate_at(part.slot, at).is_some_and(|record| segments.is_whole(&record));
        let goes_on = self.is_end(part, end)
            || is_whole_at(end)
            || safe == Safe { sequence: part.sequence, at: end };
        let within = || (from..end.min(SEGMENT_LEN_MAX)).step_by(WORD_LEN as usize).skip(1);
        has_key && goes_on && !within().any(|at| self.is_end(part, at) || is_whole_at(at))
    }

    /// Makes the index lead to records, in their order.
    fn enter_all(&self, batch: &mut Vec<Found>) {
        batch.iter().for_each(|found| self.shard(found.hash).table.touch(found.hash));
        batch.drain(..).for_each(|found| self.enter(found));
    }

    /// Makes the index lead to a record that is newer than all before it.
    fn enter(&self, Found { record, hash }: Found) {
        let (head, place) = (record.head, record.place);
        let is_tombstone = head.kind == Kind::Tombstone;
        let mut shard = self.shard(hash);
        let found = self.log.segments.with_bytes(&record, |key, _| {
            self.search(&shard.table, Hashed { hash, bytes: key }, |_| {})
        });
        let live = self.log.segments.live.make(place.slot());
        match found {
            Ok(at) => {
                let old = shard.table.get(at);
                self.count_out(old);
                shard.len += u64::from(old.is_tombstone() && !is_tombstone);
                shard.len -= u64::from(!old.is_tombstone() && is_tombstone);
                shard.table.set(at, old.replaced(place, is_tombstone));
            }
            // The values that this tombstone ended have gone.
            Err(_) if is_tombstone => return,
            Err(at) => {
                shard.table.insert(at, Entry::new(hash, place));
                shard.len += 1;
            }
        }
        // Relaxed: no other thread uses the map yet.
        live.fetch_add(head.record_len(), Ordering::Relaxed);
        self.log.segments.balance.append(head);
    }
}

/// Converts an error of the log, which reports only errors of the pool.
fn pool_error(error: Error) -> PoolError {
    match error {
        Error::Pool(error) => error,
        other => PoolError::corrupt(0, other.to_string()),
    }
}

/// Makes segments void, durably.
fn make_void<M: Medium>(medium: &M, salt: u64, parts: &[Part]) {
    for part in parts {
        let offset = part.segment.offset;
        medium.store(offset + SEQUENCE, void_mark(salt, offset));
        // Flush: the mark of an empty segment; fenced below.
        medium.flush(part.segment.offset, LINE_LEN);
    }
    if !parts.is_empty() {
        // Fence: before other segments take their place in the log.
        medium.fence();
    }
}

/// Whether ordinary segments may have this length.
pub(super) fn is_segment_len(len: u64) -> bool {
    (1..=SEGMENT_LEN_MAX).contains(&len) && len.is_multiple_of(CHUNK_LEN)
}

impl<M: Medium> Core<M> {
    /// Makes everything safe, and notes for the next opening that the map was closed properly.
    pub(super) fn leave(&self) -> crate::Result<()> {
        self.log.sync()?;
        let (medium, header) = (self.medium(), self.log.heap().header());
        self.log.note_safe();
        medium.store(header + CLOSED, medium.load(header + INCARNATION));
        // Flush and fence: before the pool is marked as closed properly.
        // Redundant: if this is lost, the next opening ends the log here and begins another
        // segment.
        medium.persist(header + CLOSED, WORD_LEN);
        Ok(self.log.heap().verify()?)
    }
}

/// The shift of the incarnation within a sequence.
const INCARNATION_SHIFT: u32 = 32;
/// Far more openings than any map will ever have.
const INCARNATION_MAX: u64 = 1 << 31;

/// The first sequence of an incarnation.
fn first_sequence(incarnation: u64) -> u64 {
    incarnation << INCARNATION_SHIFT | 1
}

/// The segments of a map: parts of the log, empty ones of odd lengths, and spares.
type Read = (Vec<Part>, Vec<Slot>, Spares);

/// Reads the segments: those of the log in their order, and those that are empty, separated into
/// ones of other lengths and ordinary ones.
fn read_segments<M: Medium>(
    heap: &Heap<M>,
    segments: &Segments,
    segment_len: u64,
    salt: u64,
) -> Result<Read, PoolError> {
    let medium = heap.medium();
    let (mut parts, mut odd, mut spares) = Read::default();
    for (slot, segment) in segments.slots() {
        // Flush: the segment's header; fenced below.
        // Redundant: unless a process was killed before and the power fails later.
        medium.flush(segment.offset, LINE_LEN);
        spares.total += 1;
        if medium.load(segment.offset + SEQUENCE) != void_mark(salt, segment.offset) {
            parts.push(Part::read(medium, slot, segment, salt)?);
        } else if segment.len == segment_len {
            spares.slots.push(slot);
        } else {
            odd.push(slot);
        }
    }
    // Fence: the headers, before a segment becomes void because of what another one says.
    // Redundant: unless a process was killed before and the power fails later.
    medium.fence();
    let used = |slot: &Slot| segments.get(*slot).is_none();
    spares.vacant = (0..segments.end().0).map(Slot).filter(used).collect();
    parts.sort_unstable_by_key(|part| part.sequence);
    Ok((parts, odd, spares))
}

/// An error if two segments have the same sequence, or if one has a sequence that was not given out
/// yet.
fn check_order<M: Medium>(
    heap: &Heap<M>,
    parts: &[Part],
    incarnation: u64,
) -> Result<(), PoolError> {
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].sequence == pair[1].sequence) {
        let what = format!("another segment has the sequence {:#x}, too", pair[0].sequence);
        return Err(PoolError::corrupt(pair[1].segment.offset, what));
    }
    let last = parts.last().map_or(0, |part| part.sequence);
    if incarnation == 0 || incarnation >= INCARNATION_MAX || last >> INCARNATION_SHIFT > incarnation
    {
        let what = format!("opened {incarnation} times, but a segment has the sequence {last:#x}");
        return Err(PoolError::corrupt(heap.header() + INCARNATION, what));
    }
    Ok(())
}
