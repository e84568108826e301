//! Ordered maps of words: ours, the paper's tree, a volatile one, and two databases.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Result, ensure};
use remanent_pmem::{Emulation, Pool};
use remanent_structures::papers::BpTree;
use remanent_structures::{BlinkTree, OrderedMap};

use super::Answer;
use crate::memory::pool;
use crate::report::{Ground, backing_of};

/// Entries that a scan visits.
pub(crate) const SCAN_LEN: usize = 100;
/// Entries that a database writes in one transaction.
pub(super) const BATCH_LEN: usize = 100_000;

/// An operation of a map on each key of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Operation {
    /// Inserts the absent key, with the key as its value.
    Insert = 0,
    /// Finds the present key.
    Lookup = 1,
    /// Visits entries from the key on.
    Scan = 2,
    /// Removes the present key.
    Remove = 3,
}

impl Operation {
    /// All, in the order in which a round performs them.
    pub(crate) const ALL: [Operation; 4] =
        [Operation::Insert, Operation::Lookup, Operation::Scan, Operation::Remove];

    /// Name of the operation in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Insert => "insert",
            Operation::Lookup => "lookup",
            Operation::Scan => "scan",
            Operation::Remove => "remove",
        }
    }
}

/// A map under test, used by one thread.
pub(crate) trait Ordered {
    /// Performs one operation on every key of a batch.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn run(&mut self, operation: Operation, keys: &[u64]) -> Result<Answer>;
}

/// The right answers of a map that holds all of these keys.
pub(crate) struct Truth {
    sorted: Vec<u64>,
    /// Wrapping sums of the first keys, from none to all.
    sums: Vec<u64>,
}

impl Truth {
    /// The answers of a map with these keys, each of which is its own value.
    pub(crate) fn new(keys: &[u64]) -> Self {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let mut sums = vec![0; sorted.len() + 1];
        for (at, key) in sorted.iter().enumerate() {
            sums[at + 1] = key.wrapping_add(sums[at]);
        }
        Truth { sorted, sums }
    }

    /// Refuses an answer that does not fit the keys.
    ///
    /// # Errors
    ///
    /// When the answer is wrong.
    pub(crate) fn verify(&self, operation: Operation, keys: &[u64], answer: Answer) -> Result<()> {
        let expected = match operation {
            Operation::Insert | Operation::Remove => Answer { done: keys.len() as u64, sum: 0 },
            Operation::Lookup => self.expected(keys, 1),
            Operation::Scan => self.expected(keys, SCAN_LEN),
        };
        let name = operation.name();
        ensure!(
            answer == expected,
            "wrong answers to {name}: got {answer:?}, expected {expected:?}"
        );
        Ok(())
    }

    fn expected(&self, keys: &[u64], len: usize) -> Answer {
        keys.iter().fold(Answer::default(), |total, key| {
            let from = self.sorted.partition_point(|present| present < key);
            let to = (from + len).min(self.sorted.len());
            let sum = self.sums[to].wrapping_sub(self.sums[from]);
            total.plus(Answer { done: (to - from) as u64, sum })
        })
    }
}

/// The default map, and the maps that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The default map, flushing.
    Blink,
    /// Our tree after the paper's, flushing.
    Nvb,
    /// The map of the standard library.
    Std,
    #[cfg(has_lmdb)]
    Lmdb,
    Redb,
}

impl Kind {
    /// All that were found at build time, ours first.
    pub(crate) const ALL: &[Kind] = &[
        Kind::Blink,
        Kind::Nvb,
        Kind::Std,
        #[cfg(has_lmdb)]
        Kind::Lmdb,
        Kind::Redb,
    ];

    /// Name of the map in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Blink => "remanent",
            Kind::Nvb => "NVB+-Tree",
            Kind::Std => "std BTreeMap",
            #[cfg(has_lmdb)]
            Kind::Lmdb => "LMDB",
            Kind::Redb => "redb",
        }
    }

    /// Creates an empty map in an empty directory, which is removed with it.
    ///
    /// # Errors
    ///
    /// When the map cannot be created.
    pub(crate) fn create(self, directory: &Path) -> Result<(Box<dyn Ordered>, Ground)> {
        Ok(match self {
            Kind::Blink => in_pool(directory, |pool| BlinkTree::create(pool, "bench"))?,
            Kind::Nvb => in_pool(directory, |pool| BpTree::create(pool, "bench"))?,
            Kind::Std => (Box::new(BTreeMap::new()), Ground::volatile()),
            #[cfg(has_lmdb)]
            Kind::Lmdb => {
                let tree = super::lmdb_tree::LmdbTree::create(directory)?;
                let terms = "MDB_NOSYNC | MDB_WRITEMAP: what is committed survives the death of the process; \
                             power loss may break the whole database";
                (Box::new(tree), unsynced(directory, "process", terms)?)
            }
            Kind::Redb => {
                let tree = super::redb_tree::RedbTree::create(directory)?;
                let terms = "Durability::None: the death of the process or power loss takes everything since the last \
                             commit that was synced, and none is";
                (Box::new(tree), unsynced(directory, "none", terms)?)
            }
        })
    }
}

