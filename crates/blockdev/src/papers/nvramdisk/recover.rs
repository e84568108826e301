//! Creating an nvramdisk, and opening it after any crash.
//!
//! [`decide`] finds the meaning of a record from its three fields and one entry of the map. The
//! documentation of [the module above](super) proves that this is enough. Finding the free shadow
//! blocks reads the whole map.

use remanent_pmem::heap::{Block as Extent, Heap};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium, WORD_LEN};
use smallvec::{SmallVec, smallvec};

use super::layout::{
    Field, IDENTITY, JOURNAL_LEN, LANE_COUNT, LAYOUT, LBAS_MAX, NULL, Places, SEGMENTS,
    SHADOW_COUNT,
};
use super::ops::{Device, Shadows, put};
use super::{Policy, Recovered};
use crate::disk::layout::{BLOCK_LEN, Lba};
use crate::{Error, Result};

/// A record as it was found on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) vpn: u64,
    pub(crate) l1: u64,
    pub(crate) l2: u64,
}

impl Record {
    /// Whether the write has certainly happened, although the map may not have it: S6 to S8.
    fn is_agreed(self) -> bool {
        self.l1 == self.l2 && self.l1 != NULL
    }
}

/// The outcome of an interrupted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// There was no write, or no trace of it.
    None,
    Undo,
    Redo,
}

/// One word to be written, durably before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The entry that L1 and L2 name becomes VPN.
    Map,
    /// The field becomes null.
    Reset(Field),
}

/// The meaning of a record, and the steps that complete it. `entry` returns the word of the map
/// that L1 or L2 names, if it names one.
pub(crate) fn decide(
    record: Record,
    entry: impl Fn(u64) -> Option<u64>,
) -> (Fate, SmallVec<[Step; 3]>) {
    use Field::{L1, L2};
    use Step::{Map, Reset};
    match (record.l1, record.l2) {
        (NULL, NULL) => (Fate::None, smallvec![]),
        _ if record.is_agreed() => (Fate::Redo, smallvec![Map, Reset(L1), Reset(L2)]),
        (_, NULL) => (Fate::Undo, smallvec![Reset(L1)]),
        (NULL, _) => (Fate::Redo, smallvec![Reset(L2)]),
        // The map is already changed, so L1 was being written. L1 and L2 are never garbage at the
        // same time.
        _ if entry(record.l2) == Some(record.vpn) => (Fate::Redo, smallvec![Reset(L1), Reset(L2)]),
        _ => (Fate::Undo, smallvec![Reset(L2), Reset(L1)]),
    }
}

impl<M: Medium> RootObject<M> for Device<M> {
    // An explicit cache flush of the map may destroy entries of other blocks, which have no copy.
    const SURVIVES_DISTURBANCE: bool = false;

    fn root_type() -> RootType {
        RootType { name: "Nvramdisk".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::format(heap, 0).map_err(Error::into_pool)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::load(heap).map_err(Error::into_pool)
    }
}

impl<M: Medium> Device<M> {
    /// Creates an empty disk in a fresh heap.
    pub(crate) fn format(heap: Heap<M>, size: u64) -> Result<Self> {
        check_size(size)?;
        let lbas = size / BLOCK_LEN;
        let (medium, header) = (heap.medium(), heap.header());
        let mut heap_lane = heap.enter().prepare_to_write();
        let meta = heap_lane.allocate_zeroed(Places::meta_len(lbas))?.offset;
        let segments = Places::segment_blocks(lbas)
            .map(|blocks| Ok(heap_lane.allocate(blocks * BLOCK_LEN)?.offset))
            .collect::<Result<Vec<u64>>>()?;
        drop(heap_lane);
        let identity = [size, SHADOW_COUNT, LANE_COUNT as u64, meta];
        for (word, at) in identity.into_iter().zip((header + IDENTITY..).step_by(8)) {
            medium.store(at, word);
        }
        for (&segment, at) in segments.iter().zip((header + SEGMENTS..).step_by(8)) {
            medium.store(at, segment);
        }
        // Flush and fence: before the root becomes live. The journal and the map are zeros: null,
        // and never written.
        medium.persist(header, SEGMENTS + segments.len() as u64 * WORD_LEN);
        let device = Device::new(heap, Places { meta, lbas, segments });
        device.heap.verify()?;
        Ok(device)
    }

