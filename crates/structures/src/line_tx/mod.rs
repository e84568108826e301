//! Cache-line transactions: a small object changes atomically and durably, for one flush and one
//! fence.
//!
//! After *Cache-Line Transactions* (PLOS 2019). An object of at most 31 bytes lies twice in one
//! cache line, beside a byte that selects the valid half. A transaction writes the other half and
//! then that byte; the line is flushed and fenced. Stores to one line become durable in their
//! order, so there is nothing to undo or to recover. The paper adds transactions to C++ classes by
//! an aspect. Here the attribute [`transactional`](crate::transactional) does:
//!
//! ```
//! use remanent_pmem::Pool;
//! use remanent_structures::{Transactional, transactional};
//!
//! #[transactional]
//! struct BoundedBuffer {
//!     bytes: [u8; 29],
//!     next_in: u8,
//!     next_out: u8,
//! }
//!
//! #[transactional]
//! impl BoundedBuffer {
//!     fn add_byte(&mut self, byte: u8) {
//!         if (self.next_in + 1) % 29 == self.next_out { return; }
//!         self.bytes[self.next_in as usize] = byte;
//!         self.next_in = (self.next_in + 1) % 29;
//!     }
//!
//!     fn get_byte(&mut self) -> u8 {
//!         if self.next_out == self.next_in { return 0; }
//!         let byte = self.bytes[self.next_out as usize];
//!         self.next_out = (self.next_out + 1) % 29;
//!         byte
//!     }
//! }
//! # let dir = tempfile::tempdir()?;
//! # let pool = Pool::options().create(dir.path().join("example.pool"))?;
//! let empty = BoundedBuffer { bytes: [0; 29], next_in: 0, next_out: 0 };
//! let mut buffer = empty.create(&pool, "queue")?;
//! buffer.add_byte(7)?; // durable when it returns
//! assert_eq!(buffer.get_byte()?, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **A transaction** is one call of a method with `&mut self` through the
//!   [handle](Transactional::Handle), or one call of [`transact`](Tx::transact). It works on a
//!   copy, so a panic, or an `Err` of the method, leaves the object as it was. A method that calls
//!   others on `self` forms one transaction with them. A transaction that changes nothing writes
//!   nothing.
//! - **Reads** see the last version that is committed and durable. They take no lock and never wait
//!   for a writer's fence.
//! - **Size.** An object of at most 31 bytes takes one line, one flush and one fence. One of at
//!   most 1024 bytes takes two fences, and only lines that changed are flushed.
//! - **Write disturbance.** On a medium that is [declared to have
//!   it](remanent_pmem::Options::write_disturbance), every object lies in two checksummed copies in
//!   lines of their own. That takes twice the space up to 31 bytes, and about the same above. Each
//!   commit computes a checksum and takes one fence.
//!
//! # Weak points
//!
//! A transaction changes one object, not several. A method that a trait provides, and that the
//! `impl` block does not write out, is not one transaction: each method that it calls is one. An
//! object of 31 bytes takes 64, and a root takes at least a chunk of 64 KiB; put many objects into
//! a [`TxArray`]. Changing a [`SharedTx`] within its own transaction deadlocks. The first use of an
//! object after its root was opened, even a read, costs another flush and fence, and other threads
//! that use the object at that moment wait for it.

mod check;
mod counters;
mod layout;
mod member;
mod ops;
mod recover;
mod shared;
mod step;
mod value;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::Violation;
use remanent_pmem::persistent::{bytes_of, read_shared};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Mapped, Medium, Persistent, Pool};

pub use self::counters::{Counters, CountersHandle, CountersShared};
pub use self::shared::{SharedTx, TxArray};
pub use self::value::TxValue;

pub(crate) use self::layout::Form;
pub(crate) use self::ops::{commit, recover_version};
use crate::shared::Site;
use crate::{Error, Result};

/// Bytes of the largest object that lies in one line.
pub const LINE_DATA_MAX: usize = 31;
/// Bytes of the largest object.
pub const DATA_MAX: usize = 1024;

