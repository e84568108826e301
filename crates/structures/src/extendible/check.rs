//! Checking a map.

use remanent_pmem::Medium;
use remanent_pmem::heap::{Heap, Violation};

use super::Core;
use super::bucket::Bucket;
use super::layout::{
    Control, Hash, Target, bucket_count, child_at, each_slot, is_ready, node_hash, segment_hash,
    slot_at, slots_of,
};
use super::nodes::Pointer;
use super::segment::{Payload, bucket_at};
use crate::shared::Inspection;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// The walk gives up after this many violations.
const COLLECTED_MAX: usize = 100;

/// The findings of a walk over a map, or an index of rows.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) blocks: Vec<u64>,
    violations: Vec<Violation>,
    entries: u64,
    /// Whether something that leads to blocks could not be read.
    is_torn: bool,
    /// Whether this is what was cleared, which is taken apart from below.
    is_cleared: bool,
}

impl Walk {
    pub(super) fn wrong(&mut self, offset: u64, what: impl Into<String>) {
        if self.violations.len() < COLLECTED_MAX {
            self.violations.push(Violation::new(offset, what.into()));
        }
    }

    /// Notes damage that keeps the walk from going on there.
    pub(super) fn torn(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Corrupt { offset, what, .. } => {
                self.wrong(offset, what);
                self.is_torn = true;
                Ok(())
            }
            error => Err(error),
        }
    }

    pub(super) fn found(self) -> Inspection {
        let blocks = (!self.is_torn).then_some(self.blocks);
        Inspection { violations: self.violations, blocks }
    }
}

