//! Trace of a medium: its events in order, and the source sites of flushes, fences and syncs.

use std::fmt;
use std::panic::Location;

use serde::Serialize;

use crate::rng::mix;

/// Words of a page.
pub(crate) const PAGE_WORDS: u32 = 512;

/// Whether a site flushes, fences, or syncs the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// A call of `flush`, or the flush of a `persist`.
    Flush,
    /// A call of `fence`, or the fence of a `persist`.
    Fence,
    /// A call of `sync_file`.
    Sync,
}

/// A place in the source that flushes, fences, or syncs the file.
///
/// A `persist` is two sites at one place: its flush and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Site {
    /// Source file, as the compiler names it.
    pub file: &'static str,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in the line, from 1.
    pub column: u32,
    /// Whether the site flushes, fences or syncs.
    pub kind: SiteKind,
}

impl Site {
    pub(crate) fn new(kind: SiteKind, at: &'static Location<'static>) -> Self {
        Site { file: at.file(), line: at.line(), column: at.column(), kind }
    }

    pub(crate) fn is(&self, kind: SiteKind, at: &Location<'_>) -> bool {
        self.kind == kind
            && self.line == at.line()
            && self.column == at.column()
            && self.file == at.file()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}:{}", self.kind.name(), self.file, self.line, self.column)
    }
}

impl SiteKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SiteKind::Flush => "flush",
            SiteKind::Fence => "fence",
            SiteKind::Sync => "sync",
        }
    }
}

/// How a word was stored. This decides what a crash may leave of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StoreKind {
    /// In program order with the other ordinary stores of its line.
    Ordinary,
    /// First of two neighbouring words that were replaced at once. The second follows.
    PairFirst,
    /// Second word of a pair.
    PairSecond,
    /// Past the cache: only a fence orders it.
    Streaming,
}

/// One event of the medium. Words, lines and pages are indexes, not offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Store {
        word: u32,
        thread: u16,
        kind: StoreKind,
        value: u64,
    },
    Flush {
        line: u32,
        lines: u32,
        thread: u16,
        at: Option<&'static Location<'static>>,
    },
    Fence {
        thread: u16,
        at: &'static Location<'static>,
    },
    /// A locked instruction, on a machine where it orders flushes.
    Order {
        thread: u16,
    },
    Release {
        page: u32,
        pages: u32,
        thread: u16,
    },
    Grow {
        pages: u32,
    },
    Commit {
        page: u32,
        pages: u32,
    },
    Sync {
        thread: u16,
        at: &'static Location<'static>,
    },
}

impl Event {
    /// Whether [`Points::Fences`](crate::Points::Fences) crashes before this event.
    pub(crate) fn is_boundary(&self) -> bool {
        match self {
            Event::Flush { at, .. } => at.is_some(),
            Event::Store { .. } => false,
            Event::Fence { .. }
            | Event::Order { .. }
            | Event::Release { .. }
            | Event::Grow { .. }
            | Event::Commit { .. }
            | Event::Sync { .. } => true,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Event::Store { word, thread, kind, value } => {
                let offset = u64::from(word) * 8;
                write!(f, "thread {thread}: {kind:?} store of {value:#x} at offset {offset:#x}")
            }
            Event::Flush { line, lines, thread, at } => {
                let offset = u64::from(line) * 64;
                write!(f, "thread {thread}: flush of {lines} lines at offset {offset:#x}")?;
                at.map_or(Ok(()), |at| write!(f, ", {at}"))
            }
            Event::Fence { thread, at } => write!(f, "thread {thread}: fence, {at}"),
            Event::Order { thread } => write!(f, "thread {thread}: locked instruction"),
            Event::Release { page, pages, thread } => {
                let offset = u64::from(page) * 4096;
                write!(f, "thread {thread}: release of {pages} pages at offset {offset:#x}")
            }
            Event::Grow { pages } => write!(f, "growth to {} bytes", u64::from(pages) * 4096),
            Event::Commit { page, pages } => {
                let offset = u64::from(page) * 4096;
                write!(f, "allocation of {pages} pages at offset {offset:#x}")
            }
            Event::Sync { thread, at } => write!(f, "thread {thread}: sync of the file, {at}"),
        }
    }
}

/// A hash of the events.
pub(crate) fn digest(events: &[Event]) -> u64 {
    events.iter().fold(events.len() as u64, |digest, event| {
        let (head, tail) = match *event {
            Event::Store { word, thread, kind, value } => {
                (u64::from(word) << 24 | u64::from(thread) << 8 | kind as u64, value)
            }
            Event::Flush { line, lines, thread, .. } => {
                (u64::from(line) << 24 | u64::from(thread) << 8 | 4, u64::from(lines))
            }
            Event::Fence { thread, at } => {
                (u64::from(thread) << 8 | 5, u64::from(at.line()) << 16 | u64::from(at.column()))
            }
            Event::Order { thread } => (u64::from(thread) << 8 | 6, 0),
            Event::Release { page, pages, thread } => {
                (u64::from(page) << 24 | u64::from(thread) << 8 | 7, u64::from(pages))
            }
            Event::Grow { pages } => (8, u64::from(pages)),
            Event::Commit { page, pages } => (u64::from(page) << 24 | 9, u64::from(pages)),
            Event::Sync { thread, at } => {
                (u64::from(thread) << 8 | 10, u64::from(at.line()) << 16 | u64::from(at.column()))
            }
        };
        mix(digest ^ mix(head ^ mix(tail)))
    })
}
