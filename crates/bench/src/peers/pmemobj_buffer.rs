//! The paper's bounded buffer over transactions of libpmemobj (PMDK).

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use anyhow::{Result, bail};

use super::buffer::{Buffer, SOURCE, Scenario};
use super::pmemobj::last_error;
use crate::report::Ground;

// The functions of cpp/pmemobj_buffer.c.
unsafe extern "C" {
    fn pmemobj_buffer_new(path: *const c_char, per_field: i32) -> *mut c_void;
    fn pmemobj_buffer_free(peer: *mut c_void);
    fn pmemobj_buffer_run(
        peer: *mut c_void,
        scenario: i32,
        source: *const u8,
        repetitions: u64,
    ) -> u64;
}

/// What a transaction logs before it changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Form {
    /// The object, once.
    Object = 0,
    /// Each field before each assignment, as `p<>` of the C++ bindings does.
    Fields = 1,
}

/// A buffer in a pool file of its own.
struct PmemobjBuffer(NonNull<c_void>);

/// A new buffer in a pool in `directory`, flushed as ours is under `emulation nvram`.
///
/// # Errors
///
/// What libpmemobj says when it cannot make the pool.
pub(crate) fn create(directory: &Path, form: Form) -> Result<(Box<dyn Buffer>, Ground)> {
    let path = directory.join(format!("pmemobj-{form:?}.pool"));
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is a C string that outlives the call.
    let peer = unsafe { pmemobj_buffer_new(name.as_ptr(), form as i32) };
    let Some(peer) = NonNull::new(peer) else {
        bail!("libpmemobj cannot make a pool at {}: {}", path.display(), last_error());
    };
    let buffer = PmemobjBuffer(peer);
    let ground = Ground::nvram_at(&path)?;
    Ok((Box::new(buffer), ground))
}

impl Buffer for PmemobjBuffer {
    fn run(&mut self, scenario: Scenario, repetitions: u64) -> Result<u64> {
        // SAFETY: the peer lives until `drop` and is used by one thread at a time; the source has
        // as many bytes as the shim reads.
        Ok(unsafe {
            pmemobj_buffer_run(self.0.as_ptr(), scenario as i32, SOURCE.as_ptr(), repetitions)
        })
    }
}

impl Drop for PmemobjBuffer {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and nobody uses it after this.
        unsafe { pmemobj_buffer_free(self.0.as_ptr()) };
    }
}
