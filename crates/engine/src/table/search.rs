//! Looking for rows by a key, also while the index is not rebuilt.

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::Table;
use super::layout::State;
use super::rebuild::Copied;
use crate::index::backlog::Backlog;
use crate::index::uses::Use;
use crate::index::{Candidates, Index, Key};
use crate::{Error, Result};

impl<M: Medium> Table<M> {
    /// Whether an index has all rows.
    #[inline(always)]
    pub(crate) fn has_all_rows(&self, index: &Index<M>) -> bool {
        !index.is_rebuilt || (self.rebuilding.is_done() && index.has_all_read())
    }

    /// Whether a row that was found by a key has lost it for good since: its word is gone, and
    /// another row may lie in its place by now, whose cells are not written yet. The caller has the
    /// key's lock, so that no row is getting the key, and no pin.
    #[cold]
    pub(crate) fn has_left(&self, index: &Index<M>, key: &Key, row: RowId) -> Result<bool> {
        let has_all = self.has_all_rows(index);
        Ok(has_all && !index.has(key, row)? && index.is_in_use())
    }

    /// Calls `visit` with the rows that may have a key in an index until it returns something:
    /// those that the index leads to, and if it is not rebuilt yet, others. Some are visited twice.
    /// If the index was moved, the other one is read; none, if it was dropped.
    #[inline]
    pub(crate) fn search<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        index.uses.count(Use::Lookup);
        let found = self.search_in(index, key, &mut visit)?;
        // Who was found has the key, whatever index has led there.
        if found.is_some() || index.is_in_use() {
            return Ok(found);
        }
        self.search_moved(index, key, visit)
    }

    #[cold]
    fn search_moved<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut next = self.moved_to(index);
        while let Some(index) = next {
            let found = self.search_in(&index, key, &mut visit)?;
            if found.is_some() || index.is_in_use() {
                return Ok(found);
            }
            next = self.moved_to(&index);
        }
        Ok(None)
    }

    #[inline]
    fn search_in<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        // Before the index is read: what is done afterwards is not in it yet.
        let is_done = self.has_all_rows(index);
        for row in index.candidates(key)? {
            let result = visit(row)?;
            if result.is_some() {
                return Ok(result);
            }
        }
        if is_done { Ok(None) } else { self.search_rest(index, key, visit) }
    }

    #[cold]
    fn search_rest<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let (mut seen, mut damage) = (0, None);
        if !self.rebuilding.is_done() {
            let found = self.search_tiles(index, key, (&mut seen, &mut damage), &mut visit)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(backlog) = &index.backlog {
            let found = self.search_backlog(index, backlog, key, &mut seen, &mut visit)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        // What was added to the index, or changed, meanwhile.
        let found = index.candidates(key)?.into_iter().try_visit(&mut visit)?;
        match (found, damage) {
            // The row may be one of a tile that cannot be read.
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Looks for a key in tiles that are not read: reads those that nobody else is reading, so that
    /// no row is looked at twice, and looks through the others. Passes over tiles that are damaged,
    /// and notes the first one.
    fn search_tiles<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        (seen, damage): (&mut usize, &mut Option<Error>),
        visit: &mut impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        self.rebuilding.want();
        while let Some(taken) = self.rebuilding.take_any() {
            match self.read_tiles(taken) {
                // The rows are found without the index.
                Err(error) if error.is_full() => break,
                read => read.map(drop)?,
            }
            let found = match &index.backlog {
                Some(backlog) => backlog.rows(self.partition(index, backlog, key), key.hash, seen),
                None => index.candidates(key)?,
            };
            let found = found.into_iter().try_visit(visit)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let mut copied = Copied::default();
        for number in self.rebuilding.unread() {
            let rows = match self.rows_of_tile(number, index, key, &mut copied) {
                Err(error) if error.is_damage() => {
                    damage.get_or_insert(error);
                    continue;
                }
                rows => rows?,
            };
            let found = rows.into_iter().try_visit(visit)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Looks for a key among the words that were read and are not in the index, or adds those of
    /// its partition to the index.
    fn search_backlog<R>(
        &self,
        index: &Index<M>,
        backlog: &Backlog,
        key: &Key,
        seen: &mut usize,
        visit: &mut impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let partition = self.partition(index, backlog, key);
        if backlog.is_added(partition) {
            return Ok(None);
        }
        let is_to_add = backlog.count_look() && self.rebuilding.is_over();
        if let Some(taken) = is_to_add.then(|| backlog.take(partition)).flatten() {
            match index.add_partition(backlog, taken) {
                // The row is found without it.
                Err(error) if error.is_full() => {}
                added => return added.map(|_| None),
            }
        }
        backlog.rows(partition, key.hash, seen).into_iter().try_visit(visit)
    }

    fn partition(&self, index: &Index<M>, backlog: &Backlog, key: &Key) -> u64 {
        index.rows.partition(key.hash, backlog.bits())
    }

    /// Rows of a tile that may have a key.
    fn rows_of_tile(
        &self,
        number: u64,
        index: &Index<M>,
        key: &Key,
        copied: &mut Copied,
    ) -> Result<Candidates> {
        let tile = self.whole_tile(number)?;
        copied.copy(self, tile);
        let (format, spec) = (&self.format, &index.spec);
        let rows = copied.rows(format.group_len[0]).filter(|(_, committed, claim, keys)| {
            let is_in_tile = matches!(committed.state(), State::Present(_));
            let has_key = || key.is_of(format, spec, [keys, &[]]);
            // It may have the key: whoever looks at it is told.
            let is_damaged = || self.require_values(&spec.columns, [keys, &[]]).is_err();
            let may_have_key = || index.needs_others || has_key() || is_damaged();
            !is_in_tile || claim.as_pending().is_some() || may_have_key()
        });
        let first = number << format.shift;
        Ok(rows.filter_map(|(index, ..)| RowId::new(first + index)).collect())
    }
}

/// Numbers of rows that are visited until there is a result.
trait TryVisit: Iterator<Item = RowId> + Sized {
    fn try_visit<R>(self, visit: &mut impl FnMut(RowId) -> Result<Option<R>>) -> Result<Option<R>> {
        for row in self {
            let result = visit(row)?;
            if result.is_some() {
                return Ok(result);
            }
        }
        Ok(None)
    }
}

impl<I: Iterator<Item = RowId>> TryVisit for I {}
