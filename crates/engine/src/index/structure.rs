//! What leads from keys to rows: a hash table of words, or a tree of entries.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};

use remanent_pmem::Medium;
use remanent_pmem::heap::{Block, Lane};
use remanent_structures::shared::{Inspection, MemberId, Shareable, Site};
use remanent_structures::{BlinkTree, RowId, RowIndex};

use super::backlog::Word;
use super::order::{Order, Span, entry, key_and_row};
use super::{Candidates, Key};
use crate::Result;
use crate::schema::{IndexSpec, Structure};
use crate::table::layout::{Format, KeyCells};

/// The entries of an ordered index: keys with the number of their row behind them.
pub(crate) type Tree<M> = BlinkTree<[u8], (), M>;

/// What an index has for each row. To a caller, an entry of a tree is a word, too.
pub(crate) enum Words<M: Medium> {
    Hash(RowIndex<M>),
    Ordered(Tree<M>),
}

impl<M: Medium> Words<M> {
    /// Bytes of the header.
    pub(crate) fn header_len(structure: Structure) -> u64 {
        match structure {
            Structure::Hash => <RowIndex<M> as Shareable<M>>::header_len(),
            Structure::Ordered => <Tree<M> as Shareable<M>>::header_len(),
        }
    }

    /// Makes an empty one in a lane of the caller, who fences.
    pub(crate) fn create_in_lane(
        structure: Structure,
        site: Site<M>,
        lane: &mut Lane<'_, M>,
    ) -> Result<Self> {
        Ok(match structure {
            Structure::Hash => Words::Hash(RowIndex::create_in_lane(site, lane)?),
            Structure::Ordered => Words::Ordered(Tree::create_in_lane(site, lane)?),
        })
    }

    /// The number of the index that an allocated block belongs to, which is no block of a table.
    pub(crate) fn owner_of(medium: &M, block: Block) -> Option<MemberId> {
        // The tree first: its records have bytes of keys where an index of words has tags.
        Tree::owner_of(medium, block).or_else(|| RowIndex::owner_of(medium, block))
    }

    /// Rows that may have a key: those that have it, and perhaps others, some of them twice.
    #[inline]
    pub(super) fn candidates(&self, key: &Key) -> Result<Candidates> {
        let mut found = Candidates::new();
        match self {
            Words::Hash(words) => {
                words.find(key.hash, |row| {
                    found.push(row);
                    ControlFlow::<()>::Continue(())
                })?;
            }
            Words::Ordered(_) => {
                self.scan(&Span::of_key(key.ordered()), Order::Ascending, |of| {
                    found.extend(key_and_row(of).map(|(_, row)| row));
                    ControlFlow::Continue(())
                })?
            }
        }
        Ok(found)
    }

    /// Whether a row has a word of a key, or perhaps of another one with the same hash.
    pub(super) fn has(&self, key: &Key, row: RowId) -> Result<bool> {
        match self {
            Words::Hash(_) => Ok(self.candidates(key)?.contains(&row)),
            Words::Ordered(tree) => Ok(tree.contains(&entry(key.ordered(), row))?),
        }
    }

