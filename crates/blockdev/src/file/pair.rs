//! A line of metadata that changes by itself, for one fence: two lines, written in turn.
//!
//! The one with the even version is the first. Whatever a crash leaves of the line that was being written, the other
//! is at rest, and whole; so this needs no journal and survives write disturbance.

use remanent_pmem::{Error, LINE_LEN, Medium, Result};

use crate::line::{Line, WORDS, is_newer};

/// Bytes of a pair.
pub(super) const PAIR_LEN: u64 = 2 * LINE_LEN;

/// A pair, as its newer line has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Pool offset.
    at: u64,
    line: Line,
}

fn place(at: u64, version: u32) -> u64 {
    at + u64::from(version % 2) * LINE_LEN
}

impl Pair {
    /// Writes both lines of a new pair; the caller flushes and fences.
    pub(super) fn make<M: Medium>(medium: &M, at: u64, words: [u64; WORDS]) -> Self {
        let pair = Pair { at, line: Line::first(words) };
        put(medium, at, pair.line);
        put(medium, at, pair.older());
        pair
    }

    /// Reads a pair as a crash left it, and makes its older line whole again if it is not. Before the pair changes, the
    /// caller flushes and fences both.
    ///
    /// What was being written is not left there: what is written next might complete it.
    ///
    /// # Errors
    ///
    /// When neither line is whole.
    pub(super) fn recover<M: Medium>(medium: &M, at: u64) -> Result<Self> {
        let lines = Self::lines(medium, at);
        let whole = lines.iter().flatten().copied();
        let newest = whole.reduce(|a, b| if is_newer(a.version, b.version) { a } else { b });
        let Some(line) = newest else {
            let what = "a line of a file's metadata and its copy both fail their checksums";
            return Err(Error::corrupt(at, what));
        };
        let pair = Pair { at, line };
        if pair.lines_missing(&lines) {
            put(medium, at, pair.older());
        }
        Ok(pair)
    }

    /// The lines, first and second; none where one is not whole.
    fn lines<M: Medium>(medium: &M, at: u64) -> [Option<Line>; 2] {
        [0, 1].map(|version| {
            let line = Line::load(medium, place(at, version));
            line.filter(|line| line.version % 2 == version)
        })
    }

    fn lines_missing(&self, lines: &[Option<Line>; 2]) -> bool {
        lines[(self.line.version.wrapping_sub(1) % 2) as usize].is_none()
    }

    /// What the older line may say: the same.
    fn older(&self) -> Line {
        Line { version: self.line.version.wrapping_sub(1), ..self.line }
    }

    /// What it says.
    pub(super) fn words(&self) -> &[u64; WORDS] {
        &self.line.words
    }

    /// Has it say something else, durably with the caller's fence.
    #[track_caller]
    pub(super) fn set<M: Medium>(&mut self, medium: &M, words: [u64; WORDS]) {
        self.line = Line { words, version: self.line.version.wrapping_add(1) };
        put(medium, self.at, self.line);
        // Flush: fenced by the caller, before anything is based on it and before the pair changes again.
        medium.flush(place(self.at, self.line.version), LINE_LEN);
    }

    /// Whether the medium has both lines as they are to be.
    pub(super) fn is_whole<M: Medium>(&self, medium: &M) -> bool {
        let lines = Self::lines(medium, self.at);
        !self.lines_missing(&lines) && lines.contains(&Some(self.line))
    }
}

fn put<M: Medium>(medium: &M, at: u64, line: Line) {
    let at = place(at, line.version);
    Line::store_encoded(medium, at, &line.encode(at));
}
