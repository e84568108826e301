//! Rows by the hash of a key.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use remanent_crashsim::Sim;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::{Guarantee, RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};
use remanent_structures::shared::{MemberId, Recovery, Shareable, Site, Step};
use remanent_structures::{ExtendibleMap, RowId, RowIndex};

use crate::support::{fences, options, scratch, sim_pool};

type M = Arc<Sim>;

fn row(number: u64) -> RowId {
    RowId::new(number).unwrap()
}

/// The rows that are found under a key.
fn rows<N: Medium>(index: &RowIndex<N>, key: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = |row: RowId| {
        found.push(row.get());
        ControlFlow::<()>::Continue(())
    };
    assert_eq!(index.find(key, visit).unwrap(), None);
    found.sort_unstable();
    found
}

fn count<N: Medium>(index: &RowIndex<N>) -> usize {
    let mut count = 0;
    index.for_each(|_| count += 1).unwrap();
    count
}

#[test]
fn rows_take_no_fence_and_growth_takes_few() {
    const COUNT: u64 = 40_000;
    let pool = sim_pool(Guarantee::default());
    let index: RowIndex<M> = RowIndex::create(&pool, "index").unwrap();
    assert_eq!(fences(&pool, || index.insert(1, row(1)).unwrap()), 0);
    assert_eq!(fences(&pool, || assert!(index.remove(1, row(1)).unwrap())), 0);
    assert_eq!(fences(&pool, || assert!(!index.remove(1, row(1)).unwrap())), 0);
    assert_eq!(fences(&pool, || assert_eq!(rows(&index, 1), [])), 0);
    let found = fences(&pool, || {
        (0..COUNT).for_each(|number| index.insert(number, row(number)).unwrap());
    });
    assert!(found < COUNT / 200, "{found} fences for {COUNT} rows");
    let bytes = index.usage().unwrap().chunk_bytes as f64 / COUNT as f64;
    assert!(bytes < 24.0, "{bytes} bytes a row");
}

#[test]
fn every_row_of_a_key_is_found_until_it_is_removed() {
    const COUNT: u64 = 5_000;
    let directory = scratch();
    let path = directory.path().join("a.pool");
    let pool = options().create(&path).unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    // Keys with 1, 2, 4, … rows, among others.
    for number in 0..COUNT {
        index.insert(u64::from(number.leading_zeros()), row(number)).unwrap();
        index.insert(1_000 + number, row(COUNT + number)).unwrap();
    }
    drop((index, pool));
    let pool = options().open(&path).unwrap();
    let index = RowIndex::open(&pool, "index").unwrap();
    assert_eq!(index.check().unwrap(), []);
    assert_eq!(count(&index), 2 * COUNT as usize);
    for number in (0..COUNT).rev().step_by(3) {
        let key = u64::from(number.leading_zeros());
        assert!(rows(&index, key).contains(&number));
        assert!(index.remove(key, row(number)).unwrap(), "{number}");
        assert!(!index.remove(key, row(number)).unwrap(), "{number}");
        assert!(rows(&index, 1_000 + number).contains(&(COUNT + number)));
    }
    assert_eq!(index.check().unwrap(), []);
    let removed = index.retain(|row| row.get() < COUNT).unwrap();
    assert_eq!(removed, COUNT);
    let left = (0..COUNT).filter(|number| !(COUNT - 1 - number).is_multiple_of(3)).count();
    assert_eq!(count(&index), left);
    assert_eq!(index.retain(|_| false).unwrap(), left as u64);
    assert_eq!(count(&index), 0);
    assert_eq!(index.check().unwrap(), []);
}

/// Rows are added at one end and removed at the other, as in a queue.
#[test]
fn a_chain_that_is_used_as_a_queue_does_not_grow() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    let mut most = 0;
    for number in 0..30_000_u64 {
        index.insert(7, row(number)).unwrap();
        if let Some(old) = number.checked_sub(100) {
            assert!(index.remove(7, row(old)).unwrap());
        }
        if number == 3_000 {
            most = index.usage().unwrap().chunk_bytes;
        }
    }
    assert!(index.usage().unwrap().chunk_bytes <= most + (64 << 10));
    assert_eq!(rows(&index, 7), (29_900..30_000).collect::<Vec<_>>());
    assert_eq!(index.check().unwrap(), []);
}

