//! A batched map or list with any of its words changed: a clear error, or it works.
//!
//! `cargo +nightly fuzz run batches_open -- -rss_limit_mb=4096`
#![no_main]

use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{Medium, Pool};
use remanent_structures::batch_list::{BatchList, ChangeList, LogList};
use remanent_structures::papers::{AppendList, FlushAlwaysList, TableList};
use remanent_structures::{BatchMap, BatchOptions, Result};

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Map,
    FlushAlways,
    Append,
    Log,
    Table,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kind: Kind,
    /// Lengths of the values that are written first.
    lens: Vec<u16>,
    /// Words of the header and of the first segments, and new values for them.
    changes: Vec<(Place, u64)>,
}

#[derive(Arbitrary, Debug)]
enum Place {
    Header(u8),
    /// A word in a page of one of the chunks behind the header's.
    Segment {
        chunk: u8,
        word: u16,
    },
}

impl Place {
    fn offset(&self) -> u64 {
        let header = ChunkId(DATA_FIRST).offset();
        match *self {
            Place::Header(word) => header + u64::from(word) * 8,
            Place::Segment { chunk, word } => {
                header
                    + (1 + u64::from(chunk % 40)) * CHUNK_LEN
                    + u64::from(word) % CHUNK_LEN / 8 * 8
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let pool = Pool::options().size_max(1 << 30).create(path)?;
    let options = BatchOptions { segment_len: CHUNK_LEN, ..BatchOptions::without_thread() };
    macro_rules! exercise {
        ($list:ty, $use:expr) => {{
            fill(<$list>::create(&pool, "list", options)?, input)?;
            for (place, value) in &input.changes {
                pool.medium().store(place.offset(), *value);
            }
            $use(<$list>::open(&pool, "list", options)?)
        }};
    }
    match input.kind {
        Kind::Map => exercise!(BatchMap<u64, [u8]>, change),
        Kind::FlushAlways => exercise!(FlushAlwaysList, change),
        Kind::Append => exercise!(AppendList, read),
        Kind::Log => exercise!(LogList, change),
        Kind::Table => exercise!(TableList, change),
    }
}

fn fill(mut list: impl BatchList, input: &Input) -> Result<()> {
    for (key, &len) in (0..).zip(input.lens.iter().take(20)) {
        list.insert(key, &vec![7; usize::from(len)])?;
    }
    list.close()
}

fn read(mut list: impl BatchList) -> Result<()> {
    list.check()?;
    list.for_each(|_, _| {})?;
    list.insert(100, b"one more")?;
    list.get(100)?;
    list.close()
}

fn change(mut list: impl ChangeList) -> Result<()> {
    list.update(1, b"another")?;
    list.remove(2)?;
    read(list)
}
