//! Maps with several entries for each key: the paper's hash map, and the tree that it is compared
//! with.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Result, ensure};
use remanent_pmem::{Medium, Options, Pool};
use remanent_structures::papers::BpMultiTree;
use remanent_structures::{HashMultiMap, Key, OrderedKey};

use super::Answer;
use crate::report::Ground;
use crate::workloads::entries::Step;

/// A map under test, shared by the threads of a run.
pub(crate) trait MultiMap<K>: Sync {
    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn insert(&self, key: &K, value: u64) -> Result<()>;

    /// Number and sum of the values of a key.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn search(&self, key: &K) -> Result<Answer>;

    /// Removes an entry. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn remove(&self, key: &K, value: u64) -> Result<bool>;

    /// Executes all steps. Returns how many entries they found, and the sum over the searches.
    ///
    /// # Errors
    ///
    /// Those of the map; an entry to be removed does not exist.
    fn run(&self, steps: &[Step<K>]) -> Result<Answer> {
        let mut answer = Answer::default();
        for step in steps {
            match step {
                Step::Insert(key, value) => self.insert(key, *value)?,
                Step::Search(key) => answer = answer.plus(self.search(key)?),
                Step::Remove(key, value) => {
                    ensure!(
                        self.remove(key, *value)?,
                        "entry {value} was inserted and is not there"
                    );
                }
            }
        }
        Ok(answer)
    }
}

/// Both structures have operations of the same names.
macro_rules! multi_map {
    ($map:ident, $key:ident) => {
        impl<K: $key, M: Medium> MultiMap<K> for $map<K, u64, M> {
            fn insert(&self, key: &K, value: u64) -> Result<()> {
                Ok($map::insert(self, key, &value)?)
            }

            fn search(&self, key: &K) -> Result<Answer> {
                let mut answer = Answer::default();
                self.for_each(key, |&value| {
                    answer = answer.plus(Answer { done: 1, sum: value });
                    ControlFlow::Continue(())
                })?;
                Ok(answer)
            }

            fn remove(&self, key: &K, value: u64) -> Result<bool> {
                Ok(self.remove_one(key, &value)?)
            }
        }
    };
}

multi_map!(HashMultiMap, Key);
multi_map!(BpMultiTree, OrderedKey);

/// The structures by their names in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Our hash map: lock-free.
    Hashmap,
    /// Our tree after the paper's: one writer at a time.
    Tree,
}

impl Kind {
    /// All, the paper's own first.
    pub(crate) const ALL: [Kind; 2] = [Kind::Hashmap, Kind::Tree];

    /// Name of the structure in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Hashmap => "NVC-Hashmap",
            Kind::Tree => "NVB+-Tree",
        }
    }

    /// Creates an empty one in a pool.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn create<K: OrderedKey + 'static, M: Medium>(
        self,
        pool: &Pool<M>,
    ) -> Result<Box<dyn MultiMap<K>>> {
        Ok(match self {
            Kind::Hashmap => Box::new(HashMultiMap::<K, u64, M>::create(pool, "bench")?),
            Kind::Tree => Box::new(BpMultiTree::<K, u64, M>::create(pool, "bench")?),
        })
    }

    /// Creates an empty one in a new pool in an empty directory, which is removed with the pool.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn create_in<K: OrderedKey + 'static>(
        self,
        directory: &Path,
        options: &Options,
    ) -> Result<(Box<dyn MultiMap<K>>, Ground)> {
        let pool = options.create(directory.join("multi.pool"))?;
        Ok((self.create(&pool)?, Ground::of_pool(&pool)))
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Emulation;

    use super::*;
    use crate::memory::counting::Counting;
    use crate::memory::pool;
    use crate::workloads::entries::Entries;
    use crate::workloads::keys::{BenchKey, Key40};

    fn exercise<K: BenchKey>(map: &dyn MultiMap<K>) {
        let entries = Entries::new(3000);
        let (audit, expected) = entries.audit();
        assert_eq!(map.run(&audit).expect("the map works"), Answer::default());
        map.run(&entries.inserts()).expect("the map works");
        assert_eq!(map.run(&audit).expect("the map works"), expected);
        let mixed = entries.mixed(1000, 50);
        let found = map.run(&mixed.steps).expect("the map works").done;
        assert!(mixed.allows(found));
        map.run(&mixed.undo).expect("the map works");
        assert_eq!(map.run(&audit).expect("the map works"), expected);
        assert!(map.run(&mixed.undo).is_err(), "what is removed is gone");
    }

    #[test]
    fn all_answer_correctly() {
        for kind in Kind::ALL {
            for emulation in [Emulation::None, Emulation::Nvram] {
                let scratch = || tempfile::tempdir().expect("the temporary directory is writable");
                let (words, bytes, counted) = (scratch(), scratch(), scratch());
                let options = pool::options(emulation);
                exercise(
                    &*kind.create_in::<u64>(words.path(), &options).expect("there is space").0,
                );
                exercise(
                    &*kind.create_in::<Key40>(bytes.path(), &options).expect("there is space").0,
                );
                let pool = Counting::pool(counted.path(), emulation).expect("there is space");
                exercise(&*kind.create::<u64, _>(&pool).expect("there is space"));
                assert_eq!(pool.medium().failed(), 0, "one thread is in nobody's way");
            }
        }
    }
}
