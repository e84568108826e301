//! The maps that are compared, and what they took.

use std::path::Path;

use anyhow::Result;
use remanent_pmem::Emulation;
use remanent_structures::{ExtendibleMap, HashMap, Map as Structure};

use crate::measure::Samples;
#[cfg(any(has_tbb, has_libcuckoo))]
use crate::peers::cpp_map::{self, CppMap, Shim};
use crate::peers::crate_maps::{Dash, Papaya};
use crate::peers::remanent_map::{Kind, RemanentMap};
use crate::peers::{Map, MapKey, Operation};
use crate::report::Ground;
use crate::workloads::values::BenchValue;

/// The bucketed map.
pub(super) const EXTENDIBLE_NVRAM: &str = "extendible nvram";
pub(super) const EXTENDIBLE_MEMORY: &str = "extendible memory";
/// The paper's map.
pub(super) const NVRAM: &str = "remanent nvram";
pub(super) const MEMORY: &str = "remanent memory";
pub(super) const TBB: &str = "TBB volatile";
pub(super) const PMEMOBJ: &str = "libpmemobj";

/// Bytes for each key by which a pool may grow: several times what a key needs.
const POOL_LEN_PER_KEY: u64 = 512;

/// Makes an empty map for so many keys in a directory.
type Build<K> = fn(&Path, usize) -> Result<(Box<dyn Map<K>>, Ground)>;

/// A kind of map and what it took.
pub(super) struct Contender<K> {
    pub(super) name: &'static str,
    pub(super) build: Build<K>,
    pub(super) threads: usize,
    pub(super) ground: Ground,
    /// Wall-clock nanoseconds per operation, all threads together.
    pub(super) wall_ns: [Samples; Operation::ALL.len()],
    /// CPU nanoseconds per operation.
    pub(super) cpu_ns: [Samples; Operation::ALL.len()],
    /// Bytes in the pool for each entry, after the inserts: of the blocks in use, and of the map's
    /// chunks.
    pub(super) block_len: Samples,
    pub(super) chunk_len: Samples,
}

impl<K> Contender<K> {
    fn new(name: &'static str, threads: usize, build: Build<K>) -> Self {
        Contender {
            name,
            build,
            threads,
            ground: Ground::volatile(),
            wall_ns: Default::default(),
            cpu_ns: Default::default(),
            block_len: Samples::new(),
            chunk_len: Samples::new(),
        }
    }
}

/// The bucketed map in persistent memory.
pub(super) fn extendible<K: MapKey, V: BenchValue>(threads: usize) -> Contender<K> {
    Contender::new(EXTENDIBLE_NVRAM, threads, |dir, keys| {
        remanent::<ExtendibleMap<K, V>, K, V>(dir, keys, Emulation::Nvram)
    })
}

/// All that are here. Those that claims compare come first, so that a small group has them
/// together.
pub(super) fn contenders<K: MapKey, V: BenchValue>(threads: usize) -> Vec<Contender<K>> {
    let new = |name, build: Build<K>| Contender::new(name, threads, build);
    vec![
        extendible::<K, V>(threads),
        new(NVRAM, |dir, keys| remanent::<HashMap<K, V>, K, V>(dir, keys, Emulation::Nvram)),
        #[cfg(has_tbb)]
        new(TBB, |_, _| cpp::<K, V>(&cpp_map::TBB_UNORDERED)),
        #[cfg(has_pmemobj)]
        new(PMEMOBJ, |dir, keys| {
            let map = crate::peers::pmemobj::PmemobjMap::<K, V>::create(dir, keys)?;
            let ground = map.ground()?;
            Ok((Box::new(map), ground))
        }),
        new(EXTENDIBLE_MEMORY, |dir, keys| {
            remanent::<ExtendibleMap<K, V>, K, V>(dir, keys, Emulation::None)
        }),
        new(MEMORY, |dir, keys| remanent::<HashMap<K, V>, K, V>(dir, keys, Emulation::None)),
        #[cfg(has_tbb)]
        new("TBB hash map volatile", |_, _| cpp::<K, V>(&cpp_map::TBB_HASH)),
        #[cfg(has_libcuckoo)]
        new("libcuckoo volatile", |_, _| cpp::<K, V>(&cpp_map::CUCKOO)),
        new("dashmap volatile", |_, _| volatile(Dash::<K, V>::default())),
        new("papaya volatile", |_, _| volatile(Papaya::<K, V>::default())),
    ]
}

fn remanent<T: Kind + Structure<K, V> + 'static, K: MapKey, V: BenchValue>(
    dir: &Path,
    keys: usize,
    emulation: Emulation,
) -> Result<(Box<dyn Map<K>>, Ground)> {
    let size_max = (1 << 30) + keys as u64 * POOL_LEN_PER_KEY;
    let map = RemanentMap::<T, K, V>::create(dir, size_max, emulation)?;
    let ground = map.ground();
    Ok((Box::new(map), ground))
}

#[cfg(any(has_tbb, has_libcuckoo))]
fn cpp<K: MapKey, V: BenchValue>(shim: &'static Shim) -> Result<(Box<dyn Map<K>>, Ground)> {
    volatile(CppMap::new::<V>(shim)?)
}

fn volatile<K: MapKey>(map: impl Map<K> + 'static) -> Result<(Box<dyn Map<K>>, Ground)> {
    Ok((Box::new(map), Ground::volatile()))
}

/// Minimal number of fences for an operation on an entry of `entry_len` bytes. The mixed one
/// inserts every other time.
pub(super) fn fence_budget(contender: &str, entry_len: usize, operation: Operation) -> u32 {
    // Two words, or else a record, which is durable before the bucket leads to it.
    let fences_to_place = if entry_len <= 16 { 1 } else { 2 };
    match (contender, operation) {
        (_, Operation::Lookup) => 0,
        (_, Operation::Mixed) => 1,
        (EXTENDIBLE_NVRAM, Operation::Insert | Operation::Remove) => fences_to_place,
        (NVRAM, Operation::Insert) => 2,
        (EXTENDIBLE_NVRAM | NVRAM, _) => 1,
        _ => 0,
    }
}
