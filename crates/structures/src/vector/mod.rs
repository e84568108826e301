//! Arrays that grow without moving: elements are added at the end and found by their index.
//!
//! - [`Vector`]: its elements can be replaced, and removed from the end.
//! - [`AppendVector`]: its elements never change, so that readers get slices of them in place.
//!
//! ```
//! use remanent_pmem::Pool;
//! use remanent_structures::Vector;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("example.pool");
//! let pool = Pool::options().create(&path)?;
//! let samples: Vector<u64> = Vector::create(&pool, "samples")?;
//! assert_eq!(samples.push(&17)?, 0); // its index; durable when it returns
//! samples.extend_from_slice(&[18, 19, 20])?; // all of them or none
//! samples.set(1, &180)?;
//! samples.truncate(3)?;
//! drop((samples, pool)); // or be killed: it makes no difference
//!
//! let pool = Pool::options().open(&path)?;
//! let samples: Vector<u64> = Vector::open(&pool, "samples")?;
//! assert_eq!(samples.get(1)?, Some(180));
//! assert_eq!(samples.iter().collect::<Result<Vec<_>, _>>()?, [17, 180, 19]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **Elements** are plain data of a fixed size ([`Persistent`]): a multiple of 8 bytes, up to 1
//!   MiB, or up to 224 bytes if they are replaced. Other sizes do not compile.
//! - **Runs.** Elements lie one after the other in runs. The first run has about 64 KiB. Each
//!   further one has twice as much, up to 64 times as much. An element never moves, and shifts turn
//!   its index into its place. Truncating gives runs back to the pool.
//! - **Fences.** Adding elements takes one fence up to 64 KiB, and two beyond. Each new run takes
//!   some more. Replacing an element takes one, or two if it was added last. Truncating takes one,
//!   and a few for each run. Reading takes none.
//! - **Threads.** Any number read without a lock, and see nothing that a crash can undo. Any number
//!   add. While one waits for its fence, the others write their elements, and one of these commits
//!   all of them with the next fence. Replacing and truncating wait for each other.
//! - **A crash** leaves the vector as it was after some operation. Every operation that returned is
//!   there; each other one is there completely or not at all.
//!
//! # Weak points
//!
//! Elements have no checksums: a damaged element is returned as it is. When the process dies,
//! damage to the elements that were added last, before the vector is opened again, cannot be told
//! from elements that never arrived. The first run takes 64 KiB of the pool.

mod append;
mod check;
mod core;
mod layout;
mod ops;
mod recover;
mod root;
mod step;

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Mapped, Medium, Persistent, Pool};

pub use self::append::AppendVector;

use self::root::Root;
use crate::{Error, Result};

/// Bytes of elements that are copied at a time.
const COPIED_LEN: usize = 4 << 10;

/// An array in persistent memory, shared by any number of threads; see the [module](self).
///
/// Clones are handles to one vector.
pub struct Vector<T: Persistent, M: Medium = Mapped> {
    root: Arc<Root<T, M, true>>,
}

