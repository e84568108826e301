//! Committing to the copy that is not valid, and finding the valid one.
//!
//! Versions count commits; the lowest bit of a version says which copy holds it. Readers choose the
//! copy by a version in volatile memory, which is set only after the selector is durable. So no
//! reader sees a version that a crash could still undo.

use remanent_pmem::persistent::bytes_of;
use remanent_pmem::{LINE_LEN, Medium, Persistent, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{CHECKED_DATA, Form, SELECTOR_SHIFT, SELECTOR_WORD};

/// Commits `value` to the object at `base`, atomically and durably, as the successor of version
/// `version`, whose value is `before`.
#[inline(always)]
pub(crate) fn commit<T: Persistent, M: Medium>(
    medium: &M,
    form: Form,
    base: u64,
    version: u64,
    before: &T,
    value: &T,
) {
    stage(medium, form, base, version, before, value);
    // Fence: the version, before the transaction is acknowledged, and before the next one
    // overwrites the other copy.
    medium.fence();
}

/// As [`commit`], but without the last fence, which the caller adds.
#[inline(always)]
pub(super) fn stage<T: Persistent, M: Medium>(
    medium: &M,
    form: Form,
    base: u64,
    version: u64,
    before: &T,
    value: &T,
) {
    let bytes = bytes_of(value);
    let next = version.wrapping_add(1);
    match form {
        Form::Line => stage_line(medium, base, next, bytes_of(before), bytes),
        Form::Copies => stage_copies(medium, base, next, bytes),
        Form::Checked => stage_checked(medium, base, next, bytes),
    }
}

/// More commits than any object will ever see.
const VERSION_MAX: u64 = 1 << 60;

/// Offset of the last word in a half. The object has seven bytes of it.
const LAST_WORD_AT: usize = 24;

/// One line, one flush, one fence (section 3 of the paper): if the selector survives, so do all
/// earlier stores to its line.
#[inline(always)]
fn stage_line<M: Medium>(medium: &M, line: u64, next: u64, before: &[u8], bytes: &[u8]) {
    let data = Form::Line.data(line, next, bytes.len() as u64);
    let selector_word = line + SELECTOR_WORD;
    let mut beside_selector = 0;
    for (index, offset) in (0..bytes.len().div_ceil(8)).zip((data..).step_by(8)) {
        let word = word_of(bytes, index);
        if offset == selector_word {
            // The last bytes of half 1 are stored in one word with the selector.
            beside_selector = word;
        } else {
            // Release: before the selector, in the line's order of stores.
            medium.store(offset, word);
        }
    }
    if next & 1 == 0 && bytes.len() > LAST_WORD_AT {
        // The other bytes of the selector's word belong to half 1, which readers may still be
        // copying, so they stay.
        beside_selector = word_of(before, LAST_WORD_AT / 8);
    }
    // Release: after the half that it selects.
    medium.store(selector_word, beside_selector | (next & 1) << SELECTOR_SHIFT);
    // Flush: the new half and its selector; fenced by the caller.
    medium.flush(line, LINE_LEN);
}

/// Several lines, two fences for any size: first the copy, then the selector.
#[inline]
fn stage_copies<M: Medium>(medium: &M, base: u64, next: u64, bytes: &[u8]) {
    let data = Form::Copies.data(base, next, bytes.len() as u64);
    let words = (0..bytes.len().div_ceil(8)).map(|index| word_of(bytes, index));
    // Flush: the words that differ from the last version but one, which this copy still holds.
    store_changes(medium, data, words);
    // Fence: the copy is complete before the selector leads to it.
    medium.fence();
    medium.store(base, next & 1);
    // Flush: the selector; fenced by the caller.
    medium.flush(base, WORD_LEN);
}

/// Lines that a crash may leave with garbage, one fence: a copy counts if its checksum fits, and
/// the other copy is not written.
#[inline]
fn stage_checked<M: Medium>(medium: &M, base: u64, next: u64, bytes: &[u8]) {
    let copy = Form::Checked.data(base, next, bytes.len() as u64) - CHECKED_DATA;
    let head = [next, checksum(next, bytes)];
    let words = (0..bytes.len().div_ceil(8)).map(|index| word_of(bytes, index));
    // Flush: the words that differ, at least the version; fenced by the caller.
    store_changes(medium, copy, head.into_iter().chain(words));
}

/// Stores the words that differ, from `offset` on, and flushes the lines that changed. `offset` is
/// the beginning of a line, or 16 bytes before the data.
#[inline]
#[track_caller]
fn store_changes<M: Medium>(medium: &M, offset: u64, words: impl Iterator<Item = u64>) {
    let mut changed_line = None;
    for (at, word) in (offset..).step_by(8).zip(words) {
        let line = at & !(LINE_LEN - 1);
        if changed_line.is_some_and(|changed| changed != line) {
            flush_changed(medium, changed_line.take());
        }
        if medium.load(at) != word {
            medium.store(at, word);
            changed_line = Some(line);
        }
    }
    flush_changed(medium, changed_line);
}

#[inline(always)]
#[track_caller]
fn flush_changed<M: Medium>(medium: &M, line: Option<u64>) {
    if let Some(line) = line {
        // Flush: a changed line; fenced by the caller of `stage`.
        medium.flush(line, LINE_LEN);
    }
}

/// Stores and flushes version 0 of a new object, which nothing leads to yet.
pub(super) fn place<M: Medium>(medium: &M, form: Form, base: u64, bytes: &[u8]) {
    let len = bytes.len() as u64;
    let data = form.data(base, 0, len);
    let words = (0..bytes.len().div_ceil(8)).map(|index| word_of(bytes, index));
    for (at, word) in (data..).step_by(8).zip(words) {
        medium.store(at, word);
    }
    if form == Form::Checked {
        medium.store(data - CHECKED_DATA, 0);
        medium.store(data - CHECKED_DATA + WORD_LEN, checksum(0, bytes));
        // The other copy is zeros, which are not a valid version 1.
    } else {
        medium.store(base + if form == Form::Line { SELECTOR_WORD } else { 0 }, 0);
    }
    // Flush: the object; fenced by the caller, before a root leads to it.
    medium.flush(base, form.stride(len));
}

/// The valid version of an object that nobody uses yet; `None` when it is damaged. Makes what a
/// crash left durable, and voids an unfinished copy, so that commits can follow.
pub(crate) fn recover_version<M: Medium>(
    medium: &M,
    form: Form,
    base: u64,
    len: u64,
) -> Option<u64> {
    if medium.needs_flush() {
        // Flush and fence: a killed process may have left its stores only in the caches. They
        // become durable before anybody acts on them, or skips a store because the word is already
        // there.
        // Redundant: unless a process was killed before and the power fails later.
        medium.persist(base, form.stride(len));
    }
    let version = find_version(medium, form, base, len)?;
    let other = (version & 1) ^ 1;
    if form == Form::Checked
        && checked_version(medium, base, other, len).is_none()
        && medium.load(Form::Checked.data(base, other, len) - CHECKED_DATA) & 1 == other
    {
        void(medium, base, other, len);
    }
    Some(version)
}

/// The valid version of an object; `None` when it is damaged. Changes nothing.
pub(super) fn find_version<M: Medium>(medium: &M, form: Form, base: u64, len: u64) -> Option<u64> {
    match form {
        Form::Line => Some(medium.load(base + SELECTOR_WORD) >> SELECTOR_SHIFT).filter(|&v| v < 2),
        Form::Copies => Some(medium.load(base)).filter(|&version| version < 2),
        Form::Checked => {
            let versions = [0, 1].map(|copy| checked_version(medium, base, copy, len));
            versions.into_iter().flatten().max()
        }
    }
}

/// Voids, durably, a copy that a crash left unfinished. Otherwise, if the next commit crashes too,
/// the copy's old first line and lines of that commit could form a valid copy.
fn void<M: Medium>(medium: &M, base: u64, copy: u64, len: u64) {
    let at = Form::Checked.data(base, copy, len) - CHECKED_DATA;
    // The next commit reuses the number of the abandoned version. Its version word may survive a
    // crash without the rest of its line, and then the checksum must not fit. The checksum is
    // voided first, so that a voided version implies a voided checksum.
    medium.store(at + WORD_LEN, 0);
    // A version with the other copy's lowest bit is never valid here.
    medium.store(at, copy ^ 1);
    // Flush and fence: the voided words, before the next commit's lines.
    // Redundant fence: if something else fences before that commit, as the simulator's checks do.
    medium.persist(at, CHECKED_DATA);
}

/// The version in a checked copy; `None` when the copy is not valid.
fn checked_version<M: Medium>(medium: &M, base: u64, copy: u64, len: u64) -> Option<u64> {
    let data = Form::Checked.data(base, copy, len);
    let version = medium.load(data - CHECKED_DATA);
    let mut bytes = vec![0; len as usize];
    medium.read(data, &mut bytes);
    let stored = medium.load(data - CHECKED_DATA + WORD_LEN);
    let is_valid =
        version & 1 == copy && version <= VERSION_MAX && stored == checksum(version, &bytes);
    is_valid.then_some(version)
}

/// The checksum of a version. The version is its seed, so damage to either is noticed.
fn checksum(version: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, version)
}

