//! A root of transactional objects with any of its words changed: a clear error, or it works.
//!
//! `cargo +nightly fuzz run objects_open -- -rss_limit_mb=4096`
#![no_main]

use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};
use remanent_structures::{Result, TxArray};

type Object = [u64; 3];

#[derive(Arbitrary, Debug)]
struct Input {
    /// Number of objects. A few fit into the root's header, more do not.
    count: u8,
    write_disturbance: bool,
    /// Words of the header, and new values for them.
    changes: Vec<(u8, u64)>,
}

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = Pool::options().write_disturbance(input.write_disturbance);
    let pool = options.create(path)?;
    drop(TxArray::create(&pool, "objects", u64::from(input.count), |index| [index; 3])?);
    let header = ChunkId(DATA_FIRST).offset();
    for &(word, value) in &input.changes {
        pool.medium().store(header + u64::from(word) * 8, value);
    }
    let objects = TxArray::<Object>::open(&pool, "objects")?;
    objects.check()?;
    if let Some(object) = objects.len().checked_sub(1).and_then(|last| objects.at(last)) {
        object.transact(|words| words[0] = words[0].wrapping_add(1))?;
        object.get()?;
    }
    Ok(())
}
