//! Making a map, and finding it again: how far the log got, and where the newest record of each key lies.
//!
//! Segments below `TRUSTED_BEFORE` were safe before the newest segment began, so only what follows them is
//! held against its checksums: about as much as may be unsafe, and two segments. The first record that is
//! not whole ends the log. What lies behind it is made void before anything else is written, so that it
//! can never follow what comes now.

use std::sync::atomic::Ordering;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Error as PoolError, Frozen, LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Core;
use super::index::Entry;
use super::layout::{
    CHECKSUM, CLEARS, CLOSED, END_LEN, HASH, Head, INCARNATION, KEY, Kind, Place, RECORDS, SEED,
    SEGMENT_LEN, SEGMENT_LEN_MAX, SEQUENCE, TRUSTED_BEFORE, checksum, end_mark,
};
use super::log::{Log, Open};
use super::ops::Hashed;
use super::space::Spares;
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
}

impl Part {
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
    start: u64,
    head: Head,
    hash: u64,
    place: Place,
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
        // Flush: fenced when the first segment is taken, below, and so before the root becomes live.
        medium.flush(header, LINE_LEN + DIRECTORY_LEN);
        let segments = Segments::create(Log::directory(&heap));
        let core = Core::new(Log::new(heap, segments, Spares::default(), first_sequence(1)), seed);
        // The first write finds a segment ready.
        core.log.prepare_ahead().map_err(pool_error)?;
        core.log.heap.verify()?;
        Ok(core)
    }

    /// Finds the map that a crash may have interrupted.
    pub(super) fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let header = heap.header();
        let segments = Segments::open(&heap, Log::directory(&heap))?;
        // Nothing is decided, and nothing made void, by what could not be read.
        heap.verify()?;
        heap.recover(|block: Block| segments.is_linked(heap.medium(), block))?;
        let medium = heap.medium();
        let seed = medium.load(header + SEED);
        let segment_len = medium.load(header + SEGMENT_LEN);
        if !is_segment_len(segment_len) {
            let what = format!("segments of {segment_len} bytes");
            return Err(PoolError::corrupt(header + SEGMENT_LEN, what));
        }
        let is_closed = medium.load(header + CLOSED) == medium.load(header + INCARNATION);
        let incarnation = medium.load(header + INCARNATION) + 1;
        medium.store(header + INCARNATION, incarnation);
        // Flush and fence: no segment gets a sequence that one had before, and what is written from now on is
        // not taken for properly closed.
        // Redundant: the fence alone, but where a record survives that was not safe, in a segment whose sequence
        // the next incarnation uses again; no seed has met that.
        medium.persist(header + INCARNATION, WORD_LEN);
        let (mut parts, odd, spares) = read_segments(&heap, &segments, segment_len);
        heap.verify()?;
        let first = parts.iter().rposition(|part| part.clears).unwrap_or(0);
        // What was cleared is void for good before the segment that says so may be.
        let mut void: Vec<Part> = parts.drain(..first).collect();
        make_void(medium, &void);
        let core = Core::new(Log::new(heap, segments, spares, first_sequence(incarnation)), seed);
        let end = core.rebuild(&parts)?;
        core.log.heap.verify()?;
        if let Some((index, at)) = end {
            let behind: Vec<Part> = parts.drain(index + 1..).collect();
            if is_closed {
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
        core.log.balance.take(taken);
        let unused = void.iter().map(|part| part.slot).chain(odd);
        unused.for_each(|slot| core.log.set_aside(slot));
        core.log.segments.slots().for_each(|(slot, _)| core.log.consider(slot));
        core.log.compare();
        core.log.heap.verify()?;
        Ok(core)
    }

    /// Has the index lead to the newest records. Where the log ends: in which part, and where in that;
    /// `None` when the last part has an end mark, or there is none.
    fn rebuild(&self, parts: &[Part]) -> Result<Option<(usize, u64)>, PoolError> {
        let trusted = parts.iter().map(|part| part.trusted_before).max().unwrap_or(0);
        for (index, part) in parts.iter().enumerate() {
            let is_trusted = part.sequence < trusted;
            match self.read_part(part, is_trusted) {
                End::Mark => {}
                End::Cut(at) if is_trusted => {
                    let what = format!("segment {:#x} is safe but has no end here", part.sequence);
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
        make_void(medium, behind);
        if at == RECORDS {
            return make_void(medium, &[last]);
        }
        let end = last.segment.offset + at;
        medium.store(end, end_mark(last.sequence ^ self.log.salt, at));
        // Flush and fence: before a new segment follows.
        // Redundant: the fence alone, but where another thread goes on, whose fences are not ours; the simulator
        // recovers and goes on by one.
        medium.persist(end, WORD_LEN);
    }

    /// Has the index lead to the records of a segment, as far as they go.
    fn read_part(&self, part: &Part, is_trusted: bool) -> End {
        let medium = self.medium();
        let Part { slot, segment, sequence, .. } = *part;
        let mut batch = Vec::with_capacity(BATCH);
        let mut at = RECORDS;
        let end = loop {
            if at + END_LEN > segment.len {
                break End::Cut(at);
            }
            let start = segment.offset + at;
            let word = medium.load(start);
            if word == end_mark(sequence ^ self.log.salt, at) {
                break End::Mark;
            }
            let Some(head) = Head::from_word(word) else { break End::Cut(at) };
            if at + head.record_len() + END_LEN > segment.len
                || !is_trusted && !self.is_whole(start, sequence, at, head)
            {
                break End::Cut(at);
            }
            batch.push(Found {
                start,
                head,
                hash: medium.load(start + HASH),
                place: Place::new(slot, at),
            });
            if batch.len() == BATCH {
                self.enter_all(&mut batch);
            }
            at += head.record_len();
        };
        self.enter_all(&mut batch);
        self.log.seal(slot, at);
        if !is_trusted {
            // Flush and fence: what is believed is safe. What a killed process wrote may lie in the caches.
            // Redundant: but where a process was killed before, which the simulator does not know.
            medium.persist(segment.offset, (at + END_LEN).min(segment.len));
        }
        end
    }

    /// Whether the bytes at `start` are the record that was written there in this use of the segment.
    fn is_whole(&self, start: u64, sequence: u64, at: u64, head: Head) -> bool {
        let medium = self.medium();
        // SAFETY: nobody writes while the map is being opened.
        let key = unsafe { Frozen::new(start + KEY, head.key_len) };
        // SAFETY: as above.
        let value = unsafe { Frozen::new(start + head.value(), head.value_len) };
        let hash = medium.load(start + HASH);
        let computed = checksum(
            sequence ^ self.log.salt,
            at,
            head,
            hash,
            &medium.view(key),
            &medium.view(value),
        );
        medium.load(start + CHECKSUM) == computed
    }

    /// Has the index lead to records, in their order.
    fn enter_all(&self, batch: &mut Vec<Found>) {
        batch.iter().for_each(|found| self.shard(found.hash).table.touch(found.hash));
        batch.drain(..).for_each(|found| self.enter(found));
    }

    /// Has the index lead to a record that is newer than all before.
    fn enter(&self, Found { start, head, hash, place }: Found) {
        let medium = self.medium();
        // SAFETY: nobody writes while the map is being opened.
        let key = unsafe { Frozen::new(start + KEY, head.key_len) };
        let key = medium.view(key);
        let is_tombstone = head.kind == Kind::Tombstone;
        let mut shard = self.shard(hash);
        let found = self.find(&shard.table, Hashed { hash, bytes: &key });
        let live = self.log.live.make(place.slot());
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
        self.log.balance.append(head);
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
fn make_void<M: Medium>(medium: &M, parts: &[Part]) {
    for part in parts {
        medium.store(part.segment.offset + SEQUENCE, 0);
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
        let (medium, header) = (self.medium(), self.log.heap.header());
        medium.store(header + CLOSED, medium.load(header + INCARNATION));
        // Flush and fence: before the pool is marked as closed properly.
        // Redundant: if this is lost, the next opening ends the log here, and begins another segment.
        medium.persist(header + CLOSED, WORD_LEN);
        Ok(self.log.heap.verify()?)
    }
}

/// The first sequence of an incarnation.
fn first_sequence(incarnation: u64) -> u64 {
    incarnation << 32 | 1
}

/// The segments of the log in its order, and those that hold nothing: of another length, and ordinary ones.
fn read_segments<M: Medium>(
    heap: &Heap<M>,
    segments: &Segments,
    segment_len: u64,
) -> (Vec<Part>, Vec<Slot>, Spares) {
    let medium = heap.medium();
    let mut odd = Vec::new();
    let mut spares = Spares::default();
    let mut parts = Vec::new();
    for (slot, segment) in segments.slots() {
        let offset = segment.offset;
        // Flush: fenced below.
        // Redundant: but where a process was killed before, which the simulator does not know.
        medium.flush(offset, LINE_LEN);
        let sequence = medium.load(offset + SEQUENCE);
        spares.total += 1;
        if sequence == 0 {
            if segment.len == segment_len {
                spares.slots.push(slot)
            } else {
                odd.push(slot)
            }
            continue;
        }
        parts.push(Part {
            sequence,
            slot,
            segment,
            clears: medium.load(offset + CLEARS) != 0,
            trusted_before: medium.load(offset + TRUSTED_BEFORE),
        });
    }
    // Fence: what the segments say of each other, before any of them is made void by it.
    // Redundant: but where a process was killed before, which the simulator does not know.
    medium.fence();
    let used = |slot: &Slot| segments.get(*slot).is_none();
    spares.vacant = (0..segments.end().0).map(Slot).filter(used).collect();
    parts.sort_unstable_by_key(|part| part.sequence);
    (parts, odd, spares)
}