    /// Calls `visit` with the entries of a range, until it breaks. A hash index has none.
    pub(super) fn scan(
        &self,
        span: &Span,
        order: Order,
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let Words::Ordered(tree) = self else { return Ok(()) };
        let end = span.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(&span.start[..]), end);
        let mut visit = visit;
        match order {
            Order::Ascending => tree.ascend(range, |of, ()| visit(of))?,
            Order::Descending => tree.descend(range, |of, ()| visit(of))?,
        }
        Ok(())
    }

    /// Adds the word of a new row.
    #[inline]
    pub(super) fn insert(&self, key: &Key, row: RowId) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.insert(key.hash, row)?),
            Words::Ordered(tree) => Ok(tree.insert(&entry(key.ordered(), row), &()).map(drop)?),
        }
    }

    /// Adds the words of rows that have none.
    pub(super) fn insert_rows<'k>(
        &self,
        format: &Format,
        spec: &IndexSpec,
        mut rows: impl Iterator<Item = (RowId, KeyCells<'k>)>,
    ) -> Result<()> {
        match self {
            Words::Hash(words) => {
                Ok(words.insert_all(rows.filter_map(|(row, keys)| {
                    Some((Key::hash_of_row(format, spec, keys)?, row))
                }))?)
            }
            Words::Ordered(_) => rows.try_for_each(|(row, keys)| {
                Key::of_row(format, spec, keys).map_or(Ok(()), |key| self.insert(&key, row))
            }),
        }
    }

    /// Adds words of a hash index, none of which is there.
    pub(super) fn insert_words(&self, added: &[Word]) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.insert_all(added.iter().copied())?),
            Words::Ordered(_) => Ok(()),
        }
    }

    /// Adds the words of a [partition](Words::partition) of so many bits, none of which is there.
    pub(super) fn insert_partition(&self, bits: u32, added: &[Word]) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.insert_partition(bits, added)?),
            Words::Ordered(_) => Ok(()),
        }
    }

    /// Adds those of some words of a hash index, sorted by their hashes, that are not there. The
    /// rows of a hash are read once, however many there are.
    pub(super) fn insert_missing(&self, words: &[Word]) -> Result<()> {
        let Words::Hash(index) = self else { return Ok(()) };
        for of_hash in words.chunk_by(|one, other| one.0 == other.0) {
            let mut there = HashSet::new();
            index.find(of_hash[0].0, |row| {
                there.insert(row);
                ControlFlow::<()>::Continue(())
            })?;
            let missing = of_hash.iter().filter(|(_, row)| !there.contains(row));
            index.insert_all(missing.copied())?;
        }
        Ok(())
    }

    /// Adds a word of a hash index unless it is there.
    pub(super) fn ensure_word(&self, hash: u64, row: RowId) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.ensure(hash, row)?),
            Words::Ordered(_) => Ok(()),
        }
    }

    /// The first `bits` bits by which a hash index spreads the words of a key; 0 in a tree.
    #[inline]
    pub(super) fn partition(&self, hash: u64, bits: u32) -> u64 {
        match self {
            Words::Hash(words) => words.partition(hash, bits),
            Words::Ordered(_) => 0,
        }
    }

    /// Whether a row has one word for both keys.
    pub(super) fn is_one_word(&self, key: &Key, other: &Key) -> bool {
        match self {
            Words::Hash(words) => words.is_one_word(key.hash, other.hash),
            Words::Ordered(_) => key == other,
        }
    }

    /// Adds a word unless it is there.
    pub(super) fn ensure(&self, key: &Key, row: RowId) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.ensure(key.hash, row)?),
            Words::Ordered(_) => self.insert(key, row),
        }
    }

    /// Removes a word, if it is there.
    pub(super) fn remove(&self, key: &Key, row: RowId) -> Result<()> {
        match self {
            Words::Hash(words) => words.remove(key.hash, row)?,
            Words::Ordered(tree) => tree.discard(&entry(key.ordered(), row))?,
        };
        Ok(())
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
        Ok(match self {
            Words::Hash(words) => words.inspect()?,
            Words::Ordered(tree) => tree.inspect()?,
        })
    }

    pub(super) fn abandon(self, lane: &mut Lane<'_, M>) -> Result<()> {
        match self {
            Words::Hash(words) => Ok(words.abandon(lane)?),
            Words::Ordered(tree) => Ok(tree.abandon(lane)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Pool;

    use super::*;

    #[test]
    fn of_a_part_that_is_there_the_rest_is_added_once() {
        let pool = Pool::options().create_in_memory().unwrap();
        let index = RowIndex::create(&pool, "rows").unwrap();
        let row = |number| RowId::new(number).unwrap();
        let words: Vec<Word> = (0..600).map(|number| (number / 200, row(number))).collect();
        let there: Vec<Word> = words.iter().copied().filter(|(_, of)| of.get() % 3 != 1).collect();
        index.insert_all(there).unwrap();
        let words_of = Words::Hash(index);
        words_of.insert_missing(&words).unwrap();
        let Words::Hash(index) = words_of else { unreachable!("it was one") };
        let mut found = Vec::new();
        index.for_each(|row| found.push(row.get())).unwrap();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..600));
    }
}
