//! Panics in code that a disk calls, and handles that are used after them.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};

use remanent_blockdev::file::File;
use remanent_blockdev::papers::nvramdisk::Nvramdisk;
use remanent_blockdev::{CheckScope, Disk, Snapshot, Transaction};
use remanent_pmem::{Emulated, Mapped, Medium};

use super::{TestPool, bytes};

/// More often than a disk has lanes.
const PANICS: usize = 40;

fn fail() -> ! {
    resume_unwind(Box::new("meant"))
}

fn panics<R>(action: impl Fn() -> R + RefUnwindSafe) {
    for _ in 0..PANICS {
        assert!(catch_unwind(|| drop(action())).is_err(), "the closure was not called");
    }
}

#[test]
fn a_disk_outlives_panics() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    let data = bytes(8192, 1);
    disk.write(0, &data).expect("it has room");
    disk.snapshot("before").expect("it has room");
    panics(|| disk.extents(0, 1 << 20, |_| fail()));
    panics(|| disk.scrub(|_| fail()));
    panics(|| disk.check_with(CheckScope::All, |_| fail(), |_| ()));
    panics(|| {
        let mut transaction = disk.transaction();
        transaction.write(100, &bytes(5000, 2)).expect("it is inside");
        fail()
    });
    let snapshot = disk.open_snapshot("before").expect("it was made");
    panics(|| snapshot.extents(0, 1 << 20, |_| fail()));
    drop(snapshot);
    let mut found = vec![0; 8192];
    disk.read(0, &mut found).expect("it is whole");
    assert_eq!(found, data);
    std::thread::scope(|scope| {
        scope.spawn(|| disk.write(4096, &bytes(4096, 3)).expect("it has room"));
    });
    disk.remove_snapshot("before").expect("nobody reads it");
    disk.resize(2 << 20).expect("it has room");
    assert_eq!(disk.check().expect("the medium is well"), []);
}

/// What is told of damage goes through the caller's closure, while every lane is held.
#[test]
fn a_check_whose_listener_panics_leaves_the_disk_usable() {
    use std::os::unix::fs::FileExt;

    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    disk.write(0, &bytes(4096, 1)).expect("it has room");
    let image = std::fs::read(&pool.path).expect("it is ours");
    let data = bytes(4096, 1);
    let at = (0..image.len()).step_by(4096).find(|&at| image[at..at + 4096] == data[..]);
    let at = at.expect("the block is in the file");
    pool.file().write_at(b"damaged", at as u64).expect("it is ours");
    panics(|| {
        disk.check_with(CheckScope::All, |_| std::ops::ControlFlow::Continue(()), |_| fail())
    });
    disk.write(0, &data).expect("it has room");
    assert_eq!(disk.check().expect("the medium is well"), []);
}

/// That it compiles is the test.
#[test]
fn handles_may_be_shared_with_threads_and_used_after_panics() {
    fn assert_handle<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    fn assert_handles_on<M: Medium + RefUnwindSafe>() {
        assert_handle::<Disk<M>>();
        assert_handle::<Snapshot<M>>();
        assert_handle::<Transaction<'static, M>>();
        assert_handle::<File<M>>();
        assert_handle::<Nvramdisk<M>>();
    }
    assert_handles_on::<Mapped>();
    assert_handles_on::<Emulated>();
}
