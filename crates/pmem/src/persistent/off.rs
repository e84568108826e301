//! Relative pointers: places in a pool that mean the same wherever the pool is mapped.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use super::{Persistent, name_hash};

/// A relative pointer: the pool offset of a `T`, 8 bytes, null when zero.
///
/// It cannot be dereferenced. Its target is read and written through a [`Medium`](crate::Medium),
/// because other threads and a crash may change it; so there is no `&T`. An offset read from a pool
/// may be any number. A medium reports one outside the pool as
/// [`Fault::OutOfRange`](crate::Fault::OutOfRange).
///
/// ```
/// use remanent_pmem::Off;
///
/// let header: Off<[u64; 8]> = Off::new(0x1000);
/// let third: Off<u64> = header.cast::<u64>().byte_add(16);
/// assert_eq!(third.raw(), 0x1010);
/// assert!(Off::<u64>::NULL.is_null());
/// ```
#[repr(transparent)]
pub struct Off<T: ?Sized>(u64, PhantomData<fn() -> T>);

impl<T: ?Sized> Off<T> {
    /// The null pointer. Offset 0 holds the superblock, which no pointer leads to.
    pub const NULL: Self = Off::new(0);

    /// Points to pool offset `offset`, in bytes.
    #[inline]
    pub const fn new(offset: u64) -> Self {
        Off(offset, PhantomData)
    }

    /// The pool offset in bytes.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is null.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The same place, seen as another type.
    #[inline]
    pub const fn cast<U: ?Sized>(self) -> Off<U> {
        Off::new(self.0)
    }

    /// The place `len` bytes further on.
    ///
    /// # Panics
    ///
    /// On overflow, in builds that check arithmetic. Other builds wrap, and the medium then reports
    /// the offset as out of range or reads near offset 0; the behaviour is never undefined.
    #[inline]
    #[must_use]
    pub const fn byte_add(self, len: u64) -> Self {
        Off::new(self.0 + len)
    }
}

// SAFETY: a transparent u64: no padding, and every bit pattern is an offset. It is Copy, and Send
// and Sync, because `fn() -> T` is for every T.
#[diagnostic::do_not_recommend]
unsafe impl<T: ?Sized + 'static> Persistent for Off<T> {
    const TYPE_NAME: &'static str = "Off";
    // Independent of T's layout, because types may point to themselves.
    const LAYOUT: u64 = name_hash(Self::TYPE_NAME);
}

// By hand: a derive would require the same trait of T, which a pointer does not need.
impl<T: ?Sized> Clone for Off<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized> Copy for Off<T> {}

impl<T: ?Sized> Default for Off<T> {
    fn default() -> Self {
        Off::NULL
    }
}

impl<T: ?Sized> PartialEq for Off<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T: ?Sized> Eq for Off<T> {}

impl<T: ?Sized> PartialOrd for Off<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: ?Sized> Ord for Off<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T: ?Sized> Hash for Off<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for Off<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Off({:#x})", self.0)
    }
}