impl<T: Persistent, M: Medium> Vector<T, M> {
    /// Creates an empty vector under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(Vector { root: pool.create_root(name)? })
    }

    /// Opens an existing vector, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or the vector is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(Vector { root: pool.open_root(name)? })
    }

    /// Opens a vector, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Vector::open) and [`create`](Vector::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self> {
        match Self::open(pool, name) {
            Err(Error::Pool(PoolError::NoSuchRoot { .. })) => Self::create(pool, name),
            opened => opened,
        }
    }

    /// Adds an element at the end, and returns its index. One fence.
    ///
    /// # Errors
    ///
    /// When the pool is full ([`Error::is_full`]); nothing was changed then. When the medium met a
    /// fault.
    pub fn push(&self, element: &T) -> Result<u64> {
        self.root.core.append(&self.root.heap, std::slice::from_ref(element))
    }

    /// Adds elements at the end, all of them or none, and returns the index of the first. One fence
    /// up to 64 KiB, two beyond.
    ///
    /// # Errors
    ///
    /// As for [`push`](Vector::push).
    pub fn extend_from_slice(&self, elements: &[T]) -> Result<u64> {
        self.root.core.append(&self.root.heap, elements)
    }

    /// A copy of an element. `None` if `index` is not less than the length. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the vector is damaged.
    #[inline]
    pub fn get(&self, index: u64) -> Result<Option<T>> {
        self.root.core.get(&self.root.heap, index)
    }

    /// Replaces an element atomically: no reader and no crash finds a part of it. False if `index`
    /// is not less than the length. One fence, and another one if the element was added last.
    ///
    /// Elements of more than 224 bytes do not compile.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the vector is damaged.
    pub fn set(&self, index: u64, element: &T) -> Result<bool> {
        self.root.core.set(&self.root.heap, index, element)
    }

    /// Removes the elements from `len` on, and gives runs without elements back to the pool.
    /// Nothing happens if the vector is not longer. One fence, and a few for each run.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn truncate(&self, len: u64) -> Result<()> {
        self.root.core.truncate(&self.root.heap, len)
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.root.core.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits all elements in ascending order until the end is reached, including elements that are
    /// added meanwhile.
    ///
    /// Each element is as it was at some moment. After an error the iterator ends.
    pub fn iter(&self) -> Iter<'_, T, M> {
        Iter { vector: self, buffer: Vec::new(), used: 0, next: 0, is_done: false }
    }

    /// Passes copies of the elements from `first` up to `end` to `visit`, many at a time. Indexes
    /// behind the end of the vector are left out.
    ///
    /// The elements of one slice are as they were at one moment.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or the vector is damaged.
    pub fn for_each_slice(&self, first: u64, end: u64, mut visit: impl FnMut(&[T])) -> Result<()> {
        let mut buffer = Vec::new();
        let mut at = first;
        while at < end {
            let most = (end - at).min(copied::<T>() as u64) as usize;
            let count = self.root.core.read(&self.root.heap, at, most, &mut buffer)?;
            if count == 0 {
                break;
            }
            visit(&buffer);
            at += count as u64;
        }
        Ok(())
    }

    /// Checks that the vector and its root are consistent. No operation may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the vector is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.root.check()
    }
}

/// Elements that are copied at a time.
fn copied<T>() -> usize {
    (COPIED_LEN / size_of::<T>()).max(1)
}

impl<T: Persistent, M: Medium> Clone for Vector<T, M> {
    fn clone(&self) -> Self {
        Vector { root: Arc::clone(&self.root) }
    }
}

impl<T: Persistent, M: Medium> fmt::Debug for Vector<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vector = f.debug_struct("Vector");
        vector.field("type", &T::TYPE_NAME).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The elements of a vector; see [`Vector::iter`].
pub struct Iter<'v, T: Persistent, M: Medium = Mapped> {
    vector: &'v Vector<T, M>,
    buffer: Vec<T>,
    /// Elements of the buffer that were handed out.
    used: usize,
    /// Index of the element that follows those of the buffer.
    next: u64,
    is_done: bool,
}

impl<T: Persistent, M: Medium> Iterator for Iter<'_, T, M> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.used == self.buffer.len() && !self.is_done {
            let Root { core, heap } = &*self.vector.root;
            self.used = 0;
            match core.read(heap, self.next, copied::<T>(), &mut self.buffer) {
                Ok(count) => {
                    self.next += count as u64;
                    self.is_done = count == 0;
                }
                Err(error) => {
                    self.buffer.clear();
                    self.is_done = true;
                    return Some(Err(error));
                }
            }
        }
        let element = self.buffer.get(self.used)?;
        self.used += 1;
        Some(Ok(*element))
    }
}

impl<T: Persistent, M: Medium> FusedIterator for Iter<'_, T, M> {}

impl<'v, T: Persistent, M: Medium> IntoIterator for &'v Vector<T, M> {
    type Item = Result<T>;
    type IntoIter = Iter<'v, T, M>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Persistent, M: Medium> fmt::Debug for Iter<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("vector", self.vector).finish_non_exhaustive()
    }
}
