//! What must hold of a sorted set: both entries of each member say the same.

use std::collections::BTreeMap;

use super::super::layout::CollectionId;
use super::layout::{Entry, member_hash};
use super::score::Score;

/// The members of one sorted set, as its entries of either kind say.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    by_member: BTreeMap<Vec<u8>, Score>,
    by_score: BTreeMap<Vec<u8>, Score>,
}

impl Contents {
    pub(in crate::keyspace) fn add(
        &mut self,
        id: CollectionId,
        key: &[u8],
        value: &[u8],
        wrong: &mut Vec<String>,
    ) {
        match Entry::read(key, value) {
            Some(Entry::Member(hash, member, score)) if hash == member_hash(member) => {
                self.by_member.insert(member.to_vec(), score);
            }
            Some(Entry::Scored(score, member)) => {
                if self.by_score.insert(member.to_vec(), score).is_some() {
                    wrong.push(format!("set {} has {} twice", id.0, member.escape_ascii()));
                }
            }
            _ => wrong.push(format!("the entry {} is none", key.escape_ascii())),
        }
    }

    pub(in crate::keyspace) fn check(&self, id: CollectionId, wrong: &mut Vec<String>) {
        if self.by_member.is_empty() {
            wrong.push(format!("set {} has no members", id.0));
        }
        let identical = self.by_member.len() == self.by_score.len()
            && self
                .by_member
                .iter()
                .zip(&self.by_score)
                .all(|(one, other)| one.0 == other.0 && one.1.is_identical(*other.1));
        if !identical {
            wrong.push(format!(
                "set {} has {} members and {} scores, and they are not the same",
                id.0,
                self.by_member.len(),
                self.by_score.len()
            ));
        }
    }
}
