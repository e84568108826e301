//! Bytes that changed by themselves are told, and never handed out.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use remanent_blockdev::{CheckScope, Disk, Error, Extent};
use remanent_pmem::Pool;
use remanent_pmem::pool::layout::ChunkId;

use super::{TestPool, bytes, header_in};

pub(crate) fn needle(file: &std::fs::File, content: &[u8]) -> u64 {
    let len = file.metadata().expect("the pool's file").len();
    let mut block = vec![0; 4096];
    (0..len / 4096)
        .map(|number| number * 4096)
        .find(|&at| file.read_exact_at(&mut block, at).is_ok() && block == content)
        .expect("the block lies in the pool's file")
}

#[test]
fn a_flipped_bit_of_a_block_is_found_by_reading_and_by_scrub() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    let data = bytes(4096, 77);
    disk.write(8192, &data).expect("room");
    disk.write(4096, &bytes(4096, 3)).expect("room");
    let file = pool.file();
    let at = needle(&file, &data);
    file.write_all_at(&[data[1000] ^ 4], at + 1000).expect("it is ours");

    let mut found = vec![0; 4096];
    match disk.read(8192, &mut found) {
        Err(Error::Checksum { offset: 8192, at: told, .. }) => assert_eq!(told, at),
        other => panic!("read a damaged block: {other:?}"),
    }
    assert!(
        matches!(disk.write(8192 + 512, &[1; 512]), Err(Error::Checksum { .. })),
        "the rest would be lost"
    );
    disk.read(4096, &mut found).expect("the other block is whole");
    let mut of_map = Vec::new();
    let tell = |violation| of_map.push(violation);
    disk.check_with(CheckScope::Map, |_| ControlFlow::Continue(()), tell).expect("no fault");
    assert_eq!(of_map, [], "the map is whole");
    let told = disk.check().expect("no fault");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].offset, at);
    let told = disk.scrub(|_| ControlFlow::Continue(())).expect("no fault");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].offset, at);
    disk.write(8192, &data).expect("writing it anew heals it");
    assert_eq!(disk.scrub(|_| ControlFlow::Continue(())).expect("no fault"), []);
}

/// Pool offset of the entry that leads to the block at `offset` of the disk.
fn entry_of(disk: &Disk, offset: u64) -> u64 {
    let lines = disk.lines().expect("the map is whole");
    lines.entries().iter().find(|entry| entry.offset == offset).expect("it was written").at
}

#[test]
fn what_a_lost_line_of_the_map_led_to_is_no_hole() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    let data = bytes(4096, 77);
    disk.write(8192, &data).expect("room");
    disk.snapshot("kept").expect("room");
    let snapshot = disk.open_snapshot("kept").expect("it is there");
    pool.file().write_all_at(&[0; 64], entry_of(&disk, 8192) & !63).expect("it is ours");
    let mut told = Vec::new();
    let mut visit = |extent: Extent| {
        told.push(extent.is_mapped);
        ControlFlow::Continue(())
    };
    disk.extents(8192, 4096, &mut visit).expect("the nodes above are whole");
    snapshot.extents(8192, 4096, &mut visit).expect("the nodes above are whole");
    assert_eq!(told, [true, true]);
    let mut found = vec![0; 4096];
    assert!(matches!(disk.read(8192, &mut found), Err(Error::Damaged { .. })));
    assert!(matches!(snapshot.read(8192, &mut found), Err(Error::Damaged { .. })));
}

#[test]
fn writes_that_a_damaged_node_refuses_take_no_space() {
    let pool = TestPool::new(64 << 20);
    let disk = pool.disk(1 << 20);
    let data = bytes(4096, 77);
    disk.write(0, &data).expect("room");
    disk.snapshot("kept").expect("room");
    let allocated = disk.info().allocated;
    let file = pool.file();
    let (entry, mut word) = (entry_of(&disk, 0), [0]);
    file.read_exact_at(&mut word, entry).expect("it is ours");
    file.write_all_at(&[word[0] ^ 1], entry).expect("it is ours");
    for _ in 0..200 {
        // It is a snapshot's leaf, too, and cannot be copied.
        let refused = disk.write(4096, &data);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }
    assert_eq!(disk.info().allocated, allocated);
    let told = disk.scrub(|_| ControlFlow::Continue(())).expect("no fault");
    assert!(!told.is_empty());
}

