//! Allocation: fences, threads, space given back, fragmentation, and what a reopening finds.

use std::sync::Arc;

use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Emulation, Mapped, Pool};

use super::slots::{OWN_FENCES, Slots};
use super::support::{Numbers, assert_sound, disk_dir, memory_dir, pattern, simulated};

/// Fences that the allocator may cost, for each allocation or free of at most 256 bytes.
const FENCE_BUDGET: f64 = 0.1;
/// Content that makes blocks of at most 256 bytes, of all eight classes.
const CONTENT_MAX: u64 = 240;
const COUNT: u64 = 20_000;
/// Content of a block of four chunks.
const LARGE: usize = 4 * CHUNK_LEN as usize - 64;

#[test]
fn small_allocations_cost_at_most_a_tenth_of_a_fence() {
    let pool = simulated(128 << 20);
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut numbers = Numbers::new(1);
    pool.medium().reset_counters();
    for index in 0..COUNT {
        slots.put(index, &pattern(index, numbers.below(CONTENT_MAX + 1) as usize)).unwrap();
    }
    assert_within_budget(&pool, COUNT);
    assert_sound(&pool, &slots);
}

#[test]
fn small_frees_in_any_order_cost_at_most_a_tenth_of_a_fence() {
    let pool = simulated(128 << 20);
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut numbers = Numbers::new(2);
    for index in 0..COUNT {
        slots.put(index, &pattern(index, numbers.below(CONTENT_MAX + 1) as usize)).unwrap();
    }
    pool.medium().reset_counters();
    for index in numbers.shuffled(COUNT) {
        slots.clear(index).unwrap();
    }
    assert_within_budget(&pool, COUNT);
    slots.heap().quiesce().unwrap();
    assert_sound(&pool, &slots);
    let usage = slots.heap().usage().unwrap();
    let small_bytes = usage.chunk_bytes - super::slots::SLOT_COUNT * 8 - CHUNK_LEN;
    assert_eq!(small_bytes, 0, "every chunk that was emptied went back to the pool");
}

/// The steady state of a store: blocks of any small size come and go in any order, among chunks
/// that are all partly used.
#[test]
fn small_churn_costs_at_most_a_tenth_of_a_fence() {
    let pool = simulated(128 << 20);
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut numbers = Numbers::new(3);
    for index in 0..COUNT {
        slots.put(index, &pattern(index, numbers.below(CONTENT_MAX + 1) as usize)).unwrap();
    }
    pool.medium().reset_counters();
    for _ in 0..2 * COUNT {
        let index = numbers.below(COUNT);
        let len = numbers.below(CONTENT_MAX + 1) as usize;
        // Each replaces a block: an allocation and a free, with the structure's own fences once.
        slots.put(index, &pattern(index, len)).unwrap();
    }
    let allocator_fences = pool.medium().counters().fences - 2 * COUNT * OWN_FENCES;
    let each = allocator_fences as f64 / (4 * COUNT) as f64;
    assert!(each <= FENCE_BUDGET, "{each:.4} fences an allocation or free");
    assert_sound(&pool, &slots);
}

fn assert_within_budget(pool: &Pool<Arc<remanent_crashsim::Sim>>, count: u64) {
    let allocator_fences = pool.medium().counters().fences - count * OWN_FENCES;
    let each = allocator_fences as f64 / count as f64;
    assert!(each <= FENCE_BUDGET, "{each:.4} fences each");
}

#[test]
fn blocks_of_four_threads_do_not_overlap() {
    assert_no_overlap(1 << 30);
}

#[test]
fn blocks_of_four_threads_do_not_overlap_when_the_pool_is_full() {
    assert_no_overlap(28 << 20);
}

