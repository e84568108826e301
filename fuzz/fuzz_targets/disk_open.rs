//! A disk with any of its words changed, and lines sealed again that their checksums would tell: answers or clear errors,
//! and soon.
//!
//! `cargo +nightly fuzz run disk_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

use std::ops::ControlFlow;
use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use remanent_blockdev::{Disk, Result, seal_line};
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId, DATA_FIRST};
use remanent_pmem::{LINE_LEN, Medium, Pool};

#[derive(Arbitrary, Debug)]
struct Input {
    writes: Vec<(u16, u8)>,
    /// After so many writes there is a snapshot.
    snapshot_after: u8,
    changes: Vec<Change>,
    /// What is asked first.
    first: u8,
}

/// Another value for one of the words that are not zero.
#[derive(Arbitrary, Debug)]
struct Change {
    word: u16,
    value: Value,
    is_sealed: bool,
}

#[derive(Arbitrary, Debug)]
enum Value {
    Any(u64),
    /// As another word: leads elsewhere, or says what something else is.
    OfWord(u16),
    /// So many away.
    Away(i16),
    /// One bit.
    Flipped(u8),
}

/// Chunks in which words are changed: the header's, and those taken first.
const CHUNKS: u64 = 8;
const SIZE: u64 = 8 << 20;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(path)?;
    let disk = Disk::create_with(&pool, "disk", SIZE, (16, 3))?;
    for (number, &(block, stamp)) in input.writes.iter().take(64).enumerate() {
        if number == usize::from(input.snapshot_after % 64) {
            disk.snapshot("kept")?;
        }
        let at = u64::from(block) * 4096 % SIZE;
        let len = (1 + u64::from(stamp) % 8 * 1000).min(SIZE - at) as usize;
        disk.write(at, &vec![stamp; len])?;
    }
    drop(disk);
    change(pool.medium(), &input.changes);
    drop(pool);
    let pool = options().open(path)?;
    ask(&Disk::open(&pool, "disk")?, input);
    Ok(())
}

fn change(medium: &impl Medium, changes: &[Change]) {
    let start = ChunkId(DATA_FIRST).offset();
    let end = (start + CHUNKS * CHUNK_LEN).min(medium.len());
    let words: Vec<u64> = (start..end).step_by(8).filter(|&at| medium.load(at) != 0).collect();
    let place = |word: u16| words[usize::from(word) % words.len()];
    for change in changes {
        let at = place(change.word);
        let value = match change.value {
            Value::Any(value) => value,
            Value::OfWord(word) => medium.load(place(word)),
            Value::Away(distance) => medium.load(at).wrapping_add_signed(distance.into()),
            Value::Flipped(bit) => medium.load(at) ^ 1 << (bit % 64),
        };
        medium.store(at, value);
        if change.is_sealed {
            seal_line(medium, at & !(LINE_LEN - 1));
        }
    }
}

/// Asks everything, from this question on; an error to one says nothing about the next.
fn ask(disk: &Disk, input: &Input) {
    let go_on = || ControlFlow::Continue(());
    let mut bytes = vec![0; 1 << 20];
    for question in (0..9).map(|number| (input.first % 9 + number) % 9) {
        let _ = match question {
            0 => disk.read(0, &mut bytes),
            1 => disk.write(4000, &bytes[..10_000]),
            2 => disk.check().map(drop),
            3 => disk.scrub(|_| go_on()).map(drop),
            4 => disk.trim(0, 1 << 20),
            5 => disk.extents(0, disk.size(), |_| go_on()),
            6 => disk.open_snapshot("kept").and_then(|kept| kept.read(0, &mut bytes)),
            7 => disk.remove_snapshot("kept"),
            _ => disk.resize(SIZE / 2).and_then(|()| disk.resize(SIZE)),
        };
    }
}
