//! Where tests put their pools, and how they run a part of themselves in another process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::{Format, Medium, Pool};
use tempfile::TempDir;

use super::slots::Slots;

/// A directory in memory (tmpfs), or wherever temporary files go where there is none.
pub(crate) fn memory_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// A directory beside the build, which lies on a disk on most machines.
pub(crate) fn disk_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Whether tests may take minutes and gigabytes.
pub(crate) fn is_long() -> bool {
    std::env::var_os("REMANENT_LONG").is_some_and(|value| value != "0")
}

/// A pool on a simulated medium, which counts.
pub(crate) fn simulated(size_max: u64) -> Pool<Arc<Sim>> {
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    Pool::format(Arc::new(sim), &Format::new(size_max)).expect("room for the smallest pool")
}

/// Whether allocated = reachable, and the pool's own part is consistent.
pub(crate) fn assert_sound<M: Medium>(pool: &Pool<M>, slots: &Slots<M>) {
    assert_eq!(slots.check().expect("readable"), []);
    assert_eq!(pool.check().expect("readable").violations, []);
}

const CHILD: &str = "REMANENT_TEST_CHILD";

/// In a process started by [`run_as_child`]: what it was given.
pub(crate) fn child_argument() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Runs the test of that name in another process, where [`child_argument`] is `argument`.
pub(crate) fn run_as_child(test: &str, argument: impl Into<PathBuf>) -> Child {
    Command::new(std::env::current_exe().expect("the path of this binary"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, argument.into())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child process")
}

/// Bytes that differ from place to place, and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A small, fast generator: the same numbers for the same seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Numbers(seed | 1)
    }

    /// The next number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }

    /// The numbers below `count`, in random order.
    pub(crate) fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        for last in (1..numbers.len()).rev() {
            numbers.swap(last, self.below(last as u64 + 1) as usize);
        }
        numbers
    }
}
