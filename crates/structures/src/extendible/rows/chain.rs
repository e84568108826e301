//! Chains: rows of one hash for which its buckets have no room.
//!
//! A word in one of the buckets leads to the first block. Who changes the chain has that bucket's
//! lock. Further words go to the first block; when it is full, a larger one comes before it. A
//! block without words is taken out.

use std::ops::ControlFlow;

use remanent_pmem::heap::Lane;
use remanent_pmem::{Error as PoolError, Medium, WORD_LEN};

use super::super::layout::{Hash, Kind, Target};
use super::layout::{
    BLOCK_HASH, BLOCK_HINT, BLOCK_LEN_MAX, BLOCK_LEN_MIN, BLOCK_NEXT, BLOCK_NUMBER, BLOCK_WORDS,
    Entry, Word, capacity,
};
use super::{Core, RowId};
use crate::{Error, Result};

/// A block of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    capacity: u64,
    number: u64,
    next: Option<u64>,
    /// A word of the chain.
    word: Word,
    /// Of the rows.
    pub(super) hash: Hash,
}

impl Block {
    /// Offsets of its words.
    pub(super) fn words(self) -> impl Iterator<Item = u64> {
        (0..self.capacity).map(move |index| self.offset + BLOCK_WORDS + index * WORD_LEN)
    }

    fn len(self) -> u64 {
        BLOCK_WORDS + self.capacity * WORD_LEN
    }
}