#[test]
fn many_rows_are_added_at_once_and_ensured_once() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    index.insert_all((0..50_000).map(|number| (number / 3, row(number)))).unwrap();
    for number in (0..50_000).step_by(7) {
        index.ensure(number / 3, row(number)).unwrap();
    }
    index.ensure(1, row(RowId::MAX.get())).unwrap();
    assert_eq!(count(&index), 50_001);
    assert_eq!(rows(&index, 1), [3, 4, 5, RowId::MAX.get()]);
    assert_eq!(index.check().unwrap(), []);
    assert_eq!(RowId::new(RowId::MAX.get() + 1), None);
}

/// Keys with their rows, by the partitions of so many bits.
fn by_partition(
    index: &RowIndex,
    bits: u32,
    rows: impl Iterator<Item = (u64, RowId)>,
) -> Vec<Vec<(u64, RowId)>> {
    let mut partitions = vec![Vec::new(); 1 << bits];
    rows.for_each(|row| partitions[index.partition(row.0, bits) as usize].push(row));
    partitions
}

#[test]
fn partitions_are_added_whatever_their_size() {
    let rows = || (0..50_000).map(|number| (number / 3, row(number)));
    // From one partition that needs many segments to a thousand that share them.
    for bits in [0, 3, 6, 10] {
        let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
        let index = RowIndex::create(&pool, "index").unwrap();
        index.insert(1, row(RowId::MAX.get())).unwrap();
        for partition in by_partition(&index, bits, rows()) {
            index.insert_partition(bits, &partition).unwrap();
        }
        assert_eq!(count(&index), 50_001, "{bits}");
        assert_eq!(self::rows(&index, 1), [3, 4, 5, RowId::MAX.get()], "{bits}");
        for number in (0..50_000).step_by(11) {
            assert!(index.remove(number / 3, row(number)).unwrap(), "{bits}: {number}");
        }
        assert_eq!(index.check().unwrap(), [], "{bits}");
    }
}

#[test]
fn partitions_may_have_one_key_or_rows_that_belong_elsewhere() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    let of_one_key: Vec<_> = (0..20_000).map(|number| (7, row(number))).collect();
    index.insert_partition(32, &of_one_key).unwrap();
    let of_all: Vec<_> = (20_000..30_000).map(|number| (number, row(number))).collect();
    index.insert_partition(12, &of_all).unwrap();
    index.insert_partition(12, &[]).unwrap();
    assert_eq!(rows(&index, 7), (0..20_000).collect::<Vec<_>>());
    assert_eq!((count(&index), rows(&index, 29_999)), (30_000, vec![29_999]));
    assert_eq!(index.check().unwrap(), []);
}

#[test]
fn partitions_take_no_more_space_than_rows_that_are_added_one_by_one() {
    const BITS: u32 = 7;
    for of_partition in [100, 300, 600, 750, 1_000, 1_400] {
        let rows = || (0..of_partition << BITS).map(|number| (number, row(number)));
        let usage = |add: &dyn Fn(&RowIndex)| {
            let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
            let index = RowIndex::create(&pool, "index").unwrap();
            add(&index);
            assert_eq!(count(&index) as u64, of_partition << BITS);
            index.usage().unwrap().chunk_bytes
        };
        let single = usage(&|index| rows().for_each(|(key, row)| index.insert(key, row).unwrap()));
        let many = usage(&|index| {
            for partition in by_partition(index, BITS, rows()) {
                index.insert_partition(BITS, &partition).unwrap();
            }
        });
        // Where two partitions have just no room in one segment, each has its own.
        let most = ((20 * of_partition) << BITS).max(single * 5 / 4);
        assert!(many <= most, "{of_partition}: {many} bytes, and {single} one by one");
    }
}

