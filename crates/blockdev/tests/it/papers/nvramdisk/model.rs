//! The device beside a plain array of bytes, its fences, and what it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use remanent_blockdev::Error;
use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
use remanent_crashsim::{Counters, Rng, Sim};
use remanent_pmem::order::Method;
use remanent_pmem::{Emulation, Pool};

use super::{BLOCK, LBA, bytes, disk, options, reopen};

const SIZE: usize = 40 * BLOCK;

/// A pool whose lines are flushed by the CPU's instructions.
fn pool(directory: &tempfile::TempDir) -> Pool {
    let options = Pool::options().size_max(64 << 20).emulation(Emulation::Nvram);
    options.create(directory.path().join("test.pool")).expect("room for a small pool")
}

/// What this CPU can execute.
fn policies() -> Vec<Policy> {
    let mut policies = vec![Policy::ASYNC];
    policies.extend(Method::available().into_iter().map(Policy::of));
    if policies.len() > 2 {
        policies.extend([Policy::P1, Policy::P2, Policy::P3, Policy::P4, Policy::P5, Policy::P6]);
    }
    policies
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_holds_what_was_written(
        policy in proptest::sample::select(policies()),
        writes in proptest::collection::vec((0..SIZE / 512, 1_usize..40, 1_u8..), 1..40),
        odd in 0_usize..512,
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let pool = pool(&directory);
        let mut model = vec![0; SIZE];
        let mut disk = Nvramdisk::create(&pool, "disk", SIZE as u64, policy).expect("room");
        for (turn, (sector, sectors, byte)) in writes.into_iter().enumerate() {
            // Now and then a request that is aligned to nothing.
            let from = sector * 512 + if turn % 7 == 6 { odd } else { 0 };
            let end = (from + sectors * 512).min(SIZE);
            model[from..end].fill(byte);
            disk.write(from as u64, &model[from..end]).expect("on the disk");
            if turn % 10 == 9 {
                drop(disk);
                disk = Nvramdisk::open(&pool, "disk", policy).expect("it was closed");
            }
        }
        let mut found = vec![1; SIZE];
        disk.read(0, &mut found).expect("on the disk");
        prop_assert!(found == model);
        prop_assert_eq!(disk.check().expect("no fault"), []);
    }
}

/// Every method for the blocks, with every one for the map and every one for the journal: none
/// touches what the others have written, although some write whole lines.
#[test]
fn every_mix_of_methods_holds_what_was_written() {
    let methods = Method::available();
    let directory = tempfile::tempdir().expect("a directory");
    let pool = pool(&directory);
    let made = Nvramdisk::create(&pool, "disk", SIZE as u64, Policy::P3).expect("room");
    let mut model = vec![0; SIZE];
    let mut random = Rng::new(47);
    for number in 0..methods.len().pow(3) {
        let of = |region: u32| methods[number / methods.len().pow(region) % methods.len()];
        let policy = Policy::new(of(0), of(1), of(2));
        let disk = Nvramdisk::open(&pool, "disk", policy).expect("it is open already");
        for _ in 0..6 {
            let from = random.below(SIZE as u64) as usize;
            let end = (from + 1 + random.below(3 * BLOCK as u64) as usize).min(SIZE);
            model[from..end].fill_with(|| random.next_u64() as u8);
            disk.write(from as u64, &model[from..end]).expect("on the disk");
        }
        let mut found = vec![1; SIZE];
        disk.read(0, &mut found).expect("on the disk");
        assert!(found == model, "{policy:?}");
        assert_eq!(disk.check().expect("no fault"), [], "{policy:?}");
    }
    drop((made, pool));
    let pool = Pool::options().open(directory.path().join("test.pool")).expect("it was closed");
    let disk = Nvramdisk::open(&pool, "disk", Policy::P3).expect("it was closed");
    let mut found = vec![1; SIZE];
    disk.read(0, &mut found).expect("on the disk");
    assert!(found == model);
}

