//! What transactions did, as their threads saw it, and its digest: what each of them read and
//! appended.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers in a list. A number is appended to a list once, by whatever transaction.
pub(super) type List = Vec<u16>;

/// A transaction. Those of one thread are in the order in which it made them.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    pub(super) thread: usize,
    pub(super) steps: Vec<Step>,
    pub(super) is_committed: bool,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The list of a key, as it was found.
    Read(u32, List),
    /// This number was appended to the list of a key.
    Append(u32, u16),
    /// It sees what was committed by now.
    Refresh,
    /// A batch begins. There may be others in it.
    Begin,
    /// The batch is a part of the transaction.
    End,
    /// The batch was taken back.
    TakeBack,
}

/// What a transaction did at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) thread: usize,
    /// Lists as they were without its own numbers.
    pub(super) reads: BTreeMap<u32, List>,
    /// What it has committed.
    pub(super) appends: BTreeMap<u32, List>,
}

/// What transactions did.
#[derive(Debug, Default)]
pub(super) struct Digest {
    pub(super) nodes: Vec<Node>,
    /// Numbers that were never committed, by the keys of their lists.
    pub(super) taken_back: BTreeSet<(u32, u16)>,
}

impl Digest {
    /// Digests a history. Each transaction has to see its own numbers, and to read a list twice as
    /// it was read first; or else this says which one does not, and what it saw.
    ///
    /// One that was given up counts as having read. What one has read before it saw a later moment
    /// counts as another one, which the same thread made before, unless it had changed the list by
    /// then: nobody else could change that any more. But if transactions are to be serializable,
    /// all that one has read that was committed has to be so at one moment.
    pub(super) fn of(
        history: &[Transaction],
        is_serializable: bool,
    ) -> Result<Self, (usize, String)> {
        let mut digest = Digest::default();
        for (number, transaction) in history.iter().enumerate() {
            digest.add(transaction, is_serializable).map_err(|what| (number, what))?;
        }
        Ok(digest)
    }

    fn add(&mut self, transaction: &Transaction, is_serializable: bool) -> Result<(), String> {
        let mut reads: BTreeMap<u32, List> = BTreeMap::new();
        let mut own: BTreeMap<u32, List> = BTreeMap::new();
        let mut before_batches = Vec::new();
        let node = |reads, appends| Node { thread: transaction.thread, reads, appends };
        for step in &transaction.steps {
            match step {
                Step::Read(key, list) => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    let Some(others) = list.strip_suffix(own) else {
                        return Err(format!("it has appended {own:?} to {key}, and read {list:?}"));
                    };
                    let before = reads.entry(*key).or_insert_with(|| others.to_vec());
                    if before != others {
                        return Err(format!("it has read {key} as {before:?} and as {others:?}"));
                    }
                }
                Step::Append(key, number) => own.entry(*key).or_default().push(*number),
                Step::Refresh if is_serializable && transaction.is_committed => {}
                Step::Refresh => {
                    let is_own = |key: &u32| own.get(key).is_some_and(|list| !list.is_empty());
                    let (kept, earlier) = reads.into_iter().partition(|(key, _)| is_own(key));
                    self.nodes.push(node(earlier, BTreeMap::new()));
                    reads = kept;
                }
                Step::Begin => before_batches.push(own.clone()),
                Step::End => drop(before_batches.pop()),
                Step::TakeBack => {
                    let before = before_batches.pop().ok_or("no batch has begun")?;
                    let lost = std::mem::replace(&mut own, before);
                    self.take_back(lost, &own);
                }
            }
        }
        if !transaction.is_committed {
            self.take_back(std::mem::take(&mut own), &BTreeMap::new());
        }
        own.retain(|_, list| !list.is_empty());
        self.nodes.push(node(reads, own));
        Ok(())
    }

    /// Notes numbers that were appended and never committed, but those that are kept.
    fn take_back(&mut self, lost: BTreeMap<u32, List>, kept: &BTreeMap<u32, List>) {
        for (key, list) in lost {
            let kept = kept.get(&key).map_or(0, Vec::len);
            self.taken_back.extend(list[kept..].iter().map(|number| (key, *number)));
        }
    }
}
