//! What a disk must stand over several openings, in full pools, and beside transactions: each was
//! wrong once.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use remanent_blockdev::{Disk, Error, Shape};
use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{Format, RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped, Pool};

use super::{TestPool, bytes, header_in};

/// Limits that few operations reach.
const SMALL: Shape = Shape { slab_blocks: 16, lines_max: 3, spares_max: 2 };

/// In a lane that the caller's operations do not use.
fn elsewhere(act: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(act).join().expect("no panic"));
}

fn reopen(old: TestPool) -> (TestPool, Disk) {
    let TestPool { pool, path, _directory } = old;
    drop(pool);
    let pool = Pool::options().open(&path).expect("a pool that was closed");
    let disk = Disk::open(&pool, "disk").expect("a disk that was closed");
    (TestPool { pool, path, _directory }, disk)
}

/// Opens what a process that died just now would have left.
fn killed(old: &TestPool) -> (TestPool, Disk) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("room");
    let path = directory.path().join("killed.pool");
    std::fs::copy(&old.path, &path).expect("room");
    let pool = Pool::options().open(&path).expect("a pool that was not closed");
    let disk = Disk::open(&pool, "disk").expect("a disk that was not closed");
    (TestPool { pool, path, _directory: directory }, disk)
}

/// The blocks that a long record is in are not marked as used: they may hold data after an opening.
#[test]
fn a_long_record_is_needed_by_no_later_opening() {
    let pool = TestPool::new(256 << 20);
    let disk = pool.disk(32 << 20);
    let long = bytes(448 * 4096, 9);
    elsewhere(|| {
        for _ in 0..5 {
            disk.write(0, &bytes(4096, 1)).expect("room");
        }
        disk.write(0, &long).expect("room");
    });
    let (pool, disk) = killed(&pool);
    for number in 0..3_000u64 {
        disk.write((1_000 + number) * 4096, &bytes(4096, number as u8)).expect("room");
    }
    let (_pool, disk) = killed(&pool);
    assert_eq!(disk.check().expect("no fault"), []);
    elsewhere(|| {
        for number in 0..4u64 {
            disk.write((5_000 + number) * 4096, &bytes(4096, 200)).expect("room");
        }
    });
    let mut found = vec![0; long.len()];
    disk.read(0, &mut found).expect("whole");
    assert!(found == long);
}

/// A lane's last record leads to a block that another lane has overwritten since, and so does not
/// find there what it wrote.
#[test]
fn a_write_counts_whose_block_is_another_ones_by_now() {
    let pool = TestPool::new(256 << 20);
    let disk = pool.disk(32 << 20);
    disk.write(0, &bytes(64 * 4096, 1)).expect("room");
    elsewhere(|| disk.write(8 * 4096, &bytes(4096, 2)).expect("room"));
    disk.write(8 * 4096, &bytes(4096, 3)).expect("room");
    for number in 0..200u64 {
        disk.write(30 * 4096, &bytes(4096, number as u8)).expect("room");
    }
    let (_pool, disk) = killed(&pool);
    assert_eq!(disk.check().expect("no fault"), []);
    let mut found = vec![0; 4096];
    disk.read(8 * 4096, &mut found).expect("whole");
    assert!(found == bytes(4096, 3));
    // Into every lane: none has a spare block that is in use.
    for number in 0..100u64 {
        elsewhere(|| disk.write((50 + number % 10) * 4096, &bytes(4096, 4)).expect("room"));
    }
    assert_eq!(disk.check().expect("no fault"), []);
    for lba in [8, 30] {
        disk.read(lba * 4096, &mut found).expect("whole");
    }
}

