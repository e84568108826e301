//! Exports and their names.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::limits::{BLOCK_SIZE_MIN_MAX, NAME_LEN_MAX};

/// The allocation behind a range of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Written bytes, or an unknown allocation.
    Data,
    /// Allocated space that reads as zeroes.
    Zero,
    /// No space. It reads as zeroes, and a write may find no space left.
    Hole,
}

/// The reason for a failed request; decides the error that the client gets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The export is read-only: `EPERM`.
    #[error("the export is read-only")]
    ReadOnly,
    /// There is no space for the written bytes: `ENOSPC`.
    #[error("no space is left for the export; make its pool larger")]
    NoSpace,
    /// The range ends behind the export: `ENOSPC` for a write, else `EINVAL`.
    #[error("the range ends behind the export")]
    OutOfRange,
    /// The export does not support this: `ENOTSUP`.
    #[error("the export does not support this")]
    Unsupported,
    /// There is not enough memory: `ENOMEM`.
    #[error("not enough memory")]
    NoMemory,
    /// The export is being closed: `ESHUTDOWN`.
    #[error("the export is being closed")]
    ShuttingDown,
    /// Any other reason, as a text for people: `EIO`.
    #[error("{0}")]
    Failed(String),
}

/// A sequence of bytes that clients read and write.
///
/// Calls come from the threads of all connections at the same time. Each should be quick, because a
/// connection waits for it, and so does the end of the server. The session has checked that ranges
/// lie within [`size`](Export::size) and are aligned, and has refused writes to read-only exports.
/// Ranges are never empty.
///
/// **Every change is durable when the call returns**, in the export's class of durability. Sessions
/// answer at once, with or without `FUA`, and tell clients that several connections see one state.
/// An export that makes writes safe later must wait in the call.
pub trait Export: Send + Sync {
    /// Size in bytes. The size that a client got when it chose the export holds until it
    /// disconnects.
    fn size(&self) -> u64;

    /// Whether clients may not write.
    fn is_read_only(&self) -> bool {
        false
    }

    /// A line for people who list the exports; may be empty.
    fn description(&self) -> String {
        String::new()
    }

    /// Unit of all offsets and lengths in bytes: a power of two, at most 65,536.
    fn block_size_min(&self) -> u32 {
        1
    }

    /// Fills `target` with the bytes from `offset` on. Its content before the call is arbitrary.
    ///
    /// # Errors
    ///
    /// When a byte cannot be read; `target` may then hold anything.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError>;

    /// Replaces the bytes from `offset` on, durably.
    ///
    /// # Errors
    ///
    /// When they cannot be stored; some may have been stored.
    fn write(&self, offset: u64, source: &[u8]) -> Result<(), ExportError>;

    /// Makes a range read as zeroes, durably. Its space may be given back only with `may_unmap`.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Export::write).
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ExportError>;

    /// Whether [`write_zeroes`](Export::write_zeroes) is faster than writing zeroes. If it is not,
    /// a client that asked for speed is refused, and chooses another way.
    fn is_zeroing_fast(&self, may_unmap: bool) -> bool {
        let _ = may_unmap;
        false
    }

    /// Hints that nobody needs the bytes of a range any more. The range may hold anything
    /// afterwards.
    ///
    /// # Errors
    ///
    /// When the export fails to do it. An export without use for the hint just returns.
    fn trim(&self, offset: u64, len: u64) -> Result<(), ExportError>;

    /// Returns when all writes are durable, which they already are.
    ///
    /// # Errors
    ///
    /// When an acknowledged write is known not to be durable.
    fn flush(&self) -> Result<(), ExportError>;

    /// Calls `visit` with length and allocation of each piece of a range, in order, until the end
    /// or until `visit` breaks.
    ///
    /// Lengths are multiples of [`block_size_min`](Export::block_size_min). If the pieces do not
    /// cover the range, the rest counts as [`Data`](Allocation::Data).
    ///
    /// # Errors
    ///
    /// When the allocation is unknown.
    fn status(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError>;
}

/// The reason why an export cannot be served under a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportsError {
    /// Another export has the name.
    #[error("there are two exports of the name {0:?}; give one of them another name")]
    Duplicate(String),
    /// The name is longer than the protocol allows.
    #[error("the name of an export has {0} bytes; {NAME_LEN_MAX} are allowed")]
    NameTooLong(usize),
    /// Clients could not print the name.
    #[error("the name {0:?} of an export has a character that cannot be printed")]
    NameNotPrintable(String),
    /// The smallest block is not a power of two, or too large.
    #[error(
        "the export {name:?} has blocks of {size} bytes; {BLOCK_SIZE_MIN_MAX} or a smaller power of two is allowed"
    )]
    BlockSize {
        /// The export.
        name: String,
        /// Its smallest block in bytes.
        size: u32,
    },
}

/// The exports of a server, by name.
#[derive(Clone, Default)]
pub struct Exports {
    named: Vec<(String, Arc<dyn Export>)>,
}

impl Exports {
    /// An empty list.
    pub fn new() -> Self {
        Exports::default()
    }

    /// Adds an export. The first one is the default for clients that name none, unless one has the
    /// empty name.
    ///
    /// # Errors
    ///
    /// When the name is taken or impossible, or the block size is.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        export: Arc<dyn Export>,
    ) -> Result<(), ExportsError> {
        let name = name.into();
        if name.len() > NAME_LEN_MAX {
            return Err(ExportsError::NameTooLong(name.len()));
        }
        if name.chars().any(char::is_control) {
            return Err(ExportsError::NameNotPrintable(name));
        }
        if self.named.iter().any(|(other, _)| *other == name) {
            return Err(ExportsError::Duplicate(name));
        }
        let size = export.block_size_min();
        if !size.is_power_of_two() || size > BLOCK_SIZE_MIN_MAX {
            return Err(ExportsError::BlockSize { name, size });
        }
        self.named.push((name, export));
        Ok(())
    }

    /// The names, in the order in which they were added.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &dyn Export)> {
        self.named.iter().map(|(name, export)| (name.as_str(), &**export))
    }

    /// Index of the export that a client calls `name`.
    pub(super) fn position(&self, name: &[u8]) -> Option<usize> {
        let found = self.named.iter().position(|(other, _)| other.as_bytes() == name);
        found.or_else(|| (name.is_empty() && !self.named.is_empty()).then_some(0))
    }

    pub(super) fn get(&self, position: usize) -> (&str, &Arc<dyn Export>) {
        let (name, export) = &self.named[position];
        (name, export)
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}
