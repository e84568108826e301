//! Making a map, and finding it again: how far the log got, and where the newest record of each key lies.
//!
//! Every record is compared with its checksum. Where one is not whole, the log may end: a crash has torn it, and what
//! lies behind is made void before anything else is written, so that it can never follow what comes now. But
//! only what was not safe can be torn. Segments say which ones before them were safe when they began
//! (`TRUSTED_BEFORE`), and how far they are safe themselves (`SAFE`): since the batch before the last one for certain.
//! What is not whole up to there has changed since. If that is a value alone, everything else is there, and reading
//! the value is an error; in any other case entries may be missing, and the map is not opened.

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

/// A segment that has a place in the log.
#[derive(Clone, Copy)]
struct Part {
    sequence: u64,
    slot: Slot,
    segment: Segment,
    clears: bool,
    trusted_before: u64,
    /// How far it is known to be safe.
    safe_to: u64,
}

impl Part {
    /// Reads what a segment says of itself.
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

    /// What is safe if this segment is right: those before it, and a part of itself.
    fn says_safe(&self) -> [Safe; 2] {
        let itself = Safe { sequence: self.sequence, at: self.safe_to };
        let before = Safe { sequence: self.trusted_before, at: 0 };
        // Where nothing of it is known to be safe, those before it need not be.
        [before, if self.safe_to > RECORDS { itself } else { before }]
    }

    /// Has the log know the segment's sequence.
    fn note<M: Medium>(&self, log: &Log<M>) {
        // Relaxed: nobody else is here yet.
        log.segments.sequences.make(self.slot).store(self.sequence, Ordering::Relaxed);
    }

    /// The segment as one that records go to, from `used` on.
    fn opened(self, used: u64, segment_len: u64) -> Open {
        let Part { slot, segment: Segment { offset, len }, sequence, .. } = self;
        // What is longer than others has its one record already.
        let capacity = if len > segment_len { used } else { len - END_LEN };
        Open { slot, offset, sequence, used, capacity }
    }
}

/// A record that was found.
struct Found {
    record: Located,
    hash: u64,
}

/// The hash of a key, from its bytes and the map's seed.
type HashOf = fn(&[u8], u64) -> u64;

/// What is known to be safe: whole segments below a sequence, and a part of that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Safe {
    sequence: u64,
    at: u64,
}

/// Records whose places in the index are looked up together: about as many loads as can wait at a time.
const BATCH: usize = 16;

/// How the records of a segment end.
enum End {
    /// With the end mark: the log goes on in the next segment.
    Mark,
    /// At this place, where no record is.
    Cut(u64),
}

impl<M: Medium> Core<M> {
    /// Makes an empty map in a fresh heap.
    pub(super) fn create(heap: Heap<M>, segment_len: u64) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        // Clients cannot guess the pool's random identity, so they cannot aim at one place of the index. With the
        // generation, no map before this one has left records in memory that could be taken for ours.
        let creation = u64::from(heap.owner().0) | heap.generation() << 32;
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), creation);
        medium.store(header + SEED, seed);
        medium.store(header + INCARNATION, 1);
        medium.store(header + SEGMENT_LEN, segment_len);
        medium.store(header + HEADER_SUM, header_sum(seed, segment_len));
        // Flush: fenced when the first segment is taken, below, and so before the root becomes live.
        medium.flush(header, LINE_LEN + DIRECTORY_LEN);
        let directory = Segments::create(header + DIRECTORY);
        let segments = LogSegments::new(heap, directory, Spares::default());
        let core = Core::new(Log::new(segments, first_sequence(1)), seed);
        // The first write finds a segment ready.
        core.log.prepare_ahead().map_err(pool_error)?;
        core.log.heap().verify()?;
        Ok(core)
    }

    /// Finds the map that a crash may have interrupted.
    pub(super) fn open(heap: Heap<M>, hash_of: HashOf) -> Result<Self, PoolError> {
        let header = heap.header();
        let directory = Segments::open(&heap, header + DIRECTORY)?;
        // Nothing is decided, and nothing made void, by what could not be read.
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
        // Flush and fence: no segment gets a sequence that one had before, and what is written from now on is
        // not taken for properly closed.
        // Redundant fence: but where a record survives that was not safe, in a segment whose
        // sequence the next incarnation uses again; no seed has met that.
        medium.persist(header + INCARNATION, WORD_LEN);
        let first = parts.iter().rposition(|part| part.clears).unwrap_or(0);
        // What was cleared is void for good before the segment that says so may be.
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
                // Nothing was lost, so the log goes on where it is.
                core.log.resume(
                    parts[index].opened(at, segment_len),
                    behind.first().map(|part| part.opened(RECORDS, segment_len)),
                );
            } else {
                core.end_log(&behind, parts[index], at);
                void.extend(behind);
                // A segment without a record is as void as those behind it.
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

    /// Has the index lead to the newest records. Where the log ends: in which part, and where in that;
    /// `None` when the last part has an end mark, or there is none.
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

    /// Ends the log at `at` in `last`, after what lies behind that was made void.
    fn end_log(&self, behind: &[Part], last: Part, at: u64) {
        let medium = self.medium();
        // Until that is durable, the log ends here for want of a record.
        make_void(medium, self.seed, behind);
        if at == RECORDS {
            return make_void(medium, self.seed, &[last]);
        }
        let end = last.segment.offset + at;
        medium.store(end, end_mark(self.log.segments.salted(last.sequence), at));
        // Flush and fence: before a new segment follows.
        // Redundant fence: but where another thread goes on, whose fences are not ours; the
        // simulator recovers and goes on by one.
        medium.persist(end, WORD_LEN);
    }

    /// Has the index lead to the records of a segment, as far as they go.
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
            // Flush and fence: what is believed is safe. What a killed process wrote may lie in the caches.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.persist(segment.offset, (at + END_LEN).min(segment.len));
        }
        end
    }

    fn is_end(&self, part: &Part, at: u64) -> bool {
        let mark = end_mark(self.log.segments.salted(part.sequence), at);
        at + END_LEN <= part.segment.len && self.medium().load(part.segment.offset + at) == mark
    }

    /// Whether a record that is not whole has its key and its length, so that nothing else is lost with it: the key has
    /// its hash; the log goes on behind the record, and nowhere within.
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

    /// Has the index lead to records, in their order.
    fn enter_all(&self, batch: &mut Vec<Found>) {
        batch.iter().for_each(|found| self.shard(found.hash).table.touch(found.hash));
        batch.drain(..).for_each(|found| self.enter(found));
    }

    /// Has the index lead to a record that is newer than all before.
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
            // What it was the end of is gone.
            Err(_) if is_tombstone => return,
            Err(at) => {
                shard.table.insert(at, Entry::new(hash, place));
                shard.len += 1;
            }
        }
        // Relaxed: nobody else is here.
        live.fetch_add(head.record_len(), Ordering::Relaxed);
        self.log.segments.balance.append(head);
    }
}

