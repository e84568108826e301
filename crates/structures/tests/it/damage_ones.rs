//! Words of ones, as erased flash reads: links and counts so great that every addition overflows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use remanent_pmem::Pool;
use remanent_pmem::pool::Format;
use remanent_pmem::pool::layout::{ChunkId, DATA_FIRST};
use remanent_structures::batch_list::{BatchList, List, Log};
use remanent_structures::papers::{Append, BpTree, FlushAlways, Table};
use remanent_structures::{BatchMap, BatchOptions, BlinkTree, HashMap, Map, Result};

use crate::support::memory::Memory;

const SIZE: u64 = 24 << 20;
const FIRST: u64 = ChunkId(DATA_FIRST).offset();
const KEYS: u64 = 300;
/// Words that the uses of one pool may read, whatever is damaged.
const STEPS: u64 = 20_000_000;

type TestPool = Pool<Arc<Memory>>;

/// Fills a structure, then opens and uses it with each of its words damaged: no call panics or runs
/// for ever.
fn survey(fill: impl Fn(&TestPool) -> Result<()>, using: impl Fn(&TestPool) -> Result<()>) {
    let memory = Arc::new(Memory::new(SIZE));
    fill(&Pool::format(Arc::clone(&memory), &Format::new(SIZE)).unwrap()).unwrap();
    let words = memory.used(FIRST);
    assert!(words.len() > 100, "{}", words.len());
    let mut refused = 0;
    for at in words {
        memory.mark();
        memory.damage(at, u64::MAX);
        memory.bound(STEPS);
        let ended =
            catch_unwind(AssertUnwindSafe(|| using(&Pool::recover(Arc::clone(&memory)).unwrap())));
        memory.bound(u64::MAX);
        refused += u64::from(ended.unwrap_or_else(|_| panic!("ones at {at:#x}")).is_err());
        memory.put_back();
    }
    assert!(refused > 0);
}

/// Errors of one answer do not keep others from being asked for; the last one is told.
fn use_map(map: &impl Map<u64, u64>) -> Result<()> {
    let mut told = Ok(());
    let mut note = |result: Result<()>| told = if result.is_err() { result } else { Ok(()) };
    (0..KEYS).step_by(29).for_each(|key| note(map.get(&key).map(drop)));
    (0..9).for_each(|key| note(map.insert(&(KEYS + key), &key).map(drop)));
    (0..KEYS).step_by(31).for_each(|key| note(map.remove(&key).map(drop)));
    note(map.clear().map(drop));
    note(map.insert(&7, &7).map(drop));
    told
}

fn fill_map(map: &impl Map<u64, u64>) -> Result<()> {
    (0..KEYS).try_for_each(|key| map.insert(&key, &key).map(drop))
}

#[test]
fn in_hash_maps() {
    survey(
        |pool| fill_map(&HashMap::<u64, u64, _>::create(pool, "map")?),
        |pool| use_map(&HashMap::<u64, u64, _>::open(pool, "map")?),
    );
}

#[test]
fn in_blink_trees_of_words() {
    survey(
        |pool| fill_map(&BlinkTree::<u64, u64, _>::create(pool, "map")?),
        |pool| use_map(&BlinkTree::<u64, u64, _>::open(pool, "map")?),
    );
}

#[test]
fn in_bptrees() {
    survey(
        |pool| fill_map(&BpTree::<u64, u64, _>::create(pool, "map")?),
        |pool| use_map(&BpTree::<u64, u64, _>::open(pool, "map")?),
    );
}

#[test]
fn in_batched_maps() {
    let options = BatchOptions::without_thread();
    survey(
        |pool| fill_map(&BatchMap::<u64, u64, _>::create(pool, "map", options)?),
        |pool| use_map(&BatchMap::<u64, u64, _>::open(pool, "map", options)?),
    );
}

macro_rules! in_lists {
    ($($name:ident: $variant:ty),*) => {$(
        #[test]
        fn $name() {
            let options = BatchOptions::without_thread();
            survey(
                |pool| {
                    let mut list = List::<$variant, _>::create(pool, "list", options)?;
                    (0..KEYS).try_for_each(|key| list.insert(key, b"element").map(drop))
                },
                |pool| {
                    let mut list = List::<$variant, _>::open(pool, "list", options)?;
                    let read = (0..KEYS).step_by(29).map(|key| list.get(key).map(drop)).last();
                    (0..9).for_each(|key| _ = list.insert(KEYS + key, b"element"));
                    _ = list.sync();
                    read.unwrap_or(Ok(()))
                },
            );
        }
    )*};
}

in_lists! {
    in_lists_that_flush_always: FlushAlways,
    in_appended_lists: Append,
    in_logged_lists: Log,
    in_lists_with_tables: Table
}
