//! Pool files as text-free, hole-free images of a few kilobytes, and what to do with a pool file
//! that may be damaged.
//!
//! An image is the file's length, then for each line of 64 bytes that is not all zero its offset
//! and its bytes. Numbers are little-endian words.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use remanent_pmem::{Medium, Pool, Result};

use super::slots::{SLOT_COUNT, Slots};

const LINE_LEN: usize = 64;
const RECORD_LEN: usize = 8 + LINE_LEN;

/// The image of a file.
pub(crate) fn read_image(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    let mut image = (bytes.len() as u64).to_le_bytes().to_vec();
    for (number, line) in (0_u64..).zip(bytes.chunks(LINE_LEN)) {
        if line.iter().any(|&byte| byte != 0) {
            image.extend((number * LINE_LEN as u64).to_le_bytes());
            image.extend(line);
        }
    }
    Ok(image)
}

/// The lines of an image, with their offsets.
pub(crate) fn lines(image: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    image[8..].chunks_exact(RECORD_LEN).map(|record| (word(record), &record[8..]))
}

/// Writes the file that an image shows.
pub(crate) fn write_image(image: &[u8], path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(word(image))?;
    for (offset, line) in lines(image) {
        file.write_all_at(line, offset)?;
    }
    Ok(file)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a word"))
}

/// Makes the checksums of superblocks and root entries fit whatever they cover.
pub(crate) fn fix_checksums(file: &File) -> std::io::Result<()> {
    for copy in [0, 4096] {
        let mut bytes = [0; 104];
        file.read_exact_at(&mut bytes, copy)?;
        file.write_all_at(&crc(&bytes).to_le_bytes(), copy + 104)?;
    }
    for entry in (8192..65_536).step_by(256) {
        let mut bytes = [0; 256];
        file.read_exact_at(&mut bytes, entry)?;
        if bytes != [0; 256] {
            let covered = [&bytes[8..24], &bytes[64..]].concat();
            file.write_all_at(&crc(&covered).to_le_bytes(), entry + 24)?;
        }
    }
    Ok(())
}

fn crc(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)
}

/// Does everything that can be done with a pool of [`Slots`], damaged or not.
///
/// # Errors
///
/// Whatever is found first. That it returns at all, and does not panic, is what callers want to
/// know.
pub(crate) fn exercise(path: &Path) -> Result<()> {
    let pool = Pool::options().open(path)?;
    let info = pool.info()?;
    pool.check()?;
    for root in &info.roots {
        if let Err(error) = exercise_root(&pool, &root.name) {
            assert!(!error.to_string().is_empty());
        }
    }
    for root in &info.roots {
        pool.remove_root(&root.name)?;
    }
    pool.check()?;
    pool.create_root::<Slots<_>>("another")?;
    exercise_root(&pool, "another")
}

fn exercise_root(pool: &Pool, name: &str) -> Result<()> {
    let slots = pool.open_root::<Slots<_>>(name)?;
    slots.check()?;
    for index in 0..40 {
        let content = slots.get(index);
        slots.put(index, &vec![index as u8; (index * index * 20) as usize])?;
        if content.is_some() {
            slots.clear(index)?;
        }
    }
    slots.put(SLOT_COUNT - 1, &[1; 100_000])?;
    slots.heap().usage()?;
    slots.heap().count_blocks()?;
    slots.check()?;
    assert!(pool.medium().fault().is_none(), "a fault is reported by whoever meets it");
    Ok(())
}
