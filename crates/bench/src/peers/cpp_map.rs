//! Volatile maps in C++: TBB's two, and libcuckoo's.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use anyhow::{Context, Result};

use super::{Answer, Map, Operation};
use crate::workloads::keys::BenchKey;
use crate::workloads::values::BenchValue;

// The functions of cpp/tbb_map.cpp.
#[cfg(has_tbb)]
unsafe extern "C" {
    fn tbb_unordered_map_new(key_len: usize, value_len: usize) -> *mut c_void;
    fn tbb_hash_map_new(key_len: usize, value_len: usize) -> *mut c_void;
    fn tbb_map_free(map: *mut c_void);
    fn tbb_map_run(map: *mut c_void, op: i32, keys: *const u8, n: usize, sum: *mut u64) -> u64;
}

// The functions of cpp/cuckoo_map.cpp.
#[cfg(has_libcuckoo)]
unsafe extern "C" {
    fn cuckoo_map_new(key_len: usize, value_len: usize) -> *mut c_void;
    fn cuckoo_map_free(map: *mut c_void);
    fn cuckoo_map_run(map: *mut c_void, op: i32, keys: *const u8, n: usize, sum: *mut u64) -> u64;
}

/// The functions of one kind of map.
pub(crate) struct Shim {
    /// Makes an empty map for keys and values of these lengths; null if there is none for them.
    new: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    run: unsafe extern "C" fn(*mut c_void, i32, *const u8, usize, *mut u64) -> u64,
    /// Whether several threads may remove entries.
    has_concurrent_remove: bool,
}

/// `tbb::concurrent_unordered_map`: the split-ordered list from which the paper started. Its only
/// erase is `unsafe_erase`.
#[cfg(has_tbb)]
pub(crate) static TBB_UNORDERED: Shim = Shim {
    new: tbb_unordered_map_new,
    free: tbb_map_free,
    run: tbb_map_run,
    has_concurrent_remove: false,
};

/// `tbb::concurrent_hash_map`: a table with a lock for each bucket and each entry.
#[cfg(has_tbb)]
pub(crate) static TBB_HASH: Shim = Shim {
    new: tbb_hash_map_new,
    free: tbb_map_free,
    run: tbb_map_run,
    has_concurrent_remove: true,
};

/// `libcuckoo::cuckoohash_map`: two buckets of four slots for a key, and locks for stripes of them.
#[cfg(has_libcuckoo)]
pub(crate) static CUCKOO: Shim = Shim {
    new: cuckoo_map_new,
    free: cuckoo_map_free,
    run: cuckoo_map_run,
    has_concurrent_remove: true,
};

/// A default-constructed map in the memory of this process.
pub(crate) struct CppMap<K> {
    map: NonNull<c_void>,
    shim: &'static Shim,
    keys: PhantomData<K>,
}

// SAFETY: the maps are made for concurrent use; `allows` withholds the one operation that is not.
unsafe impl<K> Sync for CppMap<K> {}

impl<K: BenchKey> CppMap<K> {
    /// An empty map with values of type `V`.
    ///
    /// # Errors
    ///
    /// When the shim has none for keys and values of these lengths.
    pub(crate) fn new<V: BenchValue>(shim: &'static Shim) -> Result<Self> {
        // SAFETY: the shim's constructor takes any lengths.
        let map = unsafe { (shim.new)(size_of::<K>(), size_of::<V>()) };
        let map = NonNull::new(map).context("the shim has no map for such keys and values")?;
        Ok(CppMap { map, shim, keys: PhantomData })
    }
}

impl<K: BenchKey> Map<K> for CppMap<K> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        let mut sum = 0;
        // SAFETY: the map lives until `drop`; keys are plain bytes, `size_of::<K>()` each as `new`
        // told the shim; operations that exclude others run on one thread (`allows`).
        let done = unsafe {
            (self.shim.run)(
                self.map.as_ptr(),
                operation as i32,
                keys.as_ptr().cast(),
                keys.len(),
                &raw mut sum,
            )
        };
        Ok(Answer { done, sum })
    }

    fn allows(&self, operation: Operation, threads: usize) -> bool {
        operation != Operation::Remove || threads == 1 || self.shim.has_concurrent_remove
    }
}

impl<K> Drop for CppMap<K> {
    fn drop(&mut self) {
        // SAFETY: made by `new` of the same shim, and nobody uses it after this.
        unsafe { (self.shim.free)(self.map.as_ptr()) };
    }
}
