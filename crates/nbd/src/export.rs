//! What is served: exports, and their names.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::wire::NAME_LEN_MAX;

/// The largest smallest block that the protocol knows.
const BLOCK_SIZE_MIN_MAX: u32 = 64 << 10;

/// What lies behind a range of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Bytes that were written, or of which nothing is known.
    Data,
    /// Space that is taken and reads as zeroes.
    Zero,
    /// No space; reads as zeroes, and a write may find that there is none left.
    Hole,
}

/// Why an export does not do what it was asked for; decides the error that the client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It may not be written: `EPERM`.
    #[error("the export is read-only")]
    ReadOnly,
    /// There is no space for what is written: `ENOSPC`.
    #[error("no space is left for the export; make its pool larger")]
    NoSpace,
    /// The range ends behind the export: `ENOSPC` to whoever writes, else `EINVAL`.
    #[error("the range ends behind the export")]
    OutOfRange,
    /// The export cannot do this at all: `ENOTSUP`.
    #[error("the export does not support this")]
    Unsupported,
    /// The memory for doing it cannot be had: `ENOMEM`.
    #[error("not enough memory")]
    NoMemory,
    /// The export is being closed: `ESHUTDOWN`.
    #[error("the export is being closed")]
    ShuttingDown,
    /// Anything else, as a text for people: `EIO`.
    #[error("{0}")]
    Failed(String),
}

/// A row of bytes that clients read and write.
///
/// Calls come from the threads of all connections at the same time, and each is to be quick: a
/// connection waits for it, and so does the end of the server. The session has checked ranges
/// against [`size`](Export::size) and for alignment, and has refused writes to what is read-only;
/// ranges are never empty.
///
/// **Whatever changes the export is durable when the call returns**, in the class of durability
/// that the export has. Sessions answer at once, with or without `FUA`, and tell clients that
/// several connections see one state. An export that makes writes safe later must wait here.
pub trait Export: Send + Sync {
    /// Bytes. What a client was told when it chose the export holds until it disconnects.
    fn size(&self) -> u64;

    /// Whether clients may not write.
    fn is_read_only(&self) -> bool {
        false
    }

    /// A line for people who list the exports; empty where there is nothing to say.
    fn description(&self) -> String {
        String::new()
    }

    /// All offsets and lengths are multiples of so many bytes: a power of two, 65,536 at most.
    fn block_size_min(&self) -> u32 {
        1
    }

    /// Fills `target` with the bytes from `offset` on. It holds anything before.
    ///
    /// # Errors
    ///
    /// When a byte cannot be read; `target` may then hold anything.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError>;

    /// Replaces the bytes from `offset` on, durably.
    ///
    /// # Errors
    ///
    /// When they cannot be stored; some may have been.
    fn write(&self, offset: u64, source: &[u8]) -> Result<(), ExportError>;

    /// Makes a range read as zeroes, durably. Only with `may_unmap` may its space be given back.
    ///
    /// # Errors
    ///
    /// As for [`write`](Export::write).
    fn write_zeroes(&self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ExportError>;

    /// Whether [`write_zeroes`](Export::write_zeroes) takes less time than writing zeroes would. A
    /// client that asked for speed is refused where it does not, and finds another way.
    fn is_zeroing_fast(&self, may_unmap: bool) -> bool {
        let _ = may_unmap;
        false
    }

    /// Is told that nobody needs the bytes of a range any more: it may hold anything afterwards.
    ///
    /// # Errors
    ///
    /// When the export fails at it. An export that has no use for the hint just returns.
    fn trim(&self, offset: u64, len: u64) -> Result<(), ExportError>;

    /// Returns when all that was ever written is durable, which it is already.
    ///
    /// # Errors
    ///
    /// When something acknowledged is known not to be.
    fn flush(&self) -> Result<(), ExportError>;

    /// Tells `visit` the length of each piece of a range, in order, and what lies behind it, until
    /// all is told or `visit` breaks.
    ///
    /// Lengths are multiples of [`block_size_min`](Export::block_size_min). A range that is told
    /// shorter than it is counts as [`Data`](Allocation::Data) in the rest.
    ///
    /// # Errors
    ///
    /// When it cannot be known.
    fn status(
        &self,
        offset: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError>;
}

/// Why an export cannot be served under a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportsError {
    /// Another one has the name.
    #[error("there are two exports of the name {0:?}; give one of them another name")]
    Duplicate(String),
    /// The name is longer than the protocol allows.
    #[error("the name of an export has {0} bytes; {NAME_LEN_MAX} are allowed")]
    NameTooLong(usize),
    /// A name that clients could not print.
    #[error("the name {0:?} of an export has a character that cannot be printed")]
    NameNotPrintable(String),
    /// A smallest block that is no power of two, or too large.
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
    /// No exports.
    pub fn new() -> Self {
        Exports::default()
    }

    /// Adds an export. The first one is also the default, for clients that name none, unless one has
    /// the empty name.
    ///
    /// # Errors
    ///
    /// When the name is taken or impossible, or the export's blocks are.
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

    /// Where the export is that a client calls `name`.
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
