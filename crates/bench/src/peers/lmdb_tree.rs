//! LMDB as an ordered map: a copy-on-write B+-tree in one mapped file, not synced.

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use anyhow::Result;

use super::Answer;
use super::ordered::{BATCH_LEN, Operation, Ordered, SCAN_LEN};
use super::shim::ErrorText;

// The functions of cpp/lmdb_tree.c.
unsafe extern "C" {
    fn lmdb_tree_open(path: *const c_char, error: *mut c_char) -> *mut c_void;
    fn lmdb_tree_close(tree: *mut c_void);
    fn lmdb_tree_run(
        tree: *mut c_void,
        operation: i32,
        keys: *const u64,
        n: usize,
        batch: usize,
        scan_len: usize,
        answer: *mut Answer,
        error: *mut c_char,
    ) -> i32;
}

/// A database in a directory of its own, closed when dropped.
pub(super) struct LmdbTree {
    tree: NonNull<c_void>,
    error: ErrorText,
}

impl LmdbTree {
    /// An empty map in an existing directory.
    ///
    /// # Errors
    ///
    /// What LMDB says when it cannot be opened.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let mut error = ErrorText::new();
        // SAFETY: the path is a C string that outlives the call; the text has room as the shim
        // expects.
        let tree = unsafe { lmdb_tree_open(path.as_ptr(), error.as_mut_ptr()) };
        let tree = NonNull::new(tree).ok_or_else(|| error.to_error())?;
        Ok(LmdbTree { tree, error })
    }
}

impl Ordered for LmdbTree {
    fn run(&mut self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        let mut answer = Answer::default();
        // SAFETY: the tree lives until `drop`, and is not `Send`: one thread uses it; keys and
        // length describe one slice; an answer is laid out as the shim's.
        let code = unsafe {
            lmdb_tree_run(
                self.tree.as_ptr(),
                operation as i32,
                keys.as_ptr(),
                keys.len(),
                BATCH_LEN,
                SCAN_LEN,
                &raw mut answer,
                self.error.as_mut_ptr(),
            )
        };
        if code == 0 { Ok(answer) } else { Err(self.error.to_error()) }
    }
}

impl Drop for LmdbTree {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and nobody uses it after this.
        unsafe { lmdb_tree_close(self.tree.as_ptr()) };
    }
}
