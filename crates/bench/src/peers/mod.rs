//! The contenders: Remanent and its rivals, behind common interfaces.

#[allow(unsafe_code, reason = "loads and calls a foreign library")]
pub(crate) mod aspectc;
#[cfg(has_berkeley_db)]
#[allow(unsafe_code, reason = "calls the C shim of a foreign library")]
pub(crate) mod berkeley_db;
#[cfg(has_berkeley_db)]
#[allow(unsafe_code, reason = "is called by a C shim")]
pub(crate) mod berkeley_files;
pub(crate) mod block;
pub(crate) mod buffer;
#[cfg(any(has_tbb, has_libcuckoo))]
#[allow(unsafe_code, reason = "calls the C++ shims of foreign libraries")]
pub(crate) mod cpp_map;
pub(crate) mod crate_maps;
#[cfg(has_berkeley_db)]
pub(crate) mod disk_files;
#[cfg(has_lmdb)]
#[allow(unsafe_code, reason = "calls the C shim of a foreign library")]
mod lmdb_tree;
pub(crate) mod multi;
pub(crate) mod nbd;
pub(crate) mod ordered;
#[cfg(has_pmemblk)]
#[allow(unsafe_code, reason = "calls the C shim of a foreign library")]
mod pmemblk;
#[cfg(has_pmemobj)]
#[allow(unsafe_code, reason = "calls the C shim of a foreign library")]
pub(crate) mod pmemobj;
#[cfg(has_pmemobj)]
#[allow(unsafe_code, reason = "calls the C shim of a foreign library")]
pub(crate) mod pmemobj_buffer;
mod redb_tree;
pub(crate) mod redis;
pub(crate) mod remanent_map;
pub(crate) mod remanent_serve;
pub(crate) mod resp;
pub(crate) mod row_maps;
pub(crate) mod server;
pub(crate) mod shared_tree;
#[allow(unsafe_code, reason = "reads what the C shims of foreign libraries wrote")]
mod shim;
mod single;
#[allow(unsafe_code, reason = "hands functions of a foreign library to another one")]
pub(crate) mod sqlite_vfs;
pub(crate) mod stores;

use std::hash::Hash;

use anyhow::{Result, ensure};
use remanent_pmem::heap::Usage;
use remanent_structures::Key;

use crate::workloads::keys::BenchKey;

/// An operation of a map on each key of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub(crate) enum Operation {
    /// Inserts the absent key with its value.
    Insert = 0,
    /// Finds the present key.
    Lookup = 1,
    /// Replaces the present key's value by its complement.
    Update = 2,
    /// Looks up the first key of each pair and inserts the second.
    Mixed = 3,
    /// Removes the present key.
    Remove = 4,
}

impl Operation {
    /// All, in the order in which a round performs them.
    pub(crate) const ALL: [Operation; 5] = [
        Operation::Insert,
        Operation::Lookup,
        Operation::Update,
        Operation::Mixed,
        Operation::Remove,
    ];

    /// Name of the operation in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Insert => "insert",
            Operation::Lookup => "lookup",
            Operation::Update => "update",
            Operation::Mixed => "mixed",
            Operation::Remove => "remove",
        }
    }
}

/// The result of a batch of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Answer {
    /// Number of successful operations.
    pub(crate) done: u64,
    /// Wrapping sum of the values found.
    pub(crate) sum: u64,
}

impl Answer {
    /// Both together.
    #[inline(always)]
    pub(crate) fn plus(self, other: Answer) -> Self {
        Answer { done: self.done + other.done, sum: self.sum.wrapping_add(other.sum) }
    }

    /// The answer of a correct map for `keys`, with or without a preceding update.
    fn expected<K: BenchKey>(operation: Operation, keys: &[K], updated: bool) -> Self {
        let step = match operation {
            Operation::Lookup => 1,
            Operation::Mixed => 2,
            _ => return Answer { done: keys.len() as u64, sum: 0 },
        };
        let values = keys.iter().step_by(step).map(|key| key.value());
        let values = values.map(|value| if updated { !value } else { value });
        Answer { done: keys.len() as u64, sum: values.fold(0, u64::wrapping_add) }
    }
}

/// A key of every hash map here.
pub(crate) trait MapKey: BenchKey + Key + Hash + Eq {}
impl<K: BenchKey + Key + Hash + Eq> MapKey for K {}

/// A map under test, shared by the threads of a run.
pub(crate) trait Map<K>: Sync {
    /// Performs one operation on every key of a batch.
    ///
    /// # Errors
    ///
    /// Where the map reports one.
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer>;

    /// Whether so many threads may run the operation.
    fn allows(&self, operation: Operation, threads: usize) -> bool {
        let _ = (operation, threads);
        true
    }

    /// Space that the map takes in its pool; `None` for a map that has none.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    fn usage(&self) -> Result<Option<Usage>> {
        Ok(None)
    }
}

