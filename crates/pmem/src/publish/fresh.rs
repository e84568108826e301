//! Unpublished blocks, whose type says what about them is durable.
//!
//! A block is written ([`Dirty`]); its lines are flushed ([`Flushed`]); a fence waits for them
//! ([`Durable`]). Only then does [`Link::publish`](crate::Link::publish) accept it. Skipping a
//! step, or writing after the flush, does not compile. After publication other threads may dirty
//! the block at any time, which a type cannot express. From then on the word of the link says what
//! is durable.
//!
//! ```
//! use remanent_pmem::{Dirty, Durable, Fresh, Medium, Off, Persistent, fence};
//!
//! #[derive(Clone, Copy, Persistent)]
//! #[repr(C)]
//! struct Node {
//!     next: Off<Node>,
//!     key: u64,
//! }
//!
//! /// Fills two nodes that will be published one after the other, under one fence.
//! fn fill<'m, M: Medium>(
//!     mut first: Fresh<'m, Node, Dirty, M>,
//!     mut second: Fresh<'m, Node, Dirty, M>,
//! ) -> (Fresh<'m, Node, Durable, M>, Fresh<'m, Node, Durable, M>) {
//!     first.write_value(Node { next: second.off(), key: 1 });
//!     second.write_value(Node { next: Off::NULL, key: 2 });
//!     fence((first.flush(), second.flush()))
//! }
//! ```

use std::fmt;
use std::marker::PhantomData;

use crate::medium::{Medium, WORD_LEN};
use crate::persistent::{self, Off, Persistent};

/// The block may be written; nothing about it is durable.
///
/// `!Send`, like [`Flushed`]: streaming stores wait in a buffer of the core that executed them.
#[derive(Debug)]
pub enum Dirty {}

/// Everything written is on its way to the medium, and durable after the next fence of this thread.
///
/// `!Send`: a fence orders only the flushes of its own thread.
#[derive(Debug)]
pub enum Flushed {}

/// Everything written is durable.
#[derive(Debug)]
pub enum Durable {}

/// The state of a [`Fresh`] block: [`Dirty`], [`Flushed`] or [`Durable`], and no other.
pub trait State: sealed::State {}
impl State for Dirty {}
impl State for Flushed {}
impl State for Durable {}

/// A block of pool memory that belongs to one thread, and that no link leads to yet.
///
/// `T` is the type at the beginning of the block: the whole block, or a header before bytes of
/// varying length. Dropping a `Fresh` forgets the block without freeing it. Use
/// [`into_raw`](Fresh::into_raw) to give it back to its allocator.
#[must_use = "an unpublished block is lost when it is dropped: publish it, or free it"]
pub struct Fresh<'m, T, S: State, M: Medium> {
    medium: &'m M,
    offset: u64,
    len: u64,
    /// The range to flush, relative to the block: from the first to the last byte written, if any.
    written_begin: u64,
    written_end: u64,
    /// The header's type; a `Fresh` holds no `T`.
    header: PhantomData<fn() -> T>,
    /// Whether the block may change threads, which depends on the state.
    state: PhantomData<S::Confinement>,
}

impl<'m, T, S: State, M: Medium> Fresh<'m, T, S, M> {
    /// The medium of the block.
    #[inline]
    pub fn medium(&self) -> &'m M {
        self.medium
    }

    /// Pointer to the block.
    #[inline]
    pub fn off(&self) -> Off<T> {
        Off::new(self.offset)
    }

    /// Pool offset of the block in bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of the block in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the block has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives up the block, still unreachable, and returns its pool offset, for example to free it.
    #[inline]
    #[must_use = "the offset is all that is left of the block"]
    pub fn into_raw(self) -> u64 {
        self.offset
    }

    #[inline]
    fn into_state<S2: State>(self) -> Fresh<'m, T, S2, M> {
        let Fresh { medium, offset, len, written_begin, written_end, header, state: _ } = self;
        Fresh { medium, offset, len, written_begin, written_end, header, state: PhantomData }
    }
}

impl<'m, T, M: Medium> Fresh<'m, T, Dirty, M> {
    /// Takes the block of `len` bytes at `offset` into use.
    ///
    /// Bytes that are not written keep the block's earlier content, durable or not.
    ///
    /// # Safety
    ///
    /// The block is allocated, the caller is its only owner, and no other thread, link or `Fresh`
    /// leads to any byte of it.
    ///
    /// # Panics
    ///
    /// When the block is not aligned to a word, or is shorter than `T`.
    #[inline]
    #[track_caller]
    pub unsafe fn from_raw(medium: &'m M, offset: u64, len: u64) -> Self {
        if !offset.is_multiple_of(WORD_LEN) || (size_of::<T>() as u64) > len {
            unfit(offset, len, size_of::<T>() as u64);
        }
        Fresh {
            medium,
            offset,
            len,
            written_begin: u64::MAX,
            written_end: 0,
            header: PhantomData,
            state: PhantomData,
        }
    }

