//! A vector whose elements never change.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::persistent::read_value;
use remanent_pmem::{Error as PoolError, Frozen, Mapped, Medium, Persistent, Pool};

use super::layout::Shape;
use super::root::Root;
use crate::{Error, Result};

/// A vector whose elements are added at the end, and never changed or removed; see the
/// [module](super).
///
/// No thread writes to an element once it is there. So readers get slices of elements in place,
/// without a copy. Clones are handles to one vector.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::AppendVector;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let prices: AppendVector<u64> = AppendVector::create(&pool, "prices")?;
/// prices.extend_from_slice(&[3, 1, 2])?;
/// let mut sum = 0;
/// prices.for_each_slice(0, prices.len(), |prices| sum += prices.iter().sum::<u64>())?;
/// assert_eq!(sum, 6);
/// assert_eq!(prices.with_slice(1, 3, |prices| prices.to_vec())?, Some(vec![1, 2]));
/// assert_eq!(prices.with_slice(1, 4, |prices| prices.to_vec())?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AppendVector<T: Persistent, M: Medium = Mapped> {
    pub(super) root: Arc<Root<T, M, false>>,
}

impl<T: Persistent, M: Medium> AppendVector<T, M> {
    /// Creates an empty vector under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(AppendVector { root: pool.create_root(name)? })
    }

    /// Opens an existing vector, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or the vector is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        Ok(AppendVector { root: pool.open_root(name)? })
    }

    /// Opens a vector, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](AppendVector::open) and [`create`](AppendVector::create).
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
    /// As for [`push`](AppendVector::push).
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

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.root.core.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes the elements from `first` up to `end` to `visit`, one slice for each run that they
    /// lie in. Indexes behind the end of the vector are left out. No copy where memory is mapped.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What was visited may be zeros then.
    pub fn for_each_slice(&self, first: u64, end: u64, mut visit: impl FnMut(&[T])) -> Result<()> {
        let Root { core, heap } = &*self.root;
        core.pieces(heap, first, end.min(core.len()), |_, offset, count| {
            visit(&view(heap.medium(), offset, count));
        })?;
        Ok(heap.verify()?)
    }

    /// Passes the elements from `first` up to `end` to `use_elements`, in one slice. `None` when
    /// the vector is shorter than `end`, or `end` lies before `first`. No copy where memory is
    /// mapped and the elements lie in one run.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What was passed may be zeros then.
    pub fn with_slice<R>(
        &self,
        first: u64,
        end: u64,
        use_elements: impl FnOnce(&[T]) -> R,
    ) -> Result<Option<R>> {
        let Root { core, heap } = &*self.root;
        if first > end || end > core.len() {
            return Ok(None);
        }
        let mut found = Cow::Borrowed(&[][..]);
        core.pieces(heap, first, end, |_, offset, count| {
            let piece = view(heap.medium(), offset, count);
            if found.is_empty() {
                found = piece;
            } else {
                found.to_mut().extend_from_slice(&piece);
            }
        })?;
        let result = use_elements(&found);
        heap.verify()?;
        Ok(Some(result))
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

/// Elements of one run, all of which are published.
fn view<T: Persistent, M: Medium>(medium: &M, offset: u64, count: u64) -> Cow<'_, [T]> {
    let len = count * Shape::<T>::SIZE;
    // SAFETY: no method of this type stores to an element below the published length, or frees its
    // run. Elements are whole words, so that no store beside them touches theirs. The medium
    // outlives the view.
    let range = unsafe { Frozen::new(offset, len) };
    match medium.view(range) {
        Cow::Borrowed(bytes) if is_fit::<T>(bytes, len) => {
            let first = bytes.as_ptr().cast::<T>();
            // SAFETY: `is_fit` found that there are as many bytes as in `count` elements, and that
            // they are aligned for one. Each bit pattern is a value. The bytes are borrowed for as
            // long as the slice.
            Cow::Borrowed(unsafe { std::slice::from_raw_parts(first, count as usize) })
        }
        _ => {
            let offsets = (offset..offset + len).step_by(Shape::<T>::SIZE as usize);
            Cow::Owned(offsets.map(|offset| read_value(medium, offset)).collect())
        }
    }
}

/// Whether bytes can be elements: their number is as expected, and they are aligned.
fn is_fit<T: Persistent>(bytes: &[u8], len: u64) -> bool {
    bytes.len() as u64 == len && bytes.as_ptr().cast::<T>().is_aligned()
}

impl<T: Persistent, M: Medium> Clone for AppendVector<T, M> {
    fn clone(&self) -> Self {
        AppendVector { root: Arc::clone(&self.root) }
    }
}

impl<T: Persistent, M: Medium> fmt::Debug for AppendVector<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vector = f.debug_struct("AppendVector");
        vector.field("type", &T::TYPE_NAME).field("len", &self.len()).finish_non_exhaustive()
    }
}
