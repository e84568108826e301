//! A file beside a plain array of bytes, its budget of fences, and what happens in a full pool.

mod budget;
mod handover;
mod lives;
mod model;

use remanent_blockdev::file::File;
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

    fn file(&self) -> File {
        File::create(&self.pool, "file").expect("room for a file")
    }
}

/// All that a file has.
fn content<M: remanent_pmem::Medium>(file: &File<M>) -> Vec<u8> {
    let mut bytes = vec![1; file.len() as usize + 10];
    let count = file.read(0, &mut bytes).expect("no fault");
    assert_eq!(count as u64, file.len(), "it ends where it says");
    bytes.truncate(count);
    bytes
}

/// Bytes that differ from place to place and from stamp to stamp.
fn bytes(len: usize, stamp: u8) -> Vec<u8> {
    (0..len)
        .map(|index| (index as u8).wrapping_mul(31).wrapping_add(stamp) ^ (index >> 8) as u8)
        .collect()
}
