//! What is stored, as a function of numbers, and how answers about it are judged.

use std::collections::BTreeSet;
use std::ops::Range;

use remanent_crashsim::Rng;

/// Entries that a structure has from the start.
const FILLED: Range<u64> = 0..400;
/// Entries that come later.
const ADDED: Range<u64> = 400..500;
/// Entries that are never stored.
const MISSING: Range<u64> = 700..740;
/// Entries that are written once the pool is damaged, and not judged.
const WRITTEN: Range<u64> = 1000..1080;

/// How much was ever stored under a number, and what is stored now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Whether entries are replaced and removed, or only added.
    pub(super) changes: bool,
    pub(super) values: Values,
}

/// How long values are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// Eight bytes.
    Word,
    /// Up to 300 bytes, but for a few that have so many.
    Bytes { long: u64 },
    /// All alike.
    Blocks { len: u64 },
}

/// One step of the history.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Put(u64, Version),
    Remove(u64),
}

/// How often an entry was replaced.
pub(super) type Version = u64;

impl Content {
    /// The steps that fill a structure.
    pub(super) fn fill(self) -> impl Iterator<Item = Step> {
        FILLED.map(|number| Step::Put(number, 0))
    }

    /// The steps that change it afterwards.
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

    /// Numbers that are asked for.
    pub(super) fn asked(self) -> impl Iterator<Item = u64> {
        FILLED.chain(ADDED).chain(MISSING)
    }

    /// What is stored under a number in the end.
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

    /// Whether anything is stored under a number in the end.
    pub(super) fn is_stored(self, number: u64) -> bool {
        self.version(number).is_some()
    }

    /// What belongs under a number.
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

    /// Judges what was found under a number.
    pub(super) fn judge(self, number: u64, found: Option<&[u8]>, answers: &mut Answers) {
        self.judge_as(number, found, |number, version| self.value(number, version), answers);
    }

    /// As [`judge`](Content::judge), where something that follows from the value is stored.
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

    /// Judges what was found under a number in a copy that was made before anything changed.
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

    /// Judges what a walk over all entries has found.
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

/// Entries that a walk may meet: more than there ever are.
const STEPS_MAX: u64 = 4000;

impl Walk {
    /// Notes an entry; whether to go on. A number that nobody stored is `None`.
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

    /// Ends the walk; `told` is whether it has reported an error.
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

/// One answer to a question about what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As it was stored.
    Right,
    /// An error, which says that something is damaged.
    Error,
    /// Nothing, where something was stored.
    Absent,
    /// What was stored before something replaced or removed it.
    Older,
    /// Something else.
    Wrong,
    /// More than can be there.
    Endless,
}

/// Answers, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// As it was stored.
    pub right: u64,
    /// Errors, which say that something is damaged.
    pub errors: u64,
    /// Nothing, where something was stored.
    pub absent: u64,
    /// What was stored before something replaced or removed it.
    pub older: u64,
    /// Something else.
    pub wrong: u64,
    /// Walks that went on behind all that can be there.
    pub endless: u64,
    /// The first that was not right, in words.
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

    /// Answers that misled without a word.
    pub fn misleading(&self) -> u64 {
        self.absent + self.older + self.wrong + self.endless
    }
}
