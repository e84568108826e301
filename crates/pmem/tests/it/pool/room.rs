//! Room on a file system that is full: what is freed can be used again, at once and after a
//! restart.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use remanent_pmem::{Error, Mapped, Pool, Result, StorageLimit};

use super::slots::{SLOT_COUNT, Slots};
use super::support::{Numbers, assert_sound, pattern};

/// Set to a directory to mount over, in the process that may mount.
const MOUNT_POINT: &str = "REMANENT_TEST_MOUNT_POINT";
/// Bytes of the file system.
const SYSTEM_LEN: u64 = 64 << 20;

/// A directory on a tmpfs of 64 MiB.
///
/// Nothing when this process may not mount: then the test of that name was run in one that may, in
/// a mount namespace of its own, and has passed.
fn small_file_system(test: &str) -> Option<PathBuf> {
    if let Some(at) = std::env::var_os(MOUNT_POINT).map(PathBuf::from) {
        let size = format!("size={SYSTEM_LEN},huge=never");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("the command mount").success(), "no tmpfs can be mounted");
        return Some(at);
    }
    let directory = tempfile::tempdir().unwrap();
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("pool::room::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(MOUNT_POINT, directory.path())
        .output()
        .expect("the command unshare, of util-linux");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "in a mount namespace of its own, which it needs:\n{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}");
    None
}

/// A pool that may grow far beyond its file system.
struct Cramped {
    path: PathBuf,
    pool: Pool,
    slots: Arc<Slots<Mapped>>,
    numbers: Numbers,
}

impl Cramped {
    fn new(directory: &Path) -> Self {
        let path = directory.join("a.pool");
        let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
        let slots = pool.create_root("slots").unwrap();
        Cramped { path, pool, slots, numbers: Numbers::new(16) }
    }

    fn reopen(self) -> Self {
        let Cramped { path, pool, slots, numbers } = self;
        drop((slots, pool));
        let pool = Pool::options().open(&path).unwrap();
        let slots = pool.open_root("slots").unwrap();
        Cramped { path, pool, slots, numbers }
    }

    fn put(&self, index: u64, len: usize) -> Result<()> {
        match self.slots.put(index, &pattern(index, len)) {
            Err(error) if error.is_full() => {
                self.slots.heap().relieve();
                self.slots.put(index, &pattern(index, len))
            }
            done => done,
        }
    }

    /// Fills empty slots, in order, with `len` bytes each until that is refused; returns which.
    fn fill(&self, len: usize) -> Vec<u64> {
        let mut filled = Vec::new();
        for index in (0..SLOT_COUNT).filter(|&index| self.slots.content(index).is_none()) {
            match self.put(index, len) {
                Ok(()) => filled.push(index),
                Err(error) => {
                    assert!(matches!(error, Error::StorageFull { .. }), "{error}");
                    return filled;
                }
            }
        }
        panic!("{} slots are too few to fill the file system", filled.len());
    }

    fn clear(&self, slots: &[u64]) {
        slots.iter().for_each(|&index| self.slots.clear(index).unwrap());
    }

    /// Some of what there is, `percent` of it: neighbours, or here and there.
    fn some_of(&mut self, present: &[u64], percent: usize, is_scattered: bool) -> Vec<u64> {
        let count = present.len() * percent / 100;
        if !is_scattered {
            return present[present.len() / 10..][..count].to_vec();
        }
        let order = self.numbers.shuffled(present.len() as u64);
        order[..count].iter().map(|&place| present[place as usize]).collect()
    }

    fn physical_len(&self) -> u64 {
        self.pool.medium().physical_len().unwrap()
    }
}

/// Fills, frees some, and fills again, for several lengths, parts and orders.
fn assert_room_comes_back(directory: &Path, len: usize, reopens: bool) {
    let mut cramped = Cramped::new(directory);
    let mut present = cramped.fill(len);
    let bytes = present.len() * len;
    assert!(bytes as u64 > SYSTEM_LEN / 2, "{bytes} bytes fit at first");
    for (percent, is_scattered) in [(30, false), (30, true), (5, true), (90, true), (10, false)] {
        let freed = cramped.some_of(&present, percent, is_scattered);
        cramped.clear(&freed);
        if reopens {
            cramped = cramped.reopen();
        }
        let filled = cramped.fill(len);
        assert!(
            filled.len() * 10 >= freed.len() * 9,
            "{} of {} freed slots of {len} bytes could be filled again ({percent} %)",
            filled.len(),
            freed.len(),
        );
        present.retain(|index| !freed.contains(index));
        present.extend(filled);
        present.sort_unstable();
    }
    for &index in present.iter().step_by(97) {
        assert_eq!(cramped.slots.get(index), Some(pattern(index, len)), "slot {index}");
    }
    assert_sound(&cramped.pool, &cramped.slots);
}

#[test]
fn freed_blocks_are_room_at_once() {
    let Some(directory) = small_file_system("freed_blocks_are_room_at_once") else { return };
    assert_room_comes_back(&directory, 1000, false);
}

#[test]
fn freed_blocks_are_room_after_a_restart() {
    let Some(directory) = small_file_system("freed_blocks_are_room_after_a_restart") else {
        return;
    };
    assert_room_comes_back(&directory, 1000, true);
}

#[test]
fn freed_runs_are_room_at_once() {
    let Some(directory) = small_file_system("freed_runs_are_room_at_once") else { return };
    assert_room_comes_back(&directory, 300_000, false);
}

#[test]
fn freed_runs_are_room_after_a_restart() {
    let Some(directory) = small_file_system("freed_runs_are_room_after_a_restart") else { return };
    assert_room_comes_back(&directory, 300_000, true);
}