/// Refuses a measurement with wrong answers.
///
/// # Errors
///
/// When the answers of all threads together do not fit the keys.
pub(crate) fn verify<K: BenchKey>(
    operation: Operation,
    keys: &[K],
    updated: bool,
    answers: &[Answer],
) -> Result<()> {
    let total = answers.iter().copied().fold(Answer::default(), Answer::plus);
    let expected = Answer::expected(operation, keys, updated);
    ensure!(
        total == expected,
        "wrong answers to {}: got {total:?}, expected {expected:?}",
        operation.name()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::keys::{Key40, distinct};
    use crate::workloads::values::{BenchValue, Value100};

    /// Every rival must pass the verification of its measurements.
    pub(super) fn exercise<K: BenchKey>(map: &dyn Map<K>) {
        let (old, new) = (distinct::<K>(0, 1000), distinct::<K>(1000, 1000));
        let pairs: Vec<K> = old.iter().zip(&new).flat_map(|(old, new)| [*old, *new]).collect();
        let mut updated = false;
        for operation in Operation::ALL {
            let keys = if operation == Operation::Mixed { &pairs } else { &old };
            let answer = map.run(operation, keys).expect("the map works");
            verify(operation, keys, updated, &[answer]).expect("the answers are right");
            updated |= operation == Operation::Update;
        }
        let gone = map.run(Operation::Lookup, &old).expect("the map works");
        assert_eq!(gone, Answer::default(), "removed keys are gone");
        assert!(verify(Operation::Lookup, &old, true, &[gone]).is_err());
    }

    /// Every rival must answer correctly, scenario after scenario on the same buffer.
    fn exercise_buffer(buffer: &mut dyn buffer::Buffer) {
        for scenario in buffer::Scenario::ALL.into_iter().chain(buffer::Scenario::ALL) {
            buffer::run_right(buffer, scenario, 300).expect("the answers are right");
        }
    }

    #[test]
    fn buffers_of_ours_answer_correctly() {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        exercise_buffer(&mut *buffer::plain());
        exercise_buffer(&mut *buffer::nvram(scratch.path()).expect("there is space").0);
        exercise_buffer(&mut *buffer::pcm(scratch.path()).expect("there is space").0);
    }

    #[cfg(has_pmemobj)]
    #[test]
    fn buffers_of_pmemobj_answer_correctly() {
        use pmemobj_buffer::Form;
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        for form in [Form::Object, Form::Fields] {
            let (mut buffer, _) =
                pmemobj_buffer::create(scratch.path(), form).expect("there is space");
            exercise_buffer(&mut *buffer);
        }
    }

    #[test]
    fn the_woven_buffer_answers_correctly() {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        let Some(library) = aspectc::load().expect("the aspect compiles and loads") else {
            // As for the server's clients: where they are required, none may be missing.
            assert!(std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_none(), "ag++ is missing");
            return;
        };
        let (mut buffer, _) = library.create(scratch.path()).expect("there is space");
        exercise_buffer(&mut *buffer);
    }

    /// A map of each kind of entries must answer correctly: with words, and with values of words
    /// and records for 40-byte keys.
    macro_rules! exercise_all {
        (|$k:ident, $v:ident| $map:expr) => {{
            fn one<$k: MapKey, $v: BenchValue>() -> Box<dyn Map<$k>> {
                Box::new($map)
            }
            exercise(&*one::<u64, u64>());
            exercise(&*one::<Key40, u64>());
            exercise(&*one::<Key40, Value100>());
        }};
    }

    #[cfg(has_tbb)]
    #[test]
    fn tbb_answers_correctly() {
        use cpp_map::{CppMap, TBB_HASH, TBB_UNORDERED};
        exercise_all!(|K, V| CppMap::<K>::new::<V>(&TBB_UNORDERED).expect("the shim has it"));
        exercise_all!(|K, V| CppMap::<K>::new::<V>(&TBB_HASH).expect("the shim has it"));
        assert!(CppMap::<u64>::new::<Value100>(&TBB_HASH).is_err(), "there is no such shim");
    }

    #[cfg(has_libcuckoo)]
    #[test]
    fn libcuckoo_answers_correctly() {
        use cpp_map::{CUCKOO, CppMap};
        exercise_all!(|K, V| CppMap::<K>::new::<V>(&CUCKOO).expect("the shim has it"));
    }

    #[test]
    fn maps_of_crates_answer_correctly() {
        exercise_all!(|K, V| crate_maps::Dash::<K, V>::default());
        exercise_all!(|K, V| crate_maps::Papaya::<K, V>::default());
    }

    #[cfg(has_pmemobj)]
    #[test]
    fn pmemobj_answers_correctly() {
        exercise_all!(|K, V| {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            pmemobj::PmemobjMap::<K, V>::create(scratch.path(), 4000).expect("there is space")
        });
    }

    #[test]
    fn remanent_answers_correctly() {
        use remanent_map::RemanentMap;
        use remanent_pmem::Emulation::{None, Nvram};
        use remanent_structures::{ExtendibleMap, HashMap};
        exercise_all!(|K, V| {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            RemanentMap::<HashMap<K, V>, K, V>::create(scratch.path(), 1 << 30, None)
                .expect("there is space")
        });
        exercise_all!(|K, V| {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            RemanentMap::<ExtendibleMap<K, V>, K, V>::create(scratch.path(), 1 << 30, Nvram)
                .expect("there is space")
        });
    }
}