#[test]
fn a_full_pool_takes_a_part_of_a_partition() {
    let pool = Pool::options().size_max(20 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    let rows: Vec<_> = (0..400_000).map(|number| (number, row(number))).collect();
    assert!(index.insert_partition(0, &rows).unwrap_err().is_full());
    let added = count(&index);
    assert!((20_000..400_000).contains(&added), "{added}");
    for (key, row) in rows {
        match index.ensure(key, row) {
            Err(error) => assert!(error.is_full()),
            Ok(()) => assert!(self::rows(&index, key).contains(&row.get())),
        }
    }
    assert_eq!(index.check().unwrap(), []);
}

#[test]
fn threads_add_partitions_beside_rows() {
    const BITS: u32 = 7;
    const EACH: u64 = 100_000;
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    let all = (0..EACH).map(|number| (number, row(number)));
    let partitions = by_partition(&index, BITS, all);
    thread::scope(|scope| {
        for half in partitions.chunks(1 << (BITS - 1)) {
            let index = &index;
            scope.spawn(move || {
                for partition in half {
                    index.insert_partition(BITS, partition).unwrap();
                    let (key, row) = partition[partition.len() / 2];
                    assert!(rows(index, key).contains(&row.get()));
                }
            });
        }
        scope.spawn(|| {
            for number in EACH..EACH + EACH / 2 {
                index.insert(number % EACH, row(number)).unwrap();
                if number % 3 == 0 {
                    assert!(index.remove(number % EACH, row(number)).unwrap());
                }
            }
        });
    });
    let mut found = HashSet::new();
    index.for_each(|row| assert!(found.insert(row.get()))).unwrap();
    let stays = |number: &u64| *number < EACH || !number.is_multiple_of(3);
    assert_eq!(found, (0..EACH + EACH / 2).filter(stays).collect());
    assert_eq!(index.check().unwrap(), []);
}

#[test]
fn threads_lose_no_row_while_segments_are_split() {
    const EACH: u64 = 30_000;
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    let index = RowIndex::create(&pool, "index").unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let index = index.clone();
            scope.spawn(move || {
                for number in (0..EACH).map(|number| number * 4 + thread) {
                    // Some keys have many rows, of all threads.
                    let key = if number % 10 == 0 { number % 70 } else { number };
                    index.insert(key, row(number)).unwrap();
                    assert!(rows(&index, key).contains(&number));
                    if number % 3 == 0 {
                        assert!(index.remove(key, row(number)).unwrap());
                    }
                }
            });
        }
    });
    let mut found = HashSet::new();
    index.for_each(|row| assert!(found.insert(row.get()))).unwrap();
    let expected = (0..4 * EACH).filter(|number| number % 3 != 0).collect();
    assert_eq!(found, expected);
    assert_eq!(index.check().unwrap(), []);
}

/// The owner of a heap with an index and a map beside it.
struct Table<N: Medium> {
    index: RowIndex<N>,
    names: ExtendibleMap<u64, str, N>,
    heap: Arc<Heap<N>>,
}

fn sites<N: Medium>(heap: &Arc<Heap<N>>) -> [Site<N>; 2] {
    let site =
        |offset, number| Site::shared(heap, heap.header() + offset, MemberId::new(number).unwrap());
    let len = <RowIndex<N> as Shareable<N>>::header_len();
    // The map's header does not fit beside another one's: it is a block of its own.
    let block = heap.medium().load(heap.header() + len) - heap.header();
    [site(0, 1), site(block, 2)]
}

