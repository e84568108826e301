//! A disk beside a plain array of bytes, its budget of fences, and what it says of damage.

mod budget;
mod damage;
mod lives;
mod model;
mod snapshots;

use remanent_blockdev::Disk;
use remanent_pmem::Pool;

/// A pool in a directory that is removed with it.
struct TestPool {
    pool: Pool,
    path: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl TestPool {
    fn new(size_max: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let path = directory.path().join("test.pool");
        let pool = Pool::options().size_max(size_max).create(&path).expect("room for a small pool");
        TestPool { pool, path, _directory: directory }
    }

    /// The pool's file, to be changed behind its back.
    fn file(&self) -> std::fs::File {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).open(&self.path).expect("it is ours")
    }

    fn disk(&self, size: u64) -> Disk {
        Disk::create(&self.pool, "disk", size).expect("room for a disk")
    }
}

/// Bytes that differ from block to block and from stamp to stamp.
fn bytes(len: usize, stamp: u8) -> Vec<u8> {
    (0..len)
        .map(|index| (index as u8).wrapping_mul(31).wrapping_add(stamp) ^ (index >> 8) as u8)
        .collect()
}
