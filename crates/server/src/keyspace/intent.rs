//! What a change to a sorted set is about to do, so that a crash in the middle of it can be made up for.

use super::sorted_set::layout::{Score, SetId};

/// A change to one sorted set. Whatever part of it was done already, doing it all again completes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Intent {
    pub(super) set: SetId,
    /// The key under which the store has the set.
    pub(super) name: Vec<u8>,
    /// Whether the set is there only from now on.
    pub(super) is_new: bool,
    pub(super) changes: Vec<MemberChange>,
}

/// What becomes of a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberChange {
    pub(super) member: Vec<u8>,
    pub(super) old: Option<Score>,
    pub(super) new: Option<Score>,
}

/// The first byte of a stored intent.
const VERSION: u8 = 1;
const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;

impl Intent {
    /// As it is stored: version, set, whether it is new, the name, and each member with its scores.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.set.0.to_le_bytes());
        bytes.push(self.is_new.into());
        push_text(&mut bytes, &self.name);
        for change in &self.changes {
            let has = |score: Option<Score>, flag| if score.is_some() { flag } else { 0 };
            bytes.push(has(change.old, HAS_OLD) | has(change.new, HAS_NEW));
            for score in [change.old, change.new].into_iter().flatten() {
                bytes.extend_from_slice(&score.to_bytes());
            }
            push_text(&mut bytes, &change.member);
        }
        bytes
    }

    /// Reads what [`encode`](Intent::encode) wrote; `None` when that is not what it is.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Intent> {
        let bytes = &mut bytes;
        if take::<1>(bytes)? != [VERSION] {
            return None;
        }
        let set = SetId(u64::from_le_bytes(take(bytes)?));
        let is_new = take::<1>(bytes)? != [0];
        let name = take_text(bytes)?.to_vec();
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
        Some(Intent { set, name, is_new, changes })
    }

    /// What takes the change back, wherever it had stopped.
    pub(super) fn reversed(&self) -> Intent {
        let back = |MemberChange { member, old, new }: &MemberChange| MemberChange {
            member: member.clone(),
            old: *new,
            new: *old,
        };
        Intent { changes: self.changes.iter().map(back).collect(), is_new: false, ..self.clone() }
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text);
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take(bytes)?);
    let (text, rest) = bytes.split_at_checked(len as usize)?;
    *bytes = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_is_read_as_it_was_written() {
        let score = |value| Score::new(value);
        let change = |member: &str, old, new| MemberChange { member: member.into(), old, new };
        let intent = Intent {
            set: SetId(3),
            name: b"key".to_vec(),
            is_new: true,
            changes: vec![
                change("new", None, score(1.5)),
                change("", score(-0.0), None),
                change("moved", score(f64::NEG_INFINITY), score(2.0)),
            ],
        };
        let bytes = intent.encode();
        assert_eq!(Intent::decode(&bytes), Some(intent.clone()));
        assert_eq!(intent.reversed().reversed(), Intent { is_new: false, ..intent });
        for len in 0..bytes.len() {
            assert_ne!(
                Intent::decode(&bytes[..len]).map(|read| read.encode()),
                Some(bytes.clone())
            );
        }
    }

    proptest::proptest! {
        /// What damage makes of an intent is read as one that is stored alike, or not at all.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, sound_start: bool) {
            let mut bytes = bytes;
            if sound_start && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            if let Some(intent) = Intent::decode(&bytes) {
                proptest::prop_assert_eq!(Intent::decode(&intent.encode()), Some(intent));
            }
        }
    }
}
