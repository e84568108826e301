//! Checking a whole pool file without changing it.
//!
//! [`check_file`] opens each root whose type is known here, lets it recover in private memory
//! ([`Options::inspect`]), and collects what contradicts itself.

use std::path::Path;

use remanent_blockdev::file::File;
use remanent_engine::{Database, Error as EngineError};
use remanent_pmem::heap::Violation;
use remanent_pmem::pool::RootInfo;
use remanent_pmem::pool::check::CheckReport;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Options, Persistent, Pool};
use remanent_structures::batch_list::{self, BatchList, List, Variant};
use remanent_structures::papers::{Append, BpTree, FlushAlways, Table};
use remanent_structures::{
    AppendVector, Batch, BatchMap, BatchOptions, BlinkTree, Error, ExtendibleMap,
    ExtendibleMultiMap, HashMap, HashMultiMap, Key, Log, Map, OrderedKey, RowIndex, Stored, Vector,
};

use crate::Disk;

/// What [`check_file`] found.
#[derive(Clone, Debug, Default)]
pub struct FileReport {
    /// Chunks of the pool.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// What contradicts itself: of the pool's own part the first thousand.
    pub contradictions: Vec<Contradiction>,
    /// Contradictions that are not named for being too many.
    pub untold: u64,
    /// Roots of types that are known to their programs only: their content was not checked.
    pub unchecked: Vec<RootInfo>,
}

impl FileReport {
    /// Whether nothing contradicts itself.
    pub fn is_whole(&self) -> bool {
        self.contradictions.is_empty()
    }

    /// How many contradictions there are, those that are not named among them.
    pub fn count(&self) -> u64 {
        self.contradictions.len() as u64 + self.untold
    }
}

