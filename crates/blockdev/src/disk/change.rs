//! Changing blocks: every call is one atomic step, whatever it changes.
//!
//! New data go to free blocks ([`Space`](super::space::Space)), and one record of the journal makes
//! the map lead to them. These are the paper's shadow block and journal, with one fence for up to
//! 64 blocks in not too many places, and two for any number of them ([`journal`](super::journal)).
//! A replaced block becomes a spare of the lane that replaced it, as in the paper's pool of shadow
//! blocks. A record carries the lane's spares, so they need no other note.

use std::borrow::Cow;
use std::ops::Range;

use remanent_pmem::Medium;
use smallvec::SmallVec;

use super::journal::{Data, Datum, Lane};
use super::layout::{BLOCK_LEN, Block, Entry, Lba, NODE_ENTRIES};
use super::map::{EntryPlace, Map};
use super::pieces::{BlockData, Piece, Pieces, What};
use super::record::{Change, Changes, Spares};
use crate::Result;
use crate::line::Line;

/// New blocks for one step: first spares of the lane, from the front, then others.
#[derive(Debug, Default)]
struct NewBlocks {
    /// Number of the lane's spares that are used.
    spares: usize,
    /// Other blocks, whose bits are still to be set.
    fresh: Vec<Block>,
    /// Number of `fresh` blocks that are used; the rest become spares.
    fresh_used: usize,
}

impl NewBlocks {
    fn block(&self, lane: &Lane, index: usize) -> Block {
        match index.checked_sub(self.spares) {
            None => lane.spares[index],
            Some(index) => self.fresh[index],
        }
    }
}

/// A step that changes blocks, with the lane that records it.
#[derive(Debug)]
pub(crate) struct Step<'s, M: Medium> {
    map: &'s Map<M>,
    lane: &'s mut Lane,
}

impl<'s, M: Medium> Step<'s, M> {
    pub(crate) fn new(map: &'s Map<M>, lane: &'s mut Lane) -> Self {
        Step { map, lane }
    }

    /// Writes one whole block, the most frequent step.
    pub(crate) fn write_block(&mut self, lba: Lba, block: &BlockData) -> Result<()> {
        if self.overwrite(lba, block)? {
            return Ok(());
        }
        self.change(&[Piece { lba, what: What::Whole(block) }], &[])
    }

    /// Writes consecutive blocks.
    pub(crate) fn write_blocks(&mut self, first: Lba, blocks: &[BlockData]) -> Result<()> {
        if self.overwrite_row(first, blocks)? {
            return Ok(());
        }
        let numbered = (first.0..).map(Lba).zip(blocks);
        let pieces: Pieces<'_> =
            numbered.map(|(lba, block)| Piece { lba, what: What::Whole(block) }).collect();
        self.change(&pieces, &[])
    }

    /// Overwrites a block, if it has data, no snapshot has it, and the lane has a spare for it.
    /// Returns false otherwise.
    fn overwrite(&mut self, lba: Lba, data: &BlockData) -> Result<bool> {
        if self.lane.spares.is_empty() || self.map.has_snapshot() {
            return Ok(false);
        }
        let Some(place) = self.map.own_place(lba)? else { return Ok(false) };
        let EntryPlace { at, owner, word } = place;
        let _held = self.map.hold_one(at);
        let mut line = self.map.line_at(place)?;
        let old = Entry::decode(line.words[word]).block;
        if old.is_none() {
            return Ok(false);
        }
        let turn = self.lane.turn();
        let block = self.lane.spares[turn];
        let bytes = Cow::Borrowed(&data[..]);
        let at_block = self.map.base.locate(block)?;
        self.lane.spares[turn] = old;
        line.words[word] = Entry { block, checksum: 0 }.encode();
        line.version = line.version.wrapping_add(1);
        let mut changes = [Change { at, owner, line, written: 1 << word }];
        let data = [Datum { at: at_block, lba, bytes, change: 0, word }];
        self.map.base.commit_in_slot(self.lane, &mut changes, &data);
        Ok(true)
    }

