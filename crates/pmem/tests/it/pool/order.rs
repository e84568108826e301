//! The ordering methods write what they are given, wherever it goes.

use std::sync::LazyLock;

use proptest::prelude::*;
use remanent_pmem::order::Method;
use remanent_pmem::{Emulation, Medium, Pool};
use tempfile::TempDir;

use super::mapped::scratch_pool;
use super::support::pattern;

const WINDOW: usize = 8192;

static POOL: LazyLock<(TempDir, Pool, u64)> = LazyLock::new(|| scratch_pool(Emulation::Nvram));

proptest! {
    #[test]
    fn every_method_writes_its_words_and_no_others(
        method in proptest::sample::select(Method::available()),
        word in 0_u64..512,
        len in 0_usize..512,
        seed in any::<u64>(),
    ) {
        // One case at a time: they share the window.
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap();
        let (medium, base) = (POOL.1.medium(), POOL.2);
        let mut expected = pattern(seed, WINDOW);
        medium.write(base, &expected);
        let bytes = pattern(!seed, len * 8);
        let start = word as usize * 8;
        method.write(medium, base + word * 8, &bytes);
        expected[start..start + bytes.len()].copy_from_slice(&bytes);
        prop_assert!(medium.equals(base, &expected), "{} of {} words at {}", method, len, word);
        let mut found = vec![0; bytes.len()];
        method.read(medium, base + word * 8, &mut found);
        prop_assert_eq!(found, bytes);
        prop_assert_eq!(medium.fault(), None);
    }
}

/// On memory where nothing has to be flushed there is nothing to choose, but what is written must
/// be there.
#[test]
fn every_method_writes_where_no_line_has_to_be_flushed() {
    let (_dir, pool, base) = scratch_pool(Emulation::None);
    let medium = pool.medium();
    for (method, turn) in Method::available().into_iter().chain([Method::Direct]).zip(1..) {
        let bytes = pattern(turn, 4096 + 24);
        method.write(medium, base + 8, &bytes);
        assert!(medium.equals(base + 8, &bytes), "{method}");
    }
}

#[test]
fn every_method_of_the_paper_is_available_where_lines_can_be_flushed() {
    let names: Vec<&str> = Method::available().into_iter().map(Method::name).collect();
    if remanent_pmem::isa().flush.is_some() {
        assert_eq!(names[..6], ["async", "MCF", "MNT", "MWT", "MUC", "MWC"]);
    } else {
        assert_eq!(names, ["async"]);
    }
}

#[test]
fn a_wild_offset_is_a_fault() {
    for method in Method::available() {
        for wild in [1 << 40, u64::MAX - 7] {
            let (_dir, pool, _) = scratch_pool(Emulation::Nvram);
            method.write(pool.medium(), wild, &[1; 200_000]);
            assert!(pool.medium().fault().is_some(), "{method}");
        }
    }
}

#[test]
#[should_panic(expected = "ordering methods write whole words")]
fn half_words_are_refused() {
    Method::CacheFlush.write(POOL.1.medium(), POOL.2, &[1; 12]);
}
