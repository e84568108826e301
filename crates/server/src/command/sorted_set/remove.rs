//! Taking members away.

use super::range::{By, ranks};
use super::{Failure, Members};
use crate::command::{Call, Outcome, Verb};
use crate::keyspace::{KeyError, Need, Score, Selection, SetEdit};
use crate::resp::{Protocol, parse_u64};
use crate::store::Store;

/// Takes members away that were just visited.
fn remove_all<T: remanent_structures::OrderedMap<[u8], [u8]>>(
    set: &mut SetEdit<'_, T>,
    members: &[(Vec<u8>, Score)],
) -> Result<(), KeyError> {
    for (member, score) in members {
        set.set(member, Some(*score), None)?;
    }
    Ok(())
}

impl<S: Store> Call<'_, S> {
    pub(super) fn zrem(&mut self) -> Outcome {
        let count = self.shared.keys.edit_set(self.request.get(1), Need::Entries, |set| {
            let mut count = 0;
            for member in self.request.iter().skip(2) {
                if let Some(score) = set.score(member)? {
                    set.set(member, Some(score), None)?;
                    count += 1;
                }
            }
            Ok(count)
        })?;
        self.reply.integer(count);
        Ok(())
    }

    pub(super) fn zpop(&mut self, backwards: bool) -> Outcome {
        let limit = match self.request.len() {
            2 => 1,
            3 => parse_u64(self.request.get(2))
                .filter(|&limit| i64::try_from(limit).is_ok())
                .ok_or(Failure::text("ERR value is out of range, must be positive"))?,
            _ => return Err(Failure::SYNTAX),
        };
        let selection = Selection { backwards, skip: 0, limit };
        let popped = self.shared.keys.edit_set(self.request.get(1), Need::Entries, |set| {
            let mut members = Vec::new();
            if let Some(before) = set.before() {
                before
                    .visit_end(selection, |member, score| members.push((member.to_vec(), score)))?;
            }
            remove_all(set, &members)?;
            Ok(members)
        })?;
        let mut members = Members::new(self.reply, self.shared.config.output_len_max, true);
        // One pair is an array of its own only where several could have been asked for.
        members.nested = self.reply.protocol() == Protocol::Resp3 && self.request.len() == 3;
        for (member, score) in popped {
            members.push(&member, score);
        }
        members.answer(self.reply);
        Ok(())
    }

    pub(super) fn zremrange(&mut self, verb: Verb) -> Outcome {
        let mut members = Vec::new();
        let key = self.request.get(1);
        if verb == Verb::ZRemRangeByRank {
            let (start, stop) = (self.number(2)?, self.number(3)?);
            self.shared.keys.edit_set(key, Need::Ranks, |set| {
                if let Some(before) = set.before() {
                    let (start, limit) = ranks(start, stop, before.len());
                    before.visit_ranks(start, limit, false, |member, score| {
                        members.push((member.to_vec(), score));
                    })?;
                }
                remove_all(set, &members)
            })?;
        } else {
            let by = if verb == Verb::ZRemRangeByScore { By::Score } else { By::Lex };
            let range = self.range(by, 2, 3)?;
            self.shared.keys.edit_set(key, Need::Entries, |set| {
                if let Some(before) = set.before() {
                    before.visit(&range, Selection::ALL, |member, score| {
                        members.push((member.to_vec(), score));
                    })?;
                }
                remove_all(set, &members)
            })?;
        }
        self.reply.integer(members.len() as i64);
        Ok(())
    }
}
