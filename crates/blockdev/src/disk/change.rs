//! Changing blocks: every call is one step, whatever it changes.
//!
//! New data go to blocks that nobody has ([`Space`](super::space::Space)), and one record of the journal has the map lead
//! to them. That is the paper's shadow block and its journal, with one fence for up to 64 blocks in not too many places,
//! and two for any number of them ([`journal`](super::journal)). A block that is overwritten becomes a spare of the lane
//! that overwrote it, as in the paper's pool of shadow blocks; a record carries the lane's spares, so they need no other
//! note.

use std::borrow::Cow;
use std::ops::Range;

use remanent_pmem::{Medium, WORD_LEN};
use smallvec::SmallVec;

use super::device::Device;
use super::journal::Lane;
use super::layout::{BLOCK_LEN, Block, Child, Entry, Lba, place_in_node};
use super::pieces::{BlockData, Piece, Pieces, What};
use super::record::{Change, Changes, Spares};
use crate::Result;
use crate::line::{Line, WORDS};
use crate::seal::Owner;

/// Where a block's entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    /// Pool offset of the line.
    pub(crate) at: u64,
    /// The leaf that it is a line of.
    pub(crate) owner: Owner,
    pub(crate) word: usize,
}

impl EntryPlace {
    /// Pool offset of the entry.
    #[inline]
    pub(crate) fn entry(self) -> u64 {
        self.at + self.word as u64 * WORD_LEN
    }
}

/// Lines of the map, by their first entry that is meant, and words in each of them.
type Places = SmallVec<[(EntryPlace, Range<usize>); 8]>;

/// Content of a block that nobody can reach yet.
#[derive(Debug)]
pub(crate) struct Datum<'a> {
    /// Pool offset of the block.
    pub(crate) at: u64,
    /// Its number on the disk.
    pub(crate) lba: Lba,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// The change, and the word in it, that is to lead there.
    pub(crate) change: usize,
    pub(crate) word: usize,
}

/// Content of the blocks of one step.
pub(crate) type Data<'a> = SmallVec<[Datum<'a>; 4]>;

/// New blocks for one step: first of the lane's spares, from the front, then others.
#[derive(Debug, Default)]
struct Staged {
    /// Spares that are used.
    spares: usize,
    /// Others, whose bits are still to be set.
    fresh: Vec<Block>,
    /// Those of them that are used; the rest become spares.
    fresh_used: usize,
}

impl Staged {
    fn block(&self, lane: &Lane, index: usize) -> Block {
        match index.checked_sub(self.spares) {
            None => lane.spares[index],
            Some(index) => self.fresh[index],
        }
    }
}

