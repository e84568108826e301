//! A log: records of any length, one after the other, each at a position that never changes.
//!
//! ```
//! use remanent_pmem::Pool;
//! use remanent_structures::Log;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("example.pool");
//! let pool = Pool::options().create(&path)?;
//! let log: Log<str> = Log::create(&pool, "events")?;
//! let opened = log.append("opened")?; // durable when it returns
//! log.append_many(&["read", "written"])?; // both or neither
//! let closed = log.append("closed")?;
//! drop((log, pool)); // or be killed: it makes no difference
//!
//! let pool = Pool::options().open(&path)?;
//! let log: Log<str> = Log::open(&pool, "events")?;
//! assert_eq!(log.read(opened)?.as_deref(), Some("opened"));
//! let latest = log.iter().rev().next().expect("there are four")?;
//! assert_eq!(latest, (closed, "closed".to_owned()));
//! log.truncate_front(closed)?; // positions stay
//! assert_eq!((log.first(), log.read(opened)?), (closed, None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **Fences.** Appending takes one, for any number of records of any length, and a few more once
//!   per MiB. Truncating takes one, and a few for each MiB. Reading takes none.
//! - **Threads.** Any number append. While one waits for its fence, the others write their records,
//!   and one of these makes all of them durable with the next fence. Any number read without a
//!   lock, and see nothing that a crash can undo.
//! - **A crash** leaves every acknowledged record. Of the others it leaves a prefix: what was
//!   appended in one step is there completely or not at all. Its checksum shows whether a record is
//!   torn.
//! - **Checksums** are compared whenever a record is read.
//! - **Positions** ascend and are never used twice, whatever is truncated. A record is found by its
//!   position in constant time. Records are read forward, backward ([`Records`]), and as they come
//!   ([`Tail`]).
//!
//! # Weak points
//!
//! A log takes at least 1 MiB. Over its life it has room for 64 TiB, including what is truncated.
//! Its directory keeps 8 bytes for each MiB, which opening reads. When the process dies, damage to
//! the last records, less than a MiB, cannot be told from records that never arrived, if it happens
//! before the log is opened again.

mod arrivals;
mod check;
mod core;
mod layout;
mod ops;
mod position;
mod records;
mod recover;
mod root;
mod step;
mod tail;

use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Pool};

pub use self::position::Position;
pub use self::records::Records;
pub use self::tail::Tail;

use self::root::Root;
use crate::stored::Stored;
use crate::{Error, Result};

/// A log in persistent memory, shared by any number of threads; see the [module](self).
///
/// `Log<[u8]>` has records of bytes, and `Log<str>` has records of text. Clones are handles to one
/// log.
pub struct Log<V: Stored + ?Sized = [u8], M: Medium = Mapped> {
    root: Arc<Root<V, M>>,
}

impl<V: Stored + ?Sized, M: Medium> Log<V, M> {
    /// Creates an empty log under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        V: 'static,
    {
        Ok(Log { root: pool.create_root(name)? })
    }

    /// Opens an existing log, whatever state a crash left it in. Reads the records of the last MiB
    /// if the log was not closed properly.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or the log is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        V: 'static,
    {
        Ok(Log { root: pool.open_root(name)? })
    }

    /// Opens a log, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Log::open) and [`create`](Log::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        V: 'static,
    {
        match Self::open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name),
            opened => opened,
        }
    }

    /// Adds a record, and returns its position. One fence.
    ///
    /// # Errors
    ///
    /// When the pool is full ([`Error::is_full`]) or the record has more than 4 GiB; nothing was
    /// changed then. When the medium met a fault.
    pub fn append(&self, record: &V) -> Result<Position> {
        let mut position = Position(0);
        self.root.core.append(&self.root.heap, &[record], |at| position = Position(at))?;
        Ok(position)
    }

    /// Adds records one after the other, all of them or none, and returns their positions. One
    /// fence.
    ///
    /// # Errors
    ///
    /// As for [`append`](Log::append).
    pub fn append_many(&self, records: &[&V]) -> Result<Vec<Position>> {
        let mut positions = Vec::with_capacity(records.len());
        self.root.core.append(&self.root.heap, records, |at| positions.push(Position(at)))?;
        Ok(positions)
    }

    /// A copy of the record at a position. `None` if the position was truncated, or lies at the end
    /// of the log or beyond. No fence.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when no intact record begins there: the record is damaged, or the
    /// position is not one of this log's. When the medium met a fault.
    pub fn read(&self, at: Position) -> Result<Option<V::Owned>> {
        self.read_with(at, V::to_owned)
    }

    /// Passes the record at a position to `use_record`; otherwise as [`read`](Log::read).
    ///
    /// # Errors
    ///
    /// As for [`read`](Log::read).
    pub fn read_with<R>(
        &self,
        at: Position,
        use_record: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let read = |content: &[u8], _| V::with_stored(content, use_record);
        self.root.core.read(&self.root.heap, at.0, read)
    }

    /// The records that are there now, in their order. From the back ([`rev`](Iterator::rev)), the
    /// latest come first.
    pub fn iter(&self) -> Records<'_, V, M> {
        self.iter_from(self.first())
    }

    /// The records that are there now, from a position on.
    pub fn iter_from(&self, from: Position) -> Records<'_, V, M> {
        Records::new(&self.root, from.0, self.end().0)
    }

    /// The records before a position. From the back, the one that ends there comes first.
    pub fn iter_until(&self, to: Position) -> Records<'_, V, M> {
        Records::new(&self.root, self.first().0, to.min(self.end()).0)
    }

    /// A reader of the records from a position on, including records that are appended later.
    pub fn tail(&self, from: Position) -> Tail<V, M> {
        Tail::new(Arc::clone(&self.root), from.0)
    }

    /// Position of the first record that is not truncated. If there is no record, the end.
    pub fn first(&self) -> Position {
        Position(self.root.core.first())
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Position {
        Position(self.root.core.end())
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.first() == self.end()
    }

    /// Removes the records before a position, and gives each MiB without records back to the pool.
    /// The positions of the others stay. Nothing happens if the log was truncated there already.
    /// One fence, and a few for each MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when no intact record begins at the position, and it is not the end. When
    /// the medium met a fault.
    pub fn truncate_front(&self, first: Position) -> Result<()> {
        self.root.core.truncate_front(&self.root.heap, first.0)
    }

    /// Checks that the log and its root are consistent, and that every record is intact. No
    /// operation may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the log is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.root.check()
    }
}

impl<V: Stored + ?Sized, M: Medium> Clone for Log<V, M> {
    fn clone(&self) -> Self {
        Log { root: Arc::clone(&self.root) }
    }
}

impl<V: Stored + ?Sized, M: Medium> fmt::Debug for Log<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut log = f.debug_struct("Log");
        log.field("first", &self.first()).field("end", &self.end()).finish_non_exhaustive()
    }
}