/// Plain data that transactions change. The attribute [`transactional`](crate::transactional)
/// implements it for a struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not transactional",
    label = "this type's struct has no `#[transactional]`",
    note = "put `#[transactional]` on the struct as well as on its `impl` blocks"
)]
pub trait Transactional: Persistent {
    /// A persistent object of this type, and the right to change it. It has the type's own methods,
    /// each of which is one transaction.
    type Handle<M: Medium>: From<Tx<Self, M>>;
    /// A persistent object of this type that any number of threads share.
    type Shared<M: Medium>: From<SharedTx<Self, M>>;

    /// Creates a persistent object with this value under a new root.
    ///
    /// # Errors
    ///
    /// As for [`Tx::create`].
    fn create<M: Medium>(self, pool: &Pool<M>, name: &str) -> Result<Self::Handle<M>> {
        Ok(Tx::create(pool, name, self)?.into())
    }

    /// Opens a persistent object.
    ///
    /// # Errors
    ///
    /// As for [`Tx::open`].
    fn open<M: Medium>(pool: &Pool<M>, name: &str) -> Result<Self::Handle<M>> {
        Ok(Tx::open(pool, name)?.into())
    }

    /// Opens a persistent object, or creates one with this value when there is no root of that
    /// name.
    ///
    /// # Errors
    ///
    /// As for [`Tx::open`] and [`Tx::create`].
    fn open_or_create<M: Medium>(self, pool: &Pool<M>, name: &str) -> Result<Self::Handle<M>> {
        Ok(Tx::open_or_create(pool, name, self)?.into())
    }

    /// Opens a persistent object that is shared by threads.
    ///
    /// # Errors
    ///
    /// As for [`SharedTx::open`].
    fn open_shared<M: Medium>(pool: &Pool<M>, name: &str) -> Result<Self::Shared<M>> {
        Ok(SharedTx::open(pool, name)?.into())
    }
}

/// Rejects, at compile time, a type that is too large for a transactional object.
///
/// # Panics
///
/// When `T` has more than [`DATA_MAX`] bytes.
#[track_caller]
pub const fn require_fits<T>() {
    assert!(
        size_of::<T>() <= DATA_MAX,
        "this struct is too large to be transactional: an object has at most 1024 bytes; split it into \
         several objects, or keep what is large in a block of its own and an `Off` to it here"
    );
}

/// Rejects, at compile time, a type that does not fit into one line.
///
/// # Panics
///
/// When `T` has more than [`LINE_DATA_MAX`] bytes.
#[track_caller]
pub const fn require_line<T>() {
    assert!(
        size_of::<T>() <= LINE_DATA_MAX,
        "this struct is too large for one cache line, of which each half holds 31 bytes of data: make it \
         smaller, or say `#[transactional]` without `line` and pay a second fence"
    );
}

/// The objects of a root: the state that all handles of a process share.
#[doc(hidden)]
pub struct Objects<T, M: Medium> {
    heap: Site<M>,
    form: Form,
    /// Pool offset of the first object.
    first: u64,
    /// The [`State`] of each object.
    states: Box<[AtomicU64]>,
    types: PhantomData<fn(T)>,
}

/// Version and lock of an object: `(version + 1) << 1 | locked`. Two special values say that the
/// version was not looked up yet, or that some thread is looking it up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const UNSEEN: State = State(0);
    const LOOKING: State = State(1);

    fn of(version: u64, is_locked: bool) -> Self {
        State((version + 1) << 1 | u64::from(is_locked))
    }

    fn version(self) -> u64 {
        (self.0 >> 1) - 1
    }

    fn is_locked(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The place of an object: its index, and the offsets of its even and its odd versions.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u64,
    data: [u64; 2],
}

impl<T: Persistent, M: Medium> Objects<T, M> {
    fn create_one(pool: &Pool<M>, name: &str, initial: T) -> Result<Arc<Self>> {
        Ok(pool.create_root_with(name, |heap| Self::fill(Site::alone(heap), 1, |_| initial))?)
    }

    /// Opens a root that must have exactly one object.
    fn open_one(pool: &Pool<M>, name: &str) -> Result<Arc<Self>> {
        let objects: Arc<Self> = pool.open_root(name)?;
        if objects.states.len() == 1 {
            return Ok(objects);
        }
        let expected = <Self as RootObject<M>>::root_type();
        let found = format!("TxArray<{}> of {} objects", T::TYPE_NAME, objects.states.len());
        let found = RootType { name: found, layout: expected.layout };
        Err(PoolError::WrongType { name: name.to_owned(), found, expected }.into())
    }

