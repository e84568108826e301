//! What a file lies on, what it is refused, and what a fence does there.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use remanent_pmem::{
    Backing, Durability, Emulation, Error, Frozen, Latency, Medium, PAGE_LEN, Pool,
};
use rustix::fs::{MemfdFlags, memfd_create};

use super::slots::Slots;
use super::support::{disk_dir, memory_dir, pattern};

/// A new pool beside the build and what it lies on; `None`, told, where that is no ordinary file.
fn pool_on_disk(durability: Durability) -> Option<(tempfile::TempDir, Pool)> {
    let dir = disk_dir();
    let pool = Pool::options().create(dir.path().join("probe.pool")).unwrap();
    if pool.guarantee().backing != Backing::File {
        eprintln!("skipped: the build lies on {}", pool.guarantee().backing);
        return None;
    }
    let pool = Pool::options().durability(durability).create(dir.path().join("a.pool")).unwrap();
    Some((dir, pool))
}

#[test]
fn tmpfs_is_memory_and_refuses_power() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    assert_eq!(pool.guarantee().backing, Backing::Memory);
    assert!(!pool.medium().needs_flush());
    drop(pool);
    let power = Pool::options().durability(Durability::Power);
    for error in [power.open(&path).unwrap_err(), power.create(dir.path().join("b")).unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { asked: "durability `power`", .. }), "{text}");
        assert!(text.contains("put the pool on a DAX file system or an ordinary disk"), "{text}");
    }
    assert!(!dir.path().join("b").exists());
}

#[test]
fn a_memfd_is_memory() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    pool.create_root::<Slots<_>>("slots").unwrap().put(3, b"three").unwrap();
    drop(pool);
    let memfd = fs::File::from(memfd_create("pool", MemfdFlags::CLOEXEC).unwrap());
    std::io::copy(&mut fs::File::open(&path).unwrap(), &mut &memfd).unwrap();
    let through = format!("/proc/self/fd/{}", memfd.as_raw_fd());
    let pool = Pool::options().open(through).unwrap();
    assert_eq!(pool.guarantee().backing, Backing::Memory);
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(3).as_deref(), Some(&b"three"[..]));
    // It grows like any other file.
    slots.put(4, &pattern(4, 40 << 20)).unwrap();
    assert_eq!(slots.get(4), Some(pattern(4, 40 << 20)));
}

#[test]
fn a_pool_in_anonymous_memory_needs_no_flush_and_gives_its_memory_back() {
    let pool = Pool::options().size_max(1 << 30).create_in_memory().unwrap();
    assert_eq!(pool.guarantee().backing, Backing::Memory);
    assert!(!pool.medium().needs_flush());
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(4, &pattern(4, 300 << 20)).unwrap();
    assert_eq!(slots.get(4), Some(pattern(4, 300 << 20)));
    assert_eq!(pool.check().unwrap().violations, []);
    let taken = pool.medium().physical_len().unwrap();
    assert!(taken > 300 << 20, "{taken} bytes");
    slots.clear(4).unwrap();
    slots.heap().quiesce().unwrap();
    let kept = pool.medium().physical_len().unwrap();
    assert!(kept < 32 << 20, "{kept} bytes");

    // What it may hold is bounded, and two pools have nothing to do with each other.
    let other = Pool::options().size_max(20 << 20).create_in_memory().unwrap();
    let slots = other.create_root::<Slots<_>>("slots").unwrap();
    assert!(matches!(slots.put(0, &pattern(0, 40 << 20)), Err(Error::Full { .. })));
    let error = Pool::options().durability(Durability::Power).create_in_memory().unwrap_err();
    assert!(error.to_string().contains("anonymous memory"), "{error}");
    let latency = Emulation::Latency(Latency::PCM);
    assert!(Pool::options().emulation(latency).create_in_memory().is_err());
    let emulated =
        Pool::options().emulation(latency).size_max(64 << 20).create_emulated_in_memory();
    emulated.unwrap().create_root::<Slots<_>>("slots").unwrap();
}

#[test]
fn an_ordinary_file_is_told_from_dax() {
    let Some((_dir, pool)) = pool_on_disk(Durability::Process) else { return };
    assert_eq!(pool.guarantee().backing, Backing::File);
    assert!(!pool.medium().needs_flush());
}

#[test]
fn files_that_no_pool_can_lie_on_are_refused() {
    // A character device that is no devdax, and one that is no file at all.
    for path in ["/dev/null", "/dev/zero"] {
        Pool::options().open(path).expect_err(path);
    }
    let dir = memory_dir();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let error = Pool::options().open(&fifo).unwrap_err();
    assert!(error.to_string().contains("neither a regular file nor a devdax device"), "{error}");
}

