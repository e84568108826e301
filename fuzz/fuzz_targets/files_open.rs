//! A file or the paper's device with any of its words changed, and the checksums of some changed
//! lines computed again: answers or clear errors, and soon.
//!
//! `cargo +nightly fuzz run files_open -- -rss_limit_mb=4096 -timeout=20`
#![no_main]

mod damage;

use std::path::Path;

use arbitrary::Arbitrary;
use damage::{Change, change};
use libfuzzer_sys::fuzz_target;
use remanent_blockdev::file::File;
use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
use remanent_blockdev::Result;
use remanent_pmem::Pool;

#[derive(Arbitrary, Debug)]
struct Input {
    is_file: bool,
    writes: Vec<(u16, u8)>,
    changes: Vec<Change>,
    /// The question that is asked first.
    first: u8,
}

/// Chunks in which words are changed: the header's, and the first ones that were taken.
const CHUNKS: u64 = 8;
/// Bytes of the device, and about as many of the file.
const SIZE: u64 = 1 << 20;

fuzz_target!(|input: Input| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if let Err(error) = exercise(&dir.path().join("a.pool"), &input) {
        assert!(!error.to_string().is_empty());
    }
});

fn exercise(path: &Path, input: &Input) -> Result<()> {
    let options = || Pool::options().size_max(64 << 20);
    let pool = options().create(path)?;
    let writes = input.writes.iter().take(64).map(|&(place, stamp)| {
        (u64::from(place) * 16 % (SIZE - 8000), vec![stamp; 1 + usize::from(stamp) * 31])
    });
    if input.is_file {
        let file = File::create(&pool, "one")?;
        for (at, bytes) in writes {
            file.write(at, &bytes)?;
        }
        let lines = file.lines();
        drop(file);
        change(pool.medium(), CHUNKS, &input.changes, |medium, at| lines.seal(medium, at));
    } else {
        let device = Nvramdisk::create(&pool, "one", SIZE, Policy::P3)?;
        for (at, bytes) in writes {
            device.write(at, &bytes)?;
        }
        drop(device);
        change(pool.medium(), CHUNKS, &input.changes, |_, _| {});
    }
    drop(pool);
    let pool = options().open(path)?;
    if input.is_file {
        ask_file(&File::open(&pool, "one")?, input.first);
    } else {
        ask_device(&Nvramdisk::open(&pool, "one", Policy::P3)?, input.first);
    }
    Ok(())
}

/// Asks all questions, beginning with this one. An error of one says nothing about the next.
fn ask_file(file: &File, first: u8) {
    let mut bytes = vec![0; 1 << 16];
    for question in (0..8).map(|number| (first % 8 + number) % 8) {
        let _ = match question {
            0 => file.read(0, &mut bytes).map(drop),
            1 => file.read(file.len().saturating_sub(100), &mut bytes).map(drop),
            2 => file.write(1000, &bytes[..10_000]),
            3 => file.write(file.len().min(SIZE), &bytes),
            4 => file.sync(),
            5 => file.check().map(drop),
            6 => file.set_len(5000),
            _ => file.set_present(!file.is_present()),
        };
    }
}

/// As [`ask_file`].
fn ask_device(device: &Nvramdisk, first: u8) {
    let mut bytes = vec![0; 1 << 16];
    for question in (0..4).map(|number| (first % 4 + number) % 4) {
        let _ = match question {
            0 => device.read(0, &mut bytes),
            1 => device.write(1000, &bytes[..10_000]),
            2 => device.read(SIZE - (1 << 16), &mut bytes),
            _ => device.check().map(drop),
        };
    }
}
