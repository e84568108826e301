//! Files on a disk of ours, without a file system: the operations that Berkeley DB needs, and no
//! more.
//!
//! The disk is divided into extents of 1 MiB, and begins with a table of their owners. Taking an
//! extent writes its entry, durably, before anything is written to the extent. After a crash a file
//! is as long as its extents, with zeros at its end. Berkeley DB expects that of its logs, and its
//! B-tree knows its last page.
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 16 × number of the extent | 8 | number of its file; zero if it is free |
//! | + 8 | 8 | its index in the file |
//! | (1 + number) × 1 MiB | 1 MiB | the extent |

use std::collections::HashMap;
use std::path::Path;

#[cfg(test)]
use anyhow::ensure;
use anyhow::{Context, Result, bail};
use remanent_blockdev::Disk;
use remanent_pmem::{Durability, Emulation, Pool};

const EXTENT_LEN: u64 = 1 << 20;
const EXTENTS: u64 = 1023;
const ENTRY_LEN: usize = 16;
/// Bytes of a disk: its table, and its extents.
const DISK_LEN: u64 = (1 + EXTENTS) * EXTENT_LEN;
const ROOT: &str = "files";

/// Files by number, and open files by descriptor.
pub(crate) struct DiskFiles {
    disk: Disk,
    pool: Pool,
    files: HashMap<u64, File>,
    /// For each extent, whether a file has it.
    taken: Vec<bool>,
    open: HashMap<i32, u64>,
}

#[derive(Default)]
struct File {
    len: u64,
    extents: Vec<u64>,
}

impl DiskFiles {
    /// A new disk in a new pool, without files.
    ///
    /// # Errors
    ///
    /// When the pool or the disk cannot be made.
    pub(crate) fn create(path: &Path, emulation: Emulation) -> Result<Self> {
        let options = Pool::options().durability(Durability::Process).emulation(emulation);
        let pool = options.create(path)?;
        let disk = Disk::create(&pool, ROOT, DISK_LEN).context("cannot create the disk")?;
        Ok(DiskFiles {
            disk,
            pool,
            files: HashMap::new(),
            taken: vec![false; EXTENTS as usize],
            open: HashMap::new(),
        })
    }

    /// The files of a used pool, also after a crash; for tests.
    ///
    /// # Errors
    ///
    /// When the pool or its disk cannot be opened, or its table is damaged.
    #[cfg(test)]
    pub(crate) fn open_pool(path: &Path, emulation: Emulation) -> Result<Self> {
        let options = Pool::options().durability(Durability::Process).emulation(emulation);
        let pool = options.open(path)?;
        let disk = Disk::open(&pool, ROOT).context("cannot open the disk")?;
        let mut table = vec![0; EXTENTS as usize * ENTRY_LEN];
        disk.read(0, &mut table)?;
        let mut files: HashMap<u64, File> = HashMap::new();
        let mut taken = vec![false; EXTENTS as usize];
        for (extent, entry) in table.chunks_exact(ENTRY_LEN).enumerate() {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
            let (number, place) = (word(0), word(8) as usize);
            if number == 0 {
                continue;
            }
            ensure!(place < EXTENTS as usize, "extent {extent} is no part of a file");
            let file = files.entry(number).or_default();
            if file.extents.len() <= place {
                file.extents.resize(place + 1, u64::MAX);
                file.len = file.extents.len() as u64 * EXTENT_LEN;
            }
            file.extents[place] = extent as u64;
            taken[extent] = true;
        }
        let is_whole = |file: &File| !file.extents.contains(&u64::MAX);
        ensure!(files.values().all(is_whole), "a file lacks an extent");
        Ok(DiskFiles { disk, pool, files, taken, open: HashMap::new() })
    }

