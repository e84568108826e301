//! Random operations on a disk and on an array.

use proptest::prelude::*;
use remanent_blockdev::{Disk, Error};

use super::{TestPool, bytes};

const SIZE: u64 = 5 << 20;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8),
    Zeros(u64, u64),
    Trim(u64, u64),
    /// With a size that the disk is to have at least.
    Transact(u64, Vec<(u64, usize, u8)>),
    Resize(u64),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || prop_oneof![0..SIZE, (0..SIZE / 4096).prop_map(|block| block * 4096)];
    let len = || prop_oneof![1..20_000usize, (1..80usize).prop_map(|blocks| blocks * 4096)];
    prop_oneof![
        6 => (at(), len(), any::<u8>()).prop_map(|(at, len, stamp)| Op::Write(at, len, stamp)),
        2 => (at(), 0..100_000u64).prop_map(|(at, len)| Op::Zeros(at, len)),
        2 => (at(), 0..4_000_000u64).prop_map(|(at, len)| Op::Trim(at, len)),
        2 => prop::collection::vec((at(), len(), any::<u8>()), 0..6)
            .prop_map(|writes| Op::Transact(0, writes)),
        1 => (0..SIZE * 2 / 512, prop::collection::vec((at(), len(), any::<u8>()), 0..4))
            .prop_map(|(sectors, writes)| Op::Transact(sectors * 512, writes)),
        1 => (0..SIZE * 2 / 512).prop_map(|sectors| Op::Resize(sectors * 512)),
        1 => Just(Op::Reopen),
    ]
}

fn write(model: &mut [u8], at: u64, bytes: &[u8]) {
    model[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

fn fits(model: &[u8], at: u64, len: u64) -> bool {
    at + len <= model.len() as u64
}

/// Does it on both. What reaches beyond the end is refused by the disk, and changes nothing.
fn apply(disk: &Disk, model: &mut Vec<u8>, op: &Op) -> Result<(), Error> {
    match *op {
        Op::Write(at, len, stamp) if fits(model, at, len as u64) => {
            write(model, at, &bytes(len, stamp));
            disk.write(at, &bytes(len, stamp))
        }
        Op::Write(at, len, stamp) => refused(disk.write(at, &bytes(len, stamp))),
        Op::Zeros(at, len) if fits(model, at, len) => {
            model[at as usize..(at + len) as usize].fill(0);
            disk.write_zeros(at, len)
        }
        Op::Zeros(at, len) => refused(disk.write_zeros(at, len)),
        Op::Trim(at, len) if fits(model, at, len) => {
            let end = ((at + len) / 4096 * 4096) as usize;
            let start = (at.next_multiple_of(4096) as usize).min(end);
            model[start..end].fill(0);
            disk.trim(at, len)
        }
        Op::Trim(at, len) => refused(disk.trim(at, len)),
        Op::Transact(size_min, ref writes) => {
            let mut transaction = disk.transaction();
            let mut after = model.clone();
            transaction.grow(size_min)?;
            after.resize(model.len().max(size_min as usize), 0);
            for &(at, len, stamp) in writes {
                if fits(&after, at, len as u64) {
                    transaction.write(at, &bytes(len, stamp))?;
                    write(&mut after, at, &bytes(len, stamp));
                } else {
                    refused(transaction.write(at, &bytes(len, stamp)))?;
                }
            }
            assert_eq!(transaction.size(), after.len() as u64);
            let mut found = vec![0; after.len()];
            transaction.read(0, &mut found)?;
            assert!(found == after, "a transaction reads its own writes");
            let mut found = vec![0; model.len()];
            disk.read(0, &mut found)?;
            assert!(found == *model, "and nobody else does");
            *model = after;
            transaction.commit()
        }
        Op::Resize(size) => {
            model.resize(size as usize, 0);
            disk.resize(size)
        }
        Op::Reopen => Ok(()),
    }
}

fn refused(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::OutOfRange { .. }) => Ok(()),
        other => panic!("beyond the end: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_disk_is_an_array_of_bytes(ops in prop::collection::vec(op(), 1..40)) {
        let pool = TestPool::new(256 << 20);
        let mut disk = pool.disk(SIZE);
        let mut model = vec![0; SIZE as usize];
        for op in &ops {
            if matches!(op, Op::Reopen) {
                drop(disk);
                disk = Disk::open(&pool.pool, "disk").expect("a disk that was closed");
            }
            apply(&disk, &mut model, op).expect("no fault, and room");
            prop_assert_eq!(disk.size(), model.len() as u64);
        }
        let mut found = vec![0; model.len()];
        disk.read(0, &mut found).expect("nothing is damaged");
        prop_assert!(found == model);
        prop_assert_eq!(disk.check().expect("no fault"), []);
        prop_assert_eq!(disk.scrub(|_| std::ops::ControlFlow::Continue(())).expect("no fault"), []);
        let mut mapped = vec![];
        let visit = |extent: remanent_blockdev::Extent| {
            mapped.extend(std::iter::repeat_n(extent.is_mapped, extent.len as usize));
            std::ops::ControlFlow::Continue(())
        };
        disk.extents(0, disk.size(), visit).expect("nothing is damaged");
        prop_assert_eq!(mapped.len(), model.len());
        prop_assert!(model.iter().zip(&mapped).all(|(byte, is_mapped)| *is_mapped || *byte == 0));
    }
}

#[test]
fn threads_write_their_own_blocks_and_read_what_they_wrote() {
    let pool = TestPool::new(1 << 30);
    let disk = pool.disk(64 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let disk = &disk;
            scope.spawn(move || {
                let mut found = vec![0; 4096];
                for round in 0..2_000u64 {
                    // Neighbours in one line of the map belong to different threads.
                    let at = (round * 37 % 4_000 * 4 + thread) * 4096;
                    let data = bytes(4096, (round * 4 + thread) as u8);
                    disk.write(at, &data).expect("room");
                    disk.read(at, &mut found).expect("not damaged");
                    assert!(found == data, "thread {thread}, round {round}");
                }
            });
        }
    });
    assert_eq!(disk.check().expect("no fault"), []);
}

#[test]
fn readers_see_whole_blocks_while_they_are_overwritten() {
    let pool = TestPool::new(1 << 30);
    let disk = pool.disk(1 << 20);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    disk.write(0, &[1; 8192]).expect("room");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000u32 {
                disk.write(0, &[round as u8; 8192]).expect("room");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut found = [0; 8192];
            while !is_over() {
                disk.read(0, &mut found).expect("never damaged");
                for block in found.chunks(4096) {
                    assert!(block.iter().all(|byte| *byte == block[0]), "a torn block was read");
                }
            }
        });
    });
}
