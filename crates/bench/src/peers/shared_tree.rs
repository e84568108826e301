//! Ordered maps of words used by several threads: ours, and the standard library's behind a lock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::RwLock;

use anyhow::{Result, anyhow};
use remanent_pmem::Emulation;
use remanent_structures::BlinkTree;

use super::Answer;
use super::ordered::{Operation, Ordered, perform};
use crate::memory::pool;
use crate::report::Ground;

/// A map under test, used by several threads at a time.
pub(crate) trait SharedTree: Send + Sync {
    /// Performs one operation on every key of a batch.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn run(&self, operation: Operation, keys: &[u64]) -> Result<Answer>;
}

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The default map, flushing.
    Blink,
    /// The map of the standard library; each operation takes its lock.
    LockedStd,
}

impl Kind {
    /// All, ours first.
    pub(crate) const ALL: [Kind; 2] = [Kind::Blink, Kind::LockedStd];

    /// Name of the map in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Blink => "remanent",
            Kind::LockedStd => "std BTreeMap, RwLock",
        }
    }

    /// Makes an empty map in an empty directory, which is removed after it.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub(crate) fn create(self, directory: &Path) -> Result<(Box<dyn SharedTree>, Ground)> {
        Ok(match self {
            Kind::Blink => {
                let options = pool::options(Emulation::Nvram);
                let pool = options.create(directory.join("shared.pool"))?;
                let tree = BlinkTree::<u64, u64>::create(&pool, "bench")?;
                (Box::new(tree), Ground::of_pool(&pool))
            }
            Kind::LockedStd => (Box::new(RwLock::new(BTreeMap::new())), Ground::volatile()),
        })
    }
}

impl SharedTree for BlinkTree<u64, u64> {
    fn run(&self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        perform(self, operation, keys)
    }
}

impl SharedTree for RwLock<BTreeMap<u64, u64>> {
    fn run(&self, operation: Operation, keys: &[u64]) -> Result<Answer> {
        let poisoned = || anyhow!("another thread has panicked");
        let mut answer = Answer::default();
        for key in keys {
            let one = match operation {
                Operation::Lookup => {
                    let map = self.read().map_err(|_| poisoned())?;
                    map.get(key).map_or_else(Answer::default, |&sum| Answer { done: 1, sum })
                }
                _ => {
                    let mut map = self.write().map_err(|_| poisoned())?;
                    map.run(operation, std::slice::from_ref(key))?
                }
            };
            answer = answer.plus(one);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ordered::Truth;
    use super::*;
    use crate::measure::timed;
    use crate::workloads::keys::distinct;

    #[test]
    fn both_answer_correctly() {
        let keys = distinct::<u64>(0, 3000);
        let truth = Truth::new(&keys);
        for kind in Kind::ALL {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            let (map, _) = kind.create(scratch.path()).expect("there is space");
            for operation in Operation::ALL {
                let work = |keys: &[u64]| map.run(operation, keys);
                let (_, answers) = timed(&keys, 3, work).expect("the map works");
                let answer = answers.into_iter().fold(Answer::default(), Answer::plus);
                truth.verify(operation, &keys, answer).expect("the answers are right");
            }
        }
    }
}
