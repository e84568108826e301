//! Reading and writing, with the paper's phases.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use remanent_pmem::heap::Heap;
use remanent_pmem::order::Method;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Medium, WORD_LEN};

use super::layout::{Field, LANE_COUNT, NULL, Places};
use super::{Policy, Recovered};
use crate::disk::layout::{BLOCK_LEN, Block, Lba};
use crate::disk::pieces::{Piece, What, pieces};
use crate::{Error, Result};

/// Locks for lines of the map. Two writes seldom want the same one.
const STRIPES: u64 = 1024;
/// Entries in a line of the map.
const LINE_ENTRIES: u64 = 8;

/// An nvramdisk's persistent part, and the volatile part that exists once in a process.
///
/// Locks are taken in this order: a lane, a stripe, the shadow blocks.
#[derive(Debug)]
pub(crate) struct Device<M: Medium> {
    pub(crate) heap: Heap<M>,
    pub(crate) places: Places,
    /// A thread that holds lane *n* writes record *n* of the journal.
    pub(crate) lanes: Box<[PauseMutex<()>]>,
    /// `None` until the disk is recovered.
    pub(crate) shadows: PauseMutex<Option<Shadows>>,
    stripes: Box<[Stripe]>,
}

#[derive(Debug, Default)]
struct Stripe {
    /// Held to change an entry in one of these lines. A lock is for lines and not for entries,
    /// because a method may store whole lines.
    lock: PauseMutex<()>,
    /// Number of changes to entries in these lines.
    changes: AtomicU64,
}

/// The blocks that the map does not lead to; volatile.
#[derive(Debug)]
pub(crate) struct Shadows {
    pub(crate) free: Vec<Block>,
    pub(crate) recovered: Recovered,
}