    /// The pool of the disk.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Removes all files.
    ///
    /// # Errors
    ///
    /// When the disk reports one.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.files.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.remove(number))
    }

    /// Gives the file a descriptor; a missing file is empty.
    pub(super) fn open(&mut self, descriptor: i32, number: u64) {
        self.files.entry(number).or_default();
        self.open.insert(descriptor, number);
    }

    pub(super) fn close(&mut self, descriptor: i32) {
        self.open.remove(&descriptor);
    }

    pub(super) fn len(&mut self, descriptor: i32) -> Result<u64> {
        Ok(self.file(descriptor)?.len)
    }

    /// Reads; behind the end there are zeros.
    pub(super) fn read(&mut self, descriptor: i32, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let disk = self.disk.clone();
        let file = self.file(descriptor)?;
        let there = file.len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (there, behind) = bytes.split_at_mut(there);
        behind.fill(0);
        let mut done = 0;
        while done < there.len() {
            let (at, len) = file.piece(offset + done as u64, there.len() - done);
            disk.read(at, &mut there[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    /// Writes, and lengthens the file as needed. Durable when it returns.
    pub(super) fn write(&mut self, descriptor: i32, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        self.reach(descriptor, end)?;
        let disk = self.disk.clone();
        let file = self.file(descriptor)?;
        let mut done = 0;
        while done < bytes.len() {
            let (at, len) = file.piece(offset + done as u64, bytes.len() - done);
            disk.write(at, &bytes[done..done + len])?;
            done += len;
        }
        file.len = file.len.max(end);
        Ok(())
    }

    pub(super) fn truncate(&mut self, descriptor: i32, len: u64) -> Result<()> {
        self.reach(descriptor, len)?;
        let disk = self.disk.clone();
        let file = self.file(descriptor)?;
        let freed = file.extents.split_off(len.div_ceil(EXTENT_LEN) as usize);
        file.len = len;
        if !len.is_multiple_of(EXTENT_LEN) {
            let (at, rest) = file.piece(len, EXTENT_LEN as usize);
            disk.write_zeros(at, rest as u64)?;
        }
        self.free(&freed)
    }

    pub(super) fn remove(&mut self, number: u64) -> Result<()> {
        let extents = self.files.remove(&number).unwrap_or_default().extents;
        self.free(&extents)
    }

    fn file(&mut self, descriptor: i32) -> Result<&mut File> {
        let file = self.open.get(&descriptor).and_then(|number| self.files.get_mut(number));
        file.with_context(|| format!("descriptor {descriptor} is not open"))
    }

    /// Takes extents until the file may have so many bytes.
    fn reach(&mut self, descriptor: i32, len: u64) -> Result<()> {
        while (self.file(descriptor)?.extents.len() as u64) * EXTENT_LEN < len {
            let Some(extent) = self.taken.iter().position(|is_taken| !is_taken) else {
                bail!("the disk of {DISK_LEN} bytes is full");
            };
            let number = self.open.get(&descriptor).copied().unwrap_or_default();
            let place = self.file(descriptor)?.extents.len() as u64;
            let mut entry = [0; ENTRY_LEN];
            entry[..8].copy_from_slice(&number.to_le_bytes());
            entry[8..].copy_from_slice(&place.to_le_bytes());
            self.disk.write((extent * ENTRY_LEN) as u64, &entry)?;
            self.taken[extent] = true;
            self.file(descriptor)?.extents.push(extent as u64);
        }
        Ok(())
    }

    /// Frees extents after filling them with zeros, with which their next file begins.
    fn free(&mut self, extents: &[u64]) -> Result<()> {
        for extent in extents.iter().rev() {
            self.disk.write_zeros((1 + extent) * EXTENT_LEN, EXTENT_LEN)?;
            self.disk.write(extent * ENTRY_LEN as u64, &[0; ENTRY_LEN])?;
            self.taken[*extent as usize] = false;
        }
        Ok(())
    }
}

impl File {
    /// The place of an offset on the disk, and how many of the bytes from there on are contiguous.
    fn piece(&self, offset: u64, len: usize) -> (u64, usize) {
        let within = offset % EXTENT_LEN;
        let extent = self.extents[(offset / EXTENT_LEN) as usize];
        ((1 + extent) * EXTENT_LEN + within, len.min((EXTENT_LEN - within) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_again_with_what_was_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("files.pool");
        let mut files = DiskFiles::create(&path, Emulation::None).expect("created");
        files.open(3, 70);
        files.open(4, 71);
        let bytes: Vec<u8> = (0..EXTENT_LEN + 999).map(|at| at as u8).collect();
        files.write(4, 0, &[1; 10]).expect("written");
        files.write(3, EXTENT_LEN - 500, &bytes).expect("written");
        assert_eq!(files.len(3).expect("open"), 2 * EXTENT_LEN + 499);
        files.remove(71).expect("removed");
        drop(files);
        let mut files = DiskFiles::open_pool(&path, Emulation::None).expect("opened");
        files.open(5, 70);
        files.open(6, 71);
        assert_eq!(files.len(5).expect("open"), 3 * EXTENT_LEN);
        assert_eq!(files.len(6).expect("open"), 0, "it was removed");
        let mut found = vec![7; bytes.len() + 5];
        files.read(5, EXTENT_LEN - 500, &mut found).expect("read");
        assert_eq!(found, [bytes.as_slice(), &[0; 5]].concat());
        files.write(6, 9, &[1]).expect("written");
        files.read(6, 0, &mut found[..9]).expect("read");
        assert_eq!(found[..9], [0; 9], "nothing of the old file is left");
        files.truncate(5, 3).expect("truncated");
        assert_eq!(files.len(5).expect("open"), 3);
        files.truncate(5, 30).expect("made longer");
        assert_eq!(files.len(5).expect("open"), 30);
        assert!(files.write(9, 0, &[1]).is_err(), "no such descriptor");
        files.close(5);
        assert!(files.len(5).is_err());
    }
}