/// Who repairs the damage, or waits for a newer program, finds everything that was written.
#[test]
fn an_opening_that_fails_leaves_the_journal_as_it_was() {
    let pool = TestPool::new(64 << 20);
    let disk = Disk::create_with(&pool.pool, "disk", 1 << 20, SMALL).expect("room");
    for number in 0..20u64 {
        disk.write(number * 4096, &bytes(4096, number as u8)).expect("room");
    }
    let directory = tempfile::tempdir_in("/dev/shm").expect("room");
    let path = directory.path().join("killed.pool");
    let mut image = std::fs::read(&pool.path).expect("it is ours");
    let header = header_in(&image, 16);
    let slabs = header + 128;
    let meta = image[header + 24..header + 32].try_into().map(u64::from_le_bytes);
    let meta = meta.expect("eight bytes") as usize;
    let journal = meta + 4096..meta + 4096 + 32 * 4096;
    image[slabs] ^= 1;
    std::fs::write(&path, &image).expect("room");
    let opened = Pool::options().open(&path).map(|pool| Disk::open(&pool, "disk").map(drop));
    assert!(opened.expect("the pool is whole").is_err(), "the slab directory is damaged");
    let mut left = std::fs::read(&path).expect("it is ours");
    assert!(left[journal.clone()] == image[journal], "the opening has changed the journal");
    left[slabs] ^= 1;
    std::fs::write(&path, &left).expect("room");
    let pool = Pool::options().open(&path).expect("it is whole again");
    let disk = Disk::open(&pool, "disk").expect("it is whole again");
    let mut found = vec![0; 4096];
    disk.read(19 * 4096, &mut found).expect("whole");
    assert!(found == bytes(4096, 19));
}

/// A block that was damaged after its write had returned is damaged; only a crash undoes a write.
#[test]
fn a_block_that_decays_is_not_taken_for_one_that_a_crash_has_torn() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    disk.write(4096, &bytes(4096, 5)).expect("room");
    let data = bytes(4096, 6);
    disk.write(4096, &data).expect("room");
    let decay = |path: &std::path::Path| {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("ours");
        let at = super::damage::needle(&file, &data);
        file.write_all_at(&[data[9] ^ 1], at + 9).expect("ours");
    };
    decay(&pool.path);
    let (_killed, left) = killed(&pool);
    let mut found = vec![0; 4096];
    assert!(
        matches!(left.read(4096, &mut found), Err(Error::Checksum { .. })),
        "of a killed process"
    );
    drop(disk);
    let (_pool, disk) = reopen(pool);
    assert!(matches!(disk.read(4096, &mut found), Err(Error::Checksum { .. })), "of a closed pool");
}

#[test]
fn a_disk_that_shrank_in_a_full_pool_opens() {
    let pool = TestPool::new(32 << 20);
    let disk = pool.disk(64 << 20);
    // Scattered, so that the blocks of a leaf lie all over the slabs.
    let scattered = (0u64..).map(|number| number * 449 % 16_384 * 4096);
    let count = scattered.take_while(|&at| disk.write(at, &bytes(4096, 7)).is_ok()).count();
    assert!(count > 1_000, "the pool was full after {count} blocks");
    // The new size holds, whether there is room to free what lay behind it or not.
    let _ = disk.resize(1 << 20);
    assert_eq!(disk.size(), 1 << 20);
    disk.trim(0, 1 << 20).expect("in steps small enough");
    drop(disk);
    let (_pool, disk) = reopen(pool);
    assert_eq!(disk.size(), 1 << 20);
    assert_eq!(disk.check().expect("no fault"), []);
}

#[test]
fn a_write_that_the_pool_has_no_room_for_takes_nothing_of_it() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(128 << 20);
    disk.write(0, &bytes(4096, 7)).expect("room");
    let allocated = disk.info().allocated;
    for _ in 0..3 {
        let refused = disk.write(0, &vec![1; 60 << 20]);
        assert!(refused.as_ref().is_err_and(Error::is_full), "{refused:?}");
        assert_eq!(disk.info().allocated, allocated);
    }
    let other = Disk::create(&pool.pool, "other", 32 << 20).expect("room for another disk");
    other.write(0, &vec![2; 30 << 20]).expect("room for all of it");
    disk.write(1 << 20, &vec![3; 4 << 20]).expect("room for a part");
    assert_eq!(disk.check().expect("no fault"), []);
}

/// What others left between is taken, too, in as many pieces as need be.
#[test]
fn slabs_are_taken_where_the_pool_has_room_left() {
    let pool = TestPool::new(48 << 20);
    let names: Vec<String> = (0..16).map(|number| format!("disk {number}")).collect();
    for name in &names {
        let disk = Disk::create(&pool.pool, name, 1 << 20).expect("room");
        disk.write(0, &vec![1; 1 << 20]).expect("room");
    }
    let others = names.iter().skip(1).step_by(2);
    others.for_each(|name| pool.pool.remove_root(name).expect("nobody has it open"));
    let disk = pool.disk(16 << 20);
    let data = bytes(14 << 20, 5);
    disk.write(0, &data).expect("room, though not in a row");
    let (_pool, disk) = killed(&pool);
    let mut found = vec![0; data.len()];
    disk.read(0, &mut found).expect("whole");
    assert!(found == data);
    assert_eq!(disk.check().expect("no fault"), []);
}