#[test]
fn emulation_refuses_power() {
    let dir = memory_dir();
    let power = Pool::options().durability(Durability::Power);
    let nvram = power.clone().emulation(Emulation::Nvram).create(dir.path().join("a"));
    let latency =
        power.emulation(Emulation::Latency(Latency::PCM)).create_emulated(dir.path().join("b"));
    for error in [nvram.unwrap_err(), latency.unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("durability `power` under emulation"), "{text}");
        assert!(text.contains("drop the emulation or ask for durability `process`"), "{text}");
    }
}

#[test]
fn nvram_is_flushed_for_real() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().emulation(Emulation::Nvram).create(&path).unwrap();
    assert!(pool.medium().needs_flush());
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(1, &pattern(1, 100_000)).unwrap();
    drop((slots, pool));
    let pool = Pool::options().open(&path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(1), Some(pattern(1, 100_000)));
}

#[test]
fn the_durability_of_creation_is_told_beside_that_of_this_opening() {
    let Some((dir, pool)) = pool_on_disk(Durability::Power) else { return };
    drop(pool);
    let info = Pool::options().open(dir.path().join("a.pool")).unwrap().info().unwrap();
    assert_eq!(info.created_durability, Durability::Power);
    assert_eq!(info.guarantee.durability, Durability::Process);
}

/// Kilobytes of the mapped file that differ from what is on the disk, as the kernel counts them.
fn dirty_kib(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let of_file = maps.lines().skip_while(|line| !line.ends_with(name)).skip(1);
    of_file
        .take_while(|line| !line.starts_with("VmFlags"))
        .filter(|line| line.starts_with("Shared_Dirty:") || line.starts_with("Private_Dirty:"))
        .map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn power_on_a_file_writes_back_the_pages_that_were_flushed() {
    let Some((dir, pool)) = pool_on_disk(Durability::Power) else { return };
    let path = dir.path().join("a.pool");
    let medium = pool.medium();
    assert!(medium.needs_flush());
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(0, &vec![0; 1 << 20]).unwrap();
    let (content, len) = slots.content(0).unwrap();
    let first_page = content.next_multiple_of(PAGE_LEN);
    medium.persist(content, len);
    let clean_kib = dirty_kib(&path);
    let pages: Vec<u64> = (0..64).map(|page| first_page + page * 2 * PAGE_LEN).collect();
    for (value, &page) in (1..).zip(&pages) {
        medium.store(page + 8 * value, value);
    }
    // The kernel may write pages back on its own at any time, but hardly all of them just now.
    assert!(dirty_kib(&path) > clean_kib, "stores alone write nothing back");
    for &page in &pages {
        medium.flush(page, PAGE_LEN);
    }
    medium.fence();
    assert!(dirty_kib(&path) <= clean_kib, "{} KiB, {clean_kib} before", dirty_kib(&path));
    assert_eq!(medium.fault(), None);
    // Read past the mapping: the page cache holds what was stored, in the file and not in a copy.
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(&path).unwrap();
    for (value, &page) in (1_u64..).zip(&pages) {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, page + 8 * value).unwrap();
        assert_eq!(u64::from_le_bytes(word), value);
    }
}

#[test]
fn every_backing_reads_back_what_was_put() {
    let dirs = [memory_dir(), disk_dir()];
    for (dir, durability) in [
        (&dirs[0], Durability::Process),
        (&dirs[1], Durability::Process),
        (&dirs[1], Durability::Power),
    ] {
        let path = dir.path().join(format!("{durability}.pool"));
        let pool = match Pool::options().durability(durability).create(&path) {
            Err(Error::Unsupported { .. }) => continue,
            created => created.unwrap(),
        };
        let slots = pool.create_root::<Slots<_>>("slots").unwrap();
        for index in 0..50 {
            slots.put(index, &pattern(index, index as usize * 1000)).unwrap();
        }
        drop((slots, pool));
        let pool = Pool::options().durability(durability).open(&path).unwrap();
        let slots = pool.open_root::<Slots<_>>("slots").unwrap();
        for index in 0..50 {
            let expected = pattern(index, index as usize * 1000);
            let (offset, len) = slots.content(index).unwrap();
            assert!(pool.medium().equals(offset, &expected));
            // SAFETY: nothing stores to the block while the view lives.
            let range = unsafe { Frozen::new(offset, len) };
            assert_eq!(*pool.medium().view(range), expected);
        }
    }
}
