//! Free blocks, and the places of all blocks.
//!
//! A disk's blocks lie in slabs, which the disk takes from its pool when it needs them. On the
//! medium a slab has one bit for each block. In memory a bitmap of free blocks is read from those
//! bits when it is first needed, slab by slab. So opening a disk does not depend on its size.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use super::layout::{BLOCK_LEN, Block, DIRECTORY_EXTENTS, DIRECTORY_SLABS};
use super::record::Change;
use super::stripes::{Held, Stripes};
use crate::line::{BITS, Line};
use crate::seal::{Key, Owner};
use crate::{Error, Result};

type Segment = OnceLock<Box<[AtomicU64]>>;

/// The slabs of a disk and their free blocks; volatile.
#[derive(Debug)]
pub(crate) struct Space {
    slab_shift: u32,
    /// Key of the disk's checksums.
    key: Key,
    /// Offset of each slab, in segments like those of the directory.
    slabs: [Segment; DIRECTORY_EXTENTS],
    count: AtomicUsize,
    free: PauseMutex<Free>,
    /// Locks for the lines of the slabs' bits.
    bit_stripes: Stripes,
}

#[derive(Debug, Default)]
struct Free {
    /// Free blocks of each slab; `None` if the slab was not read yet.
    slabs: Vec<Option<FreeBits>>,
    /// Index of the slab to search first.
    cursor: usize,
    /// All slabs before this index were read.
    seen: usize,
}

#[derive(Debug, Default)]
struct FreeBits {
    count: u64,
    /// Free-block bitmap: 1 = free.
    words: Vec<u64>,
    /// Index of the word to search first.
    cursor: usize,
}

impl FreeBits {
    fn take(&mut self, count: usize, slab: u64, taken: &mut Vec<Block>) {
        let (len, first) = (self.words.len(), self.cursor);
        for step in 0..len {
            let index = (first + step) % len;
            let word = &mut self.words[index];
            while *word != 0 {
                if taken.len() == count {
                    self.cursor = index;
                    return;
                }
                let bit = u64::from(word.trailing_zeros());
                *word &= *word - 1;
                self.count -= 1;
                taken.push(Block((slab + index as u64 * 64 + bit) as u32));
            }
        }
    }
}

/// The place of a block's bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bit {
    /// Pool offset of the line.
    line: u64,
    word: usize,
    mask: u64,
}

impl Space {
    /// No slab yet. Each will have `slab_blocks` blocks, a power of two.
    pub(crate) fn new(slab_blocks: u64, key: Key) -> Self {
        Space {
            slab_shift: slab_blocks.trailing_zeros(),
            key,
            slabs: [const { OnceLock::new() }; DIRECTORY_EXTENTS],
            count: AtomicUsize::new(0),
            free: PauseMutex::default(),
            bit_stripes: Stripes::new(),
        }
    }

    /// Key of the disk's checksums.
    #[inline]
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn slab_blocks(&self) -> u64 {
        1 << self.slab_shift
    }

    pub(crate) fn slab_len(&self) -> u64 {
        self.slab_blocks() * BLOCK_LEN
    }

    /// Number of slabs of the disk.
    pub(crate) fn slab_count(&self) -> usize {
        // Acquire: partner of `add_slab`; the offsets of those slabs are visible.
        self.count.load(Ordering::Acquire)
    }

    /// Adds a slab at pool offset `at`. One thread at a time.
    pub(crate) fn add_slab(&self, at: u64) {
        let index = self.slab_count();
        let segment = self.slabs[index / DIRECTORY_SLABS]
            .get_or_init(|| (0..DIRECTORY_SLABS).map(|_| AtomicU64::new(0)).collect());
        // Relaxed: published by the count below, or by an entry that leads here and is published
        // later.
        segment[index % DIRECTORY_SLABS].store(at, Ordering::Relaxed);
        // Release: partner of `slab_count`.
        self.count.store(index + 1, Ordering::Release);
    }

    /// Pool offset of a slab.
    #[inline]
    pub(crate) fn slab_offset(&self, index: usize) -> Option<u64> {
        let segment = self.slabs.get(index / DIRECTORY_SLABS)?.get()?;
        // Relaxed: see `add_slab`.
        let at = segment[index % DIRECTORY_SLABS].load(Ordering::Relaxed);
        (at != 0).then_some(at)
    }

    /// Pool offset of a block; `None` when there is no such block.
    #[inline]
    pub(crate) fn offset(&self, block: Block) -> Option<u64> {
        let index = u64::from(block.0) & (self.slab_blocks() - 1);
        let slab = self.slab_offset((block.0 >> self.slab_shift) as usize)?;
        Some(slab + index * BLOCK_LEN)
    }

    /// Like [`offset`](Space::offset), for a block that something on the disk leads to.
    ///
    /// # Errors
    ///
    /// When there is no such block; `from` is the pool offset of the word that leads to it.
    #[inline]
    pub(crate) fn locate(&self, block: Block, from: u64) -> Result<u64> {
        self.offset(block).ok_or_else(|| {
            let what = format!("it leads to block {}, which no slab has", block.0);
            Error::damaged(from, what)
        })
    }

    /// The place of the bit of an existing block.
    fn bit(&self, block: Block) -> Result<Bit> {
        let index = u64::from(block.0) & (self.slab_blocks() - 1);
        let slab = self.locate(Block(block.0 - index as u32), 0)?;
        let (line, bit) = (index / BITS, index % BITS);
        Ok(Bit { line: slab + line * 64, word: (bit / 64) as usize, mask: 1 << (bit % 64) })
    }

