//! Writes that take effect atomically.

use std::collections::BTreeMap;

use remanent_blockdev::{Disk, Transaction};
use remanent_pmem::Medium;

use crate::Result;

/// Writes of a database that are not on its disk yet, and the size of the database after them.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Written bytes by their offset; none overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Total length of all pieces.
    bytes: u64,
    size: u64,
}

impl Batch {
    /// No writes, for a database of this size.
    pub(crate) fn new(size: u64) -> Self {
        Batch { pieces: BTreeMap::new(), bytes: 0, size }
    }

    /// Size of the database after the writes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that the writes take in memory.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Adds a write, over earlier ones.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        self.size = self.size.max(end);
        if bytes.is_empty() {
            return;
        }
        // SQLite writes the same pages again and again. Other overlaps are rare; they are merged to
        // one piece.
        if let Some(piece) = self.pieces.get_mut(&offset)
            && piece.len() == bytes.len()
        {
            piece.copy_from_slice(bytes);
            return;
        }
        let (mut start, mut piece) = (offset, bytes.to_vec());
        for at in self.overlapping(offset, end) {
            let old = self.remove(at);
            let before = offset.saturating_sub(at) as usize;
            piece.splice(0..0, old[..before].iter().copied());
            start = start.min(at);
            let behind = (at + old.len() as u64).saturating_sub(end) as usize;
            piece.extend_from_slice(&old[old.len() - behind..]);
        }
        self.bytes += piece.len() as u64;
        self.pieces.insert(start, piece);
    }

    /// Sets the end of the database to `size`, and drops writes behind it.
    pub(crate) fn cut(&mut self, size: u64) {
        for at in self.overlapping(size, u64::MAX) {
            let mut piece = self.remove(at);
            piece.truncate(size.saturating_sub(at) as usize);
            if !piece.is_empty() {
                self.bytes += piece.len() as u64;
                self.pieces.insert(at, piece);
            }
        }
        self.size = size;
    }

    /// Copies the written bytes over `bytes`, which begin at `offset`.
    pub(crate) fn put_over(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for start in self.overlapping(offset, end) {
            let piece = &self.pieces[&start];
            let (begin, end) = (offset.max(start), end.min(start + piece.len() as u64));
            let target = &mut bytes[(begin - offset) as usize..(end - offset) as usize];
            target.copy_from_slice(&piece[(begin - start) as usize..(end - start) as usize]);
        }
    }

    /// Adds all writes to a transaction.
    fn put_into<M: Medium>(&self, transaction: &mut Transaction<'_, M>) -> Result<()> {
        for (offset, bytes) in &self.pieces {
            transaction.write(*offset, bytes)?;
        }
        Ok(())
    }

    fn remove(&mut self, at: u64) -> Vec<u8> {
        let piece = self.pieces.remove(&at).expect("it was just found");
        self.bytes -= piece.len() as u64;
        piece
    }

    /// Offsets of the pieces that overlap a range.
    fn overlapping(&self, begin: u64, end: u64) -> Vec<u64> {
        let before_end = self.pieces.range(..end).rev();
        let overlaps = |(at, piece): &(&u64, &Vec<u8>)| **at + piece.len() as u64 > begin;
        before_end.take_while(overlaps).map(|(at, _)| *at).collect()
    }
}

/// Writes all batches to a disk atomically, later ones over earlier ones, and makes it at least
/// `size` bytes long. Durable when it returns.
pub(crate) fn commit<'b, M: Medium>(
    disk: &Disk<M>,
    batches: impl IntoIterator<Item = &'b Batch>,
    size: u64,
) -> Result<()> {
    let mut transaction = disk.transaction();
    if size > disk.size() {
        transaction.grow(size)?;
    }
    for batch in batches {
        batch.put_into(&mut transaction)?;
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod crash;

#[cfg(test)]
mod tests {
    use super::*;

    /// The batch as one range of bytes, with zeros where it has none.
    fn all(batch: &Batch) -> Vec<u8> {
        let mut bytes = vec![0; batch.size() as usize];
        batch.put_over(0, &mut bytes);
        bytes
    }

    #[test]
    fn later_writes_go_over_earlier_ones_however_they_overlap() {
        for first in 0..6 {
            for len in 1..6 {
                let (mut batch, mut expected) = (Batch::new(16), vec![0; 16]);
                let writes =
                    [(2, 2), (7, 3), (first, len), (first + 4, 1), (9, 7), (first + len, 4)];
                for (number, (offset, len)) in (1..).zip(writes) {
                    batch.put(offset as u64, &vec![number; len]);
                    expected[offset..offset + len].fill(number);
                }
                assert_eq!(all(&batch), expected, "{first}, {len}");
                let held: usize = batch.pieces.values().map(Vec::len).sum();
                assert_eq!(batch.len(), held as u64);
            }
        }
    }

    #[test]
    fn what_lies_behind_a_cut_is_gone() {
        let mut batch = Batch::new(4);
        batch.put(2, &[1; 6]);
        batch.put(10, &[2; 2]);
        assert_eq!(batch.size(), 12);
        batch.cut(5);
        batch.put(6, &[3]);
        assert_eq!(all(&batch), [0, 0, 1, 1, 1, 0, 3]);
        assert_eq!(batch.len(), 4);
    }

    #[test]
    fn a_part_that_is_read_has_parts_of_what_was_written() {
        let mut batch = Batch::new(0);
        batch.put(0, &[1; 8]);
        batch.put(8, &[2; 8]);
        let mut bytes = [9; 4];
        batch.put_over(6, &mut bytes);
        assert_eq!(bytes, [1, 1, 2, 2]);
        batch.put_over(14, &mut bytes);
        assert_eq!(bytes, [2, 2, 2, 2]);
    }
}
