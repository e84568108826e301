//! Fences, counted by the simulator.

use std::sync::Arc;

use remanent_blockdev::Disk;
use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

/// Fences of `act`.
fn fences(sim: &Sim, act: impl FnOnce()) -> u64 {
    let before = sim.counters().fences;
    act();
    sim.counters().fences - before
}

fn disk(size: u64) -> (Arc<Sim>, Disk<Arc<Sim>>) {
    let options = SimOptions { len: 64 << 10, capacity: 256 << 20, ..SimOptions::default() };
    let sim = Arc::new(Sim::new(options));
    let pool = Pool::format(Arc::clone(&sim), &Format::new(256 << 20)).expect("room");
    let disk = Disk::create(&pool, "disk", size).expect("room");
    (sim, disk)
}

/// A disk of 32 MiB, half of it written, with so many free blocks that it needs no slab of the pool: to take one has fences
/// of its own.
fn disk_with_room() -> (Arc<Sim>, Disk<Arc<Sim>>) {
    let (sim, disk) = disk(32 << 20);
    disk.write(0, &vec![1; 32 << 20]).expect("room");
    disk.trim(16 << 20, 16 << 20).expect("room");
    (sim, disk)
}

#[test]
fn a_write_takes_one_fence_and_a_long_one_two() {
    let (sim, disk) = disk_with_room();
    for (blocks, expected) in
        [(1, 1), (2, 1), (4, 1), (5, 1), (17, 1), (64, 1), (65, 2), (300, 2), (2_000, 2)]
    {
        let data = vec![2; blocks * 4096];
        let count = fences(&sim, || disk.write(4096, &data).expect("room"));
        assert_eq!(count, expected, "{blocks} blocks");
    }
    let count = fences(&sim, || disk.write(100, &[3; 5_000]).expect("room"));
    assert_eq!(count, 1, "parts of two blocks");
}

#[test]
fn a_transaction_takes_one_fence_and_one_of_many_blocks_two() {
    let (sim, disk) = disk_with_room();
    for (blocks, expected) in [(1, 1), (2, 1), (10, 1), (16, 1), (30, 2), (100, 2), (600, 2)] {
        let make = |stamp| {
            let mut transaction = disk.transaction();
            for block in 0..blocks {
                transaction.write(block * 4096 * 6, &[stamp; 4096]).expect("on the disk");
            }
            transaction
        };
        let transaction = make(5);
        let count = fences(&sim, || transaction.commit().expect("room"));
        assert_eq!(count, expected, "{blocks} blocks");
    }
}

#[test]
fn a_transaction_that_makes_the_disk_larger_takes_no_fence_more() {
    let (sim, disk) = disk_with_room();
    disk.resize(8 << 20).expect("smaller");
    for (blocks, expected) in [(1, 1), (2, 1), (10, 1), (100, 2), (600, 2)] {
        let size = disk.size() + blocks * 4096;
        let mut transaction = disk.transaction();
        transaction.grow(size).expect("a size that it can have");
        transaction.write(size - blocks * 4096, &vec![6; blocks as usize * 4096]).expect("room");
        // The leaf of what is added is made before, with fences of its own.
        let leaves = (size - 1) / (448 * 4096) - (size - blocks * 4096 - 1) / (448 * 4096);
        let count = fences(&sim, || transaction.commit().expect("room"));
        assert!(count <= expected + 2 * leaves, "{blocks} blocks: {count} fences, {leaves} leaves");
        assert_eq!(disk.size(), size);
    }
    let mut transaction = disk.transaction();
    transaction.grow(disk.size() + 512).expect("a size that it can have");
    assert_eq!(fences(&sim, || transaction.commit().expect("room")), 1, "nothing is written");
}

#[test]
fn reading_takes_none_and_the_rest_takes_one() {
    let (sim, disk) = disk(16 << 20);
    disk.write(0, &vec![1; 1 << 20]).expect("room");
    let mut found = vec![0; 1 << 20];
    assert_eq!(fences(&sim, || disk.read(0, &mut found).expect("whole")), 0);
    assert_eq!(fences(&sim, || disk.trim(0, 1 << 19).expect("room")), 1);
    assert_eq!(fences(&sim, || disk.trim(0, 1 << 19).expect("nothing to do")), 0);
    assert_eq!(fences(&sim, || disk.snapshot("one").expect("room")), 1);
    assert_eq!(fences(&sim, || disk.resize(17 << 20).expect("room")), 1);
    let copied = fences(&sim, || disk.write(1 << 19, &[7; 4096]).expect("room"));
    assert_eq!(copied, 3, "the first write since a snapshot copies the leaf");
    assert_eq!(fences(&sim, || disk.write(1 << 19, &[7; 4096]).expect("room")), 1);
}
