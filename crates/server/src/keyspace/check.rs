//! What must hold of the sorted sets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use remanent_structures::OrderedMap;

use super::Keyspace;
use super::sorted_set::layout::{Entry, Score, SetId, member_hash};
use super::sorted_set::ranks::onward;
use crate::store::{Store, StoreError};

/// What was found of one set.
#[derive(Default)]
struct Found {
    name: Option<Vec<u8>>,
    by_member: BTreeMap<Vec<u8>, Score>,
    by_score: BTreeMap<Vec<u8>, Score>,
}

impl<S: Store> Keyspace<S> {
    /// Everything that contradicts itself in the sorted sets, in words. No command may be under way.
    ///
    /// Takes memory for all members.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut wrong = Vec::new();
        let mut sets = self.collect(&mut wrong)?;
        let mut named = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = self.store.scan(cursor, 1024, |key, stored| {
                if let Some(set) = SetId::referred_to(stored) {
                    named.insert((set, key.to_vec()));
                }
            })?;
            if cursor == 0 {
                break;
            }
        }
        for (set, key) in named {
            match sets.remove(&set) {
                None => wrong.push(format!(
                    "{:?} is set {}, which has no entries",
                    key.escape_ascii().to_string(),
                    set.0
                )),
                Some(found) => found.check(set, &key, &mut wrong),
            }
        }
        // What is left belongs to sets that were removed, and is found by `sweep`.
        Ok(wrong)
    }

    fn collect(&self, wrong: &mut Vec<String>) -> Result<BTreeMap<SetId, Found>, StoreError> {
        let mut sets = BTreeMap::<SetId, Found>::new();
        let Some(tree) = self.store.tree() else { return Ok(sets) };
        let from = SetId(1).name_key();
        tree.ascend(onward(&from), |key, value| {
            let set = SetId::of_entry(key).map(|set| (set, sets.entry(set).or_default()));
            match (set, Entry::read(key, value)) {
                (Some((_, found)), Some(Entry::Name(name))) => found.name = Some(name.to_vec()),
                (Some((_, found)), Some(Entry::Member(hash, member, score)))
                    if hash == member_hash(member) =>
                {
                    found.by_member.insert(member.to_vec(), score);
                }
                (Some((set, found)), Some(Entry::Scored(score, member))) => {
                    if found.by_score.insert(member.to_vec(), score).is_some() {
                        wrong.push(format!("set {} has {} twice", set.0, member.escape_ascii()));
                    }
                }
                _ => wrong.push(format!("the entry {} is none", key.escape_ascii())),
            }
            ControlFlow::Continue(())
        })?;
        Ok(sets)
    }
}

impl Found {
    fn check(&self, set: SetId, key: &[u8], wrong: &mut Vec<String>) {
        if self.name.as_deref() != Some(key) {
            wrong.push(format!("set {} does not know that it is {}", set.0, key.escape_ascii()));
        }
        if self.by_member.is_empty() {
            wrong.push(format!("set {} has no members", set.0));
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
                set.0,
                self.by_member.len(),
                self.by_score.len()
            ));
        }
    }
}