    /// Opens a disk, except for the work of [`resume`](Device::resume).
    fn load(heap: Heap<M>) -> Result<Self> {
        let (medium, header) = (heap.medium(), heap.header());
        let [size, shadows, lanes, meta] =
            [0, 8, 16, 24].map(|at| medium.load(header + IDENTITY + at));
        let lbas = size / BLOCK_LEN;
        let is_known = (shadows, lanes) == (SHADOW_COUNT, LANE_COUNT as u64)
            && check_size(size).is_ok()
            && heap.has_large(meta, Places::meta_len(lbas))?;
        if !is_known {
            let what = "an nvramdisk of another format, or what says its format is damaged";
            return Err(Error::damaged(header + IDENTITY, what));
        }
        let mut segments = Vec::new();
        for (blocks, at) in Places::segment_blocks(lbas).zip((header + SEGMENTS..).step_by(8)) {
            let segment = medium.load(at);
            if !heap.has_large(segment, blocks * BLOCK_LEN)? {
                return Err(Error::damaged(at, "it leads to no segment of this disk"));
            }
            segments.push(segment);
        }
        let is_linked = |extent: Extent| extent.offset == meta || segments.contains(&extent.offset);
        heap.recover(is_linked)?;
        heap.verify()?;
        Ok(Device::new(heap, Places { meta, lbas, segments }))
    }

    /// Completes or undoes what a crash has interrupted, and finds the free shadow blocks; once in
    /// a process. Takes time for each block of the disk.
    pub(crate) fn resume(&self, policy: Policy) -> Result<()> {
        let medium = self.medium();
        let mut shadows = self.shadows.lock(medium);
        if shadows.is_some() {
            return Ok(());
        }
        // Flush and fence: records that a killed process left in the caches alone, before anything
        // is decided by them.
        // Redundant: but where a process was killed before, and the power fails later.
        medium.persist(self.places.meta, JOURNAL_LEN);
        let records = (0..LANE_COUNT).map(|lane| {
            let [vpn, l1, l2] = self.load_record(lane);
            (lane, Record { vpn, l1, l2 })
        });
        let (agreed, others): (Vec<_>, Vec<_>) =
            records.partition(|(_, record)| record.is_agreed());
        // An unreadable record must not be taken for one without meaning.
        self.heap.verify()?;
        let mut recovered = Recovered::default();
        // Records that restore entries of the map first: the meaning of the others depends on the
        // map.
        for (lane, record) in agreed.into_iter().chain(others) {
            match self.recover_record(lane, record, policy)? {
                Fate::None => {}
                Fate::Undo => recovered.undone += 1,
                Fate::Redo => recovered.redone += 1,
            }
        }
        let used = self.read_map();
        self.heap.verify()?;
        if let Some(violation) = used.violations.first() {
            return Err(Error::Damaged { violation: violation.clone() });
        }
        // In descending order: blocks are taken from the end, the lowest numbers first.
        *shadows = Some(Shadows { free: used.free().rev().collect(), recovered });
        Ok(())
    }

    fn recover_record(&self, lane: usize, record: Record, policy: Policy) -> Result<Fate> {
        let medium = self.medium();
        let load = |lba: Lba| medium.load(self.places.entry(lba.0));
        let (fate, steps) = decide(record, |word| self.places.lba(word).map(load));
        for step in steps {
            match step {
                Step::Map => {
                    let at = self.places.field(lane, Field::L1);
                    let lba = self.places.lba(record.l1).ok_or_else(|| {
                        Error::damaged(at, format!("{:#x} is no logical block", record.l1))
                    })?;
                    let block = self.places.vpn(record.vpn).ok_or_else(|| {
                        let what = format!("record {lane} has block {:#x}, none", record.vpn);
                        Error::damaged(self.places.field(lane, Field::Vpn), what)
                    })?;
                    // Flush and fence: the map (S8), before the record is reset (S9).
                    put(medium, policy.map, self.places.entry(lba.0), block.0.into());
                }
                // Flush and fence: one field before the other, so that they are never garbage at
                // the same time, and before the next write.
                Step::Reset(field) => {
                    put(medium, policy.journal, self.places.field(lane, field), NULL);
                }
            }
        }
        Ok(fate)
    }
}

/// Refuses a size that is impossible in this format.
pub(crate) fn check_size(size: u64) -> Result<()> {
    let reason = match size {
        _ if !size.is_multiple_of(BLOCK_LEN) => "a size is a multiple of 4096 bytes".to_owned(),
        _ if size / BLOCK_LEN > LBAS_MAX => format!("{} bytes are the most", LBAS_MAX * BLOCK_LEN),
        _ => return Ok(()),
    };
    Err(Error::Size { size, reason })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LBA: u64 = 3;
    const OTHER: u64 = 5;
    const OLD: u64 = 11;
    const OTHERS: u64 = 12;
    const NEW: u64 = 13;
    /// Everything that garbage may look like, and a value that looks like nothing.
    const GARBAGE: [u64; 7] = [NULL, LBA, OTHER, OLD, OTHERS, NEW, 0xdead_beef_0bad_f00d];

    /// The words that take part in one write.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Words {
        vpn: u64,
        l1: u64,
        l2: u64,
        entry: u64,
        others_entry: u64,
    }