/// What the log reports is the pool's: it knows no other errors.
fn pool_error(error: Error) -> PoolError {
    match error {
        Error::Pool(error) => error,
        other => PoolError::corrupt(0, other.to_string()),
    }
}

/// Takes segments out of the log, durably.
fn make_void<M: Medium>(medium: &M, salt: u64, parts: &[Part]) {
    for part in parts {
        let offset = part.segment.offset;
        medium.store(offset + SEQUENCE, void_mark(salt, offset));
        // Flush: fenced below.
        medium.flush(part.segment.offset, LINE_LEN);
    }
    if !parts.is_empty() {
        // Fence: before anything else takes their place.
        medium.fence();
    }
}

/// Whether ordinary segments may be so long.
pub(super) fn is_segment_len(len: u64) -> bool {
    (1..=SEGMENT_LEN_MAX).contains(&len) && len.is_multiple_of(CHUNK_LEN)
}

impl<M: Medium> Core<M> {
    /// Makes everything safe and says so, for the next opening.
    pub(super) fn leave(&self) -> crate::Result<()> {
        self.log.sync()?;
        let (medium, header) = (self.medium(), self.log.heap().header());
        self.log.note_safe();
        medium.store(header + CLOSED, medium.load(header + INCARNATION));
        // Flush and fence: before the pool is marked as closed properly.
        // Redundant: if this is lost, the next opening ends the log here, and begins another segment.
        medium.persist(header + CLOSED, WORD_LEN);
        Ok(self.log.heap().verify()?)
    }
}

/// The bits of a sequence below its incarnation.
const INCARNATION_SHIFT: u32 = 32;
/// More often than any map will ever be opened.
const INCARNATION_MAX: u64 = 1 << 31;

/// The first sequence of an incarnation.
fn first_sequence(incarnation: u64) -> u64 {
    incarnation << INCARNATION_SHIFT | 1
}

/// What a map has of segments.
type Read = (Vec<Part>, Vec<Slot>, Spares);

/// The segments of the log in its order, and those that hold nothing: of another length, and ordinary ones.
fn read_segments<M: Medium>(
    heap: &Heap<M>,
    segments: &Segments,
    segment_len: u64,
    salt: u64,
) -> Result<Read, PoolError> {
    let medium = heap.medium();
    let (mut parts, mut odd, mut spares) = Read::default();
    for (slot, segment) in segments.slots() {
        // Flush: fenced below.
        // Redundant: but where a process was killed before, and the power fails later.
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
    // Fence: what the segments say of each other, before any of them is made void by it.
    // Redundant: but where a process was killed before, and the power fails later.
    medium.fence();
    let used = |slot: &Slot| segments.get(*slot).is_none();
    spares.vacant = (0..segments.end().0).map(Slot).filter(used).collect();
    parts.sort_unstable_by_key(|part| part.sequence);
    Ok((parts, odd, spares))
}

/// Refuses segments of which two have one place in the log, or one has a place that was not given away yet.
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