/// A contradiction, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Name of the root; `None` where the pool itself is concerned.
    pub root: Option<String>,
    /// Pool offset, where it has one.
    pub offset: Option<u64>,
    /// What was found, and what was expected.
    pub what: String,
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.root {
            Some(root) => write!(f, "root {root:?}")?,
            None => f.write_str("pool")?,
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset:#x}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Checks a pool file: its roots, one after the other, and what it keeps of itself.
///
/// No byte of the file changes, and no other process can have it open for use meanwhile. `begin` is
/// called with the name of each root before it is looked at. A structure that is damaged keeps no
/// other one from being checked.
///
/// ```
/// use remanent::check::check_file;
/// use remanent::{ExtendibleMap, Pool};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// ExtendibleMap::<str, u64>::create(&pool, "visits")?.insert("home", &1)?;
/// drop(pool);
/// assert!(check_file(&Pool::options(), &path, |_| ())?.is_whole());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When the file cannot be opened for inspection: it is missing, held by another process, no pool,
/// or its superblocks or its root directory are damaged beyond opening it.
pub fn check_file(
    options: &Options,
    path: &Path,
    mut begin: impl FnMut(&str),
) -> remanent_pmem::Result<FileReport> {
    let mut pool = options.inspect(path)?;
    let mut report = FileReport::default();
    let mut whole = Vec::new();
    for root in pool.roots()? {
        begin(&root.name);
        match check_root(&pool, &root) {
            None => report.unchecked.push(root.clone()),
            Some(found) if found.is_empty() && pool.medium().fault().is_none() => {
                whole.push(root.clone());
            }
            Some(found) => report.add(Some(&root.name), found),
        }
        if let Some(fault) = pool.medium().fault() {
            // A medium remembers its first fault for good: the next root is looked at in another
            // inspection.
            report.add(Some(&root.name), vec![of_pool(&PoolError::Medium(fault))]);
            drop(pool);
            pool = options.inspect(path)?;
        }
    }
    let own = check_own(pool, options, path, &whole)?;
    (report.chunks, report.chunks_used) = (own.chunks, own.chunks_used);
    report.untold = own.untold;
    report.add(None, own.violations);
    Ok(report)
}

/// Checks what the pool keeps of itself, once every whole root has completed in memory what a crash
/// left half done.
fn check_own(
    pool: Pool,
    options: &Options,
    path: &Path,
    whole: &[RootInfo],
) -> remanent_pmem::Result<CheckReport> {
    drop(pool);
    let pool = options.inspect(path)?;
    for root in whole {
        check_root(&pool, root);
    }
    pool.check()
}

impl FileReport {
    fn add(&mut self, root: Option<&str>, found: Vec<Violation>) {
        self.contradictions.extend(found.into_iter().map(|violation| Contradiction {
            root: root.map(str::to_owned),
            offset: (violation.offset != NOWHERE).then_some(violation.offset),
            what: violation.what,
        }));
    }
}

/// Offset of a violation that has none.
const NOWHERE: u64 = u64::MAX;

/// What a check of one root found; `None` when the checker is for another type.
type Found = Option<Vec<Violation>>;

/// Checks the structure under a root; `None` when its type is not known here.
fn check_root(pool: &Pool, root: &RootInfo) -> Found {
    let checkers: &[fn(&Pool, &RootInfo) -> Found] = &[
        check_extendible_map::<[u8], [u8]>,
        check_extendible_map::<[u8], u64>,
        check_extendible_map::<str, str>,
        check_extendible_map::<str, [u8]>,
        check_extendible_map::<str, u64>,
        check_extendible_map::<u64, u64>,
        check_extendible_map::<u64, [u8]>,
        check_extendible_map::<u64, str>,
        check_extendible_multimap::<[u8], [u8]>,
        check_extendible_multimap::<[u8], u64>,
        check_extendible_multimap::<str, str>,
        check_extendible_multimap::<str, [u8]>,
        check_extendible_multimap::<str, u64>,
        check_extendible_multimap::<u64, u64>,
        check_extendible_multimap::<u64, [u8]>,
        check_extendible_multimap::<u64, str>,
        check_row_index,
        check_map::<[u8], [u8]>,
        check_map::<[u8], u64>,
        check_map::<str, str>,
        check_map::<str, [u8]>,
        check_map::<str, u64>,
        check_map::<u64, u64>,
        check_map::<u64, [u8]>,
        check_map::<u64, str>,
        check_multimap::<[u8], [u8]>,
        check_multimap::<[u8], u64>,
        check_multimap::<str, str>,
        check_multimap::<str, [u8]>,
        check_multimap::<str, u64>,
        check_multimap::<u64, u64>,
        check_multimap::<u64, [u8]>,
        check_multimap::<u64, str>,
        check_batch_map::<[u8], [u8]>,
        check_bptree::<u64, u64>,
        check_blink_tree::<u64, u64>,
        check_blink_tree::<u64, [u8]>,
        check_blink_tree::<u64, str>,
        check_blink_tree::<str, u64>,
        check_blink_tree::<str, [u8]>,
        check_blink_tree::<str, str>,
        check_blink_tree::<[u8], u64>,
        check_blink_tree::<[u8], [u8]>,
        check_log::<[u8]>,
        check_log::<str>,
        check_log::<u64>,
        check_vector::<u64>,
        check_vector::<i64>,
        check_vector::<f64>,
        check_vector::<[u64; 2]>,
        check_batches,
        check_disk,
        check_plain_file,
        check_database,
        check_list::<FlushAlways>,
        check_list::<Append>,
        check_list::<batch_list::Log>,
        check_list::<Table>,
    ];
    checkers.iter().find_map(|checker| checker(pool, root))
}

fn check_map<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(HashMap::<K, V>::open(pool, &root.name).and_then(|map| map.check()))
}

fn check_extendible_map<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(ExtendibleMap::<K, V>::open(pool, &root.name).and_then(|map| map.check()))
}

fn check_extendible_multimap<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(ExtendibleMultiMap::<K, V>::open(pool, &root.name).and_then(|map| map.check()))
}

fn check_row_index(pool: &Pool, root: &RootInfo) -> Found {
    of_structure(RowIndex::open(pool, &root.name).and_then(|index| index.check()))
}

fn check_multimap<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(HashMultiMap::<K, V>::open(pool, &root.name).and_then(|map| map.check()))
}

