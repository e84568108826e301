//! Changes to the members of a sorted set: what its intents say, and how they are applied.
//!
//! The encoding is that of the members in turn: a byte of flags, the old score (8 bytes) if the
//! member has one, the new score (8 bytes) if it gets one, and the member with its length in front.

use remanent_structures::{OrderedMap, Result};

use super::super::encoding::{push_text, take, take_text};
use super::super::layout::CollectionId;
use super::layout::SetId;
use super::ranks::RankCache;
use super::score::Score;

/// Changes to the members of one sorted set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Changes(pub(super) Vec<MemberChange>);

/// A member's scores before and after; none where it is not a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberChange {
    pub(super) member: Vec<u8>,
    pub(super) old: Option<Score>,
    pub(super) new: Option<Score>,
}

const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;

impl Changes {
    pub(in crate::keyspace) fn encode(&self, bytes: &mut Vec<u8>) {
        for change in &self.0 {
            let has = |score: Option<Score>, flag| if score.is_some() { flag } else { 0 };
            bytes.push(has(change.old, HAS_OLD) | has(change.new, HAS_NEW));
            for score in [change.old, change.new].into_iter().flatten() {
                bytes.extend_from_slice(&score.to_bytes());
            }
            push_text(bytes, &change.member);
        }
    }

    pub(in crate::keyspace) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            let [flags] = take::<1>(bytes)?;
            let mut score = |flag| match flags & flag {
                0 => Some(None),
                _ => Score::from_bytes(&take::<8>(bytes)?).map(Some),
            };
            let (old, new) = (score(HAS_OLD)?, score(HAS_NEW)?);
            changes.push(MemberChange { member: take_text(bytes)?.to_vec(), old, new });
        }
        Some(Changes(changes))
    }

    pub(in crate::keyspace) fn reversed(&self) -> Self {
        let back = |MemberChange { member, old, new }: &MemberChange| MemberChange {
            member: member.clone(),
            old: *new,
            new: *old,
        };
        Changes(self.0.iter().map(back).collect())
    }

    /// Whether each member is as it was before these changes, or as they make it. A crash in the
    /// middle leaves some members so and some so.
    pub(in crate::keyspace) fn fit(
        &self,
        id: CollectionId,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<bool> {
        for MemberChange { member, old, new } in &self.0 {
            let found = tree.get(&SetId(id).member_key(member)[..])?;
            let is = |score: &Option<Score>| match (&found, score) {
                (Some(found), Some(score)) => found[..] == score.to_bytes(),
                (None, None) => true,
                _ => false,
            };
            if !is(old) && !is(new) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(in crate::keyspace) fn removes_any(&self) -> bool {
        self.0.iter().any(|change| change.new.is_none())
    }

    /// Whether the set is known to have more members than the changes can remove. That the changes
    /// are counted already does not matter.
    pub(in crate::keyspace) fn leave_any(&self, id: CollectionId, cache: &RankCache) -> bool {
        cache.get(SetId(id)).is_some_and(|ranks| ranks.len() > self.0.len() as u64)
    }

    pub(in crate::keyspace) fn new_entries(&self, id: CollectionId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let set = SetId(id);
        let mut entries = Vec::with_capacity(2 * self.0.len());
        for MemberChange { member, new, .. } in &self.0 {
            if let Some(score) = new {
                entries.push((set.score_key(*score, member), score.zero_note().to_vec()));
                entries.push((set.member_key(member), score.to_bytes().to_vec()));
            }
        }
        entries
    }

    pub(in crate::keyspace) fn obsolete_keys(&self, id: CollectionId) -> Vec<Vec<u8>> {
        let set = SetId(id);
        let mut keys = Vec::with_capacity(2 * self.0.len());
        for MemberChange { member, old, new } in &self.0 {
            if let Some(old) = old
                && new.is_none_or(|new| new.to_ordered() != old.to_ordered())
            {
                keys.push(set.score_key(*old, member));
            }
            if new.is_none() {
                keys.push(set.member_key(member));
            }
        }
        keys
    }

    /// Keeps the ranks of the set in step, if they are known.
    pub(in crate::keyspace) fn update_cache(
        &self,
        id: CollectionId,
        cache: &mut RankCache,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) {
        let set = SetId(id);
        let Some(ranks) = cache.get_mut(id) else { return };
        for MemberChange { member, old, new } in &self.0 {
            let keys = [old, new].map(|score| score.map(|score| set.score_key(score, member)));
            if keys[0] == keys[1] {
                continue;
            }
            if let Some(key) = &keys[0] {
                ranks.removed(key);
            }
            if let Some(key) = &keys[1] {
                ranks.added(key);
            }
        }
        let divided = ranks.divide_long(set, tree);
        if ranks.len() == 0 || divided.is_err() {
            cache.forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::{Mapped, Pool};

    use super::super::super::Keyspace;
    use super::super::super::intent::Intent;
    use super::super::super::layout::intent_key;
    use super::super::super::types;
    use super::super::layout::MEMBER_LEN_MAX;
    use super::*;
    use crate::store::{MapStore, Store};

    #[test]
    fn changes_are_read_as_they_were_written() {
        let score = |value| Score::new(value);
        let change = |member: &str, old, new| MemberChange { member: member.into(), old, new };
        let changes = Changes(vec![
            change("new", None, score(1.5)),
            change("", score(-0.0), None),
            change("moved", score(f64::NEG_INFINITY), score(2.0)),
        ]);
        let mut bytes = Vec::new();
        changes.encode(&mut bytes);
        assert_eq!(Changes::decode(&bytes), Some(changes.clone()));
        assert_eq!(changes.reversed().reversed(), changes);
        for len in 0..bytes.len() {
            assert_ne!(Changes::decode(&bytes[..len]), Some(changes.clone()));
        }
    }

    #[test]
    fn what_the_store_refuses_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let pool: Pool<Mapped> = Pool::options().create(directory.path().join("pool")).unwrap();
        let store = MapStore::open(&pool).unwrap();
        // As if an earlier release had not known the limit, and was killed.
        let change =
            |len: usize| MemberChange { member: vec![b'm'; len], old: None, new: Score::new(1.0) };
        let changes = Changes(vec![change(1), change(MEMBER_LEN_MAX + 1)]);
        let changes = types::Changes::SortedSet(changes);
        let intent = Intent { id: CollectionId(1), name: b"z".to_vec(), is_new: true, changes };
        store.create_tree().unwrap().put(&intent_key(3), &intent.encode()).unwrap();
        drop(store);
        let keys = Keyspace::open(MapStore::open(&pool).unwrap()).unwrap();
        assert_eq!(keys.contains(b"z"), Ok(false));
        assert_eq!(keys.store().tree().unwrap().len().unwrap(), 0);
    }

    proptest::proptest! {
        /// Damaged bytes are refused, or read as changes that are encoded alike.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Some(changes) = Changes::decode(&bytes) {
                let mut encoded = Vec::new();
                changes.encode(&mut encoded);
                proptest::prop_assert_eq!(Changes::decode(&encoded), Some(changes));
            }
        }
    }
}