#[test]
fn readers_and_writers_in_parallel_see_whole_blocks() {
    let directory = tempfile::tempdir().expect("a directory");
    let pool = pool(&directory);
    let disk = Nvramdisk::create(&pool, "disk", 8 * BLOCK as u64, Policy::P3).expect("room");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut found = vec![0; BLOCK];
                for turn in 0_u64.. {
                    disk.read(turn % 8 * BLOCK as u64, &mut found).expect("on the disk");
                    assert!(found.iter().all(|byte| *byte == found[0]), "a block is torn");
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let disk = &disk;
                scope.spawn(move || {
                    for turn in 0..3_000_u64 {
                        let stamp = (turn * 3 + thread) as u8;
                        let lba = turn * (thread + 1) % 8;
                        disk.write(lba * BLOCK as u64, &[stamp; BLOCK]).expect("on the disk");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("it panics not"));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(disk.check().expect("no fault"), []);
}

#[test]
fn a_write_takes_seven_fences_a_block_and_reading_none() {
    let sim = Arc::new(Sim::new(options()));
    let (_pool, disk) = disk(&sim, Policy::P3);
    sim.reset_counters();
    disk.write(0, &[5; 3 * BLOCK]).expect("on the disk");
    assert_eq!(sim.counters().fences, 21);
    disk.write(512, &[5; 512]).expect("on the disk");
    assert_eq!(sim.counters().fences, 28);
    sim.reset_counters();
    disk.read(0, &mut [0; 3 * BLOCK]).expect("on the disk");
    assert_eq!(sim.counters(), Counters::default());
}

#[test]
fn a_handle_has_its_own_policy() {
    let sim = Arc::new(Sim::new(options()));
    let (pool, disk) = disk(&sim, Policy::P6);
    let other = Nvramdisk::open(&pool, "disk", Policy::P4).expect("it is open already");
    assert_eq!((disk.policy(), other.policy()), (Policy::P6, Policy::P4));
    other.write(LBA * BLOCK as u64, &bytes(9)).expect("on the disk");
    assert!(super::read(&disk, LBA) == bytes(9));
    drop((other, disk, pool));
    assert!(super::read(&reopen(&sim, Policy::P6).1, LBA) == bytes(9));
}

#[test]
fn what_it_cannot_do_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let small = pool(&directory);
    let create = |size| Nvramdisk::create(&small, "disk", size, Policy::P3);
    assert!(matches!(create(512), Err(Error::Size { .. })), "a half block");
    assert!(matches!(create(1 << 50), Err(Error::Size { .. })), "too large");
    assert!(create(1 << 30).expect_err("too large for the pool").is_full());
    let disk = create(BLOCK as u64).expect("room");
    assert!(matches!(disk.write(BLOCK as u64 - 1, &[0; 2]), Err(Error::OutOfRange { .. })));
    assert!(matches!(disk.read(u64::MAX, &mut [0; 2]), Err(Error::OutOfRange { .. })));
    disk.write(BLOCK as u64, &[]).expect("nothing");

    let disturbed = Pool::options().size_max(64 << 20).write_disturbance(true);
    let disturbed = disturbed.create(directory.path().join("disturbed.pool")).expect("room");
    let refused = Nvramdisk::create(&disturbed, "disk", 1 << 20, Policy::P3);
    assert!(matches!(refused, Err(Error::Pool(remanent_pmem::Error::Disturbed { .. }))));
}

#[test]
fn damage_is_told() {
    use remanent_pmem::Medium;
    let sim = Arc::new(Sim::new(options()));
    let (pool, made) = disk(&sim, Policy::P3);
    let places = made.places().clone();
    drop((made, pool));
    let open = |at: u64, word: u64| {
        let old = sim.load(at);
        sim.store(at, word);
        let pool = Pool::recover(Arc::clone(&sim)).expect("a pool");
        let told = Nvramdisk::open(&pool, "disk", Policy::P3).map(drop);
        sim.store(at, old);
        told.expect_err("it is damaged").to_string()
    };
    let twice = open(places.entry(3), sim.load(places.entry(4)));
    assert!(twice.contains("as does another"), "{twice}");
    let wild = open(places.entry(3), 1 << 40);
    assert!(wild.contains("which is none"), "{wild}");
    let [vpn, l1, l2] = places.record(5);
    sim.store(l1, 1 << 40);
    let record = open(l2, 1 << 40);
    assert!(record.contains("no logical block"), "{record}");
    sim.store(l1, 1);
    sim.store(vpn, 1 << 40);
    let record = open(l2, 1);
    assert!(record.contains("none"), "{record}");
}
