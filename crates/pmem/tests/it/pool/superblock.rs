//! Superblock copies that are torn, of another version, or of another file altogether.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use remanent_pmem::{Error, Pool};
use tempfile::TempDir;

use super::slots::Slots;
use super::support::{memory_dir, pattern};

const COPIES: [u64; 2] = [0, 4096];
const LEN: u64 = 112;
const CRC: usize = 104;

/// A pool that was closed properly, with something in it.
fn closed_pool() -> (TempDir, PathBuf) {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    pool.create_root::<Slots<_>>("slots").unwrap().put(7, &pattern(7, 100)).unwrap();
    (dir, path)
}

fn edit(path: &Path, edit: impl FnOnce(&fs::File)) {
    edit(&fs::OpenOptions::new().read(true).write(true).open(path).unwrap());
}

/// Changes a copy's bytes, and its checksum so that it fits.
fn rewrite(file: &fs::File, copy: u64, change: impl FnOnce(&mut [u8])) {
    let mut bytes = [0; LEN as usize];
    file.read_exact_at(&mut bytes, copy).unwrap();
    change(&mut bytes);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..CRC]);
    bytes[CRC..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&bytes, copy).unwrap();
}

fn assert_holds_content(path: &Path) {
    let pool = Pool::options().open(path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(7), Some(pattern(7, 100)));
}

#[test]
fn either_copy_is_enough_whatever_byte_of_the_other_is_torn() {
    let (_dir, path) = closed_pool();
    for copy in COPIES {
        for at in 0..LEN {
            edit(&path, |file| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, copy + at).unwrap();
                file.write_all_at(&[!byte[0]], copy + at).unwrap();
            });
            // Opening and closing write both copies anew.
            assert_holds_content(&path);
        }
    }
    let pool = Pool::options().open(&path).unwrap();
    assert_eq!(pool.opens(), 2 + 2 * LEN, "no opening was forgotten");
}

#[test]
fn two_torn_copies_are_named_with_their_offsets() {
    let (_dir, path) = closed_pool();
    edit(&path, |file| COPIES.iter().for_each(|&c| file.write_all_at(&[9; 8], c + 40).unwrap()));
    let error = Pool::options().open(&path).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset: 0, .. }), "{error}");
    assert!(error.to_string().contains("both superblocks are damaged"), "{error}");
}

