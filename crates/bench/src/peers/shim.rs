//! Error messages of C shims.

use std::ffi::{CStr, c_char};

use anyhow::anyhow;

/// `ERROR_LEN` of shim.h.
const ERROR_LEN: usize = 256;

/// Buffer for a shim's error message.
pub(super) struct ErrorText([c_char; ERROR_LEN]);

impl ErrorText {
    pub(super) const fn new() -> Self {
        ErrorText([0; ERROR_LEN])
    }

    /// The pointer for a shim.
    pub(super) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr()
    }

    pub(super) fn to_error(&self) -> anyhow::Error {
        // SAFETY: the array began as zeros, and shims write into it by `snprintf` with its length.
        let text = unsafe { CStr::from_ptr(self.0.as_ptr()) };
        anyhow!("{}", text.to_string_lossy())
    }
}
