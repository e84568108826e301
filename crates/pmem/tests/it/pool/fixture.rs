//! Pools that earlier versions wrote, opened by this one.
//!
//! `cargo run -p remanent-pmem --example make_fixture` makes those of the present format version. A fixture
//! is never made again for a version that was released.

use std::path::PathBuf;

use remanent_pmem::{Error, Pool};
use tempfile::TempDir;

use super::image::{read_image, write_image};
use super::slots::Slots;
use super::support::{assert_sound, memory_dir};

/// Closed properly, and copied while it was open, of format version 1.
pub(crate) const CLEAN_1: &[u8] = include_bytes!("../../fixtures/format-1-clean.image");
pub(crate) const CRASHED_1: &[u8] = include_bytes!("../../fixtures/format-1-crashed.image");
const UUID_1: &str = include_str!("../../fixtures/format-1.uuid");

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
    for image in [CLEAN_1, CRASHED_1] {
        let (_dir, path) = file_of(image);
        assert!(read_image(&path).unwrap() == image);
    }
}

#[test]
fn pools_of_format_version_1_are_read_and_written() {
    for (image, was_clean) in [(CLEAN_1, true), (CRASHED_1, false)] {
        assert!(image.len() < 100 << 10, "{} bytes", image.len());
        let (_dir, path) = file_of(image);
        let pool = Pool::options().open(&path).unwrap();
        let info = pool.info().unwrap();
        assert_eq!((info.format_version, info.was_clean, info.opens), (1, was_clean, 2));
        assert_eq!(
            u128::from_be_bytes(info.uuid),
            u128::from_str_radix(UUID_1.trim(), 16).unwrap()
        );
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
        std::os::unix::fs::FileExt::write_all_at(&file, &[3], copy + 8).unwrap();
    }
    super::image::fix_checksums(&file).unwrap();
    let error = Pool::options().open(&path).unwrap_err();
    assert!(matches!(error, Error::Version { found: 3, expected: 2 }), "{error}");
    assert!(error.to_string().contains("open it with the release that wrote it"), "{error}");
}
