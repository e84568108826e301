//! Objects that threads share, and roots with many objects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Persistent, Pool};

use super::{Objects, Place};
use crate::shared::Site;
use crate::{Error, Result};

/// A persistent object that any number of threads share. Readers never wait; writers take turns.
///
/// Clones are handles to one object. The lock is volatile, so no crash leaves it held.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::line_tx::SharedTx;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let total: SharedTx<u64> = SharedTx::create(&pool, "total", 0)?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| total.transact(|total| *total += 1).unwrap());
///     }
/// });
/// assert_eq!(total.get()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedTx<T: Persistent, M: Medium = Mapped> {
    pub(super) objects: Arc<Objects<T, M>>,
    pub(super) place: Place,
}

impl<T: Persistent, M: Medium> SharedTx<T, M> {
    pub(super) fn new(objects: Arc<Objects<T, M>>, index: u64) -> Self {
        SharedTx { place: objects.place(index), objects }
    }

    /// Creates a persistent object with the value `initial` under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        Ok(Self::new(Objects::create_one(pool, name, initial)?, 0))
    }

    /// Opens a persistent object, in any state that a crash left the pool in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(Self::new(Objects::open_one(pool, name)?, 0))
    }

    /// Opens a persistent object, or creates one with the value `initial` when there is no root of
    /// that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](SharedTx::open) and [`create`](SharedTx::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        match Self::open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name, initial),
            opened => opened,
        }
    }

    /// A copy of the object as it was last committed. No fence and no waiting: if a commit
    /// intervenes, the copy is taken again.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get(&self) -> Result<T> {
        loop {
            let version = self.objects.state(self.place.index)?.version();
            let value = self.objects.read(self.place, version);
            // Acquire: the version is loaded again after all bytes were read. A version's copy is
            // overwritten only after the next version was published. Partner of the Release in
            // `conclude`.
            fence(Ordering::Acquire);
            if self.objects.state(self.place.index)?.version() == version {
                self.objects.heap.verify()?;
                return Ok(value);
            }
        }
    }

    /// Changes the object by one transaction, which commits in any case unless `change` panics.
    /// After a panic the object is as it was. Waits while another thread changes the object.
    ///
    /// `change` must not change this object through another handle: that would deadlock.
    ///
    /// # Errors
    ///
    /// When the medium met a fault; the change may or may not survive then.
    #[inline]
    pub fn transact<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R> {
        let guard = Guard::take(self)?;
        let before = guard.read();
        let mut value = before;
        let result = change(&mut value);
        guard.commit(&before, &value)?;
        Ok(result)
    }

    /// Changes the object by one transaction, which commits if `change` returns `Ok`. Otherwise the
    /// object stays as it was. The outer result is that of the pool, the inner one that of
    /// `change`.
    ///
    /// # Errors
    ///
    /// As for [`transact`](SharedTx::transact).
    #[inline]
    pub fn try_transact<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let guard = Guard::take(self)?;
        let before = guard.read();
        let mut value = before;
        let result = change(&mut value);
        if result.is_ok() {
            guard.commit(&before, &value)?;
        }
        Ok(result)
    }

    /// Replaces the object by one transaction.
    ///
    /// # Errors
    ///
    /// As for [`transact`](SharedTx::transact).
    #[inline]
    pub fn set(&self, value: T) -> Result<()> {
        self.transact(|object| *object = value)
    }

    /// Proves that the object and its root are consistent. No transaction may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the object is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.objects.check()
    }
}

impl<T: Persistent, M: Medium> Clone for SharedTx<T, M> {
    fn clone(&self) -> Self {
        SharedTx { objects: Arc::clone(&self.objects), place: self.place }
    }
}

impl<T: Persistent + fmt::Debug, M: Medium> fmt::Debug for SharedTx<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(value) => f.debug_tuple("SharedTx").field(&value).finish(),
            Err(error) => write!(f, "SharedTx({error})"),
        }
    }
}

/// The lock of an object. Dropping it releases the lock, also when a panic unwinds.
struct Guard<'a, T: Persistent, M: Medium> {
    shared: &'a SharedTx<T, M>,
    version: u64,
}

impl<'a, T: Persistent, M: Medium> Guard<'a, T, M> {
    #[inline]
    fn take(shared: &'a SharedTx<T, M>) -> Result<Self> {
        let version = shared.objects.lock(shared.place.index)?;
        let guard = Guard { shared, version };
        shared.objects.heap.verify()?;
        Ok(guard)
    }

    #[inline]
    fn read(&self) -> T {
        self.shared.objects.read(self.shared.place, self.version)
    }

    #[inline]
    fn commit(&self, before: &T, value: &T) -> Result<()> {
        let (objects, index) = (&self.shared.objects, self.shared.place.index);
        objects.commit(index, self.version, before, value).map(drop)
    }
}

impl<T: Persistent, M: Medium> Drop for Guard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        self.shared.objects.unlock(self.shared.place.index);
    }
}

/// Any number of persistent objects of one type under one root.
///
/// An object takes 64 bytes if it has at most 31; otherwise 64 bytes and two copies in whole lines.
/// On media with write disturbance, the form is another one. The time to open does not depend on
/// the number of objects, except that each takes a word of volatile memory.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::line_tx::TxArray;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let accounts: TxArray<[u64; 2]> =
///     TxArray::create(&pool, "accounts", 1000, |number| [number, 0])?;
/// let account = accounts.at(42).expect("there are a thousand");
/// account.transact(|[_, balance]| *balance += 100)?;
/// assert_eq!(account.get()?, [42, 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TxArray<T: Persistent, M: Medium = Mapped> {
    objects: Arc<Objects<T, M>>,
}

impl<T: Persistent, M: Medium> TxArray<T, M> {
    /// Creates `count` objects under a new root. `initial` returns the value of each.
    ///
    /// # Errors
    ///
    /// When the name is taken, the pool is full, or `count` objects are larger than the largest
    /// allocation (4 GiB less 17 MiB).
    pub fn create(
        pool: &Pool<M>,
        name: &str,
        count: u64,
        mut initial: impl FnMut(u64) -> T,
    ) -> Result<Self> {
        let fill = |heap| Objects::fill(Site::alone(heap), count, &mut initial);
        Ok(TxArray { objects: pool.create_root_with(name, fill)? })
    }

    /// Opens existing objects.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(TxArray { objects: pool.open_root(name)? })
    }

    /// Number of objects.
    pub fn len(&self) -> u64 {
        self.objects.states.len() as u64
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object with this index; `None` when there are not so many.
    pub fn at(&self, index: u64) -> Option<SharedTx<T, M>> {
        (index < self.len()).then(|| SharedTx::new(Arc::clone(&self.objects), index))
    }

    /// Proves that the objects and their root are consistent. No transaction may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the objects is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.objects.check()
    }
}

impl<T: Persistent, M: Medium> Clone for TxArray<T, M> {
    fn clone(&self) -> Self {
        TxArray { objects: Arc::clone(&self.objects) }
    }
}

impl<T: Persistent, M: Medium> fmt::Debug for TxArray<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxArray")
            .field("type", &T::TYPE_NAME)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
