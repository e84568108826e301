//! `tbb::concurrent_unordered_map`: the volatile split-ordered list from which the paper started.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use anyhow::Result;

use super::{Answer, Map, Operation};
use crate::workloads::keys::{BenchKey, Key40};

// The functions of cpp/tbb_map.cpp.
unsafe extern "C" {
    fn tbb_word_map_new() -> *mut c_void;
    fn tbb_word_map_free(map: *mut c_void);
    fn tbb_word_map_run(
        map: *mut c_void,
        operation: i32,
        keys: *const u64,
        n: usize,
        sum: *mut u64,
    ) -> u64;
    fn tbb_bytes_map_new() -> *mut c_void;
    fn tbb_bytes_map_free(map: *mut c_void);
    fn tbb_bytes_map_run(
        map: *mut c_void,
        operation: i32,
        keys: *const Key40,
        n: usize,
        sum: *mut u64,
    ) -> u64;
}

/// The functions for one key type.
pub(crate) struct Shim<K> {
    new: unsafe extern "C" fn() -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    run: unsafe extern "C" fn(*mut c_void, i32, *const K, usize, *mut u64) -> u64,
}

/// A key for which there is a shim.
pub(crate) trait TbbKey: BenchKey {
    const SHIM: Shim<Self>;
}

impl TbbKey for u64 {
    const SHIM: Shim<u64> =
        Shim { new: tbb_word_map_new, free: tbb_word_map_free, run: tbb_word_map_run };
}

impl TbbKey for Key40 {
    const SHIM: Shim<Key40> =
        Shim { new: tbb_bytes_map_new, free: tbb_bytes_map_free, run: tbb_bytes_map_run };
}

/// A default-constructed map in the memory of this process (TBB's own allocator).
pub(crate) struct TbbMap<K: TbbKey> {
    map: NonNull<c_void>,
    keys: PhantomData<K>,
}

// SAFETY: the map is made for concurrent use; `allows` withholds the one operation that is not.
unsafe impl<K: TbbKey> Sync for TbbMap<K> {}

impl<K: TbbKey> TbbMap<K> {
    /// An empty map.
    pub(crate) fn new() -> Self {
        // SAFETY: the shim's constructor takes nothing.
        let map = unsafe { (K::SHIM.new)() };
        TbbMap {
            map: NonNull::new(map).expect("operator new never returns null"),
            keys: PhantomData,
        }
    }
}

impl<K: TbbKey> Map<K> for TbbMap<K> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        let mut sum = 0;
        // SAFETY: the map lives until `drop`; keys and length describe one slice, laid out as the
        // shim's key type; operations that exclude others run on one thread (`allows`).
        let done = unsafe {
            (K::SHIM.run)(
                self.map.as_ptr(),
                operation as i32,
                keys.as_ptr(),
                keys.len(),
                &raw mut sum,
            )
        };
        Ok(Answer { done, sum })
    }

    fn allows(&self, operation: Operation, threads: usize) -> bool {
        // Its only erase is `unsafe_erase`.
        operation != Operation::Remove || threads == 1
    }
}

impl<K: TbbKey> Drop for TbbMap<K> {
    fn drop(&mut self) {
        // SAFETY: made by `new` of the same shim, and nobody uses it after this.
        unsafe { (K::SHIM.free)(self.map.as_ptr()) };
    }
}
