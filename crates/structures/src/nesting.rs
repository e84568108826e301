//! Whether this thread holds a step or runs a closure of a map, during which it must not wait for
//! batches.
//!
//! Such a thread holds a lane, and a batch waits for those who hold lanes of its maps. If the
//! thread waited in turn, until the batch opens a key, neither would go on.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::{Error, Result};

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While this lives, this thread must not wait for batches.
pub(crate) struct Nesting {
    not_send: PhantomData<*const ()>,
}

impl Nesting {
    #[inline]
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Nesting { not_send: PhantomData }
    }

    /// An error where waiting might never end.
    pub(crate) fn refuse() -> Result<()> {
        if DEPTH.get() == 0 { Ok(()) } else { Err(Error::Nested) }
    }
}

impl Drop for Nesting {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
