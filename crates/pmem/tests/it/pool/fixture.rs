//! Pools that earlier versions wrote, opened by this one.
//!
//! `cargo run -p remanent-pmem --example make_fixture` makes those of the present format version. A
//! fixture is never made again for a version that was released.

use std::path::PathBuf;

use remanent_pmem::pool::layout::HEADER_ROOT_COUNT;
use remanent_pmem::{Error, Pool};
use tempfile::TempDir;

use super::image::{read_image, write_image};
use super::slots::Slots;
use super::support::{assert_sound, memory_dir};

/// Closed properly, and copied while it was open, of format version 1.
pub(crate) const CLEAN_1: &[u8] = include_bytes!("../../fixtures/format-1-clean.image");
pub(crate) const CRASHED_1: &[u8] = include_bytes!("../../fixtures/format-1-crashed.image");
const UUID_1: &str = include_str!("../../fixtures/format-1.uuid");
/// The same, of format version 2.
pub(crate) const CLEAN_2: &[u8] = include_bytes!("../../fixtures/format-2-clean.image");
pub(crate) const CRASHED_2: &[u8] = include_bytes!("../../fixtures/format-2-crashed.image");
const UUID_2: &str = include_str!("../../fixtures/format-2.uuid");

fn file_of(image: &[u8]) -> (TempDir, PathBuf) {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    write_image(image, &path).unwrap();
    (dir, path)
}

/// What `make_fixture` puts into the root `name`.
fn assert_content(slots: &Slots<remanent_pmem::Mapped>, name: &str) {
    let mut large = vec![0; 70_000];
    (large[0], large[69_999]) = (1, 2);
    for index in 0..40_u64 {
        let expected = match (name, index) {
            (_, 3 | 17) => None,
            ("numbers", _) => Some((index * index).to_le_bytes().to_vec()),
            (_, 30) => Some(large.clone()),
            (_, _) => Some(format!("text number {index} ").repeat(index as usize).into_bytes()),
        };
        assert_eq!(slots.get(index), expected, "slot {index} of {name}");
    }
    assert_eq!(slots.get(40), None);
}

#[test]
fn images_show_files_whole() {
    for image in [CLEAN_1, CRASHED_1, CLEAN_2, CRASHED_2] {
        let (_dir, path) = file_of(image);
        assert!(read_image(&path).unwrap() == image);
    }
}

#[test]
fn pools_of_format_version_1_are_read_and_written() {
    assert_read_and_written(1, [CLEAN_1, CRASHED_1], UUID_1);
}

#[test]
fn pools_of_format_version_2_are_read_and_written() {
    assert_read_and_written(2, [CLEAN_2, CRASHED_2], UUID_2);
}

#[test]
fn pools_of_earlier_versions_have_no_more_roots_than_they_had() {
    for (image, version) in [(CLEAN_1, 1), (CLEAN_2, 2)] {
        let (_dir, path) = file_of(image);
        let pool = Pool::options().open(&path).unwrap();
        for number in 0..HEADER_ROOT_COUNT - 2 {
            pool.create_root::<Slots<_>>(&format!("root {number}")).unwrap();
        }
        let error = pool.create_root::<Slots<_>>("one more").err().unwrap().to_string();
        let limit = format!("format version {version} has no room for more than 224 roots");
        assert!(error.contains(&limit), "{error}");
        assert_eq!(pool.check().unwrap().violations, []);
        drop(pool);
        let pool = Pool::options().open(&path).unwrap();
        assert_eq!(pool.roots().unwrap().len(), 224);
    }
}

fn assert_read_and_written(version: u32, [clean, crashed]: [&[u8]; 2], uuid: &str) {
    for (image, was_clean) in [(clean, true), (crashed, false)] {
        assert!(image.len() < 100 << 10, "{} bytes", image.len());
        let (_dir, path) = file_of(image);
        let pool = Pool::options().open(&path).unwrap();
        let info = pool.info().unwrap();
        assert_eq!((info.format_version, info.was_clean, info.opens), (version, was_clean, 2));
        assert_eq!(u128::from_be_bytes(info.uuid), u128::from_str_radix(uuid.trim(), 16).unwrap());
        assert_eq!(info.size_max, 1 << 30);
        let names: Vec<&str> = info.roots.iter().map(|root| &*root.name).collect();
        assert_eq!(names, ["numbers", "texts"]);
        for name in names {
            let slots = pool.open_root::<Slots<_>>(name).unwrap();
            assert_content(&slots, name);
            assert_sound(&pool, &slots);
            slots.put(100, b"new").unwrap();
        }
        drop(pool);
        let pool = Pool::options().open(&path).unwrap();
        for name in ["numbers", "texts"] {
            let slots = pool.open_root::<Slots<_>>(name).unwrap();
            assert_content(&slots, name);
            assert_eq!(slots.get(100).as_deref(), Some(&b"new"[..]));
            assert_sound(&pool, &slots);
        }
    }
}

#[test]
fn a_pool_of_a_later_version_is_refused() {
    let (_dir, path) = file_of(CLEAN_1);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for copy in [0, 4096] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[4], copy + 8).unwrap();
    }
    super::image::fix_checksums(&file).unwrap();
    let error = Pool::options().open(&path).unwrap_err();
    assert!(matches!(error, Error::Version { found: 4, expected: 3 }), "{error}");
    assert!(error.to_string().contains("open it with the release that wrote it"), "{error}");
}
