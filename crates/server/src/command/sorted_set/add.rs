//! Commands that give members scores.

use super::score;
use crate::command::{Call, Failure, Outcome};
use crate::keyspace::KeyError;
use crate::keyspace::sorted_set::{Edit, Need, Score};
use crate::store::Store;

/// The options of `ZADD`.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    only_missing: bool,
    only_present: bool,
    only_greater: bool,
    only_less: bool,
    /// Whether the answer counts changed scores as well as new members.
    counts_changes: bool,
    /// Whether the given score is added to the present one.
    increments: bool,
}

/// What became of a member.
enum Done {
    Nothing,
    Added(Score),
    Changed(Score),
    /// The member has that score already.
    Same(Score),
}

impl AddOptions {
    fn refuse_contradictions(self, members: usize) -> Outcome {
        let directions = usize::from(self.only_greater) + usize::from(self.only_less);
        if self.only_missing && self.only_present {
            return Err(Failure::text("ERR XX and NX options at the same time are not compatible"));
        }
        if directions + usize::from(self.only_missing) > 1 {
            return Err(Failure::text(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && members > 1 {
            return Err(Failure::text("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// Gives `member` a score, as the options say; `None` if the sum of two scores is not a number.
    fn add<T: remanent_structures::OrderedMap<[u8], [u8]>>(
        self,
        set: &mut Edit<'_, T>,
        member: &[u8],
        score: Score,
    ) -> Result<Option<Done>, KeyError> {
        let present = set.score(member)?;
        let Some(old) = present else {
            if self.only_present {
                return Ok(Some(Done::Nothing));
            }
            set.set(member, None, Some(score))?;
            return Ok(Some(Done::Added(score)));
        };
        if self.only_missing {
            return Ok(Some(Done::Nothing));
        }
        let new = if self.increments {
            match Score::new(old.value() + score.value()) {
                Some(sum) => sum,
                None => return Ok(None),
            }
        } else {
            score
        };
        if (self.only_greater && new <= old) || (self.only_less && new >= old) {
            return Ok(Some(Done::Nothing));
        }
        if new == old {
            return Ok(Some(Done::Same(old)));
        }
        set.set(member, present, Some(new))?;
        Ok(Some(Done::Changed(new)))
    }
}

impl<S: Store> Call<'_, S> {
    pub(super) fn zadd(&mut self) -> Outcome {
        let mut options = AddOptions::default();
        let mut first = 2;
        while first < self.request.len() {
            let option = match self.request.get(first).to_ascii_lowercase().as_slice() {
                b"nx" => &mut options.only_missing,
                b"xx" => &mut options.only_present,
                b"gt" => &mut options.only_greater,
                b"lt" => &mut options.only_less,
                b"ch" => &mut options.counts_changes,
                b"incr" => &mut options.increments,
                _ => break,
            };
            *option = true;
            first += 1;
        }
        let words = self.request.len() - first;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Failure::SYNTAX);
        }
        options.refuse_contradictions(words / 2)?;
        let pairs = (first..self.request.len()).step_by(2);
        let scores = pairs.clone().map(|index| score(self.request.get(index)));
        let scores = scores.collect::<Result<Vec<_>, _>>()?;
        let mut pairs = pairs.zip(scores);
        if options.increments {
            let (index, score) = pairs.next().expect("there is one pair");
            return self.increment(options, index + 1, score);
        }
        let (key, copies) = (self.request.get(1), self.shared.copies());
        let count = self.shared.keys.edit_sorted_set(key, Need::Entries, copies, |set| {
            let mut count = 0;
            for (index, score) in pairs {
                let done = options.add(set, self.request.get(index + 1), score)?;
                count += match done {
                    Some(Done::Added(_)) => 1,
                    Some(Done::Changed(_)) => i64::from(options.counts_changes),
                    _ => 0,
                };
            }
            Ok(count)
        })?;
        self.reply.integer(count);
        Ok(())
    }

    pub(super) fn zincrby(&mut self) -> Outcome {
        let score = score(self.request.get(2))?;
        self.increment(AddOptions { increments: true, ..AddOptions::default() }, 3, score)
    }

    /// Adds to the score of the member in argument `member`, and answers the sum.
    fn increment(&mut self, options: AddOptions, member: usize, addend: Score) -> Outcome {
        let (key, copies) = (self.request.get(1), self.shared.copies());
        let done = self.shared.keys.edit_sorted_set(key, Need::Entries, copies, |set| {
            options.add(set, self.request.get(member), addend)
        })?;
        match done {
            None => return Err(Failure::text("ERR resulting score is not a number (NaN)")),
            Some(Done::Nothing) => self.reply.null(),
            Some(Done::Added(score) | Done::Changed(score) | Done::Same(score)) => {
                self.reply.double(score.value());
            }
        }
        Ok(())
    }
}