/// A word of an object's bytes; zeros behind the last byte.
#[inline(always)]
fn word_of(bytes: &[u8], index: usize) -> u64 {
    let bytes = &bytes[index * 8..];
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use remanent_crashsim::{Config, Outcome, Points, Rng, Sim, Subject, explore};
    use remanent_pmem::persistent::read_value;

    use super::*;

    type Commit = fn(&Arc<Sim>, u64, u64, &[u8], &[u8]);

    /// One line, committed to by the code above or by a mutant of it.
    struct Line {
        commit: Commit,
    }

    impl Subject for Line {
        type Op = [u8; 31];
        type Ret = ();
        type State = Vec<u8>;
        type Handle = Arc<Sim>;

        fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
            Ok(medium)
        }

        fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
            Ok(medium)
        }

        fn apply(&self, medium: &Arc<Sim>, value: &[u8; 31]) {
            let version = find_version(medium, Form::Line, 0, 31).expect("a line is never damaged");
            let before: [u8; 31] = read_value(medium, Form::Line.data(0, version, 31));
            (self.commit)(medium, 0, version + 1, &before, value);
        }

        fn model(&self, state: &mut Vec<u8>, value: &[u8; 31]) {
            *state = value.to_vec();
        }

        fn observe(&self, medium: &Arc<Sim>) -> Outcome<Vec<u8>> {
            let version = find_version(medium, Form::Line, 0, 31).ok_or("a selector is damaged")?;
            let value: [u8; 31] = read_value(medium, Form::Line.data(0, version, 31));
            Ok(if value == [0; 31] { Vec::new() } else { value.to_vec() })
        }

        fn op(&self, rng: &mut Rng) -> [u8; 31] {
            std::array::from_fn(|_| rng.below(255) as u8 + 1)
        }
    }

    /// As [`stage_line`] and a fence, but the selector is stored before the bytes that it selects.
    fn commit_selector_first(medium: &Arc<Sim>, line: u64, next: u64, _: &[u8], bytes: &[u8]) {
        let selector_word = line + SELECTOR_WORD;
        let rest = medium.load(selector_word) & !(0xff << SELECTOR_SHIFT);
        medium.store(selector_word, rest | (next & 1) << SELECTOR_SHIFT);
        let data = Form::Line.data(line, next, bytes.len() as u64);
        for (index, offset) in (0..bytes.len().div_ceil(8)).zip((data..).step_by(8)) {
            let beside = if offset == selector_word { (next & 1) << SELECTOR_SHIFT } else { 0 };
            medium.store(offset, word_of(bytes, index) | beside);
        }
        medium.persist(line, LINE_LEN);
    }

    /// As [`stage_line`] and a fence, but the new bytes overwrite the valid half, and the selector
    /// stays.
    fn commit_in_place(medium: &Arc<Sim>, line: u64, next: u64, _: &[u8], bytes: &[u8]) {
        let (valid, selector_word) = (next - 1, line + SELECTOR_WORD);
        let data = Form::Line.data(line, valid, bytes.len() as u64);
        for (index, offset) in (0..bytes.len().div_ceil(8)).zip((data..).step_by(8)) {
            let beside = if offset == selector_word { (valid & 1) << SELECTOR_SHIFT } else { 0 };
            medium.store(offset, word_of(bytes, index) | beside);
        }
        medium.persist(line, LINE_LEN);
    }

    fn is_clean(commit: Commit) -> bool {
        let config = Config { seeds: 0..8, ops: 5, points: Points::Stores, ..Config::default() };
        explore(&Line { commit }, &config).is_clean()
    }

    #[test]
    fn a_line_is_whole_after_a_crash_between_any_two_stores() {
        assert!(is_clean(|medium, line, next, before, bytes| {
            stage_line(medium, line, next, before, bytes);
            medium.fence();
        }));
    }

    #[test]
    fn a_selector_that_comes_first_is_noticed() {
        assert!(!is_clean(commit_selector_first));
    }

    #[test]
    fn a_valid_half_that_is_overwritten_is_noticed() {
        assert!(!is_clean(commit_in_place));
    }
}