#[test]
fn a_transaction_leaves_alone_what_it_does_not_write() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(8192);
    let mut transaction = disk.transaction();
    transaction.write(0, &[8; 512]).expect("on the disk");
    transaction.write(1024, &[8; 512]).expect("on the disk");
    disk.write(512, &[9; 512]).expect("room");
    transaction.commit().expect("room");
    let mut found = [0; 2048];
    disk.read(0, &mut found).expect("whole");
    let expected = [[8; 512], [9; 512], [8; 512], [0; 512]].concat();
    assert!(found[..] == expected);
}

#[test]
fn a_transaction_brings_nothing_back_that_shrinking_dropped() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(8192);
    disk.write(0, &[7; 8192]).expect("room");
    let mut transaction = disk.transaction();
    transaction.write(4096, &[8; 100]).expect("on the disk");
    disk.resize(4096 + 512).expect("room");
    transaction.commit().expect("room");
    disk.resize(8192).expect("room");
    let mut found = vec![1; 8192];
    disk.read(0, &mut found).expect("whole");
    assert!(found[4608..].iter().all(|byte| *byte == 0), "what is added reads as zeros");
}

#[test]
fn a_pool_over_one_whose_lines_were_written_twice_keeps_its_own() {
    let options = SimOptions { len: 64 << 10, capacity: 256 << 20, ..SimOptions::default() };
    let sim = Arc::new(Sim::new(options));
    let mut format = Format::new(256 << 20);
    format.guarantee.write_disturbance = true;
    let pool = Pool::format(Arc::clone(&sim), &format).expect("room");
    drop(Disk::create(&pool, "old", 1 << 20).expect("room"));
    drop(pool);
    let pool = Pool::format(Arc::clone(&sim), &Format::new(256 << 20)).expect("room");
    drop(Disk::create(&pool, "new", 1 << 20).expect("room"));
    drop(pool);
    let pool = Pool::recover(Arc::clone(&sim)).expect("it was closed");
    Disk::open(&pool, "new").expect("it was closed");
}

#[test]
fn sizes_that_cannot_be_had_are_refused() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    for (size, reason) in
        [(1 << 45, "are the most"), (1000, "multiple of 512"), (1 << 43, "so small")]
    {
        let error = disk.resize(size).expect_err("too large, or no size").to_string();
        assert!(error.contains(reason), "{size}: {error}");
    }
    disk.resize(16 << 30).expect("it takes no space");
    disk.write((16 << 30) - 4096, &bytes(4096, 3)).expect("room");
    assert_eq!(disk.check().expect("no fault"), []);
}

#[test]
fn a_disk_grows_from_nothing_while_others_read_it() {
    const PAGES: u64 = 2_000;
    let pool = TestPool::new(256 << 20);
    let disk = pool.disk(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for page in 0..PAGES {
                let mut transaction = disk.transaction();
                transaction.grow((page + 1) * 4096).expect("a size that it can have");
                transaction.write(page * 4096, &[page as u8 | 1; 4096]).expect("in it");
                transaction.commit().expect("room");
            }
        });
        let mut found = [0; 4096];
        while disk.size() < PAGES * 4096 {
            let Some(last) = (disk.size() / 4096).checked_sub(1) else { continue };
            disk.read(last * 4096, &mut found).expect("it has this size for good");
            assert!(found == [last as u8 | 1; 4096], "page {last} is there as soon as the size is");
        }
    });
    assert_eq!(disk.check().expect("no fault"), []);
    assert_eq!(disk.info().slab_len, 1 << 20);
    let mut transaction = disk.transaction();
    assert!(matches!(transaction.grow(1000), Err(Error::Size { size: 1000, .. })));
    transaction.grow(4096).expect("smaller than it is");
    transaction.commit().expect("nothing to do");
    assert_eq!(disk.size(), PAGES * 4096, "it never becomes smaller so");
}