/// What is wrong with a structure that has its heap alone: what it has found, and what the heap
/// finds of its blocks.
pub(super) fn check_alone<M: Medium>(heap: &Heap<M>, found: Inspection) -> Result<Vec<Violation>> {
    let Inspection { mut violations, blocks } = found;
    if let Some(blocks) = blocks {
        violations.extend(heap.check(blocks.into_iter())?);
    }
    heap.verify()?;
    Ok(violations)
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        check_alone(&self.heap, self.inspect()?)
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
        self.heap.quiesce()?;
        let mut walk = Walk::default();
        self.check_pointer(self.root_at(), 0, Hash(0), &mut walk)?;
        if let Some(count) = self.count.get()
            && count != walk.entries
            && !walk.is_torn
        {
            let what = format!("the map counts {count} entries, but has {}", walk.entries);
            walk.wrong(self.heap.header(), what);
        }
        if self.medium().load(self.cleared_at()) != 0 {
            walk.is_cleared = true;
            self.check_pointer(self.cleared_at(), 0, Hash(0), &mut walk)?;
        }
        self.heap.verify()?;
        Ok(walk.found())
    }

    fn check_pointer(&self, at: u64, depth: u32, hash: Hash, walk: &mut Walk) -> Result<()> {
        let pointer = match self.nodes().pointer(at, depth) {
            Ok(pointer) => pointer,
            Err(error) => return walk.torn(error),
        };
        walk.blocks.push(pointer.target.offset());
        match pointer.target {
            Target::Segment(segment) => self.check_segment(pointer, segment, hash, walk),
            Target::Node(node) => {
                if node_hash(self.medium(), node).prefix(depth) != hash.prefix(depth) {
                    walk.wrong(node, "a node has the hash of another place in the directory");
                }
                for bit in 0..2 {
                    let at = child_at(node, bit);
                    if !walk.is_cleared || self.medium().load(at) != 0 {
                        let hash = Hash(hash.0 | bit << (63 - depth));
                        self.check_pointer(at, depth + 1, hash, walk)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn check_segment(
        &self,
        pointer: Pointer,
        segment: u64,
        hash: Hash,
        walk: &mut Walk,
    ) -> Result<()> {
        let (medium, bits, depth) = (self.medium(), K::SEGMENT_BITS, pointer.depth);
        if segment_hash(medium, segment).prefix(depth) != hash.prefix(depth) {
            walk.wrong(segment, "a segment has the hash of another place in the directory");
        }
        if !is_ready(medium, segment, self.epoch)
            && let Err(error) = self.make_ready(segment, hash, depth)
        {
            return walk.torn(error);
        }
        let mut displaced = vec![0_u32; bucket_count::<K>() as usize];
        for index in 0..bucket_count::<K>() {
            let bucket = bucket_at(segment, index);
            let prints = bucket.prints(medium);
            for slot in each_slot(slots_of::<K>(index)) {
                let (stamp, at) = (bucket.stamp(medium, slot), slot_at(bucket.0, slot));
                if self.is_slot_damaged(bucket, slot) {
                    let what = "the words of a slot do not belong together";
                    walk.torn(Error::corrupt(&self.heap, at, what))?;
                    continue;
                }
                let entry = stamp.hash(index, bits);
                let is_here = stamp.is_valid() && entry.prefix(depth) == hash.prefix(depth);
                // Who frees what was cleared does not tell readers, of which there are none.
                let is_shown = prints.used() & 1 << slot != 0;
                if is_here != is_shown && !walk.is_cleared {
                    walk.wrong(at, "a slot is used that is not valid, or the other way round");
                    continue;
                }
                if is_here {
                    if prints.matching(entry.fingerprint()) & 1 << slot == 0 {
                        walk.wrong(at, "a slot has another fingerprint than its hash");
                    }
                    displaced[entry.home(bits) as usize] += u32::from(stamp.is_displaced());
                    self.check_entry(segment, bucket, slot, entry, walk)?;
                }
            }
        }
        for (index, displaced) in displaced.into_iter().enumerate() {
            let bucket = bucket_at(segment, index as u64);
            if !bucket.control(medium).counts(displaced) && !walk.is_cleared {
                walk.wrong(bucket.0, "a bucket does not count the entries displaced from it");
            }
            if bucket.control(medium).is_held() {
                walk.wrong(bucket.0, "nobody changes a bucket, but it is held");
            }
        }
        Ok(())
    }

    fn check_entry(
        &self,
        segment: u64,
        bucket: Bucket,
        slot: u32,
        hash: Hash,
        walk: &mut Walk,
    ) -> Result<()> {
        let (medium, at) = (self.medium(), slot_at(bucket.0, slot));
        let payload = self.payload(bucket.word(medium, slot));
        let pair = Self::pair(segment, hash);
        // Of two slots of one key, the later one reports it.
        let is_before = |other: Bucket, other_slot: u32| (other.0, other_slot) < (bucket.0, slot);
        for (other, slots, is_displaced) in pair.slots::<K>() {
            for other_slot in each_slot(slots & other.prints(medium).used()) {
                let is_same = is_before(other, other_slot)
                    && other.stamp(medium, other_slot).is_same_as(Self::stamp(hash, is_displaced))
                    && self.has_key_of(Self::content(other.word(medium, other_slot)), payload.word);
                if is_same {
                    walk.wrong(at, "a key occurs twice");
                }
            }
        }
        if Self::IS_INLINE {
            walk.entries += 1;
            return Ok(());
        }
        if !MULTI {
            return self.check_record(hash, payload, walk);
        }
        for linked in self.chain(payload.word) {
            match linked {
                // What is removed, and was not freed before a crash, is no entry.
                Ok(linked) if linked.link.is_dead => walk.blocks.push(linked.record.offset),
                Ok(linked) => self.check_record(hash, linked.payload(), walk)?,
                Err(error) => return walk.torn(error),
            }
        }
        Ok(())
    }

    fn check_record(&self, hash: Hash, payload: Payload, walk: &mut Walk) -> Result<()> {
        walk.entries += 1;
        let read = self.record(payload.word).and_then(|record| {
            walk.blocks.push(record.offset);
            self.with_key(hash, payload, |_| ())?;
            self.with_value(payload, |_| ())
        });
        match read {
            Err(Error::Checksum { offset, .. }) => {
                walk.wrong(offset, "a record does not fit its checksum");
                Ok(())
            }
            Err(error) => walk.torn(error),
            Ok(()) => Ok(()),
        }
    }

    /// Whether two entries of one hash have one key.
    fn has_key_of(&self, word: u64, other: u64) -> bool {
        if Self::IS_INLINE {
            return true;
        }
        let key_of = |word: u64| {
            let record = self.record_at(word)?;
            Some(self.with_bytes(record.key_at(Self::FORM), record.key_len, <[u8]>::to_vec))
        };
        key_of(word) == key_of(other)
    }
}

impl Control {
    /// Whether the control word counts so many displaced entries.
    fn counts(self, displaced: u32) -> bool {
        let expected = Control::new(displaced);
        // What has reached the maximum stays there.
        self.displaced() == expected.displaced()
            || self.displaced() == Control::new(u32::MAX).displaced()
    }
}