    /// Like [`overwrite`](Step::overwrite), for consecutive blocks. One block has a function of its
    /// own, because lists that are stored and read again at once would wait until the stores before
    /// them have left the core.
    fn overwrite_row(&mut self, first: Lba, blocks: &[BlockData]) -> Result<bool> {
        if self.lane.spares.len() < blocks.len() || self.map.has_snapshot() {
            return Ok(false);
        }
        let Some(places) = self.map.own_places(first, blocks.len())? else { return Ok(false) };
        places.iter().for_each(|(place, _)| self.map.medium().prefetch(place.at));
        let _held = self.map.hold(places.iter().map(|(place, _)| place.at));
        let mut changes = Changes::with_capacity(places.len());
        let mut data = Data::with_capacity(blocks.len());
        let mut replaced = Spares::new();
        for (place, words) in places {
            let mut line = self.map.line_at(place)?;
            line.version = line.version.wrapping_add(1);
            let mut change = Change::of_node(place.at, place.owner, line);
            for word in words {
                let old = Entry::decode(line.words[word]).block;
                if old.is_none() {
                    return Ok(false);
                }
                let index = data.len();
                let block = self.lane.spares[index];
                replaced.push(old);
                change.line.words[word] = Entry { block, checksum: 0 }.encode();
                change.written |= 1 << word;
                let at = self.map.base.locate(block)?;
                let bytes = Cow::Borrowed(&blocks[index][..]);
                let lba = Lba(first.0 + index as u64);
                data.push(Datum { at, lba, bytes, change: changes.len(), word });
            }
            changes.push(change);
        }
        self.lane.spares.iter_mut().zip(replaced).for_each(|(spare, old)| *spare = old);
        self.map.base.commit_in_slot(self.lane, &mut changes, &data);
        Ok(true)
    }

