//! Any damage to a pool's own bytes is a clear error or does no harm: no panic, no hang, no signal.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::fixture::{CLEAN_1, CRASHED_1};
use super::image::{exercise, fix_checksums, lines, write_image};
use super::support::memory_dir;

/// An honest value for a word, or a wild one.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..6_u64,
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..1024_u64).prop_map(|chunk| chunk << 16),
        // A state word: kind, class, owner, run.
        (0..8_u64, 0..40_u64, 0..4_u64, 0..70_000_u64)
            .prop_map(|(kind, class, owner, run)| kind | class << 8 | owner << 16 | run << 32),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..Default::default() })]

    #[test]
    fn damaged_pools_are_refused_or_work(
        is_clean in any::<bool>(),
        fits in any::<bool>(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..8_u64, value(), any::<bool>()), 1..6),
        cut in prop_oneof![4 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
    ) {
        let image = if is_clean { CLEAN_1 } else { CRASHED_1 };
        let dir = memory_dir();
        let path = dir.path().join("a.pool");
        let file = write_image(image, &path).unwrap();
        let used: Vec<u64> = lines(image).map(|(offset, _)| offset).collect();
        let len = file.metadata().unwrap().len();
        for (line, word, value, is_flip) in changes {
            let at = line.get(&used) + word * 8;
            let mut old = [0; 8];
            file.read_exact_at(&mut old, at).unwrap();
            let old = if is_flip { u64::from_le_bytes(old) } else { 0 };
            file.write_all_at(&(old ^ value).to_le_bytes(), at).unwrap();
        }
        if fits {
            fix_checksums(&file).unwrap();
        }
        if let Some(cut) = cut {
            file.set_len(cut.index(len as usize) as u64).unwrap();
        }
        drop(file);
        let start = Instant::now();
        let outcome = exercise(&path);
        prop_assert!(start.elapsed() < Duration::from_secs(20), "{:?}", outcome);
        if let Err(error) = outcome {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn undamaged_pools_work() {
    for image in [CLEAN_1, CRASHED_1] {
        let dir = memory_dir();
        let path = dir.path().join("a.pool");
        write_image(image, &path).unwrap();
        exercise(&path).unwrap();
    }
}