/// The disk may have become smaller between the write and the commit, and larger by the commit
/// itself.
#[test]
fn what_shrinking_dropped_does_not_come_back_with_growth() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(16 << 12);
    disk.write(0, &[7; 16 << 12]).expect("room");
    let mut transaction = disk.transaction();
    transaction.grow(20 << 12).expect("a size that it can have");
    transaction.write(18 << 12, &[8; 4096]).expect("in it");
    transaction.write(9 << 12, &[9; 100]).expect("on the disk");
    disk.resize(4 << 12).expect("room");
    transaction.commit().expect("room");
    let mut found = vec![1; 20 << 12];
    disk.read(0, &mut found).expect("whole");
    let mut expected = vec![0; 20 << 12];
    expected[..4 << 12].fill(7);
    expected[9 << 12..(9 << 12) + 100].fill(9);
    expected[18 << 12..19 << 12].fill(8);
    assert!(found == expected);
    assert_eq!(disk.check().expect("no fault"), []);
}

/// With 64 spares each, 32 lanes would keep more blocks than this pool has.
#[test]
fn what_a_lane_replaces_beyond_its_spares_is_free_for_other_lanes() {
    for spares_max in [0, 1, 2, 64] {
        let pool = TestPool::new(64 << 20);
        let shape = Shape { spares_max, ..SMALL };
        let disk = Disk::create_with(&pool.pool, "disk", 1 << 20, shape).expect("room");
        disk.write(0, &bytes(12 * 4096, 1)).expect("room");
        for stamp in 2..42 {
            elsewhere(|| disk.write(0, &bytes(12 * 4096, stamp)).expect("room"));
        }
        let slabs = disk.info().allocated / disk.info().slab_len;
        // What is written, what is being written, the map, and the spares of a few lanes.
        assert!(spares_max == 64 || slabs <= 3, "{slabs} slabs with {spares_max} spares");
        assert_eq!(disk.check().expect("no fault"), []);
        drop(disk);
        let (pool, disk) = reopen(pool);
        let mut found = vec![0; 12 * 4096];
        disk.read(0, &mut found).expect("whole");
        assert!(found == bytes(12 * 4096, 41), "{spares_max} spares");
        assert_eq!(disk.check().expect("no fault"), []);
        // The limit is stored with the disk: it holds for each opening.
        drop(disk);
        let disk = Disk::open(&pool.pool, "disk").expect("it was closed");
        disk.write(0, &bytes(12 * 4096, 42)).expect("room");
        assert_eq!(disk.check().expect("no fault"), []);
    }
}

/// A disk as an earlier version of this crate made it, as far as its root says.
#[derive(Debug)]
struct Earlier;

impl RootObject<Mapped> for Earlier {
    fn root_type() -> RootType {
        RootType { name: "Disk".to_owned(), layout: 1 }
    }

    fn create(_heap: Heap<Mapped>) -> Result<Self, PoolError> {
        Ok(Earlier)
    }

    fn open(_heap: Heap<Mapped>) -> Result<Self, PoolError> {
        Ok(Earlier)
    }
}

#[test]
fn a_disk_of_an_earlier_layout_is_refused_with_what_to_do() {
    let pool = TestPool::new(64 << 20);
    pool.pool.create_root::<Earlier>("disk").expect("room");
    let told = <Disk>::open(&pool.pool, "disk").expect_err("another layout").to_string();
    assert!(told.contains("its layout has"), "{told}");
    assert!(told.contains("open it with the program that created it"), "{told}");
}

#[test]
fn limits_that_no_disk_can_have_are_refused() {
    let pool = TestPool::new(64 << 20);
    for shape in [
        Shape { slab_blocks: 8, ..SMALL },
        Shape { slab_blocks: 24, ..SMALL },
        Shape { slab_blocks: 1 << 15, ..SMALL },
        Shape { lines_max: 1, ..SMALL },
        Shape { spares_max: 65, ..SMALL },
    ] {
        let refused = Disk::create_with(&pool.pool, "disk", 1 << 20, shape);
        assert!(matches!(refused, Err(Error::Shape { .. })), "{shape:?}: {refused:?}");
    }
    Disk::create_with(&pool.pool, "disk", 1 << 20, SMALL).expect("the name is free");
}