/// Chunks that held one thing are room for all others: blocks of another size, and long runs.
#[test]
fn room_serves_other_lengths() {
    let Some(directory) = small_file_system("room_serves_other_lengths") else { return };
    let mut cramped = Cramped::new(&directory);
    for len in [1000, 5_000_000, 1000, 20_000, 900_000, 3000, 60_000] {
        let filled = cramped.fill(len);
        let bytes = (filled.len() * len) as u64;
        assert!(bytes > SYSTEM_LEN * 3 / 4, "{bytes} bytes in pieces of {len}");
        let all = cramped.some_of(&filled, 100, true);
        cramped.clear(&all);
        if len == 20_000 {
            cramped = cramped.reopen();
        }
    }
    assert_sound(&cramped.pool, &cramped.slots);
}

/// What is free lies here and there, a few chunks each, and what is wanted is longer.
#[test]
fn scattered_room_serves_long_runs() {
    let Some(directory) = small_file_system("scattered_room_serves_long_runs") else { return };
    let cramped = Cramped::new(&directory);
    let filled = cramped.fill(1000);
    // Of 1,024 bytes there are 64 in a chunk: of each ten chunks five are emptied, but for their
    // ends.
    let is_freed = |place: usize| (place / (5 * 64)).is_multiple_of(2);
    let freed: Vec<u64> = filled
        .iter()
        .enumerate()
        .filter(|(place, _)| is_freed(*place))
        .map(|(_, &at)| at)
        .collect();
    cramped.clear(&freed);
    let long = cramped.fill(900_000);
    // Four of the five are empty for certain.
    let (freed, filled) = (freed.len() * 1000, long.len() * 900_000);
    assert!(filled * 10 >= freed * 7, "{filled} bytes of {freed} that were freed");
    assert_sound(&cramped.pool, &cramped.slots);
}

/// Threads have chunks of their own that they allocate from; what is free in those serves others
/// when nothing else is.
#[test]
fn room_in_chunks_of_other_threads_is_found() {
    const THREADS: u64 = 16;
    let test = "room_in_chunks_of_other_threads_is_found";
    let Some(directory) = small_file_system(test) else { return };
    let cramped = Cramped::new(&directory);
    let (slots, together) = (&cramped.slots, std::sync::Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                for index in 0..3 {
                    slots.put(60_000 + thread * 3 + index, &pattern(index, 9000)).unwrap();
                }
                together.wait();
            });
        }
    });
    cramped.fill(1000);
    // A chunk has seven blocks of that length, and each thread took three.
    let filled = cramped.fill(9000).len() as u64;
    assert!(filled >= THREADS * 4 * 9 / 10, "{filled} blocks");
    assert_sound(&cramped.pool, &cramped.slots);
}

#[test]
fn what_is_free_goes_back_to_the_file_system() {
    let test = "what_is_free_goes_back_to_the_file_system";
    let Some(directory) = small_file_system(test) else { return };
    let mut cramped = Cramped::new(&directory);
    let before = cramped.physical_len();
    for reopens in [false, true] {
        let filled = cramped.fill(1000);
        assert!(cramped.physical_len() > SYSTEM_LEN * 9 / 10);
        cramped.clear(&filled);
        if reopens {
            cramped = cramped.reopen();
        }
        cramped.slots.heap().quiesce().unwrap();
        let after = cramped.physical_len();
        // The metadata of the chunks, and the free chunks that are kept for the next use.
        assert!(after <= before + (6 << 20), "{before} bytes at first, {after} at last");
    }
    assert_sound(&cramped.pool, &cramped.slots);
}

/// Set to the path of a pool, in a process that may write files of some 40 to 80 MB.
const LIMITED: &str = "REMANENT_TEST_FILE_LIMIT";

#[test]
fn the_error_says_that_the_file_may_not_be_longer() {
    let Some(path) = std::env::var_os(LIMITED).map(PathBuf::from) else {
        let directory = super::support::memory_dir();
        // The unit is 512 bytes in some shells, 1,024 in others.
        let limit = r#"trap "" XFSZ; ulimit -f 80000; exec "$0" "$@""#;
        let test = "pool::room::the_error_says_that_the_file_may_not_be_longer";
        let mut shell = Command::new("sh");
        shell.args(["-c", limit]).arg(std::env::current_exe().unwrap());
        shell.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        let ran = shell.env(LIMITED, directory.path().join("a.pool")).output().unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
        return;
    };
    let pool = Pool::options().size_max(1 << 30).create(path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let content = pattern(1, 300_000);
    let (count, error) =
        (0..).find_map(|index| slots.put(index, &content).err().map(|e| (index, e))).unwrap();
    let limit = StorageLimit::FileLen;
    assert!(matches!(error, Error::StorageFull { limit: found, .. } if found == limit), "{error}");
    assert!(error.to_string().contains("ulimit -f"), "{error}");
    assert!(count > 10);
    // Freeing helps here, too.
    (0..10).for_each(|index| slots.clear(index).unwrap());
    slots.heap().relieve();
    (0..9).for_each(|index| slots.put(index, &content).unwrap());
    assert_sound(&pool, &slots);
}

#[test]
fn the_error_says_that_the_file_system_is_full() {
    let Some(directory) = small_file_system("the_error_says_that_the_file_system_is_full") else {
        return;
    };
    let cramped = Cramped::new(&directory);
    let error = cramped.slots.put(0, &pattern(0, 80 << 20)).unwrap_err();
    assert!(error.is_full());
    let text = error.to_string();
    assert!(text.contains("its file system is full") && text.contains("a.pool"), "{text}");
    assert!(!text.contains("--size"), "{text}");
}
