//! Inspecting a pool changes no byte of its file, whatever is done to it meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use remanent_pmem::{Error, Pool};

use super::fixture::{CLEAN_1, CRASHED_1};
use super::image::write_image;
use super::slots::Slots;
use super::support::{assert_sound, disk_dir, memory_dir, pattern};

/// Content of a file, and when it was modified.
fn everything(path: &Path) -> (Vec<u8>, std::time::SystemTime) {
    (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap())
}

#[test]
fn recovery_and_writes_of_an_inspection_stay_in_memory() {
    for (image, dir) in
        [(CLEAN_1, memory_dir()), (CRASHED_1, memory_dir()), (CRASHED_1, disk_dir())]
    {
        let path = dir.path().join("a.pool");
        drop(write_image(image, &path).unwrap());
        let before = everything(&path);
        let pool = Pool::options().inspect(&path).unwrap();
        let name = pool.roots().unwrap()[0].name.clone();
        let slots = pool.open_root::<Slots<_>>(&name).unwrap();
        slots.put(77, &pattern(1, 300)).unwrap();
        slots.clear(0).unwrap();
        assert_sound(&pool, &slots);
        drop((slots, pool));
        assert!(everything(&path) == before, "the file was changed");
        // What an inspection did is no part of what the next one sees.
        let pool = Pool::options().inspect(&path).unwrap();
        assert_eq!(pool.open_root::<Slots<_>>(&name).unwrap().get(77), None);
    }
}

#[test]
fn a_file_that_may_only_be_read_can_be_inspected_and_not_grow() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    drop(write_image(CRASHED_1, &path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let before = everything(&path);
    let pool = Pool::options().inspect(&path).unwrap();
    let name = pool.roots().unwrap()[0].name.clone();
    let slots = pool.open_root::<Slots<_>>(&name).unwrap();
    let error = (0..1 << 16).find_map(|slot| slots.put(slot, &pattern(slot, 60_000)).err());
    match error {
        Some(error @ Error::Inspected { .. }) => {
            assert!(error.to_string().contains("cannot grow"), "{error}");
        }
        other => panic!("an inspected pool grew: {other:?}"),
    }
    drop((slots, pool));
    assert!(everything(&path) == before, "the file was changed");
}

#[test]
fn many_inspect_a_pool_that_nobody_has_open() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    assert!(matches!(Pool::options().inspect(&path), Err(Error::Locked { .. })));
    drop(pool);
    let inspected = [(); 3].map(|()| Pool::options().inspect(&path).unwrap());
    assert!(matches!(Pool::options().open(&path), Err(Error::Locked { .. })));
    drop(inspected);
    let pool = Pool::options().open(&path).unwrap();
    assert!(pool.was_clean());
    assert_eq!(pool.opens(), 2, "an inspection is no opening that the pool remembers");
}
