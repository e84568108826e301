//! Opening takes the same time whatever the pool holds, and however it ended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remanent_pmem::Pool;
use rustix::process::{Signal, getpid, kill_process};

use super::slots::Slots;
use super::support::{child_argument, disk_dir, is_long, memory_dir, run_as_child};

const BLOCK_LEN: u64 = 16_384;
/// Opening the full pool against opening the empty one: medians.
const RATIO_MAX: f64 = 3.0;
const OPEN_MAX: Duration = Duration::from_millis(20);

/// Makes a pool that holds about `bytes` of blocks that are linked.
fn fill(path: &Path, bytes: u64) {
    let pool = Pool::options().create(path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let (small, large) = if bytes > 1 << 30 { (1 << 30, bytes - (1 << 30)) } else { (bytes, 0) };
    // Blocks of 16 KiB; what is beyond a gigabyte in runs of 64 MiB, allocated but not written.
    let content = vec![7; BLOCK_LEN as usize - 16];
    for index in 0..(small / BLOCK_LEN).max(1) {
        slots.put(index, &content).unwrap();
    }
    for _ in 0..large >> 26 {
        slots.heap().enter().prepare_to_write().allocate(1 << 26).unwrap();
    }
}

fn open_time(path: &Path) -> Duration {
    let start = Instant::now();
    let pool = Pool::options().open(path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(0).map(|content| content.len()), Some(BLOCK_LEN as usize - 16));
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Opens both pools in turn, so that both see the same machine.
fn assert_alike(small: &Path, large: &Path, before_each: impl Fn(&Path)) {
    let mut times = [vec![], vec![]];
    for _ in 0..21 {
        for (path, times) in [small, large].into_iter().zip(&mut times) {
            before_each(path);
            times.push(open_time(path));
        }
    }
    let [small_time, large_time] = times.map(median);
    eprintln!("open: {small_time:?} when small, {large_time:?} when large");
    let ratio = large_time.as_secs_f64() / small_time.as_secs_f64();
    assert!(ratio < RATIO_MAX, "{small_time:?} when small, {large_time:?} when large");
    assert!(large_time < OPEN_MAX, "{large_time:?}");
}

#[test]
fn a_full_pool_opens_as_fast_as_an_empty_one() {
    if let Some(path) = child_argument() {
        return change_and_die(path);
    }
    // A gigabyte in memory in any case; eight on a disk when asked for (`REMANENT_LONG=1`).
    let (dir, bytes) = if is_long() { (disk_dir(), 8 << 30) } else { (memory_dir(), 1 << 30) };
    let (small, large) = (dir.path().join("small.pool"), dir.path().join("large.pool"));
    fill(&small, 1 << 10);
    fill(&large, bytes);
    assert_alike(&small, &large, |_| {});
    assert_alike(&small, &large, |path| {
        let name = "pool::open_time::a_full_pool_opens_as_fast_as_an_empty_one";
        let status = run_as_child(name, path).wait_with_output().unwrap().status;
        assert!(!status.success(), "the child kills itself");
    });
}

/// Leaves active chunks and suspects behind, as a crash in the middle of work does.
fn change_and_die(path: PathBuf) {
    let pool = Pool::options().open(path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    for round in 1..100 {
        slots.put(round % 10, &vec![7; 100 * round as usize]).unwrap();
    }
    slots.put(0, &vec![7; BLOCK_LEN as usize - 16]).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}
