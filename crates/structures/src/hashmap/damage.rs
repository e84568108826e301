//! Damage: words and entries that no operation has written, and the errors that report them.

use remanent_pmem::{Medium, Word};

use super::Core;
use super::seal::is_link;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// Damage that a walk met.
#[derive(Clone, Copy, Debug)]
pub(super) enum Damage {
    /// A word that no operation can have written there.
    Word { at: u64, what: &'static str },
    /// An entry whose bytes do not match its checksum.
    Sum { node: u64, stored: u32, computed: u32 },
}

impl Damage {
    #[cold]
    pub(super) fn at(at: u64, what: &'static str) -> Self {
        Damage::Word { at, what }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// The error that reports damage.
    #[cold]
    pub(super) fn report(&self, damage: Damage) -> Error {
        match damage {
            Damage::Word { at, what } => Error::corrupt(&self.heap, at, what),
            Damage::Sum { node, stored, computed } => {
                Error::checksum(&self.heap, node, stored, computed)
            }
        }
    }

    #[inline(always)]
    pub(super) fn told<T>(&self, result: Result<T, Damage>) -> Result<T> {
        result.map_err(|damage| self.report(damage))
    }

    /// Whether the word at `at` is a link.
    #[inline(always)]
    pub(super) fn check_link(&self, at: u64, link: Word) -> Result<(), Damage> {
        if is_link(at, link) {
            Ok(())
        } else {
            Err(Damage::at(at, "a link does not fit its check"))
        }
    }

    /// Whether `len` bytes at `at` lie in the pool.
    #[inline(always)]
    pub(super) fn is_inside(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.medium().len())
    }
}
