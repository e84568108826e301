//! A disk beside a plain array of bytes, its budget of fences, and what it says of damage.

mod budget;
mod damage;
mod exchange;
mod lives;
mod model;
mod snapshots;
mod unwind;

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

/// Where a disk's header is in a pool's file: it begins with the disk's identity.
fn header_in(image: &[u8], slab_blocks: u64) -> usize {
    let identity = [4096, slab_blocks, 32].map(u64::to_le_bytes).concat();
    let is_header = |at: &usize| image[*at..].starts_with(&identity);
    (0..image.len()).step_by(64).find(is_header).expect("the disk's identity")
}
