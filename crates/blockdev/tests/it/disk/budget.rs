//! Fences, counted by the simulator.

use std::ops::ControlFlow;
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

/// A disk of 32 MiB, half of it written, with so many free blocks that it needs no slab of the
/// pool: to take one has fences of its own.
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

/// Two more than the write itself, however many leaves of the map are missing.
#[test]
fn a_write_where_nothing_was_takes_four_fences_whatever_its_length() {
    const LEAF: u64 = 448 * 4096;
    let (sim, disk) = disk(1 << 30);
    // Takes a slab, in which there is room for what follows.
    disk.write(0, &[1; 4096]).expect("room");
    let few = fences(&sim, || disk.write(LEAF - 4096, &[2; 8192]).expect("room"));
    assert_eq!(few, 3, "two leaves, one of which was there");
    let many = fences(&sim, || disk.write(2 * LEAF, &vec![3; 5 << 20]).expect("room"));
    assert_eq!(many, 4, "three leaves");
    let scattered = || {
        let mut transaction = disk.transaction();
        for leaf in 10..110 {
            transaction.write(leaf * 5 * LEAF, &[4; 4096]).expect("on the disk");
        }
        transaction
    };
    let transaction = scattered();
    assert_eq!(fences(&sim, || transaction.commit().expect("room")), 4, "a hundred leaves");
    disk.snapshot("one").expect("room");
    let transaction = scattered();
    assert_eq!(fences(&sim, || transaction.commit().expect("room")), 4, "copies of a hundred");
    let transaction = scattered();
    assert_eq!(fences(&sim, || transaction.commit().expect("room")), 2);
    assert_eq!(disk.check().expect("whole"), []);
}

/// Four more than a write where nothing was, however many slabs are taken; and one where the pool's
/// file grows.
#[test]
fn slabs_take_four_fences_however_many_are_needed() {
    for (size, len, expected) in
        [(64 << 20, 2 << 20, 8), (64 << 20, 32 << 20, 9), (1 << 30, 64 << 20, 9)]
    {
        let (sim, disk) = disk(size);
        let count = fences(&sim, || disk.write(0, &vec![1; len]).expect("room"));
        let slabs = disk.info().allocated / disk.info().slab_len;
        assert!(slabs > 2, "{slabs} slabs");
        assert_eq!(count, expected, "{slabs} slabs for {len} bytes");
        assert_eq!(disk.check().expect("whole"), []);
    }
}

/// Three of them are the heap's, of opening as of closing.
#[test]
fn opening_and_closing_take_as_many_as_is_said() {
    let (sim, disk) = disk(16 << 20);
    let pool = || Pool::recover(Arc::clone(&sim)).expect("a pool");
    let open = |pool: &Pool<Arc<Sim>>| Disk::<Arc<Sim>>::open(pool, "disk").expect("a disk");
    disk.write(0, &vec![1; 300 << 10]).expect("room");
    assert_eq!(fences(&sim, || drop(disk)), 2 + 3);
    for len in [4096, 64 << 10, 300 << 10] {
        let before = pool();
        let opened = fences(&sim, || {
            let disk = open(&before);
            // As a process that is killed leaves it: no record is cleared.
            std::mem::forget(disk);
        });
        assert!((4 + 3..=6 + 3).contains(&opened), "{opened} fences");
        let disk = open(&pool());
        disk.write(0, &vec![2; len]).expect("room");
        std::mem::forget(disk);
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
        // Leaves of what is added are made before, with fences of their own.
        let leaf = |at: u64| at / (448 * 4096);
        let made = if leaf(size - 1) > leaf(size - blocks * 4096 - 1) { 2 } else { 0 };
        let count = fences(&sim, || transaction.commit().expect("room"));
        assert!(count <= expected + made, "{blocks} blocks: {count} fences");
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
    let cut = fences(&sim, || disk.resize(16 << 20).expect("smaller"));
    assert_eq!(cut, 2, "nothing was behind the new end");
    let copied = fences(&sim, || disk.write(1 << 19, &[7; 4096]).expect("room"));
    assert_eq!(copied, 3, "the first write since a snapshot copies the leaf");
    assert_eq!(fences(&sim, || disk.write(1 << 19, &[7; 4096]).expect("room")), 1);
}

/// Records of all lanes are cleared together: two fences beside those of the work itself, however
/// many lanes there are.
#[test]
fn clearing_records_takes_two_fences_however_many_lanes_were_used() {
    let fences_after = |lanes| {
        let (sim, disk) = disk(16 << 20);
        let write = |stamp| {
            for thread in 0..lanes {
                sim.as_thread(thread, |_| disk.write(thread * 4096, &[stamp; 4096]).expect("room"));
            }
        };
        write(1);
        disk.snapshot("one").expect("room");
        write(2);
        let removed = fences(&sim, || disk.remove_snapshot("one").expect("it is there"));
        write(3);
        (removed, fences(&sim, || drop(disk)))
    };
    let (removed, closed) = fences_after(20);
    assert_eq!(removed, 3, "and one for the removal");
    assert_eq!((removed, closed), fences_after(1), "closing has the heap's fences, too");
}

/// Accesses of memory that opening takes, with the last write in doubt.
fn opening_steps(size: u64, written: u64) -> (u64, u64) {
    let (sim, disk) = disk(size);
    for at in (0..written).step_by(1 << 20) {
        disk.write(at, &vec![1; 1 << 20]).expect("room");
    }
    disk.write(0, &vec![2; 256 << 10]).expect("room");
    let slabs = disk.info().allocated / disk.info().slab_len;
    // As a process that is killed leaves it: no record is cleared.
    std::mem::forget(disk);
    let pool = Pool::recover(Arc::clone(&sim)).expect("a pool");
    let before = sim.steps();
    let disk = Disk::<Arc<Sim>>::open(&pool, "disk").expect("a disk");
    let steps = sim.steps() - before;
    assert!(disk.scrub(|_| ControlFlow::Continue(())).expect("readable").is_empty());
    (steps, slabs)
}

#[test]
fn opening_takes_as_long_whatever_the_size_and_whatever_is_written() {
    let (empty, _) = opening_steps(64 << 20, 1 << 20);
    let (full, slabs) = opening_steps(64 << 20, 64 << 20);
    let (large, _) = opening_steps(4 << 30, 64 << 20);
    // What is there more to be looked at is where each slab lies.
    assert!(
        slabs >= 64 && full < empty + empty / 4,
        "{empty} when empty, {full} with {slabs} slabs"
    );
    assert!(large < empty + empty / 8, "{empty} for 64 MiB, {large} for 4 GiB");
}
