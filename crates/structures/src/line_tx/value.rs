//! A single value that is replaced as a whole.

use std::fmt;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Mapped, Medium, Persistent, Pool};

use super::SharedTx;
use crate::Result;

/// A persistent value that is replaced as a whole. [`set`](TxValue::set) is one transaction;
/// readers never wait.
///
/// Clones are handles to one value, for any number of threads. To set a value takes one fence up to
/// 31 bytes, and two up to 1024 bytes.
///
/// ```
/// # use remanent_pmem::Pool;
/// use remanent_structures::TxValue;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let position: TxValue<[u64; 3]> = TxValue::create(&pool, "position", [0, 0, 0])?;
/// position.set([3, 1, 4])?;
/// assert_eq!(position.get()?, [3, 1, 4]);
/// let before = position.replace([1, 5, 9])?;
/// assert_eq!(before, [3, 1, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TxValue<T: Persistent, M: Medium = Mapped>(SharedTx<T, M>);

impl<T: Persistent, M: Medium> TxValue<T, M> {
    /// Creates a value under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        SharedTx::create(pool, name, initial).map(TxValue)
    }

    /// Opens an existing value.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        SharedTx::open(pool, name).map(TxValue)
    }

    /// Opens a value, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](TxValue::open) and [`create`](TxValue::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str, initial: T) -> Result<Self> {
        SharedTx::open_or_create(pool, name, initial).map(TxValue)
    }

    /// The value that was last set. No fence and no waiting.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get(&self) -> Result<T> {
        self.0.get()
    }

    /// Replaces the value. It is durable when the call returns.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn set(&self, value: T) -> Result<()> {
        self.0.set(value)
    }

    /// Replaces the value and returns the previous one, as one step.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn replace(&self, value: T) -> Result<T> {
        self.0.transact(|object| std::mem::replace(object, value))
    }

    /// Replaces the value by a function of it, as one step, and returns the new value.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn update(&self, change: impl FnOnce(T) -> T) -> Result<T> {
        self.0.transact(|object| {
            *object = change(*object);
            *object
        })
    }

    /// Proves that the value and its root are consistent. Nobody may set it meanwhile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the value is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.0.check()
    }
}

impl<T: Persistent, M: Medium> Clone for TxValue<T, M> {
    fn clone(&self) -> Self {
        TxValue(self.0.clone())
    }
}

impl<T: Persistent + fmt::Debug, M: Medium> fmt::Debug for TxValue<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Ok(value) => f.debug_tuple("TxValue").field(&value).finish(),
            Err(error) => write!(f, "TxValue({error})"),
        }
    }
}