impl<N: Medium> RootObject<N> for Table<N> {
    fn root_type() -> RootType {
        RootType { name: "Table".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<N>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let len = <ExtendibleMap<u64, str, N> as Shareable<N>>::header_len();
        let medium = heap.medium();
        {
            let mut lane = heap.enter().prepare_to_write();
            let block = lane.allocate(len)?.offset;
            medium.write_zeros(block, len);
            medium.store(heap.header() + 64, block);
            medium.flush(block, len);
            medium.flush(heap.header(), 128);
            lane.fence();
        }
        let [index, names] = sites(&heap);
        let (index, names) = (RowIndex::create_in(index)?, ExtendibleMap::create_in(names)?);
        Ok(Table { index, names, heap })
    }

    fn open(heap: Heap<N>) -> Result<Self, PoolError> {
        let heap = Arc::new(heap);
        let [index, names] = sites(&heap);
        let block = names.header();
        let mut recovery = Recovery::new();
        let index = recovery.find::<RowIndex<N>>(index)?;
        let names = recovery.find::<ExtendibleMap<u64, str, N>>(names)?;
        recovery.run(&heap, |found| found.offset == block)?;
        Ok(Table { index: index.finish()?, names: names.finish()?, heap })
    }
}

#[test]
fn rows_share_a_heap_and_the_fences_of_a_step() {
    let pool = sim_pool(Guarantee::default());
    let table: Arc<Table<M>> = pool.create_root("table").unwrap();
    let name = "a name of more than eight bytes";
    let fences = fences(&pool, || {
        for number in 0..20 {
            let mut step = Step::enter(&table.heap);
            table.names.put_in(&mut step, &number, name).unwrap();
            table.index.insert_in(&mut step, 7, row(number)).unwrap();
            step.commit().unwrap();
        }
    });
    // Two for each record; the chain of rows takes some.
    assert!(fences <= 20 * 2 + 8, "{fences}");
    let mut step = Step::enter(&table.heap);
    table.index.insert_in(&mut step, 7, row(99)).unwrap();
    assert!(rows(&table.index, 7).contains(&99));
    drop(step);
    assert_eq!(rows(&table.index, 7), (0..20).collect::<Vec<_>>());
    let mut step = Step::enter(&table.heap);
    for number in 0..15 {
        table.index.remove_in(&mut step, 7, row(number)).unwrap();
    }
    step.commit().unwrap();
    assert_eq!(rows(&table.index, 7), (15..20).collect::<Vec<_>>());
    let (index, names) = (table.index.inspect().unwrap(), table.names.inspect().unwrap());
    assert_eq!((index.violations, names.violations), (vec![], vec![]));
    drop(table);
    let table: Arc<Table<M>> = pool.open_root("table").unwrap();
    assert_eq!(rows(&table.index, 7), (15..20).collect::<Vec<_>>());
    assert_eq!(table.names.len().unwrap(), 20);
}

/// What recovery takes for a block of another kind is freed, and with it all rows of a segment. It
/// asks about the segments that were made last, and only those of few hashes look like something
/// else, once seven bits of a hash lead to a segment: so there are many crashes at about that size.
#[test]
fn no_segment_of_a_shared_heap_is_lost_in_a_crash() {
    let directory = scratch();
    let (path, copy) = (directory.path().join("a.pool"), directory.path().join("copy.pool"));
    let pool = options().create(&path).unwrap();
    let table: Arc<Table<Mapped>> = pool.create_root("table").unwrap();
    let mut inserted = 0;
    for crashed_at in (100_000_u64..160_000).step_by(1_000) {
        for number in inserted..crashed_at {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            table.index.insert(key, row(number)).unwrap();
        }
        inserted = crashed_at;
        // As a process leaves it that is killed now.
        std::fs::copy(&path, &copy).unwrap();
        let pool = options().open(&copy).unwrap();
        let table: Arc<Table<Mapped>> = pool.open_root("table").unwrap();
        assert_eq!(count(&table.index) as u64, crashed_at);
        let mut blocks = vec![table.heap.medium().load(table.heap.header() + 64)];
        for found in [table.index.inspect().unwrap(), table.names.inspect().unwrap()] {
            assert_eq!(found.violations, []);
            blocks.extend(found.blocks.unwrap());
        }
        assert_eq!(table.heap.check(blocks.into_iter()).unwrap(), [], "{crashed_at} rows");
    }
}
