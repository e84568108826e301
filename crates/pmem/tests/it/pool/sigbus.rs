//! Memory that cannot be read is an error, and a SIGBUS that is not ours still kills.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use remanent_pmem::{Error, Fault, Medium, Pool};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::slots::Slots;
use super::support::{child_argument, memory_dir, pattern, run_as_child};

#[test]
fn a_file_truncated_under_a_pool_is_an_error_from_then_on() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    slots.put(1, &pattern(1, 10_000)).unwrap();
    let (offset, len) = slots.content(1).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(offset / 4096 * 4096).unwrap();

    assert_eq!(pool.medium().fault(), None);
    let mut content = vec![1; len as usize];
    pool.medium().read(offset, &mut content);
    assert!(content.iter().all(|&byte| byte == 0));
    assert_eq!(pool.medium().fault(), Some(Fault::Poisoned(offset / 4096 * 4096)));
    for error in [slots.put(2, b"two").unwrap_err(), slots.heap().quiesce().unwrap_err()] {
        assert!(matches!(error, Error::Medium(Fault::Poisoned(_))), "{error}");
        assert!(error.to_string().contains("the file was truncated while open"), "{error}");
    }
    drop((slots, pool));
    let error = Pool::options().open(&path).unwrap_err();
    assert!(error.to_string().contains("it was truncated"), "{error}");
}

/// Not even by a pool that takes more room: what was cut off would read as zeros.
#[test]
fn a_truncated_file_does_not_become_longer_again() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().size_max(256 << 20).create(&path).unwrap();
    let medium = pool.medium();
    let (len, cut) = (medium.len(), medium.len() / 2 / 4096 * 4096);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(cut).unwrap();
    medium.commit(cut, 65_536).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), cut);
    let error = medium.grow(len * 2).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset, .. } if offset == cut), "{error}");
    assert!(error.to_string().contains("truncated while open"), "{error}");
    assert_eq!(medium.load(cut), 0);
    assert_eq!(medium.fault(), Some(Fault::Poisoned(cut)));
}

#[test]
fn the_first_of_two_faults_is_told() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let len = pool.medium().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 8192).unwrap();
    pool.medium().load(len - 4096);
    pool.medium().load(len - 8192);
    pool.medium().load(u64::MAX - 7);
    assert_eq!(pool.medium().fault(), Some(Fault::Poisoned(len - 4096)));
}

/// Reads a page behind the end of a file that is no pool.
fn raise_elsewhere(dir: PathBuf) {
    let _pool = Pool::options().create(dir.join("a.pool")).unwrap();
    let file = fs::File::create_new(dir.join("other")).unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: no address is asked for, so no existing mapping is replaced.
    let page = unsafe {
        mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE, file.as_fd(), 0)
    };
    let page = page.unwrap().cast::<u64>();
    file.set_len(0).unwrap();
    // SAFETY: the page is mapped; reading it raises SIGBUS, which ends this process.
    let word = unsafe { page.read_volatile() };
    unreachable!("{word} was read behind the end of a file");
}

fn end_of_child(test: &str) -> ExitStatus {
    let dir = memory_dir();
    let output = run_as_child(test, dir.path()).wait_with_output().unwrap();
    output.status
}

#[test]
fn a_sigbus_elsewhere_kills() {
    if let Some(dir) = child_argument() {
        return raise_elsewhere(dir);
    }
    let status = end_of_child("pool::sigbus::a_sigbus_elsewhere_kills");
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn a_sigbus_elsewhere_goes_to_whoever_handled_it_before() {
    extern "C" fn leave(_: libc::c_int) {
        // SAFETY: ends the process at once, as a signal handler may.
        unsafe { libc::_exit(42) };
    }
    if let Some(dir) = child_argument() {
        // SAFETY: the handler does only what a signal handler may.
        unsafe { libc::signal(libc::SIGBUS, leave as *const () as libc::sighandler_t) };
        return raise_elsewhere(dir);
    }
    let status = end_of_child("pool::sigbus::a_sigbus_elsewhere_goes_to_whoever_handled_it_before");
    assert_eq!(status.code(), Some(42), "{status}");
}
