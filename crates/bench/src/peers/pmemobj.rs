//! A chained hash map over transactions of libpmemobj (PMDK): what persistence costs its users.

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::{Result, bail};

use super::{Answer, Map, Operation};
use crate::report::Ground;
use crate::workloads::keys::BenchKey;
use crate::workloads::values::BenchValue;

// The functions of cpp/pmemobj_map.c.
unsafe extern "C" {
    fn pmemobj_map_new(
        path: *const c_char,
        pool_len: usize,
        bucket_count: u64,
        key_len: usize,
        value_len: usize,
    ) -> *mut c_void;
    fn pmemobj_map_free(map: *mut c_void);
    fn pmemobj_map_run(
        map: *mut c_void,
        operation: i32,
        keys: *const u8,
        n: usize,
        sum: *mut u64,
    ) -> u64;
    fn pmemobj_map_error() -> *const c_char;
}

/// Space for the pool's own logs and lanes.
const POOL_LEN_BASE: usize = 64 << 20;
/// A generous bound on what an entry takes beyond its key and value: object header, links, bucket
/// head and rounding to a size class.
const ENTRY_LEN_EXTRA: usize = 160;

/// A map in a pool file of its own, removed when dropped.
pub(crate) struct PmemobjMap<K, V> {
    map: NonNull<c_void>,
    path: PathBuf,
    types: PhantomData<(K, V)>,
}

// SAFETY: the shim takes the lock of a key's stripe around every operation.
unsafe impl<K, V> Sync for PmemobjMap<K, V> {}

impl<K: BenchKey, V: BenchValue> PmemobjMap<K, V> {
    /// A new pool in `directory` for about `capacity` entries, with as many buckets.
    ///
    /// # Errors
    ///
    /// What libpmemobj says when it cannot make the pool.
    pub(crate) fn create(directory: &Path, capacity: usize) -> Result<Self> {
        let path = directory.join(format!("pmemobj-{}{}.pool", K::NAME, V::SUFFIX));
        let name = CString::new(path.as_os_str().as_bytes())?;
        let (key_len, value_len) = (size_of::<K>(), size_of::<V>());
        let pool_len = POOL_LEN_BASE + capacity * (ENTRY_LEN_EXTRA + key_len + value_len);
        let buckets = capacity.next_power_of_two() as u64;
        // SAFETY: the name is a C string that outlives the call.
        let map = unsafe { pmemobj_map_new(name.as_ptr(), pool_len, buckets, key_len, value_len) };
        let Some(map) = NonNull::new(map) else {
            bail!("libpmemobj cannot make a pool at {}: {}", path.display(), last_error());
        };
        Ok(PmemobjMap { map, path, types: PhantomData })
    }

    /// What it stands on: the same as a pool of ours opened as NVRAM.
    ///
    /// # Errors
    ///
    /// When its file is gone.
    pub(crate) fn ground(&self) -> Result<Ground> {
        Ground::nvram_at(&self.path)
    }
}

/// What the library said last, on this thread.
pub(super) fn last_error() -> String {
    // SAFETY: the library returns a C string of the calling thread, never null.
    let text = unsafe { pmemobj_map_error() };
    // SAFETY: it stays valid until this thread's next call of the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl<K: BenchKey, V: BenchValue> Map<K> for PmemobjMap<K, V> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        let mut sum = 0;
        // SAFETY: the map lives until `drop`; keys are plain bytes, `size_of::<K>()` each as
        // `create` told the shim.
        let done = unsafe {
            pmemobj_map_run(
                self.map.as_ptr(),
                operation as i32,
                keys.as_ptr().cast(),
                keys.len(),
                &raw mut sum,
            )
        };
        Ok(Answer { done, sum })
    }
}

impl<K, V> Drop for PmemobjMap<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and nobody uses it after this.
        unsafe { pmemobj_map_free(self.map.as_ptr()) };
        let _ = std::fs::remove_file(&self.path);
    }
}