    /// Takes `count` free blocks, as many consecutive ones as there are; fewer if the slabs have no
    /// more. Nothing is noted on the medium: a crash gives the blocks back.
    pub(crate) fn reserve<M: Medium>(&self, medium: &M, count: usize) -> Result<Vec<Block>> {
        let mut taken = Vec::with_capacity(count);
        let mut free = self.free.lock(medium);
        free.slabs.resize_with(self.slab_count(), || None);
        self.take(&mut free, count, &mut taken);
        while taken.len() < count && free.seen < free.slabs.len() {
            let index = free.seen;
            if let Err(error) = self.look_at(medium, &mut free, index) {
                self.put_back(&mut free, taken);
                return Err(error);
            }
            (free.seen, free.cursor) = (index + 1, index);
            self.take(&mut free, count, &mut taken);
        }
        Ok(taken)
    }

    fn take(&self, free: &mut Free, count: usize, taken: &mut Vec<Block>) {
        let (len, first) = (free.slabs.len(), free.cursor);
        for step in 0..len {
            if taken.len() == count {
                return;
            }
            let index = (first + step) % len;
            if let Some(slab) = free.slabs[index].as_mut().filter(|slab| slab.count > 0) {
                slab.take(count, (index as u64) << self.slab_shift, taken);
                free.cursor = index;
            }
        }
    }

    /// Must be called before the bits of `blocks` change on the medium: reads their slabs into
    /// memory. From then on memory counts, and nobody reads the lines of these slabs while they are
    /// stored.
    fn look_at_all<M: Medium>(&self, medium: &M, blocks: &[Block]) -> Result<()> {
        let mut free = self.free.lock(medium);
        free.slabs.resize_with(self.slab_count(), || None);
        for block in blocks {
            self.look_at(medium, &mut free, (block.0 >> self.slab_shift) as usize)?;
        }
        Ok(())
    }

    /// Adds to `changes` that the blocks `used` are in use from now on, and the blocks `free` are
    /// free. Hold the returned locks until this is committed.
    pub(crate) fn mark<M: Medium>(
        &self,
        medium: &M,
        used: &[Block],
        free: &[Block],
        changes: &mut impl Extend<Change>,
    ) -> Result<Held<'_>> {
        if used.is_empty() && free.is_empty() {
            return Ok(Held::new());
        }
        self.look_at_all(medium, free)?;
        let mut bits: Vec<(Bit, bool)> = Vec::with_capacity(used.len() + free.len());
        for (blocks, is_used) in [(used, true), (free, false)] {
            for &block in blocks {
                bits.push((self.bit(block)?, is_used));
            }
        }
        bits.sort_unstable_by_key(|(bit, _)| bit.line);
        let held = self.bit_stripes.hold(medium, bits.iter().map(|(bit, _)| bit.line));
        for part in bits.chunk_by(|(one, _), (other, _)| one.line == other.line) {
            let at = part[0].0.line;
            let mut line = self.key.load_line(medium, at, Owner::NONE)?;
            for (bit, is_used) in part {
                let word = &mut line.words[bit.word];
                if (*word & bit.mask != 0) == *is_used {
                    let state = if *is_used { "used" } else { "free" };
                    let what = format!("a block of this line is {state} already");
                    return Err(Error::damaged(at, what));
                }
                *word ^= bit.mask;
            }
            line.version = line.version.wrapping_add(1);
            changes.extend([Change::new(at, line)]);
        }
        Ok(held)
    }

    fn look_at<M: Medium>(&self, medium: &M, free: &mut Free, index: usize) -> Result<()> {
        if free.slabs.get(index).is_some_and(Option::is_some) {
            return Ok(());
        }
        let bits = self.read_bits(medium, index)?;
        free.slabs[index] = Some(bits);
        Ok(())
    }

    /// Gives back blocks that are free on the medium, too.
    pub(crate) fn release<M: Medium>(&self, medium: &M, blocks: impl IntoIterator<Item = Block>) {
        let mut free = self.free.lock(medium);
        self.put_back(&mut free, blocks);
    }

    fn put_back(&self, free: &mut Free, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            let index = u64::from(block.0) & (self.slab_blocks() - 1);
            let slab = &mut free.slabs[(block.0 >> self.slab_shift) as usize];
            let slab = slab.as_mut().expect("whoever took or freed a block looked at its slab");
            slab.words[(index / 64) as usize] |= 1 << (index % 64);
            slab.count += 1;
        }
    }

    fn read_bits<M: Medium>(&self, medium: &M, index: usize) -> Result<FreeBits> {
        let slab = self.locate(Block((index << self.slab_shift) as u32), 0)?;
        let mut words = vec![0; self.slab_blocks().div_ceil(64) as usize];
        for line in 0..self.slab_blocks().div_ceil(BITS) {
            let at = slab + line * 64;
            let found = Line::load(medium, at, self.key.of_line())
                .ok_or_else(|| Error::damaged(at, "a line of a slab's bits is not whole"))?;
            let places = words[line as usize * found.words.len()..].iter_mut();
            places.zip(found.words).for_each(|(free, used)| *free = !used);
        }
        // The block that holds the bits is never free, whatever they say.
        words[0] &= !1;
        let rest = self.slab_blocks() % 64;
        if rest > 0 {
            *words.last_mut().expect("a slab has blocks") &= (1 << rest) - 1;
        }
        let count = words.iter().map(|word| u64::from(word.count_ones())).sum();
        Ok(FreeBits { count, words, cursor: 0 })
    }
}
