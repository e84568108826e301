//! Commands that remove members.

use super::Members;
use super::range::{By, ranks};
use crate::command::{Call, Failure, Outcome};
use crate::keyspace::KeyError;
use crate::keyspace::sorted_set::{Edit, Need, Score, Selection, View};
use crate::memory::Share;
use crate::resp::{Protocol, parse_u64};
use crate::store::Store;

/// Members that are to be removed.
struct Collected {
    members: Vec<(Vec<u8>, Score)>,
    /// The clients' memory that they take.
    share: Share,
    is_refused: bool,
}

/// Bytes of memory that a member takes besides its own.
const MEMBER_OVERHEAD: usize = 64;

impl Collected {
    fn new(share: Share) -> Self {
        Collected { members: Vec::new(), share, is_refused: false }
    }

    fn push(&mut self, member: &[u8], score: Score) {
        let has_room = self.share.grow(member.len() + MEMBER_OVERHEAD);
        if has_room && self.members.try_reserve(1).is_ok() {
            self.members.push((member.to_vec(), score));
        } else {
            self.is_refused = true;
        }
    }

    /// Removes the members, unless there was no memory for all of them.
    fn remove<T: remanent_structures::OrderedMap<[u8], [u8]>>(
        &self,
        set: &mut Edit<'_, T>,
    ) -> Result<(), KeyError> {
        if self.is_refused {
            return Err(KeyError::NoMemory);
        }
        for (member, score) in &self.members {
            set.set(member, Some(*score), None)?;
        }
        Ok(())
    }

    /// About how many bytes an answer with all members needs.
    fn answer_len(&self) -> usize {
        self.members.iter().map(|(member, _)| member.len() + MEMBER_OVERHEAD).sum()
    }
}

impl<S: Store> Call<'_, S> {
    pub(super) fn zrem(&mut self) -> Outcome {
        let (key, copies) = (self.request.get(1), self.shared.copies());
        let count = self.shared.keys.edit_sorted_set(key, Need::Entries, copies, |set| {
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

    pub(super) fn zpopmin(&mut self) -> Outcome {
        self.pop(false)
    }

    pub(super) fn zpopmax(&mut self) -> Outcome {
        self.pop(true)
    }

    fn pop(&mut self, backwards: bool) -> Outcome {
        let limit = match self.request.len() {
            2 => 1,
            3 => parse_u64(self.request.get(2))
                .filter(|&limit| i64::try_from(limit).is_ok())
                .ok_or(Failure::text("ERR value is out of range, must be positive"))?,
            _ => return Err(Failure::SYNTAX),
        };
        // One more than asked for shows whether the set goes on.
        let selection = Selection { backwards, skip: 0, limit: limit.saturating_add(1) };
        // A member and its score are an array of their own only if the request has a count.
        let nested = self.reply.protocol() == Protocol::Resp3 && self.request.len() == 3;
        let mut collected = Collected::new(self.shared.copies());
        let (key, copies) = (self.request.get(1), self.shared.copies());
        let reply = &mut *self.reply;
        let edited = self.shared.keys.edit_sorted_set(key, Need::Entries, copies, |set| {
            let mut visited = 0;
            if let Some(before) = set.before() {
                let walked = before.visit_end(selection, |member, score| {
                    visited += 1;
                    if visited <= limit {
                        collected.push(member, score);
                    }
                });
                // Damage behind the members that were asked for does not concern them.
                if visited < limit {
                    walked?;
                }
            }
            if visited > limit {
                set.keeps_a_member();
            }
            // The answer must have room before anything is removed.
            if !reply.reserve(collected.answer_len()) {
                return Err(KeyError::NoMemory);
            }
            collected.remove(set)
        });
        if let (Err(KeyError::NoMemory), Some(reason)) = (&edited, self.reply.failure()) {
            return Err(Failure::Answer(reason));
        }
        edited?;
        let mut members = Members::new(self.reply, true);
        members.nested = nested;
        for (member, score) in &collected.members {
            members.push(member, *score);
        }
        members.finish();
        Ok(())
    }

    pub(super) fn zremrangebyrank(&mut self) -> Outcome {
        let (start, stop) = (self.number(2)?, self.number(3)?);
        self.remove_found(Need::Ranks, |before, collected| {
            let (start, limit) = ranks(start, stop, before.len());
            before.visit_ranks(start, limit, false, |member, score| collected.push(member, score))
        })
    }

    pub(super) fn zremrangebyscore(&mut self) -> Outcome {
        self.remove_range(By::Score)
    }

    pub(super) fn zremrangebylex(&mut self) -> Outcome {
        self.remove_range(By::Lex)
    }

    fn remove_range(&mut self, by: By) -> Outcome {
        let range = self.range(by, 2, 3)?;
        self.remove_found(Need::Entries, |before, collected| {
            let push = |member: &[u8], score| collected.push(member, score);
            before.visit(&range, Selection::ALL, push)
        })
    }

    /// Removes the members that `find` collects, and answers how many there are.
    fn remove_found(
        &mut self,
        need: Need,
        find: impl FnOnce(&View<'_, S::Tree>, &mut Collected) -> Result<(), KeyError>,
    ) -> Outcome {
        let mut collected = Collected::new(self.shared.copies());
        let copies = self.shared.copies();
        self.shared.keys.edit_sorted_set(self.request.get(1), need, copies, |set| {
            if let Some(before) = set.before() {
                find(before, &mut collected)?;
            }
            collected.remove(set)
        })?;
        self.reply.integer(collected.members.len() as i64);
        Ok(())
    }
}
