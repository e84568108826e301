//! Lock-free data structures in one memory-mapped file that is whole again the moment it is opened,
//! whatever killed the process that wrote it.
//!
//! ```
//! use remanent::{Change, HashMap, Pool};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("visits.pool");
//! let pool = Pool::options().size_max(1 << 30).open_or_create(&path)?;
//! let visits = HashMap::<str, u64>::open_or_create(&pool, "visits")?;
//!
//! visits.insert("home", &1)?; // durable when it returns
//! visits.modify("home", |count| (Change::Put(count.copied().unwrap_or(0) + 1), ()))?;
//!
//! drop((visits, pool)); // or be killed: it makes no difference
//! let pool = Pool::options().open(&path)?;
//! let visits = HashMap::<str, u64>::open(&pool, "visits")?;
//! assert_eq!(visits.get("home")?, Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Pool`] is the file: it says what it guarantees ([`Backing`], [`Durability`]), and holds
//!   structures under names.
//! - [`Options::create_in_memory`] makes a pool in plain memory, without a file, a flush or a fence: for indexes that are rebuilt,
//!   and for tests.
//! - [`HashMap`] and [`HashMultiMap`] are shared by any number of threads, without locks. Keys and
//!   values are integers, text, bytes, tuples, and structs of these with `#[derive(Stored)]` ([`Stored`], [`Key`],
//!   [`OrderedKey`]).
//! - [`BatchMap`] acknowledges writes at once and makes them safe in batches; [`batch_list`] does so for a list whose
//!   order is yours.
//! - [`Log`] has records of any length, at positions that stay.
//! - [`Vector`] and [`AppendVector`] are arrays that grow without moving.
//! - [`transactional`] makes each method of a small struct one atomic, durable transaction; [`Tx`] and
//!   [`SharedTx`] do the same for any plain data, and [`TxValue`] is a value that is replaced.
//! - [`Disk`] is a block device: writes and transactions of any number of blocks are whole or were not.
//! - [`pmem`] has the medium, the allocator and the typestate of unpublished objects, for those who
//!   build structures of their own. Test them with the crate `remanent-crashsim`.
//!
//! The command `remanent`, with its server, is the package `remanent-cli`.
#![forbid(unsafe_code)]

pub mod check;

pub use remanent_blockdev as blockdev;
pub use remanent_pmem as pmem;
pub use remanent_structures as structures;

pub use remanent_blockdev::Disk;
pub use remanent_pmem::{Backing, Durability, Emulation, Latency, Options, Pool, PoolInfo};
pub use remanent_structures::batch_list;
pub use remanent_structures::papers;
pub use remanent_structures::{
    AppendVector, BatchMap, BatchOptions, BlinkTree, Change, Error, HashMap, HashMultiMap, Key,
    Log, Map, OrderedKey, OrderedMap, Range, Result, SharedTx, Stored, Transactional, Tx, TxArray,
    TxValue, Vector, transactional,
};