    #[inline(always)]
    fn medium(&self) -> &M {
        self.heap.medium()
    }

    #[inline(always)]
    fn base(&self, index: u64) -> u64 {
        self.first + index * self.form.stride(size_of::<T>() as u64)
    }

    /// The state of an object. The first call looks the version up.
    #[inline]
    fn state(&self, index: u64) -> Result<State> {
        loop {
            // Acquire: the version's bytes were stored before. Partner of the Release in `conclude`
            // and `look_up`.
            match State(self.states[index as usize].load(Ordering::Acquire)) {
                State::UNSEEN => self.look_up(index)?,
                State::LOOKING => self.medium().pause(),
                state => return Ok(state),
            }
        }
    }

    /// Finds the valid version, unless another thread does.
    #[cold]
    fn look_up(&self, index: u64) -> Result<()> {
        let state = &self.states[index as usize];
        let (unseen, looking) = (State::UNSEEN.0, State::LOOKING.0);
        // Acquire: partner of the Release below, by a thread that found no valid version.
        if state.compare_exchange(unseen, looking, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        let (base, len) = (self.base(index), size_of::<T>() as u64);
        let found = ops::recover_version(self.medium(), self.form, base, len);
        let known = found.map_or(State::UNSEEN, |version| State::of(version, false));
        // Release: after the version was made durable. Partner of the Acquire in `state` and above.
        state.store(known.0, Ordering::Release);
        self.heap.verify()?;
        let damaged = || PoolError::corrupt(base, format!("object {index} has no valid version"));
        found.map(drop).ok_or_else(|| damaged().into())
    }

    /// Takes the object's lock if it is free, and returns the version.
    fn try_lock(&self, index: u64) -> Result<Option<u64>> {
        let state = self.state(index)?;
        if state.is_locked() {
            return Ok(None);
        }
        let locked = State::of(state.version(), true);
        // Acquire: partner of the Release in `unlock` and `conclude`, by the last holder.
        let taken = self.states[index as usize].compare_exchange(
            state.0,
            locked.0,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        Ok(taken.is_ok().then(|| state.version()))
    }

    /// Waits for the object's lock, and returns the version.
    fn lock(&self, index: u64) -> Result<u64> {
        loop {
            match self.try_lock(index)? {
                Some(version) => return Ok(version),
                None => self.medium().pause(),
            }
        }
    }

    fn unlock(&self, index: u64) {
        // Release: partner of the Acquire in `try_lock`.
        self.states[index as usize].fetch_and(!1, Ordering::Release);
    }

    /// Reads a version. The caller holds the lock, so that nobody overwrites it, or compares
    /// versions afterwards.
    #[inline(always)]
    fn read(&self, place: Place, version: u64) -> T {
        read_shared(self.medium(), place.data[(version & 1) as usize])
    }

    /// The place of the object with this index.
    fn place(&self, index: u64) -> Place {
        let (base, len) = (self.base(index), size_of::<T>() as u64);
        Place { index, data: [0, 1].map(|version| self.form.data(base, version, len)) }
    }

    /// Commits `value` as the object's next version, unless it equals `before`, the valid one.
    /// Returns the version that is valid afterwards. The caller holds the lock.
    #[inline]
    fn commit(&self, index: u64, version: u64, before: &T, value: &T) -> Result<u64> {
        if bytes_of(before) == bytes_of(value) {
            return Ok(version);
        }
        ops::commit(self.medium(), self.form, self.base(index), version, before, value);
        self.heap.verify()?;
        self.conclude(index, version + 1);
        Ok(version + 1)
    }

    /// As [`commit`](Objects::commit), but without the last fence, and without
    /// [`conclude`](Objects::conclude).
    fn stage(&self, index: u64, version: u64, before: &T, value: &T) {
        ops::stage(self.medium(), self.form, self.base(index), version, before, value);
    }

    /// Publishes a durable version to readers. The caller holds the lock, and keeps it.
    fn conclude(&self, index: u64, version: u64) {
        // Release: after the fence, so that no reader sees a version that a crash could still undo.
        // Partner of the Acquire in `state`.
        self.states[index as usize].store(State::of(version, true).0, Ordering::Release);
    }
}

/// A persistent object, and the right to change it.
///
/// An object has one at a time. [`share`](Tx::share) lets several threads change the object.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::line_tx::Tx;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut pair: Tx<[u64; 2]> = Tx::create(&pool, "pair", [1, 2])?;
/// pair.transact(|pair| pair.swap(0, 1))?;
/// assert_eq!(pair.get()?, [2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tx<T: Persistent, M: Medium = Mapped> {
    objects: Arc<Objects<T, M>>,
    index: u64,
    version: u64,
    /// The object as it was last committed.
    value: T,
}

impl<T: Persistent, M: Medium> Tx<T, M> {
    /// Creates a persistent object with the value `initial` under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        Self::take(Objects::create_one(pool, name, initial)?, name)
    }