/// Each of four threads changes only its own slots, and finds in them what it put there.
fn assert_no_overlap(size_max: u64) {
    const SLOTS_EACH: u64 = 2_000;
    let dir = memory_dir();
    let options = Pool::options().size_max(size_max).emulation(Emulation::Nvram);
    let pool = options.create(dir.path().join("a.pool")).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let change = |thread: u64| {
        let mut numbers = Numbers::new(thread + 10);
        let mut lens = vec![None; SLOTS_EACH as usize];
        for _ in 0..20_000 {
            let slot = numbers.below(SLOTS_EACH);
            let index = thread * SLOTS_EACH + slot;
            let expected = lens[slot as usize].map(|len| pattern(index, len));
            assert_eq!(slots.get(index), expected, "slot {index}");
            if numbers.below(3) == 0 {
                slots.clear(index).unwrap();
                lens[slot as usize] = None;
                continue;
            }
            let len = random_len(&mut numbers);
            match slots.put(index, &pattern(index, len)) {
                Ok(()) => lens[slot as usize] = Some(len),
                Err(error) => assert!(error.is_full(), "{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let change = &change;
            scope.spawn(move || change(thread));
        }
    });
    assert_sound(&pool, &slots);
}

/// Mostly small, sometimes a run of chunks.
fn random_len(numbers: &mut Numbers) -> usize {
    let limit = [64, 256, 256, 256, 4096, 20_000][numbers.below(6) as usize];
    let limit = if numbers.below(200) == 0 { 300_000 } else { limit };
    numbers.below(limit) as usize
}

/// Chunks that pass from one size class to another while lists still name them under the first.
#[test]
fn chunks_change_class_without_mixing_blocks() {
    const COUNT: u64 = 3000;
    let dir = memory_dir();
    let pool = Pool::options().size_max(24 << 20).create(dir.path().join("a.pool")).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut numbers = Numbers::new(8);
    let mut lens = vec![None; COUNT as usize];
    for round in 0..24 {
        // Two classes a round, in equal parts, others in the next; the pool is too small for both
        // rounds.
        let of_round = [(100, 900), (300, 4000), (2000, 60), (700, 10_000)][round % 4];
        for index in numbers.shuffled(COUNT) {
            let expected = lens[index as usize].map(|len| pattern(index, len));
            assert_eq!(slots.get(index), expected, "slot {index} in round {round}");
            let len = if numbers.below(2) == 0 { of_round.0 } else { of_round.1 };
            let is_put = numbers.below(3) > 0 && slots.put(index, &pattern(index, len)).is_ok();
            if !is_put {
                slots.clear(index).unwrap();
            }
            lens[index as usize] = is_put.then_some(len);
        }
    }
    assert_sound(&pool, &slots);
}

#[test]
fn freed_large_extents_go_back_to_the_file_system() {
    const COUNT: u64 = 128;
    const LEN: u64 = 1 << 20;
    // In memory a thread makes the pages of the next 8 MiB ready, of 2 MiB each. It may end after
    // the blocks are freed, and be at work on a page that is being freed.
    const READY: u64 = (8 + 2 + 2) << 20;
    for dir in [memory_dir(), disk_dir()] {
        let pool = Pool::options().create(dir.path().join("a.pool")).unwrap();
        let slots = pool.create_root::<Slots<_>>("slots").unwrap();
        let before = pool.medium().physical_len().unwrap();
        for index in 0..COUNT {
            slots.put(index, &pattern(index, LEN as usize)).unwrap();
        }
        let filled = pool.medium().physical_len().unwrap();
        assert!(filled >= before + COUNT * LEN, "{before} + {COUNT} MiB, {filled}");
        for index in 0..COUNT {
            slots.clear(index).unwrap();
        }
        slots.heap().quiesce().unwrap();
        let after = pool.medium().physical_len().unwrap();
        // What remains besides is metadata that was touched on the way.
        assert!(after - before <= READY + COUNT * LEN / 64, "{before}, {filled}, {after} bytes");
        assert_sound(&pool, &slots);
    }
}

/// In a pool that does not grow beyond that many bytes.
fn slots_in(size_max: u64) -> (tempfile::TempDir, Pool, Arc<Slots<Mapped>>) {
    let dir = memory_dir();
    let pool = Pool::options().size_max(size_max).create(dir.path().join("a.pool")).unwrap();
    let slots = pool.create_root("slots").unwrap();
    (dir, pool, slots)
}

#[test]
fn a_large_block_that_was_freed_is_reused_when_the_pool_is_full() {
    let (_dir, pool, slots) = slots_in(32 << 20);
    let content = pattern(1, 2 << 20);
    let count = (0..).find(|&index| slots.put(index, &content).is_err()).unwrap();
    assert!(count >= 3, "{count}");
    for _ in 0..10 {
        slots.clear(0).unwrap();
        assert_eq!(slots.get(0), None);
        slots.put(0, &content).unwrap();
        assert_eq!(slots.get(0).as_ref(), Some(&content));
    }
    assert_sound(&pool, &slots);
}

/// In a full pool in which every third large block was freed: there is room between the others, and
/// for nothing longer.
#[test]
fn a_run_that_fits_nowhere_hides_no_room_from_shorter_ones() {
    let (_dir, pool, slots) = slots_in(32 << 20);
    let heap = slots.heap();
    let content = pattern(1, LARGE);
    let count = (0..).find(|&index| slots.put(index, &content).is_err()).unwrap();
    let freed = (0..count - 2).step_by(3);
    freed.clone().for_each(|index| slots.clear(index).unwrap());
    heap.quiesce().unwrap();
    let room = freed.clone().count() as u64;
    assert!(room >= 4);
    heap.check_room(LARGE as u64, room).unwrap();
    let error = heap.check_room(LARGE as u64, room + 1).unwrap_err();
    assert!(error.is_full(), "{error}");
    for index in freed {
        let error = slots.put(count, &pattern(2, 2 * LARGE)).unwrap_err();
        assert!(error.is_full(), "{error}");
        slots.put(index, &content).unwrap();
    }
    assert_sound(&pool, &slots);
}

/// Two neighbours that are freed one after the other, the place where the pool searches between
/// them.
#[test]
fn a_run_is_found_on_both_sides_of_where_the_search_goes_on() {
    let (_dir, pool, slots) = slots_in(32 << 20);
    let (one, two) = (pattern(1, LARGE), pattern(2, 2 * LARGE));
    let free = |index| {
        slots.clear(index).unwrap();
        slots.heap().quiesce().unwrap();
    };
    let count = (0..).find(|&index| slots.put(index, &one).is_err()).unwrap();
    free(0);
    slots.put(0, &one).unwrap();
    free(0);
    assert!(slots.put(count, &two).unwrap_err().is_full());
    free(1);
    slots.put(count, &two).unwrap();
    assert_sound(&pool, &slots);
}

#[test]
fn room_is_counted_where_a_pool_may_grow_to() {
    let (_dir, _pool, slots) = slots_in(9 << 30);
    // A zone has 4,079 MiB for data. Of the third one there is one GiB, of which 1,007 MiB are for
    // data.
    for (len, room) in [(1 << 20, 9_150), (1 << 30, 6), (3 << 30, 2)] {
        slots.heap().check_room(len, room).unwrap();
        let error = slots.heap().check_room(len, room + 16).unwrap_err();
        assert!(error.is_full(), "{error}");
    }
    assert!(slots.heap().check_room(1 << 30, 7).is_err());
}

#[test]
fn a_full_pool_loses_nothing_and_works_again_after_frees() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().size_max(24 << 20).create(&path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let mut numbers = Numbers::new(5);
    let mut lens = Vec::new();
    let full = loop {
        let len = numbers.below(3000) as usize;
        match slots.put(lens.len() as u64, &pattern(lens.len() as u64, len)) {
            Ok(()) => lens.push(len),
            Err(error) => break error,
        }
    };
    assert!(full.is_full(), "{full}");
    assert!(
        full.to_string().contains("a pool created with a larger `Options::size_max`"),
        "{full}"
    );
    for (index, &len) in lens.iter().enumerate() {
        assert_eq!(slots.get(index as u64), Some(pattern(index as u64, len)));
    }
    assert_sound(&pool, &slots);
    for index in 0..lens.len() as u64 / 2 {
        slots.clear(index).unwrap();
    }
    for index in 0..lens.len() as u64 / 4 {
        slots.put(index, &pattern(index, 1000)).unwrap();
    }
    assert_sound(&pool, &slots);
}

#[test]
fn what_was_put_is_there_after_reopening() {
    let dir = memory_dir();
    let path = dir.path().join("a.pool");
    let pool = Pool::options().create(&path).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let lens = [0, 1, 15, 16, 17, 240, 4096, 21_000, 22_000, 65_536, 1_000_000];
    for (index, &len) in (0..).zip(&lens) {
        slots.put(index, &pattern(index, len)).unwrap();
    }
    slots.clear(3).unwrap();
    drop((slots, pool));
    for _ in 0..3 {
        let pool = Pool::options().open(&path).unwrap();
        assert!(pool.was_clean());
        let slots = pool.open_root::<Slots<_>>("slots").unwrap();
        for (index, &len) in (0..).zip(&lens) {
            let expected = (index != 3).then(|| pattern(index, len));
            assert_eq!(slots.get(index), expected, "slot {index}");
        }
        assert_sound(&pool, &slots);
    }
}

/// Bytes of the file that hold no data, for each byte that does.
///
/// The sizes are uniform between 16 bytes and 21 KB, so every class is in use. The worst moment is
/// after half of the blocks were freed at random: no chunk empties and the file keeps its length, a
/// factor of two. From there on the space of a class serves that class again.
#[test]
fn fragmentation_is_bounded() {
    const LIVE: u64 = 8_000;
    let dir = memory_dir();
    let pool = Pool::options().create(dir.path().join("a.pool")).unwrap();
    let slots = pool.create_root::<Slots<_>>("slots").unwrap();
    let empty = pool.medium().physical_len().unwrap();
    let mut numbers = Numbers::new(6);
    let mut lens = vec![0; LIVE as usize];
    let fill = |range: &[u64], lens: &mut Vec<u64>, numbers: &mut Numbers| {
        for &index in range {
            let len = numbers.below(21_000);
            slots.put(index, &vec![7; len as usize]).unwrap();
            lens[index as usize] = len + 16;
        }
    };
    let overhead = |lens: &[u64]| {
        let physical = pool.medium().physical_len().unwrap() - empty;
        physical as f64 / lens.iter().sum::<u64>() as f64
    };
    fill(&(0..LIVE).collect::<Vec<_>>(), &mut lens, &mut numbers);
    let fresh = overhead(&lens);
    let mut reused = Vec::new();
    for _ in 0..5 {
        let freed = numbers.shuffled(LIVE)[..LIVE as usize / 2].to_vec();
        for &index in &freed {
            slots.clear(index).unwrap();
        }
        fill(&freed, &mut lens, &mut numbers);
        reused.push(overhead(&lens));
    }
    eprintln!("file bytes a live byte: fresh {fresh:.3}, after each round {reused:.3?}");
    assert!(fresh <= FRESH_MAX, "{fresh:.3}");
    for ratio in reused {
        assert!(ratio <= REUSED_MAX, "{ratio:.3}");
    }
    assert_sound(&pool, &slots);
}

/// Rounding up to a class wastes an eighth on average, partly filled chunks a little more.
const FRESH_MAX: f64 = 1.25;
/// As above, and an eighth of a class's space may lie idle before its chunks are taken up again.
const REUSED_MAX: f64 = 1.35;
