//! Panics in code of the user's: a structure is left as it was, and stays usable.

mod maps;
mod others;

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};

use remanent_pmem::heap::layout::LANE_COUNT;
use remanent_pmem::{Emulated, Mapped, Medium, Pool};
use remanent_structures::batch_list::{self, LogList, Persister};
use remanent_structures::line_tx::{CountersHandle, CountersShared};
use remanent_structures::papers::{AppendList, BpMultiTree, BpTree, FlushAlwaysList, TableList};
use remanent_structures::{
    AppendVector, BatchMap, BlinkTree, ExtendibleMap, ExtendibleMultiMap, HashMap, HashMultiMap,
    Log, OrderedKey, Range, SharedTx, Stored, Tx, TxArray, TxValue, Vector, log, vector,
};

/// How often each panic is brought about: more often than there are lanes, so that one that is not
/// given free would be missed.
const PANICS: usize = LANE_COUNT + 1;

/// Panics, without a message on standard error.
fn fail() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Expects `action` to panic, each of many times.
fn panics<R>(action: impl Fn() -> R + RefUnwindSafe) {
    for _ in 0..PANICS {
        assert!(catch_unwind(|| drop(action())).is_err(), "the closure was not called");
    }
}

fn pool() -> Pool {
    Pool::options().size_max(256 << 20).create_in_memory().unwrap()
}

fn assert_handle<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}

/// Whatever the keys and values are.
fn assert_handles_of<K: OrderedKey + ?Sized + 'static, V: Stored + ?Sized + 'static>() {
    assert_handle::<HashMap<K, V>>();
    assert_handle::<HashMultiMap<K, V>>();
    assert_handle::<BlinkTree<K, V>>();
    assert_handle::<ExtendibleMap<K, V>>();
    assert_handle::<ExtendibleMultiMap<K, V>>();
    assert_handle::<BatchMap<K, V>>();
    assert_handle::<BpTree<K, V>>();
    assert_handle::<BpMultiTree<K, V>>();
    assert_handle::<Log<V>>();
    assert_handle::<log::Tail<V>>();
    assert_handle::<log::Records<'static, V>>();
}

fn assert_handles_on<M: Medium + RefUnwindSafe>() {
    assert_handle::<Pool<M>>();
    assert_handle::<HashMap<str, u64, M>>();
    assert_handle::<HashMultiMap<str, u64, M>>();
    assert_handle::<BlinkTree<str, u64, M>>();
    assert_handle::<Range<'static, str, u64, BlinkTree<str, u64, M>>>();
    assert_handle::<BatchMap<str, u64, M>>();
    assert_handle::<Vector<u64, M>>();
    assert_handle::<vector::Iter<'static, u64, M>>();
    assert_handle::<AppendVector<u64, M>>();
    assert_handle::<Log<str, M>>();
    assert_handle::<Tx<u64, M>>();
    assert_handle::<SharedTx<u64, M>>();
    assert_handle::<TxArray<u64, M>>();
    assert_handle::<TxValue<u64, M>>();
    assert_handle::<CountersHandle<4, M>>();
    assert_handle::<CountersShared<4, M>>();
    assert_handle::<LogList<M>>();
    assert_handle::<AppendList<M>>();
    assert_handle::<FlushAlwaysList<M>>();
    assert_handle::<TableList<M>>();
    assert_handle::<Persister<batch_list::Log, M>>();
}

/// That it compiles is the test.
#[test]
fn handles_may_be_shared_with_threads_and_used_after_panics() {
    assert_handles_of::<str, [u8]>();
    assert_handles_on::<Mapped>();
    assert_handles_on::<Emulated>();
}
