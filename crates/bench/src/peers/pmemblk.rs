//! An array of blocks of libpmemblk (PMDK), the nearest relative in user space.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use anyhow::{Result, bail, ensure};

use super::block::{BLOCK_LEN, Blocks};

// The functions of cpp/pmemblk_disk.c.
unsafe extern "C" {
    fn pmemblk_disk_new(path: *const c_char, pool_len: usize, blocks: u64) -> *mut c_void;
    fn pmemblk_disk_free(pool: *mut c_void);
    fn pmemblk_disk_write(pool: *mut c_void, bytes: *const u8, first: u64, count: u64) -> i32;
    fn pmemblk_disk_read(pool: *mut c_void, bytes: *mut u8, first: u64, count: u64) -> i32;
    fn pmemblk_disk_error() -> *const c_char;
}

/// Space for the library's own tables, beyond a share of what they describe.
const POOL_LEN_BASE: u64 = 64 << 20;

/// A pool of blocks; its file lies in a directory that goes away later.
pub(crate) struct Pmemblk(NonNull<c_void>);

// SAFETY: the library's functions may be called by any thread.
unsafe impl Send for Pmemblk {}
// SAFETY: the library takes a lane of its own for each call.
unsafe impl Sync for Pmemblk {}

impl Pmemblk {
    /// A new pool at `path` for `len` bytes.
    ///
    /// # Errors
    ///
    /// What libpmemblk says when it cannot make the pool.
    pub(crate) fn create(path: &Path, len: u64) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let pool_len = (POOL_LEN_BASE + len + len / 64) as usize;
        // SAFETY: the name is a C string that outlives the call.
        let pool = unsafe { pmemblk_disk_new(name.as_ptr(), pool_len, len / BLOCK_LEN) };
        let Some(pool) = NonNull::new(pool) else {
            bail!("libpmemblk cannot make a pool at {}: {}", path.display(), last_error());
        };
        Ok(Pmemblk(pool))
    }
}

/// What the library said last, on this thread.
fn last_error() -> String {
    // SAFETY: the library returns a C string of the calling thread, never null.
    let text = unsafe { pmemblk_disk_error() };
    // SAFETY: it stays valid until this thread's next call of the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn blocks_of(offset: u64, len: usize) -> (u64, u64) {
    (offset / BLOCK_LEN, len as u64 / BLOCK_LEN)
}

impl Blocks for Pmemblk {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (first, count) = blocks_of(offset, bytes.len());
        // SAFETY: the pool lives until `drop`, and `bytes` has `count` blocks.
        let status = unsafe { pmemblk_disk_write(self.0.as_ptr(), bytes.as_ptr(), first, count) };
        ensure!(status == 0, "libpmemblk does not write block {first}: {}", last_error());
        Ok(())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let (first, count) = blocks_of(offset, bytes.len());
        // SAFETY: the pool lives until `drop`, and `bytes` has room for `count` blocks.
        let status =
            unsafe { pmemblk_disk_read(self.0.as_ptr(), bytes.as_mut_ptr(), first, count) };
        ensure!(status == 0, "libpmemblk does not read block {first}: {}", last_error());
        Ok(())
    }
}

impl Drop for Pmemblk {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and nobody uses it after this.
        unsafe { pmemblk_disk_free(self.0.as_ptr()) };
    }
}
