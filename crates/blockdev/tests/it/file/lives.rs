//! Full pools, crashes, damage, and files that are removed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use remanent_blockdev::file::File;
use remanent_blockdev::{Disk, Error};
use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::pool::Format;
use remanent_pmem::{Error as PoolError, Mapped, Pool};

use super::{TestPool, bytes, content};

#[test]
fn a_full_pool_is_an_error_and_nothing_is_lost() {
    let pool = TestPool::new(32 << 20);
    let file = pool.file();
    let mut len = 0;
    let error = loop {
        match file.write(len, &bytes(100_000, len as u8)) {
            Ok(()) => len += 100_000,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert_eq!(file.len(), len);
    let allocated = file.allocated();
    // The pool takes half of so small a one; doubling alone would leave half of the rest.
    assert!(allocated > 15 << 20, "the pool was full with {allocated} bytes of the file");
    for end in [1 << 30, 1 << 40, u64::MAX] {
        let error = file.write(end - 1, &[1]).expect_err("there is no room for the gap");
        assert!(error.is_full() || matches!(error, Error::FileTooLong { .. }), "{end}: {error}");
        file.set_len(end).expect_err("there is no room");
    }
    assert_eq!((file.len(), file.allocated()), (len, allocated), "what was taken was given back");
    file.sync().expect("no fault");
    for (part, number) in content(&file).chunks(100_000).zip(0u64..) {
        assert!(part == bytes(100_000, (number * 100_000) as u8), "part {number}");
    }
    assert_eq!(file.check().expect("no fault"), []);
}

#[test]
fn what_is_not_synced_is_cut_off_by_a_kill_and_what_is_stays() {
    let options = SimOptions { len: 64 << 10, capacity: 64 << 20, ..SimOptions::default() };
    let sim = Arc::new(Sim::new(options));
    let pool = Pool::format(Arc::clone(&sim), &Format::new(64 << 20)).expect("room");
    let file = File::create(&pool, "file").expect("room");
    file.write(0, &[1; 1_000]).expect("room");
    file.sync().expect("no fault");
    file.write(1_000, &[2; 1_000]).expect("room");
    file.write(0, &[3; 8]).expect("room");
    // Nobody closes them.
    std::mem::forget((file, pool));
    let pool = Pool::recover(Arc::clone(&sim)).expect("a pool");
    let file = File::open(&pool, "file").expect("a file");
    let found = content(&file);
    assert_eq!(found.len(), 1_000, "the length is the synced one");
    assert_eq!(found[..8], [3; 8], "stores outlive the process");
    assert_eq!(found[8..], [1; 992]);
    let before = sim.counters().flushes;
    file.sync().expect("no fault");
    assert!(sim.counters().flushes > before, "they may have been in the caches until now");
    file.write(1_500, &[4; 1]).expect("room");
    let found = content(&file);
    assert!(found[1_000..1_500].iter().all(|byte| *byte == 0), "nothing comes back in a gap");
}

#[test]
fn a_pair_of_lines_survives_the_loss_of_either() {
    let old = TestPool::new(64 << 20);
    let file = old.file();
    file.write(0, &bytes(5_000, 1)).expect("room");
    file.sync().expect("no fault");
    file.set_len(4_000).expect("room");
    drop(file);
    let TestPool { pool, path, _directory } = old;
    drop(pool);
    let image = std::fs::read(&path).expect("it is ours");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is ours");
    // The header of the heap, by the magic number in it; the state's lines come next.
    let magic = image.windows(8).position(|bytes| bytes == b"RemaFile").expect("the file's header");
    let mut lens = Vec::new();
    for damaged in [&[1][..], &[2], &[1, 2], &[0], &[3], &[4], &[3, 4]] {
        file.write_all_at(&image, 0).expect("it is ours");
        for line in damaged {
            let at = magic + line * 64;
            file.write_all_at(&[image[at + 20] ^ 1], at as u64 + 20).expect("it is ours");
        }
        let pool = Pool::options().open(&path).expect("its own metadata are whole");
        lens.push(match File::open(&pool, "file") {
            Ok(file) => {
                assert_eq!(file.check().expect("no fault"), [], "{damaged:?} was mended");
                Some(file.len())
            }
            Err(error) => {
                let told = ["checksum", "says its format", "extents for 0"];
                assert!(told.iter().any(|told| error.to_string().contains(told)), "{error}");
                None
            }
        });
    }
    // One of the two lines is the newer one.
    lens[..2].sort_unstable();
    assert_eq!(lens[..2], [Some(4_000), Some(5_000)]);
    assert_eq!(lens[2..4], [None, None], "both lines, or what says that it is a file");
    // The first line of the extents has one, the second is as it was made.
    assert_eq!(lens[4..], [None, Some(4_000), None]);
}

#[test]
fn files_are_removed_when_nobody_has_them() {
    let pool = TestPool::new(64 << 20);
    let file = pool.file();
    file.write(0, &[1; 1 << 20]).expect("room");
    let in_use = File::remove(&pool.pool, "file").expect_err("it is open");
    assert!(matches!(in_use, Error::Pool(PoolError::RootInUse { .. })), "{in_use}");
    drop(file);
    File::remove(&pool.pool, "file").expect("nobody has it");
    let missing = File::<Mapped>::open(&pool.pool, "file").expect_err("it was removed");
    assert!(matches!(missing, Error::Pool(PoolError::NoSuchRoot { .. })), "{missing}");
    drop(Disk::create(&pool.pool, "disk", 1 << 20).expect("room"));
    let other = File::remove(&pool.pool, "disk").expect_err("it is no file");
    assert!(matches!(other, Error::Pool(PoolError::WrongType { .. })), "{other}");
}