    /// Stores the header.
    #[inline]
    #[track_caller]
    pub fn write_value(&mut self, value: T)
    where
        T: Persistent,
    {
        self.write(0, value);
    }

    /// Stores a field `field_offset` bytes into the block, as `offset_of!` gives it.
    ///
    /// # Panics
    ///
    /// When the field does not lie within the block.
    #[inline]
    #[track_caller]
    pub fn write<F: Persistent>(&mut self, field_offset: u64, value: F) {
        let offset = self.claim(field_offset, size_of::<F>() as u64);
        persistent::write_value(self.medium, offset, &value);
    }

    /// Stores the word `at` bytes into the block; `at` is a multiple of 8.
    ///
    /// # Panics
    ///
    /// When the word does not lie within the block.
    #[inline]
    #[track_caller]
    pub fn write_word(&mut self, at: u64, value: u64) {
        debug_assert!(at.is_multiple_of(WORD_LEN), "word at misaligned position {at}");
        let offset = self.claim(at, WORD_LEN);
        self.medium.store(offset, value);
    }

    /// Copies bytes into the block, at byte `at`.
    ///
    /// # Panics
    ///
    /// When they do not fit in the block.
    #[inline]
    #[track_caller]
    pub fn write_bytes(&mut self, at: u64, bytes: &[u8]) {
        let offset = self.claim(at, bytes.len() as u64);
        self.medium.write(offset, bytes);
    }

    /// Copies bytes into the block, at byte `at`, with streaming stores, which need no flush.
    ///
    /// Faster than [`write_bytes`](Self::write_bytes) from about a page on. Keep all ordinary
    /// stores on one side of these bytes, because the flush covers everything from the first to the
    /// last ordinary store.
    ///
    /// # Panics
    ///
    /// When they do not fit in the block.
    #[inline]
    #[track_caller]
    pub fn write_streaming(&mut self, at: u64, bytes: &[u8]) {
        let offset = self.place(at, bytes.len() as u64);
        self.medium.write_streaming(offset, bytes);
    }

    /// Flushes each line from the first to the last one written.
    ///
    /// Nothing is durable before [`fence`].
    #[inline]
    #[track_caller]
    pub fn flush(self) -> Fresh<'m, T, Flushed, M> {
        if self.written_begin < self.written_end {
            // Flush: the block's content. Partner: the fence that `Link::publish` requires by its
            // type.
            let len = self.written_end - self.written_begin;
            self.medium.flush(self.offset + self.written_begin, len);
        }
        self.into_state()
    }

    /// The pool offset of `len` bytes to be written at `at`; remembers the range for the flush.
    #[inline]
    #[track_caller]
    fn claim(&mut self, at: u64, len: u64) -> u64 {
        let offset = self.place(at, len);
        self.written_begin = self.written_begin.min(at);
        self.written_end = self.written_end.max(at + len);
        offset
    }

    /// The pool offset of `len` bytes at `at`, which lie within the block.
    #[inline]
    #[track_caller]
    fn place(&self, at: u64, len: u64) -> u64 {
        if len > self.len || at > self.len - len {
            outside(at, len, self.offset, self.len);
        }
        self.offset + at
    }
}

impl<'m, T, M: Medium> Fresh<'m, T, Durable, M> {
    /// Makes the block writable again, to change it after a failed publication.
    ///
    /// Only what is written from now on is flushed again.
    #[inline]
    pub fn reopen(self) -> Fresh<'m, T, Dirty, M> {
        Fresh { written_begin: u64::MAX, written_end: 0, ..self.into_state() }
    }
}

impl<T, S: State, M: Medium> fmt::Debug for Fresh<'_, T, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fresh<{}>({:#x}, {} bytes)", S::NAME, self.offset, self.len)
    }
}

// In a function of their own, with arguments by value: formatting in place would keep blocks in
// memory instead of registers.
#[cold]
#[track_caller]
fn unfit(offset: u64, len: u64, header_len: u64) -> ! {
    panic!("block of {len} bytes at {offset:#x}: misaligned, or too short for {header_len} bytes");
}

#[cold]
#[track_caller]
fn outside(at: u64, len: u64, offset: u64, block_len: u64) -> ! {
    panic!("{len} bytes at {at} exceed the block of {block_len} bytes at {offset:#x}");
}

