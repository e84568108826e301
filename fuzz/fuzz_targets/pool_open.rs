//! Any bytes as a pool file, and a valid pool with any of its words changed: a clear error, or it
//! works.
//!
//! `cargo +nightly fuzz run pool_open -- -rss_limit_mb=4096`
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the tests of remanent-pmem use the rest")]
#[path = "../../crates/pmem/tests/it/pool/image.rs"]
mod image;
#[allow(dead_code, reason = "the tests of remanent-pmem use the rest")]
#[path = "../../crates/pmem/tests/it/pool/slots.rs"]
mod slots;

/// Valid pools: one closed properly, one copied while it was open.
const CLEAN: &[u8] = include_bytes!("../../crates/pmem/tests/fixtures/format-1-clean.image");
const CRASHED: &[u8] = include_bytes!("../../crates/pmem/tests/fixtures/format-1-crashed.image");

/// Files are cut to less than this, which is more than the pools have.
const LEN_MAX: u64 = 64 << 20;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes(&'a [u8]),
    Damaged { is_clean: bool, checksums_fit: bool, changes: Vec<Change>, cut: Option<u32> },
}

/// A new value for a word of a line that the pool uses.
#[derive(Arbitrary, Debug)]
struct Change {
    line: u16,
    word: u8,
    value: u64,
}

fuzz_target!(|input: Input<'_>| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let path = dir.path().join("a.pool");
    match input {
        Input::Bytes(bytes) => std::fs::write(&path, bytes).expect("space"),
        Input::Damaged { is_clean, checksums_fit, changes, cut } => {
            let image = if is_clean { CLEAN } else { CRASHED };
            let file = image::write_image(image, &path).expect("space");
            change(&file, image, &changes);
            if checksums_fit {
                image::fix_checksums(&file).expect("a file that can be written");
            }
            if let Some(cut) = cut {
                file.set_len(u64::from(cut) % LEN_MAX).expect("a file that can be cut");
            }
        }
    }
    if let Err(error) = image::exercise(&path) {
        assert!(!error.to_string().is_empty());
    }
});

fn change(file: &File, image: &[u8], changes: &[Change]) {
    let lines: Vec<u64> = image::lines(image).map(|(offset, _)| offset).collect();
    for change in changes {
        let at = lines[usize::from(change.line) % lines.len()] + u64::from(change.word % 8) * 8;
        file.write_all_at(&change.value.to_le_bytes(), at).expect("a file that can be written");
    }
}
