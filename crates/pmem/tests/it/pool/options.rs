//! Creating, opening, locking.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remanent_pmem::pool::layout::FORMAT_VERSION;
use remanent_pmem::{Durability, Error, Latency, Pool};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::slots::Slots;
use super::support::{child_argument, memory_dir, run_as_child};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn assert_locked_by(error: Error, pid: u32) {
    match &error {
        Error::Locked { holder, .. } => assert_eq!(*holder, Some(pid)),
        other => panic!("{other}"),
    }
    let told = match pid == std::process::id() {
        true => "is open in this process already; use a clone of the `Pool`".to_owned(),
        false => format!("is in use by process {pid}; stop it, or wait for it (`Options::wait`)"),
    };
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn a_second_opener_in_this_process_is_told_who_holds_the_pool() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    assert_locked_by(Pool::options().open(&path).unwrap_err(), std::process::id());
    drop(pool);
    Pool::options().open(&path).unwrap();
}

#[test]
fn an_opener_is_told_which_other_process_holds_the_pool() {
    if let Some(path) = child_argument() {
        let _pool = Pool::options().open(path).unwrap();
        println!("open");
        // Until the parent closes the pipe.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    drop(Pool::options().create(&path).unwrap());
    let name = "pool::options::an_opener_is_told_which_other_process_holds_the_pool";
    let mut child = run_as_child(name, &path);
    let mut said = Vec::new();
    let mut output = child.stdout.take().unwrap();
    while !said.ends_with(b"open\n") {
        let mut byte = [0];
        assert_eq!(output.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    assert_locked_by(Pool::options().open(&path).unwrap_err(), child.id());
    drop(child.stdin.take());
    // Waiting as long as the other process takes to end.
    Pool::options().wait(Duration::from_secs(30)).open(&path).unwrap();
    child.wait().unwrap();
}

#[test]
fn waiting_for_the_lock_ends_when_it_is_free_and_when_time_is_up() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let wait = Duration::from_millis(60);
    let start = Instant::now();
    let error = Pool::options().wait(wait).open(&path).unwrap_err();
    assert!(start.elapsed() >= wait);
    assert_locked_by(error, std::process::id());
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| Pool::options().wait(Duration::from_secs(30)).open(&path).unwrap());
        std::thread::sleep(wait);
        assert!(!waiting.is_finished());
        drop(pool);
        assert!(waiting.join().unwrap().was_clean());
    });
}

/// Between fork and exec a child shares the pool's file, and with it the lock.
#[test]
fn a_child_that_is_being_started_does_not_keep_the_lock() {
    use std::os::unix::process::CommandExt;
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let mut command = std::process::Command::new("true");
    let dawdle = || {
        // SAFETY: sleeping is allowed between fork and exec.
        unsafe { libc::sleep(1) };
        Ok(())
    };
    // SAFETY: the function allocates nothing and takes no lock.
    unsafe { command.pre_exec(dawdle) };
    std::thread::scope(|scope| {
        let child = scope.spawn(|| command.status());
        std::thread::sleep(Duration::from_millis(300));
        drop(pool);
        Pool::options().open(&path).unwrap();
        assert!(child.join().unwrap().unwrap().success());
    });
}

#[test]
fn a_clone_and_an_open_structure_keep_the_pool_locked() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let clone = pool.clone();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    drop(pool);
    assert!(matches!(Pool::options().open(&path), Err(Error::Locked { .. })));
    drop(clone);
    assert!(matches!(Pool::options().open(&path), Err(Error::Locked { .. })));
    drop(slots);
    assert!(Pool::options().open(&path).unwrap().was_clean());
}

#[test]
fn creating_refuses_a_file_that_exists_and_leaves_it_alone() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    fs::write(&path, "somebody's work").unwrap();
    let error = Pool::options().create(&path).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert!(error.to_string().contains("a.pool"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"somebody's work");
    assert_eq!(names(dir.path()), ["a.pool"]);
}

#[test]
fn a_refused_creation_leaves_no_file() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let too_small = Pool::options().size_max(1 << 20).create(&path).unwrap_err();
    let text = too_small.to_string();
    assert!(matches!(too_small, remanent_pmem::Error::TooSmall { .. }), "{text}");
    assert!(text.contains("its metadata takes 17367040 bytes"), "{text}");
    assert!(text.contains("17498112 bytes at least"), "{text}");
    let too_large = Pool::options().size_max(u64::MAX).create(&path).unwrap_err();
    assert!(too_large.to_string().contains("size_max"), "{too_large}");
    let latency = Pool::options().emulation(remanent_pmem::Emulation::Latency(Latency::PCM));
    let plain = latency.create(&path).unwrap_err();
    assert!(plain.to_string().contains("use `create_emulated`"), "{plain}");
    let missing = Pool::options().create(dir.path().join("none/a.pool")).unwrap_err();
    assert!(missing.to_string().contains("No such file"), "{missing}");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn what_a_crash_left_of_a_creation_is_harmless() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    // Killed before the rename: a half pool under another name, and none under this one.
    let leftover = dir.path().join("a.pool.0123456789abcdef0123456789abcdef.new");
    fs::File::create(&leftover).unwrap().write_all(b"REMANENT").unwrap();
    let error = Pool::options().open(&path).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    drop(Pool::options().open_or_create(&path).unwrap());
    assert!(Pool::options().open_or_create(&path).unwrap().was_clean());
    assert!(leftover.exists());
}