    /// Changes blocks, and `others`: lines outside the map that nobody else changes meanwhile.
    /// Durable when it returns.
    ///
    /// # Errors
    ///
    /// When the pool is full, or a block is damaged of which a part is kept. In both cases nothing
    /// was changed.
    pub(crate) fn change(&mut self, pieces: &[Piece<'_>], others: &[Change]) -> Result<()> {
        let wanted = pieces.iter().filter(|piece| !matches!(piece.what, What::Nothing)).count();
        let new = self.take_blocks(wanted)?;
        // Passed by reference: a move would wait until all stores have left the core.
        match self.change_with(pieces, others, &new) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.map.base.release(new.fresh);
                Err(error)
            }
        }
    }

    fn take_blocks(&mut self, wanted: usize) -> Result<NewBlocks> {
        let spares = self.lane.spares.len().min(wanted);
        let missing = wanted - spares;
        let fresh = match missing {
            0 => Vec::new(),
            _ => self.map.base.reserve_some(self.lane, missing)?,
        };
        Ok(NewBlocks { spares, fresh, fresh_used: missing })
    }

    fn change_with(
        &mut self,
        pieces: &[Piece<'_>],
        others: &[Change],
        new: &NewBlocks,
    ) -> Result<()> {
        let places = self.places(pieces)?;
        let _held = self.map.hold(places.iter().filter_map(|place| Some((*place)?.at)));
        let mut changes = Changes::from_slice(others);
        let mut replaced: SmallVec<[Block; 4]> = SmallVec::with_capacity(pieces.len());
        let mut data = Data::with_capacity(pieces.len());
        for (piece, place) in pieces.iter().zip(places) {
            let Some(place) = place else { continue };
            let EntryPlace { at, owner, word } = place;
            let line = match changes.last() {
                Some(change) if change.at == at => change.line,
                _ => self.map.line_at(place)?,
            };
            let old = Entry::decode(line.words[word]);
            if matches!(piece.what, What::Nothing) && old.block.is_none() {
                continue;
            }
            let content = self.content(piece, (old, at))?;
            if changes.last().is_none_or(|change| change.at != at) {
                let version = line.version.wrapping_add(1);
                changes.push(Change::of_node(at, owner, Line { version, ..line }));
            }
            let number = changes.len() - 1;
            let change = &mut changes[number];
            change.line.words[word] = Entry::default().encode();
            if let Some(bytes) = content {
                let block = new.block(self.lane, data.len());
                let at = self.map.base.locate(block)?;
                change.line.words[word] = Entry { block, checksum: 0 }.encode();
                change.written |= 1 << word;
                data.push(Datum { at, lba: piece.lba, bytes, change: number, word });
            }
            if !old.block.is_none() && !self.map.has_snapshot_of(piece.lba, old.block)? {
                replaced.push(old.block);
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.finish(new, &replaced, changes, &data)
    }

    /// New content of a piece's block; `None` if the block is to read as zeros. `old` is the
    /// block's entry, and the entry's place.
    fn content<'p>(&self, piece: &Piece<'p>, old: (Entry, u64)) -> Result<Option<Cow<'p, [u8]>>> {
        let mut merged = match piece.what {
            What::Nothing => return Ok(None),
            What::Whole(data) => return Ok(Some(Cow::Borrowed(data))),
            What::Part(..) | What::Parts(_) => vec![0; BLOCK_LEN as usize],
        };
        self.map.read_entry(piece.lba, old.0, old.1, &mut merged)?;
        let mut put =
            |start: usize, part: &[u8]| merged[start..start + part.len()].copy_from_slice(part);
        match piece.what {
            What::Part(start, part) => put(start, part),
            What::Parts(parts) => parts.iter().for_each(|(start, part)| put(*start, part)),
            What::Nothing | What::Whole(..) => unreachable!("answered above"),
        }
        Ok(Some(Cow::Owned(merged)))
    }

    /// Places of the pieces' entries; `None` where there is nothing to unmap. Makes missing leaves,
    /// which stay while the lane is held.
    pub(crate) fn places(
        &mut self,
        pieces: &[Piece<'_>],
    ) -> Result<SmallVec<[Option<EntryPlace>; 4]>> {
        let of_leaves = || pieces.chunk_by(|one, other| one.lba.leaf() == other.lba.leaf());
        let mut missing = Vec::new();
        for pieces in of_leaves() {
            let leaf = pieces[0].lba.leaf();
            let child = self.map.leaf(leaf)?;
            let is_needed = || pieces.iter().any(|piece| !matches!(piece.what, What::Nothing));
            if !self.map.is_own(child) && (!child.block.is_none() || is_needed()) {
                missing.push(leaf);
            }
        }
        if !missing.is_empty() {
            self.map.make_leaves(self.lane, &missing)?;
        }
        let mut places = SmallVec::with_capacity(pieces.len());
        for pieces in of_leaves() {
            let leaf = self.map.leaf(pieces[0].lba.leaf())?;
            for piece in pieces {
                let place = match leaf.block.is_none() {
                    true => None,
                    false => Some(self.map.place_in(leaf, piece.lba)?),
                };
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Decides which replaced blocks become spares of the lane and which become free, then commits.
    fn finish(
        &mut self,
        new: &NewBlocks,
        replaced: &[Block],
        mut changes: Changes,
        data: &[Datum<'_>],
    ) -> Result<()> {
        let surplus = &new.fresh[new.fresh_used..];
        let mut spares = Spares::with_capacity(self.lane.spares.len() + replaced.len());
        spares.extend_from_slice(&self.lane.spares[new.spares..]);
        spares.extend_from_slice(surplus);
        let room = self.map.base.spares_max.saturating_sub(spares.len()).min(replaced.len());
        let (kept, free) = replaced.split_at(room);
        spares.extend_from_slice(kept);
        let _held = self.map.base.mark(&new.fresh, free, &mut changes)?;
        self.map.base.commit(self.lane, &mut changes, Some(spares), data)?;
        if !free.is_empty() {
            self.map.base.release(free.iter().copied());
        }
        Ok(())
    }
}

/// Unmaps the blocks from `first` to before `end`, atomically for each leaf. In a full pool the
/// steps become as small as their records need.
pub(crate) fn unmap<M: Medium>(map: &Map<M>, first: Lba, end: u64) -> Result<()> {
    let mut at = first.0;
    while at < end {
        let part_end = end.min((Lba(at).leaf() + 1) * NODE_ENTRIES);
        if !map.leaf(Lba(at).leaf())?.block.is_none() {
            unmap_part(map, at..part_end)?;
        }
        at = part_end;
    }
    Ok(())
}

fn unmap_part<M: Medium>(map: &Map<M>, blocks: Range<u64>) -> Result<()> {
    let piece = |number| Piece { lba: Lba(number), what: What::Nothing };
    let pieces: Pieces<'_> = blocks.clone().map(piece).collect();
    match map.base.in_lane(|lane| Step::new(map, lane).change(&pieces, &[])) {
        Err(error) if error.is_full() && pieces.len() > 1 => {
            let middle = blocks.start + pieces.len() as u64 / 2;
            unmap_part(map, blocks.start..middle)?;
            unmap_part(map, middle..blocks.end)
        }
        done => done,
    }
}
