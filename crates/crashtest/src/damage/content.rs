//! Content that is a function of numbers, and the judgement of answers about it.

use std::collections::BTreeSet;
use std::ops::Range;

use remanent_crashsim::Rng;

/// Numbers of entries that exist from the start.
const FILLED: Range<u64> = 0..400;
/// Numbers of entries that are added later.
const ADDED: Range<u64> = 400..500;
/// Numbers that are never stored.
const MISSING: Range<u64> = 700..740;
/// Numbers of entries that are written after the damage, and not judged.
const WRITTEN: Range<u64> = 1000..1080;

/// The history of each number, and what is stored under it at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Whether entries are replaced and removed, or only added.
    pub(super) changes: bool,
    pub(super) values: Values,
}

/// Kind of values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// Eight bytes.
    Word,
    /// Up to 300 bytes, except for a few that have `long`.
    Bytes { long: u64 },
    /// All of the same length.
    Blocks { len: u64 },
}

/// One step of the history.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Put(u64, Version),
    Remove(u64),
}

/// Number of times that an entry was replaced.
pub(super) type Version = u64;

impl Content {
    /// The steps that fill a structure.
    pub(super) fn fill(self) -> impl Iterator<Item = Step> {
        FILLED.map(|number| Step::Put(number, 0))
    }

    /// The steps that change the structure afterwards.
    pub(super) fn change(self) -> impl Iterator<Item = Step> {
        let changed = FILLED.filter(move |_| self.changes).filter_map(|number| match number % 15 {
            3 | 6 | 9 | 12 => Some(Step::Put(number, 1)),
            5 | 10 => Some(Step::Remove(number)),
            _ => None,
        });
        changed.chain(ADDED.map(|number| Step::Put(number, 0)))
    }

    /// The steps after the damage.
    pub(super) fn write(self) -> impl Iterator<Item = Step> {
        let removed = WRITTEN.filter(move |number| self.changes && number % 3 == 0);
        WRITTEN.map(|number| Step::Put(number, 0)).chain(removed.map(Step::Remove))
    }

    /// Numbers that are looked up.
    pub(super) fn asked(self) -> impl Iterator<Item = u64> {
        FILLED.chain(ADDED).chain(MISSING)
    }

    /// The version under a number at the end; `None` if nothing is stored.
    fn version(self, number: u64) -> Option<Version> {
        if ADDED.contains(&number) {
            return Some(0);
        }
        if !FILLED.contains(&number) {
            return None;
        }
        match number % 15 {
            3 | 6 | 9 | 12 if self.changes => Some(1),
            5 | 10 if self.changes => None,
            _ => Some(0),
        }
    }

    /// Whether anything is stored under a number at the end.
    pub(super) fn is_stored(self, number: u64) -> bool {
        self.version(number).is_some()
    }

    /// The value of a number in a version.
    pub(super) fn value(self, number: u64, version: Version) -> Vec<u8> {
        let mut rng = Rng::from_parts(&[number, version]);
        let len = match self.values {
            Values::Word => 8,
            Values::Bytes { long } if number % 193 == 50 => long,
            Values::Bytes { .. } => rng.below(301),
            Values::Blocks { len } => len,
        };
        (0..len).map(|_| rng.below(256) as u8).collect()
    }

    /// Judges an answer about a number.
    pub(super) fn judge(self, number: u64, found: Option<&[u8]>, answers: &mut Answers) {
        self.judge_as(number, found, |number, version| self.value(number, version), answers);
    }

    /// Like [`judge`](Content::judge), if the structure stores something that is derived from the
    /// value.
    pub(super) fn judge_as(
        self,
        number: u64,
        found: Option<&[u8]>,
        stored: impl Fn(u64, Version) -> Vec<u8>,
        answers: &mut Answers,
    ) {
        let expected = self.version(number);
        match (expected, found) {
            (Some(_), None) => answers.note(Answer::Absent, || format!("{number} is absent")),
            (None, None) => answers.note(Answer::Right, String::new),
            (_, Some(found)) => {
                let is = |version| stored(number, version) == found;
                if expected.is_some_and(is) {
                    answers.note(Answer::Right, String::new);
                } else if FILLED.contains(&number) && is(0) {
                    answers.note(Answer::Older, || format!("{number} is what it was before"));
                } else {
                    answers.note(Answer::Wrong, || format!("{number} is something else"));
                }
            }
        }
    }