#[test]
fn one_of_many_creators_wins_and_the_pool_is_whole() {
    const CREATORS: usize = 8;
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let created: usize = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..CREATORS)
            .map(|_| scope.spawn(|| usize::from(Pool::options().create(&path).is_ok())))
            .collect();
        creators.into_iter().map(|creator| creator.join().unwrap()).sum()
    });
    assert_eq!(created, 1);
    assert_eq!(names(dir.path()), ["a.pool"]);
    let info = Pool::options().open(&path).unwrap().info().unwrap();
    assert_eq!((info.opens, info.was_clean), (2, true));
}

#[test]
fn a_pool_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    drop(Pool::options().create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn info_says_what_the_pool_is() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
    let uuid = pool.uuid();
    pool.create_root::<Slots<_>>("slots").unwrap();
    drop(pool);
    // Its limit is the pool's own, whatever the opener says.
    let pool = Pool::options().size_max(1 << 40).open(&path).unwrap();
    let info = pool.info().unwrap();
    assert_eq!(info.guarantee.path, path);
    assert_eq!(info.uuid, uuid);
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2), "a random UUID");
    assert_eq!(info.format_version, FORMAT_VERSION);
    assert_eq!(info.size_max, 1 << 30);
    assert_eq!(info.size, fs::metadata(&path).unwrap().len());
    assert_eq!(info.opens, 2);
    assert_eq!(info.created_durability, Durability::Process);
    assert_eq!(info.roots.len(), 1);
    assert_eq!((&*info.roots[0].name, &*info.roots[0].root_type.name), ("slots", "Slots"));
}

/// Someone who may write to the directory exchanges the file for a link, again and again, while it
/// is opened.
#[test]
fn a_private_pool_is_never_opened_through_a_link() {
    /// How often each of what can happen is to have happened, and for how long that is waited for.
    const EACH: u32 = 20;
    const PATIENCE: Duration = Duration::from_secs(60);
    let dir = memory_dir();
    let [path, link, foreign] =
        ["own.pool", "link", "foreign.pool"].map(|name| dir.path().join(name));
    let create = |path: &PathBuf| {
        let pool = Pool::options().size_max(64 << 20).create(path).unwrap();
        pool.info().unwrap().uuid
    };
    let (own, others) = (create(&path), create(&foreign));
    std::os::unix::fs::symlink(&foreign, &link).unwrap();
    // How often the file itself was opened, what the link leads to, and how often opening was
    // refused.
    let race = |private: bool| {
        let (mut opened, mut followed, mut refused) = (0, 0, 0);
        let start = Instant::now();
        let is_enough = |other: u32, opened: u32| other >= EACH && opened >= EACH;
        while !is_enough(if private { refused } else { followed }, opened) {
            assert!(start.elapsed() < PATIENCE, "no race: {opened}, {followed}, {refused}");
            match Pool::options().private(private).open(&path) {
                Ok(pool) => {
                    let uuid = pool.info().unwrap().uuid;
                    assert!(uuid == own || uuid == others);
                    opened += u32::from(uuid == own);
                    followed += u32::from(uuid == others);
                }
                Err(Error::NotPrivate { reason, .. }) => {
                    assert!(reason.contains("link"), "{reason}");
                    refused += 1;
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        followed
    };
    let is_done = AtomicBool::new(false);
    let (plain, private) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                renameat_with(CWD, &path, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let followed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (race(false), race(true))));
        is_done.store(true, Ordering::Relaxed);
        followed.expect("both races are run")
    });
    assert!(plain >= EACH);
    assert_eq!(private, 0, "a link was followed");
}

#[test]
fn a_private_pool_is_a_file_of_its_own_in_a_safe_directory() {
    let dir = memory_dir();
    let path = dir.path().join("own.pool");
    let options = Pool::options().size_max(64 << 20).private(true);
    let refused = |why: &str| match options.open_or_create(&path).unwrap_err() {
        Error::NotPrivate { reason, .. } => assert!(reason.contains(why), "{reason}"),
        error => panic!("{error}"),
    };
    let permit =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    drop(options.open_or_create(&path).unwrap());
    drop(options.open_or_create(&path).unwrap());
    permit(&path, 0o620);
    refused("others may write it (mode 620)");
    permit(&path, 0o644);
    drop(options.open(&path).unwrap());
    let second = dir.path().join("second");
    fs::hard_link(&path, &second).unwrap();
    refused("it has 2 names");
    fs::remove_file(&second).unwrap();
    permit(dir.path(), 0o777);
    refused("not sticky");
    permit(dir.path(), 0o1777);
    drop(options.open(&path).unwrap());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        refused("it belongs to user 12345");
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        refused("its directory belongs to user 12345");
        std::os::unix::fs::chown(dir.path(), Some(0), None).unwrap();
    }
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    refused("no regular file");
}