    /// Opens a persistent object, in any state that a crash left the pool in.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or another handle has the right to change
    /// it.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Self::take(Objects::open_one(pool, name)?, name)
    }

    /// Opens a persistent object, or creates one with the value `initial` when there is no root of
    /// that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Tx::open) and [`create`](Tx::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        match Self::open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name, initial),
            opened => opened,
        }
    }

    fn take(objects: Arc<Objects<T, M>>, name: &str) -> Result<Self> {
        let index = 0;
        match objects.try_lock(index)? {
            Some(version) => {
                let value = objects.read(objects.place(index), version);
                let tx = Tx { objects, index, version, value };
                tx.objects.heap.verify()?;
                Ok(tx)
            }
            None => Err(PoolError::RootInUse { name: name.to_owned() }.into()),
        }
    }

    /// A copy of the object as it was last committed. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get(&self) -> Result<T> {
        self.objects.heap.verify()?;
        Ok(self.value)
    }

    /// Changes the object by one transaction, which commits in any case unless `change` panics.
    /// After a panic the object is as it was.
    ///
    /// # Errors
    ///
    /// When the medium met a fault; the change may or may not survive then.
    #[inline]
    pub fn transact<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Result<R> {
        let mut value = self.get()?;
        let result = change(&mut value);
        self.commit(value)?;
        Ok(result)
    }

    /// Changes the object by one transaction, which commits if `change` returns `Ok`. Otherwise the
    /// object stays as it was. The outer result is that of the pool, the inner one that of
    /// `change`.
    ///
    /// # Errors
    ///
    /// When the medium met a fault; the change may or may not survive then.
    #[inline]
    pub fn try_transact<R, E>(
        &mut self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let mut value = self.get()?;
        let result = change(&mut value);
        if result.is_ok() {
            self.commit(value)?;
        }
        Ok(result)
    }

    #[inline]
    fn commit(&mut self, value: T) -> Result<()> {
        self.version = self.objects.commit(self.index, self.version, &self.value, &value)?;
        self.value = value;
        Ok(())
    }

    /// Replaces the object by one transaction.
    ///
    /// # Errors
    ///
    /// As for [`transact`](Tx::transact).
    #[inline]
    pub fn set(&mut self, value: T) -> Result<()> {
        self.transact(|object| *object = value)
    }

    /// Turns this handle into one that any number of threads can share.
    pub fn share(self) -> SharedTx<T, M> {
        SharedTx::new(Arc::clone(&self.objects), self.index)
    }

    /// A handle for threads that read the object while this one goes on changing it. Changes by
    /// those threads wait until this handle is dropped.
    pub fn reader(&self) -> SharedTx<T, M> {
        SharedTx::new(Arc::clone(&self.objects), self.index)
    }

    /// Proves that the object and its root are consistent.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the object is the result, not an error.
    pub fn check(&mut self) -> Result<Vec<Violation>> {
        self.objects.check()
    }
}

impl<T: Persistent, M: Medium> Drop for Tx<T, M> {
    fn drop(&mut self) {
        self.objects.unlock(self.index);
    }
}

impl<T: Persistent + fmt::Debug, M: Medium> fmt::Debug for Tx<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(value) => f.debug_tuple("Tx").field(&value).finish(),
            Err(error) => write!(f, "Tx({error})"),
        }
    }
}