    /// Judges an answer about a number in a copy that was made before any change.
    pub(super) fn judge_filled(self, number: u64, found: Option<&[u8]>, answers: &mut Answers) {
        let expected = FILLED.contains(&number).then(|| self.value(number, 0));
        match (expected, found) {
            (Some(_), None) => answers.note(Answer::Absent, || format!("old {number} is absent")),
            (expected, found) if expected.as_deref() == found => {
                answers.note(Answer::Right, String::new);
            }
            _ => answers.note(Answer::Wrong, || format!("old {number} is something else")),
        }
    }

    /// Begins to judge a walk over all entries.
    pub(super) fn walk(self) -> Walk {
        Walk { content: self, seen: BTreeSet::new(), steps: 0 }
    }
}

/// A walk over all entries of a structure.
#[derive(Debug)]
pub(super) struct Walk {
    content: Content,
    seen: BTreeSet<u64>,
    steps: u64,
}

/// Maximal number of entries in a walk, more than ever exist.
const STEPS_MAX: u64 = 4000;

impl Walk {
    /// Notes an entry; returns whether to continue. The number is `None` if nobody stored such an
    /// entry.
    pub(super) fn meet(
        &mut self,
        number: Option<u64>,
        value: &[u8],
        answers: &mut Answers,
    ) -> bool {
        self.steps += 1;
        match number {
            // Written after the damage.
            Some(number) if WRITTEN.contains(&number) => {}
            Some(number) if self.content.version(number).is_none() && !FILLED.contains(&number) => {
                answers.note(Answer::Wrong, || format!("a walk meets {number}, never stored"));
            }
            Some(number) => {
                self.seen.insert(number);
                self.content.judge(number, Some(value), answers);
            }
            None => answers.note(Answer::Wrong, || "a walk meets a key of nobody".to_owned()),
        }
        if self.steps > STEPS_MAX {
            answers.note(Answer::Endless, || "a walk meets more than is stored".to_owned());
        }
        self.steps <= STEPS_MAX
    }

    /// Ends the walk; `told` is the error that it has reported, if any.
    pub(super) fn end(self, told: Option<String>, answers: &mut Answers) {
        if let Some(error) = told {
            answers.note(Answer::Error, || error);
            return;
        }
        for number in self.content.asked() {
            if self.content.version(number).is_some() && !self.seen.contains(&number) {
                answers.note(Answer::Absent, || format!("a walk does not meet {number}"));
            }
        }
    }
}

/// The judgement of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The stored value.
    Right,
    /// An error that reports damage.
    Error,
    /// Nothing, although something was stored.
    Absent,
    /// A value that was replaced or removed later.
    Older,
    /// A value that was never stored.
    Wrong,
    /// More entries than exist.
    Endless,
}

/// Judgements, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Stored values.
    pub right: u64,
    /// Errors that report damage.
    pub errors: u64,
    /// Absent entries that were stored.
    pub absent: u64,
    /// Values that were replaced or removed later.
    pub older: u64,
    /// Values that were never stored.
    pub wrong: u64,
    /// Walks with more entries than exist.
    pub endless: u64,
    /// Description of the first answer that was not right.
    pub first: Option<String>,
    /// The first error.
    pub first_error: Option<String>,
}

impl Answers {
    pub(super) fn note(&mut self, answer: Answer, describe: impl FnOnce() -> String) {
        let count = match answer {
            Answer::Right => &mut self.right,
            Answer::Error => &mut self.errors,
            Answer::Absent => &mut self.absent,
            Answer::Older => &mut self.older,
            Answer::Wrong => &mut self.wrong,
            Answer::Endless => &mut self.endless,
        };
        *count += 1;
        let first = match answer {
            Answer::Right => return,
            Answer::Error => &mut self.first_error,
            _ => &mut self.first,
        };
        if first.is_none() {
            *first = Some(describe());
        }
    }

    /// Number of wrong answers without an error.
    pub fn misleading(&self) -> u64 {
        self.absent + self.older + self.wrong + self.endless
    }
}