impl<M: Medium> Device<M> {
    /// Changes blocks as one step, durable when it returns. `end` is that of the request: the disk must not have become
    /// smaller than that.
    ///
    /// # Errors
    ///
    /// When the pool is full, or a block of which a part is kept is damaged: then nothing was changed.
    pub(crate) fn change(&self, pieces: &[Piece<'_>], end: u64) -> Result<()> {
        self.in_lane(|lane| {
            self.check_range(end, 0)?;
            self.change_in(lane, pieces, &[])
        })
    }

    /// As [`change`](Device::change), of one block that is written as a whole, which is what most changes are.
    pub(crate) fn write_block(&self, lba: Lba, block: &BlockData) -> Result<()> {
        if let Some(place) = self.own_place(lba)? {
            // On its way to the core while the lane is waited for.
            self.medium().prefetch(place.at);
        }
        self.in_lane(|lane| {
            self.check_range(lba.offset() + BLOCK_LEN, 0)?;
            if self.overwrite(lane, lba, block)? {
                return Ok(());
            }
            self.change_in(lane, &[Piece { lba, what: What::Whole(block) }], &[])
        })
    }

    /// As [`write_block`](Device::write_block), of some in a row.
    pub(crate) fn write_blocks(&self, first: Lba, blocks: &[BlockData]) -> Result<()> {
        self.in_lane(|lane| {
            self.check_range(first.offset(), size_of_val(blocks) as u64)?;
            if self.overwrite_row(lane, first, blocks)? {
                return Ok(());
            }
            let numbered = (first.0..).map(Lba).zip(blocks);
            let pieces: Pieces<'_> =
                numbered.map(|(lba, block)| Piece { lba, what: What::Whole(block) }).collect();
            self.change_in(lane, &pieces, &[])
        })
    }

    /// Where a block's entry is, if that is known and it can be changed in place.
    #[inline]
    fn own_place(&self, lba: Lba) -> Result<Option<EntryPlace>> {
        match self.leaves.get(lba.leaf()).filter(|leaf| self.is_own(*leaf)) {
            Some(leaf) => Ok(Some(self.place_in(leaf, lba)?)),
            None => Ok(None),
        }
    }

    /// Where a block's entry is in its leaf.
    #[inline]
    pub(crate) fn place_in(&self, leaf: Child, lba: Lba) -> Result<EntryPlace> {
        let (line, word) = place_in_node(lba.place());
        let at = self.space.locate(leaf.block, self.meta)? + line;
        Ok(EntryPlace { at, owner: Owner::leaf(leaf, lba.leaf()), word })
    }

    /// The line of an entry, which nobody stores to meanwhile.
    #[inline]
    pub(crate) fn line_at(&self, place: EntryPlace) -> Result<Line> {
        self.key.load_line(self.medium(), place.at, place.owner)
    }

    /// The lines, and the words in them, of the entries of blocks in a row, as [`own_place`](Device::own_place).
    #[inline]
    fn own_places(&self, first: Lba, count: usize) -> Result<Option<Places>> {
        let mut places = Places::new();
        let (mut lba, end) = (first.0, first.0 + count as u64);
        while lba < end {
            let Some(place) = self.own_place(Lba(lba))? else { return Ok(None) };
            let words = place.word..WORDS.min(place.word + (end - lba) as usize);
            lba += words.len() as u64;
            places.push((place, words));
        }
        Ok(Some(places))
    }

    /// Writes a block where there is one, no snapshot has it and the lane has a spare for it; false where that is not so.
    fn overwrite(&self, lane: &mut Lane, lba: Lba, data: &BlockData) -> Result<bool> {
        if lane.spares.is_empty() || self.has_snapshot() {
            return Ok(false);
        }
        let Some(place) = self.own_place(lba)? else { return Ok(false) };
        let EntryPlace { at, owner, word } = place;
        let _held = self.hold_line(at);
        let mut line = self.line_at(place)?;
        let old = Entry::decode(line.words[word]).block;
        if old.is_none() {
            return Ok(false);
        }
        let turn = lane.turn();
        let block = lane.spares[turn];
        let bytes = Cow::Borrowed(&data[..]);
        let at_block = self.space.locate(block, self.meta)?;
        lane.spares[turn] = old;
        line.words[word] = Entry { block, checksum: 0 }.encode();
        line.version = line.version.wrapping_add(1);
        let mut changes = [Change { at, owner, line, written: 1 << word }];
        let data = [Datum { at: at_block, lba, bytes, change: 0, word }];
        self.commit_at(lane, &mut changes, Vec::new(), &[], &data);
        Ok(true)
    }

    /// As [`overwrite`](Device::overwrite), of some in a row. One block has a function of its own: lists that
    /// are stored and read again at once would wait until the stores before them have left the core.
    fn overwrite_row(&self, lane: &mut Lane, first: Lba, blocks: &[BlockData]) -> Result<bool> {
        if lane.spares.len() < blocks.len() || self.has_snapshot() {
            return Ok(false);
        }
        let Some(places) = self.own_places(first, blocks.len())? else { return Ok(false) };
        places.iter().for_each(|(place, _)| self.medium().prefetch(place.at));
        let _held = self.hold_map(places.iter().map(|(place, _)| place.at));
        let mut changes = Changes::with_capacity(places.len());
        let mut data = Data::with_capacity(blocks.len());
        let mut replaced = Spares::new();
        for (place, words) in places {
            let mut line = self.line_at(place)?;
            line.version = line.version.wrapping_add(1);
            let mut change = Change::of_node(place.at, place.owner, line);
            for word in words {
                let old = Entry::decode(line.words[word]).block;
                if old.is_none() {
                    return Ok(false);
                }
                let index = data.len();
                let block = lane.spares[index];
                replaced.push(old);
                change.line.words[word] = Entry { block, checksum: 0 }.encode();
                change.written |= 1 << word;
                let at = self.space.locate(block, self.meta)?;
                let bytes = Cow::Borrowed(&blocks[index][..]);
                let lba = Lba(first.0 + index as u64);
                data.push(Datum { at, lba, bytes, change: changes.len(), word });
            }
            changes.push(change);
        }
        lane.spares.iter_mut().zip(replaced).for_each(|(spare, old)| *spare = old);
        self.commit_at(lane, &mut changes, Vec::new(), &[], &data);
        Ok(true)
    }

    /// As [`change`](Device::change), and lines beside the map, which nobody else changes meanwhile.
    pub(crate) fn change_in(
        &self,
        lane: &mut Lane,
        pieces: &[Piece<'_>],
        others: &[Change],
    ) -> Result<()> {
        let wanted = pieces.iter().filter(|piece| !matches!(piece.what, What::Nothing)).count();
        let staged = self.stage(lane, wanted)?;
        // Passed on as it is made, not moved: that would wait until all stores have left the core.
        match self.change_staged(lane, pieces, others, &staged) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.space.release(self.medium(), staged.fresh);
                Err(error)
            }
        }
    }