/// Waits until everything flushed is durable: exactly one fence, for any number of blocks.
///
/// Takes one [`Fresh<Flushed>`](Fresh), or a tuple (up to six), array or `Vec` of them, of any
/// header types, and returns the same with [`Durable`] blocks. The same fence also makes other
/// flushes and streaming writes of this thread durable. An empty array or `Vec` executes no fence.
///
/// # Panics
///
/// When the blocks lie in different media, because a fence covers one medium.
#[inline]
#[track_caller]
pub fn fence<F: Fenceable>(blocks: F) -> F::Durable {
    if let Some(medium) = blocks.medium() {
        // Fence: partner of each block's flush; their content is durable before any link to them.
        medium.fence();
    }
    blocks.into_durable(sealed::Fenced(()))
}

/// Arguments of [`fence`]: flushed blocks, one or several.
pub trait Fenceable: sealed::Fenceable {}
impl<F: sealed::Fenceable> Fenceable for F {}

mod sealed {
    use std::marker::PhantomData;

    use super::{Dirty, Durable, Flushed, Fresh};
    use crate::medium::Medium;

    pub trait State {
        const NAME: &'static str;
        /// A type that is `Send` exactly when a block in this state may change threads.
        type Confinement;
    }

    impl State for Dirty {
        const NAME: &'static str = "Dirty";
        type Confinement = PhantomData<*const ()>;
    }

    impl State for Flushed {
        const NAME: &'static str = "Flushed";
        type Confinement = PhantomData<*const ()>;
    }

    impl State for Durable {
        const NAME: &'static str = "Durable";
        type Confinement = ();
    }

    /// Proof that a fence was executed after the flushes; only `fence` creates it.
    #[derive(Clone, Copy)]
    pub struct Fenced(pub(super) ());

    /// The implementation of [`Fenceable`](super::Fenceable).
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not flushed, so a fence would make nothing of it durable",
        label = "not a flushed block, nor a tuple, array or `Vec` of flushed blocks",
        note = "write the block, then call `flush()` on it, then `fence` it"
    )]
    pub trait Fenceable {
        type Durable;
        type Medium: Medium;

        /// The medium of all blocks; `None` if there is no block.
        fn medium(&self) -> Option<&Self::Medium>;

        fn into_durable(self, fenced: Fenced) -> Self::Durable;
    }

    impl<'m, T, M: Medium> Fenceable for Fresh<'m, T, Flushed, M> {
        type Durable = Fresh<'m, T, Durable, M>;
        type Medium = M;

        #[inline]
        fn medium(&self) -> Option<&M> {
            Some(self.medium)
        }

        #[inline]
        fn into_durable(self, _: Fenced) -> Self::Durable {
            self.into_state()
        }
    }

    impl<F: Fenceable, const N: usize> Fenceable for [F; N] {
        type Durable = [F::Durable; N];
        type Medium = F::Medium;

        #[inline]
        fn medium(&self) -> Option<&F::Medium> {
            common(self.iter().map(F::medium))
        }

        #[inline]
        fn into_durable(self, fenced: Fenced) -> Self::Durable {
            self.map(|block| block.into_durable(fenced))
        }
    }

    impl<F: Fenceable> Fenceable for Vec<F> {
        type Durable = Vec<F::Durable>;
        type Medium = F::Medium;

        #[inline]
        fn medium(&self) -> Option<&F::Medium> {
            common(self.iter().map(F::medium))
        }

        #[inline]
        fn into_durable(self, fenced: Fenced) -> Self::Durable {
            self.into_iter().map(|block| block.into_durable(fenced)).collect()
        }
    }

    macro_rules! fenceable_tuples {
        ($(($($F:ident $index:tt),+))+) => {$(
            impl<M: Medium, $($F: Fenceable<Medium = M>),+> Fenceable for ($($F,)+) {
                type Durable = ($($F::Durable,)+);
                type Medium = M;

                #[inline]
                fn medium(&self) -> Option<&M> {
                    common([$(self.$index.medium()),+])
                }

                #[inline]
                fn into_durable(self, fenced: Fenced) -> Self::Durable {
                    ($(self.$index.into_durable(fenced),)+)
                }
            }
        )+};
    }
    fenceable_tuples! {
        (A 0)
        (A 0, B 1)
        (A 0, B 1, C 2)
        (A 0, B 1, C 2, D 3)
        (A 0, B 1, C 2, D 3, E 4)
        (A 0, B 1, C 2, D 3, E 4, F 5)
    }

    #[inline]
    #[track_caller]
    fn common<'a, M: Medium>(media: impl IntoIterator<Item = Option<&'a M>>) -> Option<&'a M> {
        media.into_iter().flatten().reduce(|first, other| {
            assert!(std::ptr::eq(first, other), "one fence cannot cover blocks of two media");
            first
        })
    }
}