fn in_pool<T: OrderedMap<u64, u64> + 'static>(
    directory: &Path,
    create: impl FnOnce(&Pool) -> remanent_structures::Result<T>,
) -> Result<(Box<dyn Ordered>, Ground)> {
    let pool = pool::options(Emulation::Nvram).create(directory.join("ordered.pool"))?;
    Ok((Box::new(InPool(create(&pool)?)), Ground::of_pool(&pool)))
}

/// The guarantee of a database without sync.
fn unsynced(directory: &Path, durability: &str, terms: &str) -> Result<Ground> {
    let promise = format!(
        "{terms}; a transaction for {BATCH_LEN} entries that are written, one for all that are read"
    );
    Ok(Ground::new(backing_of(directory)?, durability, "none", &promise))
}

/// A map of ours, which keeps its pool open.
struct InPool<T>(T);

impl<T: OrderedMap<u64, u64>> Ordered for InPool<T> {
    fn run(&mut self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        perform(&self.0, operation, keys)
    }
}

/// Performs one operation on every key of a batch.
///
/// # Errors
///
/// Where the map reports one.
pub(super) fn perform(
    map: &impl OrderedMap<u64, u64>,
    operation: Operation,
    keys: &[u64],
) -> Result<Answer> {
    let mut answer = Answer::default();
    for key in keys {
        match operation {
            Operation::Insert => answer.done += u64::from(map.insert(key, key)?),
            Operation::Lookup => {
                if let Some(sum) = map.get(key)? {
                    answer = answer.plus(Answer { done: 1, sum });
                }
            }
            Operation::Scan => {
                let mut left = SCAN_LEN;
                map.ascend(key.., |_, &sum| {
                    answer = answer.plus(Answer { done: 1, sum });
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            Operation::Remove => answer.done += u64::from(map.discard(key)?),
        }
    }
    Ok(answer)
}

impl Ordered for BTreeMap<u64, u64> {
    fn run(&mut self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        let mut answer = Answer::default();
        let add = |answer: Answer, &sum: &u64| answer.plus(Answer { done: 1, sum });
        for key in keys {
            match operation {
                Operation::Insert => answer.done += u64::from(self.insert(*key, *key).is_none()),
                Operation::Lookup => answer = self.get(key).into_iter().fold(answer, add),
                Operation::Scan => {
                    let values = self.range(key..).map(|(_, value)| value);
                    answer = values.take(SCAN_LEN).fold(answer, add);
                }
                Operation::Remove => answer.done += u64::from(self.remove(key).is_some()),
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::keys::distinct;

    #[test]
    fn all_answer_correctly() {
        let keys = distinct::<u64>(0, 3000);
        let truth = Truth::new(&keys);
        for kind in Kind::ALL {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            let (mut map, ground) = kind.create(scratch.path()).expect("there is space");
            assert!(!ground.promise.is_empty());
            for operation in Operation::ALL {
                let answer = map.run(operation, &keys).expect("the map works");
                truth.verify(operation, &keys, answer).expect("the answers are right");
                let again = map.run(operation, &keys).expect("the map works");
                let changes = matches!(operation, Operation::Insert | Operation::Remove);
                assert_eq!(again != answer, changes, "{} {}", kind.name(), operation.name());
            }
            let gone = map.run(Operation::Scan, &[0]).expect("the map works");
            assert_eq!(gone, Answer::default(), "removed keys are gone");
            assert!(truth.verify(Operation::Scan, &keys, gone).is_err());
        }
    }

    #[test]
    fn no_rival_is_missing_where_all_were_installed() {
        if std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_some() {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            assert_eq!(names, ["remanent", "NVB+-Tree", "std BTreeMap", "LMDB", "redb"]);
        }
    }
}