    fn stage(&self, lane: &mut Lane, wanted: usize) -> Result<Staged> {
        let spares = lane.spares.len().min(wanted);
        let missing = wanted - spares;
        let fresh = match missing {
            0 => Vec::new(),
            _ => self.reserve_some(lane, missing)?,
        };
        Ok(Staged { spares, fresh, fresh_used: missing })
    }

    fn change_staged(
        &self,
        lane: &mut Lane,
        pieces: &[Piece<'_>],
        others: &[Change],
        staged: &Staged,
    ) -> Result<()> {
        let places = self.places(lane, pieces)?;
        let _held = self.hold_map(places.iter().filter_map(|place| Some((*place)?.at)));
        let mut changes = Changes::from_slice(others);
        let mut replaced: SmallVec<[Block; 4]> = SmallVec::with_capacity(pieces.len());
        let mut data = Data::with_capacity(pieces.len());
        for (piece, place) in pieces.iter().zip(places) {
            let Some(place) = place else { continue };
            let EntryPlace { at, owner, word } = place;
            let line = match changes.last() {
                Some(change) if change.at == at => change.line,
                _ => self.line_at(place)?,
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
                let block = staged.block(lane, data.len());
                let at = self.space.locate(block, self.meta)?;
                change.line.words[word] = Entry { block, checksum: 0 }.encode();
                change.written |= 1 << word;
                data.push(Datum { at, lba: piece.lba, bytes, change: number, word });
            }
            if !old.block.is_none() && !self.has_snapshot_of(piece.lba, old.block)? {
                replaced.push(old.block);
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.finish(lane, staged, &replaced, changes, &data)
    }

    /// What a piece makes of its block; nothing where it is to read as zeros. `old` is its entry, and where that is.
    fn content<'p>(&self, piece: &Piece<'p>, old: (Entry, u64)) -> Result<Option<Cow<'p, [u8]>>> {
        let mut merged = match piece.what {
            What::Nothing => return Ok(None),
            What::Whole(data) => return Ok(Some(Cow::Borrowed(data))),
            What::Part(..) | What::Parts(_) => vec![0; BLOCK_LEN as usize],
        };
        self.read_entry(piece.lba, old.0, old.1, &mut merged)?;
        let mut put =
            |start: usize, part: &[u8]| merged[start..start + part.len()].copy_from_slice(part);
        match piece.what {
            What::Part(start, part) => put(start, part),
            What::Parts(parts) => parts.iter().for_each(|(start, part)| put(*start, part)),
            What::Nothing | What::Whole(..) => unreachable!("answered above"),
        }
        Ok(Some(Cow::Owned(merged)))
    }

    /// Where each piece's entry is; none where nothing is to be unmapped. Leaves that are missing are made, and stay as long
    /// as the lane is held.
    pub(crate) fn places(
        &self,
        lane: &mut Lane,
        pieces: &[Piece<'_>],
    ) -> Result<SmallVec<[Option<EntryPlace>; 4]>> {
        let of_leaves = || pieces.chunk_by(|one, other| one.lba.leaf() == other.lba.leaf());
        let mut missing = Vec::new();
        for pieces in of_leaves() {
            let leaf = pieces[0].lba.leaf();
            let child = self.leaf(leaf)?;
            let is_needed = || pieces.iter().any(|piece| !matches!(piece.what, What::Nothing));
            if !self.is_own(child) && (!child.block.is_none() || is_needed()) {
                missing.push(leaf);
            }
        }
        if !missing.is_empty() {
            self.make_leaves(lane, &missing)?;
        }
        let mut places = SmallVec::with_capacity(pieces.len());
        for pieces in of_leaves() {
            let leaf = self.leaf(pieces[0].lba.leaf())?;
            for piece in pieces {
                let place = match leaf.block.is_none() {
                    true => None,
                    false => Some(self.place_in(leaf, piece.lba)?),
                };
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Settles which blocks are whose, and commits.
    fn finish(
        &self,
        lane: &mut Lane,
        staged: &Staged,
        replaced: &[Block],
        mut changes: Changes,
        data: &[Datum<'_>],
    ) -> Result<()> {
        let surplus = &staged.fresh[staged.fresh_used..];
        let mut spares = Spares::with_capacity(lane.spares.len() + replaced.len());
        spares.extend_from_slice(&lane.spares[staged.spares..]);
        spares.extend_from_slice(surplus);
        let room = self.spares_max.saturating_sub(spares.len()).min(replaced.len());
        let (kept, free) = replaced.split_at(room);
        spares.extend_from_slice(kept);
        let _held = self.mark(&staged.fresh, free, &mut changes)?;
        self.commit(lane, &mut changes, Some(spares), data)?;
        if !free.is_empty() {
            self.space.release(self.medium(), free.iter().copied());
        }
        Ok(())
    }
}