    impl Words {
        fn put(mut self, step: Step, garbage: Option<u64>) -> Words {
            let place = match step {
                Step::Map if self.l1 == LBA => &mut self.entry,
                Step::Map if self.l1 == OTHER => &mut self.others_entry,
                Step::Map => panic!("{self:?}: a map entry of no logical block is changed"),
                Step::Reset(Field::Vpn) => panic!("VPN is never reset"),
                Step::Reset(Field::L1) => &mut self.l1,
                Step::Reset(Field::L2) => &mut self.l2,
            };
            *place = garbage.unwrap_or(if step == Step::Map { self.vpn } else { NULL });
            self
        }

        fn decide(self) -> (Fate, SmallVec<[Step; 3]>) {
            let Words { vpn, l1, l2, .. } = self;
            decide(Record { vpn, l1, l2 }, |word| match word {
                LBA => Some(self.entry),
                OTHER => Some(self.others_entry),
                _ => None,
            })
        }
    }

    /// The paper's table: the words after so many steps, with garbage in the word that is being
    /// written.
    fn states(garbage: u64) -> [Words; 12] {
        let s0 = Words { vpn: OTHERS, l1: NULL, l2: NULL, entry: OLD, others_entry: OTHERS };
        let s2 = Words { vpn: NEW, ..s0 };
        let s4 = Words { l1: LBA, ..s2 };
        let s6 = Words { l2: LBA, ..s4 };
        let s8 = Words { entry: NEW, ..s6 };
        let s10 = Words { l1: NULL, ..s8 };
        [
            s0,
            Words { vpn: garbage, ..s0 },
            s2,
            Words { l1: garbage, ..s2 },
            s4,
            Words { l2: garbage, ..s4 },
            s6,
            Words { entry: garbage, ..s6 },
            s8,
            Words { l1: garbage, ..s8 },
            s10,
            Words { l2: garbage, ..s10 },
        ]
    }

    /// Everything that recovery may leave when it begins here and crashes any number of times at
    /// any point, with any garbage in the word that is being written; and what it leaves without a
    /// crash.
    fn closure(start: Words) -> (BTreeSet<Words>, BTreeSet<Words>) {
        let (mut met, mut ends) = (BTreeSet::new(), BTreeSet::new());
        let mut todo = vec![start];
        while let Some(words) = todo.pop() {
            if !met.insert(words) {
                continue;
            }
            let mut at = words;
            for step in words.decide().1 {
                todo.extend(GARBAGE.map(|garbage| at.put(step, Some(garbage))));
                at = at.put(step, None);
                todo.push(at);
            }
            ends.insert(at);
        }
        (met, ends)
    }

    #[test]
    fn recovery_ends_every_state_with_the_old_block_or_the_new_one_however_often_it_is_crashed() {
        for garbage in GARBAGE {
            for (number, words) in states(garbage).into_iter().enumerate() {
                let (met, ends) = closure(words);
                assert!(met.len() < 200, "S{number}");
                for end in ends {
                    assert_eq!((end.l1, end.l2), (NULL, NULL), "S{number}, {garbage}: {end:?}");
                    assert_eq!(end.others_entry, OTHERS, "S{number}, {garbage}: {end:?}");
                    // Garbage that equals the right word is the right word: S5 is then S6, and no
                    // client was told otherwise.
                    let right: &[u64] = match number {
                        0..=2 => &[OLD],
                        3..=5 => &[OLD, NEW],
                        _ => &[NEW],
                    };
                    assert!(right.contains(&end.entry), "S{number}, {garbage}: {end:?}");
                }
            }
        }
    }

    #[test]
    fn both_replicas_are_never_garbage() {
        for garbage in GARBAGE {
            for (number, words) in states(garbage).into_iter().enumerate() {
                for met in closure(words).0 {
                    let is_right = |word| [NULL, LBA].contains(&word);
                    assert!(is_right(met.l1) || is_right(met.l2), "S{number}: {met:?}");
                }
            }
        }
    }

    #[test]
    fn the_fate_of_a_state_is_the_papers() {
        let random = 0xdead_beef_0bad_f00d;
        for (number, words) in states(random).into_iter().enumerate() {
            let expected = match number {
                0..=2 => Fate::None,
                3..=5 => Fate::Undo,
                _ => Fate::Redo,
            };
            assert_eq!(words.decide().0, expected, "S{number}");
        }
    }
}