impl<M: Medium> Core<M> {
    /// The first block of the chain to which `word` leads.
    pub(super) fn first_block(&self, word: Word) -> Result<Option<Block>> {
        match word.entry() {
            Some(Entry::Chain(offset)) => self.block(offset, word, u64::MAX).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn next_block(&self, block: Block) -> Result<Option<Block>> {
        block.next.map(|next| self.block(next, block.word, block.number)).transpose()
    }

    /// The block at `offset`, whose number has to be below that of the one before it. So no walk
    /// along a damaged chain comes to a block twice.
    fn block(&self, offset: u64, word: Word, below: u64) -> Result<Block> {
        let medium = self.medium();
        let wrong = |what| Err(Error::corrupt(&self.heap, offset, what));
        if !Kind::Record.is_at(medium, offset, self.heap.member())
            || offset.saturating_add(BLOCK_WORDS) > medium.len()
        {
            return wrong("a chain of rows leads to no block");
        }
        let capacity = medium.load(offset) & u64::from(u32::MAX);
        let (number, hash) = (medium.load(offset + BLOCK_NUMBER), medium.load(offset + BLOCK_HASH));
        if capacity > self::capacity(BLOCK_LEN_MAX)
            || offset + BLOCK_WORDS + capacity * WORD_LEN > medium.len()
            || number >= below
            || !word.is_of(Hash(hash))
        {
            return wrong("a block does not belong to the chain that leads to it");
        }
        let at = offset + BLOCK_NEXT;
        let next = match (medium.load(at), Target::open(at, medium.load(at))) {
            (0, _) => None,
            (_, Some(Target::Segment(next))) => Some(next),
            _ => return wrong("a block of rows leads to no other"),
        };
        Ok(Block { offset, capacity, number, next, word, hash: Hash(hash) })
    }

    /// Calls `visit` with all rows of a chain, until it breaks.
    pub(super) fn visit_chain<R>(
        &self,
        word: Word,
        visit: &mut impl FnMut(RowId) -> ControlFlow<R>,
    ) -> Result<ControlFlow<R>> {
        let mut next = self.first_block(word)?;
        while let Some(block) = next {
            for at in block.words() {
                if let Some(row) = self.row_at(block, at)?
                    && let ControlFlow::Break(result) = visit(row)
                {
                    return Ok(ControlFlow::Break(result));
                }
            }
            next = self.next_block(block)?;
        }
        // A faulty medium reads as zeros.
        self.heap.verify()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Where the row is in the chain to which `word` leads, if it leads to one.
    pub(super) fn place_in_blocks(&self, word: Word, row: RowId) -> Result<Option<u64>> {
        let mut next = self.first_block(word)?;
        while let Some(block) = next {
            for at in block.words() {
                if self.row_at(block, at)? == Some(row) {
                    return Ok(Some(at));
                }
            }
            next = self.next_block(block)?;
        }
        Ok(None)
    }

    /// The row at a place in a block.
    pub(super) fn row_at(&self, block: Block, at: u64) -> Result<Option<RowId>> {
        let word = Word(self.medium().load(at));
        match word.entry() {
            Some(Entry::Row(row)) if word.is_of(block.word.hash()) => Ok(Some(row)),
            None if word == Word::NONE => Ok(None),
            _ => Err(Error::corrupt(&self.heap, at, "a chain of rows has a word of another hash")),
        }
    }

    /// Adds a row to the chain to which the slot at `at` leads. If a row is there, a chain begins
    /// with it.
    pub(super) fn insert_in_chain(
        &self,
        lane: &mut Lane<'_, M>,
        at: u64,
        hash: Hash,
        row: RowId,
    ) -> Result<()> {
        let (medium, word) = (self.medium(), Word(self.medium().load(at)));
        let added = Word::of_row(hash, row);
        let Some(first) = self.first_block(word)? else {
            return self.lead_to_block(lane, at, hash, None, &[word, added]);
        };
        let hint = medium.load(first.offset + BLOCK_HINT) % first.capacity.max(1);
        let is_free = |at: &u64| Word(medium.load(*at)) == Word::NONE;
        let mut places = first.words().skip(hint as usize).chain(first.words().take(hint as usize));
        match places.find(is_free) {
            Some(place) => {
                self.change(place, added);
                self.note_room(first, place + WORD_LEN);
                Ok(())
            }
            None => self.lead_to_block(lane, at, hash, Some(first), &[added]),
        }
    }

    /// Remembers where to look for room first.
    fn note_room(&self, block: Block, place: u64) {
        let index = (place - block.offset - BLOCK_WORDS) / WORD_LEN;
        self.medium().store(block.offset + BLOCK_HINT, index);
    }

    /// Has the slot at `at` lead to a new block with `words`, before `next`. Two fences.
    fn lead_to_block(
        &self,
        lane: &mut Lane<'_, M>,
        at: u64,
        hash: Hash,
        next: Option<Block>,
        words: &[Word],
    ) -> Result<()> {
        let medium = self.medium();
        let len = next
            .map_or(BLOCK_LEN_MIN, |next| (next.len().next_power_of_two() * 2).min(BLOCK_LEN_MAX));
        let block = lane.allocate(len)?;
        let Some(word) = Word::of_chain(hash, block.offset) else {
            lane.give_back(block);
            let (needed, size) = (len, medium.len());
            return Err(PoolError::Full { needed, size, size_max: Word::REACH }.into());
        };
        let offset = block.offset;
        medium.write_zeros(offset, len);
        medium.store(offset, Kind::Record.tag(self.heap.member()) | capacity(len));
        medium.store(offset + BLOCK_HASH, hash.0);
        if let Some(next) = next {
            let at = offset + BLOCK_NEXT;
            medium.store(at, Target::Segment(next.offset).seal(at));
            medium.store(offset + BLOCK_NUMBER, next.number + 1);
        }
        for (index, word) in words.iter().enumerate() {
            medium.store(offset + BLOCK_WORDS + index as u64 * WORD_LEN, word.0);
        }
        medium.store(offset + BLOCK_HINT, words.len() as u64);
        // Flush: fenced below.
        medium.flush(offset, len);
        // Fence: the block, before the slot leads to it.
        lane.fence();
        medium.store(at, word.0);
        // Flush and fence: before another thread adds a row to the block, and fences that.
        // Redundant fence: for this thread alone, which will fence.
        medium.persist(at, WORD_LEN);
        Ok(())
    }

    /// Removes a row from the chain to which the slot at `at` leads.
    pub(super) fn remove_from_chain(
        &self,
        lane: &mut Lane<'_, M>,
        at: u64,
        word: Word,
        row: RowId,
    ) -> Result<bool> {
        let (mut before, mut next) = (None, self.first_block(word)?);
        while let Some(block) = next {
            for place in block.words() {
                if self.row_at(block, place)? == Some(row) {
                    self.change(place, Word::NONE);
                    self.note_room(block, place);
                    if block.words().all(|at| self.medium().load(at) == 0) {
                        self.take_out(lane, at, before, block)?;
                    }
                    return Ok(true);
                }
            }
            before = Some(block);
            next = self.next_block(block)?;
        }
        Ok(false)
    }

    /// Takes a block without rows out of the chain to which the slot at `at` leads. Two fences.
    fn take_out(
        &self,
        lane: &mut Lane<'_, M>,
        at: u64,
        before: Option<Block>,
        block: Block,
    ) -> Result<()> {
        let medium = self.medium();
        let (at, word) = match (before, block.next) {
            (Some(before), next) => {
                let at = before.offset + BLOCK_NEXT;
                (at, next.map_or(0, |next| Target::Segment(next).seal(at)))
            }
            (None, None) => (at, 0),
            (None, Some(next)) => match Word::of_chain(block.word.hash(), next) {
                Some(word) => (at, word.0),
                None => return Err(Error::corrupt(&self.heap, at, "a chain leads too far")),
            },
        };
        let suspect = lane.suspect(block.offset);
        // Fence: the block is a suspect, and its words are removed, before nothing leads to it.
        lane.fence();
        medium.store(at, word);
        // Flush and fence: before the block is free, perhaps while another thread has the lane.
        // Redundant fence: for this thread alone, which will fence.
        medium.persist(at, WORD_LEN);
        lane.retire(suspect);
        Ok(())
    }
}