/// Where the file has the first extent of the disk's slab directory.
fn directory_of(pool: &TestPool, slab_blocks: u64) -> u64 {
    let content = std::fs::read(&pool.path).expect("it is ours");
    let header = header_in(&content, slab_blocks);
    u64::from_le_bytes(content[header + 128..header + 136].try_into().expect("eight bytes"))
}

#[test]
fn slabs_that_a_damaged_directory_refuses_take_no_space() {
    let pool = TestPool::new(32 << 20);
    let disk = pool.disk(8 << 20);
    disk.write(0, &bytes(4096, 1)).expect("room");
    // Places 7 to 13, which nobody has read yet.
    let next_line = directory_of(&pool, 32) + 64;
    pool.file().write_all_at(&[1], next_line).expect("it is ours");
    for _ in 0..100 {
        let refused = disk.write(0, &bytes(1 << 20, 2));
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }
    let other = Disk::create(&pool.pool, "other", 16 << 20).expect("room for another disk");
    other.write(0, &bytes(12 << 20, 3)).expect("room for all of it");
}

#[test]
fn a_slab_that_the_pool_does_not_know_is_told_by_the_check() {
    let pool = TestPool::new(32 << 20);
    let disk = pool.disk(8 << 20);
    disk.write(0, &bytes(4096, 1)).expect("room");
    assert_eq!(disk.check().expect("no fault"), []);
    let (file, mut slab) = (pool.file(), [0; 8]);
    file.read_exact_at(&mut slab, directory_of(&pool, 32)).expect("it is ours");
    let state = ChunkId::containing(u64::from_le_bytes(slab)).state();
    file.write_all_at(&[0; 8], state).expect("it is ours");
    let told = disk.check().expect("no fault");
    assert!(told.iter().any(|violation| violation.offset == state), "{told:?}");
}

#[test]
fn every_damaged_word_of_metadata_is_told_or_has_no_effect() {
    let pool = TestPool::new(64 << 20);
    let (len, data) = (600 * 4096, bytes(600 * 4096, 5));
    let disk = pool.disk(1 << 22);
    disk.write(0, &data).expect("room");
    disk.snapshot("kept").expect("room");
    disk.write(4096, &bytes(4096, 6)).expect("room");
    // As a process that dies leaves it: a disk that is closed has no record left to be proved.
    let original = std::fs::read(&pool.path).expect("it is ours");
    drop(disk);
    let TestPool { pool, path, _directory } = pool;
    drop(pool);
    // Behind what belongs to the pool itself.
    let first = (265 << 16) / 8;
    let words: Vec<usize> = (first..original.len() / 8)
        .filter(|word| original[word * 8..word * 8 + 8] != [0; 8])
        .collect();
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is ours");
    for &word in words.iter().step_by(words.len() / 200) {
        file.write_all_at(&original, 0).expect("it is ours");
        let byte = word * 8 + word % 8;
        let damaged = [original[byte] ^ 1 << (word % 7)];
        file.write_all_at(&damaged, byte as u64).expect("it is ours");
        let outcome = Pool::options().open(&path).map_err(Error::from).and_then(|pool| {
            let disk = Disk::open(&pool, "disk")?;
            let mut found = vec![0; len];
            disk.read(0, &mut found)?;
            Ok(found)
        });
        if let Ok(found) = outcome {
            let mut expected = data.clone();
            expected[4096..8192].copy_from_slice(&bytes(4096, 6));
            assert!(found == expected, "word {word} was damaged, and wrong data read");
        }
    }
}
