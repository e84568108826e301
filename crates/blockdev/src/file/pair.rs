//! A line of metadata that changes atomically, for one fence: two lines, written in turn.
//!
//! The first line has the even versions. While one line is written, the other is at rest, and
//! complete whatever a crash leaves. So a pair needs no journal, and survives write disturbance.

use remanent_pmem::{Error, LINE_LEN, Medium, Result};

use crate::line::{Line, WORDS, is_newer};
use crate::seal::Key;

/// Bytes of a pair.
pub(super) const PAIR_LEN: u64 = 2 * LINE_LEN;

/// A pair, with the content of its newer line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Pool offset.
    at: u64,
    key: Key,
    line: Line,
}

fn place(at: u64, version: u32) -> u64 {
    at + u64::from(version % 2) * LINE_LEN
}

impl Pair {
    /// Writes both lines of a new pair; the caller flushes and fences.
    pub(super) fn make<M: Medium>(medium: &M, at: u64, key: Key, words: [u64; WORDS]) -> Self {
        let pair = Pair { at, key, line: Line::first(words) };
        pair.put(medium, pair.line);
        pair.put(medium, pair.older());
        pair
    }

    /// Reads a pair after a crash, and rewrites its older line if that is incomplete. The caller
    /// flushes and fences both before the pair changes.
    ///
    /// An incomplete line is not left as it is, because the next write might complete it.
    ///
    /// # Errors
    ///
    /// When neither line is complete.
    pub(super) fn recover<M: Medium>(medium: &M, at: u64, key: Key) -> Result<Self> {
        let lines = Self::lines(medium, at, key);
        let whole = lines.iter().flatten().copied();
        let newest = whole.reduce(|a, b| if is_newer(a.version, b.version) { a } else { b });
        let Some(line) = newest else {
            let what = "a line of a file's metadata and its copy both fail their checksums";
            return Err(Error::corrupt(at, what));
        };
        let pair = Pair { at, key, line };
        if pair.lines_missing(&lines) {
            pair.put(medium, pair.older());
        }
        Ok(pair)
    }

    /// The lines, first and second; `None` for an incomplete one.
    fn lines<M: Medium>(medium: &M, at: u64, key: Key) -> [Option<Line>; 2] {
        [0, 1].map(|version| {
            let line = Line::load(medium, place(at, version), key.of_line());
            line.filter(|line| line.version % 2 == version)
        })
    }

    fn lines_missing(&self, lines: &[Option<Line>; 2]) -> bool {
        lines[(self.line.version.wrapping_sub(1) % 2) as usize].is_none()
    }

    /// The line that the older one may hold: the same content, one version earlier.
    fn older(&self) -> Line {
        Line { version: self.line.version.wrapping_sub(1), ..self.line }
    }

    /// Key of the file's checksums.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The content.
    pub(super) fn words(&self) -> &[u64; WORDS] {
        &self.line.words
    }

    /// Sets the content, durably with the caller's fence.
    #[track_caller]
    pub(super) fn set<M: Medium>(&mut self, medium: &M, words: [u64; WORDS]) {
        self.line = Line { words, version: self.line.version.wrapping_add(1) };
        self.put(medium, self.line);
        // Flush: fenced by the caller, before anything relies on it and before the pair changes
        // again.
        medium.flush(place(self.at, self.line.version), LINE_LEN);
    }

    /// Whether both lines are complete on the medium.
    pub(super) fn is_whole<M: Medium>(&self, medium: &M) -> bool {
        let lines = Self::lines(medium, self.at, self.key);
        !self.lines_missing(&lines) && lines.contains(&Some(self.line))
    }

    fn put<M: Medium>(&self, medium: &M, line: Line) {
        let at = place(self.at, line.version);
        Line::store_encoded(medium, at, &line.encode(at, self.key.of_line()));
    }
}
