//! Growing in place, also over the end of a zone.

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::heap::Block;
use remanent_pmem::pool::layout::{
    CHUNK_LEN, ChunkId, DATA_FIRST, RUN_MAX, SIZE_LIMIT, ZONE_CHUNKS,
};
use remanent_pmem::{Error, Format, Medium, Pool};

use super::slots::Slots;
use super::support::{assert_sound, disk_dir, is_long, memory_dir, pattern};

const ZONE_LEN: u64 = ZONE_CHUNKS as u64 * CHUNK_LEN;

#[test]
fn the_file_grows_and_nothing_moves() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().size_max(256 << 20).create(&path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let first_len = pool.medium().len();
    slots.put(0, &pattern(0, 1000)).unwrap();
    let at = slots.content(0).unwrap();
    let mut count = 1;
    while pool.medium().len() < 3 * first_len {
        slots.put(count, &pattern(count, 500_000)).unwrap();
        count += 1;
    }
    assert_eq!(slots.content(0).unwrap(), at);
    assert_eq!(pool.info().unwrap().size, pool.medium().len());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), pool.medium().len());
    drop((slots, pool));
    let pool = Pool::options().open(&path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    assert_eq!(slots.get(0), Some(pattern(0, 1000)));
    assert_eq!(slots.get(count - 1), Some(pattern(count - 1, 500_000)));
    assert_sound(&pool, &slots);
}

/// In the simulator, where four gigabytes that nobody touches cost nothing.
#[test]
fn a_run_that_does_not_fit_in_a_zone_begins_in_the_next() {
    let size_max = ZONE_LEN + (128 << 20);
    // Giving back would zero gigabytes one word at a time.
    let options = SimOptions { capacity: size_max, releases: false, ..SimOptions::default() };
    let pool = Pool::format(Sim::new(options), &Format::new(size_max)).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut lane = slots.heap().enter().prepare_to_write();
    let used = u64::from(lane.allocate(CHUNK_LEN).unwrap().len / CHUNK_LEN == 1);
    // All of zone 0 but some 40 chunks.
    let table = super::slots::SLOT_COUNT * 8 / CHUNK_LEN;
    let rest = u64::from(ZONE_CHUNKS - DATA_FIRST) - used - table - 1;
    let most = lane.allocate((rest - 40) * CHUNK_LEN).unwrap();
    assert!(most.offset + most.len < ZONE_LEN);
    let next = lane.allocate(41 * CHUNK_LEN).unwrap();
    assert_eq!(next.offset, ZONE_LEN + u64::from(DATA_FIRST) * CHUNK_LEN);
    let too_long = lane.allocate((u64::from(RUN_MAX) + 1) * CHUNK_LEN).unwrap_err();
    assert!(matches!(too_long, Error::TooLarge { .. }), "{too_long}");
    let mut blocks = vec![most, next];
    let full = loop {
        match lane.allocate(40 * CHUNK_LEN) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(full.is_full(), "{full}");
    let is_last = |block: &Block| block.offset + block.len == ZONE_LEN;
    assert!(blocks.iter().any(is_last), "what was left over of zone 0 is used");
    blocks.into_iter().for_each(|block| lane.give_back(block));
    drop(lane);
    let report = pool.check().unwrap();
    assert_eq!((report.violations, report.chunks_used), (vec![], 1 + table + used));
}

#[test]
fn the_largest_pool_has_room_for_every_chunk_number() {
    let last = ChunkId(u32::MAX - 1);
    assert_eq!(last.offset() + CHUNK_LEN, SIZE_LIMIT);
    assert_eq!(ChunkId::containing(SIZE_LIMIT - 1), last);
    for wild in [SIZE_LIMIT, 1 << 48, u64::MAX] {
        assert_eq!(ChunkId::containing(wild), ChunkId(u32::MAX));
    }
    let options = SimOptions::default();
    let error = Pool::format(Sim::new(options), &Format::new(SIZE_LIMIT + 1)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

/// On a disk, with every block allocated: `REMANENT_LONG=1`, and 6 GiB of space.
#[test]
fn a_real_file_grows_over_a_zone() {
    if !is_long() {
        return;
    }
    const LEN: usize = 256 << 20;
    let dir = disk_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    for index in 0..20 {
        slots.put(index, &pattern(index, 5000)).unwrap();
        let mut lane = slots.heap().enter().prepare_to_write();
        let block = lane.allocate(LEN as u64).unwrap();
        let (first, last) = (block.offset / ZONE_LEN, (block.offset + block.len - 1) / ZONE_LEN);
        assert_eq!(first, last, "a run lies in one zone");
    }
    assert!(pool.medium().len() > ZONE_LEN);
    drop((slots, pool));
    let pool = Pool::options().open(&path).unwrap();
    let slots = pool.open_root::<Slots<_>>("slots").unwrap();
    for index in 0..20 {
        assert_eq!(slots.get(index), Some(pattern(index, 5000)));
    }
    assert_eq!(pool.check().unwrap().violations, []);
}