impl<M: Medium> Device<M> {
    pub(crate) fn new(heap: Heap<M>, places: Places) -> Self {
        Device {
            heap,
            places,
            lanes: (0..LANE_COUNT).map(|_| PauseMutex::default()).collect(),
            shadows: PauseMutex::default(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
        }
    }

    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    pub(crate) fn size(&self) -> u64 {
        self.places.lbas * BLOCK_LEN
    }

    /// Interrupted writes that the opening found.
    pub(crate) fn recovered(&self) -> Recovered {
        let shadows = self.shadows.lock(self.medium());
        shadows.as_ref().map(|shadows| shadows.recovered).unwrap_or_default()
    }

    fn stripe(&self, lba: Lba) -> &Stripe {
        &self.stripes[(lba.0 / LINE_ENTRIES % STRIPES) as usize]
    }

    /// Takes a lane: the thread's own lane if it is free.
    fn enter(&self) -> (usize, PauseGuard<'_, ()>) {
        let first = self.medium().thread() as usize % LANE_COUNT;
        loop {
            let mut indices = (0..LANE_COUNT).map(|step| (first + step) % LANE_COUNT);
            let taken = indices.find_map(|index| Some((index, self.lanes[index].try_lock()?)));
            if let Some(taken) = taken {
                return taken;
            }
            self.medium().pause();
        }
    }

    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size }),
        }
    }

    /// The block that holds a logical block, and its offset; `None` for one that was never written.
    fn entry(&self, lba: Lba) -> Result<Option<(Block, u64)>> {
        let at = self.places.entry(lba.0);
        match self.medium().load(at) {
            0 => Ok(None),
            word => {
                let found = self.places.vpn(word).zip(self.places.block(word));
                let what = || format!("it leads to block {word:#x}, which is none");
                found.map(Some).ok_or_else(|| Error::damaged(at, what()))
            }
        }
    }

    /// Reads a range, which lies on the disk.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let len = rest.len().min((BLOCK_LEN - at % BLOCK_LEN) as usize);
            let (part, after) = rest.split_at_mut(len);
            self.read_part(Lba::containing(at), at % BLOCK_LEN, part)?;
            (at, rest) = (at + len as u64, after);
        }
        Ok(())
    }

    /// Reads a part of a block as one write left it.
    fn read_part(&self, lba: Lba, start: u64, part: &mut [u8]) -> Result<()> {
        let changes = &self.stripe(lba).changes;
        loop {
            // Acquire: partner of `switch`; an entry that has changed since is not taken for the
            // newest.
            let before = changes.load(Ordering::Acquire);
            let read = self.read_held(lba, start, part);
            self.heap.verify()?;
            // Acquire: the bytes are read before the count. A block is reused only after the change
            // of its entry was counted, so a thread that has read newer bytes sees the new count.
            fence(Ordering::Acquire);
            if changes.load(Ordering::Relaxed) == before {
                return read;
            }
            self.medium().pause();
        }
    }

    /// Reads a part of a block, whether or not others change it meanwhile.
    fn read_held(&self, lba: Lba, start: u64, part: &mut [u8]) -> Result<()> {
        match self.entry(lba)? {
            Some((_, at)) => self.medium().read(at + start, part),
            None => part.fill(0),
        }
        Ok(())
    }

    /// Writes a range, which lies on the disk, block by block.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8], policy: Policy) -> Result<()> {
        let (lane, _entered) = self.enter();
        pieces(offset, bytes).iter().try_for_each(|piece| self.write_block(lane, piece, policy))
    }

    fn write_block(&self, lane: usize, piece: &Piece<'_>, policy: Policy) -> Result<()> {
        let medium = self.medium();
        let _held = self.stripe(piece.lba).lock.lock(medium);
        let old = self.entry(piece.lba)?;
        let content = self.content(piece)?;
        // Unreadable content must not be written.
        self.heap.verify()?;
        let (shadow, at) = self.take_shadow()?;
        self.write_content(lane, piece.lba, &content, (shadow, at), policy);
        if let Some((old, _)) = old {
            self.give_shadow(old);
        }
        Ok(self.heap.verify()?)
    }

    /// The steps of a write, each durable before the next. The states are those of the paper's
    /// Table 2.
    fn write_content(
        &self,
        lane: usize,
        lba: Lba,
        content: &[u8],
        (shadow, at): (Block, u64),
        policy: Policy,
    ) {
        let medium = self.medium();
        let word = Places::word(lba.0);
        let [vpn, l1, l2] = self.places.record(lane);
        // Flush: the new block, before the record counts (S6).
        // Fence: before S1.
        // Redundant fence: those of S2 and S4 come before S6 too; the paper orders each step.
        medium.write_ordered(policy.data, at, content);
        // Flush: the number of the block (S2), before the record counts (S6).
        // Fence: before S3.
        // Redundant fence: that of S4 comes before S6 too; the paper orders each step.
        put(medium, policy.journal, vpn, u64::from(shadow.0));
        // Flush: L1 (S4), before the map is changed (S7).
        // Fence: before S5, so that L1 and L2 are never garbage at the same time.
        put(medium, policy.journal, l1, word);
        // Flush and fence: L2 (S6), before the map is changed (S7). From here on the write has
        // happened.
        put(medium, policy.journal, l2, word);
        // Flush and fence: the map (S8), before the record is reset (S9).
        put(medium, policy.map, self.places.entry(lba.0), u64::from(shadow.0));
        // Release: partner of `read_part`; before the old block is reused.
        self.stripe(lba).changes.fetch_add(1, Ordering::Release);
        // Flush: L1 (S10), before the next S3.
        // Fence: before S11, so that L1 and L2 are never garbage at the same time.
        // Redundant flush: L1 alone decides nothing, and the next S4 is durable before L2 is not
        // null.
        put(medium, policy.journal, l1, NULL);
        // Flush: L2 (S0), before the next S3: it then agrees with no content of L1.
        // Fence: before the next S1.
        // Redundant fence: those of the next write's block and of its S2 come before S3 too.
        put(medium, policy.journal, l2, NULL);
    }

    /// New content of a piece's block.
    fn content<'p>(&self, piece: &Piece<'p>) -> Result<Cow<'p, [u8]>> {
        match piece.what {
            What::Whole(data) => Ok(Cow::Borrowed(data)),
            What::Part(start, part) => {
                let mut data = vec![0; BLOCK_LEN as usize];
                self.read_held(piece.lba, 0, &mut data)?;
                data[start..start + part.len()].copy_from_slice(part);
                Ok(Cow::Owned(data))
            }
            What::Parts(_) | What::Nothing => unreachable!("no piece of contiguous bytes"),
        }
    }

    /// Takes a free block. There are as many shadow blocks as lanes, and a thread that holds a lane
    /// takes one at a time.
    fn take_shadow(&self) -> Result<(Block, u64)> {
        let mut shadows = self.shadows.lock(self.medium());
        let taken = shadows.as_mut().and_then(|shadows| shadows.free.pop());
        let found = taken.and_then(|block| Some((block, self.places.block(block.0.into())?)));
        found.ok_or_else(|| Error::damaged(self.places.meta, "no shadow block is free"))
    }

    fn give_shadow(&self, block: Block) {
        let mut shadows = self.shadows.lock(self.medium());
        shadows.iter_mut().for_each(|shadows| shadows.free.push(block));
    }

    /// The fields of a lane's record.
    pub(crate) fn load_record(&self, lane: usize) -> [u64; 3] {
        [Field::Vpn, Field::L1, Field::L2]
            .map(|field| self.medium().load(self.places.field(lane, field)))
    }
}

/// Writes one word by an ordering method.
#[track_caller]
pub(crate) fn put<M: Medium>(medium: &M, method: Method, at: u64, word: u64) {
    const _: () = assert!(size_of::<u64>() as u64 == WORD_LEN);
    medium.write_ordered(method, at, &word.to_le_bytes());
}