fn check_batch_map<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    // A thread would go on compacting what is being looked at.
    let options = BatchOptions::without_thread();
    let map = BatchMap::<K, V>::open(pool, &root.name, options);
    of_structure(map.and_then(|map| map.check()))
}

fn check_bptree<K: OrderedKey + 'static, V: Stored + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(BpTree::<K, V>::open(pool, &root.name).and_then(|tree| tree.check()))
}

fn check_blink_tree<K: OrderedKey + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &Pool,
    root: &RootInfo,
) -> Found {
    of_structure(BlinkTree::<K, V>::open(pool, &root.name).and_then(|tree| tree.check()))
}

fn check_vector<T: Persistent>(pool: &Pool, root: &RootInfo) -> Found {
    of_structure(Vector::<T>::open(pool, &root.name).and_then(|vector| vector.check())).or_else(
        || {
            let vector = AppendVector::<T>::open(pool, &root.name);
            of_structure(vector.and_then(|vector| vector.check()))
        },
    )
}

fn check_log<V: Stored + ?Sized + 'static>(pool: &Pool, root: &RootInfo) -> Found {
    of_structure(Log::<V>::open(pool, &root.name).and_then(|log| log.check()))
}

fn check_list<V: Variant>(pool: &Pool, root: &RootInfo) -> Found {
    let list = List::<V>::open(pool, &root.name, BatchOptions::without_thread());
    of_structure(list.and_then(|mut list| list.check()))
}

fn check_batches(pool: &Pool, root: &RootInfo) -> Found {
    if root.root_type.name != "Batches" {
        return None;
    }
    of_structure(Batch::new(pool).and_then(|batches| batches.check()))
}

fn check_disk(pool: &Pool, root: &RootInfo) -> Found {
    let is_one = Disk::<Mapped>::is_one(root);
    is_one.then(|| of_block(Disk::open(pool, &root.name).and_then(|disk| disk.check())))
}

fn check_plain_file(pool: &Pool, root: &RootInfo) -> Found {
    let is_one = File::<Mapped>::is_one(root);
    is_one.then(|| of_block(File::open(pool, &root.name).and_then(|file| file.check())))
}

fn check_database(pool: &Pool, root: &RootInfo) -> Found {
    if root.root_type.name != "Database" {
        return None;
    }
    let checked = Database::open(pool, &root.name).and_then(|database| database.check());
    Some(match checked {
        Ok(violations) => violations,
        Err(EngineError::Pool(error)) => vec![of_pool(&error)],
        Err(EngineError::Structure(error)) => of_structure(Err(error)).unwrap_or_default(),
        Err(error) => vec![Violation::new(NOWHERE, error.to_string())],
    })
}

/// What a structure's check found; a structure that cannot be opened is found to be damaged.
fn of_structure(checked: crate::Result<Vec<Violation>>) -> Found {
    match checked {
        Ok(violations) => Some(violations),
        Err(Error::Pool(PoolError::WrongType { .. })) => None,
        Err(Error::Corrupt { offset, what, .. }) => Some(vec![Violation::new(offset, what)]),
        Err(error @ Error::Checksum { offset, .. }) => {
            Some(vec![Violation::new(offset, error.to_string())])
        }
        Err(Error::Pool(error)) => Some(vec![of_pool(&error)]),
        Err(error) => Some(vec![Violation::new(NOWHERE, error.to_string())]),
    }
}

fn of_block(checked: remanent_blockdev::Result<Vec<Violation>>) -> Vec<Violation> {
    match checked {
        Ok(violations) => violations,
        Err(remanent_blockdev::Error::Damaged { violation }) => vec![violation],
        Err(remanent_blockdev::Error::Pool(error)) => vec![of_pool(&error)],
        Err(error) => vec![Violation::new(NOWHERE, error.to_string())],
    }
}

fn of_pool(error: &PoolError) -> Violation {
    match error {
        PoolError::Corrupt { offset, what } => Violation::new(*offset, what.clone()),
        error => Violation::new(NOWHERE, error.to_string()),
    }
}
