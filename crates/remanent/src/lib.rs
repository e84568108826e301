//! Concurrent data structures in one memory-mapped file that is consistent the moment it is opened,
//! whatever killed the process that wrote it.
//!
//! ```
//! use remanent::{Change, ExtendibleMap, Pool};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("visits.pool");
//! let pool = Pool::options().size_max(1 << 30).open_or_create(&path)?;
//! let visits = ExtendibleMap::<str, u64>::open_or_create(&pool, "visits")?;
//!
//! visits.insert("home", &1)?; // durable when it returns
//! visits.modify("home", |count| (Change::Put(count.copied().unwrap_or(0) + 1), ()))?;
//!
//! drop((visits, pool)); // or be killed: it makes no difference
//! let pool = Pool::options().open(&path)?;
//! let visits = ExtendibleMap::<str, u64>::open(&pool, "visits")?;
//! assert_eq!(visits.get("home")?, Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which structure
//!
//! | structure | use it for |
//! |---|---|
//! | [`ExtendibleMap`] | entries that are looked up by key; any number of threads |
//! | [`ExtendibleMultiMap`] | the same, with several values for one key |
//! | [`HashMap`] | the same without locks, slower: a thread that is stopped stops no other |
//! | [`HashMultiMap`] | several values for one key, without locks |
//! | [`RowIndex`] | an index of rows that lie elsewhere: 8 bytes and no fence a row |
//! | [`BlinkTree`] | entries in the order of their keys: ranges, the first, the next |
//! | [`Batch`] | changes of several entries, also of several maps, atomically |
//! | [`BatchMap`] | many writes that may become durable milliseconds later, within a set bound |
//! | [`Vector`] | elements of one size by their index: replaced, and removed from the end |
//! | [`AppendVector`] | elements that stay as they are: readers get slices of them, not copies |
//! | [`Log`] | records of any length in the order of their arrival, dropped from the front |
//! | [`Tx`], [`SharedTx`], [`transactional`] | a small struct whose methods are atomic; a counter |
//! | [`TxArray`] | many such structs, by their index |
//! | [`TxValue`] | one value of any length that is replaced as a whole |
//! | [`batch_list`] | a list in an order of yours, made durable in batches |
//! | [`structures::shared`] | several structures under one root, whose operations share fences |
//! | [`Disk`] | a block device; a transaction of any number of blocks is atomic |
//! | [`engine`] | tables with keys, read as of one moment |
//!
//! [`papers`] has the structures of our papers as they are described there: for comparison, not for
//! use.
//!
//! Five programs of a few pages show them at work. They can be killed at any time and run again:
//!
//! - [`examples/session_store.rs`][1]: a map and an index of it, kept together by `Batch`.
//! - [`examples/job_queue.rs`][2]: jobs with priorities, each of which is run at least once.
//! - [`examples/time_series.rs`][3]: samples by their time, averages, retention; and why a tree.
//! - [`examples/bank.rs`][4]: tables, and a transaction that goes on after a `kill -9`.
//! - [`examples/work_queue.rs`][5]: workers that lock rows; each job is done exactly once.
//!
//! [1]: https://github.com/remanent/remanent/blob/HEAD/crates/remanent/examples/session_store.rs
//! [2]: https://github.com/remanent/remanent/blob/HEAD/crates/remanent/examples/job_queue.rs
//! [3]: https://github.com/remanent/remanent/blob/HEAD/crates/remanent/examples/time_series.rs
//! [4]: https://github.com/remanent/remanent/blob/HEAD/crates/remanent/examples/bank.rs
//! [5]: https://github.com/remanent/remanent/blob/HEAD/crates/remanent/examples/work_queue.rs
//!
//! # Keys and values
//!
//! Integers, floats, text, bytes, tuples of these, and structs with `#[derive(Stored)]`: see
//! [`Stored`], [`Key`] and [`OrderedKey`]. With the feature `serde`, values of any type that serde
//! can serialize and deserialize: `Encoded`.
//!
//! # Maps
//!
//! All maps read and change one entry atomically: `insert`, `put`, `update`, `remove`;
//! `modify` and `try_modify`, which decide by what is there; `swap`, `compare_exchange` and
//! `get_or_insert_with`. `extend`, `retain`, `keys`, `values` and `for` loops are as in the
//! standard library, except that each may report an error. A [`BlinkTree`] has
//! `range("a".."b")`, `prefix`, `first`, `last`, `pop_first`, `pop_last`, `remove_range` and
//! `bulk_load` beside them. [`Map`] and [`OrderedMap`] are for code that works on any map.
//!
//! # An index that follows a map
//!
//! A call on one structure is atomic; two calls are not. A [`Batch`] makes changes to several maps
//! atomic, so that the index has each entry of the map, and no other, after any crash. It
//! [expects](Batch::expect) the entry that it was made from, so that other threads cannot come
//! between:
//!
//! ```
//! use remanent::{Batch, BlinkTree, Error, ExtendibleMap, Pool, Result, Stored};
//!
//! #[derive(Clone, Stored)]
//! struct Session {
//!     user: u64,
//!     expires_unix_s: u64,
//! }
//!
//! struct Sessions {
//!     pool: Pool,
//!     by_token: ExtendibleMap<str, Session>,
//!     by_expiry: BlinkTree<(u64, String), ()>,
//! }
//!
//! impl Sessions {
//!     fn put(&self, token: &str, session: &Session) -> Result<()> {
//!         loop {
//!             let mut batch = Batch::new(&self.pool)?;
//!             let old = self.by_token.get(token)?;
//!             batch.expect(&self.by_token, token, old.as_ref())?;
//!             if let Some(old) = old {
//!                 batch.remove(&self.by_expiry, &(old.expires_unix_s, token.to_owned()))?;
//!             }
//!             batch.put(&self.by_token, token, session)?;
//!             batch.put(&self.by_expiry, &(session.expires_unix_s, token.to_owned()), &())?;
//!             match batch.commit() {
//!                 Err(Error::Conflict) => {} // another thread was quicker: once more
//!                 done => return done.map(drop), // durable
//!             }
//!         }
//!     }
//!
//!     /// Removes the sessions that expire at `now_unix_s` or before.
//!     fn expire(&self, now_unix_s: u64) -> Result<()> {
//!         for key in self.by_expiry.range(..(now_unix_s + 1, String::new())) {
//!             let (key, ()) = key?;
//!             let mut batch = Batch::new(&self.pool)?;
//!             batch.expect(&self.by_expiry, &key, Some(&()))?;
//!             batch.remove(&self.by_token, key.1.as_str())?;
//!             batch.remove(&self.by_expiry, &key)?;
//!             match batch.commit() {
//!                 Err(Error::Conflict) => {} // it was prolonged
//!                 done => drop(done?),
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let pool = Pool::options().create(directory.path().join("sessions.pool"))?;
//! let sessions = Sessions {
//!     by_token: ExtendibleMap::open_or_create(&pool, "sessions")?,
//!     by_expiry: BlinkTree::open_or_create(&pool, "sessions by expiry")?,
//!     pool,
//! };
//! sessions.put("a", &Session { user: 1, expires_unix_s: 100 })?;
//! sessions.put("b", &Session { user: 2, expires_unix_s: 100 })?;
//! sessions.put("b", &Session { user: 2, expires_unix_s: 200 })?;
//! sessions.expire(100)?;
//! assert!(sessions.by_token.get("a")?.is_none());
//! assert_eq!(sessions.by_token.get("b")?.map(|session| session.user), Some(2));
//! assert_eq!(sessions.by_expiry.len()?, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two calls in the right order do without the batch, and take fewer fences, if the
//! index may have entries that lead nowhere: write to the index first and remove from it last. Then
//! each entry of the map is in the index after any crash. A reader of the index looks the entry up
//! in the map and passes over what is gone or has changed; whoever cleans up removes such entries
//! with [`modify`](ExtendibleMap::modify) on the map, which sees the present value, and then from
//! the index.
//!
//! # Beside the structures
//!
//! - [`Pool`] is the file: it says what it guarantees ([`Backing`], [`Durability`]), and holds
//!   structures under names. [`Options::create_in_memory`] makes one without a file, a flush or a
//!   fence: for indexes that are rebuilt, and for tests.
//! - [`pmem`] has the medium, the allocator and the typestate of unpublished objects, for those who
//!   build structures of their own. Test them with the crate `remanent-crashsim`.
//!
//! The command `remanent`, with its server, is the package `remanent-cli`.
#![forbid(unsafe_code)]

#[cfg(feature = "check")]
pub mod check;

pub use remanent_blockdev as blockdev;
pub use remanent_engine as engine;
pub use remanent_pmem as pmem;
pub use remanent_structures as structures;

pub use remanent_blockdev::Disk;
pub use remanent_pmem::{Backing, Durability, Emulation, Latency, Options, Pool, PoolInfo};
pub use remanent_structures::batch_list;
pub use remanent_structures::papers;
pub use remanent_structures::{
    AppendVector, Batch, BatchMap, BatchOptions, BlinkTree, Change, Error, ExtendibleMap,
    ExtendibleMultiMap, HashMap, HashMultiMap, Iter, Key, KeyRange, Log, Map, OrderedKey,
    OrderedMap, PrefixKey, Range, Result, RowId, RowIndex, SharedTx, Stored, Transactional, Tx,
    TxArray, TxValue, Vector, transactional,
};
#[cfg(feature = "serde")]
pub use remanent_structures::{Encoded, EncodingError};
