//! Taking slabs from the pool, and finding them again.
//!
//! A slab is taken when no block is free. If many blocks are needed, several slabs are taken at
//! once, as one run of the pool. The slab directory has the offset of each slab. The header leads
//! to the extents of the directory.

use std::ops::Range;

use remanent_pmem::heap::{Block as Extent, Heap, Lane as HeapLane};
use remanent_pmem::pool::layout::ChunkId;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::journal::{Journal, Lane};
use super::layout::{
    DIRECTORY, DIRECTORY_EXTENT_LEN, DIRECTORY_EXTENTS, DIRECTORY_SLABS, SIZE_MAX, SLAB_COUNT_MAX,
};
use super::record::Change;
use super::space::Space;
use crate::line::{BITS, Line, WORDS};
use crate::seal::Owner;
use crate::{Error, Result};

/// The slabs of a disk on the medium, by their directory.
#[derive(Debug)]
pub(crate) struct Slabs<'d, M: Medium> {
    pub(crate) heap: &'d Heap<M>,
    pub(crate) journal: &'d Journal,
    pub(crate) space: &'d Space,
}

impl<M: Medium> Slabs<'_, M> {
    /// Bytes of all slabs that the disk may take.
    pub(crate) fn len_max(&self) -> u64 {
        (SLAB_COUNT_MAX as u64 * self.space.slab_len()).min(SIZE_MAX)
    }

    fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// The words of a line of the directory, or of the header's lines that lead to it.
    fn load_words(&self, at: u64) -> Result<[u64; WORDS]> {
        Ok(self.space.key().load_line(self.medium(), at, Owner::NONE)?.words)
    }

    /// Changes such lines durably. They are few enough that their record needs no block.
    fn commit(&self, lane: &mut Lane, changes: &mut [Change]) {
        self.journal.commit(self.medium(), self.space, lane, changes, &[]);
    }

    /// Takes slabs for `blocks` blocks, or fewer if the pool or the record has no room for so many
    /// at once. The caller holds `growth`.
    ///
    /// # Errors
    ///
    /// When there is no room for all slabs. Then nothing was taken, with two exceptions: the file
    /// system under a growing pool is full; other threads have taken the room meanwhile.
    pub(crate) fn add(&self, lane: &mut Lane, blocks: usize) -> Result<()> {
        let (index, len) = (self.space.slab_count(), self.space.slab_len());
        // One block of each slab holds the bits.
        let needed = blocks.div_ceil(self.space.slab_blocks() as usize - 1);
        if (index + needed) as u64 * len > self.len_max() {
            let (needed, size) = (needed as u64 * len, index as u64 * len);
            return Err(PoolError::Full { needed, size, size_max: self.len_max() }.into());
        }
        if needed > 1 {
            self.heap.check_room(len, needed as u64)?;
        }
        let directory = self.directory_extent(lane, index / DIRECTORY_SLABS)?;
        let first = index % DIRECTORY_SLABS;
        let lines = self.journal.lines_without_spill(lane);
        let count = needed.min(DIRECTORY_SLABS - first).min(lines * WORDS - first % WORDS);
        let at = |line: usize| directory + line as u64 * LINE_LEN;
        let lines = first / WORDS..(first + count).div_ceil(WORDS);
        // Before anything is taken, because a damaged line refuses the slabs.
        let changes = lines.clone().map(|line| {
            let words = self.load_words(at(line))?;
            Change::rewrite(self.medium(), self.space.key(), at(line), words)
        });
        let mut changes = changes.collect::<Result<Vec<_>>>()?;
        let mut heap_lane = self.heap.enter().prepare_to_write();
        let slabs = self.allocate_slabs(&mut heap_lane, count)?;
        for (change, line) in changes.iter_mut().zip(lines) {
            for (word, place) in change.line.words.iter_mut().zip(line * WORDS..) {
                let slab = place.checked_sub(first).and_then(|n| slabs.get(n));
                *word = slab.copied().unwrap_or(*word);
            }
        }
        // The heap's lane is held until the slabs are linked durably: it records that they may have
        // to be given back.
        self.commit(lane, &mut changes);
        drop(heap_lane);
        slabs.iter().for_each(|&slab| self.space.add_slab(slab));
        Ok(())
    }

    /// Allocates up to `count` consecutive slabs, with their bits, durably. Returns their offsets.
    fn allocate_slabs(
        &self,
        heap_lane: &mut HeapLane<'_, M>,
        mut count: usize,
    ) -> Result<Vec<u64>> {
        let (medium, len) = (self.medium(), self.space.slab_len());
        let run = loop {
            match heap_lane.allocate(count as u64 * len) {
                // There is no room for so many consecutive slabs, but for fewer.
                Err(error)
                    if count > 1
                        && (error.is_full() || matches!(error, PoolError::TooLarge { .. })) =>
                {
                    count /= 2;
                }
                allocated => break allocated?.offset,
            }
        };
        let bits_len = self.space.slab_blocks().div_ceil(BITS) * LINE_LEN;
        let slabs: Vec<u64> = (0..count as u64).map(|slab| run + slab * len).collect();
        for &slab in &slabs {
            for line in (slab..slab + bits_len).step_by(LINE_LEN as usize) {
                let mut words = [0; WORDS];
                // Block 0, which holds the bits. Bits behind the last block of the slab are never
                // read.
                words[0] = u64::from(line == slab);
                let image = Line::first(words).encode(line, self.space.key().of_line());
                Line::store_encoded(medium, line, &image);
            }
            // Flush: fenced below.
            medium.flush(slab, bits_len);
        }
        // Fence: the bits, before the directory leads to them.
        medium.fence();
        Ok(slabs)
    }

    /// Offset of an extent of the slab directory; if it is the next one and does not exist, takes
    /// it from the pool.
    fn directory_extent(&self, lane: &mut Lane, extent: usize) -> Result<u64> {
        let at = self.heap.header() + DIRECTORY + (extent / WORDS) as u64 * LINE_LEN;
        let mut words = self.load_words(at)?;
        if words[extent % WORDS] == 0 {
            let mut heap_lane = self.heap.enter().prepare_to_write();
            words[extent % WORDS] = self.make_directory(&mut heap_lane)?;
            let change = Change::rewrite(self.medium(), self.space.key(), at, words)?;
            self.commit(lane, &mut [change]);
        }
        Ok(words[extent % WORDS])
    }

    /// Makes an extent of the slab directory, durably. Nothing leads to it yet.
    pub(crate) fn make_directory(&self, heap_lane: &mut HeapLane<'_, M>) -> Result<u64> {
        let at = heap_lane.allocate(DIRECTORY_EXTENT_LEN)?.offset;
        for line in 0..DIRECTORY_EXTENT_LEN / LINE_LEN {
            let at = at + line * LINE_LEN;
            let image = Line::first([0; WORDS]).encode(at, self.space.key().of_line());
            Line::store_encoded(self.medium(), at, &image);
        }
        // Flush and fence: before anything leads to the extent.
        // Redundant fence: of a disk's first extent, before that of its header; the simulator makes
        // no second one.
        self.medium().persist(at, DIRECTORY_EXTENT_LEN);
        Ok(at)
    }

    /// The extents of the slab directory.
    pub(crate) fn read_extents(&self) -> Result<Vec<u64>> {
        let mut extents = Vec::new();
        for extent in 0..DIRECTORY_EXTENTS {
            let at = self.heap.header() + DIRECTORY + (extent / WORDS) as u64 * LINE_LEN;
            let directory = self.load_words(at)?[extent % WORDS];
            if directory == 0 {
                break;
            }
            if !self.heap.has_large(directory, DIRECTORY_EXTENT_LEN)? {
                return Err(Error::damaged(at, "it leads to no extent of the slab directory"));
            }
            extents.push(directory);
        }
        Ok(extents)
    }

    /// Reads the offsets of the slabs.
    pub(crate) fn read(&self, extents: &[u64]) -> Result<()> {
        let mut run = 0..0;
        for (&directory, place) in
            extents.iter().flat_map(|extent| (0..DIRECTORY_SLABS).map(move |place| (extent, place)))
        {
            let at = directory + (place / WORDS) as u64 * LINE_LEN;
            let slab = self.load_words(at)?[place % WORDS];
            if slab == 0 {
                break;
            }
            self.follow_run(&mut run, slab, at)?;
            self.space.add_slab(slab);
        }
        Ok(())
    }

    /// Whether a slab begins a run of the pool. If not, it is the next slab in `run`, the rest of
    /// the previous run.
    ///
    /// # Errors
    ///
    /// When it is neither; `from` is the pool offset of the word that leads to it.
    fn follow_run(&self, run: &mut Range<u64>, slab: u64, from: u64) -> Result<bool> {
        let len = self.space.slab_len();
        let is_next = slab == run.start && run.end - run.start >= len;
        if !is_next {
            let found = self.heap.large_len(slab)?.filter(|&found| found >= len);
            let found =
                found.ok_or_else(|| Error::damaged(from, "it leads to no slab of this disk"))?;
            *run = slab..slab + found;
        }
        run.start += len;
        Ok(!is_next)
    }

    /// Offsets of the pool's runs that contain the slabs, and what is wrong with the runs.
    pub(crate) fn runs(&self) -> (Vec<u64>, Vec<Error>) {
        let (mut run, mut runs, mut errors) = (0..0, Vec::new(), Vec::new());
        for slab in (0..self.space.slab_count()).filter_map(|index| self.space.slab_offset(index)) {
            match self.follow_run(&mut run, slab, ChunkId::containing(slab).state()) {
                Ok(true) => runs.push(slab),
                Ok(false) => {}
                Err(error) => errors.push(error),
            }
        }
        (runs, errors)
    }

    /// Whether a run of the pool belongs to the disk.
    pub(crate) fn is_linked(&self, extents: &[u64], extent: Extent) -> bool {
        let is_slab =
            |at| (0..self.space.slab_count()).any(|n| self.space.slab_offset(n) == Some(at));
        extent.offset == self.journal.meta()
            || extents.contains(&extent.offset)
            || is_slab(extent.offset)
    }
}