#[test]
fn another_version_is_refused_even_beside_a_copy_of_ours() {
    for copies in [&COPIES[..], &COPIES[..1], &COPIES[1..]] {
        let (_dir, path) = closed_pool();
        let version = |bytes: &mut [u8]| bytes[8] = 4;
        edit(&path, |file| copies.iter().for_each(|&copy| rewrite(file, copy, version)));
        match Pool::options().open(&path).unwrap_err() {
            Error::Version { found: 4, expected: 3 } => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn fields_that_no_pool_has_are_refused_although_the_checksum_fits() {
    let word = |at: usize, value: u64| {
        move |b: &mut [u8]| b[at..at + 8].copy_from_slice(&value.to_le_bytes())
    };
    for (what, at, value) in [
        ("durability", 32, 7),
        ("size_max", 48, u64::MAX),
        ("size", 56, u64::MAX),
        ("size", 56, 0),
        ("size", 56, (265 << 16) + 1),
        ("state", 80, 3),
        ("first chunk", 88, u64::MAX),
    ] {
        let (_dir, path) = closed_pool();
        edit(&path, |file| COPIES.iter().for_each(|&copy| rewrite(file, copy, word(at, value))));
        let error = Pool::options().open(&path).unwrap_err();
        assert!(error.to_string().contains(&format!("Field({what:?})")), "{what}: {error}");
    }
}

#[test]
fn files_that_are_no_pools_are_told_apart() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    for (content, expected) in [
        (vec![], "it has 0 bytes, fewer than the 65536 of a pool's header"),
        (b"REMANENT".to_vec(), "it has 8 bytes"),
        (vec![0; 1 << 20], "neither superblock (offset 0 and 4096) has the magic"),
        (pattern(1, 1 << 20), "neither superblock (offset 0 and 4096) has the magic"),
    ] {
        fs::write(&path, content).unwrap();
        let error = Pool::options().open(&path).unwrap_err();
        assert!(matches!(&error, Error::NotAPool { path: named, .. } if *named == path), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let directory = Pool::options().open(dir.path()).unwrap_err();
    assert!(directory.to_string().contains("Is a directory"), "{directory}");
}

#[test]
fn a_truncated_file_is_refused_and_not_changed() {
    let (_dir, path) = closed_pool();
    let len = fs::metadata(&path).unwrap().len();
    for shorter in [len - 1, len - (1 << 20), 265 << 16, 1 << 16] {
        edit(&path, |file| file.set_len(shorter).unwrap());
        let before = fs::read(&path).unwrap();
        let error = Pool::options().open(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == shorter), "{error}");
        assert!(error.to_string().contains("it was truncated"), "{error}");
        assert!(fs::read(&path).unwrap() == before);
    }
}

/// Has the newer copy count on 256 chunks that are not there: on some systems a crash keeps a
/// superblock and loses the length that the file was given before.
fn lose_growth(path: &Path) -> u64 {
    let len = fs::metadata(path).unwrap().len();
    edit(path, |file| {
        let sequence = |copy: u64| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, copy + 40).unwrap();
            u64::from_le_bytes(word)
        };
        let newer = if sequence(COPIES[0]) > sequence(COPIES[1]) { COPIES[0] } else { COPIES[1] };
        let size = len + (256 << 16);
        rewrite(file, newer, |bytes| bytes[56..64].copy_from_slice(&size.to_le_bytes()));
    });
    len
}

#[test]
fn a_file_that_lost_its_growth_opens_with_the_older_copy() {
    let (_dir, path) = closed_pool();
    let len = lose_growth(&path);
    let pool = Pool::options().open(&path).unwrap();
    assert_eq!(pool.info().unwrap().size, len);
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    // It grows again over what was lost.
    (8..60).for_each(|index| slots.put(index, &pattern(index, 500_000)).unwrap());
    assert!(pool.info().unwrap().size > len);
    assert_eq!((slots.get(7), slots.get(59)), (Some(pattern(7, 100)), Some(pattern(59, 500_000))));
    drop((slots, pool));
    assert_holds_content(&path);
}

/// One state word of the part that is missing tells the two apart.
#[test]
fn a_file_that_lost_chunks_in_use_was_truncated() {
    let (_dir, path) = closed_pool();
    let len = lose_growth(&path);
    for chunk in [len >> 16, (len >> 16) + 255] {
        let state = 65_536 + 8 * chunk;
        edit(&path, |file| file.write_all_at(&[1], state).unwrap());
        let error = Pool::options().open(&path).unwrap_err();
        assert!(error.to_string().contains("it was truncated"), "{error}");
        edit(&path, |file| file.write_all_at(&[0], state).unwrap());
    }
    assert_holds_content(&path);
}

/// A crash between lengthening the file and saying so leaves a longer file: that is no damage.
#[test]
fn a_file_longer_than_its_superblock_says_is_fine() {
    let (_dir, path) = closed_pool();
    let len = fs::metadata(&path).unwrap().len();
    edit(&path, |file| file.set_len(len + (16 << 20)).unwrap());
    assert_holds_content(&path);
}

#[test]
fn size_max_is_kept_and_limits_the_file() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    const SIZE_MAX: u64 = 20 << 20;
    drop(Pool::options().size_max(SIZE_MAX).create(&path).unwrap());
    let pool = Pool::options().open(&path).unwrap();
    assert_eq!(pool.size_max(), SIZE_MAX);
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let full = (0..).find_map(|index| slots.put(index, &[1; 10_000]).err()).unwrap();
    assert!(matches!(full, Error::Full { size_max: SIZE_MAX, .. }), "{full}");
    assert!(fs::metadata(&path).unwrap().len() <= SIZE_MAX);
}
