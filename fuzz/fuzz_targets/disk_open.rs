//! A disk with any of its words changed, and the checksums of some changed lines computed again:
//! answers or clear errors, and soon.
//!
//! `cargo +nightly fuzz run disk_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::ops::ControlFlow;
use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_blockdev::{Disk, Result, Shape};
use remanent_pmem::Pool;

#[derive(Arbitrary, Debug)]
struct Input {
    writes: Vec<(u16, u8)>,
    /// Number of writes before the snapshot.
    snapshot_after: u8,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 8;
const SIZE: u64 = 8 << 20;
/// Small limits, so that few writes reach them.
const SHAPE: Shape = Shape { slab_blocks: 16, lines_max: 3, spares_max: 4 };

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(path)?;
    let disk = Disk::create_with(&pool, "disk", SIZE, SHAPE)?;
    for (number, &(block, stamp)) in input.writes.iter().take(64).enumerate() {
        if number == usize::from(input.snapshot_after % 64) {
            disk.snapshot("kept")?;
        }
        let at = u64::from(block) * 4096 % SIZE;
        let len = (1 + u64::from(stamp) % 8 * 1000).min(SIZE - at) as usize;
        disk.write(at, &vec![stamp; len])?;
    }
    let lines = disk.lines()?;
    change(pool.medium(), CHUNKS, &input.changes, |medium, at| lines.seal(medium, at));
    // As a process that died leaves it. A disk that was closed has no record that recovery must
    // examine.
    let killed = path.with_extension("killed");
    std::fs::copy(path, &killed).expect("room");
    drop((disk, pool));
    let pool = options().open(killed)?;
    ask(&Disk::open(&pool, "disk")?, input);
    Ok(())
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
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
