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
//! # Which structure
//!
//! | structure | use it for |
//! |---|---|
//! | [`HashMap`] | entries that are looked up by key; any number of threads, without locks |
//! | [`HashMultiMap`] | an index: several values for one key |
//! | [`BlinkTree`] | entries in the order of their keys: ranges, the first, the next |
//! | [`BatchMap`] | many writes whose durability may lag by some milliseconds, within a bound that you set |
//! | [`Vector`], [`AppendVector`] | elements of one size by their index |
//! | [`Log`] | records in the order of their arrival, which are dropped from the front |
//! | [`Tx`], [`SharedTx`], [`transactional`] | a small struct, each of whose methods is one atomic step |
//! | [`TxValue`] | one value of any length that is replaced as a whole |
//! | [`batch_list`] | a list in an order of yours, made durable in batches |
//! | [`Disk`] | blocks, for programs that want a device: writes and transactions of any number of blocks are atomic |
//!
//! [`papers`] has the structures of our papers as they are described there: for comparison, not for use.
//!
//! # Keys and values
//!
//! Integers, text, bytes, tuples of these, and structs with `#[derive(Stored)]`: see [`Stored`], [`Key`] and [`OrderedKey`].
//! With the feature `serde`, values of any type that serde can serialize and deserialize:
//! `Encoded`.
//!
//! # Maps
//!
//! All maps read and change one entry as one atomic step: `insert`, `put`, `update`, `remove`;
//! `modify` and `try_modify`, which decide by what is there; `swap`, `compare_exchange` and
//! `get_or_insert_with`. `extend`, `retain`, `keys`, `values` and `for` loops are as in the
//! standard library, but that each may report an error of the medium. A [`BlinkTree`] has
//! `range("a".."b")`, `prefix`, `first`, `last`, `pop_first`, `pop_last`, `remove_range` and
//! `bulk_load` beside them. [`Map`] and [`OrderedMap`] are for code that works on any map.
//!
//! # An index that follows a map
//!
//! A call on one structure is one atomic step; calls on two are two. So write the index
//! first and remove from it last: then each entry of the map is in the index, whatever crash comes, and what leads nowhere in
//! the index is passed over and removed:
//!
//! ```
//! use remanent::{BlinkTree, Change, HashMap, Pool, Result, Stored};
//!
//! #[derive(Clone, Stored)]
//! struct Session {
//!     user: u64,
//!     expires_unix_s: u64,
//! }
//!
//! struct Sessions {
//!     by_token: HashMap<str, Session>,
//!     /// What expires when; may have entries whose session is gone, or expires later.
//!     by_expiry: BlinkTree<(u64, String), ()>,
//! }
//!
//! impl Sessions {
//!     fn start(&self, token: &str, session: &Session) -> Result<()> {
//!         // The index first: a crash in between leaves an entry that leads nowhere, which `expire` removes. The other
//!         // way round it would leave a session that never expires.
//!         self.by_expiry.put(&(session.expires_unix_s, token.to_owned()), &())?;
//!         self.by_token.put(token, session)?;
//!         Ok(())
//!     }
//!
//!     fn expire(&self, now_unix_s: u64) -> Result<()> {
//!         for entry in self.by_expiry.range(..(now_unix_s, String::new())) {
//!             let (key, ()) = entry?;
//!             // One step: another thread may prolong the session at this moment.
//!             self.by_token.modify(&key.1, |session| match session {
//!                 Some(session) if session.expires_unix_s <= now_unix_s => (Change::<Session>::Remove, ()),
//!                 _ => (Change::Keep, ()),
//!             })?;
//!             self.by_expiry.discard(&key)?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let pool = Pool::options().create(directory.path().join("sessions.pool"))?;
//! let sessions = Sessions {
//!     by_token: HashMap::open_or_create(&pool, "sessions")?,
//!     by_expiry: BlinkTree::open_or_create(&pool, "sessions by expiry")?,
//! };
//! sessions.start("a", &Session { user: 1, expires_unix_s: 100 })?;
//! sessions.start("b", &Session { user: 2, expires_unix_s: 200 })?;
//! sessions.expire(150)?;
//! assert!(sessions.by_token.get("a")?.is_none());
//! assert_eq!(sessions.by_token.get("b")?.map(|session| session.user), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Beside the structures
//!
//! - [`Pool`] is the file: it says what it guarantees ([`Backing`], [`Durability`]), and holds structures under names.
//!   [`Options::create_in_memory`] makes one without a file, a flush or a fence: for indexes that are rebuilt, and for tests.
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
    AppendVector, Batch, BatchMap, BatchOptions, BlinkTree, Change, Error, HashMap, HashMultiMap,
    Iter, Key, KeyRange, Log, Map, OrderedKey, OrderedMap, PrefixKey, Range, Result, SharedTx,
    Stored, Transactional, Tx, TxArray, TxValue, Vector, transactional,
};
#[cfg(feature = "serde")]
pub use remanent_structures::{Encoded, EncodingError};
